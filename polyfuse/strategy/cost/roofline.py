"""Price a kernel on a machine by a roofline, and choose the cheapest tiling of its band.

    cost = launch + region + max(compute, memory) + exposed × min(compute, memory)
    compute = operations / (peak × efficiency × utilisation)      a CPU's exponential counts as many (op_latency.py)
    memory  = compulsory bytes at the level that holds the whole program's data
            + bytes that tiles read again, at the level that still holds them when they are needed again

Tiles run in order of their loops, outermost first. A tensor that a tile loop does not index is read again in each of
the loop's iterations; in between, everything one iteration touches has gone by, which decides the level it is still in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from polyfuse.analysis.banks import WARP
from polyfuse.ir import Nest
from polyfuse.ir.tree import Tree
from polyfuse.machine import CpuMachine, Gpu, GpuMachine, Level, Machine
from polyfuse.measure import duration
from polyfuse.strategy.candidates import Choose
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.cpu_rows import row_seconds
from polyfuse.strategy.cost.equal_prices import Known, Priced
from polyfuse.strategy.cost.kernel_model import Kernel, Share

TILE_EFFICIENCY = 0.9
"""Fraction of the peak that tiled and blocked products reach: 89 to 95 % at 512 to 2048 (one Zen 4 core)."""

CPU_EXPOSED = 0.5
"""The part of the shorter of compute and memory time that a CPU core does not hide behind the longer. 4 × Linear(1024)
+ ReLU at batch 64 took 7.1 ms in one kernel, which reads the weights from L3 for every four rows (2.1 ms by the rates
above), and 4.8 ms in four kernels, which read them from L2 (1.0 ms): one Zen 5 core, numba 0.68."""

CUDA_EFFICIENCY = 0.125
"""One result a thread: a multiply-add reads two words of shared memory, of which an SM delivers 32 a cycle; it could
do 128 multiply-adds."""

BUSY_THREADS = 512
"""Threads that keep an SM's pipelines full: four schedulers × 32 lanes × four cycles of latency."""

RESTART_SECONDS = 75e-9
"""The seconds of a jump to another row of a tensor beyond L2 before its end: the hardware has prefetched nothing.
A += u v' of 2000 × 2000 took 1.2 ms more in tiles of 256 columns, 16000 pieces (one Zen 5 core)."""

REGION_AGAIN = 2.5e-6
"""Seconds of a parallel region directly after another one, with awake threads: 8 × 512 at batch 4 took 119 µs in
eight regions and 106 in one whose cores wait (two Zen 4 cores)."""

WAIT_SECONDS = 0.5e-6
"""The seconds of a wait between cores for the end of their shares: cache lines move from core to core."""

CACHED = 1
"""The level (L2) within which that costs nothing."""

NAMED_ROW = 3
"""Cycles of a row at a place that data name, besides its elements: a load of the place, which the address waits for.
128 rows of 16 numbers took 0.23 µs, where their elements and bytes are 0.14 (one Zen 4 core)."""

SEVERAL = 8
"""Values of a loop from which LLVM uses vectors for results that lie apart."""

ROWS = (8, 4, 2, 1)
"""Rows of a register tile on a CPU."""

COLUMNS = (64, 128, 256, 512)
"""Columns of a cache tile on a CPU: multiples of the widest vectors."""


BAND_TILES = "band tiles"
"""The choice of tiles for a kernel's parallel loops, as wishes call it (candidates.py)."""


@dataclass(frozen=True)
class Tiling:
    """Tile sizes for the band's loops (1: no tile, the loop itself counts tiles), and the order of the tile loops.

    `order` holds positions in the band, outermost first. `parallel` is the position of the loop whose tiles run at
    once on a CPU's cores, or None; a GPU runs all tiles at once.
    """

    sizes: tuple[int, ...]
    order: tuple[int, ...]
    parallel: int | None = None

    def name(self, kernel: Kernel) -> str:
        """The loops over tiles in order, as a wish calls the tiling (candidates.py): "i by 64 on cores, j by 32"."""
        found = []
        for place in self.order:
            by = f" by {self.sizes[place]}" if self.sizes[place] > 1 else ""
            found.append(f"{kernel.band[place].name}{by}{' on cores' if place == self.parallel else ''}")
        return ", ".join(found)


@dataclass(frozen=True)
class KernelCost:
    """Seconds, bytes and operations of one kernel under one tiling. `waiting` is what no work covers.

    Of its overhead are `meeting_seconds` those in which all blocks, or cores, wait for each other, `meetings` times.
    """

    tiling: Tiling
    flops: int
    compulsory: int
    again: int
    tiles: int
    utilisation: float
    compute: float
    memory: float
    overhead: float
    exposed: float = 0.0
    waiting: float = 0.0
    meetings: int = 0
    meeting_seconds: float = 0.0

    @property
    def total(self) -> float:
        """Seconds from the call to the last result."""
        longer, shorter = max(self.compute, self.memory), min(self.compute, self.memory)
        return self.overhead + self.waiting + longer + self.exposed * shorter

    @property
    def before(self) -> str:
        """The overheads besides operations and bytes, as text."""
        start = f"{duration(self.overhead - self.meeting_seconds)} to start"
        if self.meetings:
            start += f", {duration(self.meeting_seconds)} where all meet, {self.meetings} times"
        return f"{start}, {duration(self.waiting)} waiting for memory" if self.waiting else start

    def __str__(self) -> str:
        return (
            f"{duration(self.total)}: {self.before}, "
            f"{duration(self.compute)} for {self.flops} operations at {self.utilisation:.1%} of the machine and "
            f"{duration(self.memory)} for {self.compulsory} bytes once and {self.again} bytes again "
            f"({self.tiles} tiles)"
        )


def combined(
    found: Sequence[tuple[KernelCost, int]], start: float, meetings: int, meeting_seconds: float
) -> KernelCost:
    """The cost of one kernel of parts, each so many times, that start together: `start` is in no part's overhead."""
    costs = [cost for cost, _ in found]
    flops = sum(cost.flops for cost in costs)
    return KernelCost(
        Tiling((), ()),
        flops,
        sum(cost.compulsory for cost in costs),
        sum(cost.again for cost in costs),
        max(cost.tiles for cost in costs),
        sum(cost.utilisation * cost.flops for cost in costs) / max(1, flops),
        sum(cost.compute for cost in costs),
        sum(cost.memory for cost in costs),
        start + sum(cost.overhead * times for cost, times in found) + meeting_seconds,
        max(cost.exposed for cost in costs),
        sum(cost.waiting for cost in costs),
        meetings,
        meeting_seconds,
    )


Alone = Callable[[Nest, Kernel, KernelCost], KernelCost]
"""A function from a kernel's cost without tiles to its cost in the tiles that it gets alone in its launch."""


PairCosts = tuple[list[KernelCost], KernelCost]
"""The costs of two kernels, and that of both as one."""


class Model:
    """The costs of a nest's kernels on a machine; each part of a tree is costed once, and equal ones together."""

    def __init__(
        self, counts: Counts, machine: Machine, tiled: Alone | None = None, known: Known | None = None
    ) -> None:
        self.counts = counts
        self.machine = machine
        self.tiled = tiled
        self.known = Known(counts) if known is None else known
        self._costs: dict[int, tuple[Priced, KernelCost]] = {}
        self._pairs: dict[tuple[int, int, int], tuple[tuple[Tree, Tree, Tree], PairCosts]] = {}

    def kernel(self, part: Tree) -> Kernel:
        """The part as a kernel."""
        return self.known.of(part)[1]

    def cost(self, part: Tree) -> KernelCost:
        """The cost of the part under its best tiling."""
        key, kernel = self.known.of(part)
        if id(key) not in self._costs:
            self._costs[id(key)] = key, best(kernel, self.machine, self.counts.total_bytes)
        return self._costs[id(key)][1]

    def of_pair(
        self, first: Tree, second: Tree, merged: Tree, ask: Callable[[Model, Tree, Tree, Tree], PairCosts]
    ) -> PairCosts:
        """Return the costs of two kernels and of both as one; `ask` is called once a pair, which searches share."""
        kernels = first, second, merged
        key = id(first), id(second), id(merged)
        if key not in self._pairs:  # the kernels are kept with the answer: others never have their ids
            self._pairs[key] = kernels, ask(self, *kernels)
        return self._pairs[key][1]


@dataclass(frozen=True)
class Models:
    """The models that one plan has asked so far: searches for one nest on one machine ask the same one."""

    made: list[Model] = field(default_factory=list)

    def of(self, nest: Nest, machine: Machine, tiled: Alone | None = None) -> Model:
        """The model of a nest on a machine, made where there is none yet; its counts and kernels are the nest's."""
        counted = [model for model in self.made if model.counts.nest is nest]
        same = (m for m in counted if m.machine == machine and (m.tiled is None) == (tiled is None))
        found = next(same, None)
        if found is None:
            known = counted[0].known if counted else Known(Counts(nest))
            found = Model(known.counts, machine, tiled, known)
            self.made.append(found)
        return found


def best(kernel: Kernel, machine: Machine, resident: int) -> KernelCost:
    """The cheapest tiling; of equals the one that moves least, then the first. `resident`: bytes of the program."""
    return ranked(kernel, machine, resident)[0]


def ranked(kernel: Kernel, machine: Machine, resident: int) -> list[KernelCost]:
    """Every tiling's cost, the cheapest first."""
    tilings = (
        cuda_tilings(kernel, machine.gpu) if isinstance(machine, GpuMachine) else cpu_tilings(kernel, machine)
    )
    costs = (cost_of(kernel, machine, resident, tiling) for tiling in tilings)
    return sorted(costs, key=lambda cost: (round(cost.total, 12), round(cost.memory, 12)))


def chosen_tiling(kernel: Kernel, costs: list[KernelCost], choose: Choose) -> KernelCost:
    """The tiling to take, of all that there are: the first, or what is asked for."""
    return choose.best(
        BAND_TILES,
        kernel.names,
        costs,
        seconds=lambda cost: cost.total,
        name=lambda cost: cost.tiling.name(kernel),
        what="tiles",
    )


def cost_of(kernel: Kernel, machine: Machine, resident: int, tiling: Tiling) -> KernelCost:
    """The cost of one tiling."""
    if isinstance(machine, GpuMachine):
        return on_cuda(kernel, machine, resident, tiling)
    assert isinstance(machine, CpuMachine)
    return on_cpu(kernel, machine, resident, tiling)


# -- tilings to choose from --------------------------------------------------------------------------------------------


def cpu_tilings(kernel: Kernel, machine: Machine) -> Iterator[Tiling]:
    """Rows and columns of the last two band loops, in either order, in parallel or not; rows alone of the last one."""
    extents, size = kernel.extents, len(kernel.extents)
    choices: list[tuple[int, ...]] = [(1,)] * size
    if size:
        column = kernel.column
        row = size - 1 if column is None else size - 2
        if _shared_between(kernel, row):
            choices[row] = tuple(r for r in ROWS if extents[row] % r == 0)
        if column is not None:
            choices[column] = (extents[column], *(c for c in COLUMNS if c < extents[column]))
    straight = tuple(range(size))
    orders = (
        [straight] if kernel.column is None or size == 1 else [straight, (*straight[:-2], size - 1, size - 2)]
    )
    for sizes, order in product(product(*choices), orders):
        yield Tiling(sizes, order)
        several = [p for p in order if tiles_along(extents[p], sizes[p]) > 1]
        if several and machine.units > 1:
            yield Tiling(sizes, order, several[0])


def _shared_between(kernel: Kernel, position: int) -> bool:
    """True if different values of a band loop read the same elements of something of size: then rows pay."""
    return any(u.read and u.ratios[position] == 1.0 and u.elements > 1024 for u in kernel.uses)


def cuda_tilings(kernel: Kernel, gpu: Gpu) -> Iterator[Tiling]:
    """Tiles of the last two band loops (or the last, where lanes share rows) that fit into a block of threads."""
    extents, size = kernel.extents, len(kernel.extents)
    inner = max((share.at_once for share in kernel.shares), default=1)
    choices: list[tuple[int, ...]] = [(1,)] * size
    if size == 1 or (size and any(share.lanes > 1 for share in kernel.shares)):
        rows = (1, 2, 4, 8, 16, 32) if inner > 1 else (256, 128, 64, 32)
        choices[-1] = _capped(rows, extents[-1])
    elif size > 1:
        choices[-2] = _capped((16, 8, 4, 2, 1, 32), extents[-2])
        choices[-1] = _capped((32, 16, 64, 128, 256), extents[-1])
    for sizes in product(*choices):
        if math.prod(sizes) <= gpu.max_threads_per_block:
            yield Tiling(sizes, tuple(range(size)))


def _capped(sizes: tuple[int, ...], extent: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys(min(size, extent) for size in sizes))


def tiles_along(extent: int, size: int) -> int:
    """Tiles of a loop."""
    return -(-extent // size)


# -- the two targets ---------------------------------------------------------------------------------------------------


def on_cpu(kernel: Kernel, machine: CpuMachine, resident: int, tiling: Tiling) -> KernelCost:
    """Tiles in order, or one loop of them over the cores."""
    counts = [tiles_along(e, s) for e, s in zip(kernel.extents, tiling.sizes, strict=True)]
    units = 1.0 if tiling.parallel is None else evenly(counts[tiling.parallel], machine.units)
    effort = sum(
        share.operations.effort(machine.functions)
        * max(slower_apart(share, kernel.itemsize, machine), slower_alone(share, kernel, machine))
        for share in kernel.shares
    )
    compute = effort / machine.in_loops(kernel.itemsize, units)
    compute += NAMED_ROW * machine.cycle * sum(share.named for share in kernel.shares) / units
    compute += row_seconds(kernel, machine) / units
    memory = kernel.compulsory / machine.bandwidth(machine.level(resident), units)
    again = 0.0
    for moved, held in rereads(kernel, tiling):
        again += moved
        memory += moved / machine.reading(machine.level(held), units)
    memory += sum(
        moved / machine.reading(level, units) for moved, level in left_behind(kernel, machine, tiling)
    )
    if resident > machine.levels[CACHED].size:
        memory += RESTART_SECONDS * segments(kernel, tiling) / units
    region = machine.region_seconds if tiling.parallel is not None else 0.0
    return KernelCost(
        tiling,
        kernel.flops,
        kernel.compulsory,
        int(again),
        math.prod(counts),
        units / machine.units,
        compute,
        memory,
        machine.launch_seconds + region,
        CPU_EXPOSED,
    )


def slower_apart(share: Share, itemsize: int, machine: CpuMachine) -> float:
    """The factor by which results that lie apart, as y[2 * i], make a statement slower than vectors in loops.

    Each is a scalar operation; with SEVERAL along the row, half of them. The four phases of DCGAN's transposed
    convolutions, which write y[2 * k, 2 * l], took 510 µs with 4 values of l, and 280 with 8 or 16, where the peak
    allows 35 (one Zen core, numba 0.68).
    """
    if share.spread <= share.row:
        return 1.0
    return max(1.0, scalar(itemsize, machine) / (2 if share.spread >= SEVERAL else 1))


def slower_alone(share: Share, kernel: Kernel, machine: CpuMachine) -> float:
    """The factor by which one value for each row of others, as a sum's logistic, makes a statement slower than vectors.

    128 sums of 64 products and their logistic took 1.33 µs, where vectors in loops would take 0.65 (one Zen 4 core).
    """
    alone = len(kernel.shares) > 1 and max(share.row, share.spread) <= 1 and not share.adds
    return scalar(kernel.itemsize, machine) if alone else 1.0


def scalar(itemsize: int, machine: CpuMachine) -> float:
    """The factor by which scalar operations at their peak are slower than vectors in loops."""
    return max(1.0, machine.vector_bytes / itemsize * machine.loops)


def in_short_rows(kernel: Kernel, cost: KernelCost, machine: Machine) -> KernelCost:
    """The cost of a kernel whose sums get no microkernel: those along rows of one vector at most are scalar.

    LLVM writes out a loop over so few values before it looks for vectors: 4 × Linear(16) at batch 2 took 0.82 µs in one
    kernel of loops and 0.13 in four of microkernels, where vectors in loops would take 0.07 (one Zen core, numba 0.68).
    """
    if not isinstance(machine, CpuMachine):
        return cost
    lanes, slower = machine.vector_bytes / kernel.itemsize, scalar(kernel.itemsize, machine)
    taken = [(share, share.operations.effort(machine.functions)) for share in kernel.shares]
    short = sum(effort for share, effort in taken if share.adds and 0 < share.row <= lanes)
    every = sum(effort for _, effort in taken)
    return replace(cost, compute=cost.compute * (1 + (slower - 1) * short / max(1.0, every)))


def segments(kernel: Kernel, tiling: Tiling) -> int:
    """The pieces in which tiles of columns, one after the other, walk through rows of memory; 0 for whole rows.

    for i: for j: A[i, j]  ->  for j (of 256): for i: for j_in: A[i, j]     2000 × 2000: 8 × 2000 pieces
    """
    column = kernel.column
    if column is None or tiling.order[-1] == column or tiling.sizes[column] >= kernel.extents[column]:
        return 0
    rows = math.prod(kernel.extents[:-1]) * tiles_along(kernel.extents[column], tiling.sizes[column])
    return rows * sum(not u.internal and max(u.ratios) < 1.0 for u in kernel.uses)


def evenly(values: int, units: int) -> float:
    """The cores that so many values of equal work keep busy: all of the work over that of the busiest core."""
    return values / math.ceil(values / units)


def in_blocks(
    kernel: Kernel, machine: Machine, resident: int, at_work: float | None, tiles: float = 0.0
) -> KernelCost:
    """A product's kernel in blocks (strategy.products), on so many cores; None: without a parallel loop.

    `tiles` are the seconds that one core takes for its register tiles, where they are known (register_tiles.py).

    On a CPU functions that follow it run in loops: softmax of 256 x 256 scores took 20 µs of 74 behind their product of
    32 steps (one Zen 4 core).
    """
    units = 1.0 if at_work is None else at_work
    region, functions = 0.0, 0.0
    if isinstance(machine, CpuMachine):
        region = machine.region_seconds if at_work is not None else 0.0
        longer = sum(share.operations.effort(machine.functions) - share.flops for share in kernel.shares)
        functions = longer / machine.in_loops(kernel.itemsize, units)
    return KernelCost(
        Tiling((), ()),
        kernel.flops,
        kernel.compulsory,
        0,
        1,
        units / machine.units,
        max(kernel.flops / (machine.peak(kernel.itemsize, units) * TILE_EFFICIENCY), tiles / units)
        + functions,
        kernel.compulsory / machine.bandwidth(machine.level(resident), units),
        machine.launch_seconds + region,
        CPU_EXPOSED,
    )


def rereads(kernel: Kernel, tiling: Tiling) -> Iterator[tuple[float, float]]:
    """For each tile loop, outermost first: (bytes it reads again, bytes that go by in one of its iterations)."""
    sizes = list(kernel.extents)
    iterations = 1
    before = [float(u.elements * u.itemsize) for u in kernel.uses]
    for position in tiling.order:
        sizes[position] = tiling.sizes[position]
        iterations *= tiles_along(kernel.extents[position], tiling.sizes[position])
        now = [u.bytes_in(tuple(sizes), kernel.extents) for u in kernel.uses]
        moved = [iterations * touched for touched in now]
        outside = [u.read and not u.internal for u in kernel.uses]
        yield sum(m - b for m, b, o in zip(moved, before, outside, strict=True) if o), sum(now)
        before = moved


def passed_again(kernel: Kernel, tiling: Tiling) -> Iterator[tuple[float, float]]:
    """(bytes that the loops inside the band read again, bytes of one tile's), of each tensor that several read.

    for i: { for j: s += x[i, j]; for j: y[i, j] = x[i, j] - s }: a tile's rows, which L1 holds if they are few.
    """
    for use in kernel.uses:
        if use.read and not use.internal and use.passes > 1:
            held = use.bytes_in(tiling.sizes, kernel.extents)
            yield (use.passes - 1) * float(use.elements * use.itemsize), held


def left_behind(kernel: Kernel, machine: CpuMachine, tiling: Tiling) -> Iterator[tuple[float, Level]]:
    """(bytes, the level that holds them) of what the loops inside a band leave for each other where L1 does not.

    Softmax of rows of 50257: x is read three times, the exponentials are written and read. 144 µs were predicted
    without this, and 176 with it and the prices of functions and rows; 181 to 212 measured (one core of a Xeon).
    """
    held = sum(use.bytes_in(tiling.sizes, kernel.extents) for use in kernel.uses)
    level = machine.level(held)
    if level is machine.levels[0] or len(kernel.shares) == 1:
        return
    for moved, _ in passed_again(kernel, tiling):
        yield moved, level
    for use in kernel.uses:
        if use.internal and use.passes > 1:
            yield use.passes * float(use.elements * use.itemsize), level


def on_cuda(kernel: Kernel, machine: GpuMachine, resident: int, tiling: Tiling) -> KernelCost:
    """One block a tile, all at once; each statement's instances over the block's threads."""
    gpu = machine.gpu
    counts = [tiles_along(e, s) for e, s in zip(kernel.extents, tiling.sizes, strict=True)]
    blocks, points = math.prod(counts), math.prod(tiling.sizes)
    per_sm = math.ceil(blocks / machine.units)
    spread = blocks / (machine.units * per_sm)
    # several rows share a block by warps, if a row alone would have all of it
    by_warps = points > 1 and any(share.lanes > WARP for share in kernel.shares)
    at_once = [min(share.at_once, WARP) if by_warps else share.at_once for share in kernel.shares]
    threads = [min(points * each, gpu.max_threads_per_block) for each in at_once]
    together = min(per_sm, gpu.max_threads_per_sm // max(threads, default=1))
    compute, busy = 0.0, 0.0
    for share, working in zip(kernel.shares, threads, strict=True):
        utilisation = spread * min(1.0, working * together / BUSY_THREADS)
        compute += share.flops / (
            machine.peak(kernel.itemsize, machine.units) * CUDA_EFFICIENCY * utilisation
        )
        busy += utilisation * share.flops
    again = 0.0
    for count, (moved, held) in zip((counts[p] for p in tiling.order), rereads(kernel, tiling), strict=True):
        near = (
            held * together <= gpu.shared_per_sm
        )  # an SM has it from its own tile before, if it has several
        again += moved * min(1.0, machine.units / count) if near else moved
    drawing = min(blocks, machine.units)
    memory = kernel.compulsory / machine.bandwidth(machine.level(resident), drawing)
    memory += again / machine.bandwidth(machine.levels[0], drawing)
    for moved, held in passed_again(kernel, tiling):
        resident_bytes = held * together
        if resident_bytes > gpu.shared_per_sm:
            memory += moved / machine.bandwidth(machine.level(int(resident_bytes * machine.units)), drawing)
    return KernelCost(
        tiling,
        kernel.flops,
        kernel.compulsory,
        int(again),
        blocks,
        busy / max(1, kernel.flops),
        compute,
        memory,
        machine.launch_seconds + gpu.barrier_seconds * (len(kernel.shares) - 1),
    )
