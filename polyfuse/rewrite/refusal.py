"""Refused rewrites, as values: what was asked, why not, the instances that show it, and what would do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import islpy as isl

from polyfuse.ir import Instance
from polyfuse.sets import first_pair, tuple_names


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


def refused(rewrite: str, why: str, remedy: str, pairs: isl.Map | None = None) -> Refusal:
    """A refusal with the first of the pairs of instances that show it."""
    found = first_pair(pairs) if pairs is not None else None
    if pairs is None or found is None:
        return Refusal(rewrite, why, remedy)
    sizes, *points = found
    instances = (Instance(n, p) for n, p in zip(tuple_names(pairs), points, strict=True))
    return Refusal(rewrite, why, remedy, tuple(instances), sizes)
