"""Loops numbered by a subscript: the same values, products over triangles, and what is refused."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.errors import IllegalRewrite
from polyfuse.ir import Nest
from polyfuse.machine import Machine
from polyfuse.rewrite import reindex, why_not_reindex
from polyfuse.rewrite.storage.expansion import expand_temporaries
from polyfuse.strategy.match.gemm import products_of
from polyfuse.strategy.pipeline import plan_for
from polyfuse.strategy.rewrites.reductions.reindex import with_subscripts_as_indices


@pf.nest
def covariances(x: f64[N, M]):  # noqa: F821
    y = np.zeros((M, M))  # noqa: F821
    for i in range(M):  # noqa: F821
        y[i:, i] = y[i, i:] = x[:, i] @ x[:, i:] / 4.0
    return y


@pf.nest
def above_diagonal(x: f64[N, M]):  # noqa: F821
    y = np.eye(M)  # noqa: F821
    for i in range(M - 1):  # noqa: F821
        y[i + 1 :, i] = y[i, i + 1 :] = x[:, i] @ x[:, i + 1 :]
    return y


@pf.nest
def counted_together(x: f64[N, N], z: f64[N]):  # noqa: F821
    """The loop over e counts sums for another statement, too, which goes on counting from 0."""
    y = np.zeros((N, N))  # noqa: F821
    for i in range(N):  # noqa: F821
        for e in range(N - i):  # noqa: F821
            z[e] = z[e] + x[i, e]
            for r in range(N):  # noqa: F821
                y[i, e] += x[r, i] * x[r, i + e]
    return y


@pf.nest
def depthwise(x: f64[8, 12], w: f64[8, 3]):  # noqa: F821
    y = np.zeros((8, 10))
    for c in range(8):
        for h in range(10):
            for r in range(3):
                y[c, h] += x[c, h + r] * w[c, r]
    return y


def sums(nest: Nest) -> tuple[Nest, str]:
    nest = expand_temporaries(nest).nest
    return nest, next(s.name for s in nest.statements if s.is_reduction)


def assert_same(nest: Nest, *shapes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    given = [rng.integers(-4, 5, shape).astype(float) for shape in shapes]
    own = [value.copy() for value in given]
    expected = covariances.python if nest.name == "covariances" else above_diagonal.python
    np.testing.assert_array_equal(pf.interpret(nest, given)[nest.results[0].name], expected(*own))


@pytest.mark.parametrize(
    ("given", "value"), [(covariances, "i + i0"), (above_diagonal, "i + i0 + 1")], ids=["whole", "above"]
)
def test_rows_times_the_rest_are_a_product_over_a_triangle(given: Nest, value: str) -> None:
    nest, name = sums(given)
    assert not products_of(nest, name, triangles=True)
    done = reindex(nest, name, "i0", value)
    assert products_of(done.nest, name)
    assert "product" in done.stored
    assert str(done).endswith("; so are the elements of " + ", ".join(done.stored))
    for n, m in ((1, 1), (3, 5), (4, 2)):
        assert_same(done.nest, (n, m))


def test_what_is_computed_from_the_sums_is_counted_alike() -> None:
    nest, name = sums(covariances)
    done = reindex(nest, name, "i0", "i + i0").nest
    texts = {str(s.write) for s in done.statements}
    assert {"product[i, i0]", "value[i, i0]", "y[i0, i]", "y[i, i0]"} <= texts
    assert {t.name: t.shape for t in done.tensors}["product"] == ("M", "M")


def test_a_loop_that_counts_for_others_keeps_its_dates() -> None:
    nest = expand_temporaries(counted_together).nest
    name = next(s.name for s in nest.statements if len(s.reads) == 2 and len(s.dims) == 3)
    done = reindex(nest, name, "e", "i + e").nest
    rng = np.random.default_rng(3)
    x, z = rng.integers(-4, 5, (5, 5)).astype(float), rng.integers(-4, 5, 5).astype(float)
    own = z.copy()
    expected = counted_together.python(x, own)
    left = pf.interpret(done, [x, z])
    np.testing.assert_array_equal(left[done.with_role("output")[0].name], expected)
    np.testing.assert_array_equal(left["z"], own)


@pytest.mark.parametrize(
    ("dim", "value", "why"),
    [
        ("q", "i", "has no dimension q"),
        ("i0", "2 * i0", "is not i0 plus a number"),
        ("i0", "i - i0", "is not i0 plus a number"),
        ("i0", "r0", "is not i0 plus a number"),
        ("i0", "i0 +", "is not an affine expression of"),
    ],
)
def test_what_is_refused_is_said(dim: str, value: str, why: str) -> None:
    nest, name = sums(covariances)
    assert why in str(why_not_reindex(nest, name, dim, value))
    with pytest.raises(IllegalRewrite, match="is refused"):
        reindex(nest, name, dim, value)


def test_an_index_that_is_a_value_is_not_renumbered() -> None:
    nest = pf.nest(_weighted)
    (name,) = (s.name for s in nest.statements)
    assert "computes with e as a number" in str(why_not_reindex(nest, name, "e", "i + e"))


def _weighted(x: f64[N], y: f64[N, N]):  # noqa: F821
    for i in range(N):  # noqa: F821
        for e in range(N - i):  # noqa: F821
            y[i, e] += e * x[i + e]


def test_it_is_taken_where_the_sums_get_tiles() -> None:
    nest, name = sums(covariances.with_sizes({"N": 800, "M": 700}))
    made, (remark,) = with_subscripts_as_indices(nest, Machine.preset("xeon"))
    assert remark.taken
    assert products_of(made, name)


def test_nothing_is_proven_of_sums_that_become_no_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """A depthwise convolution reads x[c, h + r], and is no product whichever way its loops are numbered."""

    def proven(*_: object) -> None:
        raise AssertionError("the order of the nest's dependences was compared")

    monkeypatch.setattr(sys.modules["polyfuse.rewrite.reindex"], "turned_round", proven)
    made, said = with_subscripts_as_indices(depthwise, Machine.preset("xeon"))
    assert made is depthwise
    assert not said


def test_sums_and_both_copies_are_one_kernel_with_tiles() -> None:
    """Both sides of the diagonal are written from tiles; their writes meet on the diagonal alone, which aligns none."""
    nest = expand_temporaries(covariances.with_sizes({"N": 800, "M": 700})).nest
    name = next(s.name for s in nest.statements if s.is_reduction)
    plan = plan_for(nest, Machine.preset("xeon"))
    assert "y[i0, i]" in {str(s.write) for s in plan.schedule.nest.statements}
    (kernel,) = (g.statements for g in plan.groups if name in g.statements)
    assert {s.name for s in nest.statements if "product" in s.tensors or "value" in s.tensors} <= set(kernel)
    assert any("i x i0 in tiles of" in note for note in plan.notes)
