"""Gathered tensors: what they may be made of, how they print, and indices that are no rows."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.errors import BadArgument, InvalidNest
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.ir.gather import limits_of, rows_of
from polyfuse.ir.tensor import Gather, Limit
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


def columns(context: str = "[M, N] -> { : M >= 1 and N >= 0 }") -> Nest:
    """y[i] = u[x[i, 0]] + v[x[i, 2]]: tables of 3 and M rows, and a column that chooses nothing."""
    index = Tensor("x", ("N", 3), "int32", "input")
    u, v = Tensor("u", (3,), "float64", "input"), Tensor("v", ("M",), "float64", "input")
    rows = Tensor.gathered("u_rows", u, index), Tensor.gathered("v_rows", v, index)
    out = Tensor("y", ("N",), "float64", "output")
    made = statement("[M, N] -> { S[i] : 0 <= i < N }", "y[i] = u_rows[i, 0] + v_rows[i, 2]")
    return Nest.of((u, v, index, *rows, out), [made], context=context)


def test_a_table_limits_the_elements_that_choose_its_rows() -> None:
    nest = columns()
    assert limits_of(nest)["x"] == (Limit(3, ((0, "N"), (0, 1))), Limit("M", ((0, "N"), (2, 3))))
    assert rows_of(nest, {"M": 7, "N": 2})["x"].tolist() == [[3, 3, 7], [3, 3, 7]]
    assert limits_of(nest.with_sizes({"N": 2}))["x"][1] == Limit("M", ((0, 2), (2, 3)))
    u, v = np.arange(3.0), 10 * np.arange(7.0)
    x = np.array([[2, -5, 6], [0, 99, 3], [1, 3, 0]], np.int32)
    lockstep = pf.compile(nest, target="cuda", machine="h200", device="lockstep")
    fixed = pf.compile(nest, target="cpu", sizes={"M": 7, "N": 3})
    runs = (pf.compile(nest, target="cpu"), fixed, lockstep, lambda *given: pf.interpret(nest, given)["y"])
    for run in runs:
        np.testing.assert_array_equal(run(u, v, x), u[x[:, 0]] + v[x[:, 2]])
    for place, wrong, rows, table in (((1, 0), 3, 3, "u"), ((2, 2), 7, 7, "v"), ((0, 2), -1, 7, "v")):
        given = x.copy()
        given[place] = wrong
        at = rf"x\[{place[0]}, {place[1]}\]"
        message = (
            rf"^{at} is {wrong}, expected 0 <= {at} < {rows}: it chooses a row of input {table}: float64"
        )
        for run in runs:
            with pytest.raises(BadArgument, match=message):
                run(u, v, given)


@pytest.mark.parametrize(
    ("domain", "read", "box"),
    [
        ("{ S[i] : 0 <= i < N }", "rows[i]", ()),
        ("{ S[i] : 2 <= i < N }", "rows[i - 2]", ((0, "-2 + N"),)),
        ("{ S[i] : 0 <= i and 2 * i + 1 < N }", "rows[2 * i + 1]", ((1, "2 * floor((N)/2)"),)),
        ("{ S[i] : 0 <= i < 4 and i < N }", "rows[i]", ()),
    ],
)
def test_the_box_of_symbolic_sizes(domain: str, read: str, box: tuple[object, ...]) -> None:
    """As exact as an extent can be: of min(4, N) elements, all N are checked."""
    tensors = (Tensor("w", ("M",), "float64", "input"), INDEX)
    rows, out = Tensor.gathered("rows", *tensors), Tensor("y", ("N",), "float64", "output")
    made = statement(f"[M, N] -> {domain}", f"y[i] = {read}")
    nest = Nest.of((*tensors, rows, out), [made], context=CONTEXT)
    (limit,) = limits_of(nest)["x"]
    assert limit.extent == "M"
    for n in (0, 1, 5, 6):
        ends = [[eval(str(end), {"N": n, "floor": np.floor}) for end in each] for each in limit.box]
        wanted = [[eval(str(end), {"N": n, "floor": np.floor}) for end in each] for each in box]
        assert ends == wanted, (n, limit)


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
