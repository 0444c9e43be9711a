"""Find loops of multiply-adds in PTX, and the definitions of registers, for the PTX passes.

A loop is the lines from a label to the last jump back to it. Nothing else may jump to a label in these lines, so that
whoever comes to one of them has come through the line above the label; and what an operand was given there stands.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator

MANY = 100
"""Multiply-adds of a pass from which on a loop is a product's steps, and instructions beside them count."""

THREAD = re.compile(r"%n?(?:cta|t)id\.[xyz]")
"""The special registers of thread and block: index and extent."""

_FUNCTION = re.compile(r"\.(?:entry|func)\b")
_LABEL = re.compile(r"(\$\w+):")
_JUMP = re.compile(r"\bbra(?:\.uni)?\s+(\$\w+);")
_RESULT = re.compile(r"\s*(?:@!?%p\d+\s+)?[a-z][\w.]*\s+(\{[^}]*\}|%\w+)")
_REGISTER = re.compile(r"%\w+")

Lines = list[str]
Loop = tuple[int, int]
"""The number of a loop's label, and of its last jump."""


def each_loop(ptx: str, changed: Callable[[Lines, Loop], Lines]) -> str:
    """PTX whose loops of multiply-adds are changed, one after the other, inner ones first."""
    lines, done = ptx.splitlines(), set[str]()
    while (loop := next((one for one in _loops(lines) if lines[one[0]] not in done), None)) is not None:
        done.add(lines[loop[0]])
        lines = changed(lines, loop)
    return "\n".join([*lines, ""]) if done else ptx


def _loops(lines: Lines) -> list[Loop]:
    """Loops with that many multiply-adds, the shortest first, which is innermost."""
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


def given_where(lines: Lines, inside: int) -> dict[str, list[int]]:
    """The lines that give each register of the function that a line is in, whose registers are its own."""
    given: dict[str, list[int]] = defaultdict(list)
    for number in _function(lines, inside):
        if (result := _RESULT.match(lines[number])) is not None:
            for register in _REGISTER.findall(result[1]):
                given[register].append(number)
    return given


def _function(lines: Lines, inside: int) -> range:
    starts = [number for number, line in enumerate(lines) if _FUNCTION.search(line)]
    first = max((number for number in starts if number <= inside), default=0)
    return range(first, min((number for number in starts if number > inside), default=len(lines)))


def outside_assembly(lines: Lines, loop: Loop) -> Iterator[int]:
    """The lines of a loop but those of inline assembly."""
    first, last = loop
    inside = False
    for number in range(first, last + 1):
        inside = "begin inline asm" in lines[number] or (inside and "end inline asm" not in lines[number])
        if not inside:
            yield number
