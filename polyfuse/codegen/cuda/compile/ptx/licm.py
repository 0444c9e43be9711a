"""Hoist loop-invariant PTX instructions (LICM).

    $L:                                mad.lo.s32 %r5, %r1, 514, %r2;
      mad.lo.s32 %r5, %r1, 514, %r2;   $L:
      …                           ->     …
      @%p1 bra $L;                       @%p1 bra $L;

LLVM has moved it out; NVVM puts it back beside its use to save registers, which a kernel whose registers are planned
has. Of the 1187 instructions of a pass over 16 steps of 8 x 8 results whose rows are no whole vectors 32 go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from polyfuse.codegen.cuda.compile.ptx.ptx_loops import (
    THREAD,
    Lines,
    Loop,
    each_loop,
    given_where,
    outside_assembly,
)

_PURE = re.compile(
    r"\s*(?:add|sub|neg|abs|mul|mad|and|or|xor|not|shl|shr|shf|bfe|bfi|prmt|cvt|setp|selp|min|max|mov)"
    r"\.(?![\w.]*\bcc\b)[\w.]+"
    r"\s+(%(?:r|rd|p)\d+), ([^|@\[{]*);$"
)
"""Integers and conditions alone: an instruction without memory and without a carry for the next, and its operands."""

_OPERAND = re.compile(rf"%(?:r|rd|p)\d+|-?\w+|{THREAD.pattern}")
"""Registers that are given something, numbers, and which thread this is; not the clock, nor what else one may ask."""


def before_loops(ptx: str) -> str:
    """PTX of a kernel with what does not change in its loops of multiply-adds in front of them."""
    return each_loop(ptx, _moved)


def _moved(lines: Lines, loop: Loop) -> Lines:
    first, last = loop
    same = list(_unchanged(lines, loop))
    left = sorted({*range(first, last + 1)}.difference(same))
    return [lines[number] for number in (*range(first), *same, *left, *range(last + 1, len(lines)))]


def _unchanged(lines: Lines, loop: Loop) -> Iterator[int]:
    """The lines of a loop that give a register the same in each pass, each behind those whose registers it reads.

    Instructions of inline assembly stay, and so does what is given anywhere else besides.
    """
    first, last = loop
    given = given_where(lines, first)
    found: set[int] = set()

    def stands(operand: str) -> bool:
        """True if an operand is known to be the same in each pass: a number, the thread, or given before the loop."""
        if not operand.startswith("%") or THREAD.fullmatch(operand):
            return True
        where = given[operand]
        return bool(where) and all(not first <= number <= last or number in found for number in where)

    candidates = {}
    for number in outside_assembly(lines, loop):
        pure = _PURE.match(lines[number])
        if pure is not None and len(given[pure[1]]) == 1:
            operands = [operand.strip() for operand in pure[2].split(",")]
            if all(_OPERAND.fullmatch(operand) for operand in operands):
                candidates[number] = operands
    more = True
    while more:
        new = [n for n, operands in candidates.items() if n not in found and all(map(stands, operands))]
        found.update(new)
        yield from new
        more = bool(new)
