"""Price a body's arithmetic on a CPU in additions: a division or an exponential takes as long as many of them.

exp(x - m)      2 operations, as long as 1 + 17 additions of float32 numbers on vector lanes
"""

from __future__ import annotations

from collections.abc import Mapping

import sympy

from polyfuse.ir.scalar import own_operations

_OF_LIBM = ("Expm1", "Log1p", "Log2", "Log10")
COSTS: Mapping[str, tuple[float, float]] = {
    "division": (9.0, 18.0),  # and one for the product that it stands in
    "sqrt": (13.0, 30.0),
    "exp": (17.0, 24.0),
    "log": (27.0, 31.0),
    "tanh": (28.0, 38.0),
    "erf": (35.0, 91.0),
    "sin": (114.0, 296.0),
    "cos": (114.0, 296.0),
    "power": (106.0, 133.0),
    **dict.fromkeys(
        (*("tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"), *_OF_LIBM),
        (114.0, 296.0),
    ),
}
"""The cost of each function in additions of 4-byte and of 8-byte numbers, as loops reach them: y[j] += f(x[j] * s)
less y[j] += x[j] * s, both in L1, on vectors of 64 bytes (one core of a Xeon, 2.6 GHz; 0.012 and 0.024 ns for one).
Functions from tan on are calls of libm, which count as much as sin, unmeasured."""


def effort(body: sympy.Basic, itemsize: int) -> float:
    """A body's operations, each as many as take as long."""
    return own_effort(body, itemsize) + sum(effort(arg, itemsize) for arg in body.args)


def own_effort(node: sympy.Basic, itemsize: int) -> float:
    """The same of a body's outermost node alone."""
    costs = COSTS.get(_called(node))
    return float(own_operations(node)) if costs is None else costs[itemsize > 4]


def _called(node: sympy.Basic) -> str:
    """A function's name, and what a power is: a / b is a product of a and b ** -1.

    >>> x = sympy.Symbol("x")
    >>> [_called(node) for node in (1 / x, sympy.sqrt(x), x**2, x**1.5, sympy.exp(x))]
    ['division', 'sqrt', 'Pow', 'power', 'exp']
    """
    if not isinstance(node, sympy.Pow) or isinstance(node, sympy.exp):
        return type(node).__name__
    by = node.args[1]
    if by == -1:
        return "division"
    if by == sympy.Rational(1, 2):
        return "sqrt"
    return "Pow" if isinstance(by, sympy.Integer) else "power"
