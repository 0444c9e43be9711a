"""Sums of vector loops and elements that loops read alone in variables: which, by what names, with right values."""
# ruff: noqa: F821, UP037

from __future__ import annotations

import ast

import numpy as np
import pytest

import polyfuse as pf
from papers.polybench import KERNELS
from polyfuse.codegen.cpu.patterns.scalar_promotion import around_one_value, gathered, kept_reads
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


def loop(low: str, high: str, target: Element, *reads: Element) -> For:
    bounds = (ast.parse(text, mode="eval").body for text in (low, high))
    return For("j", *bounds, 1, None, add(target, *reads, op="="))


@pytest.mark.parametrize(
    ("low", "high", "target", "read"),
    [
        ("k + 1", "n", ("i", "j"), ("i", "k")),
        ("0", "k", ("i", "j"), ("i", "k")),
        ("max(5, k + 1)", "n", ("i", "j"), ("i", "k")),
        ("0", "min(n, k - 2)", ("i", "j + 2"), ("i", "k")),
        ("0", "k + 1", ("i", "-j"), ("i", "1 + 3")),
        ("0", "n", ("i", "j"), ("i + 1", "k")),
    ],
)
def test_what_a_loop_never_writes_is_kept(
    low: str, high: str, target: tuple[str, ...], read: tuple[str, ...]
) -> None:
    found = kept_reads(loop(low, high, element("t", *target), element("t", *read)), lambda name: name)
    assert found is not None
    assert [(name, str(place)) for name, place in found.values] == [("t_kept", str(element("t", *read)))]
    assert isinstance(found.loop.body, Store)
    assert found.loop.body.reads == (Element("t_kept", (), "float64"),)


@pytest.mark.parametrize(
    ("low", "high", "target", "read"),
    [
        ("k", "n", ("i", "j"), ("i", "k")),
        ("0", "k + 1", ("i", "j"), ("i", "k")),
        ("0", "n", ("i", "j"), ("m", "k")),
        ("k + 1", "n", ("i", "j"), ("i", "j - 1")),
        ("k + 1", "n", ("i", "j // 2"), ("i", "k")),
    ],
)
def test_what_a_loop_may_write_is_not_kept(
    low: str, high: str, target: tuple[str, ...], read: tuple[str, ...]
) -> None:
    assert kept_reads(loop(low, high, element("t", *target), element("t", *read)), lambda name: name) is None


def test_a_second_statement_that_writes_it_counts() -> None:
    first = add(element("t", "i", "j"), element("t", "i", "k"), op="=")
    second = add(element("t", "i", "k"), element("x", "j"), name="T", op="=")
    bounds = (ast.parse(text, mode="eval").body for text in ("k + 1", "n"))
    assert kept_reads(For("j", *bounds, 1, None, Block((first, second))), lambda name: name) is None


def test_a_loop_comes_apart_around_the_one_value_that_writes_what_others_read() -> None:
    found = around_one_value(loop("0", "100", element("t", "i", "j"), element("t", "i", "k")), {})
    assert found is not None
    bounds = [(ast.unparse(each.low), ast.unparse(each.high)) for each in found]
    assert bounds == [("0", "min(100, k)"), ("max(0, k)", "min(100, k + 1)"), ("max(0, k + 1)", "100")]


@pytest.mark.parametrize(
    ("target", "read"), [(("j", "i"), ("k", "i")), (("i", "j"), ("m", "k")), (("i", "2 * j"), ("i", "k"))]
)
def test_a_loop_across_memory_or_that_may_never_meet_stays(
    target: tuple[str, ...], read: tuple[str, ...]
) -> None:
    assert around_one_value(loop("0", "100", element("t", *target), element("t", *read)), {}) is None


@pf.nest
def to_the_right(t: "f64[N, N]"):
    for i in range(N):
        for k in range(i, N):
            for j in range(k + 1, N):
                t[i, j] = max(t[i, j], t[i, k] + t[k, j])


@pf.nest
def through_each(p: "f64[N, N]"):
    for k in range(N):
        for i in range(N):
            for j in range(N):
                p[i, j] = min(p[i, j], p[i, k] + p[k, j])


@pf.nest
def from_the_last(p: "f64[N, N]"):
    for k in range(N):
        for i in range(N):
            for j in range(N - 1, -1, -1):
                p[i, j] = 0.5 * p[i, j] + 0.25 * p[i, N - 1 - k] * p[k, j]


@pytest.mark.parametrize("function", [to_the_right, through_each, from_the_last])
@pytest.mark.parametrize("size", [1, 2, 5, 19, 40])
def test_such_loops_give_what_python_does(function: pf.PythonNest, size: int) -> None:
    """Negative distances, too, by which p[k, k] < 0 changes what the rows behind it read."""
    given = np.random.default_rng(size).normal(size=(size, size))
    ours, theirs = given.copy(), given.copy()
    pf.compile(function, target="cpu", sizes={"N": size})(ours)
    function.python(theirs)
    np.testing.assert_array_equal(ours, theirs)
