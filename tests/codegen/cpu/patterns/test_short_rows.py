"""Short rows behind a product: what is printed, that values are the loop's and nothing else is written, refusals."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numba
import numpy as np
import pytest
import sympy

import polyfuse as pf
from polyfuse import nn
from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac import VECTOR_BYTES
from polyfuse.codegen.cpu.intrinsics.row_operation import address
from polyfuse.codegen.cpu.intrinsics.short_row import short_row
from polyfuse.codegen.cpu.intrinsics.vector_expression import are_on_vectors
from polyfuse.codegen.cpu.intrinsics.vector_row import VectorRow
from polyfuse.codegen.cpu.patterns.short_rows import MOST, short_row_call
from polyfuse.codegen.looptree.nodes import Block, Element, For, Store
from polyfuse.ir.scalar import Maximum, read
from tests.support.emitted import executed, in_one_line
from tests.support.plain import plain_names

BIAS_RELU = ["def {name}(y, b, out):", "z = y + b", "out[:] = larger(z, float32(0.0))"]


def source_of(value: nn.Value) -> str:
    return pf.compile(pf.lower(value), target="cpu", machine="zen5").source


def dense(batch: int, steps: int, columns: int) -> nn.Value:
    draw = np.random.default_rng(0)
    w, b = draw.standard_normal((steps, columns)), draw.standard_normal(columns)
    return nn.linear(nn.input("x", (batch, steps)), w.astype(np.float32), b.astype(np.float32))


def test_what_follows_a_product_is_a_short_row_of_each_row_of_a_tile() -> None:
    source = in_one_line(source_of(nn.relu(dense(64, 256, 256))))
    lines = [line.strip() for line in source.splitlines()]
    last = max(number for number, line in enumerate(lines) if line.startswith("short_row(zero_mac"))
    name = "zero_mac_bias_relu_row"
    assert lines[last].startswith(f"short_row({name}, float32, count=32, places=(address(y, (i_in_in, 0)), ")
    assert lines[last - 1] == "for i_in_in in range(0, 8):"
    first = next(number for number, line in enumerate(lines) if line.startswith(f"def {name}("))
    assert lines[first - 1] == "@VectorRow"
    assert lines[first : first + 3] == [line.format(name=name) for line in BIAS_RELU]


def test_short_rows_that_data_name_are_whole_vectors_without_a_product() -> None:
    table = np.ones((10, 16), np.float32)
    source = in_one_line(source_of(nn.embedding(nn.input("i", (6,), "int64"), table)))
    assert "count=16, places=(address(w, (row, 0)), address(out, (j, 0)))" in source
    assert "short_row(" not in source_of(nn.relu(nn.input("x", (6, 16))))


LANES = VECTOR_BYTES // 4


@pytest.mark.parametrize(
    ("columns", "whole"), [(8, False), (12, False), (13, True), (4 * LANES - 3, True), (4 * LANES + 1, False)]
)
def test_rows_of_a_few_vectors_are_whole_without_a_product(columns: int, whole: bool) -> None:
    """LLVM writes fewer numbers out, and has loops of its own for more."""
    source = source_of(nn.log_softmax(nn.input("x", (50, columns)), -1))
    assert (f"count={columns}," in source) == whole


def test_rows_of_sums_that_a_loop_adds_to_are_left_to_loops() -> None:
    """Average pooling: what stores and loads them in other parts than the loop does would wait for it."""
    source = source_of(nn.avg_pool(nn.input("x", (4, 16, 18, 18)), 5, 1))
    assert "s[l] += " in source
    assert "short_row(" not in source


def test_functions_of_numbers_are_left_to_a_loop() -> None:
    source = source_of(nn.tanh(dense(64, 256, 256)))
    assert "vector_tanh(" in source
    assert "short_row(" not in source


@pytest.mark.parametrize(("batch", "columns"), [(8, 32), (13, 40), (5, 10), (64, 300), (9, 5)])
@pytest.mark.parametrize("parallel", [False, True])
def test_networks_compute_what_the_oracle_does(batch: int, columns: int, parallel: bool) -> None:
    other = nn.input("other", (batch, columns))
    h = dense(batch, 24, columns)
    nest = pf.lower([nn.relu(h + other * 0.5), nn.relu(h)])
    machine = replace(pf.Machine.preset("zen5"), units=2 if parallel else 1)
    net = pf.compile(nest, target="cpu", machine=machine)
    draw = np.random.default_rng(1)
    inputs = {t.name: draw.standard_normal(t.shape).astype(np.float32) for t in nest.inputs}
    expected = pf.interpret(nest, inputs)
    for made, name in zip(net(**inputs), [t.name for t in nest.with_role("output")], strict=True):
        np.testing.assert_allclose(made, expected[name], rtol=1e-5, atol=1e-5)


BODY = """
@VectorRow
def row(y, b, kept, out, scale):
    {body}

def rows(y, b, out, kept, scale):
    for r in range(3):
        short_row(row, {kind}, {count}, (address(y, (r, 0)), address(b, (2,)), address(kept, (r, 1)),
            address(out, (r, 2))), (scale[0],))
"""

BODIES = [
    "z = y + b; out = {k}(0.0) if z <= {k}(0.0) else z",
    "kept = y * scale + b; out = kept / scale - y",
    "value0 = math.sqrt(math.fabs(y)); out = b if y >= b or b != b else value0; kept = -b",
    "out = y if y > b and (not y == scale) else {k}(math.inf) if y < b else {k}(0.5)",
]


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("count", [4, 5, 8, 10, 16, 32, 40, 64])
@pytest.mark.parametrize("body", BODIES)
def test_the_operation_and_its_plain_form_are_the_loop(kind: str, count: int, body: str) -> None:
    body = body.format(k=kind)
    assert are_on_vectors(ast.parse(body).body, dict.fromkeys(("y", "b", "kept", "out", "scale"), kind))
    draw = np.random.default_rng(2)
    y, b = draw.standard_normal((3, count)).astype(kind), draw.standard_normal(count + 2).astype(kind)
    y[0, 0], b[3] = np.nan, np.nan
    text = BODY.format(kind=kind, count=count, body=re.sub(r"\b(kept|out) = ", r"\1[:] = ", body))
    emitted = {"VectorRow": VectorRow, "short_row": short_row, "address": address, kind: getattr(numba, kind)}
    compiled = numba.njit(executed(text, emitted)["rows"], fastmath={"contract"})
    results = []
    for run in (executed(text, plain_names(0))["rows"], compiled):
        made = np.full((2, 3, count + 4), 7, kind)
        run(y, b, made[0], made[1], np.array([1.5], kind))
        results.append(made)
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5)
    expected = np.full((3, 4), 7, kind)
    np.testing.assert_array_equal(results[1][0][:, [0, 1, -2, -1]], expected)


def element(array: str, *subscripts: str, dtype: Any = "float32") -> Element:
    return Element(array, tuple(ast.parse(text, mode="eval").body for text in subscripts), dtype)


def store(target: Element, *reads: Element, op: str = "=", body: sympy.Basic | None = None) -> Store:
    return Store("S", target, op, read(0) if body is None else body, reads)


def row(*stores: Store, high: str = "32", **others: Any) -> For:
    end = ast.parse(high, mode="eval").body
    return For("c", ast.Constant(0), end, 1, "vector", Block(stores), **others)


def placed(one: Element) -> ast.expr:
    return ast.Name(f"{one.array}_place")


class Rows:
    """The vector rows that a pattern asks for, each in a line."""

    def __init__(self) -> None:
        self.printed: list[str] = []

    def __call__(self, parameters: Sequence[str], lines: Sequence[str]) -> str:
        self.printed.append(f"def row({', '.join(parameters)}): {'; '.join(lines)}")
        return "row"


OUT, SUMS, Z = element("out", "i", "32 * j + c"), element("y", "r", "c"), element("z")


def test_the_call_for_a_row() -> None:
    loop = row(
        store(Z, SUMS, element("alpha"), body=read(0) * read(1)),
        store(
            OUT, Z, element("y", "r + 1", "c"), element("s", "i"), body=Maximum(read(0), read(1)) + read(2)
        ),
    )
    rows = Rows()
    call = short_row_call(loop, loop, placed, rows)
    assert call is not None
    assert ast.unparse(call) == (
        "short_row(row, float32, count=32, places=(address(y, (r, 0)), address(y, (r + 1, 0)), "
        "address(out, (i, 32 * j))), numbers=(alpha_place, s_place))"
    )
    assert rows.printed == ["def row(y, y_2, out, alpha, s): z = y * alpha; out[:] = larger(z, y_2) + s"]


@pytest.mark.parametrize(
    ("op", "line"), [("+=", "out[:] = out + y"), ("max=", "out[:] = larger(out, y)")], ids=["+", "max"]
)
def test_whole_vectors_are_changed_in_place(op: str, line: str) -> None:
    loop, rows = row(store(OUT, SUMS, op=op)), Rows()
    assert short_row_call(loop, loop, placed, rows) is not None
    assert rows.printed == [f"def row(y, out): {line}"]


@pytest.mark.parametrize(
    ("what", "loop"),
    [
        ("added to what is there, the last in a part of a vector", row(store(OUT, SUMS, op="+="), high="20")),
        ("too short", row(store(OUT, SUMS), high="3")),
        ("too long", row(store(OUT, SUMS), high=str(16 * MOST + 1))),
        ("of a length that is not known", row(store(OUT, SUMS), high="min(32, n)")),
        ("of another kind", row(store(OUT, element("y", "r", "c", dtype="float64")))),
        ("of halves", row(store(element("out", "c", dtype="float16"), SUMS))),
        ("across memory", row(store(OUT, element("y", "c", "r")))),
        ("stored across memory", row(store(element("out", "c", "i"), SUMS))),
        ("every second element", row(store(OUT, element("y", "r", "2 * c")))),
        ("chosen by data", row(store(OUT, element("y", "x[r]", "c")))),
        ("a number that a statement may write", row(store(OUT, SUMS), store(SUMS, element("out", "i", "0")))),
        ("a variable from before", row(store(OUT, Z), store(Z, SUMS))),
        ("past the caches", row(store(OUT, SUMS), streams=("out",))),
        ("asking for memory", row(store(OUT, SUMS), ahead=((SUMS, False),))),
        ("a function", row(store(OUT, SUMS, body=sympy.tanh(read(0))))),
        ("a power", row(store(OUT, SUMS, body=sympy.Pow(read(0), 3, evaluate=False)))),
    ],
)
def test_what_stays_a_loop(what: str, loop: For) -> None:
    assert short_row_call(row(store(OUT, SUMS)), loop, placed, Rows()) is not None
    assert short_row_call(loop, loop, placed, Rows()) is None, what


def test_names_that_parts_of_a_body_have_are_not_elements() -> None:
    twice = sympy.Pow(read(0) + read(1), 2, evaluate=False)
    loop = row(store(OUT, element("value0", "c"), element("b", "c"), body=twice))
    rows = Rows()
    assert short_row_call(loop, loop, placed, rows) is not None
    assert rows.printed == ["def row(value0_row, b, out): value0 = value0_row + b; out[:] = value0 * value0"]
    held = row(store(element("value0"), SUMS), store(OUT, element("value0"), SUMS, body=twice))
    assert short_row_call(held, held, placed, Rows()) is None


def test_a_variable_that_another_statement_reads_stays() -> None:
    loop = row(store(Z, SUMS), store(OUT, Z))
    behind = Store("T", element("last", "i"), "=", read(0), (Z,))
    assert short_row_call(loop, Block((loop, Block(()))), placed, Rows()) is not None
    assert short_row_call(loop, Block((loop, behind)), placed, Rows()) is None


def test_an_index_in_a_body_stays() -> None:
    loop = row(replace(store(OUT, SUMS, body=read(0) + sympy.Symbol("c")), indices={"c": ast.Name("c")}))
    assert short_row_call(loop, loop, placed, Rows()) is None
