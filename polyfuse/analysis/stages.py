"""Multi-stage buffers: they hold the elements of several iterations of their loop, one stage for each.

    for k: { copy x[k]; use x[k] }                x in one stage
    for k: { copy x[k + 1]; use x[k] }            x in two: tile k + 1 arrives in one while tile k is used in the other

An element's *home* is the last iteration that accesses it, and its stage is home mod S. What nobody reads has the home
of what is read, where that is no further away: panels are filled up with zeros, and are one stage. The theorem:

  If the loop runs in order and every access to an element happens in the S iterations that end at its home, two
  elements in one cell are never needed at once: their homes are S apart or more, so the iterations that access the one
  are over before the first that accesses the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import islpy as isl

from polyfuse.analysis.legality import Broken
from polyfuse.ir.access import Access
from polyfuse.ir.nest import Nest
from polyfuse.ir.statement import Statement
from polyfuse.ir.tree import Buffer, Loop, statements
from polyfuse.sets import greatest, least, pairs_where


def touching(nest: Nest, loop: Loop, tensor: str) -> tuple[Statement, ...]:
    """The statements inside a loop that access a tensor."""
    inside = (nest.statement(name) for name in statements(loop))
    return tuple(s for s in inside if tensor in s.tensors)


def home(nest: Nest, loop: Loop, tensor: str) -> isl.PwAff:
    """{ element -> the last value of the loop at which it is accessed }.

    for k: { copy[k + 1]: t[k + 1] = …;  use[k]: … t[k] }   ->   { t[k] -> k }
    """
    dates = [
        (access is nest.statement(name).write, date) for name, access, _, date in _dated(nest, loop, tensor)
    ]
    when = reduce(isl.Map.union, (date for _, date in dates)).coalesce()
    last = when.dim_max(0).gist(when.domain()).coalesce()
    read = [date for written, date in dates if not written]
    stages = next((buffer.stages for buffer in loop.buffers if buffer.tensor == tensor), 1)
    if stages == 1 or not read or last.n_piece() == 1:
        return last
    of_read = reduce(isl.Map.union, read).coalesce()
    there = of_read.dim_max(0).gist(of_read.domain())
    waits = there.sub(when.dim_min(0))
    near_enough = greatest(waits).lt(isl.Val(stages)) and least(there.sub(last)).is_nonneg()
    return there if when.domain().is_subset(there.domain()) and near_enough else last


def _dated(nest: Nest, loop: Loop, tensor: str) -> Iterator[tuple[str, Access, isl.Map, isl.Map]]:
    """(statement, access, { instance -> element }, { element -> the loop's value }) for each access to a tensor."""
    for s in touching(nest, loop, tensor):
        for access in s.accesses:
            if access.tensor == tensor:
                here = access.map.intersect_domain(nest.domains[s.name])
                yield s.name, access, here, here.reverse().apply_range(loop.date(s.name).as_map())


def crowded(nest: Nest, loop: Loop, buffer: Buffer) -> Broken | None:
    """Instances that access an element so far apart that its stage is given away in between; None if there are none."""
    if buffer.stages == 1:
        return None
    accesses = [(name, here) for name, _, here, _ in _dated(nest, loop, buffer.tensor)]
    for source, first in accesses:
        for sink, second in accesses:
            pairs = first.apply_range(second.reverse())
            later = pairs.intersect(pairs_where(loop.date(source), "<", loop.date(sink)))
            far = later.subtract(near(loop.date(source), loop.date(sink), buffer.stages))
            if not far.is_empty():
                why = (
                    f"{buffer.tensor} has {buffer.stages} stages, and the two instances are more iterations of "
                    f"{loop.name} apart"
                )
                return Broken("reuse", far, why, "promote it with more stages, or shift its statements less")
    return None


def near(source: isl.PwAff, sink: isl.PwAff, stages: int) -> isl.Map:
    """{ source -> sink : the same iteration, or less than so many apart }."""
    if stages == 1:
        return pairs_where(source, "=", sink)
    most = isl.Val(stages - 1)
    early, late = source.add_constant_val(most), sink.add_constant_val(most)
    return source.le_map(late).intersect(early.ge_map(sink))
