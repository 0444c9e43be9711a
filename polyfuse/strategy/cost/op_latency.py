"""Price a body's arithmetic on a CPU in additions: a division or an exponential takes as long as many of them.

exp(x - m)      2 operations, as long as 1 + 17 additions of float32 numbers on vector lanes

What a function takes is the machine's (machine/functions.py), so that a body's operations are counted before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import sympy

from polyfuse.ir.scalar import own_operations
from polyfuse.machine.functions import FUNCTIONS, NAMES, Functions

_OF_LIBM = (
    *("tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"),
    *("Expm1", "Log1p", "Log2", "Log10"),
)


@dataclass(frozen=True)
class Operations:
    """The operations of a body, or of many instances of it: those that take as long as an addition, and functions."""

    plain: float
    functions: tuple[tuple[str, float], ...] = ()
    itemsize: int = 4

    def times(self, instances: float, combined: bool = False) -> Operations:
        """Return those of so many instances, each with one more where it is combined with what was there."""
        functions = tuple((name, instances * times) for name, times in self.functions)
        return replace(self, plain=instances * (self.plain + combined), functions=functions)

    def effort(self, functions: Functions = FUNCTIONS) -> float:
        """Return the additions that take as long."""
        return self.plain + sum(n * functions.cost(name, self.itemsize) for name, n in self.functions)


NONE = Operations(0.0)
"""No operations: a statement that only copies."""


def operations_of(body: sympy.Basic, itemsize: int) -> Operations:
    """Return the operations of a body on numbers of so many bytes."""
    plain, functions = 0, Counter[str]()
    for node in _nodes(body):
        name = _called(node)
        if name is None:
            plain += own_operations(node)
        else:
            functions[name] += 1
    return Operations(
        float(plain), tuple((name, float(n)) for name, n in sorted(functions.items())), itemsize
    )


def effort(body: sympy.Basic, itemsize: int, functions: Functions = FUNCTIONS) -> float:
    """Return a body's operations, each as many as take as long."""
    return operations_of(body, itemsize).effort(functions)


def _nodes(body: sympy.Basic) -> Iterator[sympy.Basic]:
    """A body and all that is in it but what is made of numbers alone, which is one."""
    if body.args and body.is_number:
        return
    yield body
    for arg in body.args:
        yield from _nodes(arg)


def _called(node: sympy.Basic) -> str | None:
    """The function that a node calls, of those that have a cost: a / b is a product of a and b ** -1.

    >>> x = sympy.Symbol("x")
    >>> [_called(node) for node in (1 / x, sympy.sqrt(x), x**2, x**1.5, sympy.exp(x), sympy.tan(x))]
    ['division', 'sqrt', None, 'power', 'exp', 'libm']
    """
    if not isinstance(node, sympy.Pow) or isinstance(node, sympy.exp):
        name = type(node).__name__
        return name if name in NAMES else "libm" if name in _OF_LIBM else None
    by = node.args[1]
    if by == -1:
        return "division"
    if by == sympy.Rational(1, 2):
        return "sqrt"
    return None if isinstance(by, sympy.Integer) else "power"
