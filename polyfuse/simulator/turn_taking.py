"""Tasks that run one at a time, each until it has to wait for another one.

a: …; until(ready_b); …          b: …; ready; …           a, b, a: in one order, the same in every run
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np


class TakingTurns:
    """Tasks, each with a thread of its own, of which only one runs at any time: the first that can go on."""

    def __init__(self, tasks: Sequence[Callable[[], None]]) -> None:
        self.tasks = tasks
        self.ready: dict[int, Callable[[], bool]] = {number: lambda: True for number in range(len(tasks))}
        self.gates = [threading.Semaphore(0) for _ in tasks]
        self.back = threading.Semaphore(0)
        self.stopped = False
        self.error: BaseException | None = None

    def run(self) -> bool:
        """Run all tasks to their ends; False if some wait for ever. Raises what a task raises."""
        threads = [
            threading.Thread(target=self._task, args=(n,), daemon=True) for n in range(len(self.tasks))
        ]
        for thread in threads:
            thread.start()
        while self.ready and self.error is None:
            able = [number for number, ready in self.ready.items() if ready()]
            if not able:
                break
            self.gates[min(able)].release()
            self.back.acquire()
        self.stopped = True
        for number in self.ready:
            self.gates[number].release()
        for thread in threads:
            thread.join()
        if self.error is not None:
            raise self.error
        return not self.ready

    def until(self, number: int, ready: Callable[[], bool]) -> None:
        """Let others run until something is so."""
        if ready():
            return
        self.ready[number] = ready
        self.back.release()
        self._take(number)

    def _take(self, number: int) -> None:
        self.gates[number].acquire()
        if self.stopped:
            raise _Stopped

    def _task(self, number: int) -> None:
        try:
            self._take(number)
            with np.errstate(all="ignore"):
                self.tasks[number]()
            del self.ready[number]
        except _Stopped:
            return
        except BaseException as error:  # noqa: BLE001  # raised again where the tasks were asked for
            self.error = error
        self.back.release()


class _Stopped(Exception):
    """A task is not to go on."""
