"""torch as a peer: in processes of its own, in the environment of `python -m benchmarks.sides.environments torch`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.sides.environments import ENVIRONMENTS
from benchmarks.sides.steering import Worker, hand_over


@contextmanager
def torch_sides(
    kinds: Mapping[str, tuple[str, str]],
    name: str,
    arrays: Mapping[str, Any],
    expected: Any,
    about: dict[str, Any],
) -> Iterator[dict[str, Worker]]:
    """Workers for these labels, built and checked; none without the environment.

    `kinds` has a form ("eager", "compiled") and a function of benchmarks/sides/by_torch.py for each label. Which torch
    it is goes into `about`.
    """
    environment = ENVIRONMENTS["torch"]
    if not kinds or not environment.ready():
        yield {}
        return
    with TemporaryDirectory() as folder:
        hand_over(Path(folder), name, arrays)
        workers = {
            label: Worker("torch", form, 1, environment.python, Path(folder))
            for label, (form, _) in kinds.items()
        }
        try:
            for label, worker in workers.items():
                worker.build(kinds[label][1], name)
                (found,) = worker.results(name)
                np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
                about["versions"] |= worker.versions
            yield workers
        finally:
            for worker in workers.values():
                worker.end()


def seconds(call: Callable[[], Any], turn: float) -> float:
    """Of one call, of several timed together for so many seconds, after one that is not counted."""
    start = perf_counter()
    call()
    calls = max(1, round(turn / (perf_counter() - start)))
    start = perf_counter()
    for _ in range(calls):
        call()
    return (perf_counter() - start) / calls


def asked(worker: Worker, turn: float) -> float:
    """The same of a side, by its own clock."""
    return worker.seconds(max(1, round(turn / worker.seconds())))
