"""Random updates at places in data, np.add.at and rows of sparse matrices mean what NumPy and Python mean."""

from __future__ import annotations

import linecache
from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse.analysis.barriers import place_barriers
from polyfuse.strategy import plan_for
from tests.frontend.python.running import by_python, defined
from tests.support.examples import examples
from tests.support.execution import memory, run_lockstep, run_plain
from tests.support.models import CPU, CUDA

HEAD = (
    "@pf.nest\n"
    'def f(h: "i64[M]", d: "i64[M, J]", q: "f32[M, M]", y: "i64[N]", a: "i64[N]", b: "u8[N]", p: "i64[N + 1]", '
    'c: "i32[L]", v: "i64[L]", w: "i64[N]", g: "i64[N, J]", x: "i64[M]"):'
)
MACHINES = (CPU, replace(CPU, units=64, region_seconds=0.0, launch_seconds=1e-12), CUDA)
VALUES = (
    "w[i]",
    "w[i] * 2 - 1",
    "x[a[i]]",
    "w[i] * x[b[i]]",
    "i + 1",
    "-w[i - 1] if i > 0 else 3",
    "g[i, 0] + h[a[i]]",
    "d[b[i], 1] - 1",
    "1",
)
TARGETS = ("h[a[i]]", "h[b[i]]", "q[a[i], b[i]]", "q[b[i], a[i]]", "d[a[i], 1]")
COPIES = (
    "np.add.at(h, a, w)",
    "np.subtract.at(d, b, g)",
    "np.maximum.at(h, b, w * 2)",
    "np.add.at(q, (b, a), 1)",
)


@st.composite
def update(draw: st.DrawFn) -> list[str]:
    """One element that data name, and what is done to it, in a loop over i."""
    target, value = draw(st.sampled_from(TARGETS)), draw(st.sampled_from(VALUES))
    kind = draw(st.sampled_from(["sum", "sum", "product", "maximum", "store", "row"]))
    if kind == "row":
        at = draw(st.sampled_from("ab"))
        return [
            "for j in range(J):",
            f"    d[{at}[i], j] {draw(st.sampled_from(['+=', '=']))} g[i, j] + {value}",
        ]
    match kind:
        case "sum":
            line = f"{target} {draw(st.sampled_from(['+=', '-=']))} {value}"
        case "product":
            line = f"{target} *= {draw(st.sampled_from(['-1', '2']))}"
        case "maximum":
            line = f"{target} = {draw(st.sampled_from(['max', 'min']))}({target}, {value})"
        case _:
            line = f"{target} = {value}"
    test = draw(st.sampled_from(["", "", "if w[i] > 0:", "if i % 2 == 0:", "if x[a[i]] < w[i]:"]))
    return [test, f"    {line}"] if test else [line]


@st.composite
def rows(draw: st.DrawFn) -> list[str]:
    """A loop over the elements of row i."""
    inner = draw(
        st.sampled_from(["y[i] += v[k] * x[c[k]]", "h[c[k]] += v[k] * w[i]", "y[i] = max(y[i], v[k])"])
    )
    return ["for k in range(p[i], p[i + 1]):", f"    {inner}"]


@st.composite
def programs(draw: st.DrawFn) -> list[str]:
    """Loops with updates, calls of np.add.at and its like, and what reads the results."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        match draw(st.sampled_from(["loop", "loop", "rows", "call", "whole"])):
            case "call":
                lines.append(draw(st.sampled_from(COPIES)))
            case "whole":
                lines.append(draw(st.sampled_from(["h[1:] += h[:-1]", "h[:] = h - x", "d *= 2", "y[:] = w"])))
            case kind:
                step = draw(st.sampled_from(["range(N)", "range(N - 1, -1, -1)", "range(1, N, 2)"]))
                body = draw(rows() if kind == "rows" else update())
                more = draw(update()) if kind == "loop" and draw(st.booleans()) else []
                lines += [f"for i in {step}:", *(f"    {line}" for line in [*body, *more])]
    return lines


@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.too_slow])
@given(programs(), st.sampled_from(MACHINES), st.integers(2, 6), st.integers(0, 999))
def test_random_updates_at_places(lines: list[str], machine: pf.Machine, n: int, seed: int) -> None:
    text = "\n    ".join([HEAD, *lines])
    try:
        nest = defined(text)
    except pf.NotAffine as error:
        if "depends on data" not in error.why:
            raise
        event("not affine: an element at a place of an array that is written, in a branch on data")
        return
    finally:
        linecache.clearcache()
    rng = np.random.default_rng(seed)
    m, j, length = (int(size) for size in rng.integers(1, 5, 3))
    m += 1
    ends = np.sort(rng.integers(0, length + 1, n + 1))
    arrays = {
        "h": rng.integers(-3, 4, m),
        "d": rng.integers(-3, 4, (m, j + 1)),
        "q": rng.integers(-3, 4, (m, m)).astype(np.float32),
        "y": rng.integers(-3, 4, n),
        "a": rng.integers(0, m, n),
        "b": rng.integers(0, m, n).astype(np.uint8),
        "p": ends,
        "c": rng.integers(0, m, length).astype(np.int32),
        "v": rng.integers(-3, 4, length),
        "w": rng.integers(-3, 4, n),
        "g": rng.integers(-3, 4, (n, j + 1)),
        "x": rng.integers(-3, 4, m),
    }
    expected = by_python(nest, arrays)
    sizes = {
        name: size for name, size in {"N": n, "M": m, "J": j + 1, "L": length}.items() if name in nest.params
    }
    inputs = {t.name: arrays[t.name] for t in nest.inputs}
    oracle = pf.interpret(nest, inputs, sizes)
    schedule = plan_for(nest, machine).schedule
    tree = schedule.tree if machine.kind == "cpu" else place_barriers(schedule.nest, schedule.tree)
    found = memory(nest, schedule.nest, tree, inputs, sizes)
    if machine.kind == "cpu":
        run_plain(schedule.nest, tree, found, sizes, seed)
    else:
        run_lockstep(schedule.nest, tree, found, sizes)
    for name, array in expected.items():
        for what, given_ in (("the oracle", oracle), (machine.name, found)):
            np.testing.assert_array_equal(given_[name], array, f"{name} of {what}:\n{text}")
