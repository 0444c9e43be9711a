"""Refusals as values: what was asked, why it is refused, and two instances that show it.

A `Violation` refuses a schedule's step, a `Refusal` a rewrite. Errors carry them (polyfuse.errors).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Instance:
    """One execution of a statement: mac0[0, 3, 7]."""

    statement: str
    point: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.statement}[{', '.join(map(str, self.point))}]"


@dataclass(frozen=True)
class Violation:
    """A refused step: what was asked, which dependence forbids it, and two instances that show it.

    `source` must run before `sink` (or, for kind "reduction", not at the same time as it); under the refused
    schedule it does not. `why` says in which way, `remedy` what would make the step legal.
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

    def __str__(self) -> str:
        known = ", ".join(f"{n} = {v}" for n, v in self.sizes.items())
        sizes = f" with {known}" if known else ""
        return (
            f"{self.verb} is refused: the {self.kind} dependence {self.source} -> {self.sink}{sizes} "
            f"would be broken: {self.why}. What would make it legal: {self.remedy}."
        )


@dataclass(frozen=True)
class Refusal:
    """A rewrite that would change values, or that is not defined here. `instances` show it where two of them can."""

    rewrite: str
    why: str
    remedy: str
    instances: tuple[Instance, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        shown = f" ({', '.join(map(str, self.instances))})" if self.instances else ""
        return f"{self.rewrite} is refused: {self.why}{shown}. What would do: {self.remedy}."
