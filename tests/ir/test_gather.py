"""Gathered tensors: what they may be made of, how they print, and indices that are no rows."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.errors import BadArgument, InvalidNest
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.ir.tensor import Gather
from polyfuse.runtime.compile_key import nest_text

TABLE = Tensor("w", ("M", 4), "float64", "input")
INDEX = Tensor("x", ("N",), "int32", "input")
ROWS = Tensor.gathered("rows", TABLE, INDEX)
OUT = Tensor("y", ("N", 4), "float64", "output")
CONTEXT = "[M, N] -> { : M >= 1 and N >= 0 }"


def doubled(*tensors: Tensor, text: str = "y[i, j] = 2 * rows[i, j]") -> Nest:
    domain = "[M, N] -> { S[i, j] : 0 <= i < N and 0 <= j < 4 }"
    return Nest.of(tensors, [statement(domain, text)], context=CONTEXT)


def test_rows_have_the_shape_that_indexing_gives() -> None:
    table, index = Tensor("w", (60, 8, 2), "float32", "constant"), Tensor("x", (4, 5), "int64", "input")
    rows = Tensor.gathered("r", table, index)
    assert str(rows) == "gathered r: float32[4, 5, 8, 2] = w[x]"
    assert not rows.is_visible
    assert rows.is_given


@pytest.mark.parametrize(
    ("tensors", "why"),
    [
        (
            (TABLE, replace(INDEX, role="inout"), ROWS, OUT),
            "x has role inout, expected input, so that a call",
        ),
        ((replace(TABLE, role="inout"), INDEX, ROWS, OUT), "w has role inout, expected input or constant"),
        (
            (TABLE, replace(INDEX, dtype="float64"), ROWS, OUT),
            "the index x is float64, expected integers",
        ),
        ((replace(TABLE, shape=("M", 5)), INDEX, ROWS, OUT), "is not what input w: .* and input x: .* give"),
        ((TABLE, ROWS, OUT), "unknown tensor 'x'"),
    ],
)
def test_other_parts_are_refused(tensors: tuple[Tensor, ...], why: str) -> None:
    with pytest.raises(InvalidNest, match=why):
        doubled(*tensors)


def test_rows_are_not_written_nor_of_another_role() -> None:
    with pytest.raises(InvalidNest, match="S writes rows, which has role gathered"):
        doubled(TABLE, INDEX, ROWS, OUT, text="rows[i, j] = y[i, j]")
    with pytest.raises(InvalidNest, match="only role gathered has a table and an index"):
        replace(OUT, gather=Gather("w", "x"))
    with pytest.raises(InvalidNest, match="rows that integers choose are a tensor of their own"):
        statement("{ S[i] : 0 <= i < 4 }", "y[i] = w[x[i]]")


def test_symbolic_sizes_and_what_is_no_row() -> None:
    nest = doubled(TABLE, INDEX, ROWS, OUT)
    assert not nest.dependences().pairs
    assert pickle.loads(pickle.dumps(nest)) == nest
    other = replace(
        nest, tensors=tuple(replace(t, gather=Gather("w", "z")) if t.gather else t for t in nest.tensors)
    )
    assert nest_text(nest) != nest_text(other), "kept under keys of their own"
    net = pf.compile(nest, target="cpu")
    w, x = np.arange(12.0).reshape(3, 4), np.array([2, 0, 2, 1, 1], np.int32)
    np.testing.assert_array_equal(net(w, x), 2 * w[x])
    np.testing.assert_array_equal(net(w[:2].copy(), x[3:].copy()), 2 * w[x[3:]])
    np.testing.assert_array_equal(pf.compile(nest, target="cpu", sizes={"M": 3, "N": 5})(w, x), 2 * w[x])
    assert net(w, x[:0].copy()).shape == (0, 4)
    for wrong in (3, -1, 2**31 - 1):
        x[3] = wrong
        for run in (net, lambda *given: pf.interpret(nest, given)):
            with pytest.raises(
                BadArgument, match=rf"^x\[3\] is {wrong}, expected 0 <= x\[3\] < 3: it chooses a row"
            ):
                run(w, x)


def test_an_array_that_is_changed_is_not_also_the_table_or_the_index() -> None:
    """Which rows of the table are read is not known before the call, nor whether they were written by then."""
    changed = Tensor("y", ("N", 4), "float64", "inout")
    counted = Tensor("n", ("N",), "int64", "inout")
    domain = "[M, N] -> { S[i, j] : 0 <= i < N and 0 <= j < 4 }"
    counting = statement("[M, N] -> { C[i] : 0 <= i < N }", "n[i] += 1")
    index = replace(INDEX, dtype="int64")
    tensors = (TABLE, index, Tensor.gathered("rows", TABLE, index), changed, counted)
    nest = Nest.of(tensors, [statement(domain, "y[i, j] = rows[i, j]"), counting], context=CONTEXT)
    net = pf.compile(nest, target="cpu")
    w, x = np.arange(8.0).reshape(2, 4), np.array([1, 0])
    with pytest.raises(BadArgument, match=r"y and w share memory, .*: rows of w are chosen in the call"):
        net(w=w, x=x, y=w, n=np.zeros(2, int))
    with pytest.raises(BadArgument, match=r"n and x share memory, .*: rows of x are chosen in the call"):
        net(w=w, x=x, y=np.zeros((2, 4)), n=x)
    assert (w == np.arange(8.0).reshape(2, 4)).all()
    assert (x == [1, 0]).all()
