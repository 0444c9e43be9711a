"""Price an elimination in blocks: products behind panels that run in loops (blocked_factorization.py)."""

from __future__ import annotations

from polyfuse.ir import Nest
from polyfuse.ir.tree import SHARED, Loop, Tree, loops, loops_around, restrict, statements
from polyfuse.machine import CpuMachine
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.cpu_loops import Estimator
from polyfuse.strategy.cost.roofline import CPU_EXPOSED, REGION_AGAIN, TILE_EFFICIENCY, KernelCost, Tiling


def panels_beside(nest: Nest, names: tuple[str, ...], products: frozenset[str]) -> tuple[str, ...]:
    """A kernel's other statements, if some of them add to what its products make; nothing else."""
    made = {nest.statement(name).write.tensor for name in products}
    others = tuple(name for name in names if name not in products)
    own = (nest.statement(name) for name in others)
    return others if any(s.is_reduction and s.write.tensor in made for s in own) else ()


def in_tiles(part: Tree) -> frozenset[str]:
    """The products of a kernel that are in tiles."""
    return frozenset(name for loop in loops(part) if loop.bind == "microkernel" for name in loop.names)


def panel_cost(counts: Counts, part: Loop, panels: tuple[str, ...], machine: CpuMachine) -> KernelCost:
    """Products at the rate of tiles, their sums to and fro once a block; panels by their loops."""
    beside = restrict(part, frozenset(panels))
    assert beside is not None, "asked before"
    estimate = Estimator(counts, machine).of(beside)
    held = sum(counts.tensor_bytes(t.name) for t in counts.nest.tensors if t.role != "temporary")
    compute, memory, overhead, moved = estimate.compute, estimate.memory, estimate.overhead, 0.0
    for tile in (loop for loop in loops(part) if loop.bind == "microkernel"):
        (name,) = tile.names
        units = machine.units if any(x.bind in SHARED for x in loops_around(part, name)) else 1
        itemsize = counts.nest.tensor(counts.nest.statement(name).write.tensor).itemsize
        steps = counts.work(name).instances * counts.filled(name)
        compute += 2 * steps / (machine.peak(itemsize, units) * TILE_EFFICIENCY)
        to_and_fro = 2 * itemsize * steps / counts.extent(tile)
        memory += to_and_fro / machine.bandwidth(machine.level(held), units)
        overhead += (units > 1) * REGION_AGAIN * counts.extent(part)
        moved += to_and_fro
    flops = sum(counts.operations(name) for name in statements(part))
    return KernelCost(
        Tiling((), ()),
        flops,
        held,
        int(moved),
        1,
        estimate.units / machine.units,
        compute,
        memory,
        overhead,
        CPU_EXPOSED,
    )
