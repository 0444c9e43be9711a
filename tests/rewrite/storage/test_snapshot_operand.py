"""Snapshots: first values of an array that is updated in place, read from a copy; and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.errors import IllegalRewrite
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.rewrite import snapshot, why_not_snapshot


def in_place(border: str, n: int = 7, columns: int = 5) -> Nest:
    """B += A' B over some steps, then B *= 2, row by row."""
    tensors = [Tensor("A", (n, n), "float64", "input"), Tensor("B", (n, columns), "float64", "inout")]
    box = f"0 <= i < {n} and 0 <= j < {columns}"
    update = statement(
        f"{{ S[i, j, k] : {box} and 0 <= k < {n} and {border} }}", "B[i, j] += A[k, i] * B[k, j]"
    )
    scale = statement(f"{{ T[i, j] : {box} }}", "B[i, j] = B[i, j] * 2.0")
    order = pf.Schedule(Nest.of(tensors, [update, scale])).fuse("S", "T", at="j").tree
    return Nest.of(tensors, [update, scale], order=order)


def draw(n: int, columns: int) -> dict[str, np.ndarray]:
    """Small integers, whose sums are exact in any order."""
    rng = np.random.default_rng(11)
    return {
        "A": rng.integers(-4, 5, (n, n)).astype(float),
        "B": rng.integers(-4, 5, (n, columns)).astype(float),
    }


def test_the_copy_takes_the_anti_dependences_and_keeps_the_values() -> None:
    nest = in_place("k > i")
    done = snapshot(nest, "S", "B")
    assert str(done) == "S reads what B held at first from a copy, made by before_B"
    kinds = [{p.kind for p in n.dependences().between("S", "S")} for n in (nest, done.nest)]
    assert kinds == [{"anti", "reduction"}, {"reduction"}]
    inputs = draw(7, 5)
    np.testing.assert_array_equal(pf.interpret(done.nest, inputs)["B"], pf.interpret(nest, inputs)["B"])


def test_what_is_refused_is_said() -> None:
    nest = in_place("k < i")
    refusal = why_not_snapshot(nest, "S", "B")
    assert refusal is not None
    assert "reads elements of B that were written before" in str(refusal)
    assert len(refusal.instances) == 2
    assert "A is not an array that the nest reads and writes" in str(why_not_snapshot(nest, "S", "A"))
    with pytest.raises(IllegalRewrite, match="T does not read A"):
        snapshot(nest, "T", "A")


@pytest.mark.parametrize("rows", [200, 199])
def test_a_product_over_a_triangle_of_steps_in_place_runs_in_blocks(rows: int) -> None:
    """The whole of trmm; with 199 = 33 * 6 + 1 rows the last tile has a row and no steps."""
    nest = in_place("k > i", rows, 70)
    net = pf.compile(nest, target="cpu", machine="xeon")
    assert "S reads what B held at first from a copy" in net.explain()
    assert "_first < k" in net.source
    assert "tile_mac" in net.source
    inputs = draw(rows, 70)
    expected = 2 * (inputs["B"] + np.tril(inputs["A"], -1).T @ inputs["B"])
    net(**inputs)
    np.testing.assert_array_equal(inputs["B"], expected)
