"""Suggest the next trial by Optuna, as a function of the measurements and a seed.

One parameter a question, shared by kernels that are asked the same about: the position among the options, which stand
in the model's order. It is searched on a logarithmic scale, as what the model finds cheap is more likely to be fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from polyfuse.show.optional import need
from polyfuse.strategy.candidates import question
from polyfuse.strategy.tuning_trials import Trial


class Asked:
    """Answers a strategy's questions from one Optuna trial (None: by the model), and remembers them."""

    def __init__(self, trial: Any = None) -> None:
        self.picks: dict[str, int] = {}
        self.parameters: dict[str, tuple[int, int]] = {}
        self._trial = trial
        self._names: dict[tuple[str, tuple[float, ...]], str] = {}
        self._expected: dict[tuple[str, ...], float] = {}

    @property
    def predicted(self) -> float:
        """Seconds the model expects of the kernels asked about: of each, what its last answer leads to."""
        return sum(self._expected.values())

    def __call__(self, kernel: tuple[str, ...], what: str, seconds: Sequence[float]) -> int:
        """The position to take. Equal lists of expectations are taken for kernels that are alike."""
        asked = question(kernel, what)
        name = self._names.setdefault((what, tuple(seconds)), asked)
        if name not in self.parameters:
            count = len(seconds)
            free = self._trial is not None and count > 1
            position = self._trial.suggest_int(name, 1, count, log=True) - 1 if free else 0
            self.parameters[name] = position, count
        self.picks[asked], _ = self.parameters[name]
        self._expected[kernel] = seconds[self.picks[asked]]
        return self.picks[asked]


def optuna() -> Any:
    """Optuna. Raises TargetUnavailable, naming what to install, if it is missing."""
    return need("optuna", "tuning", "tune")


def suggested(trials: Sequence[Trial], seed: int, attempt: int) -> Any:
    """An Optuna trial after these; the first attempt by TPE (Bergstra et al. 2011), further ones at random.

    A new study each time: a search that goes on from a file suggests what one that was never interrupted does.
    """
    library = optuna()
    known = library.logging.get_verbosity()
    library.logging.set_verbosity(library.logging.WARNING)  # else it prints a line a study
    try:
        samplers = library.samplers
        kind = samplers.RandomSampler if attempt else samplers.TPESampler
        study = library.create_study(sampler=kind(seed=_mixed(seed, len(trials), attempt)))
        study.add_trials([_recorded(library, trial) for trial in trials])
        return study.ask()
    finally:
        library.logging.set_verbosity(known)


def _mixed(seed: int, number: int, attempt: int) -> int:
    """A sampler's seed, another for each trial and attempt."""
    return (seed * 1_000_003 + number * 1_009 + attempt) % 2**32


def _recorded(library: Any, trial: Trial) -> Any:
    free = {name: of for name, of in trial.parameters.items() if of[1] > 1}
    state = library.trial.TrialState
    return library.trial.create_trial(
        state=state.PRUNED if trial.refused else state.COMPLETE,
        value=None if trial.refused else trial.ratio,
        params={name: position + 1 for name, (position, _) in free.items()},
        distributions=_distributions(library, free),
    )


def _distributions(library: Any, free: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    kind = library.distributions.IntDistribution
    return {name: kind(1, count, log=True) for name, (_, count) in free.items()}
