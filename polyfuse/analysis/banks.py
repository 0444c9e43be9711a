"""Bank conflicts of shared-memory accesses, by enumeration.

Shared memory has 32 banks of 4 bytes, neighbouring words in neighbouring banks. A warp's access is served 128 bytes of
demand at a time: 32 lanes of 4 bytes, 16 of 8, 8 of 16. Of these, each bank gives one word in a turn, to as many lanes
as want it (CUDA C++ Programming Guide, section on shared memory).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

BANKS, WORD, WARP = 32, 4, 32
SERVED = BANKS * WORD

MOST_THREADS = 1024
"""Threads of a block at most, on every GPU."""

TOGETHER = 16
"""Options that are looked at together: often one of the first few waits for nothing."""

Option = TypeVar("Option")
Integers = npt.NDArray[np.int64]


def waits(addresses: Integers, nbytes: int) -> int:
    """The turns that an access needs beyond those that its width takes anyway.

    `addresses` has one row a warp, in bytes, each a multiple of `nbytes`; a lane with a negative one takes no part.

    >>> waits(np.arange(32)[None] * 4, 4), waits(np.arange(32)[None] * 8, 4), waits(np.arange(32)[None] * 16, 16)
    (0, 1, 0)
    """
    return int(waits_of_each(addresses[None], nbytes)[0])


def waits_of_each(addresses: Integers, nbytes: int) -> Integers:
    """`waits` of several accesses at once: `addresses` has an axis of them before those of warps and lanes.

    >>> waits_of_each(np.stack([np.arange(32)[None] * apart for apart in (4, 8, 128)]), 4)
    array([ 0,  1, 31])
    """
    lanes, words = SERVED // max(nbytes, WORD), max(nbytes // WORD, 1)
    served = addresses.reshape(-1, lanes)
    wanted = (served[:, :, None] // WORD + np.arange(words)).reshape(len(served), -1)
    wanted[np.repeat(served < 0, words, axis=1)] = -1
    wanted.sort(axis=1)  # a turn's words, each the first time it comes
    unlike = wanted >= 0
    unlike[:, 1:] &= wanted[:, 1:] != wanted[:, :-1]
    banks = wanted % BANKS + np.arange(0, len(served) * BANKS, BANKS)[:, None]
    turns = np.bincount(banks[unlike], minlength=len(served) * BANKS).reshape(-1, BANKS)
    beyond = np.maximum(turns.max(axis=1) - 1, 0).reshape(len(addresses), -1)
    found: Integers = beyond.sum(axis=1)
    return found


def least_waiting(options: Iterable[Option], waits_of: Callable[[Option], int]) -> Option:
    """The first of the options that wait least; one that waits for nothing ends the search.

    >>> least_waiting([5, 3, 4, 3], lambda n: n), least_waiting(iter([2, 0, 1]), lambda n: n)
    (3, 0)
    """
    return _least((waits_of(option), option) for option in options)


def least_waiting_of_many(
    options: Sequence[Option], waits_of_some: Callable[[Sequence[Option]], Integers]
) -> Option:
    """The same, where the waits of several options are found at once, which takes NumPy little longer than one's.

    >>> least_waiting_of_many([5, 3, 4, 3], np.array)
    3
    """
    batches = (options[start : start + TOGETHER] for start in range(0, len(options), TOGETHER))
    return _least(
        (int(found), o) for some in batches for found, o in zip(waits_of_some(some), some, strict=True)
    )


def _least(found: Iterable[tuple[int, Option]]) -> Option:
    least: tuple[int, Option] | None = None
    for waiting, option in found:
        if least is None or waiting < least[0]:
            least = waiting, option
        if waiting == 0:
            break
    if least is None:
        raise ValueError("there are no options")
    return least[1]
