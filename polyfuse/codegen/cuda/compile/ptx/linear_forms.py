"""Express the registers of a PTX loop as linear forms of its counters and loop-invariant registers.

    $L:
      shl.b64 %rd1, %rd9, 13;                8192 * %rd9
      or.b64 %rd2, %rd1, %rd3;               8192 * %rd9 + %rd3          if %rd3 is below 8192
      mad.lo.s64 %rd4, %rd2, 2, 6;           16384 * %rd9 + 2 * %rd3 + 6
      …
      add.s64 %rd9, %rd9, 1;                 a counter

Modulo 2**64, as a processor computes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from polyfuse.codegen.cuda.compile.ptx.ptx_loops import Lines, Loop, given_where, outside_assembly
from polyfuse.codegen.cuda.compile.ptx.value_bounds import most_of

_LINEAR = re.compile(r"\s*(mov|add|sub|neg|shl|mul\.lo|mad\.lo|or)\.[bsu]64\s+(%rd\d+), ([^|@\[{]*);$")
_ADVANCE = re.compile(r"\s*add\.s64\s+(%rd\d+), \1, (-?\d+);$")
_NUMBER = re.compile(r"-?\d+")


@dataclass(frozen=True, slots=True)
class Sum:
    """Multiples of registers and a number: `of[r] * r + … + number`."""

    of: Mapping[str, int]
    number: int = 0

    def plus(self, other: Sum, times: int = 1) -> Sum:
        """The sum of this and a multiple of another.

        >>> Sum({"%rd1": 2}, 6).plus(Sum({"%rd1": 1, "%rd2": 1}), -2)
        Sum(of={'%rd2': -2}, number=6)
        """
        terms = {r: self.of.get(r, 0) + times * other.of.get(r, 0) for r in (*self.of, *other.of)}
        return Sum({r: factor for r, factor in terms.items() if factor}, self.number + times * other.number)

    def is_multiple_of(self, number: int) -> bool:
        """True if each part is."""
        return all(part % number == 0 for part in (*self.of.values(), self.number))


NOTHING = Sum({})


@dataclass(frozen=True)
class Sums:
    """The sums of a loop's registers that are given once: what each is, in which line, and how far from a counter."""

    lines: Lines
    loop: Loop
    given: Mapping[str, list[int]]
    counters: Mapping[str, tuple[int, int]]
    """The line that adds to a counter, and how much: the only one of the loop that gives it."""
    of: dict[str, Sum] = field(default_factory=dict)
    where: dict[str, int] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    """The length of the longest chain of instructions from a counter to a register."""

    def note(self, number: int) -> None:
        """Take what a line gives, if that is a sum; lines come in their order."""
        match = _LINEAR.match(self.lines[number])
        if match is None or len(self.given[match[2]]) != 1:
            return
        operation, register, text = match.groups()
        operands = text.split(", ")
        found = self._result(operation, operands)
        if found is not None:
            self.of[register], self.where[register] = found, number
            before = max(self.steps.get(operand, 0) for operand in operands)
            self.steps[register] = before + self.runs(register)

    def runs(self, register: str) -> bool:
        """True if a sum depends on a counter."""
        return any(counter in self.of[register].of for counter in self.counters)

    def _result(self, operation: str, operands: list[str]) -> Sum | None:
        values = [value for operand in operands if (value := self._value(operand)) is not None]
        if len(values) < len(operands):
            return None
        factor = values[1] if len(values) > 1 and not values[1].of else None
        match operation, values:
            case "mov", [one]:
                return one
            case "neg", [one]:
                return NOTHING.plus(one, -1)
            case "add", [left, right]:
                return left.plus(right)
            case "sub", [left, right]:
                return left.plus(right, -1)
            case "shl", [one, _] if factor and 0 <= factor.number < 64:
                return NOTHING.plus(one, 1 << factor.number)
            case "mul.lo", [one, _] if factor:
                return NOTHING.plus(one, factor.number)
            case "mad.lo", [one, _, more] if factor:
                return more.plus(one, factor.number)
            case "or", [left, right] if self._apart(left, operands[1]) or self._apart(right, operands[0]):
                return left.plus(right)
        return None

    def _value(self, operand: str) -> Sum | None:
        """An operand as a sum: of a number, a known sum, a counter, or a loop-invariant register; else None."""
        if _NUMBER.fullmatch(operand):
            return Sum({}, int(operand))
        if operand in self.of:
            return self.of[operand]
        where = self.given[operand] if operand.startswith("%rd") else []
        stays = bool(where) and not any(self.loop[0] <= number <= self.loop[1] for number in where)
        return Sum({operand: 1}) if stays or operand in self.counters else None

    def _apart(self, one: Sum, other: str) -> bool:
        """True if as many of a sum's lowest bits as another operand has at most are zeros."""
        most = self._most(other)
        return most is not None and one.is_multiple_of(1 << most.bit_length())

    def _most(self, operand: str) -> int | None:
        """The largest number that an operand can be; of registers, of those that one line alone gives."""
        if _NUMBER.fullmatch(operand):
            return int(operand) if int(operand) >= 0 else None
        where = self.given[operand] if operand.startswith("%") else []
        return most_of(self.lines[where[0]], self._most) if len(where) == 1 else None


def sums_in(lines: Lines, loop: Loop) -> Sums:
    """The sums of a loop."""
    given = given_where(lines, loop[0])
    sums = Sums(lines, loop, given, dict(_counters(lines, loop, given)))
    for number in outside_assembly(lines, loop):
        sums.note(number)
    return sums


def _counters(lines: Lines, loop: Loop, given: Mapping[str, list[int]]) -> list[tuple[str, tuple[int, int]]]:
    """Registers that have a value before a loop, to which it adds a number in one line and does nothing else."""
    found = []
    for register, where in given.items():
        inside = [number for number in where if loop[0] <= number <= loop[1]]
        if len(inside) == 1 and len(where) > 1:
            step = _ADVANCE.match(lines[inside[0]])
            if step is not None and step[1] == register:
                found.append((register, (inside[0], int(step[2]))))
    return found
