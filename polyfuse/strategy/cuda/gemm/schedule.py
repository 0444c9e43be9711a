"""Schedule products on a GPU with register tiles of results in each thread, in public verbs.

    for b: for i: for j: { zero; for k: mac; bias; relu }
    ->  for b (block.z): for i (block.y): for j (block.x):                   the sums in registers
          for i_z: for i_y: for j_x: for r: for c: zero                      i_z, i_y, j_x: threads
          for k (of 16): { copy a tile of a; of b;  for i_z: for i_y: for j_x: for k_in: for r: for c: mac }
                           with stages, a tile of a later k
          for i_z: for i_y: for j_x: for r: for c: bias; relu

Blocks of large products are in groups of rows (rasterization.py): groups on block.z behind b, j on block.y, the
rows of blocks in a group on block.x.

Every statement maps the same results to the same thread, so that they never leave its registers. The factors' tiles lie
in shared memory with their steps as lines, so spread that no access waits for a bank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import islpy as isl

from polyfuse.analysis.vector_access import ACCESSES
from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir import Nest
from polyfuse.ir.tree import Loop
from polyfuse.machine import GpuMachine
from polyfuse.schedule import Schedule
from polyfuse.sets import SET
from polyfuse.strategy.cost.counts import Counts, dims_of
from polyfuse.strategy.cost.kernel_model import Kernel, internal
from polyfuse.strategy.cuda.tiles.tile import ThreadblockTile
from polyfuse.strategy.cuda.tiles.tile_candidates import has_warpgroups, tiles_for
from polyfuse.strategy.cuda.tiles.tile_shape import OperandTile
from polyfuse.strategy.cuda.transforms.resident_blocks import blocks_at_once
from polyfuse.strategy.cuda.transforms.staging import staged_tile
from polyfuse.strategy.cuda.transforms.vector_access import in_vectors_of
from polyfuse.strategy.match.gemm import Factor, Product, products_of
from polyfuse.strategy.match.gemm_problem import Extents
from polyfuse.strategy.match.operand_rows import kept_factors, may_run_ahead, terms_of, why_not_kept
from polyfuse.strategy.remarks import Reason, Refused
from polyfuse.strategy.transforms.band_verbs import (
    held_in_registers,
    inside,
    is_perfect,
    rejoined,
    reordered,
    separated,
    units,
)
from polyfuse.strategy.transforms.time_loops import Planned

AXES = ("thread.z", "thread.y", "thread.x")


def in_register_tiles(
    schedule: Schedule,
    counts: Counts,
    kernel: Kernel,
    product: Product,
    tile: ThreadblockTile,
    machine: GpuMachine,
) -> Planned | Refused:
    """A kernel around one product in register tiles, or why not."""
    try:
        return Tiles(schedule, counts, kernel, product, tile, machine).made()
    except (IllegalSchedule, InvalidSchedule) as error:
        return Refused(Reason.ILLEGAL, str(error))


@dataclass(frozen=True)
class ResultLoops:
    """The loops of a tile of results: (threads z, y, x), then the rows and columns of one thread."""

    threads: tuple[str, str, str]
    rows: str
    columns: str

    @property
    def all(self) -> tuple[str, ...]:
        """Outermost first."""
        return (*self.threads, self.rows, self.columns)


class Tiles:
    """One kernel on its way into register tiles: loops cut, factors staged, the product one operation."""

    def __init__(
        self,
        schedule: Schedule,
        counts: Counts,
        kernel: Kernel,
        product: Product,
        tile: ThreadblockTile,
        machine: GpuMachine,
    ) -> None:
        self.schedule, self.counts, self.kernel = schedule, counts, kernel
        self.product, self.tile, self.machine = product, tile, machine
        self.name = product.statement

    def factors(self) -> tuple[tuple[Factor, int, OperandTile], ...]:
        """The factors in the order in which they are staged, each with its dimension and its side of a tile."""
        p, t = self.product, self.tile
        return (p.left, p.rows, t.left), (p.right, p.columns, t.right)

    def made(self) -> Planned | Refused:
        """The kernel in register tiles, or why not; an IllegalSchedule or InvalidSchedule where a verb is refused."""
        band = band_by_dimension(self.kernel, self.product)
        if isinstance(band, Refused):
            return band
        p, names = self.product, self.kernel.names
        sums = self.schedule.nest.statement(self.name).write.tensor
        seen = why_seen(self.kernel, sums)
        if seen is not None:
            return seen
        others = tuple(band[d].name for d in p.others if d in band)
        schedule, over, blocks = self.cut(self.schedule, band, others)
        schedule, blocks, more = blocks_at_once(schedule, self.kernel, blocks, self.machine)
        keep = len(self.kernel.around) + more + len(blocks)
        schedule = rejoined(separated(schedule, names, keep), names, keep)
        schedule = self.in_grid(schedule, blocks)
        steps = ""
        for unit in units(schedule, names, keep):
            if not is_perfect(schedule, unit):
                return Refused(Reason.OTHER_FORM, f"{unit[0]} and others share loops inside a tile")
            if self.name in unit:
                schedule, steps = self.stepped(schedule, over, keep)
            missing = set(over.all) - {loop.name for loop in schedule.loops(unit[0])}
            if missing:
                return Refused(Reason.OTHER_FORM, f"{unit[0]} is no function of single results")
            schedule = schedule.bind(unit[0], **dict(zip(over.threads, AXES, strict=True)))
            if self.name not in unit:
                schedule = schedule.unroll(unit[0], over.rows)
                wide = in_vectors_of(schedule, unit, over.columns, internal(self.kernel), ACCESSES)
                schedule = (wide or schedule).unroll(unit[0], over.columns)
        schedule = held_in_registers(schedule, self.kernel, self.tile.shape.rows * self.tile.shape.columns)
        for factor, along, side in self.factors():
            schedule = self.staged(schedule, factor, along, steps, side)
        loops = [loop.name for loop in schedule.loops(self.name)]
        schedule = schedule.microkernel(self.name, loops[-3], self.tile.math)
        return Planned(schedule, (*self.tile.sentences(self.name), *self.not_kept()))

    def not_kept(self) -> tuple[str, ...]:
        """The reasons why factors go through registers although a warpgroup could read them unchanged, for a report."""
        gpu, math = self.machine.gpu, self.tile.math
        if not self.tile.mma.rounds or self.tile.kept:
            return ()
        if not has_warpgroups(gpu, math):
            return ()
        reason = why_not_kept(self.schedule.nest, self.product, math)
        return () if reason is None else (f"not all factors of {self.name} are copied as they are: {reason}",)

    def in_grid(self, schedule: Schedule, blocks: tuple[str, ...]) -> Schedule:
        """The loops outside a tile of results on the grid's axes."""
        clusters, t = blocks, self.tile
        if t.cluster is not None:
            place = len(blocks) - (1 if t.innermost else 2)
            clusters = (*blocks[:place], *blocks[place + 1 :])
        places = dict(zip(clusters, ("block.z", "block.y", "block.x")[3 - len(clusters) :], strict=True))
        if t.cluster is not None:
            places[blocks[place]] = places[blocks[place - 1]].replace("block", "cluster")
        return schedule.bind(self.kernel.names[0], **places)

    def cut(
        self, schedule: Schedule, band: dict[int, Loop], others: tuple[str, ...]
    ) -> tuple[Schedule, ResultLoops, tuple[str, ...]]:
        """for n: for h: for i: for j  ->  for n_h: for i: for j: for i_z: for i_y: for j_x: for r: for c.

        The loops over blocks are named last. A grid has one axis for the batch: its dimensions are one loop.
        """
        first, t = self.kernel.names[0], self.tile
        i, j = band[self.product.rows].name, band[self.product.columns].name
        digits: dict[str, list[str]] = {axis: [] for axis in ("z", "y", "x", "rows", "columns")}
        if t.operands.groups > 1:  # for j  ->  for j (groups): for j_in
            schedule = schedule.split(first, j, t.operands.period)
            digits["x"].append(j)
            j = inside(schedule, first, j).name
        for what, outer, parts, block in zip(
            ("rows", "columns"), (i, j), t.digits(), (t.shape.block_rows, t.units), strict=True
        ):
            loop, size = outer, block
            for axis, following in parts:
                schedule = schedule.split(first, loop, size)
                loop, size = inside(schedule, first, loop).name, following
                digits[axis or what].append(loop)
        schedule, over = self.collapsed(schedule, (*others, i, j), digits)
        blocks: tuple[str, ...] = i, j
        if t.group > 1:
            # for i: for j  ->  for i (groups of rows): for j: for i_in, blocks that run at once share rows and columns
            schedule, others = schedule.split(first, i, t.group), (*others, i)
            blocks = j, inside(schedule, first, i).name
        if t.cluster is not None:
            # for i: for j  ->  for i (clusters): for i_in (blocks of a cluster): for j
            place = 1 if t.innermost else 0
            schedule = schedule.split(first, blocks[place], t.cluster.blocks)
            own = inside(schedule, first, blocks[place]).name
            blocks = (*blocks[: place + 1], own, *blocks[place + 1 :])
        return self.in_one_batch(schedule, others, blocks, over)

    def collapsed(
        self, schedule: Schedule, outside: tuple[str, ...], digits: dict[str, list[str]]
    ) -> tuple[Schedule, ResultLoops]:
        """One loop for an axis' values, and for a thread's own rows and columns, of all digits that each has.

        for y: for r: for y': for r'  ->  for y_y': for r_r'
        """
        first, found = self.kernel.names[0], list[str]()
        if any(len(loops) > 1 for loops in digits.values()):
            inner = (loop for loops in digits.values() for loop in loops)
            schedule = reordered(schedule, first, (*outside, *inner))
        for name, *rest in digits.values():
            for loop in rest:
                place = [x.name for x in schedule.loops(first)].index(name)
                schedule = schedule.collapse(first, name, loop)
                name = schedule.loops(first)[place].name  # that of both
            found.append(name)
        z, y, x, rows, columns = found
        return schedule, ResultLoops((z, y, x), rows, columns)

    def in_one_batch(
        self, schedule: Schedule, others: tuple[str, ...], blocks: tuple[str, ...], over: ResultLoops
    ) -> tuple[Schedule, ResultLoops, tuple[str, ...]]:
        """The other dimensions outermost, as one loop, if there are any; the loops over blocks are named last."""
        first = self.kernel.names[0]
        schedule = reordered(schedule, first, (*others, *blocks, *over.all))
        out = len(self.kernel.around)
        for _ in others[1:]:
            two = schedule.loops(first)[out : out + 2]
            schedule = schedule.collapse(first, two[0].name, two[1].name)
        count = len(blocks) + min(1, len(others))
        return schedule, over, tuple(loop.name for loop in schedule.loops(first)[out : out + count])

    def stepped(self, schedule: Schedule, over: ResultLoops, keep: int) -> tuple[Schedule, str]:
        """for i_z …: for r: for c: for k  ->  for k (of 16): for i_z …: for k_in: for r: for c."""
        (steps,) = (loop.name for loop in schedule.loops(self.name)[keep:] if loop.name not in over.all)
        schedule = schedule.split(self.name, steps, self.tile.shape.steps)
        inner = inside(schedule, self.name, steps).name
        order = (steps, *over.threads, inner, over.rows, over.columns)
        return schedule.reorder(self.name, *order), steps

    def staged(
        self, schedule: Schedule, factor: Factor, along: int, steps: str, side: OperandTile
    ) -> Schedule:
        """A factor's tile in shared memory, copied by all threads, 16 bytes a time where they are neighbours.

        All of a block's part, outside all loops around the kernel, where it stays there.
        """
        if side == self.tile.held:
            steps = self.kernel.around[0].name
        return staged_tile(schedule, self.product, self.tile, factor, along, steps, side)


def product_of(nest: Nest, name: str) -> Product | None:
    """A statement as a product whose factors can be staged in tiles; None if it is none."""
    return of_one_step(products_of(nest, name, by_value=True))


def why_seen(kernel: Kernel, sums: str) -> Refused | None:
    """The reason why registers cannot hold a product's sums; None if only its kernel sees them."""
    if sums in internal(kernel):
        return None
    line = f"{sums} is summed up in memory, where another kernel or the caller sees it"
    return Refused(Reason.OTHER_FORM, line)


def of_one_step(choices: tuple[Product, ...]) -> Product | None:
    """A product whose sums run over one dimension, no window's, its columns along last axes; None if it has none."""
    fits = (p for p in choices if len(p.steps) == 1 and not (p.windowed or p.across or p.of_several))
    return next(fits, None)


def in_tiles(schedule: Schedule, name: str) -> bool:
    """True if a statement runs in a microkernel."""
    return any(loop.bind == "microkernel" for loop in schedule.loops(name))


def product_tiles(
    schedule: Schedule,
    counts: Counts,
    kernel: Kernel,
    product: Product,
    band: Mapping[int, Loop],
    machine: GpuMachine,
) -> tuple[ThreadblockTile, ...]:
    """The tiles that fit a product's sizes and a machine, the cheapest first."""
    sums = schedule.nest.statement(product.statement).write.tensor
    extents = extents_for(schedule, counts, kernel, product, band, machine)
    return tuple(tiles_for(extents, schedule.nest.tensor(sums).itemsize, machine, machine.gpu))


def extents_for(
    schedule: Schedule,
    counts: Counts,
    kernel: Kernel,
    product: Product,
    band: Mapping[int, Loop],
    machine: GpuMachine,
) -> Extents:
    """The size of a product, and the facts about its factors."""
    s = schedule.nest.statement(product.statement)
    rows, columns = counts.extent(band[product.rows]), counts.extent(band[product.columns])
    count = prod(counts.extent(band[d]) for d in product.others if d in band)
    again = prod(counts.extent(loop) for loop in kernel.around)
    results = max(1, rows * columns * count * again)
    itemsize = schedule.nest.tensor(s.write.tensor).itemsize
    wide = all(
        may_run_ahead(schedule.nest, product, factor, itemsize) for factor in (product.left, product.right)
    )
    around = bool(kernel.around)
    singles = not wide and not around and itemsize == 4 and _are_numbers(schedule.nest, product)
    steps = counts.work(s.name).instances // results
    whole = whole_steps(schedule.nest, product)
    kept = kept_factors(schedule.nest, product, machine.math)
    found = Extents(
        rows,
        columns,
        steps,
        count,
        wide,
        singles,
        whole_steps=whole,
        kept=kept,
        lone=around,
        once=not around,
    )
    left, right = terms_of(product.left), terms_of(product.right)
    # what a step's other statements touch, the steps before it have left in L2
    others = 0 if around else beside(counts, kernel, product)
    return replace(found, left=left, right=right, beside=others)


def _are_numbers(nest: Nest, product: Product) -> bool:
    """True if factors are in memory as they are multiplied: nothing is computed, nor widened from a half."""
    factors = product.left, product.right
    return not any(factor.computed or nest.tensor(factor.access.tensor).is_half for factor in factors)


def beside(counts: Counts, kernel: Kernel, product: Product) -> int:
    """The bytes that a kernel's other statements read and write in memory beside storing the product's results once.

    for i: for j: { … P += a * b;  y[i, j] = P;  y[n + i, j] += P }: an element of y is loaded, and one stored, more
    """
    nest, here = counts.nest, {use.tensor: use for use in kernel.uses if not use.internal}
    factors = {access.tensor for access in nest.statement(product.statement).reads}
    others = [nest.statement(name) for name in kernel.names if name != product.statement]
    stored = [
        counts.work(s.name).instances * nest.tensor(s.write.tensor).itemsize * (1 + s.is_reduction)
        for s in others
        if s.write.tensor in here
    ]
    written = {s.write.tensor for s in others}
    read = {a.tensor for s in others for a in s.reads} & here.keys() - written - factors
    loaded = sum(here[name].elements * here[name].itemsize for name in read)
    return max(0, sum(stored) - max(stored, default=0) + loaded)


def whole_steps(nest: Nest, product: Product) -> int:
    """The steps of every result, if all have those from 0 to the same constant; else 0."""
    (d,), domain = product.steps, nest.domains[product.statement]
    last = domain.dim_max_val(d)
    if not last.is_int():
        return 0
    every = domain.project_out(SET, d, 1).insert_dims(SET, d, 1).set_tuple_id(domain.get_tuple_id())
    every = every.lower_bound_val(SET, d, isl.Val(0)).upper_bound_val(SET, d, last)
    return int(last.to_python()) + 1 if every.is_subset(domain) else 0


def band_by_dimension(kernel: Kernel, product: Product) -> dict[int, Loop] | Refused:
    """The loop of the kernel's band for each of the product's dimensions but its steps; or why there is not one."""
    found: dict[int, Loop] = {}
    for loop in kernel.band:
        dims = dims_of(loop.date(product.statement))
        if len(dims) != 1 or dims & found.keys():
            return Refused(Reason.OTHER_FORM, f"loop {loop.name} is no dimension of {product.statement}")
        found[next(iter(dims))] = loop
    outside = frozenset[int]().union(*(dims_of(loop.date(product.statement)) for loop in kernel.around))
    wanted = {product.rows, product.columns, *product.others} - outside
    if found.keys() != wanted or not {product.rows, product.columns} <= wanted:
        line = f"not all results of {product.statement} are independent in this kernel"
        return Refused(Reason.ILLEGAL, line)
    return found
