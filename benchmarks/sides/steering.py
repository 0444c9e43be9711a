"""The other end of worker.py's pipes: workers that are started when they are needed, asked, and ended."""

from __future__ import annotations

import json
import select
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from benchmarks.fresh import with_threads
from benchmarks.sides.environments import ROOT
from polyfuse import measure

PAUSE = 0.02
"""Seconds before a turn, and again while a side's threads are busy.

Those of onnxruntime go on looking for work for 20 to 25 ms after a call.
"""

LIMIT = 600.0
"""Seconds after which a worker that does not answer is ended."""

Timed = Callable[[], float]
"""A turn of a side: the seconds of a call by that side's own clock."""


class Refused(Exception):
    """A side cannot do what it was asked; the message is its own."""


class Missing(Refused):
    """A side does not have this kind of workload."""


@dataclass
class Worker:
    """A side in one of its forms with so many threads. Its process starts with a request that finds none."""

    side: str
    form: str
    threads: int
    python: Path
    folder: Path
    limit: float = LIMIT
    versions: Mapping[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None

    def build(self, kind: str, name: str) -> dict[str, float]:
        """Seconds to build and of the first run. Refused in the side's words."""
        answer: dict[str, float] = self.ask(do="build", kind=kind, name=name)
        return answer

    def seconds(self, calls: int = 1) -> float:
        """Of one call, of so many timed together after one that is not counted."""
        return float(self.ask(do="time", calls=calls)["seconds"])

    def cpu_seconds(self) -> float:
        """What all threads of the process have used of CPUs so far."""
        if self._process is None:
            return 0.0
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return 1e-9 * sum(int(path.read_text().split()[0]) for path in threads)

    def memory(self) -> dict[str, int]:
        """Bytes of one call (sides/memory.py)."""
        answer: dict[str, int] = self.ask(do="memory")
        return answer

    def results(self, name: str) -> list[Any]:
        """What the first run of this workload gave."""
        assert self._process is not None, "it was built"
        folder = self.folder / name / "results" / str(self._process.pid)
        return [np.load(path) for path in sorted(folder.glob("*.npy"), key=lambda path: int(path.stem))]

    def ask(self, **request: Any) -> Any:
        process = self._process or self.start()
        assert process.stdin is not None, "a pipe was asked for"
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        return self.answer(process)

    def start(self) -> subprocess.Popen[bytes]:
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [str(self.python), "-m", "benchmarks.sides.worker"]
        command += [self.side, self.form, str(self.threads), str(self.folder)]
        # Compilers' caches too: one that was ended while it wrote does not find the half of a file in another run.
        environment = {**with_threads(self.threads), "TMPDIR": str(self.folder)}
        with (self.folder / f"{self.side}-{self.form}.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=log,
            )  # fmt: skip
        self.versions = self.answer(self._process)["versions"]
        return self._process

    def answer(self, process: subprocess.Popen[bytes]) -> Any:
        """The next line, when it comes. Refused where the side failed, died or is too slow; Missing: no such kind."""
        assert process.stdout is not None, "a pipe was asked for"
        ready, _, _ = select.select([process.stdout], [], [], self.limit)
        line = process.stdout.readline() if ready else b""
        if not line:
            self.end()
            gone = f"it ended with {process.returncode}" if ready else f"no answer in {self.limit:g} s"
            raise Refused(gone)
        answer = json.loads(line)
        if "failed" in answer:
            self.end(seconds=5.0)  # it is writing the traceback
            raise Refused(answer["failed"])
        if "missing" in answer:
            raise Missing(answer["missing"])
        return answer

    def end(self, seconds: float = 0.0) -> None:
        """End the process, if there is one that does not end by itself in so many seconds."""
        if self._process is None:
            return
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None, "a pipe was asked for"
            pipe.close()
        self._process = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


def hand_over(folder: Path, name: str, arrays: Mapping[str, Any]) -> None:
    """Write a workload's arrays where workers look for them."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    for label, array in arrays.items():
        np.save(folder / name / f"{label}.npy", array)


def settle(workers: Iterable[Worker]) -> None:
    """Wait until no thread of these processes is busy: it would take a CPU from the side whose turn is next."""
    workers = list(workers)
    measure.settle(PAUSE, lambda: sum(worker.cpu_seconds() for worker in workers))


def in_turns(
    sides: Mapping[str, Timed],
    turns: int,
    workers: Iterable[Worker],
    most: float = float("inf"),
    least: int = 3,
) -> dict[str, list[float]]:
    """The seconds of each turn of each side, by its own clock: A B C  A B C  …; between turns these workers settle.

    Turns end early, but not before `least`, when all of them together took `most` seconds.
    """
    taken: dict[str, list[float]] = {label: [] for label in sides}
    start = time.perf_counter()
    for turn in range(turns):
        if turn >= least and time.perf_counter() - start > most:
            break
        for label, call in sides.items():
            settle(workers)
            taken[label].append(call())
    return taken
