"""Random nests under random verbs: what is accepted computes the oracle's result, what is refused would not.

Counts go to the hypothesis statistics, and in the nightly profile to benchmarks/results/nightly.json.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from polyfuse.analysis.validation import validate
from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.errors.refusals import Violation
from polyfuse.interpret import interpret
from polyfuse.ir import Nest
from polyfuse.ir.tree import Tree, loops
from polyfuse.schedule import Schedule
from tests.support.execution import Arrays, memory, run_lockstep, run_numba, run_plain, without_gpu
from tests.support.nests import inputs_for, nests, some_sizes
from tests.support.refusals import depends, refused_tree, witness, wrong
from tests.support.verbs import Call, calls, placements

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "nightly.json"
NUMBA_EVERY = 25


@pytest.fixture(scope="module")
def tally() -> Iterator[Counter[str]]:
    """The counts of this run, written down when it is a nightly one."""
    counts: Counter[str] = Counter()
    yield counts
    counts["accepted verbs"] = sum(n for name, n in counts.items() if name.startswith("accepted: "))
    counts["refusals checked"] = sum(n for name, n in counts.items() if name.startswith("refused: "))
    print("\n" + json.dumps(dict(sorted(counts.items())), indent=1))
    if counts["cases"] >= 200:
        assert counts["accepted verbs"] > counts["cases"], "hardly a verb was accepted"
        assert min(counts[f"accepted: {verb}"] for verb in ("fuse", "bind", "promote", "tile")) > 0
        assert counts["schedules with barriers"] > 0
    if settings.get_current_profile_name() == "nightly":
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(json.dumps(dict(sorted(counts.items())), indent=1) + "\n", encoding="utf-8")


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data(), st.sampled_from(["cpu", "cuda"]), nests(), st.integers(0, 999))
def test_random_schedules(
    tally: Counter[str], data: st.DataObject, target: str, nest: Nest, seed: int
) -> None:
    sizes = data.draw(some_sizes(nest), label="sizes")
    schedule = scheduled(tally, data, nest, target)
    inputs = inputs_for(nest, np.random.default_rng(seed), sizes)
    oracle = interpret(nest, inputs, sizes)

    def check(tree: Tree, how: str) -> None:
        arrays = memory(nest, schedule.nest, tree, inputs, sizes)
        if how == "lockstep":
            run_lockstep(schedule.nest, tree, arrays, sizes)
        elif how == "numba":
            run_numba(schedule.nest, tree, arrays, sizes)
        else:
            run_plain(schedule.nest, tree, arrays, sizes, seed)
        same(oracle, arrays, how)
        tally[f"executed: {how}"] += 1

    tally["cases"] += 1
    if not schedule.steps:
        tally["cases without an accepted verb"] += 1
    if target == "cuda":
        schedule = synchronised(tally, schedule)
        validate(nest, schedule.nest, schedule.tree)
        check(schedule.tree, "lockstep")
    sequential = without_gpu(schedule.tree)
    validate(nest, schedule.nest, sequential)
    check(sequential, "plain")
    if tally["cases"] % NUMBA_EVERY == 0:
        check(sequential, "numba")


def scheduled(tally: Counter[str], data: st.DataObject, nest: Nest, target: str) -> Schedule:
    """A schedule made by one to six random verbs, and on a GPU by binds; what is refused is checked and left out."""
    schedule = Schedule(nest)
    count = data.draw(st.integers(1, 6), label="verbs")
    early = data.draw(st.integers(0, count), label="bind after") if target == "cuda" else None
    for position in range(count + 1):
        if position == early:
            for call in data.draw(placements(schedule)):
                schedule = tried(tally, schedule, call)
        if position < count:
            schedule = tried(tally, schedule, data.draw(calls(schedule, target)))
    return schedule


def tried(tally: Counter[str], schedule: Schedule, call: Call) -> Schedule:
    """The schedule after a verb; the schedule as it was if the verb is refused, and then the refusal is checked."""
    try:
        done = call.on(schedule)
    except InvalidSchedule:
        tally[f"invalid: {call.verb}"] += 1
    except IllegalSchedule as refused:
        check_refusal(schedule, call, refused.violation)
        tally[f"refused: {call.verb}, {refused.violation.kind}"] += 1
        event(f"refused {call.verb}")
    else:
        tally[f"accepted: {call.verb}"] += 1
        event(f"accepted {call.verb}")
        return done
    return schedule


def synchronised(tally: Counter[str], schedule: Schedule) -> Schedule:
    """The schedule with barriers; where none can help, the same without its GPU bindings."""
    try:
        done = schedule.synchronised()
    except IllegalSchedule as refused:
        check_refusal(schedule, Call("synchronised", (), {}), refused.violation)
        tally[f"refused: synchronised, {refused.violation.kind}"] += 1
        done = object.__new__(Schedule)
        done.__dict__.update(schedule.__dict__)
        done.tree = without_gpu(schedule.tree)
        return done
    bound = {loop.bind for loop in loops(done.tree) if loop.bind and loop.bind.on_gpu}
    tally["schedules with barriers"] += done is not schedule and done.tree != schedule.tree
    tally["schedules on a GPU's axes"] += bool(bound)
    return done


def check_refusal(schedule: Schedule, call: Call, violation: Violation) -> None:
    """The two instances exist, depend on each other, and would run in the wrong order."""
    nest, tree = refused_tree(schedule, call)
    found = witness(nest, violation)
    assert depends(found), f"no {violation.kind} dependence: {violation}\n{nest}"
    assert wrong(tree, violation), f"not wrong at all: {violation}\n{schedule}\n{schedule.trace()}"


def same(oracle: Arrays, arrays: Arrays, how: str) -> None:
    """Every output and inout is what the oracle says, element by element."""
    for name, expected in oracle.items():
        np.testing.assert_array_equal(arrays[name], expected, err_msg=f"{name}, {how}")
