"""Half of a symmetric result, copied to the other half: the same values, when it pays, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.errors import IllegalRewrite
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.machine import Machine
from polyfuse.rewrite import mirror, why_not_mirror
from polyfuse.strategy.rewrites.reductions.symmetric_sums import with_halves


def product(
    body: str = "a[i, k] * a[j, k]",
    first: str = "0.0",
    n: int = 6,
    domain: str = "",
) -> Nest:
    """y = a @ a.T, and then a third of it, in loops of their own."""
    tensors = [Tensor(name, (n, n), "float64", "input") for name in "ab"]
    tensors += [Tensor("y", (n, n), "float64", "temporary"), Tensor("z", (n, n), "float64", "output")]
    box = f"0 <= i < {n} and 0 <= j < {n}{domain}"
    return Nest.of(
        tensors,
        [
            statement(f"{{ Z[i, j] : {box} }}", f"y[i, j] = {first}"),
            statement(f"{{ S[i, j, k] : {box} and 0 <= k < {n} }}", f"y[i, j] += {body}"),
            statement(f"{{ T[i, j] : {box} }}", "z[i, j] = y[i, j] / 3.0"),
        ],
    )


def draw(n: int) -> dict[str, np.ndarray]:
    """Small integers, whose sums are exact in any order."""
    rng = np.random.default_rng(7)
    return {name: rng.integers(-4, 5, (n, n)).astype(float) for name in "ab"}


@pytest.mark.parametrize(
    "body", ["a[i, k] * a[j, k]", "a[k, j] * a[k, i]", "a[i, k] * b[j, k] + b[i, k] * a[j, k]"]
)
def test_half_of_the_instances_compute_the_same(body: str) -> None:
    nest = product(body)
    done = mirror(nest, "S")
    assert str(done) == "S makes half of a symmetric result, S_mirrored the other half"
    kept = {s.name: s.domain.count_val().to_python() for s in done.nest.statements}
    assert kept == {"Z": 21, "S": 21 * 6, "S_mirrored": 15, "T": 36}
    inputs = draw(6)
    np.testing.assert_array_equal(pf.interpret(done.nest, inputs)["z"], pf.interpret(nest, inputs)["z"])


@pf.nest
def covariances(x: f64[N, K]):  # noqa: F821
    return x.T @ x / 4.0


def test_symbolic_sizes() -> None:
    (name,) = (s.name for s in covariances.statements if s.is_reduction)
    done = mirror(covariances, name).nest
    for shape in ((1, 1), (3, 4), (5, 7)):
        x = np.random.default_rng(1).integers(-4, 5, shape).astype(float)
        np.testing.assert_array_equal(pf.interpret(done, [x])[done.results[0].name], x.T @ x / 4.0)


def test_half_in_machine_code() -> None:
    """Tiles of the triangle, those across the diagonal too, and the copy, at sizes that tiles do not divide."""
    run = pf.compile(covariances, target="cpu", machine="xeon", force={"symmetric sums": True})
    assert "_mirrored" in run.source
    for shape in ((1, 1), (3, 9), (17, 50)):
        x = np.random.default_rng(1).integers(-4, 5, shape).astype(float)
        np.testing.assert_array_equal(run(x), x.T @ x / 4.0)


def test_sums_of_each_batch_are_symmetric() -> None:
    tensors = [Tensor("a", (3, 4, 5), "float64", "input"), Tensor("y", (3, 4, 4), "float64", "output")]
    box = "0 <= b < 3 and 0 <= i < 4 and 0 <= j < 4"
    nest = Nest.of(
        tensors,
        [
            statement(f"{{ Z[b, i, j] : {box} }}", "y[b, i, j] = 0.0"),
            statement(f"{{ S[b, i, j, k] : {box} and 0 <= k < 5 }}", "y[b, i, j] += a[b, i, k] * a[b, j, k]"),
        ],
    )
    a = np.random.default_rng(0).integers(-4, 5, (3, 4, 5)).astype(float)
    done = mirror(nest, "S").nest
    np.testing.assert_array_equal(pf.interpret(done, [a])["y"], a @ a.transpose(0, 2, 1))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"body": "a[i, k] * b[j, k]"}, "y is not symmetric"),
        ({"body": "a[i, k] * a[k, j]"}, "y is not symmetric"),
        ({"body": "a[i, k] - a[j, k]"}, "y is not symmetric"),
        ({"body": "i * a[i, k] * a[j, k]"}, "y is not symmetric"),
        ({"domain": " and j <= i"}, "y is not symmetric"),
        ({"first": "b[i, j]"}, "do not begin with one number"),
        ({"body": "a[i, k] * a[j, k] + y[i, j]"}, "values that do not depend on it"),
    ],
)
def test_what_is_refused_is_said(changes: dict[str, str], why: str) -> None:
    nest = product(**changes)
    assert why in str(why_not_mirror(nest, "S"))
    with pytest.raises(IllegalRewrite, match="is refused"):
        mirror(nest, "S")


def test_a_first_value_that_comes_too_late_is_refused() -> None:
    tensors = [Tensor("a", (4, 4), "float64", "input"), Tensor("y", (4, 4), "float64", "inout")]
    sums = statement(
        "{ S[i, j, k] : 0 <= i < 4 and 0 <= j < 4 and 0 <= k < 4 }", "y[i, j] += a[i, k] * a[j, k]"
    )
    late = statement("{ Z[i, j] : 0 <= i < 4 and 0 <= j < 4 }", "y[i, j] = 0.0")
    assert "Z does not come before all sums" in str(why_not_mirror(Nest.of(tensors, [sums, late]), "S"))
    some = statement("{ Z[i, j] : 0 <= i < 4 and 0 <= j < 3 }", "y[i, j] = 0.0")
    assert "Z does not come before all sums" in str(why_not_mirror(Nest.of(tensors, [some, sums]), "S"))


def test_half_is_computed_where_the_model_finds_it_cheaper() -> None:
    machine = Machine.preset("xeon")
    nest, (remark,) = with_halves(product(n=600), machine)
    assert remark.taken
    assert [s.name for s in nest.statements] == ["Z", "S", "S_mirrored", "T"]
    assert with_halves(product(n=600), Machine.preset("h200"))[1] == ()
