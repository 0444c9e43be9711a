"""One of two plans for a nest: the cheaper by the model, with both numbers."""

from __future__ import annotations

from dataclasses import replace

from polyfuse.strategy.cost.roofline import microseconds
from polyfuse.strategy.plan import Plan


def either(
    usual: Plan, other: Plan, usually: float, so: float, said: tuple[str, ...], otherwise: str
) -> Plan:
    """Of two plans the one of fewer seconds, with what the other one does in words and both numbers."""
    numbers = f"{microseconds(so)} so, {microseconds(usually)} {otherwise}"
    if so >= usually:
        refused = (f"not taken: {line}; {numbers}." for line in said)
        return replace(usual, recomputed=(*usual.recomputed, *refused))
    return replace(other, recomputed=(*other.recomputed, *(f"{line}: {numbers}." for line in said)))
