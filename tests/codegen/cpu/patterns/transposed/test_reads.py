"""Reads across memory: what is printed, that values are the oracle's, what stays as it is."""

from __future__ import annotations

import ast

import numba
import numpy as np
import pytest

import polyfuse as pf
from polyfuse.codegen.cpu.intrinsics.transpose_tile import load_transposed, tile_like
from polyfuse.codegen.cpu.patterns.transposed.reads import transposed_reads
from polyfuse.codegen.looptree.nodes import Block, Element, For, Node, Store
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.ir.scalar import Read
from tests.support.plain import plain_names

SOURCE = """
def moved(x, y):
    held = tile_like(y, {rows}, {width})
    load_transposed({rows}, {columns}, held, x, (1, 0, 2), 1)
    for r in range({rows}):
        for c in range({columns}):
            y[r, c] = held[r, c]
"""


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("shape", [(4, 4), (5, 33), (8, 7), (14, 32), (16, 64), (19, 20)])
def test_the_operation_and_its_plain_form_are_the_transpose(shape: tuple[int, int], dtype: str) -> None:
    rows, columns = shape
    x = (100 * np.random.default_rng(3).standard_normal((3, columns, rows + 2))).astype(dtype)
    text = SOURCE.format(rows=rows, columns=columns, width=-(-columns // 16) * 16)
    operations = {"tile_like": tile_like, "load_transposed": load_transposed}
    for space, wrapped in ((plain_names(0), lambda f: f), (operations, numba.njit)):
        exec(text, space)
        y = np.zeros(shape, dtype)
        wrapped(space["moved"])(x, y)
        np.testing.assert_array_equal(y, x[1, :, 2:].T)


@pytest.mark.parametrize(("rows", "columns"), [(36, 8), (34, 8), (17, 4), (40, 16), (33, 7)])
def test_rows_behind_the_last_are_not_written(rows: int, columns: int) -> None:
    """36 rows are 48 in whole lines of 64 bytes, of which the last vector of 8 has none."""
    text = SOURCE.format(rows=rows, columns=columns, width=16).replace(
        f"tile_like(y, {rows},", "tile_like(y, 64,"
    )
    text = text.replace("    load_", "    held[:] = 7\n    load_").replace(
        f"in range({rows})", "in range(64)"
    )
    space = {"tile_like": tile_like, "load_transposed": load_transposed}
    exec(text, space)
    x = np.random.default_rng(3).standard_normal((3, columns, rows + 2)).astype("float32")
    y = np.zeros((64, columns), "float32")
    numba.njit(space["moved"])(x, y)
    np.testing.assert_array_equal(y[:rows], x[1, :, 2:].T)
    np.testing.assert_array_equal(y[rows:], 7)


def test_a_read_of_every_second_column_is_the_transpose_too() -> None:
    x = np.random.default_rng(3).standard_normal((3, 18, 7)).astype("float32")
    text = SOURCE.format(rows=5, columns=9, width=16).replace(", 1)", ", 1, 2)")
    operations = {"tile_like": tile_like, "load_transposed": load_transposed}
    for space, wrapped in ((plain_names(0), lambda f: f), (operations, numba.njit)):
        exec(text, space)
        y = np.zeros((5, 9), "float32")
        wrapped(space["moved"])(x, y)
        np.testing.assert_array_equal(y, x[1, ::2, 2:].T)
    read = copy(element("y", "r", "c"), element("x", "2 * c", "r"))
    found = transposed_reads(loops(read), lambda name: name)
    assert found is not None
    assert found.before[1] == "load_transposed(14, 32, x_tile, x, (0, 0), 0, 2)"


def element(array: str, *subscripts: str, dtype: str = "float32") -> Element:
    return Element(array, tuple(ast.parse(one, mode="eval").body for one in subscripts), dtype)


def loops(*stores: Store, high: str = "14") -> For:
    """for r < 14: for c < 32: stores."""
    zero, wide, end = (ast.parse(text, mode="eval").body for text in ("0", "32", high))
    body: Node = stores[0] if len(stores) == 1 else Block(stores)
    return For("r", zero, end, 1, None, For("c", zero, wide, 1, "vector", body))


def copy(target: Element, read: Element) -> Store:
    return Store("S", target, "=", Read("read0"), (read,))


ACROSS = element("x", "8 * l + c", "k + r")


def test_reads_across_are_of_copies_and_each_is_copied_once() -> None:
    twice = loops(copy(element("y", "r", "c"), ACROSS), copy(element("z", "r", "c"), ACROSS))
    found = transposed_reads(twice, lambda name: name)
    assert found is not None
    assert found.before == (
        "x_tile = tile_like(x, 14, 32)",
        "load_transposed(14, 32, x_tile, x, (8 * l, k), 0)",
    )
    assert isinstance(found.loops.body, For)
    assert isinstance(found.loops.body.body, Block)
    reads = [store.reads[0] for store in found.loops.body.body.parts if isinstance(store, Store)]
    assert [(read.array, *map(ast.unparse, read.subscripts)) for read in reads] == [("x_tile", "r", "c")] * 2


@pytest.mark.parametrize(
    ("what", "rows"),
    [
        ("along the columns", loops(copy(element("y", "r", "c"), element("x", "r", "c")))),
        ("written in another iteration", loops(copy(element("x", "r", "c"), ACROSS))),
        ("every second place", loops(copy(element("y", "r", "c"), element("x", "c", "2 * r")))),
        ("integers", loops(copy(element("y", "r", "c"), element("x", "c", "r", dtype="int32")))),
        ("rows of no known number", loops(copy(element("y", "r", "c"), ACROSS), high="n")),
        ("too few rows", loops(copy(element("y", "r", "c"), ACROSS), high="3")),
        ("more than a tile", loops(copy(element("y", "r", "c"), ACROSS), high="4000")),
    ],
)
def test_what_stays_as_it_is(what: str, rows: For) -> None:
    assert transposed_reads(rows, lambda name: name) is None, what


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "float16"])
@pytest.mark.parametrize(
    "text", ["y[j, i] = x[i, j]", "y[j, i] = x[i, j] + w[j, i]", "y[i, j] = x[i, j] - w[j, i]"]
)
@pytest.mark.parametrize("shape", [(40, 70), (5, 130), (4, 4), (3, 90)])
def test_values_of_whole_and_cut_tiles_are_the_oracles(shape: tuple[int, int], text: str, dtype: str) -> None:
    rows, columns = shape
    turned = (columns, rows)
    tensors = [
        Tensor("x", shape, dtype, "input"),
        Tensor("w", turned, dtype, "input"),
        Tensor("y", turned if text.startswith("y[j") else shape, dtype, "output"),
    ]
    nest = Nest.of(tensors, [statement(f"{{ S[i, j] : 0 <= i < {rows} and 0 <= j < {columns} }}", text)])
    rng = np.random.default_rng(5)
    inputs = {t.name: rng.integers(-9, 10, t.shape).astype(t.dtype) for t in nest.inputs}
    net = pf.compile(nest, target="cpu")
    np.testing.assert_array_equal(net(**inputs), pf.interpret(nest, inputs)["y"])
    if min(shape) >= 4 and dtype in ("float32", "float64"):
        assert "_transposed(" in net.source


def test_on_cores_and_in_images_of_channels() -> None:
    """Channels last to channels first, in which pixels of a row lie beside each other."""
    tensors = [
        Tensor("x", (3, 20, 36, 24), "float32", "input"),
        Tensor("y", (3, 24, 20, 36), "float32", "output"),
    ]
    box = "0 <= n < 3 and 0 <= c < 24 and 0 <= h < 20 and 0 <= w < 36"
    nest = Nest.of(tensors, [statement(f"{{ S[n, c, h, w] : {box} }}", "y[n, c, h, w] = x[n, h, w, c]")])
    net = pf.compile(nest, target="cpu", machine="zen5")
    x = np.random.default_rng(6).standard_normal((3, 20, 36, 24)).astype(np.float32)
    np.testing.assert_array_equal(net(x), x.transpose(0, 3, 1, 2))
    assert "store_transposed(" in net.source
