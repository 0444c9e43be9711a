"""Random programs on arrays: slices, overlaps, broadcasting, reductions and types mean what NumPy means."""

from __future__ import annotations

import linecache
from random import Random
from typing import Any

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

import polyfuse as pf
from tests.frontend.python.running import copies, defined
from tests.support.examples import examples

CUT = 3
"""Slices leave out this many elements of a dimension of N, at one end or both."""

ROWS = ("A[i, i:]", "x[:-i]", "y[i - 1] + k[i:]", "B[i:, i] + B[0, :N - i]")
"""Vectors of N - i elements, in a loop over i."""

HEAD = '@pf.nest\ndef f(N: "i64", x: "f64[N]", y: "f32[N]", k: "i32[N]", A: "f64[N, N]", B: "f32[N, N]"):'


def result_of(nest: Any, given: dict[str, Any]) -> dict[str, Any]:
    """What Python's function leaves and returns, by the nest's names."""
    mine = copies(given)
    with np.errstate(all="ignore"):
        returned = nest.python(**mine)
    values = returned if isinstance(returned, tuple) else () if returned is None else (returned,)
    named = {t.name: value for t, value in zip(nest.with_role("output"), values, strict=True)}
    return {**{t.name: mine[t.name] for t in nest.with_role("inout")}, **named}


def cut(random: Random) -> str:
    """A slice of N - CUT elements."""
    before = random.randint(0, CUT)
    after = CUT - before
    start = random.choice([str(before), f"{before} - N"]) if before else random.choice(["", "0"])
    stop = random.choice([f"-{after}", f"N - {after}"]) if after else random.choice(["", "N"])
    if random.randint(0, 4) == 0:  # the same elements from the last to the first
        first = f"N - {after + 1}" if after else random.choice(["", "-1"])
        return f"{first}:{before - 1}:-1" if before else f"{first}::-1"
    return f"{start}:{stop}"


def leaf(random: Random, rank: int, short: bool, wide: tuple[str, ...]) -> str:
    """An array of one rank, whole or cut in every dimension; `wide` are the vectors and matrices there are."""
    vectors, matrices = wide[:3], wide[3:]
    if rank == 2:
        name = random.choice(matrices)
        found = f"{name}[{cut(random)}, {cut(random)}]" if short else name
        kinds = [found, found, f"{found}.T", f"{leaf(random, 1, short, wide)}[:, None]"]
        if not short:
            kinds += [f"np.triu({found})", f"np.outer({leaf(random, 1, False, wide)}, {vectors[0]})"]
        return random.choice(kinds)
    name, matrix = random.choice(vectors), random.choice(matrices)
    if short:
        at = cut(random)
        row = random.randint(-3, 3)
        whole = f"(k[{at}] % {vectors[2]}[{at}] + (k[{at}] << 2) // -3 - (k[{at}] & 5))"
        kinds = [f"{name}[{at}]", f"{name}[{at}]", f"{matrix}[{row}, {at}]", f"{matrix}[{at}, {row}]", whole]
        return random.choice(kinds)
    axis = random.choice(["0", "1", "-1"])
    how = random.choice(["sum", "max", "min", "mean"])
    kinds = [name, name, f"{matrix}[{random.randint(-3, 3)}]", f"{matrix}.{how}(axis={axis})"]
    kinds += [f"np.flip({name})", f"np.roll({name}, {random.randint(-2, 2)})", f"{matrix} @ {name}"]
    return random.choice([*kinds, f"np.concatenate(({name}[2:], {name}[:2]))"])


def value(random: Random, rank: int, short: bool, wide: tuple[str, ...], depth: int = 2) -> str:
    """An array expression of small values."""
    if depth == 0:
        return leaf(random, rank, short, wide)
    one = value(random, rank, short, wide, depth - 1)
    two = value(random, random.choice([rank, 1]), short, wide, depth - 1)
    number = random.choice(["0.5", "-1", "2", "k[0]", "x[-1]", "y[1]", "A.max()", "(N - 1)"])
    kinds = [
        f"({one} + {two})",
        f"({one} - {two})",
        f"0.5 * {one}",
        f"np.minimum({one}, {two})",
        f"np.where({one} > {two}, {one}, {number})",
        f"({one} + {number})",
        f"np.clip({one}, -2, 2) * {number}",
        f"-{one}",
        one,
    ]
    return random.choice(kinds)


def statements(random: Random) -> list[str]:
    """Assignments to whole arrays, slices, masks and names; sometimes in a loop."""
    wide = ["x", "y", "k", "A", "B"]
    lines: list[str] = []
    for position in range(random.randint(1, 3)):
        names = tuple(wide)
        kind = random.choice(["slice", "slice", "matrix", "whole", "name", "mask", "loop"])
        floats = random.choice(["x", "y"])
        op = random.choice(["=", "=", "+=", "-=", "*="])
        match kind:
            case "slice":
                lines.append(f"{floats}[{cut(random)}] {op} {value(random, 1, True, names)}")
            case "matrix":
                target = f"{random.choice('AB')}[{cut(random)}, {cut(random)}]"
                lines.append(f"{target} {op} {value(random, 2, True, names)}")
            case "whole":
                lines.append(
                    f"{random.choice(['x', 'y', 'A', 'B'])}[...] {op} {value(random, 1, False, names)}"
                )
            case "name":
                lines.append(f"t{position} = {value(random, 1, False, names)}")
                lines.append(f"x += t{position}")
            case "mask":
                lines.append(f"{floats}[{floats} > {random.choice(['0', 'k', 'x'])}] {op} 0.25")
            case "loop":
                row = random.choice(ROWS)
                lines.append(f"for i in range(1, N):\n        {floats}[i:] {op} {row}")
    return [
        *lines,
        f"return {value(random, 1, False, tuple(wide))}, {value(random, 2, False, tuple(wide), 1)}",
    ]


@settings(max_examples=examples(25))
@given(st.randoms(use_true_random=False), st.integers(4, 7), st.integers(0, 2**16))
def test_random_arrays_mean_what_numpy_means(random: Random, n: int, seed: int) -> None:
    text = "\n    ".join([HEAD, "assert N >= 4", *statements(random)])
    rng = np.random.default_rng(seed)
    arrays = {
        "N": n,
        "x": rng.integers(-4, 5, n) / 2.0,
        "y": (rng.integers(-4, 5, n) / 2.0).astype(np.float32),
        "k": rng.integers(-3, 4, n).astype(np.int32),
        "A": rng.integers(-4, 5, (n, n)) / 4.0,
        "B": (rng.integers(-4, 5, (n, n)) / 4.0).astype(np.float32),
    }
    nest = defined(text)
    linecache.clearcache()
    try:
        expected = result_of(nest, arrays)
    except np._core._exceptions.UFuncTypeError:
        event("NumPy refuses the type")
        return
    found = pf.interpret(nest, {t.name: arrays[t.name] for t in nest.inputs}, {"N": n})
    for name, array in expected.items():
        scale = max(1.0, float(np.abs(array).max(initial=0.0)))
        worst = float(np.abs(np.asarray(found[name], np.float64) - array).max(initial=0.0))
        assert worst <= 1e-4 * scale, f"{name} differs by {worst}:\n{text}"
        assert np.asarray(array).dtype == nest.tensor(name).dtype, f"{name}: {array.dtype}\n{text}"
