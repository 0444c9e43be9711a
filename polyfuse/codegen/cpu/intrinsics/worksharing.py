"""Worksharing operations: cores share the iterations of one loop after the other, with waits in between.

    for i (cores): A;  for j (cores): B
    ->  team = team_of(cores)
        on every core: phase = 0
                       share = first_share(team, phase, core)
                       while share >= 0: { A of that share;  share = next_share(team, phase, share) }
                       phase += 1;  the same for B

    core 0    A0 | B0          A core has the same share of each loop, so that what it has read stays in its caches.
    core 1    A1 | B1          It waits until all shares of A have ended, and goes on with B.
    core 0    A0 A1 | B0 | …   One that has waited for long takes a share that nobody has begun: a thread that still
    core 1           sleeps    sleeps, or that there is none of, delays the others and holds up nobody.

A loop over two values in each of 500 steps takes 1.2 µs as a region of OpenMP's, and 0.1 so; over 58 rows of a stencil
2.0 and 0.8 (two Zen 4 cores). What a share stored before it ended is seen by whoever goes on (release and acquire).
`team` has two numbers for each core, in lines of their own: how many loops its share has been begun in, and in how many
it has ended.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, register_jitable

from polyfuse.codegen.cpu.intrinsics.atomics import WORDS, load, pause, replaced, store

SHARED_OUT = ("team_of", "first_share", "next_share", "share_from", "within")

PATIENCE = 256
"""How many times a core checks for the others before it takes a share of theirs: 6.6 µs of a Zen 4 core."""


@register_jitable
def team_of(members: int) -> Any:
    """Room for so many cores, which have begun nothing."""
    return np.zeros(2 * members * WORDS, np.int64)


@register_jitable
def share_from(low: int, high: int, members: int, share: int) -> int:
    """The first value of a share of a loop: the shares of `low` … `high - 1` differ by one value at most."""
    return low - (-share * max(0, high - low)) // members


@intrinsic
def within(typingctx: Any, value: Any, first: Any, end: Any) -> Any:
    """The value, of which LLVM may assume that it is at least `first` and less than `end`."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        number, least, most = args
        builder.assume(builder.icmp_signed(">=", number, least))
        builder.assume(builder.icmp_signed("<", number, most))
        return number

    return types.int64(types.int64, types.int64, types.int64), code


@register_jitable
def first_share(team: Any, phase: int, member: int) -> int:
    """A core's own share of a loop, or what `next_share` says where somebody else has taken that."""
    if replaced(team, member * WORDS, phase, phase + 1):
        return member
    return int(_another(team, phase))


@register_jitable
def next_share(team: Any, phase: int, share: int) -> int:
    """Say that a share has ended, and wait until all have: -1 then, or a share that nobody has begun for long."""
    store(team, _ends(team, share), phase + 1)
    return int(_another(team, phase))


@register_jitable
def _another(team: Any, phase: int) -> int:
    looked = 0
    while True:
        open_ = _first_open(team, phase)
        if open_ < 0:
            return -1
        looked += 1
        if looked > PATIENCE:
            for share in range(open_, _members(team)):
                if replaced(team, share * WORDS, phase, phase + 1):
                    return share
        pause()


@register_jitable
def _first_open(team: Any, phase: int) -> int:
    """The first share of a loop that has not ended; -1 if all have."""
    for share in range(_members(team)):
        if load(team, _ends(team, share)) <= phase:
            return share
    return -1


@register_jitable
def _members(team: Any) -> int:
    return len(team) // (2 * WORDS)


@register_jitable
def _ends(team: Any, share: int) -> int:
    """The position of a share's count of finished loops."""
    return int(_members(team) + share) * WORDS
