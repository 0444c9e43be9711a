"""The CPU's program: how one group of statements becomes loops for cores, caches and vectors, in public verbs.

    for i (tiles, on cores): for j (tiles):             y in a local buffer of one tile
      for i_in: for j_in (vector): zero
      for k (of 4): for j_in: for i_in: for k_in: mac
      for i_in: for j_in (vector): bias; relu           the temporary between them a scalar

The loops over four rows and four steps inside the contraction's j_in stay loops: their trip counts are constants, so
LLVM unrolls them before it vectorizes j_in. Unrolled by `unroll`, 4 × Linear(512) + ReLU at batch 64 ran as fast
(1.84 against 1.87 ms, one Zen 5 core) and took numba 3.9 s to compile instead of 1.1 s.
"""

from __future__ import annotations

import islpy as isl

from polyfuse.errors import InvalidSchedule
from polyfuse.ir import Access
from polyfuse.ir.tree import Loop
from polyfuse.machine import CpuMachine
from polyfuse.schedule import Schedule
from polyfuse.sets import SET
from polyfuse.strategy.cost.counts import Counts, dims_of, stride
from polyfuse.strategy.cost.kernel_model import Kernel, internal
from polyfuse.strategy.cost.roofline import Tiling
from polyfuse.strategy.cpu.depthwise import summed_in_rows
from polyfuse.strategy.cpu.gemv import in_one_row
from polyfuse.strategy.cpu.row_reduce import reduced_where_made
from polyfuse.strategy.cpu.transpose import across_lines
from polyfuse.strategy.match.gemm import is_product, products_of
from polyfuse.strategy.transforms.band_verbs import (
    constant_extent,
    contiguous,
    contracted,
    cut,
    inside,
    is_perfect,
    on_lanes,
    rejoined,
    reordered,
    separated,
    units,
    users_in,
)

MOST_ROWS = 8
"""Rows that go by in one pass over a vector loop, at most: each needs a number of the other operand in a register."""

SMALL = 4
"""Steps of a contraction in one pass over a vector loop, where no microkernel takes all of them."""


def shaped(
    schedule: Schedule, counts: Counts, kernel: Kernel, tiling: Tiling, machine: CpuMachine
) -> Schedule:
    """One group, tiled, ordered, vectorized, bound to the cores, its temporaries in buffers of their own."""
    names = kernel.names
    lines = across_lines(schedule, counts, names)
    if lines is not None:
        return _finished(_on_cores(lines, kernel, tiling, machine), kernel, machine)
    tiled = cut(schedule, kernel, tiling)
    schedule, keep = tiled.schedule, len(tiled.tiles)
    if keep:
        schedule = rejoined(separated(schedule, names, keep), names, keep)
        schedule = reduced_where_made(schedule, counts, names, keep)
    if keep or len(names) == 1:
        for unit in units(schedule, names, keep):
            schedule = _unit(schedule, counts, unit, keep, tiled.points, machine)
    if tiling.parallel is not None:
        schedule = schedule.bind(names[0], **{kernel.band[tiling.parallel].name: "cores"})
    return _finished(schedule, kernel, machine)


def _on_cores(schedule: Schedule, kernel: Kernel, tiling: Tiling, machine: CpuMachine) -> Schedule:
    """Tiles of lines on the cores, where a tiling has any loop there: the outermost one with a value for each."""
    if tiling.parallel is None:
        return schedule
    sizes = ((loop.name, constant_extent(schedule, loop)) for loop in schedule.loops(kernel.names[0]))
    enough = next((name for name, size in sizes if size is None or size >= machine.units), None)
    return schedule if enough is None else schedule.bind(kernel.names[0], **{enough: "cores"})


def _finished(schedule: Schedule, kernel: Kernel, machine: CpuMachine) -> Schedule:
    """Temporaries of this kernel alone in variables and buffers."""
    for tensor in internal(kernel):
        schedule = contracted(schedule, tensor, users_in(schedule, kernel.names, tensor), machine)
    return schedule


def _unit(
    schedule: Schedule,
    counts: Counts,
    unit: tuple[str, ...],
    keep: int,
    points: tuple[str, ...],
    machine: CpuMachine,
) -> Schedule:
    """One perfect loop nest: contractions outside, then the loop along memory, then small constant loops."""
    name = unit[0]
    loops = schedule.loops(name)[keep:]
    if not loops or not is_perfect(schedule, unit):
        return schedule
    moving = tuple(loop for loop in loops if counts.extent(loop) != 1)  # others walk nowhere
    vector = contiguous(counts, schedule, unit, moving or loops)
    carried = [loop for loop in loops if not counts.parallel(loop)]
    if len(unit) == 1 and (len(carried) > 1 or vector in carried):
        row = summed_in_rows(schedule, counts, name, loops, machine)
        if row is not None:
            return row
    if vector in carried:
        vector = _beside_borders(counts, schedule, unit, loops, vector) or vector
    if not carried or vector in carried:
        return on_lanes(schedule, name, loops, vector)
    rows = [
        loop for loop in loops if loop.name in points and loop is not vector and _is_small(schedule, loop)
    ][:1]
    if len(unit) == len(carried) == 1:
        product = _in_rows(schedule, name, loops, carried[0], rows, vector, machine)
        if product is not None:
            return product
    if len(unit) == len(carried) == 1 and not rows:
        row = in_one_row(schedule, name, loops, carried[0], vector, machine)
        if row is not None:
            return row
    if any(_is_cut(schedule, one, carried[-1], vector) for one in unit):
        return on_lanes(schedule, name, loops, vector)
    schedule, step = _stepped(schedule, name, carried[-1])
    inner = [loop.name for loop in rows] + ([step] if step else [])
    outer = [loop for loop in loops if loop is not vector and loop.name not in inner]
    outer.sort(key=lambda loop: loop in carried)
    return reordered(schedule, name, (*(loop.name for loop in outer), vector.name, *inner))


def _in_rows(
    schedule: Schedule,
    name: str,
    loops: tuple[Loop, ...],
    steps: Loop,
    rows: list[Loop],
    vector: Loop,
    machine: CpuMachine,
) -> Schedule | None:
    """A product as a microkernel of several rows: those of a tile, or some of a loop that needs all the same matrix."""
    if rows:
        return _product(schedule, name, loops, steps, rows[0], vector, machine)
    known = (p for p in products_of(schedule.nest, name) if len(p.steps) == 1 and not p.across)
    product = next(known, None)
    if product is None:
        return None
    others = [loop for loop in loops if loop is not steps and loop is not vector]
    alike = [loop for loop in others if not _moves(product.right.access, loop.date(name))]
    size = constant_extent(schedule, alike[-1]) if alike else None
    height = next((r for r in range(MOST_ROWS, 1, -1) if size is not None and size % r == 0), None)
    if height is None:
        return None
    if size == height:
        return _product(schedule, name, loops, steps, alike[-1], vector, machine)
    schedule = schedule.split(name, alike[-1].name, height)
    around = len(schedule.loops(name)) - len(loops) - 1
    point = inside(schedule, name, alike[-1].name)
    found = {loop.name: loop for loop in schedule.loops(name)[around:]}
    return _product(
        schedule, name, tuple(found.values()), found[steps.name], point, found[vector.name], machine
    )


def _moves(access: Access, date: isl.PwAff) -> bool:
    """True if an access goes to other elements as a loop advances."""
    return any(stride(access, d) for d in dims_of(date))


def _product(
    schedule: Schedule,
    name: str,
    loops: tuple[Loop, ...],
    steps: Loop,
    rows: Loop,
    vector: Loop,
    machine: CpuMachine,
) -> Schedule | None:
    """A product's rows and a few vectors of columns as a microkernel; None if it is not of that form."""
    itemsize = schedule.nest.tensor(schedule.nest.statement(name).write.tensor).itemsize
    size = constant_extent(schedule, vector)
    vectors = machine.vector_registers // 2  # the others hold a row of columns and numbers of the rows
    most = vectors // max(1, constant_extent(schedule, rows) or vectors)
    lanes = machine.vector_bytes // itemsize
    columns = next((v * lanes for v in (4, 2, 1) if v <= most and size and size % (v * lanes) == 0), None)
    if columns is None:
        return None
    inner = vector.name
    if columns != size:
        schedule = schedule.split(name, vector.name, columns)
        inner = inside(schedule, name, vector.name).name
    outer = [loop.name for loop in loops if loop not in (steps, rows, vector)]
    outer += [vector.name] if columns != size else []
    schedule = reordered(schedule, name, (*outer, steps.name, rows.name, inner))
    try:
        return schedule.microkernel(name, steps.name)
    except InvalidSchedule:
        return None


def _stepped(schedule: Schedule, name: str, loop: Loop) -> tuple[Schedule, str | None]:
    """for k  ->  for k: for k_in, with the most steps up to four that divide it: else their number is no constant."""
    size = constant_extent(schedule, loop)
    steps = next((s for s in range(SMALL, 1, -1) if size is not None and size % s == 0), None)
    if steps is None:
        return schedule, None
    if size == steps:
        return schedule, loop.name
    schedule = schedule.split(name, loop.name, steps)
    return schedule, inside(schedule, name, loop.name).name


def _beside_borders(
    counts: Counts, schedule: Schedule, unit: tuple[str, ...], loops: tuple[Loop, ...], steps: Loop
) -> Loop | None:
    """For a window's few steps along memory, which its results lack at a border: the loop along these results.

    Where all results have all steps LLVM writes these out, and puts the loop around them on vector lanes by itself:
    minima of 1000 x 1000 windows of 3 x 3 take 0.58 ms so, and 0.90 the other way (one Zen 4 core).
    """
    write = schedule.nest.statement(unit[0]).write
    along = tuple(
        loop
        for loop in loops
        if counts.parallel(loop)
        and any(stride(write, d) == 1 for d in dims_of(loop.date(unit[0])))
        and any(_is_cut(schedule, name, steps, loop) for name in unit)
    )
    few = counts.extent(steps) <= MOST_ROWS
    return contiguous(counts, schedule, unit, along) if along and few else None


def _is_cut(schedule: Schedule, name: str, steps: Loop, vector: Loop) -> bool:
    """True if not all values along a vector have the same steps, as at a window's border: these stay outside then.

    for q: for s in max(0, 1 - q) … 3: y[q] max= x[q + s - 1]   ->   for s: for q in max(0, 1 - s) … n: …
    """
    along, across = dims_of(steps.date(name)), dims_of(vector.date(name))
    domain = schedule.nest.domains[name]
    return not is_product(domain, {*along}, given=set(range(domain.dim(SET))) - along - across)


def _is_small(schedule: Schedule, loop: Loop) -> bool:
    size = constant_extent(schedule, loop)
    return size is not None and size <= MOST_ROWS
