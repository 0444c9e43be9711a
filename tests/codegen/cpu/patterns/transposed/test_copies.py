"""Copies across memory: their blocks, that values of a product with a transposed factor are right, what stays."""

from __future__ import annotations

import ast
from dataclasses import replace

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.codegen.cpu.patterns.transposed.copies import copy_in_blocks, copy_in_strips
from polyfuse.codegen.looptree.nodes import Element, For, Node, Store
from polyfuse.machine import Machine
from tests.codegen.cpu.patterns.transposed.test_reads import copy, element

PACKED = copy(element("b", "p", "k", "c"), element("w", "64 * p + c", "k"))


def loops(
    body: Node, *, k: str = "40", between: str | None = "4", columns: str = "64", bind: str | None = None
) -> For:
    """for k: for p < 4: for c < 64: body."""
    zero = ast.Constant(0)

    def end(text: str) -> ast.expr:
        return ast.parse(text, mode="eval").body

    inner = For("c", zero, end(columns), 1, "vector", body)
    if between is not None:
        inner = For("p", zero, end(between), 1, bind, inner)
    return For("k", zero, end(k), 1, None, inner)


def shown(node: Node) -> list[str]:
    """Loops with their ends, and what the store in them reads."""
    if isinstance(node, For):
        return [f"{node.variable} < {ast.unparse(node.high)}", *shown(node.body)]
    assert isinstance(node, Store)
    return [", ".join(map(ast.unparse, (*node.target.subscripts, *node.reads[0].subscripts)))]


def test_blocks_are_of_a_vectors_lanes_and_the_last_is_what_is_left() -> None:
    found = copy_in_blocks(loops(PACKED), lambda name: name)
    assert found is not None
    assert [shown(part) for part in found.parts] == [
        ["k_block < 2", "p < 4", "k < 16", "c < 64", "p, 16 * k_block + k, c, 64 * p + c, 16 * k_block + k"],
        ["p < 4", "k < 8", "c < 64", "p, 32 + k, c, 64 * p + c, 32 + k"],
    ]


def test_of_no_known_number_whole_blocks_are_taken_and_the_rest_stays() -> None:
    found = copy_in_blocks(loops(PACKED, k="min(40, n)"), lambda name: name)
    assert found is not None
    whole, rest = found.parts
    blocks = "max(0, min(40, n)) // 16"
    elements = "p, 16 * k_block + k, c, 64 * p + c, 16 * k_block + k"
    assert shown(whole) == [f"k_block < {blocks}", "p < 4", "k < 16", "c < 64", elements]
    assert shown(rest) == ["k < min(40, n)", "p < 4", "c < 64", "p, k, c, 64 * p + c, k"]
    assert isinstance(rest, For)
    assert ast.unparse(rest.low) == f"16 * ({blocks})"
    assert copy_in_blocks(rest, lambda name: name) is None


def with_indices(store: Store, **indices: str) -> Store:
    values = {name: ast.parse(text, mode="eval").body for name, text in indices.items()}
    return Store(store.statement, store.target, store.op, store.body, store.reads, values)


SUM = Store("S", PACKED.target, "+=", PACKED.body, PACKED.reads)
SAME = Element("b", PACKED.reads[0].subscripts[::-1], "float32")


@pytest.mark.parametrize(
    ("what", "rows"),
    [
        ("along the columns", loops(copy(PACKED.target, element("w", "k", "64 * p + c")))),
        ("a sum", loops(SUM)),
        ("written elsewhere", loops(copy(PACKED.target, SAME))),
        ("chosen by what is written", loops(copy(PACKED.target, element("w", "b[0, 0, c] + c", "k")))),
        ("one element for several steps", loops(copy(element("b", "p", "c"), PACKED.reads[0]))),
        ("an index of what is written", loops(with_indices(PACKED, i="b[0, 0, 0]"))),
        ("rows that begin at no number", replace(loops(PACKED), low=ast.Name("n"))),
        ("columns of no known number", loops(PACKED, columns="n")),
        ("columns that depend on the steps", loops(PACKED, columns="min(64, k)")),
        ("panels on cores", loops(PACKED, bind="cores")),
        ("a block already", loops(PACKED, k="16", between=None)),
    ],
)
def test_what_stays_as_it_is(what: str, rows: For) -> None:
    assert copy_in_blocks(rows, lambda name: name) is None, what


FILTERS = copy(element("b", "k", "p", "c"), element("f", "c", "k", "p"))
PANELS = copy(element("b", "p", "k", "c"), element("f", "64 * p + c", "2 * k"))


def test_strips_are_of_a_vectors_lanes_and_stand_inside_panels() -> None:
    found = copy_in_strips(loops(FILTERS), lambda name: name)
    assert found is not None
    elements = "k, p, 16 * c_strip + c, 16 * c_strip + c, k, p"
    assert shown(found) == ["c_strip < 4", "k < 40", "p < 4", "c < 16", elements]
    found = copy_in_strips(loops(PANELS), lambda name: name)
    assert found is not None
    assert shown(found)[:4] == ["p < 4", "c_strip < 4", "k < 40", "c < 16"]


@pytest.mark.parametrize(
    ("what", "rows"),
    [
        ("along the columns", loops(copy(FILTERS.target, element("f", "k", "p", "c")))),
        (
            "steps that are further apart than columns",
            loops(copy(FILTERS.target, element("f", "k", "p", "c", "0"))),
        ),
        ("written elsewhere", loops(copy(FILTERS.target, element("b", "c", "k", "p")))),
        ("a strip already", loops(FILTERS, columns="16")),
        ("no whole strips", loops(FILTERS, columns="40")),
        ("columns of no known number", loops(FILTERS, columns="n")),
    ],
)
def test_what_has_no_strips(what: str, rows: For) -> None:
    assert copy_in_strips(rows, lambda name: name) is None, what


def test_values_of_a_convolution_whose_filters_each_call_passes() -> None:
    """Panels of two vectors of 16 lanes, in strips; half as many lanes and registers have panels of one strip."""
    x, w = nn.input("x", (1, 5, 6, 7)), nn.input("w", (64, 5, 3, 3))
    nest = pf.lower(nn.conv2d(x, w, padding=1))
    net = pf.compile(nest, target="cpu", machine=Machine.preset("zen5"))
    rng = np.random.default_rng(2)
    given = {t.name: rng.integers(-4, 5, t.shape).astype("float32") for t in nest.inputs}
    np.testing.assert_array_equal(net(**given), pf.interpret(nest, given)["out"])
    assert "_strip" in net.source


@pytest.mark.parametrize("k", [5, 16, 300, 1801])
def test_values_of_a_product_whose_steps_are_no_known_number(k: int) -> None:
    x, w = nn.input("x", (192, "K"), "float32"), nn.input("w", (128, "K"), "float32")
    net = pf.compile(pf.lower(x @ nn.transpose(w)), target="cpu", machine=Machine.preset("zen5"))
    rng = np.random.default_rng(1)
    given = {
        name: rng.integers(-4, 5, shape).astype("float32")
        for name, shape in {"x": (192, k), "w": (128, k)}.items()
    }
    np.testing.assert_array_equal(net(**given), given["x"] @ given["w"].T)
    assert "_block in range(0, max(0, " in net.source


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_of_a_product_with_a_transposed_factor(dtype: str) -> None:
    """Of so many rows that a packed factor pays: few read it where it lies, in tiles of dot products."""
    x, w = nn.input("x", (192, 75), dtype), nn.input("w", (128, 75), dtype)
    nest = pf.lower(x @ nn.transpose(w))
    net = pf.compile(nest, target="cpu", machine=Machine.preset("zen5"))
    rng = np.random.default_rng(1)
    given = {t.name: rng.integers(-4, 5, t.shape).astype(dtype) for t in nest.inputs}
    np.testing.assert_array_equal(net(**given), given["x"] @ given["w"].T)
    assert "load_transposed(" in net.source
