"""Loops over symbolic sizes at the smallest sizes, where many of them run over less than nothing."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.ir.sizes import extent
from polyfuse.sets import fix_params
from tests.frontend.python.running import by_python, called, defined

MARGIN = 24
TARGETS: Mapping[str, Mapping[str, Any]] = {
    "cpu": {"target": "cpu"},
    "lockstep": {"machine": "h200", "device": "lockstep"},
    "simulator": {"machine": "h200", "device": "simulator"},
}


def bounds(draw: random.Random) -> str:
    """Affine bounds, of which the lower one is often the larger at small sizes."""
    low = f"{draw.choice(('0', '0', 'N', 'N - M'))} + {draw.randint(-6, 6)}"
    return f"{low}, {draw.choice(('M', 'M', '2 * M', 'M + N'))} + {draw.randint(-6, 6)}"


def program(draw: random.Random) -> str:
    """One to three nests of loops over two arrays, each element written by one iteration."""
    lines = [
        "@pf.nest",
        f'def f(M: "i64", N: "i64", a: "f64[2 * M + 2 * N + {2 * MARGIN}]", b: "f64[M + N + {MARGIN}, 9]"):',
    ]
    for _ in range(draw.randint(1, 3)):
        lines.append(f"    for i in range({bounds(draw)}):")
        match draw.choice(("row", "row", "rows", "sum")):
            case "row":
                lines.append(f"        a[i + {MARGIN}] = 2 * a[i + {MARGIN}] + {draw.randint(1, 3)}")
            case "rows":
                lines.append(f"        for j in range({draw.randint(0, 2)}, {draw.randint(2, 9)}):")
                lines.append(f"            a[i + {MARGIN}] += j")
            case "sum":
                lines.append("        for j in range(min(i, 9)):")
                lines.append(f"            b[3, j] += a[i + {MARGIN}]")
    return "\n".join(lines)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(6))
def test_loops_at_small_sizes(seed: int, target: str) -> None:
    draw = random.Random(seed)
    text = program(draw)
    nest = defined(text)
    compiled = pf.compile(nest, **TARGETS[target])
    for m in range(1, 5):
        for n in range(1, 5):
            sizes = {"M": m, "N": n}
            shapes = {t.name: [extent(e, sizes) for e in t.shape] for t in nest.inputs if t.rank}
            rng = np.random.default_rng(seed)
            arrays = {
                **sizes,
                **{name: rng.integers(-9, 9, s).astype(np.float64) for name, s in shapes.items()},
            }
            try:
                expected = by_python(nest, arrays)
            except IndexError:
                continue
            found = called(compiled, arrays)
            for name, array in expected.items():
                np.testing.assert_array_equal(found[name], array, err_msg=f"{text}\n{sizes}")


INNER = """
@pf.nest
def f(M: "i64", a: "f64[M, M]", b: "f64[M, M]"):
    for i in range(M):
        for j in range(3, M - 3):
            b[i, j] += a[i, j]
"""


def test_a_block_has_a_constant_number_of_threads() -> None:
    """250 values at the sizes the model counts for would be one block: at others they are as many as there are."""
    nest = defined(INNER)
    net = pf.compile(nest, machine="h200", device="lockstep")
    for m in (1, 7, 300, 1100):
        assert net.kernels[0].extents({"M": m})[1] == (250, 1, 1)
    arrays = {"M": 260, "a": np.ones((260, 260)), "b": np.zeros((260, 260))}
    np.testing.assert_array_equal(called(net, arrays)["b"], by_python(nest, arrays)["b"])


HALVES = (
    """
    for i in range(N):
        for j in range(i, N):
            t = b[j] + 1
            a[j // 2] = t
    """,
    """
    for i in range(N):
        t = b[i]
        for j in range(i, N):
            a[j // 2] = t
    """,
    """
    t = 1.0
    for i in range(N):
        for j in range(i, N):
            a[(j + i) // 3] = t
            t = a[j // 2] + b[i]
    """,
)


@pytest.mark.parametrize("target", ["cpu", "lockstep"])
@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("body", HALVES)
def test_places_that_are_fractions_elsewhere(body: str, fixed: bool, target: str) -> None:
    """a[j // 2] lies at (N - 1) / 2 at most, which isl has as a fraction where N is even."""
    nest = defined(f'@pf.nest\ndef f(N: "i64", a: "f64[N]", b: "f64[N]"):{body}')
    compiled = pf.compile(nest, sizes={"N": 9} if fixed else None, **TARGETS[target])
    arrays = {"N": 9, "a": np.zeros(9), "b": np.arange(9.0)}
    np.testing.assert_array_equal(called(compiled, arrays)["a"], by_python(nest, arrays)["a"])


STRIDED = """
@pf.nest
def f(N: "i64", M: "i64", A: "i64[M + 6]"):
    for i in range(0, 4, 2):
        for j in range(N - 1, -1, -3):
            for k in range(N - i - 1, max(i, 2) - 1, -2):
                A[2 * i + 2] = A[2 * i] - A[(i + j) % 3]
"""


@pytest.mark.parametrize("target", ["cpu", "lockstep"])
def test_strided_loops_whose_dependences_isl_simplifies_late(target: str) -> None:
    """isl's scheduler took the strides from the flow it was given, so that the finished schedule was refused."""
    nest = defined(STRIDED)
    compiled = pf.compile(nest, **TARGETS[target])
    arrays = {"N": 9, "M": 6, "A": np.arange(12)}
    np.testing.assert_array_equal(called(compiled, arrays)["A"], by_python(nest, arrays)["A"])


def shifted_loops(draw: random.Random) -> str:
    """One or two nests of loops whose subscripts need something of the sizes wherever they run."""
    length = draw.choice(("M", "N", "M + 6", "M + N", "9"))
    lines = ["@pf.nest", f'def f(M: "i64", N: "i64", A: "f64[{length}]"):']
    for _ in range(draw.randint(1, 2)):
        names = "ij"[: draw.randint(1, 2)]
        for depth, name in enumerate(names, 1):
            low, high = (
                f"{draw.choice(('0', 'N', 'N', 'M', 'M', 'N - M', 'M - N'))} + {draw.randint(-4, 4)}"
                for _ in "lh"
            )
            step = draw.choice(("", "", ", 2", ", 3"))
            lines.append(f"{'    ' * depth}for {name} in range({low}, {high}{step}):")
        to, read = (f"{draw.choice(names)} + {draw.randint(-3, 3)}" for _ in "tr")
        lines.append(f"{'    ' * (len(names) + 1)}A[{to}] = A[{read}] + 1")
    return "\n".join(lines)


class Touched(dict[tuple[int, str], set[int]]):
    """An array that only remembers which of its elements were read or written, line by line."""

    def touch(self, how: str, at: int) -> None:
        self.setdefault((sys._getframe(2).f_lineno, how), set()).add(at)

    def __getitem__(self, at: Any) -> Any:
        self.touch("read", at)
        return 0.0

    def __setitem__(self, at: Any, value: Any) -> None:
        self.touch("written", at)


@pytest.mark.parametrize("seed", range(24))
def test_a_context_is_as_weak_as_its_accesses_need(seed: int) -> None:
    """It allows the small sizes at which Python touches nothing outside of the array, and no others.

    A subscript that is negative in every iteration, whatever the sizes, counts from the end.
    """
    text = shifted_loops(random.Random(seed))
    try:
        nest = defined(text)
    except pf.InvalidNest:  # out of bounds wherever it runs
        return
    space: dict[str, Any] = {}
    exec(text.removeprefix("@pf.nest"), space)
    (shape,) = (t.shape for t in nest.tensors if t.rank)
    touched: dict[tuple[int, int], Touched] = {}
    for m, n in itertools.product(range(1, 16), repeat=2):
        touched[m, n] = Touched()
        space["f"](m, n, touched[m, n])
    places = {place for each in touched.values() for place in each}
    from_end = {
        place for place in places if all(at < 0 for each in touched.values() for at in each.get(place, ()))
    }
    for (m, n), each in touched.items():
        sizes = {"M": m, "N": n}
        length = extent(shape[0], sizes)
        inside = all(
            0 <= at + (length if place in from_end else 0) < length
            for place, ats in each.items()
            for at in ats
        )
        assert fix_params(nest.context, sizes).is_empty() != inside, f"{text}\n{sizes}: {nest.context}"


EMPTY_HERE = """
@pf.nest
def f(M: "i64", N: "i64", A: "f64[M + 6]"):
    for i in range(8, N):
        A[i + 3] = A[i - 8] + 1
    for i in range(M):
        A[i] += 1
"""


@pytest.mark.parametrize("target", ["cpu", "lockstep"])
def test_a_loop_that_does_not_run_needs_nothing_of_sizes(target: str) -> None:
    compiled = pf.compile(defined(EMPTY_HERE), **TARGETS[target])
    for m, n in ((1, 8), (1, 1), (9, 12)):
        arrays = {"M": m, "N": n, "A": np.arange(m + 6.0)}
        np.testing.assert_array_equal(
            called(compiled, arrays)["A"], by_python(compiled.nest, arrays)["A"], f"{m}, {n}"
        )
    with pytest.raises(pf.BadArgument, match=r"allows: N <= 8 or N <= 3 \+ M does not hold"):
        called(compiled, {"M": 5, "N": 9, "A": np.arange(11.0)})
