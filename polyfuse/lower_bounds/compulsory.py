"""What has to be moved once: the values that statements find in slow memory, and those that they leave there."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import islpy as isl

from polyfuse.ir.access import Access
from polyfuse.ir.nest import Nest
from polyfuse.ir.statement import Statement
from polyfuse.lower_bounds.accesses import may_skip, needed
from polyfuse.lower_bounds.cardinality import cardinality


@dataclass(frozen=True)
class Moved:
    """The elements of a tensor that statements load and store at least."""

    loads: int
    stores: int

    @property
    def elements(self) -> int:
        """Loads and stores."""
        return self.loads + self.stores


def compulsory(nest: Nest, inside: Collection[str]) -> dict[str, Moved]:
    """Return, by tensor, the elements that some statements must load and store, whatever their order.

    Nothing is in fast memory before they run or after. Loads are elements whose value the caller or another statement
    made; stores are elements of results, and those that another statement reads.

    Args:
        nest: A nest without sizes.
        inside: The statements.
    """
    statements = [nest.statement(name) for name in inside]
    tensors = dict.fromkeys(tensor for s in statements for tensor in s.tensors)
    return {tensor: _moved(nest, tensor, statements) for tensor in tensors}


def _moved(nest: Nest, tensor: str, statements: Iterable[Statement]) -> Moved:
    inside = {s.name for s in statements}
    role = nest.tensor(tensor).role
    if role == "gathered":
        return Moved(0, 0)
    found = [from_caller(nest, s, tensor) for s in statements if role in ("input", "inout", "constant")]
    brought = [each for each in found if each is not None]
    left: list[isl.Set] = []
    written = [s for s in statements if s.write.tensor == tensor and not may_skip(s)]
    if role in ("output", "inout"):
        left = [nest.domains[s.name].apply(s.write.map) for s in written]
    for writer in nest.writers(tensor):
        for pair in nest.dependences().after(writer.name):
            crosses = pair.is_value and (writer.name in inside) is not (pair.sink in inside)
            sink = nest.statement(pair.sink)
            if not crosses or may_skip(writer) or all(read.tensor != tensor for read in _reads(sink)):
                continue
            elements = pair.map.domain().apply(writer.write.map)
            (left if writer.name in inside else brought).append(elements)
    return Moved(least_union(brought), least_union(left))


def _reads(statement: Statement) -> tuple[Access, ...]:
    """The accesses whose value each instance needs; that of a reduction needs its target's."""
    own = (statement.write,) if statement.is_reduction and not may_skip(statement) else ()
    return (*own, *needed(statement))


def from_caller(nest: Nest, statement: Statement, tensor: str) -> isl.Set | None:
    """The elements of a tensor of which a statement reads the value that the caller gave; None if it reads none."""
    domain = nest.domains[statement.name]
    reads = [a.map.intersect_domain(domain) for a in _reads(statement) if a.tensor == tensor]
    if not reads:
        return None
    left = reads[0]
    for more in reads[1:]:
        left = left.union(more)
    for writer in nest.writers(tensor):
        for pair in nest.dependences().after(writer.name):
            if pair.is_value and pair.sink == statement.name:
                left = left.subtract(pair.map.reverse().apply_range(writer.write.map))
    return left.range()


def least_union(sets: list[isl.Set]) -> int:
    """The number of points in a union; where it is not counted, the most that one of the sets is known to have."""
    filled = [one for one in sets if not one.is_empty()]
    if not filled:
        return 0
    whole = filled[0]
    for more in filled[1:]:
        whole = whole.union(more)
    found = cardinality(whole)
    if found is not None:
        return found
    return max((cardinality(one) or 0 for one in filled), default=0)
