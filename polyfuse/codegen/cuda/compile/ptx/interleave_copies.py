"""Interleave asynchronous copies with the multiply-adds of the loop iteration that begins them, in PTX.

    $L:                               $L:
      cp.async [%r1], [%rd1], 16;       fma.rn.f32 …;
      cp.async [%r2], [%rd2], 16;       cp.async [%r1], [%rd1], 16;
      cp.async [%r3], [%rd3], 16;       cp.async [%r2], [%rd2], 16;
      fma.rn.f32 …;               ->    fma.rn.f32 …;
      …                                 cp.async [%r3], [%rd3], 16;
      bar.sync 0;                       …
                                        bar.sync 0;

All threads come from a barrier together: copies that stand first fill the queue to memory, loads of factors wait
behind them, and no warp has anything to multiply meanwhile. What a copy writes is read behind the next barrier, so that
its place before that is free. Products of 1024, 2048 and 4096 in the same tiles took 0.81, 0.88 and 0.87 of the time
(H200); with the copies in two, three, four and six groups 1.15, 1.12, 1.09 and 1.07 times what they take one by one, at
1024, though ptxas (CUDA 13, sm_90) has three empty loads before each copy that follows a load.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from polyfuse.codegen.cuda.compile.ptx.ptx_loops import Lines, Loop, each_loop, given_where
from polyfuse.schedule.microkernel_verb import BEGUN_IN

_COPY = re.compile(r"\s*cp\.async\.c[ag]\.shared\.global ")
_MULTIPLY_ADD = "fma.rn.f32"
_FIXED = re.compile(
    r"\s*(?:\$\w+:|bar\.|barrier\.|cp\.|st\.|red\.|atom\.|mbarrier\.|membar|fence|(?:@!?%p\d+ )?bra)"
)
"""Instructions that a copy must not cross: barriers, stores, other copies' groups, labels and jumps of loops."""

_REGISTER = re.compile(r"%\w+")


def spread_copies(ptx: str) -> str:
    """PTX of a kernel whose loops of multiply-adds begin their copies one by one."""
    return each_loop(ptx, _spread)


def _spread(lines: Lines, loop: Loop) -> Lines:
    copies = _copies(lines, loop)
    if not copies:
        return lines
    places = _places(lines, copies)
    if places is None:
        return lines
    moved = {number for first, last in copies for number in range(first, last + 1)}
    after = dict(zip(places, copies, strict=True))
    done: Lines = []
    for number, line in enumerate(lines):
        if number not in moved:
            done.append(line)
        if number in after:
            first, last = after[number]
            done += lines[first : last + 1]
    return done


def _copies(lines: Lines, loop: Loop) -> list[Loop]:
    """The first and the last line of each copy that stands before the first multiply-add, nothing fixed behind it."""
    found: list[Loop] = []
    number = loop[0] + 1
    while number <= loop[1] and _MULTIPLY_ADD not in lines[number]:
        last = _copy_from(lines, number)
        if last is not None:
            found.append((number, last))
            number = last
        elif _FIXED.match(lines[number]):
            found.clear()
        number += 1
    return found


def _copy_from(lines: Lines, number: int) -> int | None:
    """The last line of an assembly that begins here, if it is a copy and nothing else."""
    if "begin inline asm" not in lines[number]:
        return None
    whole = _COPY.match(lines[number + 1]) and "end inline asm" in lines[number + 2]
    return number + 2 if whole else None


def _places(lines: Lines, copies: list[Loop]) -> list[int] | None:
    """The multiply-add that each copy stands behind; None if something between may not come before it."""
    start, given = copies[0][0], given_where(lines, copies[0][0])
    adds = list(_multiply_adds(lines, copies[-1][1] + 1))
    every = len(adds) // (BEGUN_IN * len(copies))
    if not every:
        return None
    places = [adds[every * (k + 1) - 1] for k in range(len(copies))]
    for (first, last), place in zip(copies, places, strict=True):
        registers = {r for line in lines[first : last + 1] for r in _REGISTER.findall(line)}
        if any(
            start <= number <= place for register in registers for number in given[register] if number > first
        ):
            return None
    return places


def _multiply_adds(lines: Lines, first: int) -> Iterator[int]:
    """The multiply-adds from a line on, up to what copies stay before."""
    for number in range(first, len(lines)):
        if _FIXED.match(lines[number]):
            return
        if _MULTIPLY_ADD in lines[number]:
            yield number
