"""Random Python loops on integers: the oracle and the emitted source leave exactly what Python leaves."""

from __future__ import annotations

import linecache

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse.errors import BudgetExceeded
from polyfuse.rewrite import expand
from tests.frontend.python.running import by_python, by_source, defined
from tests.support.examples import examples

INDICES = "ijk"
MARGIN = 24
"""Elements on either side of those with subscripts near 0, so that every subscript below is in bounds."""


@st.composite
def affine(draw: st.DrawFn, scope: tuple[str, ...], factors: tuple[int, ...] = (-1, 1, 2)) -> str:
    """An affine expression with small values."""
    leaves = (*scope, "N", *(["m"] if scope else []))
    kind = draw(st.sampled_from(["constant", "leaf", "leaf", "sum", "floor", "mod"]))
    constant = draw(st.integers(-3, 4))
    if kind == "constant" or not leaves:
        return str(constant)
    leaf = draw(st.sampled_from(leaves))
    factor = draw(st.sampled_from(factors))
    scaled = leaf if factor == 1 else f"{factor} * {leaf}"
    match kind:
        case "sum":
            return f"{scaled} + {constant}"
        case "floor":
            return f"({leaf} + {constant}) // {draw(st.integers(1, 3))}"
        case "mod":
            return f"({leaf} + {constant}) % {draw(st.integers(2, 4))}"
    return scaled


@st.composite
def condition(draw: st.DrawFn, scope: tuple[str, ...]) -> str:
    """A condition on indices and N."""
    left, right = draw(affine(scope)), draw(affine(scope))
    simple = f"{left} {draw(st.sampled_from(['<', '<=', '>', '>=', '==', '!=']))} {right}"
    match draw(st.sampled_from(["simple", "simple", "not", "and", "or", "chain"])):
        case "not":
            return f"not ({simple})"
        case "chain":
            return f"{left} <= {right} < {draw(affine(scope))}"
        case "and" | "or" as joiner:
            return f"{simple} {joiner} {draw(affine(scope))} != {draw(affine(scope))}"
    return simple


@st.composite
def element(draw: st.DrawFn, scope: tuple[str, ...]) -> str:
    """An element of an array, or the variable."""
    name = draw(st.sampled_from(["a", "a", "b", "t"]))
    if name == "t":
        return name
    if name == "b":
        return f"b[{draw(affine(scope))} + {MARGIN}, ({draw(affine(scope))}) % 5]"
    return f"a[{draw(affine(scope))} + {MARGIN}]"


@st.composite
def value(draw: st.DrawFn, scope: tuple[str, ...]) -> str:
    """An integer value; no products of elements, which could grow past 64 bits."""
    one, two = draw(element(scope)), draw(element(scope))
    small = draw(affine(scope)).replace("//", "+").replace("%", "-")
    return draw(
        st.sampled_from(
            [
                one,
                f"{one} + {small}",
                f"{one} - {two}",
                f"max({one}, {two})",
                f"min({one}, {small}, {two})",
                f"{one} if {two} > {small} else {two}",
                f"abs({one}) + c",
                f"{one} if {draw(condition(scope))} else {two}",
                small,
            ]
        )
    )


@st.composite
def block(draw: st.DrawFn, scope: tuple[str, ...], depth: int) -> list[str]:
    """Statements at one level."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 2))):
        kinds = ["assign", "assign", "loop", "loop", "if", "data", "integer"]
        kind = draw(st.sampled_from(kinds if depth else ["assign"]))
        if kind == "integer":
            lines.append(f"m = {draw(affine(scope))}")
        elif kind == "assign":
            op = draw(st.sampled_from(["=", "=", "+=", "-="]))
            lines.append(f"{draw(element(scope))} {op} {draw(value(scope))}")
        elif kind == "loop" and len(scope) < len(INDICES):
            index = INDICES[len(scope)]
            bounds = ", ".join(draw(st.lists(affine(scope), min_size=2, max_size=2)))
            step = draw(st.sampled_from([1, 1, 2, 3, -1, -2]))
            lines.append(f"for {index} in range({bounds}, {step}):")
            lines += [f"    {line}" for line in draw(block((*scope, index), depth - 1))]
        else:
            test = draw(condition(scope))
            if kind == "data":
                compared = f"{draw(element(scope))} > ({draw(value(scope))})"
                test = draw(st.sampled_from([compared, f"{test} and {compared}", f"{compared} or {test}"]))
            lines.append(f"if {test}:")
            lines += [f"    {line}" for line in draw(block(scope, depth - 1))]
            if draw(st.booleans()):
                lines += ["else:", *(f"    {line}" for line in draw(block(scope, depth - 1)))]
    return lines


@settings(max_examples=examples(50))
@given(block((), 3), st.integers(1, 4), st.integers(0, 2**16))
def test_random_loops_mean_what_python_means(lines: list[str], n: int, seed: int) -> None:
    head = f'@pf.nest\ndef f(N: "i64", c: "i64", a: "i64[{2 * MARGIN + 9}]", b: "i64[{2 * MARGIN + 9}, 5]"):'
    text = "\n".join(
        [head, "    t = 1", "    m = 2", "    for z in range(N):", *(f"        {line}" for line in lines)]
    )
    try:
        nest = defined(text, INDICES=INDICES)
    except pf.InvalidNest:  # nothing ever runs, or a subscript is out of bounds whenever it does
        event("invalid")
        return
    except pf.NotAffine as error:  # only m may be another value in every iteration, where it stands
        if "m is a local variable" not in error.why and "on an index or a size" not in error.why:
            raise
        event("not affine")
        return
    finally:
        linecache.clearcache()
    rng = np.random.default_rng(seed)
    arrays = {
        "N": n,
        "c": 7,
        "a": rng.integers(-9, 9, 2 * MARGIN + 9),
        "b": rng.integers(-9, 9, (2 * MARGIN + 9, 5)),
    }
    expected = by_python(nest, arrays)
    sizes = {"N": n, **({"c": 7} if "c" in nest.params else {})}
    fixed = nest.with_sizes({"N": n} if "N" in nest.params else {})  # no size where no statement is left
    results = [pf.interpret(nest, arrays), by_source(nest, arrays, sizes), by_source(fixed, arrays, sizes)]
    try:
        results.append(pf.interpret(expand(nest).nest, arrays))
    except BudgetExceeded:  # more dependences than isl is given operations for: nothing is expanded
        event("refused by expand")
    for found in results:
        for name, array in expected.items():
            assert (found[name] == array).all(), text
