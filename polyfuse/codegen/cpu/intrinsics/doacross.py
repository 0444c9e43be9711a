"""Doacross operations: iterations of a loop run on several cores, each waiting for steps of the previous one.

    for t (pipeline): for i: S
    ->  turns = turns_of(n)
        n times, on cores: t = next_turn(turns)
                           for i: { await_turn(turns, t, i); S; end_turn(turns, t, i) }
                           close_turns(turns, t)

    t = 0    0 1 2 3 4 5        columns are moments, numbers values of i: one core takes t = 0 and 2, another t = 1;
    t = 1      0 1 2 3 4 5      i of t waits until i of t - 1 has ended, and so for all of t - 1 and less up to i
    t = 2              0 1 2

Values of t are taken in their order, by whichever core is free: the first of them that has not ended waits for nothing,
so that any number of cores, one too, comes to the end. `turns` has a number in a cache line of its own for each value
of t: one more than the last i that has ended. What was stored before `end_turn` is seen after the `await_turn` that it
ends (release and acquire).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from polyfuse.codegen.cpu.intrinsics.atomics import WORDS, fetch_add, load, pause, store

TURN_OPERATIONS = ("turns_of", "next_turn", "await_turn", "await_all", "end_turn", "close_turns")

NONE_YET, ALL = -(2**63), 2**63 - 1


@register_jitable
def turns_of(count: int) -> Any:
    """Room for so many values of the outer loop, none of which has begun."""
    turns = np.full((max(0, count) + 1) * WORDS, NONE_YET, np.int64)
    turns[0] = 0
    return turns


@register_jitable
def next_turn(turns: Any) -> int:
    """Count one more value of the outer loop as taken; return how many were taken before."""
    return fetch_add(turns, 0, 1)  # type: ignore[no-any-return]


@register_jitable
def await_turn(turns: Any, turn: int, value: int) -> None:
    """Wait until the value before this one of the outer loop has ended this value of the inner loop."""
    if turn > 0:
        while load(turns, turn * WORDS) <= value:
            pause()


@register_jitable
def end_turn(turns: Any, turn: int, value: int) -> None:
    """Say that this value of the inner loop has ended."""
    store(turns, (turn + 1) * WORDS, value + 1)


@register_jitable
def await_all(turns: Any, turn: int) -> None:
    """Wait until the value before this one of the outer loop has ended all of the inner loop."""
    await_turn(turns, turn, ALL - 1)


@register_jitable
def close_turns(turns: Any, turn: int) -> None:
    """Say that all of the inner loop has ended, once it has for the value before this one of the outer loop."""
    await_all(turns, turn)
    end_turn(turns, turn, ALL - 1)
