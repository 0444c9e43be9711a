"""Bank conflicts by enumeration: how often a warp's access to shared memory has to wait for a bank.

Shared memory has 32 banks of 4 bytes, neighbouring words in neighbouring banks. A warp's access is served 128 bytes of
demand at a time: 32 lanes of 4 bytes, 16 of 8, 8 of 16. Of these, each bank gives one word in a turn, to as many lanes
as want it (CUDA C++ Programming Guide, section on shared memory).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np
import numpy.typing as npt

BANKS, WORD, WARP = 32, 4, 32
SERVED = BANKS * WORD

Option = TypeVar("Option")


def waits(addresses: npt.NDArray[np.int64], nbytes: int) -> int:
    """The turns that an access needs beyond those that its width takes anyway.

    `addresses` has one row a warp, in bytes, each a multiple of `nbytes`; a lane with a negative one takes no part.

    >>> waits(np.arange(32)[None] * 4, 4), waits(np.arange(32)[None] * 8, 4), waits(np.arange(32)[None] * 16, 16)
    (0, 1, 0)
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
    return int(np.maximum(turns.max(axis=1) - 1, 0).sum())


def least_waiting(options: Iterable[Option], waits_of: Callable[[Option], int]) -> Option:
    """The first of the options that wait least; one that waits for nothing ends the search.

    >>> least_waiting([5, 3, 4, 3], lambda n: n), least_waiting(iter([2, 0, 1]), lambda n: n)
    (3, 0)
    """
    least: tuple[int, Option] | None = None
    for option in options:
        found = waits_of(option)
        if least is None or found < least[0]:
            least = found, option
        if found == 0:
            break
    if least is None:
        raise ValueError("there are no options")
    return least[1]
