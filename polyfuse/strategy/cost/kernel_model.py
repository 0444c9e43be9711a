"""Kernels as the cost model sees them: one part of a schedule that runs as one launch.

kernel ::= band  use*  statement*
band     the outermost loops, perfectly nested, whose values may run in any order; its tiles are the kernel's tasks
use      a tensor, the elements of it that the kernel touches, and how much of that one value of each band loop does
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import islpy as isl

from polyfuse.analysis.banks import WARP
from polyfuse.analysis.storage import LANE, THREADS
from polyfuse.ir import Nest
from polyfuse.ir.tree import Loop, Tree, loops, loops_around, statements
from polyfuse.sets import Box, around, volume
from polyfuse.strategy.cost.counts import Counts, dims_of, stride
from polyfuse.strategy.cost.op_latency import NONE, Operations
from polyfuse.strategy.match.lane_reductions import lane_loop, row_threads

ROW_THREADS = 256
"""Threads of a block that one row is likely to have."""


LINE = 64
"""Bytes that come together from memory."""


@dataclass(frozen=True)
class Use:
    """A kernel's accesses to one tensor. `ratios` holds for each band loop the fraction that one of its values touches.

    What a kernel finds in a temporary because it has put it there is not `read`: it does not cross its border.
    `passes` counts the loops inside the band, one after the other, in which it is read: for i: { for j; for j }. Of
    what is internal it counts all that access it.
    """

    tensor: str
    itemsize: int
    elements: int
    ratios: tuple[float, ...]
    read: bool
    written: bool
    internal: bool
    passes: int = 1

    def bytes_in(self, sizes: tuple[int, ...], extents: tuple[int, ...]) -> float:
        """The bytes that `sizes` consecutive values of the band loops touch (exact for boxes and windows)."""
        part = 1.0
        for ratio, size, extent in zip(self.ratios, sizes, extents, strict=True):
            part *= 1.0 if size >= extent else ratio + (size - 1) * (1.0 - ratio) / (extent - 1)
        return self.elements * self.itemsize * part


@dataclass(frozen=True)
class Share:
    """One statement's part: its operations, and how many instances may run at once for one value of the band.

    `lanes` is how many threads of a GPU may share a reduction that is in order otherwise: a warp's, or a block's where
    rows are long. `operations` are its work as a CPU counts it. It `adds` values up. `row` values follow each other in
    memory, `spread` lie apart (`Counts.rows`); over several loops `long_row` do, which are `one_sum` or not. Where it
    adds to the value before in a row it `cumulates`. It reads `named` rows at places that data name. `is_product`: it
    adds up products of what it reads several times.
    """

    statement: str
    flops: int
    inner: int
    lanes: int = 1
    operations: Operations = NONE
    adds: bool = False
    row: int = 0
    spread: int = 0
    named: int = 0
    instances: int = 0
    long_row: int = 0
    one_sum: bool = False
    cumulates: bool = False
    is_product: bool = False

    @property
    def at_once(self) -> int:
        """Threads of a GPU that one value of the band keeps busy."""
        return max(self.inner, self.lanes)


@dataclass(frozen=True)
class Kernel:
    """A unit that is launched once; or one part of it, which runs in each iteration of the loops `around` its band."""

    names: tuple[str, ...]
    band: tuple[Loop, ...]
    extents: tuple[int, ...]
    uses: tuple[Use, ...]
    shares: tuple[Share, ...]
    column: int | None
    """The band loop whose tiles are columns; None if columns are loops inside the band: for m: for i: { … }."""
    around: tuple[Loop, ...] = ()

    @property
    def flops(self) -> int:
        """Operations in all."""
        return sum(share.flops for share in self.shares)

    @property
    def compulsory(self) -> int:
        """Bytes that cross the kernel's border at least: every outside tensor read once, written once."""
        return sum(u.elements * u.itemsize * (u.read + u.written) for u in self.uses if not u.internal)

    @property
    def itemsize(self) -> int:
        """The widest element, in bytes."""
        return max((u.itemsize for u in self.uses), default=4)


def kernel_of(counts: Counts, tree: Tree, band: tuple[Loop, ...] | None = None) -> Kernel:
    """The kernel that a part of a schedule is; its band may be given."""
    names = statements(tree)
    band = band_of(counts, tree) if band is None else band
    extents = tuple(counts.extent(loop) for loop in band)
    uses, shares = _uses(counts, tree, names, band), _shares(counts, tree, names, band)
    return Kernel(names, band, extents, uses, shares, _column(counts.nest, names, band))


def _column(nest: Nest, names: tuple[str, ...], band: tuple[Loop, ...]) -> int | None:
    """The last band loop, if it or the one around it goes from a result to its neighbour in memory.

    An only loop is one if a sum in it goes from row to row: for j: { s = 0; for i: s += x[i, j]; y[j] = s }.
    """
    last = [dims_of(date) for loop in band[-2:] for name, date in loop.dates if name == names[-1]]
    write = nest.statement(names[-1]).write
    near = any(stride(write, d) == 1 for dims in last for d in dims)
    if not near or (len(band) == 1 and not any(_goes_down(nest, *date) for date in band[0].dates)):
        return None
    return len(band) - 1


def _goes_down(nest: Nest, name: str, date: isl.PwAff) -> bool:
    """True if a statement adds up columns: a read is next to another's in the loop, and in no other loop."""
    s, here = nest.statement(name), dims_of(date)
    others = [d for d in range(len(s.dims)) if d not in here]
    return s.is_reduction and any(
        any(stride(a, d) == 1 for d in here) and not any(stride(a, d) == 1 for d in others) for a in s.reads
    )


def band_of(counts: Counts, tree: Tree) -> tuple[Loop, ...]:
    """The outermost perfectly nested loops without a dependence between their values."""
    band: list[Loop] = []
    while isinstance(tree, Loop) and counts.parallel(tree):
        band.append(tree)
        tree = tree.body
    return tuple(band)


def _shares(counts: Counts, tree: Tree, names: tuple[str, ...], band: tuple[Loop, ...]) -> tuple[Share, ...]:
    shares: list[Share] = []
    known: dict[int, bool] = {}
    waits = False
    bound = any(loop.bind in (*THREADS, LANE) for loop in loops(tree))
    for name in names:
        around = loops_around(tree, name)[len(band) :]
        inner, own = 1, tuple(loop for loop in around if counts.extent(loop) > 1)
        for loop in own:
            at_once = known.setdefault(id(loop), counts.parallel(loop)) if not bound else loop.bind in THREADS
            if loop.bind == LANE or at_once:
                inner *= counts.extent(loop)
        work, lanes = counts.work(name), _lanes(counts, name, own, inner, len(band))
        adds = counts.nest.statement(name).is_reduction
        there = round(work.instances * counts.filled(name))
        lies = *counts.rows(name), counts.named_rows(name), there
        ends = *counts.long_row(name), counts.cumulates(name), _is_product(counts, name)
        shares.append(Share(name, work.flops, inner, lanes, work.operations, adds, *lies, *ends))
        waits = waits or (inner == 1 and bool(own) and shares[-1].lanes == 1)
    if waits:  # lanes would leave its rows to the few threads beside them
        shares = [replace(share, lanes=1) for share in shares]
    return where_lanes_pay(tuple(shares))


def _lanes(counts: Counts, name: str, own: tuple[Loop, ...], inner: int, band: int) -> int:
    """A warp for a reduction along a row, or a block for a long one, if it is the only one in its loop.

    In several loops of rows (a batch's) only where each value is read for one result: a product's are for many.
    """
    loop = lane_loop(counts, name, own) if band and inner == 1 else None
    if loop is None or (band > 1 and not _reads_once(counts, name, loop)):
        return 1
    sums = [other for other in statements(own[-1]) if counts.nest.statement(other).is_reduction]
    return row_threads(counts.extent(loop)) if len(sums) == 1 else 1


def _is_product(counts: Counts, name: str) -> bool:
    """True if a statement adds up products and reads every factor's elements several times."""
    work, reads = counts.work(name), range(1, len(counts.nest.statement(name).accesses))
    adds = counts.nest.statement(name).is_reduction and work.flops > work.instances
    return adds and all(counts.footprint(name, position) < work.instances for position in reads)


def _reads_once(counts: Counts, name: str, loop: Loop) -> bool:
    """True if a statement reads as many elements as it has instances, neighbours along a loop."""
    dims, instances = dims_of(loop.date(name)), counts.work(name).instances
    return any(
        any(stride(access, d) == 1 for d in dims) and counts.footprint(name, position) >= instances
        for position, access in enumerate(counts.nest.statement(name).accesses)
        if position
    )


def where_lanes_pay(shares: tuple[Share, ...]) -> tuple[Share, ...]:
    """Lanes for reductions, unless a row takes longer then: with them no statement has more threads for it than these.

    >>> softmax = Share("exp", 2000, 1000), Share("rowsum", 1000, 1, 32)
    >>> where_lanes_pay(softmax) == softmax
    True
    >>> where_lanes_pay((Share("mac", 512000, 256), Share("rowsum", 256, 1, 32)))[1].lanes
    1
    """
    apart = sum(share.flops / min(share.inner, ROW_THREADS) for share in shares)
    most = max((WARP, *(share.lanes for share in shares)))
    together = sum(share.flops / min(share.at_once, most) for share in shares)
    return shares if together <= apart else tuple(replace(share, lanes=1) for share in shares)


def _uses(counts: Counts, tree: Tree, names: tuple[str, ...], band: tuple[Loop, ...]) -> tuple[Use, ...]:
    dates = [dict(loop.dates) for loop in band]
    inside = frozenset(names)
    found: dict[tuple[str, int], list[Use]] = {}
    seen: dict[str, list[Box | None]] = {}
    read_in: dict[tuple[str, int], set[int]] = {}
    for name in names:
        own = loops_around(tree, name)[len(band) :]
        for position, access in enumerate(counts.nest.statement(name).accesses):
            tensor = counts.nest.tensor(access.tensor)
            internal = is_internal(counts, tensor.name, inside)
            ratios = tuple(counts.slice_ratio(name, position, date[name]) for date in dates)
            # a diagonal is less than the box around it
            lines = counts.work(name).instances * max(1, LINE // tensor.itemsize)
            elements = min(counts.footprint(name, position), lines)
            written, read = position == 0, is_read(counts, name, position, inside)
            use = Use(tensor.name, tensor.itemsize, elements, ratios, read, written, internal)
            here = counts.slice_box(name, position, tuple(date[name] for date in dates))
            group = 0 if internal else _group(here, seen.setdefault(tensor.name, []))
            found.setdefault((tensor.name, group), []).append(use)
            if own and (read or internal):
                read_in.setdefault((tensor.name, group), set()).add(id(own[0]))
    passes = {key: max(1, len(read_in.get(key, ()))) for key in found}
    return tuple(replace(reduce(_either, uses), passes=passes[key]) for key, uses in found.items())


def is_internal(counts: Counts, tensor: str, inside: frozenset[str]) -> bool:
    """True if a tensor is a temporary of some statements alone."""
    return counts.nest.tensor(tensor).role == "temporary" and counts.users[tensor] <= inside


def is_read(counts: Counts, name: str, position: int, inside: frozenset[str]) -> bool:
    """True if an access reads what others than some statements wrote: the caller does so in all but temporaries."""
    if position == 0:
        return False
    tensor = counts.nest.statement(name).accesses[position].tensor
    return counts.nest.tensor(tensor).role != "temporary" or not counts.sources(name, position) <= inside


APART = 2
"""The factor by which a box around two accesses exceeds the larger one's if they share no data."""


def _group(here: Box | None, seen: list[Box | None]) -> int:
    """The group of accesses that touch the same part of a tensor for one value of the band; else a new group.

    for i: … A[i, j] … A[i, j + 1]: one;  for i: … A[i, j] … A[j, i]: two, which go through different parts of A
    """
    size = volume(here)
    for group, other in enumerate(seen):
        if volume(around(here, other)) <= APART * max(size, volume(other)):
            return group
    seen.append(here)
    return len(seen) - 1


def _either(a: Use, b: Use) -> Use:
    """Two accesses of one tensor as one: the larger footprint, the larger slices."""
    ratios = tuple(max(x, y) for x, y in zip(a.ratios, b.ratios, strict=True))
    return Use(
        a.tensor,
        a.itemsize,
        max(a.elements, b.elements),
        ratios,
        a.read or b.read,
        a.written or b.written,
        a.internal,
    )


def internal(kernel: Kernel) -> tuple[str, ...]:
    """The temporaries that only this kernel touches, in order of use."""
    return tuple(use.tensor for use in kernel.uses if use.internal)
