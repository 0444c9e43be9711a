"""Nests statement by statement, and from Einstein's notation."""

from __future__ import annotations

from typing import Any

import islpy as isl
import numpy as np
import pytest

import polyfuse as pf
from polyfuse.ir.tree import Leaf, Loop, sequence

ROWS = (
    pf.NestBuilder("rows", context="[N] -> { : N >= 1 }")
    .tensor("A", ("N", "N"))
    .tensor("s", ("N",), role="output")
    .statement("zero", "[N] -> { [i] : 0 <= i < N }", "s[i]", "0.0")
)
TRIANGLE = "[N] -> { [i, j] : 0 <= i < N and i < j < N }"


def test_statement_by_statement() -> None:
    nest = ROWS.statement("add", TRIANGLE, "s[i]", "A[i, j]", op="+=").nest()
    A = np.random.default_rng(0).random((5, 5))
    assert np.allclose(pf.interpret(nest, [A])["s"], np.triu(A, 1).sum(1))
    assert nest.name == "rows"
    assert len(ROWS.statements) == 1, "a builder does not change"


def test_accesses_as_isl_maps() -> None:
    text = ROWS.statement("add", TRIANGLE, "s[i]", "2 * A[i, j] + A[j, i]", op="+=").nest()
    maps = ROWS.statement(
        "add",
        isl.Set(TRIANGLE),
        "{ [i, j] -> s[i] }",
        "2 * here + there",
        op="+=",
        reads={"here": "{ [i, j] -> A[i, j] }", "there": isl.Map("{ anything[i, j] -> A[j, i] }")},
    ).nest()
    assert [str(a) for a in maps.statement("add").accesses] == [
        str(a) for a in text.statement("add").accesses
    ]
    A = np.random.default_rng(1).random((4, 4))
    assert (pf.interpret(maps, [A])["s"] == pf.interpret(text, [A])["s"]).all()


def test_an_order_by_hand() -> None:
    build = ROWS.statement("add", TRIANGLE, "s[i]", "A[i, j]", op="+=")
    zero, add = build.statements
    dates = tuple((s.name, isl.PwAff(f"{{ {s.name}[{', '.join(s.dims)}] -> [(i)] }}")) for s in (zero, add))
    inner = Loop("j", (("add", isl.PwAff("{ add[i, j] -> [(j)] }")),), Leaf("add"))
    nest = build.ordered(Loop("i", dates, sequence((Leaf("zero"), inner)))).nest()
    A = np.random.default_rng(2).random((4, 4))
    assert np.allclose(pf.interpret(nest, [A])["s"], np.triu(A, 1).sum(1))
    assert len(pf.Schedule(nest).loops("zero")) == 1


def test_what_cannot_be_read() -> None:
    with pytest.raises(pf.InvalidNest, match="is not an isl set"):
        ROWS.statement("s", "[N] -> { [i : }", "s[i]", "0.0")
    with pytest.raises(pf.InvalidNest, match="is neither an isl set nor the text of one"):
        ROWS.statement("s", 3, "s[i]", "0.0")  # type: ignore[arg-type]
    with pytest.raises(pf.InvalidNest, match="is not an isl set"):
        pf.NestBuilder("n", context="[N -> { }").tensor("s", (), role="output").nest()
    with pytest.raises(pf.InvalidNest, match="is not an isl map"):
        ROWS.statement("s", TRIANGLE, "{ [i] -> }", "0.0")
    with pytest.raises(pf.InvalidNest, match="does not map its 2 dimensions"):
        ROWS.statement("s", TRIANGLE, "{ [i] -> s[i] }", "0.0")
    with pytest.raises(pf.InvalidNest, match="out of bounds"):
        ROWS.statement("s", TRIANGLE, "s[i + j]", "0.0").nest()


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ik,kj->ij", [(3, 4), (4, 5)]),
        ("ii->i", [(4, 4)]),
        ("ij->", [(3, 4)]),
        ("i, j", [(3,), (4,)]),
        ("ij,jk", [(3, 4), (4, 2)]),
        ("bik,bkj->bij", [(2, 3, 4), (2, 4, 3)]),
        ("ij,j,i->", [(3, 4), (4,), (3,)]),
    ],
)
def test_einsum_is_numpys(subscripts: str, shapes: list[tuple[int, ...]]) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.random(shape) for shape in shapes]
    assert np.allclose(pf.interpret(pf.einsum(subscripts), arrays)["out"], np.einsum(subscripts, *arrays))


def test_einsum_with_sizes_names_and_types() -> None:
    nest = pf.einsum("ik,kj->ij", {"i": 3, "k": "K"}, names=("X", "W"), out="Y", dtype="int64")
    assert [str(t) for t in nest.tensors] == [
        "input X: int64[3, K]",
        "input W: int64[K, Nj]",
        "output Y: int64[3, Nj]",
    ]
    X, W = np.arange(6).reshape(3, 2), np.arange(8).reshape(2, 4)
    assert (pf.interpret(nest, [X, W])["Y"] == X @ W).all()


@pytest.mark.parametrize("sizes", [{"z": 3}, {"i": 0}, {"i": -3}, {"i": 2.5}])
def test_sizes_that_einsum_does_not_have(sizes: dict[str, int]) -> None:
    with pytest.raises(pf.InvalidNest, match="expected 1 or more, or a name, for one of i, k, j"):
        pf.einsum("ij,jk->ik", sizes)


@pytest.mark.parametrize("subscripts", ["ij->ii", "ij->k", "i1->i", "i...->i"])
def test_what_einsum_cannot_read(subscripts: str) -> None:
    with pytest.raises(pf.InvalidNest, match="einsum cannot read"):
        pf.einsum(subscripts)
    with pytest.raises(pf.InvalidNest, match="has 2 operands, but 1 in names="):
        pf.einsum("i,i->i", names=("A",))


@pytest.mark.parametrize("given", [(3,), ("ij->i", 3), (None, {"i": 2})])
def test_what_is_no_notation_or_no_sizes(given: tuple[Any, ...]) -> None:
    with pytest.raises(pf.InvalidNest, match="expected such as 'ik,kj->ij', and sizes by index"):
        pf.einsum(*given)
