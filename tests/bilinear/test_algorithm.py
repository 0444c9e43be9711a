"""Bilinear algorithms: what is proven of them, against NumPy's product of matrices of integers, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse.bilinear import Algorithm
from tests.support.examples import examples

KNOWN = list(pf.bilinear.KNOWN.values())


def multiplied(x: Algorithm, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The algorithm on matrices of its own size, as the tables say."""
    u, v, w = (np.array(table, dtype=object) for table in (x.left, x.right, x.result))
    return (w @ ((u @ a.ravel()) * (v @ b.ravel()))).reshape(x.m, x.n)


@pytest.mark.parametrize("x", KNOWN, ids=lambda x: x.name)
def test_built_in_algorithms_multiply(x: Algorithm) -> None:
    rng = np.random.default_rng(0)
    a = rng.integers(-99, 99, (x.m, x.k)).astype(object)
    b = rng.integers(-99, 99, (x.k, x.n)).astype(object)
    assert (multiplied(x, a, b) == a @ b).all()


def test_what_is_built_in() -> None:
    assert [str(x) for x in KNOWN] == [
        "strassen <2, 2, 2; 7>",
        "winograd <2, 2, 2; 7>",
        "laderman <3, 3, 3; 23>",
        "strassen2 <4, 4, 4; 49>",
        "winograd2 <4, 4, 4; 49>",
    ]
    assert pf.bilinear.strassen.saving == 7 / 8
    assert pf.bilinear.strassen.exponent == pytest.approx(np.log2(7))


@settings(max_examples=examples(20), deadline=None)
@given(
    st.lists(st.sampled_from(KNOWN[:3]), min_size=0, max_size=1),
    st.tuples(*[st.integers(1, 3)] * 3),
    st.tuples(*[st.integers(1, 2)] * 3),
)
def test_kronecker_products_multiply(
    more: list[Algorithm], first: tuple[int, int, int], second: tuple[int, int, int]
) -> None:
    x = pf.bilinear.kronecker(pf.bilinear.classical(*first), pf.bilinear.classical(*second))
    for other in more:
        x = pf.bilinear.kronecker(other, x)
    rng = np.random.default_rng(1)
    a, b = rng.integers(-9, 9, (x.m, x.k)).astype(object), rng.integers(-9, 9, (x.k, x.n)).astype(object)
    assert (multiplied(x, a, b) == a @ b).all()


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_any_other_table_is_no_algorithm(data: st.DataObject) -> None:
    x = data.draw(st.sampled_from(KNOWN[:3]))
    tables = [np.array(table) for table in (x.left, x.right, x.result)]
    table = data.draw(st.sampled_from(tables))
    at = data.draw(st.integers(0, table.size - 1))
    table.flat[at] += data.draw(st.integers(-3, 3).filter(bool))
    with pytest.raises(pf.InvalidAlgorithm, match=r"does not multiply: A\[\d, \d\] B\[\d, \d\] occurs"):
        pf.bilinear.algorithm("changed", (x.m, x.k, x.n), *tables)


def test_sums_are_exact_beyond_64_bits() -> None:
    big = 2**40
    with pytest.raises(pf.InvalidAlgorithm, match=r"occurs 1[0-9]+ times"):
        pf.bilinear.algorithm("big", (1, 1, 1), [[big]], [[big]], [[big]])


@pytest.mark.parametrize(
    ("tables", "why"),
    [
        (([[1]], [[1]], [[1, 0]]), "W is 1 x 2, expected 1 x 1"),
        (([[1], [0]], [[1]], [[1]]), "V is 1 x 1, expected 2 x 1"),
        (([[0.5]], [[2]], [[1]]), "U has the coefficient 0.5; expected integers"),
        (([1], [[1]], [[1]]), "U has 1 dimension,"),
    ],
)
def test_tables_that_are_none(tables: tuple[list, list, list], why: str) -> None:
    with pytest.raises(pf.InvalidAlgorithm, match=why):
        pf.bilinear.algorithm("x", (1, 1, 1), *tables)


def test_mod_2_an_algorithm_may_be_one_that_is_none_in_the_integers() -> None:
    strassen = pf.bilinear.strassen
    tables = (np.abs(np.array(t)) for t in (strassen.left, strassen.right, strassen.result))
    with pytest.raises(pf.InvalidAlgorithm, match="does not multiply"):
        pf.bilinear.algorithm("ones", (2, 2, 2), *tables)
    tables = (np.abs(np.array(t)) for t in (strassen.left, strassen.right, strassen.result))
    assert str(pf.bilinear.algorithm("ones", (2, 2, 2), *tables, modulus=2)).endswith("mod 2 only")


@settings(max_examples=examples(30), deadline=None)
@given(st.sampled_from(KNOWN), st.sampled_from([2, 5, 64]))
def test_the_error_bound_holds_and_is_not_idle(x: Algorithm, blocks: int) -> None:
    """Sums are computed in float32 by the tables themselves, in any order the bound allows."""
    rng = np.random.default_rng(blocks)
    steps = x.k * blocks
    a = rng.uniform(-1, 1, (x.m * 2, steps)).astype(np.float32)
    b = rng.uniform(-1, 1, (steps, x.n * 2)).astype(np.float32)
    tiles = a.reshape(x.m, 2, x.k, blocks).transpose(0, 2, 1, 3).reshape(x.m * x.k, 2, blocks)
    others = b.reshape(x.k, blocks, x.n, 2).transpose(0, 2, 1, 3).reshape(x.k * x.n, blocks, 2)
    u, v, w = (np.array(table, np.float32) for table in (x.left, x.right, x.result))
    left, right = (np.einsum("tb,bij->tij", f, p, dtype=np.float32) for f, p in ((u, tiles), (v, others)))
    products = np.zeros((x.rank, 2, 2), np.float32)
    for k in range(blocks):
        products += left[:, :, k, None] * right[:, k, None, :]
    found = np.einsum("ct,tij->cij", w, products, dtype=np.float32)
    c = found.reshape(x.m, x.n, 2, 2).transpose(0, 2, 1, 3).reshape(2 * x.m, 2 * x.n)
    error = np.abs(c - a.astype(np.float64) @ b.astype(np.float64)).max()
    bound = pf.bilinear.error_bound(x, steps) * 2.0**-24 * float(np.abs(a).max() * np.abs(b).max())
    assert bound / 1e5 < error <= bound


def test_known_bounds() -> None:
    def growth(x: Algorithm) -> float:
        return pf.bilinear.error_bound(x, x.k * 10**6) / 10**12

    # Higham's 12 for one level of Strassen's, 18 for Winograd's, and their squares for two
    names = ("strassen", "winograd", "strassen2", "winograd2")
    assert [round(growth(pf.bilinear.named(name))) for name in names] == [12, 18, 144, 324]
