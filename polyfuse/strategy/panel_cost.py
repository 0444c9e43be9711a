"""What the model expects of an elimination in blocks: products behind panels that run in loops (in_panels.py)."""

from __future__ import annotations

from polyfuse.ir.tree import Loop, Tree, loops, restrict, statements
from polyfuse.machine import Machine
from polyfuse.strategy.cost import CPU_EXPOSED, TILE_EFFICIENCY, KernelCost, Tiling
from polyfuse.strategy.counts import Counts
from polyfuse.strategy.estimate import Estimator


def panels_beside(counts: Counts, part: Tree) -> tuple[str, ...]:
    """A kernel's statements that no tile holds, if there are sums of a product that is somewhere else in tiles too."""
    tiled = {name for loop in loops(part) if loop.bind == "microkernel" for name in loop.names}
    made = {counts.nest.statement(name).write.tensor for name in tiled}
    others = tuple(name for name in statements(part) if name not in tiled)
    own = (counts.nest.statement(name) for name in others)
    return others if any(s.is_reduction and s.write.tensor in made for s in own) else ()


def panel_cost(counts: Counts, part: Loop, panels: tuple[str, ...], machine: Machine) -> KernelCost:
    """Products at the rate of tiles, their sums to and fro once a block; panels by their loops."""
    beside = restrict(part, frozenset(panels))
    assert beside is not None, "asked before"
    estimate = Estimator(counts, machine).of(beside)
    compute, memory, flops = estimate.compute, estimate.memory, 0
    moved = 0.0
    for name in statements(part):
        work = counts.work(name)
        flops += int(work.flops * counts.filled(name))
        if name not in panels:
            itemsize = counts.nest.tensor(counts.nest.statement(name).write.tensor).itemsize
            filled = work.instances * counts.filled(name)
            compute += 2 * filled / (machine.peak(itemsize, 1.0) * TILE_EFFICIENCY)
            moved += 2 * itemsize * filled / counts.extent(loop_of_steps(part, name))
    held = sum(counts.tensor_bytes(t.name) for t in counts.nest.tensors if t.role != "temporary")
    memory += moved / machine.bandwidth(machine.level(held), 1.0)
    return KernelCost(
        Tiling((), ()),
        flops,
        held,
        int(moved),
        1,
        1 / machine.units,
        compute,
        memory,
        estimate.overhead,
        CPU_EXPOSED,
    )


def loop_of_steps(part: Tree, name: str) -> Loop:
    """The loop of a product's steps in its tile."""
    return next(loop for loop in loops(part) if loop.bind == "microkernel" and name in loop.names)
