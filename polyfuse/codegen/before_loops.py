"""What a loop computes anew in each pass, though it is always the same, moved before it, in PTX.

    $L:                                mad.lo.s32 %r5, %r1, 514, %r2;
      mad.lo.s32 %r5, %r1, 514, %r2;   $L:
      …                           ->     …
      @%p1 bra $L;                       @%p1 bra $L;

LLVM has moved it out; NVVM puts it back beside its use to save registers, which a kernel whose registers are planned
has. Of the 1187 instructions of a pass over 16 steps of 8 x 8 results whose rows are no whole vectors 32 go.

A loop is the lines from a label to the last jump back to it. Nothing else may jump to a label in these lines, so that
whoever comes to one of them has come through the line above the label; and what an operand was given there stands.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

MANY = 100
"""Multiply-adds of a pass from which on a loop is a product's steps, and instructions beside them count."""

_FUNCTION = re.compile(r"\.(?:entry|func)\b")
_LABEL = re.compile(r"(\$\w+):")
_JUMP = re.compile(r"\bbra(?:\.uni)?\s+(\$\w+);")
_RESULT = re.compile(r"\s*(?:@!?%p\d+\s+)?[a-z][\w.]*\s+(\{[^}]*\}|%\w+)")
_REGISTER = re.compile(r"%\w+")
_PURE = re.compile(
    r"\s*(?:add|sub|neg|abs|mul|mad|and|or|xor|not|shl|shr|shf|bfe|bfi|prmt|cvt|setp|selp|min|max|mov)"
    r"\.(?![\w.]*\bcc\b)[\w.]+"
    r"\s+(%(?:r|rd|p)\d+), ([^|@\[{]*);$"
)
"""Integers and conditions alone: an instruction without memory and without a carry for the next, and its operands."""

_THREAD = re.compile(r"%n?(?:cta|t)id\.[xyz]")
"""Which thread of which block this is, and of how many."""

_OPERAND = re.compile(rf"%(?:r|rd|p)\d+|-?\w+|{_THREAD.pattern}")
"""Registers that are given something, numbers, and which thread this is; not the clock, nor what else one may ask."""

Lines = list[str]


def before_loops(ptx: str) -> str:
    """PTX of a kernel with what does not change in its loops of multiply-adds in front of them, inner loops first."""
    lines, done = ptx.splitlines(), set[str]()
    while (loop := next((one for one in _loops(lines) if lines[one[0]] not in done), None)) is not None:
        first, last = loop
        done.add(lines[first])
        same = list(_unchanged(lines, first, last))
        left = sorted({*range(first, last + 1)}.difference(same))
        lines = [lines[number] for number in (*range(first), *same, *left, *range(last + 1, len(lines)))]
    return "\n".join([*lines, ""]) if done else ptx


def _loops(lines: Lines) -> list[tuple[int, int]]:
    """The first and the last lines of loops with that many multiply-adds, the shortest first, which is innermost."""
    if any(".branchtargets" in line for line in lines):
        return []  # a jump by number, whose labels stand elsewhere
    at = {label[1]: number for number, line in enumerate(lines) if (label := _LABEL.match(line))}
    jumps = [(number, at[jump[1]]) for number, line in enumerate(lines) if (jump := _JUMP.search(line))]
    found = []
    for first in dict.fromkeys(to for number, to in jumps if to < number):
        last = max(number for number, to in jumps if to == first)
        count = sum("fma.rn.f32" in line for line in lines[first:last])
        if count >= MANY and all(first <= number <= last for number, to in jumps if first <= to <= last):
            found.append((first, last))
    return sorted(found, key=lambda loop: loop[1] - loop[0])


def _unchanged(lines: Lines, first: int, last: int) -> Iterator[int]:
    """The lines of a loop that give a register the same in each pass, each behind those whose registers it reads.

    Instructions of inline assembly stay, and so does what is given anywhere else besides.
    """
    given: dict[str, list[int]] = defaultdict(list)
    for number, line in _function(lines, first):
        if (result := _RESULT.match(line)) is not None:
            for register in _REGISTER.findall(result[1]):
                given[register].append(number)
    found: set[int] = set()

    def stands(operand: str) -> bool:
        """Whether an operand is known to be the same in each pass: a number, the thread, or given before the loop."""
        if not operand.startswith("%") or _THREAD.fullmatch(operand):
            return True
        where = given[operand]
        return bool(where) and all(not first <= number <= last or number in found for number in where)

    candidates = {}
    for number in _outside_assembly(lines, first, last):
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


def _function(lines: Lines, inside: int) -> Iterator[tuple[int, str]]:
    """The numbered lines of the function that a line is in, whose registers are its own."""
    starts = [number for number, line in enumerate(lines) if _FUNCTION.search(line)]
    first = max((number for number in starts if number <= inside), default=0)
    after = min((number for number in starts if number > inside), default=len(lines))
    return ((number, lines[number]) for number in range(first, after))


def _outside_assembly(lines: Lines, first: int, last: int) -> Iterator[int]:
    inside = False
    for number in range(first, last + 1):
        inside = "begin inline asm" in lines[number] or (inside and "end inline asm" not in lines[number])
        if not inside:
            yield number
