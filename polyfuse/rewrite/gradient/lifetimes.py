"""Which values a nest overwrites, asked of its dependences.

A tensor is *settled* if every read of an element finds its last value: no element is written again after it was read,
and none is assigned twice. Its values are still there when the backward pass begins, and its adjoint is never reset.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from polyfuse.ir import Nest, Statement
from polyfuse.ir.dependences import Pairs
from polyfuse.sets import IN


@dataclass(frozen=True)
class Lifetimes:
    """Answers about the values of one nest."""

    nest: Nest

    @cached_property
    def _overwriting(self) -> tuple[tuple[str, Pairs], ...]:
        """The pairs by which a value is lost, with their tensor: anti, and output into an assignment."""
        nest = self.nest
        found = []
        for pair in nest.dependences().pairs:
            sink = nest.statement(pair.sink)
            if pair.kind == "anti" or (pair.kind == "output" and not sink.is_reduction):
                found.append((sink.write.tensor, pair))
        return tuple(found)

    @cached_property
    def _in_place(self) -> frozenset[tuple[str, str]]:
        """Statements that read, in some instance, the element which this instance writes; with the tensor."""
        found = set()
        for s in self.nest.statements:
            for access in s.reads:
                if access.tensor == s.write.tensor and meets(s, access.map, s.write.map):
                    found.add((s.name, access.tensor))
        return frozenset(found)

    def settled(self, tensor: str) -> bool:
        """True if every reader of the tensor finds last values."""
        return not any(name == tensor for name, _ in self._overwriting) and not any(
            name == tensor for _, name in self._in_place
        )

    def survives(self, statement: str, tensor: str) -> bool:
        """True if what a statement reads of a tensor stays there to the end of the nest."""
        return (statement, tensor) not in self._in_place and not any(
            name == tensor and pair.kind == "anti" and pair.source == statement
            for name, pair in self._overwriting
        )

    def is_last(self, s: Statement) -> bool:
        """True if what a statement writes stays there to the end of the nest."""
        return not any(
            p.kind == "output"
            and p.source == s.name
            and self.nest.statement(p.sink).write.tensor == s.write.tensor
            for p in self.nest.dependences().pairs
        )

    def resets(self, s: Statement) -> bool:
        """True if an assignment ends the life of an earlier value, whose adjoint begins at 0."""
        return not s.is_reduction and any(pair.sink == s.name for _, pair in self._overwriting)


def meets(s: Statement, first: object, second: object) -> bool:
    """True if two accesses of a statement are of one element in some instance."""
    same = first.intersect(second.set_tuple_name(IN, s.name))  # type: ignore[attr-defined]
    return not same.intersect_domain(s.domain).is_empty()
