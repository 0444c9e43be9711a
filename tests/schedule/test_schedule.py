"""Schedules as values: traces that make them again, dumps in four forms, pickles."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import islpy as isl
import numpy as np
import pytest

import polyfuse as pf
from polyfuse.errors import InvalidSchedule
from polyfuse.ir.tree import dates, to_isl
from polyfuse.schedule import Schedule
from tests.support.programs import on_cpu, on_cuda, pair, sweep

# ruff: noqa: F821

Golden = Callable[[str, str], None]

SCHEDULES: dict[str, Callable[[], Schedule]] = {
    "pair": lambda: Schedule(pair()).fuse("S", "R", at="j").promote("t", "S", at="j", memory="register"),
    "symbolic": lambda: Schedule(pair("N")).fuse("S", "R", at="i", shift={"i": 1}),
    "sweep": lambda: Schedule(sweep()).skew("S", "i", by="t").tile("S", t=2, i=2),
    "cpu": on_cpu,
    "cuda": on_cuda,
}
EACH = pytest.mark.parametrize("make", SCHEDULES.values(), ids=SCHEDULES)


@EACH
def test_the_trace_makes_the_same_schedule(make: Callable[[], Schedule]) -> None:
    s = make()
    space = {"pf": pf, "nest": s.source}
    exec(s.trace(), space)
    again = space["s"]
    assert isinstance(again, Schedule)
    assert again.tree == s.tree
    assert again.nest == s.nest
    assert again.steps == s.steps
    assert s.dump("python") == s.trace()


@EACH
def test_isl_reads_the_yaml_back(make: Callable[[], Schedule]) -> None:
    s = make()
    read = isl.Schedule(s.dump("yaml"))
    assert read.get_domain().is_equal(to_isl(s.tree, s.nest.domains).get_domain())
    mine, theirs = dates(s.tree, s.nest.domains), read.get_map().intersect_domain(read.get_domain())
    assert mine.lex_lt_union_map(mine).is_equal(theirs.lex_lt_union_map(theirs)), "another order"


@EACH
def test_a_pickle_is_the_same_schedule(make: Callable[[], Schedule]) -> None:
    s = make()
    again = pickle.loads(pickle.dumps(s))
    assert again.tree == s.tree
    assert again.dump("tree") == s.dump("tree")
    assert again.trace() == s.trace()
    assert again.why_not("reverse", s.nest.statements[-1].name, "i") == s.why_not(
        "reverse", s.nest.statements[-1].name, "i"
    )


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_dumps(golden: Golden, name: str) -> None:
    s = SCHEDULES[name]()
    assert str(s) == s.dump()
    for form in ("tree", "yaml", "c", "python"):
        golden(f"schedule/dump_{name}_{form}.txt", s.dump(form))  # type: ignore[arg-type]


def test_there_are_four_forms() -> None:
    with pytest.raises(InvalidSchedule, match="unknown form 'xml'; expected one of tree, yaml, c, python"):
        Schedule(pair()).dump("xml")  # type: ignore[arg-type]


@pf.nest
def scaled(a: f64[N, M], b: f64[N, M]):
    l = np.empty(N)  # noqa: E741
    for i in range(N):
        l[i] = 0.0
        for j in range(M):
            l[i] += a[i, j]
    for i in range(N):
        for j in range(M):
            b[i, j] = a[i, j] * l[i]


def test_fusing_at_a_loop_that_holds_only_some_of_the_statements() -> None:
    """S0 is around the shared loop i, not around j: its pairs with S2 say nothing of j."""
    fused = Schedule(scaled).fuse("S1", "S2", at="j")
    assert [loop.name for loop in fused.loops("S2")][:2] == ["i", "j"]
    a = np.random.default_rng(0).random((3, 4))
    b = np.zeros_like(a)
    pf.compile(scaled, schedule=fused)(a, b)
    np.testing.assert_allclose(b, a * a.sum(1, keepdims=True))
