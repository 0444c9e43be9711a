"""Run independent pieces of work in parallel processes, until a time limit.

a b c d e …   --two processes-->   a c e …
                                   b d …      in the order in which they are done
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def side_by_side(
    work: Callable[[T], R], pieces: Sequence[T], processes: int, seconds: float = float("inf")
) -> Iterator[tuple[T, R | BrokenProcessPool]]:
    """(piece, what `work` made of it) as each is done; what had not begun when time was up does not come.

    With one process that is this one. Others begin anew, so that `work` and the pieces have to be picklable, and none
    has a GPU's context from here. A process that dies takes the pieces that are left with it: these come with the
    failure in place of a result. What `work` raises is raised here.
    """
    end = time.monotonic() + seconds
    if processes == 1:
        for piece in pieces:
            if time.monotonic() >= end:
                return
            yield piece, work(piece)
        return
    left = iter(pieces)
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        running: dict[Future[R], T] = {}
        while True:
            room = processes - len(running) if time.monotonic() < end else 0
            for piece in islice(left, room):
                running[_submitted(pool, work, piece)] = piece
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                piece = running.pop(future)
                try:
                    yield piece, future.result()
                except BrokenProcessPool as died:
                    yield piece, died


def _submitted(pool: ProcessPoolExecutor, work: Callable[[T], R], piece: T) -> Future[R]:
    """A future also where a process has died: one that has failed."""
    try:
        return pool.submit(work, piece)
    except BrokenProcessPool as died:
        failed: Future[R] = Future()
        failed.set_exception(died)
        return failed
