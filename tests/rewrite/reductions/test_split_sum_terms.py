"""Terms apart: the same sums, each term added by a statement of its own, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.errors import IllegalRewrite
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.ir.nest_text import body_text
from polyfuse.ir.tree import parts
from polyfuse.rewrite import terms, why_not_terms


def both(body: str, n: int = 5, domain: str = "0 <= j <= i") -> Nest:
    """c[i, j] *= 2, then a sum over k in the same loop i, over a triangle."""
    tensors = [Tensor(name, (n, n), "float64", "input") for name in "ab"]
    tensors.append(Tensor("c", (n, n), "float64", "inout"))
    box = f"0 <= i < {n} and 0 <= j < {n} and {domain}"
    return Nest.of(
        tensors,
        [
            statement(f"{{ S[i, j] : {box} }}", "c[i, j] = c[i, j] * 2.0"),
            statement(f"{{ T[i, j, k] : {box} and 0 <= k < {n} }}", f"c[i, j] += {body}"),
            statement(f"{{ U[i, j] : {box} }}", "c[i, j] = c[i, j] + 1.0"),
        ],
    )


def draw(n: int) -> dict[str, np.ndarray]:
    """Small integers, whose sums are exact in any order."""
    rng = np.random.default_rng(7)
    return {name: rng.integers(-4, 5, (n, n)).astype(float) for name in "abc"}


def test_each_term_is_a_sum_and_the_values_are_the_same() -> None:
    nest = both("a[i, k] * b[k, j] + b[i, k] * a[k, j] + a[j, k]")
    done = terms(nest, "T")
    assert str(done) == "the terms of T are sums of their own: T, T_1, T_2"
    bodies = [body_text(s) for s in done.nest.statements[1:4]]
    assert bodies == ["c[i, j] += " + term for term in ("a[i, k] * b[k, j]", "b[i, k] * a[k, j]", "a[j, k]")]
    assert len(parts(done.nest.order)) == 5, "each term has loops of its own"
    inputs = draw(5)
    np.testing.assert_array_equal(pf.interpret(done.nest, inputs)["c"], pf.interpret(nest, inputs)["c"])


def test_what_is_refused_is_said() -> None:
    nest = both("a[i, k] * b[k, j] + c[i, j]")
    assert "a term of T reads c, which the sum accumulates" in str(why_not_terms(nest, "T"))
    assert "T adds one term" in str(why_not_terms(both("a[i, k] * b[k, j]"), "T"))
    with pytest.raises(IllegalRewrite, match="S is not a sum"):
        terms(nest, "S")


@pytest.mark.parametrize(
    "along", [False, True], ids=["rows of the second factors", "rows of syr2k's factors"]
)
def test_two_products_in_one_sum_run_in_blocks(along: bool) -> None:
    """Over a triangle, in two kernels: tiles of its inside and of its border, or those inside as dot products."""
    second = "{}[j, k]" if along else "{}[k, j]"
    nest = both(f"a[i, k] * {second.format('b')} + b[i, k] * {second.format('a')}", 200)
    net = pf.compile(nest, target="cpu", machine="xeon")
    assert "the terms of T are sums of their own: T, T_1" in net.explain()
    assert [("T" in one.statements, "T_1" in one.statements) for one in net.kernels] == [
        (True, False),
        (False, True),
    ]
    tiles = ("tile_mac_slanted(", "tile_dot(") if along else ("tile_mac_slanted(",)
    assert all(any(tile in one.source for tile in tiles) for one in net.kernels)
    inputs = draw(200)
    a, b, c = inputs.values()
    products = a @ b.T + b @ a.T if along else a @ b + b @ a
    expected = np.tril(2 * c + products + 1) + np.triu(c, 1)
    net(**inputs)
    np.testing.assert_array_equal(inputs["c"], expected)
