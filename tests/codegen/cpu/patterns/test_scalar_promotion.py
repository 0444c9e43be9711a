"""Reductions of vector loops in variables: which are held, under what names, and that the values are right."""

from __future__ import annotations

import ast

import numpy as np
import pytest

import polyfuse as pf
from papers.polybench import KERNELS
from polyfuse.codegen.cpu.patterns.scalar_promotion import gathered
from polyfuse.codegen.looptree.nodes import Block, Element, For, Node, Store
from polyfuse.ir.scalar import read


def element(array: str, *subscripts: str) -> Element:
    return Element(array, tuple(ast.parse(text, mode="eval").body for text in subscripts), "float64")


def add(target: Element, *reads: Element, name: str = "S", op: str = "+=") -> Store:
    return Store(name, target, op, read(0), reads)


def over(variable: str, body: Node, high: int = 100, bind: str = "vector") -> For:
    return For(variable, ast.Constant(0), ast.Constant(high), 1, bind, body)


def test_unrolled_rows_have_a_sum_each() -> None:
    rows = over("r", add(element("s", "4 * i + r"), element("A", "4 * i + r", "j")), 3, "unroll")
    found = gathered(over("j", rows))
    assert found is not None
    assert [total.variable for total in found.sums] == ["S_sum", "S_sum_2", "S_sum_3"]
    assert [ast.unparse(total.element.subscripts[0]) for total in found.sums] == [
        "4 * i",
        "4 * i + 1",
        "4 * i + 2",
    ]
    assert [ast.unparse(store.reads[0].subscripts[0]) for store in found.stores] == [
        "4 * i",
        "4 * i + 1",
        "4 * i + 2",
    ]


def test_one_sum_of_unrolled_steps_is_one_variable() -> None:
    steps = over("r", add(element("s", "i"), element("A", "i", "4 * j + r")), 4, "unroll")
    found = gathered(over("j", steps))
    assert found is not None
    assert [total.variable for total in found.sums] == ["S_sum"]
    assert len(found.stores) == 4


def test_beside_a_statement_that_stores_each_time() -> None:
    both = Block(
        (
            add(element("y", "j"), element("A", "i", "j"), op="="),
            add(element("q", "i"), element("A", "i", "j")),
        )
    )
    found = gathered(over("j", both))
    assert found is not None
    assert [store.target.array for store in found.stores] == ["y", "S_sum"]


@pytest.mark.parametrize(
    "body",
    [
        add(element("s", "j"), element("A", "j")),
        Block(
            (
                add(element("s", "i"), element("A", "j")),
                add(element("y", "j"), element("s", "i"), name="T", op="="),
            )
        ),
        Block(
            (add(element("s", "i"), element("A", "j")), add(element("s", "k"), element("A", "j"), name="T"))
        ),
        over("r", add(element("s", "r // 2"), element("A", "r", "j")), 4, "unroll"),
        over("r", add(element("s", "i + r"), element("s", "j"), element("A", "j")), 2, "unroll"),
    ],
    ids=["an element a step", "read beside", "written beside", "elements that may be one", "read by a copy"],
)
def test_what_is_not_held(body: Node) -> None:
    assert gathered(over("j", body)) is None


def test_rows_jammed_by_hand_sum_what_the_function_does() -> None:
    """atax, four rows in one pass along memory."""
    kernel = KERNELS["atax"]
    sizes = {"M": 8, "N": 21}
    nest = kernel.nest.with_sizes(sizes)
    s = pf.Schedule(nest).split("S2", "i", 4).distribute("S2", "i_in")
    for name in ("S2", "S3"):
        s = s.interchange(name, "i_in", "j").unroll(name, "i_in").vectorize(name, "j")
    net = pf.compile(nest, schedule=s, target="cpu")
    assert net.source.count("add_any_order(") == 4
    inputs = kernel.inputs(sizes, np.random.default_rng(0))
    ours, theirs = ({name: np.copy(value) for name, value in inputs.items()} for _ in range(2))
    net(**ours)
    kernel.nest.python(**theirs)
    np.testing.assert_allclose(ours["y"], theirs["y"], rtol=1e-12)
