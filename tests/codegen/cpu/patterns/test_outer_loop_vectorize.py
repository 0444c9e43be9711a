"""Rows side by side whose steps wait for each other: what is printed, that values are right, what is left alone."""
# ruff: noqa: F821, UP037

from __future__ import annotations

import re
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse.codegen.generate import program
from polyfuse.errors import PolyfuseError
from tests.frontend.python.running import by_python, called, defined
from tests.support.emitted import in_one_line
from tests.support.examples import examples
from tests.support.plain import plain_names

TYPES = {"f32": ("float32", 16), "i32": ("int32", 16), "f64": ("float64", 8), "i64": ("int64", 8)}
MARGIN = 4


@pf.nest
def distances(a: "f32[40]", b: "f32[50]", t: "f32[41, 51]"):
    for i in range(40):
        for j in range(50):
            t[i + 1, j + 1] = min(
                min(t[i, j + 1], t[i + 1, j]) + 1.0, t[i, j] + (0.0 if a[i] == b[j] else 1.0)
            )


@pf.nest
def filtered(x: "f64[32, 40]", y: "f64[32, 40]", a: "f64"):
    for i in range(32):
        for j in range(2, 40):
            y[i, j] = a * x[i, j] + 0.5 * y[i, j - 1] - 0.25 * y[i, j - 2]


def abreast(nest: pf.Nest, rows: int, first: int = 0) -> pf.Schedule:
    """Rows on vector lanes inside steps, each as few steps behind the one before it as is legal, from `first` on."""
    name = nest.statements[0].name
    for skew in range(first, 5):
        try:
            s = pf.Schedule(nest)
            s = s.skew(name, "j", by="i", factor=skew) if skew else s
            return s.split(name, "i", rows).reorder(name, "i", "j", "i_in").vectorize(name, "i_in")
        except PolyfuseError:
            continue
    raise AssertionError("no such schedule is legal")


def test_steps_of_rows_are_squares_and_what_is_left_of_them() -> None:
    source = pf.compile(filtered, target="cpu", schedule=abreast(filtered, 16)).source
    lines = in_one_line(source).splitlines()
    at = next(number for number, line in enumerate(lines) if "rows_abreast(" in line and "import" not in line)
    assert [line.strip() for line in lines[at - 2 : at + 2]] == [
        "j_first = 2",
        "j_done = j_first + max(0, 40 - j_first) // 8 * 8",
        "rows_abreast(S_row, float64, rows=16, steps=j_done - j_first, "
        "places=(address(y, (16 * i, j_first)), address(x, (16 * i, j_first)), "
        "address(y, (16 * i, j_first - 1)), address(y, (16 * i, j_first - 2))), "
        "apart=(beside(0, y, (1, 0)), beside(0, x, (1, 0)), beside(0, y, (1, 0)), beside(0, y, (1, 0))), "
        "numbers=(a[0],))",
        "for j in range(j_done, 40):",
    ]


def test_diagonals_begin_where_all_rows_take_part() -> None:
    net = pf.compile(distances, target="cpu", schedule=abreast(distances, 16))
    lines = [line.strip() for line in in_one_line(net.source).splitlines()]
    at = next(number for number, line in enumerate(lines) if line.startswith("rows_abreast("))
    (row,) = (line for line in lines if line.startswith("def S_row("))
    carried = (
        f't_{n}: RowElement(float32, "carried", of=0, {before})'
        for n, before in ((2, "steps=1, rows=1"), (3, "steps=1, rows=0"), (4, "steps=2, rows=1"))
    )
    assert f'{", ".join(carried)}, a: RowElement(float32, "still"), b: RowElement(float32, "read")' in row
    assert lines[at - 4].startswith("j_first = max(")
    assert lines[at - 2 : at] == ["for j_part in range(2):", "if j_part == 1:"]
    assert lines[at + 1] == (
        "for j in range(j_done if j_part == 1 else 16 * i, "
        "min(89, 16 * i + 65) if j_part == 1 else min(j_first, min(89, 16 * i + 65))):"
    )
    a, b, t = (
        np.random.default_rng(0).integers(0, 3, shape).astype(np.float32) for shape in (40, 50, (41, 51))
    )
    expected = by_python(distances, {"a": a, "b": b, "t": t})
    np.testing.assert_array_equal(called(net, {"a": a, "b": b, "t": t})["t"], expected["t"])


@pf.nest
def sweeps(u: "f64[48, 32]", v: "f64[48, 32]", p: "f64[32, 48]"):
    """Down the columns of u, rows of p; and back up into columns of v."""
    for i in range(32):
        for j in range(1, 48):
            p[i, j] = 0.5 * u[j, i] - 0.25 * p[i, j - 1]
    for i in range(32):
        for j in range(46, -1, -1):
            v[j, i] = p[i, j] * v[j + 1, i]


def test_rows_that_are_columns_of_another_array_are_loaded_and_stored_as_lines() -> None:
    net = pf.compile(sweeps, target="cpu")
    first, second = re.findall(r"^def \w+_row(?:_2)?\((.*)\):$", net.source, re.MULTILINE)
    assert first == (
        'p: RowElement(float64, "target"), u: RowElement(float64, "read", by=0), '
        'p_2: RowElement(float64, "carried", of=0, steps=1, rows=0)'
    )
    assert second == (
        'v: RowElement(float64, "target", by=0), p: RowElement(float64, "read", by=-1), '
        'v_2: RowElement(float64, "carried", of=0, steps=1, rows=0, by=0)'
    )
    draw = np.random.default_rng(7)
    arrays = {name: draw.random(shape) for name, shape in (("u", (48, 32)), ("v", (48, 32)), ("p", (32, 48)))}
    expected = by_python(sweeps, arrays)
    for name, found in called(net, arrays).items():
        np.testing.assert_allclose(found, expected[name], rtol=1e-14)


def body(random: Random, reads: list[str], wide: bool) -> str:
    """An expression of elements in which each operation on small whole numbers is exact."""
    if len(reads) == 1:
        return reads[0]
    at = random.randint(1, len(reads) - 1)
    left, right = body(random, reads[:at], wide), body(random, reads[at:], wide)
    number = "2.0" if wide else "2"
    kinds = ["{0} + {1}", "{0} - ({1})", "max({0}, {1})", "min({0}, {1})", "{0} - {2} * ({1})"]
    kinds += ["({0} if {1} > {2} else {1})"]
    return random.choice(kinds).format(left, right, number)


def recurrence(random: Random, types: tuple[str, ...] = tuple(TYPES)) -> tuple[str, int]:
    """The source of statements that read what earlier ones left, near their own elements; the type's lanes.

    Of turned arrays rows are columns: y[j, i].
    """
    dtype = random.choice(types)
    rows, columns = random.choice([5, 16, 31, 32, 48]), random.choice([3, 16, 17, 40, 67])
    shape, across = (
        f"{dtype}[{m + 2 * MARGIN}, {n + 2 * MARGIN}]" for m, n in ((rows, columns), (columns, rows))
    )
    turned = {name for name in "yz" if random.random() < 0.2}

    def at(name: str, row: int, column: int) -> str:
        if name in turned:
            return f"{name}[j + {column}, i + {row if random.random() < 0.3 else 0}]"
        return f"{name}[i + {row}, j + {column}]"

    wide = dtype.startswith("f")
    others = ["x[i + 1, j + 2]", "x[i, j]", "a[i]", "b[j]", "b[j - i + 60]", "c[0]", "x[i - 2, j + 1]"]
    others += ["w[j, i]", "w[j + 1, i - 2]"]
    lines = []
    for name in random.choice(["y", "y", "yz"]):
        near = [
            at(random.choice("yz" if lines else name), random.randint(-2, 2), random.randint(-3, 2))
            for _ in range(random.randint(1, 3))
        ]
        reads = [*near, *random.sample(others, random.randint(0, 3))]
        random.shuffle(reads)
        value = f"min(max({body(random, reads, wide)}, {'-9.0' if wide else '-9'}), {'9.0' if wide else '9'})"
        target = f"{name}[j, i]" if name in turned else f"{name}[i, j]"
        lines.append(f"            {target} = {value}")
    y, z = (across if name in turned else shape for name in "yz")
    arguments = f'x: "{shape}", y: "{y}", z: "{z}", w: "{across}", a: "{dtype}[90]", b: "{dtype}[160]", c: "{dtype}[1]"'
    head = (
        f"for i in range({MARGIN}, {rows + MARGIN}):\n        for j in range({MARGIN}, {columns + MARGIN}):"
    )
    text = "\n".join([f"@pf.nest\ndef steps({arguments}):", f"    {head}", *lines])
    return text.replace("+ -", "- "), TYPES[dtype][1]


@settings(
    max_examples=examples(20),
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a smaller seed is no smaller program
)
@given(st.integers(0, 2**32 - 1))
def test_random_recurrences_are_what_python_says(seed: int) -> None:
    random = Random(seed)
    text, lanes = recurrence(random)
    nest = defined(text)
    try:
        s = abreast(nest, random.choice([lanes, lanes, lanes, 2 * lanes, 12]), random.choice([0, 1]))
    except AssertionError:
        event("refused")
        return
    net = pf.compile(nest, target="cpu", schedule=s)
    event(f"abreast: {'rows_abreast(' in net.source}")
    draw = np.random.default_rng(seed)
    arrays = {
        t.name: draw.integers(-9, 10, t.shape).astype(t.dtype)
        for t in nest.tensors
        if t.role in ("input", "inout")
    }
    expected = by_python(nest, arrays)
    for name, found in called(net, arrays).items():
        np.testing.assert_array_equal(found, expected[name], err_msg=text)


@pytest.mark.parametrize("seed", [10, 13, 15, 16, 17, 20, 6, 32, 38, 46])
def test_squares_read_and_store_nothing_outside_of_arrays(seed: int) -> None:
    """The source as plain Python, where a square is all loads, then all steps, then all stores."""
    random = Random(seed)
    text, lanes = recurrence(random, ("f64",))
    nest = defined(text)
    printed = program(nest, abreast(nest, lanes, seed % 2).tree, "cpu")
    draw = np.random.default_rng(seed)
    arrays = {t.name: draw.integers(-9, 10, t.shape).astype(t.dtype) for t in nest.tensors}
    expected = by_python(
        nest, {name: arrays[name] for name in nest.python.__code__.co_varnames if name in arrays}
    )
    space = plain_names(0)
    exec(printed.codes[0].source, space)
    assert "rows_abreast(" in printed.codes[0].source
    space[printed.codes[0].name](*(arrays[name] for name in printed.launches[0].tensors))
    for name, array in expected.items():
        np.testing.assert_array_equal(arrays[name], array, err_msg=text)


LEFT_ALONE = {
    "no step waits": "y[i, j] = x[i, j] + 1.0",
    "farther back than a vector": "y[i, j] = x[i, j] + y[i, j - 20]",
    "a function": "y[i, j] = exp(x[i, j] + y[i, j - 1])",
    "steps across memory": "y[j, i] = x[j, i] + y[j - 1, i]",
    "indices": "y[i, j] = y[i, j - 1] + i",
}


@pytest.mark.parametrize("what", LEFT_ALONE)
def test_other_loops_are_left_alone(what: str) -> None:
    text = (
        "from math import exp\n@pf.nest\ndef steps(x: 'f64[64, 64]', y: 'f64[64, 64]'):\n"
        f"    for i in range(16):\n        for j in range(20, 60):\n            {LEFT_ALONE[what]}\n"
    )
    nest = defined(text)
    assert "rows_abreast(" not in pf.compile(nest, target="cpu", schedule=abreast(nest, 16)).source
