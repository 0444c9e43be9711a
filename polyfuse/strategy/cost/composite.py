"""Price finished kernels, whose loops are tiled and bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from polyfuse.analysis.across_blocks import is_resident
from polyfuse.analysis.storage import BLOCKS, buffers_of, geometry
from polyfuse.ir.nest_data import read_tensors
from polyfuse.ir.scalar import Read
from polyfuse.ir.tree import SHARED, Loop, Tree, loops_around, parts, statements
from polyfuse.ir.tree import loops as loops_of
from polyfuse.machine import CpuMachine, GpuMachine, Machine
from polyfuse.schedule import Schedule
from polyfuse.schedule.chains import chain_from
from polyfuse.schedule.sections_verb import values_of
from polyfuse.strategy.cost.counts import Counts, dims_of, stride
from polyfuse.strategy.cost.cpu_loops import Estimator, cost_from
from polyfuse.strategy.cost.cpu_rows import beside_seconds
from polyfuse.strategy.cost.doacross_cost import cost_in_turns
from polyfuse.strategy.cost.factorization_cost import in_tiles, panel_cost, panels_beside
from polyfuse.strategy.cost.kernel_model import Kernel, band_of, is_internal, kernel_of
from polyfuse.strategy.cost.load_balance import cores_at_work
from polyfuse.strategy.cost.parallel_regions import joined_kernels, region_cost
from polyfuse.strategy.cost.persistent_kernel import resident_cost, with_meetings
from polyfuse.strategy.cost.register_tiles import tile_seconds
from polyfuse.strategy.cost.roofline import CACHED, RESTART_SECONDS, KernelCost, Tiling, cost_of, in_blocks
from polyfuse.strategy.plan import Group


def kernels_of(schedule: Schedule, names: tuple[str, ...], machine: Machine) -> Iterator[Group]:
    """The kernels of these statements alone, in order."""
    counts = Counts.of(schedule)
    for part in parts(schedule.tree):
        if set(statements(part)) <= set(names):
            yield Group(statements(part), finished_cost(counts, part, machine))


def finished_cost(counts: Counts, part: Tree, machine: Machine) -> KernelCost:
    """The expected cost of a finished kernel, with the operations of the instances that there are."""
    if isinstance(machine, GpuMachine):
        cost = _on_gpu(counts, part, machine)
    else:
        assert isinstance(machine, CpuMachine)
        cost = _on_cpu(counts, part, machine)
    return replace(cost, flops=sum(counts.operations(name) for name in statements(part)))


def _on_gpu(counts: Counts, part: Tree, machine: GpuMachine) -> KernelCost:
    """A GPU's kernel: its tasks are the values of its loops on blocks."""
    if is_resident(part):
        return resident_cost(counts, part, machine, lambda inside: _on_gpu(counts, inside, machine))
    if any(loop.bind == "microkernel" for loop in loops_of(part)):
        return in_blocks(kernel_of(counts, part, ()), machine, counts.total_bytes, machine.units)
    chain = chain_from(part) if isinstance(part, Loop) else ()
    return _in_band(counts, part, tuple(loop for loop in chain if loop.bind in BLOCKS), machine)


def _on_cpu(counts: Counts, part: Tree, machine: CpuMachine) -> KernelCost:
    """A CPU's kernel: its tasks are the values of its band down to the vector loop."""
    if isinstance(part, Loop) and part.bind == "pipeline" and values_of(part):
        return cost_in_turns(counts, part, machine)
    joined = joined_kernels(counts.nest, part)
    if joined:
        return region_cost(joined, [_on_cpu(counts, each, machine) for each in joined], machine)
    panels = panels_beside(counts.nest, statements(part), in_tiles(part))
    if panels and isinstance(part, Loop):
        return panel_cost(counts, part, panels, machine)
    places = {loop.bind: loop for loop in loops_of(part)}
    if "microkernel" in places:
        cores = next((places[place] for place in SHARED if place in places), None)
        at_work = cores_at_work(counts, cores, machine.units) if cores is not None else None
        tiles = tile_seconds(counts, part, machine)
        kernel = _without_gaps(counts, kernel_of(counts, part, ()))
        cost = in_blocks(kernel, machine, counts.total_bytes, at_work, tiles)
        units = at_work or 1.0
        return replace(
            cost,
            compute=cost.compute + beside_seconds(counts, part, machine) / units,
            memory=cost.memory + _through_buffers(counts, part, machine, units),
        )
    band = band_of(counts, part)
    inner = next((p for p, loop in enumerate(band) if loop.bind in ("vector", "unroll")), len(band))
    estimator = Estimator(counts, machine)
    if not inner or all(counts.extent(loop) == 1 for loop in band[:inner]) or estimator.waits(part):
        return cost_from(counts, part, estimator.of(part), machine)
    return _in_band(counts, part, band[:inner], machine)


def _without_gaps(counts: Counts, kernel: Kernel) -> Kernel:
    """The kernel with the work of its instances alone, where they do not fill the box around them.

    A symmetric product computes half of its results: 1400 x 1400 sums over 1800 took 104 ms, where 138 are the least
    for all of them (one core of a Zen 3).
    """
    shares = []
    for share in kernel.shares:
        filled, operations = counts.filled(share.statement), counts.operations(share.statement)
        shares.append(replace(share, flops=operations, operations=share.operations.times(filled)))
    return replace(kernel, shares=tuple(shares))


def _through_buffers(counts: Counts, part: Tree, machine: CpuMachine, units: float) -> float:
    """Seconds in which values go through buffers of a kernel that L1 does not hold, each access of all elements once.

    Copies, such as a product's packed factors, are what its tiles reach so much of the peak with.

    Attention in one pass keeps 256 x 128 scores, and their exponentials, between loops over all rows: 256 queries and
    keys of 32 features took 114 µs so and 103 with whole rows, in buffers of six (one Zen 4 core).
    """
    seconds = 0.0
    for loop, buffer in buffers_of(part):
        size = (
            prod(geometry(counts.nest, part, loop, buffer).shape) * counts.nest.tensor(buffer.tensor).itemsize
        )
        level = machine.level(size)
        users = [counts.nest.statement(name) for name in statements(loop)]
        is_copy = all(isinstance(s.body, Read) for s in users if s.write.tensor == buffer.tensor)
        if buffer.memory != "local" or level is machine.levels[0] or is_copy:
            continue
        for s in users:
            for position, access in enumerate(s.accesses):
                if access.tensor == buffer.tensor:
                    moved = counts.footprint(s.name, position) * counts.nest.tensor(access.tensor).itemsize
                    seconds += moved / machine.bandwidth(level, units)
    return seconds


def _in_band(counts: Counts, part: Tree, band: tuple[Loop, ...], machine: Machine) -> KernelCost:
    """A kernel whose tasks are the values of these loops, of which one may be shared out."""
    kernel = kernel_of(counts, part, band)
    sizes, order = (1,) * len(kernel.band), tuple(range(len(kernel.band)))
    parallel = next((p for p, loop in enumerate(kernel.band) if loop.bind in SHARED), None)
    cost = cost_of(kernel, machine, counts.total_bytes, Tiling(sizes, order, parallel))
    if isinstance(machine, GpuMachine) or counts.total_bytes <= machine.levels[CACHED].size:
        return cost
    again = RESTART_SECONDS * _pieces_of_rows(counts, part, band) / (cost.utilisation * machine.units)
    return replace(cost, memory=cost.memory + again)


def _pieces_of_rows(counts: Counts, part: Tree, band: tuple[Loop, ...]) -> float:
    """The pieces of rows of memory that tiles of columns go through, each once for each loop over rows inside.

    for j (tiles): for i: for j_in (vector): t = y[i, j] = a * x[i, j] + b * t     a row: a piece of x, and one of y

    PolyBench's deriche goes down 4096 rows of 17 KB in tiles of 2 KB, and up: 24.8 ms, of which the bytes are 9.3 (one
    Zen 5 core).
    """
    found = dict[tuple[str, int], float]()
    if counts.extent(band[-1]) < 2:  # whole rows follow each other
        return 0.0
    for name in statements(part):
        _, *inside = loops_around(part, name)[len(band) - 1 :]
        if len(inside) < 2 or counts.extent(inside[0]) < 2:
            continue
        rows, row = inside[0], inside[-1]
        along = dims_of(row.date(name)) & dims_of(band[-1].date(name))
        pieces = counts.work(name).instances / counts.extent(row)
        for access in counts.nest.statement(name).accesses:
            near = any(stride(access, d) == 1 for d in along)
            if near and not is_internal(counts, access.tensor, part.members):
                found[access.tensor, id(rows)] = max(pieces, found.get((access.tensor, id(rows)), 0.0))
    return sum(found.values())


def schedule_costs(schedule: Schedule, machine: Machine) -> tuple[KernelCost, ...]:
    """The expected cost of each kernel of a finished schedule, in order."""
    counts = Counts.of(schedule)
    return tuple(finished_cost(counts, part, machine) for part in parts(schedule.tree))


def planned_costs(
    groups: tuple[Group, ...], schedule: Schedule, machine: Machine, early: Sequence[bool]
) -> tuple[KernelCost, ...]:
    """The plan's expected cost of each kernel, of which the `early` ones run once for all calls.

    On a GPU with the grid barriers of the synchronised schedule; on a CPU with what a kernel finds in a near cache.
    """
    counts = Counts.of(schedule)
    if not isinstance(machine, GpuMachine):
        assert isinstance(machine, CpuMachine)
        return tuple(_as_left(counts, groups, early, machine))
    kernels = zip(groups, parts(schedule.tree), strict=True)
    return tuple(with_meetings(group.cost, counts, kernel, machine) for group, kernel in kernels)


def _as_left(
    counts: Counts, groups: tuple[Group, ...], early: Sequence[bool], machine: CpuMachine
) -> Iterator[KernelCost]:
    """The costs of kernels in order, each with what it reads from the cache where others have just left it.

    The search, which has them in no order yet, prices each as if all bytes of a call went by before it. Means of 128 x
    14 x 14 sums, which the kernel before writes, took 0.56 µs beside 18 MB of others; 1.05 were expected, and 0.64 with
    these 100 KB in L2 (one Zen 5 core).
    """
    far = machine.level(counts.total_bytes)
    before: list[frozenset[str]] = []
    for group, first in zip(groups, early, strict=True):
        if first:
            yield group.cost
            continue
        steps, names = [counts.nest.statement(name) for name in group.statements], frozenset(group.statements)
        mine = frozenset(t for s in steps for t in s.tensors if not is_internal(counts, t, names))
        left, by, saved = mine.intersection(t for s in steps for t in read_tensors(s)), mine, 0.0
        for others in reversed(before):
            by |= others
            near = machine.level(sum(map(counts.tensor_bytes, by)))
            if near is far or not left:
                break
            found = min(sum(map(counts.tensor_bytes, left & others)), group.cost.compulsory)
            units = group.cost.utilisation * machine.units
            saved += found / machine.bandwidth(far, units) - found / machine.bandwidth(near, units)
            left -= others
        before.append(mine)
        yield replace(group.cost, memory=max(0.0, group.cost.memory - saved))


def roofline_bounds(schedule: Schedule, costs: tuple[KernelCost, ...], machine: Machine) -> tuple[float, ...]:
    """The seconds that each kernel takes at least: all units at their peak, or each byte outside it moved once."""
    nest, resident = schedule.nest, Counts.of(schedule).total_bytes
    rate = machine.bandwidth(machine.level(resident), machine.units)
    found = []
    for part, cost in zip(parts(schedule.tree), costs, strict=True):
        written = {nest.statement(name).write.tensor for name in statements(part)}
        itemsize = max(nest.tensor(name).itemsize for name in written)
        peak = machine.peak(itemsize, machine.units)
        if isinstance(machine, GpuMachine) and machine.math in dict(machine.tensor):
            peak = max(peak, machine.tensor_peak(machine.math, machine.units))
        found.append(max(cost.flops / peak, cost.compulsory / rate))
    return tuple(found)
