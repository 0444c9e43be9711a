"""Complex products as real ones: the same values, in tiles, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.errors import IllegalRewrite
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.rewrite import real_product, why_not_real_product
from polyfuse.rewrite.reductions.split_sum_terms import terms_of


@pf.nest
def plain(a: c128[M, K], b: c128[K, N]):  # noqa: F821
    return a @ b


@pf.nest
def conjugated(a: c128[M, K], b: c128[K, N]):  # noqa: F821
    return np.conj(a) @ b


@pf.nest
def turned(a: c128[M, K], b: c128[K, N]):  # noqa: F821
    return (b.T @ a.T).T


@pf.nest
def batches(a: c64[3, M, K], b: c64[3, K, N]):  # noqa: F821
    return a @ b


@pf.nest
def added(a: c128[M, K], b: c128[K, N], y: c128[M, N]):  # noqa: F821
    y += a @ b
    y[:] = 2 * y


def sums_of(nest: Nest) -> list[str]:
    return [s.name for s in nest.statements if s.op == "+=" and len(terms_of(s.body)) == 2]


def draw(nest: Nest, **sizes: int) -> dict[str, np.ndarray]:
    """Small integers, whose sums are exact in any order."""
    rng = np.random.default_rng(3)
    found = {}
    for t in nest.inputs:
        shape = tuple(n if isinstance(n, int) else sizes[n] for n in t.shape[:-1])
        numbers = rng.integers(-4, 5, (2, *shape)).astype(t.dtype)
        found[t.name] = numbers[0] + 1j * numbers[1]
    return found


@pytest.mark.parametrize("nest", [plain, conjugated, turned, batches, added])
@pytest.mark.parametrize("sizes", [{"M": 3, "K": 4, "N": 2}, {"M": 1, "K": 1, "N": 1}])
def test_the_same_values(nest: Nest, sizes: dict[str, int]) -> None:
    real, imaginary = sums_of(nest)
    done = real_product(nest, imaginary)
    assert done.statements == (real, imaginary)
    given = draw(nest, **sizes)
    before, after = (pf.interpret(one, given) for one in (nest, done.nest))
    for result in (*nest.results, *nest.with_role("inout")):
        np.testing.assert_array_equal(after[result.name], before[result.name])


@pytest.mark.parametrize("nest", [plain, conjugated, batches])
def test_tiles_in_machine_code(nest: Nest) -> None:
    """At sizes that tiles do not divide."""
    run = pf.compile(nest, target="cpu", machine="xeon", force={"complex products": True})
    assert "tile_mac" in run.source or "row_mac" in run.source  # sums in registers
    for sizes in ({"M": 1, "K": 1, "N": 1}, {"M": 17, "K": 33, "N": 21}):
        given = draw(nest, **sizes)
        a, b = given.values()
        expected = (np.conj(a) if nest is conjugated else a) @ b
        np.testing.assert_array_equal(run(a, b), expected)


def test_a_large_product_is_taken_and_said() -> None:
    run = pf.compile(plain, target="cpu", machine="xeon")
    assert any("are the real product" in str(remark) for remark in run.explain().remarks)


PAIRS = [
    *(Tensor(name, (4, 4, 2), "float64", "input") for name in "ab"),
    Tensor("y", (4, 4, 2), "float64", "output"),
]
BOX = "0 <= i < 4 and 0 <= j < 4 and 0 <= k < 4"
REAL = "y[i, j, 0] += a[i, k, 0] * b[k, j, 0] - a[i, k, 1] * b[k, j, 1]"
IMAGINARY = "y[i, j, 1] += a[i, k, 0] * b[k, j, 1] + a[i, k, 1] * b[k, j, 0]"


def sums(real: str = REAL, imaginary: str = IMAGINARY, box: str = BOX, first: str = BOX) -> Nest:
    every = [
        statement("{ Z[i, j, q] : 0 <= i < 4 and 0 <= j < 4 and 0 <= q < 2 }", "y[i, j, q] = 0.0"),
        statement(f"{{ S[i, j, k] : {first} }}", real),
        statement(f"{{ T[i, j, k] : {box} }}", imaginary),
    ]
    return Nest.of(PAIRS, every)


def test_signs_are_those_of_the_blocks() -> None:
    """conj(a) * b = (a0 b0 + a1 b1) + (a0 b1 - a1 b0) i: another block than that of a * b has the sign."""

    def negative(nest: Nest) -> list[str]:
        done = real_product(nest, "S")
        return [name[-2:] for name in done.blocks if "-" in str(done.nest.statement(name).body)]

    other = sums(REAL.replace("-", "+"), IMAGINARY.replace("+ a", "- a"))
    assert negative(sums()) == ["10"]
    assert negative(other) == ["11"]
    given = {t.name: np.random.default_rng(5).integers(-4, 5, (4, 4, 2)).astype(float) for t in other.inputs}
    found = pf.interpret(real_product(other, "S").nest, given)["y"]
    a, b = (given[name] @ [1, 1j] for name in "ab")
    np.testing.assert_array_equal(found @ [1, 1j], np.conj(a) @ b)


@pytest.mark.parametrize(
    ("nest", "why"),
    [
        (sums(box="0 <= i < 4 and 0 <= j < 4 and 0 <= k < 3"), "no other statement sums the other part"),
        (sums(imaginary="y[i, j, 1] += a[i, k, 0] * b[k, j, 1] + 2.0"), "no sums of products of two pairs"),
        (sums(imaginary="y[i, j, 1] += a[i, k, 0] * a[k, j, 1]"), "no sums of products of two pairs"),
        (sums(imaginary="y[i, j, 1] += a[i, k, 0] * b[k, j, 1] * a[i, k, 1]"), "no sums of products of two"),
        (sums(box=f"{BOX} and k <= j", first=f"{BOX} and k <= j"), "no sums of products of two"),
        (
            sums(
                "y[i, j, 0] += a[i, k, 0] * b[k, i, 0] - a[i, k, 1] * b[k, i, 1]",
                "y[i, j, 1] += a[i, k, 0] * b[k, i, 1] + a[i, k, 1] * b[k, i, 0]",
            ),
            "no sums of products of two pairs",
        ),
        (sums("y[i, j, 0] = a[i, k, 0] * b[k, j, 0]"), "no other statement"),
        (  # a.real @ b: an infinite imaginary part of a would be multiplied by 0
            sums("y[i, j, 0] += a[i, k, 0] * b[k, j, 0]", "y[i, j, 1] += a[i, k, 0] * b[k, j, 1]"),
            "no sums of products of two pairs",
        ),
    ],
)
def test_what_is_refused(nest: Nest, why: str) -> None:
    assert why in str(why_not_real_product(nest, "T"))
    with pytest.raises(IllegalRewrite):
        real_product(nest, "T")


def test_sums_stay_before_what_reads_them() -> None:
    """In one loop over rows, z takes each row of sums before the next one is made."""

    @pf.nest
    def rows(a: c128[4, 4], b: c128[4, 4], y: c128[4, 4], z: c128[4, 4]):  # noqa: F821
        for i in range(4):
            for j in range(4):
                for k in range(4):
                    y[i, j] += a[i, k] * b[k, j]
            for j in range(4):
                z[i, j] = y[i, j] * 2

    real, _ = sums_of(rows)
    assert "reads y in the same loops" in str(why_not_real_product(rows, real))
