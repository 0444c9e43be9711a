"""The cost of functions on a core, in additions: a division or an exponential takes as long as many of them."""

from __future__ import annotations

from dataclasses import dataclass, fields

Additions = tuple[float, float]
"""Additions of 4-byte and of 8-byte numbers."""


@dataclass(frozen=True)
class Functions:
    """The cost of each function in additions of 4-byte and of 8-byte numbers, as loops reach them.

    y[j] += f(x[j] * s) less y[j] += x[j] * s, both in L1, on vectors of 64 bytes. By default those of one core of a
    Xeon at 2.6 GHz, where an addition is 0.012 and 0.024 ns; `libm` are functions that are calls of it, which count as
    much as sin there, unmeasured. A division is besides the product that it stands in.
    """

    division: Additions = (9.0, 18.0)
    sqrt: Additions = (13.0, 30.0)
    exp: Additions = (17.0, 24.0)
    log: Additions = (27.0, 31.0)
    tanh: Additions = (28.0, 38.0)
    erf: Additions = (35.0, 91.0)
    sin: Additions = (114.0, 296.0)
    cos: Additions = (114.0, 296.0)
    power: Additions = (106.0, 133.0)
    libm: Additions = (114.0, 296.0)

    def cost(self, name: str, itemsize: int) -> float:
        """Return the cost of a function in additions of numbers of so many bytes."""
        found: Additions = getattr(self, name)
        return found[itemsize > 4]


FUNCTIONS = Functions()
"""The costs of functions on a machine whose own are not known: those of a Xeon at 2.6 GHz."""

NAMES = tuple(field.name for field in fields(Functions))
"""The functions that have a cost of their own, and `libm`."""
