"""Schedule depthwise convolutions on a GPU: each thread keeps several neighbouring results in registers.

    for n: for c: for p: for q: { zero; for r: for s: y += x[n, c, p + r, q + s] * w[c, r, s]; bias; relu }
    ->  for n_c (block.z): for p (block.y, thread.y): for q (block.x, thread.x): {
          copy the 4 × 6 pixels and 9 filters that 2 × 4 results read to registers
          for p_in: for q_in: zero
          for r: for s: for p_in: for q_in: mac
          for p_in: for q_in: bias; relu }                                 all of it written out

No two results share all their pixels, as those of a product do, but neighbours share most: each pixel is loaded once a
thread. How many results a thread has follows from a count of instructions and from what keeps the GPU's threads busy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product as pairs
from math import ceil, prod

from polyfuse.analysis.banks import WARP
from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir import Access, Nest
from polyfuse.ir.tree import Loop, Tree, parts, statements
from polyfuse.machine import GpuMachine
from polyfuse.measure import duration
from polyfuse.schedule import Schedule
from polyfuse.sets import greatest
from polyfuse.strategy.candidates import Choose
from polyfuse.strategy.cost.composite import finished_cost
from polyfuse.strategy.cost.counts import Counts, dims_of, stride
from polyfuse.strategy.cost.gpu_cycles import hertz
from polyfuse.strategy.cost.kernel_model import Kernel
from polyfuse.strategy.cost.roofline import Model
from polyfuse.strategy.cuda.gemm.schedule import why_seen
from polyfuse.strategy.cuda.tiles.rasterization import GRID
from polyfuse.strategy.cuda.tiles.tile_shape import SCHEDULERS
from polyfuse.strategy.match.gemm import is_sum_of_products, moved_axes
from polyfuse.strategy.plan import Group
from polyfuse.strategy.remarks import Reason, Refused, weighed
from polyfuse.strategy.transforms.band_verbs import (
    constant_extent,
    held_in_registers,
    inside,
    is_perfect,
    rejoined,
    reordered,
    separated,
    units,
)
from polyfuse.strategy.transforms.packing import added

PASS = "rows of windows"

MOST_WINDOW = 49
"""Elements of a window: of more a thread has one result."""

MOST_TERMS = 144
"""Multiply-adds of a thread: 4 × 4 results of 3 × 3 windows stay in registers, of 4 × 8 the loops are not written out
by LLVM, and pixels lie in memory then (CUDA 13, sm_90)."""

OF_A_PIXEL = 10
"""Instructions that load one pixel beside its border's guards. As compiled for sm_90 (CUDA 13): 2 × 4 and 4 × 4 results
of 3 × 3 windows in a padded image are 672 and 1216 instructions, 72 and 144 of them multiply-adds."""

OF_A_TERM = 6
"""Instructions of one multiply-add in a padded image, with its guards."""

OF_A_LOOPED_TERM = 15
"""Instructions of one multiply-add of one result a thread: two loads, their addresses, two loops' bounds. As counted in
the source: not measured."""

ACROSS, DOWN = 32, 4
"""Threads of a block along memory and beside it, at most."""


@dataclass(frozen=True)
class Windows:
    """A sum over windows: its statement, the read that is a window, and dimensions.

    `beside` gives for each dimension of the window the one of the results along the same axis.
    """

    statement: str
    pixels: Access
    filters: Access
    results: tuple[int, ...]
    steps: tuple[int, ...]
    beside: dict[int, int]
    sizes: dict[int, int]
    along: int


def windows_of(nest: Nest, name: str) -> Windows | None:
    """A statement as a sum over windows whose pixels move with all of its results; None if it is none."""
    s = nest.statement(name)
    y, axes = moved_axes(s.write, len(s.dims)), [moved_axes(a, len(s.dims)) for a in s.reads]
    if not is_sum_of_products(s) or len(s.reads) != 2 or y is None or None in axes:
        return None
    results = tuple(y)
    steps = tuple(d for d in range(len(s.dims)) if d not in y)
    for pixels, filters, moved in zip(s.reads, reversed(s.reads), axes, strict=True):
        assert moved is not None, "asked before"
        beside = {d: [r for r in results if moved.get(r) == moved.get(d)] for d in steps}
        sizes = {d: _size(nest, name, d) for d in steps}
        along = [d for d in results if stride(s.write, d) == 1]
        fits = set(results) <= moved.keys() and all(len(found) == 1 for found in beside.values())
        if fits and steps and along and prod(sizes.values()) <= MOST_WINDOW:
            each = {d: found[0] for d, found in beside.items()}
            return Windows(name, pixels, filters, results, steps, each, sizes, along[0])
    return None


def _size(nest: Nest, name: str, d: int) -> int:
    """The values of a dimension of a window."""
    domain = nest.domains[name]
    size = greatest(domain.dim_max(d).sub(domain.dim_min(d)))
    return int(size.to_python()) + 1 if size.is_int() else MOST_WINDOW + 1


def in_window_rows(
    schedule: Schedule, model: Model, part: Tree, choose: Choose, machine: GpuMachine
) -> tuple[Schedule, list[Group]] | Refused | None:
    """The schedule with several results of windows a thread; why not, or None if a kernel has no such windows."""
    kernel, nest = model.kernel(part), schedule.nest
    sums = [name for name in kernel.names if is_sum_of_products(nest.statement(name))]
    found = windows_of(nest, sums[0]) if len(sums) == 1 and not kernel.around else None
    if found is None:
        return None
    band = {next(iter(dims_of(loop.date(found.statement))), -1): loop for loop in kernel.band}
    if band.keys() != set(found.results):
        return Refused(Reason.ILLEGAL, f"not all results of {found.statement} are independent in this kernel")
    seen = why_seen(kernel, schedule.nest.statement(found.statement).write.tensor)
    if seen is not None:
        return seen
    extents = {d: model.counts.extent(loop) for d, loop in band.items()}
    tiles = sorted(_tiles(found, extents), key=lambda tile: _seconds(found, extents, tile, machine))
    if not tiles:
        return Refused(Reason.NO_SIZE, "no tile of results fits the windows' sizes")
    best = choose.best(
        PASS,
        kernel.names,
        tiles,
        seconds=lambda tile: _seconds(found, extents, tile, machine),
        name=_by,
        what="window tiles",
    )
    plain, seconds = _seconds(found, extents, {}, machine), _seconds(found, extents, best, machine)
    if not choose.takes(PASS, kernel.names, seconds < plain):
        line = f"{duration(seconds)} of instructions expected, {duration(plain)} with one result a thread"
        return Refused(Reason.DEARER, line)
    try:
        done = _made(schedule, kernel, found, band, extents, best)
    except (IllegalSchedule, InvalidSchedule) as error:
        return Refused(Reason.ILLEGAL, str(error))
    if isinstance(done, Refused):
        return done
    note = (
        f"{found.statement} in rows of windows: {_by(best)} neighbouring results a thread, each pixel loaded once; "
        f"{duration(seconds)} of instructions expected, {duration(plain)} with one result a thread"
    )
    chosen = choose.wished(PASS, kernel.names)
    (own,) = (p for p in parts(done.tree) if found.statement in statements(p))
    cost = finished_cost(Counts(done.nest), own, machine)
    return done, [
        Group(statements(own), cost, (weighed(PASS, (found.statement,), True, note, seconds, plain, chosen),))
    ]


def _tiles(w: Windows, extents: dict[int, int]) -> Iterator[dict[int, int]]:
    """The numbers of results that a thread may have along each dimension of the windows."""
    dims, window = [d for d in w.results if d in w.beside.values()], prod(w.sizes.values())
    for sizes in pairs(*((1, 2, 4) for _ in dims)):
        if 1 < prod(sizes) <= MOST_TERMS // window and all(
            size <= extents[d] for d, size in zip(dims, sizes, strict=True)
        ):
            yield dict(zip(dims, sizes, strict=True))


def _by(tile: dict[int, int]) -> str:
    """The results of a thread along each dimension."""
    return " × ".join(map(str, tile.values()))


def _seconds(w: Windows, extents: dict[int, int], tile: dict[int, int], machine: GpuMachine) -> float:
    """Seconds in which instructions are issued; of one result a thread without a tile."""
    window = prod(w.sizes.values())
    threads = prod(ceil(extents[d] / tile.get(d, 1)) for d in w.results)
    pixels = prod(tile.get(r, 1) + w.sizes[d] - 1 for d, r in w.beside.items())
    mine = prod(tile.values()) * window * OF_A_TERM + (pixels + window) * OF_A_PIXEL
    each = mine if tile else window * OF_A_LOOPED_TERM
    at_once = WARP * SCHEDULERS * machine.units
    return max(1, ceil(threads / at_once)) * each / hertz(machine)


def _made(
    schedule: Schedule,
    kernel: Kernel,
    w: Windows,
    band: dict[int, Loop],
    extents: dict[int, int],
    tile: dict[int, int],
) -> Schedule | Refused:
    """The kernel on blocks and threads, what a thread has written out."""
    first, names = kernel.names[0], kernel.names
    own: list[str] = []
    outer = {d: band[d].name for d in w.results}
    for d, size in tile.items():
        schedule = schedule.split(first, outer[d], size)
        own.append(inside(schedule, first, outer[d]).name)
    down = next((d for d in reversed(w.results) if d != w.along and d in tile), None)
    down = down if down is not None else next((d for d in reversed(w.results) if d != w.along), None)
    blocks, threads, places = list[str](), list[str](), dict[str, str]()
    for placed, most, axis in ((down, DOWN, "y"), (w.along, ACROSS, "x")):
        if placed is None:
            continue
        block = outer[placed]
        schedule = schedule.split(first, block, most)
        thread = inside(schedule, first, block).name
        blocks, threads = [*blocks, block], [*threads, thread]
        places |= {block: f"block.{axis}", thread: f"thread.{axis}"}
    rest = [outer[d] for d in w.results if d not in (down, w.along)]
    schedule = reordered(schedule, first, (*rest, *blocks, *threads, *own))
    for _ in rest[1:]:
        two = schedule.loops(first)[:2]
        schedule = schedule.collapse(first, two[0].name, two[1].name)
    if rest:
        outermost, many = (
            schedule.loops(first)[0],
            prod(extents[d] for d in w.results if d not in (down, w.along)),
        )
        places[outermost.name] = "block.z"
        if many > GRID or constant_extent(schedule, outermost) is None:  # as an axis other than x takes
            places = {
                name: {"block.z": "block.x", "block.x": "block.z"}.get(p, p) for name, p in places.items()
            }
    keep = min(1, len(rest)) + len(blocks) + len(threads)
    schedule = rejoined(separated(schedule, names, keep), names, keep).bind(first, **places)
    return _written_out(schedule, kernel, w, keep, own)


def _written_out(
    schedule: Schedule, kernel: Kernel, w: Windows, keep: int, own: list[str]
) -> Schedule | Refused:
    """Pixels, filters and sums in registers, and all loops of a thread written out."""
    for unit in units(schedule, kernel.names, keep):
        if not is_perfect(schedule, unit):
            return Refused(Reason.OTHER_FORM, f"{unit[0]} and others share loops inside a tile")
        mine = [loop.name for loop in schedule.loops(unit[0])[keep:]]
        steps = [name for name in mine if name not in own]
        if steps and unit != (w.statement,):
            return Refused(Reason.OTHER_FORM, f"{unit[0]} is no function of single results")
        schedule = reordered(schedule, unit[0], (*steps, *(name for name in mine if name in own)))
        for name in (*steps, *own):
            if name in mine:
                schedule = schedule.unroll(unit[0], name)
    schedule = held_in_registers(schedule, kernel, prod(_own(schedule, w, own)))
    at = schedule.loops(w.statement)[keep - 1].name
    for tensor in dict.fromkeys((w.pixels.tensor, w.filters.tensor)):
        done = schedule.promote(tensor, w.statement, at=at, memory="register")
        (copy,) = added(schedule, done)
        for loop in [loop.name for loop in done.loops(copy)[keep:]]:
            done = done.unroll(copy, loop)
        schedule = done
    return schedule


def _own(schedule: Schedule, w: Windows, own: list[str]) -> list[int]:
    """Results of a thread along each of its loops."""
    return [constant_extent(schedule, loop) or 1 for loop in schedule.loops(w.statement) if loop.name in own]
