"""Run one trial: repeat the schedule's verbs, compile, check, and time it together with the model's choice.

What is sent is a nest without its constants' values and two traces of verbs: kilobytes. Inputs and constants are drawn
from a seed. The model's choice is timed in the same turns, so that times from different machines, and from a machine
whose clock changes, can be compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf
from statistics import median
from typing import Any

import numpy as np

from polyfuse.errors import PolyfuseError
from polyfuse.ir import Nest
from polyfuse.ir.gather import rows_of
from polyfuse.machine import Machine
from polyfuse.measure import in_turns_prepared
from polyfuse.runtime.executable import Executable
from polyfuse.runtime.memory.memory_plan import shape_of
from polyfuse.runtime.samples import drawn, roundings
from polyfuse.schedule import Schedule
from polyfuse.schedule.step import Step
from polyfuse.strategy.draft import Draft
from polyfuse.strategy.tuning_trials import Trial

Build = Callable[[Nest, Schedule, Machine], Executable]
"""A function that compiles a schedule for a machine; it belongs to a module, so that it can be pickled by name."""

TOLERANCE = 1e4
"""The largest distance of two results in units of rounding, relative to the largest element: sums in another order."""

TURN, LONGEST = 0.01, 1.0
"""Seconds: of one turn at least, by repeated calls; of all turns of one candidate, unless the fewest take longer."""

TURNS = (5, 25)
"""The fewest and the most turns."""


@dataclass(frozen=True)
class Variant:
    """A schedule as what can be sent: a nest without constants, and the verbs. Compared by its digest."""

    digest: str
    nest: Nest = field(compare=False)
    steps: tuple[Step, ...] = field(compare=False)

    @staticmethod
    def of(schedule: Schedule, digest: str) -> Variant:
        """The variant of a schedule."""
        return Variant(digest, replace(schedule.source, constants={}), schedule.steps)

    def built(self, build: Build, machine: Machine, constants: Mapping[str, Any]) -> Executable:
        """The verbs taken again, each proven, and compiled."""
        nest = self.nest.with_constants(constants)
        return build(nest, Draft(nest, nest.order, self.steps).taken(Schedule(nest)), machine)


@dataclass(frozen=True)
class Task:
    """A variant to measure, beside the model's own. One with a ratio below `best` is measured twice."""

    variant: Variant
    model: Variant
    machine: Machine
    build: Build
    seed: int
    best: float


@dataclass(frozen=True)
class Measured:
    """Median seconds of a call, and the median over turns of its ratio to the model's; or why there are none."""

    seconds: float = inf
    ratio: float = inf
    refused: str = ""

    def of(self, trial: Trial) -> Trial:
        """The trial with what was measured."""
        return replace(trial, seconds=self.seconds, ratio=self.ratio, refused=self.refused)


def measured(task: Task) -> Measured:
    """Compile, check and time a variant. What polyfuse refuses, or gets wrong, is said in the result.

    Of many times the least is likely to be a lucky one: what would be the best is timed again, and the slower counts.
    """
    try:
        bench = _bench(task.model, task.machine, task.build, task.seed)
        own = task.variant == task.model
        made = bench.model if own else task.variant.built(task.build, task.machine, bench.constants)
        apart = roundings(bench.expected, bench.results(made))
    except PolyfuseError as error:
        return Measured(refused=str(error))
    if apart > TOLERANCE:
        return Measured(refused=f"results differ from the model's choice by {apart:.3g} units of rounding")
    found = timed(bench, made)
    if own:
        return replace(found, ratio=1.0)
    return found if found.ratio >= task.best else max(found, timed(bench, made), key=lambda one: one.ratio)


class Bench:
    """The model's choice, the arrays it is run on, and what it gives."""

    def __init__(self, model: Variant, machine: Machine, build: Build, seed: int) -> None:
        generator = np.random.default_rng(seed)
        self.constants = drawn(model.nest.with_role("constant"), generator)
        self.model = model.built(build, machine, self.constants)
        self.given = drawn(model.nest.inputs, generator, rows_of(model.nest, {}))
        self.arrays = {name: array.copy() for name, array in self.given.items()}
        self.changed = tuple(tensor.name for tensor in model.nest.with_role("inout"))
        self.out = {t.name: np.empty(shape_of(t, {}), t.dtype) for t in model.nest.results}
        self.expected = self.results(self.model)

    def restore(self) -> None:
        """Give arrays that a call changes in place their first values."""
        for name in self.changed:
            np.copyto(self.arrays[name], self.given[name])

    def call(self, net: Executable) -> None:
        """One call."""
        out = tuple(self.out.values())
        net(*self.arrays.values(), out=out if len(out) > 1 else out[0] if out else None)

    def results(self, net: Executable) -> dict[str, Any]:
        """Return the result of a call."""
        self.restore()
        self.call(net)
        left = {**self.out, **{name: self.arrays[name] for name in self.changed}}
        return {name: array.copy() for name, array in left.items()}


@lru_cache(maxsize=1)
def _bench(model: Variant, machine: Machine, build: Build, seed: int) -> Bench:
    """The bench of the search that this process works for."""
    return Bench(model, machine, build, seed)


def forget() -> None:
    """Let go of the last bench and its arrays."""
    _bench.cache_clear()


def timed(bench: Bench, made: Executable) -> Measured:
    """A variant and the model's choice in turns; arrays that calls change are given their values before each turn."""
    bench.restore()
    start = time.perf_counter()
    bench.call(made)
    once = max(time.perf_counter() - start, 1e-7)
    calls = 1 if bench.changed else max(1, round(TURN / once))

    def several(net: Executable) -> Callable[[], None]:
        def turn() -> None:
            for _ in range(calls):
                bench.call(net)

        return turn

    candidates = {"variant": several(made), "model": several(bench.model)}
    found = in_turns_prepared(candidates, bench.restore, LONGEST, TURNS, pause=0.001)
    ratios = [own / model for own, model in zip(found["variant"], found["model"], strict=True)]
    return Measured(median(found["variant"]) / calls, median(ratios))
