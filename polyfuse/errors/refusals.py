"""Refusals as values: the step that was refused, the reason, and two instances that show it.

A `Violation` refuses a schedule's step, a `Refusal` a rewrite. Errors carry them (polyfuse.errors).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from polyfuse.errors.viewed import Viewed


@dataclass(frozen=True)
class Instance:
    """One execution of a statement: mac0[0, 3, 7]."""

    statement: str
    point: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.statement}[{', '.join(map(str, self.point))}]"


@dataclass(frozen=True)
class Violation(Viewed):
    """A refused step of a schedule: the dependence that forbids it, and two instances that show it.

    Attributes:
        verb: The step that was asked for.
        kind: The dependence's kind: "flow", "anti", "output" or "reduction".
        source: The instance that must run before `sink` (for kind "reduction": not at the same time as it).
        sink: The instance that depends on `source`.
        why: How the refused schedule breaks this.
        remedy: How to make the step legal.
        sizes: Values of symbolic sizes for which the two instances exist.
    """

    verb: str
    kind: str
    source: Instance
    sink: Instance
    why: str
    remedy: str
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def statements(self) -> tuple[str, str]:
        """The names of the two statements."""
        return self.source.statement, self.sink.statement

    def __repr__(self) -> str:
        return f"<Violation: {self.verb} breaks the {self.kind} dependence {self.source} -> {self.sink}>"

    def __str__(self) -> str:
        known = ", ".join(f"{n} = {v}" for n, v in self.sizes.items())
        sizes = f" with {known}" if known else ""
        return (
            f"{self.verb} is refused: it would break the {self.kind} dependence {self.source} -> {self.sink}{sizes}: "
            f"{self.why}. To make it legal: {self.remedy}."
        )


@dataclass(frozen=True)
class Refusal:
    """A rewrite that would change values, or that does not apply.

    Attributes:
        rewrite: The rewrite that was asked for.
        why: The reason.
        remedy: What to do instead.
        instances: Two instances that show the reason, if two can.
        sizes: Values of symbolic sizes for which the instances exist.
    """

    rewrite: str
    why: str
    remedy: str
    instances: tuple[Instance, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        shown = f" ({', '.join(map(str, self.instances))})" if self.instances else ""
        return f"{self.rewrite} is refused: {self.why}{shown}. Needed: {self.remedy}."
