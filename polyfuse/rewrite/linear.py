"""Bodies as linear functions of one value: scale · u + offset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sympy

from polyfuse.ir.scalar import add, mul, substitute

ONE, ZERO = sympy.Integer(1), sympy.Integer(0)


@dataclass(frozen=True)
class Linear:
    """scale · u + offset; neither holds u."""

    scale: sympy.Basic
    offset: sympy.Basic

    @staticmethod
    def identity() -> Linear:
        """u itself."""
        return Linear(ONE, ZERO)

    def after(self, inner: Linear) -> Linear:
        """This function of another one's value: s·(s'·u + o') + o  ->  (s·s')·u + (s·o' + o)."""
        return Linear(_times(self.scale, inner.scale), _plus(_times(self.scale, inner.offset), self.offset))

    def renamed(self, leaves: Mapping[sympy.Basic, sympy.Basic]) -> Linear:
        """The same with leaves replaced."""
        return Linear(substitute(self.scale, leaves), substitute(self.offset, leaves))


def linear_in(body: sympy.Basic, leaf: sympy.Basic) -> Linear | None:
    """A body as a linear function of one of its leaves; None if it is none.

    >>> from polyfuse.ir.scalar import read
    >>> linear_in(add(mul(read(0), read(1)), read(2)), read(0))
    Linear(scale=read1, offset=read2)
    >>> linear_in(mul(read(0), read(0)), read(0))
    """
    if body == leaf:
        return Linear.identity()
    if leaf not in body.free_symbols:
        return Linear(ZERO, body)
    if isinstance(body, sympy.Add):
        terms = [linear_in(term, leaf) for term in body.args]
        total = Linear(ZERO, ZERO)
        for term in terms:
            if term is None:
                return None
            total = Linear(_plus(total.scale, term.scale), _plus(total.offset, term.offset))
        return total
    if isinstance(body, sympy.Mul):
        holding = [arg for arg in body.args if leaf in arg.free_symbols]
        inner = linear_in(holding[0], leaf) if len(holding) == 1 else None
        if inner is None:
            return None
        scale: sympy.Basic = ONE
        for arg in body.args:
            scale = scale if arg is holding[0] else _times(scale, arg)
        return Linear(scale, ZERO).after(inner)
    return None


def _times(a: sympy.Basic, b: sympy.Basic) -> sympy.Basic:
    """a · b, where factors of 1 and 0 are known."""
    if a == ZERO or b == ZERO:
        return ZERO
    return b if a == ONE else a if b == ONE else mul(a, b)


def _plus(a: sympy.Basic, b: sympy.Basic) -> sympy.Basic:
    """a + b, where a 0 is known."""
    return b if a == ZERO else a if b == ZERO else add(a, b)
