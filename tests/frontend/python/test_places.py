"""Stores to elements that data name, and loops that data bound: as Python runs them, on each target."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from tests.frontend.python.running import assert_close, by_python, called, defined

# The functions are read by polyfuse: their annotations name sizes.
# ruff: noqa: F821


def histogram(idx: i32[N], w: f64[N], h: f64[B]):  # type: ignore[name-defined]
    for i in range(len(idx)):
        b = idx[i]
        h[b] += w[i]


def of_pairs(a: i64[N], b: u8[N], h: i64[B, C]):  # type: ignore[name-defined]
    for i in range(len(a)):
        h[a[i], b[i]] -= 2


def rows_added(idx: i64[N], g: f32[N, J], d: f32[B, J]):  # type: ignore[name-defined]
    for i in range(len(idx)):
        for j in range(g.shape[1]):
            d[idx[i], j] += g[i, j]


def stored(idx: i64[N], w: f64[N], h: f64[B]):  # type: ignore[name-defined]
    for i in range(len(idx)):
        h[idx[i]] = w[i] + h[0]


def largest(idx: i64[N], w: f64[N], h: f64[B]):  # type: ignore[name-defined]
    for i in range(len(idx)):
        h[idx[i]] = max(h[idx[i]], w[i])


def of_some(idx: i64[N], w: f64[N], h: f64[B]):  # type: ignore[name-defined]
    for i in range(1, len(idx)):
        if w[i] > 0.5:
            h[idx[i - 1]] *= w[i]


def sparse_product(p: i64[M + 1], cols: i64[Z], a: f64[Z], x: f64[B], y: f64[M]):  # type: ignore[name-defined]
    for i in range(len(y)):
        s = 0.0
        for k in range(p[i], p[i + 1]):
            s += a[k] * x[cols[k]]
        y[i] = s


def transposed_product(p: i64[M + 1], cols: i64[Z], a: f64[Z], x: f64[M], h: f64[B]):  # type: ignore[name-defined]
    for i in range(len(x)):
        for k in range(p[i], p[i + 1]):
            v = a[k] * x[i]
            h[cols[k]] += v


def ragged(length: i64[M], A: f64[M, J], y: f64[M]):  # type: ignore[name-defined]
    for i in range(len(y)):
        for j in range(length[i]):
            y[i] += A[i, j]


EVERY = (
    histogram,
    of_pairs,
    rows_added,
    stored,
    largest,
    of_some,
    sparse_product,
    transposed_product,
    ragged,
)


def arrays(nest: pf.Nest) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    sizes = {"N": 23, "B": 7, "C": 5, "J": 4, "M": 6, "Z": 17}
    found: dict[str, Any] = {}
    for tensor in nest.inputs:
        shape = [eval(str(size), {}, sizes) for size in tensor.shape]
        below = min((eval(str(size), {}, sizes) for size in tensor.below), default=sizes["B"])
        values = rng.random(shape) if tensor.dtype.startswith("f") else rng.integers(0, below, shape)
        found[tensor.name] = np.sort(values) if tensor.name == "p" else values
        found[tensor.name] = found[tensor.name].astype(tensor.dtype)
    return found


@pytest.mark.parametrize("function", EVERY)
@pytest.mark.parametrize("target", ["oracle", "cpu"])
def test_as_python_runs_it(function: Callable[..., None], target: str) -> None:
    nest = pf.nest(function)
    given = arrays(nest)
    found = pf.interpret(nest, given) if target == "oracle" else called(pf.compile(nest, target="cpu"), given)
    assert_close(found, by_python(nest, given), 1e-6)


@pytest.mark.parametrize("function", [histogram, rows_added, sparse_product, transposed_product])
def test_on_the_emulated_gpu(function: Callable[..., None]) -> None:
    nest = pf.nest(function)
    given = arrays(nest)
    run = pf.compile(nest, target="cuda", device="lockstep")
    assert_close(called(run, given), by_python(nest, given), 1e-5)


def test_only_the_iterations_that_do_something_run() -> None:
    """A histogram's loop over its elements is gone, and a sparse row's goes from one number in p to the next."""
    source = pf.compile(pf.nest(histogram), target="cpu").source
    assert re.findall(r"for (\w+) in range\((.*)\):", source) == [("i", "0, N")]
    assert "h[uint64(place)] += w[i]" in source
    source = pf.compile(pf.nest(transposed_product), target="cpu").source
    assert [head for _, head in re.findall(r"for (\w+) in range\((.*)\):", source)] == [
        "0, M",
        "max(0, end), min(Z, end_2)",
    ]


def test_the_remarks_say_what_it_costs() -> None:
    said = str(pf.compile(pf.nest(histogram), target="cpu").explain())
    assert "S0: data say which element h[place] is" in said
    said = str(pf.compile(pf.nest(sparse_product), target="cpu").explain())
    assert "S1: data say where k begins and ends" in said
    said = str(pf.compile(pf.nest(histogram), target="cuda", device="none").explain())
    assert "S0 has no atomics" in said


@pytest.mark.parametrize("place", [-1, 7])
def test_a_place_that_is_none_is_an_error_before_anything_is_written(place: int) -> None:
    nest = pf.nest(histogram)
    given = arrays(nest)
    given["idx"][20] = place
    before = given["h"].copy()
    run = pf.compile(nest, target="cpu")
    for call in (run, lambda **named: pf.interpret(nest, named)):
        with pytest.raises(pf.BadArgument, match=rf"idx\[20\] is {place}, expected 0 <= idx\[20\] < 7"):
            call(**given)
    assert (given["h"] == before).all()


@pytest.mark.parametrize("function", [histogram, sparse_product])
def test_with_sizes_and_by_a_schedule_by_hand(function: Callable[..., None]) -> None:
    """Loops over places in tiles, backwards and on cores: what is left of each does the same updates."""
    nest = pf.nest(function)
    given = arrays(nest)
    expected = by_python(nest, given)
    sizes = {name: {"N": 23, "B": 7, "M": 6, "Z": 17}[name] for name in nest.params}
    assert_close(called(pf.compile(nest, target="cpu", sizes=sizes), given), expected)
    name, loop = ("S0", "place") if function is histogram else ("S1", "k")
    made = pf.Schedule(nest).split(name, loop, 4)
    schedules = [made, made.reverse(name, loop)]
    if function is histogram:
        schedules += [pf.Schedule(nest).interchange(name, "i", loop).bind(name, place="cores")]
    for schedule in schedules:
        assert_close(called(pf.compile(nest, target="cpu", schedule=schedule), given), expected)


def test_a_row_beyond_the_end_is_refused() -> None:
    nest = pf.nest(sparse_product)
    given = arrays(nest)
    given["p"][-1] = 18
    with pytest.raises(pf.BadArgument, match=r"p\[6\] is 18, expected 0 <= p\[6\] < 18"):
        pf.compile(nest, target="cpu")(**given)


def test_places_in_memory_that_is_written_are_refused() -> None:
    nest = pf.nest(of_pairs)
    given = arrays(nest) | {"b": np.zeros(49, np.uint8)}
    given["a"] = np.zeros(49, np.int64)
    given["h"] = given["a"].reshape(7, 7)
    with pytest.raises(pf.BadArgument, match="share memory"):
        pf.compile(nest, target="cpu")(**given)


HEAD = "@pf.nest\ndef f(x: 'f64[N]', k: 'i64[N]', W: 'f64[N, N]'):\n"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("for i in range(N):\n        k[i] = 0\n        x[k[i]] = 1.0", "k is written here"),
        ("t = np.zeros(N, int)\n    for i in range(N):\n        x[t[i]] = 1.0", "t is made here"),
        ("for i in range(N):\n        x[k[i] + 1] = 1.0", "k[i] depends on data"),
        (
            "for i in range(N):\n        for j in range(k[i]):\n            x[i] += 1.0",
            "range(k[i]) depends on data",
        ),
        (
            "for i in range(N):\n        for j in range(0, k[i], 2):\n            x[j] = 1.0",
            "k[i] depends on data",
        ),
    ],
)
def test_what_is_refused(body: str, why: str) -> None:
    with pytest.raises(pf.NotAffine) as found:
        defined(f"{HEAD}    {body}\n")
    assert why in found.value.why


def test_what_a_loop_leaves_behind_is_kept() -> None:
    """A variable that is read behind the loop has the value of the last iteration, not of the last in the row."""
    nest = defined(
        "@pf.nest\n"
        "def f(length: 'i64[M]', A: 'f64[M, J]', y: 'f64[M]', z: 'f64[M]'):\n"
        "    for i in range(M):\n"
        "        v = 1.0\n"
        "        for j in range(length[i]):\n"
        "            v = A[i, j]\n"
        "            y[i] += v\n"
        "        z[i] = v\n"
    )
    given = arrays(nest)
    given["length"][2] = 0
    assert_close(called(pf.compile(nest, target="cpu"), given), by_python(nest, given))


def test_gradients_add_up_rows_without_going_over_the_table() -> None:
    nest = defined(
        "@pf.nest\n"
        "def f(idx: 'i64[N]', w: 'f64[B, J]'):\n"
        "    y = np.zeros((N, J))\n"
        "    for i in range(N):\n"
        "        for j in range(J):\n"
        "            y[i, j] = w[idx[i], j] * w[idx[i], j]\n"
        "    return y\n"
    )
    given = arrays(nest)
    bar = np.random.default_rng(1).random((23, 4))
    run = pf.compile(pf.vjp(nest, wrt=["w"]), target="cpu")
    expected = np.zeros_like(given["w"])
    np.add.at(expected, given["idx"], 2 * given["w"][given["idx"]] * bar)
    np.testing.assert_allclose(run(given["idx"], given["w"], bar), expected)
    added = run.source[run.source.index("def rows_to_w") :]
    assert [head for _, head in re.findall(r"for (\w+) in range\((.*)\):", added)] == ["0, N", "0, J"]
