"""Large cheap temporaries of several readers: computed at each use where that moves less, and stored elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.machine import Machine
from polyfuse.strategy.candidates import Choose, Wish
from polyfuse.strategy.cost.counts import NOMINAL_SIZE
from polyfuse.strategy.fusion.alignments import Searches
from polyfuse.strategy.fusion.price_nest import Priced, priced, priced_again
from polyfuse.strategy.match.stencil import pipelines
from polyfuse.strategy.pipeline import plan_for
from polyfuse.strategy.remarks import Reason
from polyfuse.strategy.rewrites import rematerialize
from polyfuse.strategy.rewrites.rematerialize import computed_where_read
from tests.frontend.python.running import defined

ZEN5 = Machine.preset("zen5")
ZEN4 = Machine.preset("zen4")

CHEAP = "a[i, j] + u[i] * v[j]"

LARGE = 2000
"""Rows and columns of a matrix that L3 holds once and not twice; L2 holds 512 x 512 float32 numbers."""


def both_ways(value: str, is_output: bool = False, uses: tuple[str, str] = ("t[j, i]", "t[i, j]")) -> pf.Nest:
    """x = tᵀ y and w = t x for t[i, j] = value: rows and columns of t, which no loop runs through together."""
    result = ', t: "f32[N, N]"' if is_output else ""
    made = [] if is_output else ["    t = np.empty((N, N), np.float32)"]
    lines = [
        "@pf.nest",
        f'def both(a: "f32[N, N]", u: "f32[N]", v: "f32[N]", y: "f32[N]"{result}):',
        *made,
        "    x = np.zeros(N, np.float32)",
        "    w = np.zeros(N, np.float32)",
        "    for i in range(N):",
        "        for j in range(N):",
        f"            t[i, j] = {value}",
        "    for i in range(N):",
        "        for j in range(N):",
        f"            x[i] += {uses[0]} * y[j]",
        "    for i in range(N):",
        "        for j in range(N):",
        f"            w[i] += {uses[1]} * x[j]",
        "    return x, w",
    ]
    return defined("\n".join(lines))


def is_stored(nest: pf.Nest) -> bool:
    return "t" in {tensor.name for tensor in nest.tensors}


@pytest.mark.parametrize("units", [1, 2])
@pytest.mark.parametrize("machine", [ZEN5, ZEN4])
def test_a_sum_that_l2_does_not_hold_is_computed_at_each_use(machine: Machine, units: int) -> None:
    plan = plan_for(both_ways(CHEAP).with_sizes({"N": LARGE}), replace(machine, units=units))
    assert not is_stored(plan.schedule.nest)
    (said,) = (note for note in plan.notes if "is computed where it is read" in note)
    assert said.startswith("t, written by S")
    assert "expected so" in said
    assert "with it stored" in said


@pytest.mark.parametrize(
    ("value", "n", "why"),
    [
        (CHEAP, 500, "L2 holds it"),
        ("np.exp(a[i, j])", LARGE, "a function is dearer than memory"),
        ("a[i, j] / u[i]", LARGE, "so is a division"),
    ],
)
def test_what_is_stored(value: str, n: int, why: str) -> None:
    nest = both_ways(value).with_sizes({"N": n})
    assert computed_where_read(nest, ZEN5) == (nest, ()), why


def test_what_the_caller_sees_is_stored() -> None:
    nest = both_ways(CHEAP, is_output=True).with_sizes({"N": LARGE})
    assert nest.tensor("t").role != "temporary"
    assert computed_where_read(nest, ZEN5) == (nest, ())


def test_sizes_must_be_known() -> None:
    l1, l2, *further = ZEN5.levels
    small = replace(ZEN5, levels=(l1, replace(l2, size=NOMINAL_SIZE), *further))
    nest = both_ways(CHEAP)
    assert computed_where_read(nest, small) == (nest, ())
    assert computed_where_read(nest.with_sizes({"N": NOMINAL_SIZE}), small) != (nest, ())


def test_a_reader_of_several_elements_reads_what_is_stored() -> None:
    nest = both_ways(CHEAP, uses=("(t[j, i] - t[i, j])", "t[i, j]")).with_sizes({"N": LARGE})
    assert computed_where_read(nest, ZEN5) == (nest, ())


def test_where_memory_is_fast_a_temporary_is_stored_unless_that_is_forced() -> None:
    l1, *far = ZEN5.levels
    fast = replace(ZEN5, levels=(l1, *(replace(level, bandwidth=4 * level.bandwidth) for level in far)))
    nest = both_ways(CHEAP).with_sizes({"N": LARGE})
    kept, (said,) = computed_where_read(nest, fast)
    assert kept is nest
    assert said.text.startswith("t is stored, not computed where it is read: ")
    assert said.reason is Reason.DEARER
    writer = next(s.name for s in nest.statements if s.write.tensor == "t")
    for wish in (Wish("rematerialize", frozenset(), True), Wish("rematerialize", frozenset({writer}), True)):
        forced, (remark,) = computed_where_read(nest, fast, Choose(wishes=[wish]))
        assert not is_stored(forced)
        assert (remark.taken, remark.reason, remark.seconds) == (True, Reason.CHOSEN, said.seconds)
    others = Wish("rematerialize", frozenset({"nothing"}), True)
    assert computed_where_read(nest, fast, Choose(wishes=[others]))[0] is nest


def test_what_grew_too_dear_by_another_one_is_stored() -> None:
    nest = defined(
        """
@pf.nest
def chain(a: "f32[N, N]", u: "f32[N]", v: "f32[N]", y: "f32[N]"):
    t = np.empty((N, N), np.float32)
    s = np.empty((N, N), np.float32)
    x = np.zeros(N, np.float32)
    w = np.zeros(N, np.float32)
    z = np.zeros(N, np.float32)
    for i in range(N):
        for j in range(N):
            t[i, j] = a[i, j] + u[i] * v[j] + 2 * u[j] * v[i]
    for i in range(N):
        for j in range(N):
            s[i, j] = 3 * t[i, j] + u[i] * y[j] + v[i] * y[j]
    for i in range(N):
        for j in range(N):
            x[i] += s[j, i] * y[j]
    for i in range(N):
        for j in range(N):
            w[i] += s[i, j] * x[j]
    for i in range(N):
        for j in range(N):
            z[i] += t[j, i] * w[j]
    return x, w, z
"""
    ).with_sizes({"N": LARGE})
    done, (said,) = computed_where_read(nest, ZEN5)
    assert said.text.startswith("t, written by S")
    assert [tensor.name for tensor in done.with_role("temporary")] == ["s"]


FAR = """
@pf.nest
def both(a: "f32[N, N]", u: "f32[N]", v: "f32[N]", y: "f32[N]", q: "f32[N, N]", f: "f32[N]"):
    t = np.empty((N, N), np.float32)
    x = np.zeros(N, np.float32)
    w = np.zeros(N, np.float32)
    p = np.empty((N, N), np.float32)
    r = np.empty((N, N), np.float32)
    for i in range(N):
        for j in range(N):
            t[i, j] = a[i, j] + u[i] * v[j]
    for i in range(N):
        for j in range(N):
            x[i] += t[j, i] * y[j]
    for i in range(N):
        for j in range(N):
            w[i] += t[i, j] * x[j]
    for i in range(N):
        for j in range(N):
            p[i, j] = q[i, j] + f[j]
    for i in range(N):
        for j in range(N):
            r[i, j] = p[j, i] * f[i]
    return x, w, r
"""


def test_kernels_far_from_a_temporary_are_not_searched_again() -> None:
    nest = defined(FAR).with_sizes({"N": LARGE})
    searches = Searches()
    usual = priced(nest, ZEN5, searches)
    (writer,) = (s.name for s in nest.statements if s.write.tensor == "t")
    inlined = pf.rewrite.inline(nest, writer).nest
    near = frozenset(s.name for s in nest.statements if s.write.tensor in "txw")
    found = priced_again(usual, inlined, ZEN5, searches, near)
    whole = priced(inlined, ZEN5, Searches())
    assert found.kernels.keys() == whole.kernels.keys()
    assert found.seconds == pytest.approx(whole.seconds)
    tried = {name for key in searches.alignments(inlined).found for name in key if isinstance(name, str)}
    assert near & tried
    assert tried.isdisjoint(s.name for s in nest.statements if s.name not in near)
    assert {s for call in searched(nest) for s in call} == near - {writer}


def searched(nest: pf.Nest) -> list[frozenset[str]]:
    """The statements that are searched again for each candidate of the pass."""
    asked: list[frozenset[str]] = []
    with pytest.MonkeyPatch.context() as patch:

        def counted(*given: Any) -> Priced:
            found = priced_again(*given)
            asked.append(given[-1].intersection(s.name for s in given[1].statements))
            return found

        patch.setattr(rematerialize, "priced_again", counted)
        computed_where_read(nest, ZEN5)
    return asked


def test_readers_that_would_come_together_read_what_is_stored() -> None:
    nest = defined(
        """
@pf.nest
def standard(x: "f32[N, N]", out: "f32[N, N]"):
    mean = np.zeros(N, np.float32)
    square = np.zeros(N, np.float32)
    t = np.empty((N, N), np.float32)
    for j in range(N):
        for i in range(N):
            mean[j] += x[i, j]
    for i in range(N):
        for j in range(N):
            t[i, j] = x[i, j] - mean[j]
    for j in range(N):
        for i in range(N):
            square[j] += t[i, j] * t[i, j]
    for i in range(N):
        for j in range(N):
            out[i, j] = t[i, j] * square[j]
"""
    ).with_sizes({"N": LARGE})
    kept, (said,) = computed_where_read(nest, ZEN5)
    assert kept is nest
    assert said.text == "t is stored: without it its readers would run in other kernels."
    assert said.reason is Reason.OTHERS_CHANGE


def test_one_kernel_that_reads_it_needs_it_once() -> None:
    nest = defined(
        """
@pf.nest
def rows(a: "f32[N, N]", u: "f32[N]"):
    t = np.empty((N, N), np.float32)
    low = np.zeros(N, np.float32)
    high = np.zeros(N, np.float32)
    for i in range(N):
        for j in range(N):
            t[i, j] = a[i, j] - u[i]
            low[i] += t[i, j]
            high[i] += t[i, j] * t[i, j]
    return low, high
"""
    ).with_sizes({"N": LARGE})
    assert computed_where_read(nest, ZEN5) == (nest, ())


def test_stages_of_a_pipeline_are_left_to_its_tiles() -> None:
    nest = defined(
        """
@pf.nest
def stages(a: "f32[N, N]", u: "f32[N]", y: "f32[N, N - 1]", z: "f32[N, N]"):
    t = np.empty((N, N), np.float32)
    s = np.empty((N, N), np.float32)
    for i in range(N):
        for j in range(N):
            t[i, j] = a[i, j] - u[i]
    for i in range(N):
        for j in range(N):
            s[i, j] = 2 * t[i, j]
    for i in range(N):
        for j in range(N - 1):
            y[i, j] = s[i, j] + s[i, j + 1]
    for i in range(N):
        for j in range(N):
            z[i, j] = t[j, i]
"""
    ).with_sizes({"N": LARGE})
    (found,) = pipelines(nest)
    assert nest.statements[0].name in found.producers
    assert computed_where_read(nest, ZEN5) == (nest, ())


def test_results_are_exactly_the_oracle_s_on_integers() -> None:
    n = 600
    nest, rng = both_ways(CHEAP), np.random.default_rng(0)
    shapes = {t.name: (n, n) if t.rank == 2 else (n,) for t in nest.inputs}
    arrays = {name: rng.integers(-2, 3, shape).astype(np.float32) for name, shape in shapes.items()}
    net = pf.compile(nest, target="cpu", machine="zen5", sizes={"N": n})
    assert "t, written by" in net.explain()
    expected = pf.interpret(nest, arrays)
    for found, name in zip(net(**arrays), ("x", "w"), strict=True):
        assert np.abs(expected[name]).max() < 2**24
        assert np.array_equal(found, expected[name])
