"""Interval analysis of index expressions, given the loops around them."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """The numbers from `low` to `high`, both among them; None if no bound is known.

    >>> Interval(0, 3) + Interval(1, None)
    Interval(low=1, high=None)
    """

    low: int | None = None
    high: int | None = None

    @property
    def value(self) -> int | None:
        """The number, if it is the only one."""
        return self.low if self.low == self.high else None

    def __add__(self, other: Interval) -> Interval:
        return Interval(_sum(self.low, other.low), _sum(self.high, other.high))

    def __neg__(self) -> Interval:
        return Interval(_scaled(self.high, -1), _scaled(self.low, -1))

    def around(self, other: Interval) -> Interval:
        """The smallest interval with both in it."""
        low = None if self.low is None or other.low is None else min(self.low, other.low)
        high = None if self.high is None or other.high is None else max(self.high, other.high)
        return Interval(low, high)

    def times(self, number: int) -> Interval:
        """Each number times a constant."""
        ends = _scaled(self.low, number), _scaled(self.high, number)
        return Interval(*(ends if number >= 0 else reversed(ends)))


Ranges = Mapping[str, Interval]
"""The values of loop variables."""


def interval(node: ast.expr, ranges: Ranges) -> Interval:
    """The smallest interval that the expression's form shows.

    >>> node = ast.parse("max(0, 1 - 14*j)", mode="eval").body
    >>> interval(node, {"j": Interval(0, 1)})
    Interval(low=0, high=1)
    """

    def of(part: ast.expr) -> Interval:
        return interval(part, ranges)

    match node:
        case ast.Constant(value=int(number)):
            return Interval(number, number)
        case ast.Name(id=name):
            return ranges.get(name, Interval())
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -of(operand)
        case ast.BinOp(left, ast.Add(), right):
            return of(left) + of(right)
        case ast.BinOp(left, ast.Sub(), right):
            return of(left) + -of(right)
        case ast.BinOp(left, ast.Mult(), right):
            return _product(of(left), of(right))
        case ast.BinOp(left, ast.FloorDiv(), ast.Constant(int(number))) if number > 0:
            every = of(left)
            return Interval(*(None if end is None else end // number for end in (every.low, every.high)))
        case ast.BinOp(_, ast.Mod(), ast.Constant(int(number))) if number > 0:
            return Interval(0, number - 1)
        case ast.BinOp(_, ast.BitAnd(), ast.Constant(int(number))) if number >= 0:
            return Interval(0, number)
        case ast.BinOp(left, ast.BitOr(), right):
            return _bits_of(of(left), of(right))
        case ast.BinOp(left, ast.RShift(), ast.Constant(int(number))) if number >= 0:
            every = of(left)
            return Interval(*(None if end is None else end >> number for end in (every.low, every.high)))
        case ast.Call(func=ast.Name(id="max"), args=args):
            return _largest([of(part) for part in args])
        case ast.Call(func=ast.Name(id="min"), args=args):
            return -_largest([-of(part) for part in args])
    return Interval()


def _product(a: Interval, b: Interval) -> Interval:
    """The bounds of a product if one of its factors is a single number."""
    if a.value is not None:
        return b.times(a.value)
    return Interval() if b.value is None else a.times(b.value)


def _bits_of(a: Interval, b: Interval) -> Interval:
    """The bits of two natural numbers together: at least the larger one, and no higher bit than either has.

    >>> _bits_of(Interval(0, 2), Interval(0, 1))
    Interval(low=0, high=3)
    """
    if a.low is None or b.low is None or min(a.low, b.low) < 0:
        return Interval()
    high = None if a.high is None or b.high is None else (1 << max(a.high, b.high).bit_length()) - 1
    return Interval(max(a.low, b.low), high)


def _largest(parts: list[Interval]) -> Interval:
    lows = [part.low for part in parts if part.low is not None]
    highs = [part.high for part in parts]
    known = [high for high in highs if high is not None]
    return Interval(max(lows, default=None), max(known) if len(known) == len(highs) else None)


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _scaled(a: int | None, number: int) -> int | None:
    return None if a is None else a * number
