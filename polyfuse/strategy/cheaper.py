"""One of two plans for a nest: the cheaper by the model, with both numbers."""

from __future__ import annotations

from polyfuse.strategy.cost.roofline import microseconds
from polyfuse.strategy.plan import Plan
from polyfuse.strategy.remarks import weighed


def cheaper_of(
    pass_: str, usual: Plan, other: Plan, usually: float, so: float, done: tuple[str, ...], otherwise: str
) -> Plan:
    """The one of two plans that takes fewer seconds, with a remark on each thing that the other one has done."""
    numbers = f"{microseconds(so)} so, {microseconds(usually)} {otherwise}"
    if so >= usually:
        lines = (f"not taken: {line}; {numbers}." for line in done)
        return usual.with_remarks(*(weighed(pass_, (), False, line, so, usually) for line in lines))
    lines = (f"{line}: {numbers}." for line in done)
    return other.with_remarks(*(weighed(pass_, (), True, line, so, usually) for line in lines))
