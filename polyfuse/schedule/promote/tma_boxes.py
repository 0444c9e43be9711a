"""Bulk copies (TMA) of a box of a tensor to shared memory, by one instruction of one thread.

    for e0 (bulk, of 64): for e1 (of 64): x_shared[to + 64 * e0 + e1] = x[i + e0, k + e1]
    ->  copy_bulk(8192, x_shared, to, x_boxes, i, k, …)                     PTX's cp.async.bulk.tensor

The tensor's map (tensor_maps.py) says what a box is, the call where it begins. That is a copy of what the loops
copy iff each loop moves along one axis, as far as the box reaches: { [loops around] -> subscript - loop } is
single-valued for each axis, and { [loops around] -> place - distance in the box } is, at a multiple of 1024 bytes. A
tile that is cut short is a box all the same: nobody reads what lies beyond, which is zero beyond the tensor.

The copy goes on while threads do other things, and counts its bytes on a barrier of its own in shared memory, one of
as many as there may be groups on their way. A thread waits there where it waits for others (async_copy_groups.py):

    copies of iteration d, group n        expect bytes on barrier n mod S, copy                        one thread
    the iteration's end                   arrive at barrier n mod S                                    one thread
                                          wait for barrier (n - open) mod S, parity ((n - open) // S) mod 2     all

What it brings is there for tensor cores without being shown to them: both are of the asynchronous proxy.

Blocks of a cluster that copy the same box copy a part of it each, which all get (multicast_boxes.py).

A loop bound to "bulk.warp" is run by a warp that only copies. It needs no iterations between a copy and its use: it
runs ahead as far as there are stages, and hands over what it has copied (producer_consumer.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import islpy as isl

from polyfuse.analysis.storage import ON_THREADS, Geometry
from polyfuse.analysis.vector_access import ACCESS_BYTES, agrees, is_multiple
from polyfuse.errors import InvalidSchedule
from polyfuse.ir.nest import Nest
from polyfuse.ir.scalar import read
from polyfuse.ir.statement import Statement
from polyfuse.ir.tree import OWN_WARP, Loop, Tree, loops_around, statements
from polyfuse.layouts.swizzle import LINE_BYTES, MOST_ALONG, MOST_AXES, WHOLE, SwizzledLayout
from polyfuse.schedule.binding import extent
from polyfuse.schedule.chains import chain_from
from polyfuse.schedule.promote.multicast_boxes import shared_among


@dataclass(frozen=True)
class BulkCopy:
    """A copy of a box: its extents along the tensor's axes.

    One instruction copies it; or, `among` so many blocks along some axes of a cluster, one of each block, a part that
    all get: the box is cut along its first axis.
    """

    box: tuple[int, ...]
    among: tuple[tuple[str, int], ...] = ()

    @property
    def blocks(self) -> int:
        """The number of blocks that copy a part each."""
        return prod(count for _, count in self.among)

    @property
    def cut(self) -> int:
        """The axis along which parts follow each other: the first one along which the box has several values."""
        return next((axis for axis, extent in enumerate(self.box) if extent > 1), 0)

    @property
    def part(self) -> tuple[int, ...]:
        """The extents of what one instruction copies."""
        return tuple(n // self.blocks if axis == self.cut else n for axis, n in enumerate(self.box))


def bulk_copy(
    nest: Nest,
    part: Tree,
    top: Loop,
    geometries: Mapping[str, Geometry],
    ahead: frozenset[str] | None,
) -> tuple[str, BulkCopy]:
    """The statement that a loop bound to "bulk" or "bulk.warp" copies, and its box; InvalidSchedule where it is no such
    copy.

    `ahead` are the copies that something waits for; None if that is asked later.
    """
    chain, names = chain_from(top), statements(top)

    def refuse(why: str) -> InvalidSchedule:
        return InvalidSchedule(f"bind: one instruction cannot run loop {top.name} around {names[0]}: {why}")

    s = nest.statement(names[0])
    held = geometries.get(s.write.tensor)
    if len(names) > 1 or s.op != "=" or s.body != read(0) or held is None:
        raise refuse("it does more than copy a tensor to a buffer")
    tensor, buffer = nest.tensor(s.reads[0].tensor), nest.tensor(s.write.tensor)
    if tensor.name in geometries or tensor.gather is not None or tensor.dtype != buffer.dtype:
        raise refuse(f"{tensor.name} must be stored as contiguous rows of {buffer.dtype}")
    if any(tensor.name == other.write.tensor for other in map(nest.statement, statements(part))):
        raise refuse(f"{tensor.name} is written in the same kernel")
    if len([n for n in statements(part) if nest.statement(n).write.tensor == buffer.name]) > 1:
        raise refuse(f"{buffer.name} has other writers")
    panel = held.buffer.panel
    if not isinstance(held.buffer.layout, SwizzledLayout) or panel is None:
        raise refuse(f"{buffer.name} has no swizzled lines: promote(…, layout=pf.SwizzledLayout())")
    if panel.width * buffer.itemsize != LINE_BYTES:
        raise refuse(f"panels of width {panel.width} are not lines of {LINE_BYTES} bytes")
    if top.bind == OWN_WARP and held.buffer.stages == 1:
        raise refuse(
            f"{buffer.name} has one stage, but a producer warp runs ahead: promote it with more stages"
        )
    if top.bind != OWN_WARP and ahead is not None and s.name not in ahead:
        raise refuse(
            f"{buffer.name} has one stage, so the copy would be waited for immediately: promote it with stages and "
            "shift the copy ahead"
        )
    if any(x.bind in ON_THREADS for x in loops_around(part, s.name)) or any(x.bind for x in chain[1:]):
        raise refuse("several threads share it")
    if not all(isinstance(n, int) for n in tensor.shape[1:]) or not 2 <= tensor.rank <= MOST_AXES:
        raise refuse(f"{tensor.name} must have 2 to {MOST_AXES} axes, all but the first of constant extent")
    for axis in range(1, tensor.rank):
        if prod(n for n in tensor.shape[axis:] if isinstance(n, int)) * tensor.itemsize % ACCESS_BYTES:
            raise refuse(f"rows of {tensor.name} do not start at multiples of {ACCESS_BYTES} bytes")
    box = _box(nest, part, s, chain, held, refuse)
    among = shared_among(nest, part, top, s, held)
    while among and not _in_parts(BulkCopy(box, among), tensor.itemsize):
        among = among[:-1]
    return s.name, BulkCopy(box, among)


def _in_parts(copy: BulkCopy, itemsize: int) -> bool:
    """True if each part of a box starts at whole lines of the buffer, aligned to 1024 bytes."""
    return copy.box[copy.cut] % copy.blocks == 0 and prod(copy.part) * itemsize % WHOLE == 0


def _box(
    nest: Nest,
    part: Tree,
    s: Statement,
    chain: tuple[Loop, ...],
    held: Geometry,
    refuse: Callable[[str], InvalidSchedule],
) -> tuple[int, ...]:
    """A box's extents along the tensor's axes. Raises `refuse` of why where the loops of a chain copy none."""
    domain, tensor = nest.domains[s.name], nest.tensor(s.reads[0].tensor)
    outside = [x.date(s.name) for x in loops_around(part, s.name) if x not in chain]
    element, box = s.reads[0].subscripts(), [1] * tensor.rank
    moved = dict[int, isl.PwAff]()
    for axis in range(tensor.rank):
        index = element.get_pw_aff(axis)
        if agrees(domain, outside, index):
            continue
        along = [x for x in chain if agrees(domain, outside, index.sub(x.date(s.name)))]
        if len(along) != 1:
            raise refuse(f"axis {axis} of {tensor.name} is moved along by no loop of it alone")
        box[axis], moved[axis] = extent(nest, along[0]) or 0, along[0].date(s.name)
    if len(moved) != len(chain) or not all(1 <= each <= MOST_ALONG for each in box):
        raise refuse(f"a box has one loop an axis, of at most {MOST_ALONG} values")
    if box[-1] * tensor.itemsize != LINE_BYTES:
        raise refuse(f"rows of {tensor.name} are not lines of {LINE_BYTES} bytes")
    (first,) = held.cell(s.name, s.write)
    for axis, date in moved.items():
        first = first.sub(date.scale_val(isl.Val(prod(box[axis + 1 :]))))
    if not (agrees(domain, outside, first) and is_multiple(domain, first, WHOLE // tensor.itemsize)):
        raise refuse(
            f"the box's elements do not lie in lines of {held.buffer.tensor}, from a multiple of {WHOLE} bytes on"
        )
    return tuple(box)


def check_swizzled(nest: Nest, part: Tree, geometries: Mapping[str, Geometry], known: frozenset[str]) -> None:
    """Raises InvalidSchedule if anything but such copies and warpgroups' products accesses swizzled lines."""
    for s in map(nest.statement, statements(part)):
        for access in s.accesses:
            held = geometries.get(access.tensor)
            if held is not None and isinstance(held.buffer.layout, SwizzledLayout) and s.name not in known:
                raise InvalidSchedule(
                    f"{access.tensor} lies in swizzled lines, which bulk copies write and warpgroups' products read, "
                    f'and {s.name} is neither: bind its loop to "bulk", or lay {access.tensor} out without'
                )
