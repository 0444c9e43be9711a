"""Sides in processes of their own: what is asked and answered, what happens when one fails, who is called when."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers.references import error, reference
from benchmarks.sides import memory, steering
from benchmarks.sides.environments import ROOT, Environment, last_line
from benchmarks.sides.steering import Missing, Refused, Worker, hand_over, in_turns, settle
from polyfuse import measure
from tests.benchmarks.small import SMALL


def numpy_side(folder: Path, limit: float = 60.0) -> Worker:
    return Worker("numpy", "expressions", 1, Path(sys.executable), folder, limit)


def test_a_worker_builds_checks_and_times_what_was_handed_over(tmp_path: Path) -> None:
    workload = SMALL["gemver"]
    arrays = workload.make()
    hand_over(tmp_path, "it", arrays)
    with numpy_side(tmp_path) as worker:
        assert set(worker.build("gemver", "it")) == {"build_s", "first_s"}
        assert error(workload, worker.results("it"), reference("gemver", arrays)) <= workload.bound
        assert worker.seconds(3) > 0
        assert worker.versions == {"numpy": np.__version__}


def test_a_kind_that_a_side_lacks_is_missing_and_the_worker_goes_on(tmp_path: Path) -> None:
    hand_over(tmp_path, "it", SMALL["atax"].make())
    with numpy_side(tmp_path) as worker:
        with pytest.raises(Missing, match="knitting is not written for it"):
            worker.build("knitting", "it")
        process = worker._process
        worker.build("atax", "it")
        assert worker._process is process


def test_a_worker_that_fails_says_why_and_the_next_request_starts_another(tmp_path: Path) -> None:
    hand_over(tmp_path, "wrong", {"x": np.zeros(3, np.float32)})
    hand_over(tmp_path, "right", SMALL["softmax"].make())
    with numpy_side(tmp_path) as worker:
        with pytest.raises(Refused, match="AxisError"):
            worker.build("softmax", "wrong")
        assert "Traceback" in (tmp_path / "numpy-expressions.log").read_text()
        worker.build("softmax", "right")
        assert len(worker.results("right")) == 1


def test_a_worker_that_does_not_answer_is_ended(tmp_path: Path) -> None:
    sleeping = tmp_path / "python"
    sleeping.write_text("#!/bin/sh\nexec sleep 60\n")
    sleeping.chmod(0o755)
    worker = Worker("numpy", "expressions", 1, sleeping, tmp_path, limit=0.05)
    with pytest.raises(Refused, match=r"no answer in 0\.05 s"):
        worker.start()
    assert worker._process is None


def test_a_worker_that_dies_says_so(tmp_path: Path) -> None:
    worker = Worker("numpy", "expressions", 1, Path("/bin/false"), tmp_path)
    with pytest.raises(Refused, match="it ended with 1"):
        worker.build("atax", "it")


def test_what_libraries_print_is_no_answer(tmp_path: Path) -> None:
    loud = tmp_path / "python"
    loud.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{LOUD}" "$@"\n')
    loud.chmod(0o755)
    hand_over(tmp_path, "it", SMALL["atax"].make())
    with Worker("numpy", "expressions", 1, loud, tmp_path) as worker:
        worker.build("atax", "it")
        assert worker.seconds() > 0
    assert "I print" in (tmp_path / "numpy-expressions.log").read_text()


LOUD = (
    "import sys, pathlib; from benchmarks.sides import worker, by_numpy; "
    "by_numpy.use = lambda form, threads: print('I print', flush=True); "
    "side, form, threads, folder = sys.argv[3:]; "
    "worker.main(side, form, int(threads), pathlib.Path(folder))"
)


def test_sides_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steering, "PAUSE", 0.0)
    called: list[str] = []

    def side(name: str, seconds: float) -> steering.Timed:
        return lambda: called.append(name) or seconds  # type: ignore[func-returns-value]

    assert in_turns({"a": side("a", 1.0), "b": side("b", 2.0)}, 3, ()) == {"a": [1.0] * 3, "b": [2.0] * 3}
    assert called == ["a", "b"] * 3
    assert len(in_turns({"a": side("a", 1.0)}, 9, (), most=0.0, least=2)["a"]) == 2


def test_a_turn_begins_when_threads_of_the_turn_before_are_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "SETTLED", 60.0)
    busy = tmp_path / "python"
    busy.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{SPINNING}" "$@"\n')
    busy.chmod(0o755)
    with Worker("numpy", "expressions", 1, busy, tmp_path) as worker:
        worker.start()
        settle([worker])
        assert worker.cpu_seconds() > SPUN
    assert worker.cpu_seconds() == 0.0


SPUN = 0.4

SPINNING = (
    "import json, sys, time; print(json.dumps({'versions': {}}), flush=True)\n"
    f"while time.process_time() < {SPUN}: pass\n"
    "sys.stdin.readline()"
)


@pytest.mark.skipif(not (memory.PROCESS / "clear_refs").exists(), reason="this system counts no pages")
def test_memory_of_a_call_is_what_it_touches() -> None:
    held = []

    def call() -> None:
        held.append(np.ones(4 << 20, np.float64))  # 32 MiB
        held.clear()

    found = memory.of(call, memory.resident())
    assert 30 << 20 < found["call_bytes"] < 40 << 20
    assert found["kept_bytes"] < 4 << 20


def test_an_environment_is_ready_when_all_that_is_wanted_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Environment, "folder", property(lambda self: tmp_path / self.name))
    environment = Environment("peer", ("numpy", "peer==2"))
    assert not environment.ready()
    environment.folder.mkdir()
    environment.mark.write_text("numpy\npeer==1")
    assert not environment.ready()
    environment.mark.write_text("numpy\npeer==2")
    assert environment.ready()
    assert environment.install() == ""
    assert Environment("peer", ()).python == tmp_path / "peer" / "bin" / "python"
    assert (ROOT / "pyproject.toml").exists()


def test_pips_last_error_is_the_reason() -> None:
    said = "ERROR: Could not find a version\nERROR: No matching distribution found for x\n\n[notice] A new release\n"
    assert last_line(said) == "ERROR: No matching distribution found for x"
    assert last_line("") == "it did not say why"
