"""The search: rounds of schedules, measured by an executor, each kept as soon as it is measured.

round ::= proposal*          as many as are measured at once; the first trial is the model's own choice
proposal: Optuna answers the strategies' questions  ->  a plan, every verb of it proven  ->  its trace
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from polyfuse.errors import IllegalSchedule, InvalidSchedule, InvalidTuning
from polyfuse.machine import Machine
from polyfuse.runtime.compile_key import schedule_text
from polyfuse.strategy import Plan
from polyfuse.strategy.candidates import Answer
from polyfuse.strategy.tuning_trials import Trial, Tuning
from polyfuse.tune.evaluate import Build, Task, Variant, forget, measured
from polyfuse.tune.kept_trials import keep, recalled
from polyfuse.tune.progress import Shown
from polyfuse.tune.suggest import Asked, optuna, suggested
from polyfuse.tune.trials import Trials

ATTEMPTS = 16
"""Suggestions that lead to a schedule known already, in a row, after which there is taken to be nothing new."""

EXHAUSTED = "nothing new to try"

Planner = Callable[[Answer], Plan]
"""A function that makes a plan from the answers to the strategies' questions."""


@dataclass(frozen=True)
class Proposal:
    """A trial that is not measured yet, and what is to be measured."""

    trial: Trial
    variant: Variant


def tuned(name: str, key: str, plan: Planner, build: Build, machine: Machine, asked: Trials) -> Tuning:
    """Search for the fastest schedule of a nest, or continue the search that the cache has under a key.

    Kept trials count: a search that was interrupted, or is asked for more trials, continues after them.
    KeyboardInterrupt ends it with the trials made so far, and is raised only if there are none.

    Args:
        name: The nest's name.
        key: The cache's key.
        plan: Makes a plan from choices.
        build: Compiles a schedule.
        machine: The machine of the cost model.
        asked: The length of the search, and where it is measured.

    Returns:
        The trials.

    Raises:
        TargetUnavailable: if Optuna is not installed.
        InvalidTuning: if the model's own choice cannot be measured.
    """
    known = recalled(key)
    search = Search(key, plan, partial(Task, machine=machine, build=build, seed=asked.seed), asked, known)
    if search.ended:
        return search.tuning
    optuna()  # before anything is planned: it may not be there
    with Shown(name, asked.count) as shown:
        try:
            while not search.ended:
                search.round(shown)
        except KeyboardInterrupt:
            if not search.trials:
                raise
            search.ended = "interrupted"
        finally:
            forget()
    return search.tuning


class Search:
    """A search between two rounds."""

    def __init__(
        self, key: str, plan: Planner, task: Callable[..., Task], asked: Trials, known: Tuning
    ) -> None:
        self.key, self.plan, self.task, self.asked = key, plan, task, asked
        self.trials, self.spent = list(known.trials), known.spent
        self.ended = known.ended if known.ended == EXHAUSTED else self._end()
        self._model: Variant | None = None

    @property
    def tuning(self) -> Tuning:
        """The trials made so far."""
        return Tuning(tuple(self.trials), self.spent, self.ended)

    def round(self, shown: Shown) -> None:
        """Propose, measure, keep: in the order of the proposals, whichever is done first."""
        start, before = time.perf_counter(), self.spent
        model, proposals = self._proposals()
        best = min((trial.ratio for trial in self.trials), default=0.0)
        tasks = [self.task(one.variant, model, best=best) for one in proposals]
        executor = self.asked.executor
        futures = [executor.submit(measured, task) for task in tasks] if executor is not None else []
        results = (future.result() for future in futures) if executor is not None else map(measured, tasks)
        try:
            for proposal, found in zip(proposals, results, strict=True):
                self.trials.append(found.of(proposal.trial))
                self.spent = before + time.perf_counter() - start
                self._check_model()
                keep(self.key, self.tuning)
                shown.update(self.tuning)
        finally:
            for future in futures:
                future.cancel()
        self.ended = self._end() if proposals else EXHAUSTED
        keep(self.key, self.tuning)

    def _end(self) -> str:
        """Return the reason why the search is over; empty while it is not."""
        if len(self.trials) >= self.asked.count:
            return "as many as asked for"
        if self.asked.seconds is not None and self.spent >= self.asked.seconds:
            return f"after {self.asked.seconds:g} s"
        return ""

    def _check_model(self) -> None:
        if self.trials[0].refused:
            raise InvalidTuning(f"the model's own choice cannot be measured: {self.trials[0].refused}")

    def _proposals(self) -> tuple[Variant, list[Proposal]]:
        """The model's choice, and what the next round tries: that itself at first, else schedules not tried yet."""
        if self._model is None:
            first = self._planned(Asked())
            self._model = first.variant
            if not self.trials:
                return self._model, [first]
        found: list[Proposal] = []
        while len(found) < min(self.asked.at_once, self.asked.count - len(self.trials)):
            more = self._proposal(found)
            if more is None:
                break
            found.append(more)
        return self._model, found

    def _proposal(self, others: Sequence[Proposal]) -> Proposal | None:
        """A schedule that was not tried yet, and is not among others about to be; None if none is found."""
        known = {trial.digest for trial in (*self.trials, *(one.trial for one in others))}
        for attempt in range(ATTEMPTS):
            asked = Asked(suggested(self.trials, self.asked.seed, attempt * self.asked.at_once + len(others)))
            try:
                made = self._planned(asked)
            except (IllegalSchedule, InvalidSchedule):
                continue  # a combination of choices that the verbs refuse
            if made.trial.digest not in known:
                return made
        return None

    def _planned(self, asked: Asked) -> Proposal:
        schedule = self.plan(asked).schedule
        digest = hashlib.sha256(schedule_text(schedule).encode()).hexdigest()
        trial = Trial(asked.parameters, asked.picks, asked.predicted, digest)
        return Proposal(trial, Variant.of(schedule, digest))
