"""Results across memory: what is printed, that values are the oracle's and nothing else is written, what is refused."""

from __future__ import annotations

import ast
from typing import Any

import numba
import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.codegen.cpu.intrinsics.transpose_tile import store_transposed, tile_like
from polyfuse.codegen.cpu.patterns.transposed.stores import row_by_row, transposed_store
from polyfuse.codegen.looptree.nodes import Block, Element, For, Node, Store
from polyfuse.ir.scalar import Read
from tests.support.plain import plain_names


def convolution(filters: int, width: int, dtype: str = "float32", batch: int = 2) -> pf.Nest:
    """Three channels of five rows, with bias and activation."""
    draw = np.random.default_rng(1)
    weight, bias = draw.standard_normal((filters, 3, 3, 3)), draw.standard_normal(filters)
    x = nn.input("x", (batch, 3, 5, width), dtype)
    return pf.lower(nn.relu(nn.conv2d(x, weight.astype(dtype), bias.astype(dtype), padding=1)))


def drawn(nest: pf.Nest) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    return {t.name: rng.standard_normal(t.shape).astype(t.dtype) for t in nest.inputs}


STORED = [
    "out_tile = tile_like(out, 14, 32)",
    "for j_in in range(0, 32):",
    "for l_in in range(0, 14):",
    "z = y[l_in, j_in] + b[j_in]",
    "out_tile[l_in, j_in] = larger(z, float32(0.0))",
    "store_transposed(14, 32, out_tile, out, (i, 0, k, 14 * l), 1)",
]


def test_a_tile_is_stored_along_memory() -> None:
    net = pf.compile(convolution(32, 28), target="cpu", machine="zen5")
    lines = [line.strip() for line in net.source.splitlines()]
    assert lines[lines.index(STORED[0]) :] == STORED


def test_columns_of_one_vector_are_rows() -> None:
    """LLVM would write out both loops, and gather and scatter."""
    net = pf.compile(convolution(16, 28), target="cpu", machine="zen5")
    lines = [line.strip() for line in net.source.splitlines()]
    rows = lines[next(n for n, line in enumerate(lines) if line.startswith("out_tile = tile_like(")) + 1 :]
    assert rows[0].startswith("for l_in in range(0, ")
    assert rows[1] == "short_row("
    assert "count=16," in rows[:4]


def test_tiles_that_have_all_rows_are_stored_so_beside_one_that_is_cut_short() -> None:
    net = pf.compile(convolution(32, 32), target="cpu", machine="zen5")
    lines = [line.strip() for line in net.source.splitlines()]
    assert lines[lines.index(STORED[0]) - 1 :] == [
        "if 14 <= -14 * l + 32:",
        *STORED,
        "else:",
        "for l_in in range(0, -14 * l + 32):",
        "for j_in in range(0, 32):",
        "z = y[l_in, j_in] + b[j_in]",
        "out[i, j_in, k, 14 * l + l_in] = larger(z, float32(0.0))",
    ]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("filters", "width"), [(32, 28), (32, 32), (33, 37), (7, 9), (16, 4), (5, 6), (48, 20), (32, 5)]
)
def test_values_are_the_oracles_and_nothing_else_is_written(filters: int, width: int, dtype: str) -> None:
    nest = convolution(filters, width, dtype)
    net, inputs = pf.compile(nest, target="cpu", machine="zen5"), drawn(convolution(filters, width, dtype))
    assert "store_transposed(" in net.source
    expected = pf.interpret(nest, inputs)["out"]
    around = np.full(expected.size + 80, 7, dtype)
    inside = slice(37, 37 + expected.size)
    net(**inputs, out=around[inside].reshape(expected.shape))
    bound = 1e-5 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(around[inside].reshape(expected.shape), expected, rtol=bound, atol=bound)
    assert (np.delete(around, range(37, 37 + expected.size)) == 7).all()


SOURCE = """
def moved(x, y):
    held = tile_like(y, {rows}, {width})
    for r in range({rows}):
        for c in range({columns}):
            held[r, c] = x[r, c]
    store_transposed({rows}, {columns}, held, y, (1, 0, 2), 1)
"""


def test_a_store_to_every_second_column_is_the_transpose_too() -> None:
    """The channels of two branches that a shuffle mixes lie so."""
    x = np.random.default_rng(3).standard_normal((5, 9)).astype("float32")
    text = SOURCE.format(rows=5, columns=9, width=16).replace(", 1)", ", 1, 2)")
    expected = np.full((3, 19, 10), 7, "float32")
    expected[1, :18:2, 2:7] = x.T
    operations = {"tile_like": tile_like, "store_transposed": store_transposed}
    for space, wrapped in ((plain_names(0), lambda f: f), (operations, numba.njit)):
        exec(text, space)
        y = np.full(expected.shape, 7, "float32")
        wrapped(space["moved"])(x, y)
        np.testing.assert_array_equal(y, expected)
    found = transposed_store(loops(copy(element("out", "2 * c + 1", "r"), SUMS)), lambda name: name)
    assert found is not None
    assert found.after == "store_transposed(14, 32, out_tile, out, (1, 0), 0, 2)"


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("shape", [(4, 4), (5, 33), (8, 7), (14, 32), (16, 16), (19, 20)])
def test_the_operation_and_its_plain_form_are_the_transpose(shape: tuple[int, int], dtype: str) -> None:
    rows, columns = shape
    x = (100 * np.random.default_rng(3).standard_normal(shape)).astype(dtype)
    text = SOURCE.format(rows=rows, columns=columns, width=-(-columns // 16) * 16)
    expected = np.full((3, columns + 1, rows + 5), 7, dtype)
    expected[1, :columns, 2 : 2 + rows] = x.T
    operations = {"tile_like": tile_like, "store_transposed": store_transposed}
    for space, wrapped in ((plain_names(0), lambda f: f), (operations, numba.njit)):
        exec(text, space)
        y = np.full(expected.shape, 7, dtype)
        wrapped(space["moved"])(x, y)
        np.testing.assert_array_equal(y, expected)


def element(array: str, *subscripts: str) -> Element:
    return Element(array, tuple(ast.parse(one, mode="eval").body for one in subscripts), "float32")


def loops(*stores: Store, high: str = "14", bind: str | None = None) -> For:
    """for r < 14: for c < 32: stores."""
    zero, wide, end = (ast.parse(text, mode="eval").body for text in ("0", "32", high))
    body: Node = stores[0] if len(stores) == 1 else Block(stores)
    return For("r", zero, end, 1, bind, For("c", zero, wide, 1, "vector", body))


def copy(target: Element, read: Element, op: str = "=") -> Store:
    return Store("S", target, op, Read("read0"), (read,))


OUT, SUMS = element("out", "c", "8 * l + r"), element("y", "r", "c")


@pytest.mark.parametrize(
    ("what", "rows"),
    [
        ("along the columns already", loops(copy(SUMS, element("x", "c", "r")))),
        ("added to what is there", loops(copy(OUT, SUMS, "+="))),
        ("read where another iteration writes", loops(copy(OUT, element("out", "c", "8 * l + r - 1")))),
        ("chosen by what is written", loops(copy(OUT, element("x", "out[c, r]")))),
        ("every second place", loops(copy(element("out", "c", "2 * r"), SUMS))),
        ("the same place again", loops(copy(element("out", "0", "r"), SUMS))),
        ("a number of rows that is not known", loops(copy(OUT, SUMS), high="n")),
        ("too few rows", loops(copy(OUT, SUMS), high="3")),
        ("more than a tile", loops(copy(OUT, SUMS), high="4000")),
        ("rows on cores", loops(copy(OUT, SUMS), bind="cores")),
        ("a variable kept from another iteration", loops(copy(OUT, element("z")), copy(element("z"), SUMS))),
    ],
)
def test_what_stays_as_it_is(what: str, rows: For) -> None:
    assert transposed_store(rows, lambda name: name) is None, what


def test_the_same_loops_with_nothing_in_their_way() -> None:
    found = transposed_store(loops(copy(element("z"), SUMS), copy(OUT, element("z"))), lambda name: name)
    assert found is not None
    assert found.before == "out_tile = tile_like(out, 14, 32)"
    assert found.after == "store_transposed(14, 32, out_tile, out, (0, 8 * l), 0)"


def test_what_the_loops_read_again_is_read_from_the_tile() -> None:
    again = copy(element("a", "r", "c"), OUT)
    found = transposed_store(loops(copy(OUT, SUMS), again), lambda name: name)
    assert found is not None
    columns = found.loops.body
    assert isinstance(columns, For)
    assert isinstance(columns.body, Block)
    first, second = columns.body.parts
    assert isinstance(first, Store)
    assert isinstance(second, Store)
    assert [str(first.target), *map(str, second.reads)] == ["out_tile[r, c]", "out_tile[r, c]"]


def test_sums_that_are_a_result_and_read_again_have_their_values() -> None:
    x, draw = nn.input("x", (2, 3, 4, 4)), np.random.default_rng(3)
    weight, bias = (draw.standard_normal(shape).astype("float32") for shape in ((16, 3, 3, 3), (16,)))
    sums = nn.conv2d(x, weight, bias, padding=1)
    nest = pf.lower((sums, nn.max_pool(nn.relu(sums), 2)))
    net = pf.compile(nest, target="cpu", machine="zen5")
    assert "store_transposed" in net.source
    given = drawn(nest)
    expected = pf.interpret(nest, {**nest.constants, **given})
    for found, right in zip(net(**given), expected.values(), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)


def test_results_that_lie_apart_are_stored_in_the_order_of_memory() -> None:
    found = row_by_row(loops(copy(element("out", "c", "2 * r"), element("y", "r", "c"))))
    assert found is not None
    inner = found.body
    assert isinstance(inner, For)
    assert (found.variable, inner.variable, found.bind, inner.bind) == ("c", "r", None, None)
    for target in (element("out", "c", "r"), element("out", "2 * r", "c"), element("out", "r", "2 * r")):
        assert row_by_row(loops(copy(target, element("y", "r", "c")))) is None
