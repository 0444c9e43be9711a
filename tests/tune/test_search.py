"""The search: what is tried, kept, gone on with and refused; times are made up, so that nothing depends on a clock."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import polyfuse as pf
from polyfuse.checks import cuda_cases as cases
from polyfuse.runtime.store.files import OWN
from polyfuse.runtime.store.store import Store, unpacked
from polyfuse.strategy.tuning_trials import Tuning
from polyfuse.tune import search
from polyfuse.tune.evaluate import Measured, Task

MACHINE = pf.Machine.preset("zen5")

Measure = Callable[[Task], Measured]
Use = Callable[..., Any]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache for this test."""
    monkeypatch.setenv("POLYFUSE_CACHE", str(tmp_path))
    return tmp_path


def made_up(task: Task) -> Measured:
    """A time that only the schedule decides; the model's choice takes 1 s, most others more."""
    ratio = 0.5 + int(task.variant.digest[:4], 16) / 2**16 if task.variant != task.model else 1.0
    return Measured(ratio, ratio)


class Counted:
    """Measures as another does, and fails after so many trials as an impatient user does."""

    def __init__(self, most: int = 1000, measure: Measure = made_up) -> None:
        self.tasks: list[Task] = []
        self.most, self.measure = most, measure

    def __call__(self, task: Task) -> Measured:
        if len(self.tasks) == self.most:
            raise KeyboardInterrupt
        self.tasks.append(task)
        return self.measure(task)


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> Use:
    """`measuring(by)`: trials are measured by a function instead of a clock."""

    def use(by: Any) -> Any:
        monkeypatch.setattr(search, "measured", by)
        return by

    return use


def nest() -> pf.Nest:
    return cases.dense(32, 48, batch=8)


def compiled(**asked: Any) -> pf.Executable:
    tune = pf.Trials(**{"count": 6, **asked})
    return pf.compile(nest(), target="cpu", machine=MACHINE, tune=tune)


def tuning(**asked: Any) -> Tuning:
    found = compiled(**asked).tuning
    assert found is not None
    return found


def tried(found: Tuning) -> list[str]:
    return [trial.digest for trial in found.trials]


def test_the_first_trial_is_the_models_choice_and_every_other_another_schedule(measuring: Use) -> None:
    counted = measuring(Counted())
    found = tuning()
    assert not any(found.trials[0].picks.values())
    assert counted.tasks[0].variant == counted.tasks[0].model
    assert len(set(tried(found))) == len(found.trials) == 6
    assert [task.variant.digest for task in counted.tasks] == tried(found)


def test_the_executable_has_the_best_schedule(measuring: Use) -> None:
    counted = measuring(Counted())
    net = compiled()
    assert net.tuning is not None
    best = next(t for t in counted.tasks if t.variant.digest == net.tuning.best.digest)
    assert net.tuning.best.ratio == min(made_up(task).ratio for task in counted.tasks) < 1
    assert net.schedule.steps == best.variant.steps
    assert str(net.tuning) in net.explain()
    assert str(net.tuning) in str(net.report())


def test_a_second_compile_finds_the_result_at_once(place: Path, measuring: Use) -> None:
    measuring(Counted())
    first = compiled()
    measuring(Counted(most=0))
    second = compiled()
    assert second.tuning == first.tuning
    assert second.report().cache.startswith("loaded from")
    assert second.source == first.source
    assert second.schedule.trace() == first.schedule.trace()


def test_where_nothing_beats_the_model_its_compile_is_used(place: Path, measuring: Use) -> None:
    pf.compile(nest(), target="cpu", machine=MACHINE)
    measuring(lambda task: Measured(2.0, 2.0) if task.variant != task.model else Measured(1.0, 1.0))
    assert compiled().report().cache.startswith("loaded from")


def test_an_interrupted_search_is_used_and_goes_on(
    place: Path, measuring: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    measuring(Counted(most=3))
    first = tuning()
    assert (len(first.trials), first.ended) == (3, "interrupted")
    rest = measuring(Counted())
    second = tuning()
    assert len(rest.tasks) == 3
    monkeypatch.setenv("POLYFUSE_CACHE", "off")
    whole = tuning()
    assert tried(second) == tried(whole)
    assert second.trials == whole.trials


def test_interrupted_before_there_is_anything_the_interruption_goes_through(measuring: Use) -> None:
    measuring(Counted(most=0))
    with pytest.raises(KeyboardInterrupt):
        compiled()


def test_more_trials_go_on_after_those_kept(place: Path, measuring: Use) -> None:
    measuring(Counted())
    first = tuning(count=3)
    counted = measuring(Counted())
    second = tuning(count=5)
    assert second.trials[:3] == first.trials
    assert len(counted.tasks) == 2
    assert len(tuning(count=2).trials) == 5


def test_a_seed_decides_what_is_tried(measuring: Use) -> None:
    measuring(made_up)
    first, again, other = (tried(tuning(count=4, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other


def test_several_at_once_are_all_different(measuring: Use) -> None:
    measuring(made_up)
    found = tuning(count=7, at_once=3)
    assert len(set(tried(found))) == 7


def test_refused_schedules_are_kept_and_never_the_best(place: Path, measuring: Use) -> None:
    def refusing(task: Task) -> Measured:
        return Measured(refused="results differ") if task.variant != task.model else Measured(1.0, 1.0)

    measuring(refusing)
    found = tuning()
    assert found.best is found.trials[0]
    assert [trial.refused for trial in found.trials] == ["", *["results differ"] * 5]
    assert found.rank_correlation is None
    assert tuning() == found


def test_a_model_that_cannot_be_measured_is_an_error(measuring: Use) -> None:
    measuring(lambda task: Measured(refused="it is wrong"))
    with pytest.raises(pf.InvalidTuning, match="model's own choice cannot be measured: it is wrong"):
        compiled()


def test_time_ends_a_search(measuring: Use) -> None:
    counted = measuring(Counted())
    assert tuning(seconds=1e-9).ended == "after 1e-09 s"
    assert len(counted.tasks) == 1


def test_a_search_ends_where_there_is_nothing_to_choose(place: Path, measuring: Use) -> None:
    counted = measuring(Counted())
    for _ in range(2):
        net = pf.compile(
            cases.pointwise(pf.nn.ReLU(), 8), target="cpu", machine=MACHINE, tune=pf.Trials(count=6)
        )
        assert net.tuning is not None
        assert net.tuning.ended == "nothing new to try"
    assert len(counted.tasks) == len(net.tuning.trials)


def test_a_damaged_file_starts_anew(place: Path, measuring: Use) -> None:
    measuring(Counted())
    first = tuning()
    for path in (place / OWN / "compiled").iterdir():
        if b'"trials"' in path.read_bytes():
            path.write_bytes(path.read_bytes()[:-20])
    counted = measuring(Counted())
    assert tuning().trials == first.trials
    assert len(counted.tasks) == 6


@pytest.mark.parametrize("field", ["spent", "ended", "trials", "ratio"])
def test_a_search_that_lacks_a_field_starts_anew(field: str, place: Path, measuring: Use) -> None:
    measuring(Counted())
    first, store = tuning(), Store(place / OWN)
    for path in (place / OWN / "compiled").iterdir():
        header = dict(unpacked(path.read_bytes()).header)
        if "trials" in header:
            for found in header["trials"] if field == "ratio" else [header]:
                del found[field]
            store.write(path.stem, header, b"")
    counted = measuring(Counted())
    assert tuning().trials == first.trials
    assert len(counted.tasks) == 6


def test_what_is_kept_is_json(place: Path, measuring: Use) -> None:
    measuring(Counted())
    found = tuning()
    entries = [unpacked(path.read_bytes()) for path in (place / OWN / "compiled").iterdir()]
    (kept,) = [entry for entry in entries if "trials" in entry.header]
    assert kept.body == b""
    assert [one["digest"] for one in json.loads(json.dumps(kept.header))["trials"]] == tried(found)


def test_layers_that_are_alike_share_what_is_searched(measuring: Use) -> None:
    counted = measuring(Counted())
    alike = cases.dense(32, 32, 32, batch=8, bias=False)
    net = pf.compile(alike, target="cpu", machine=MACHINE, fuse=False, tune=pf.Trials(count=2))
    assert net.tuning is not None
    last = net.tuning.trials[1]
    assert last.picks["blocks of zero0, mac0"] == last.picks["blocks of zero1, mac1"]
    assert "blocks of zero1, mac1" not in last.parameters
    assert len(counted.tasks) == 2
