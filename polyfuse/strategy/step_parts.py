"""One part of a step that all blocks take together: a product in register tiles, anything else with a result a thread.

    for t: { for i: for j: for k: mac;  … }  ->  for t: { mac's blocks, in register tiles;  … }

A factor that no step changes may stay in the blocks' shared memory (strategy/held_shapes.py), where each block has one
tile of results in all steps, its part fits, and the model expects that to take less time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from polyfuse.errors import InvalidSchedule
from polyfuse.ir import Nest
from polyfuse.ir.tree import Loop, statements
from polyfuse.machine import Machine
from polyfuse.schedule import Schedule
from polyfuse.strategy import cuda
from polyfuse.strategy.choice import Choose
from polyfuse.strategy.contraction import Factor, Product
from polyfuse.strategy.cost import KernelCost, Tiling, microseconds, ranked
from polyfuse.strategy.counts import Counts, dims_of
from polyfuse.strategy.held_shapes import HeldShape, held_shapes, seconds_to_hold
from polyfuse.strategy.in_registers import product_in
from polyfuse.strategy.kernel import Kernel
from polyfuse.strategy.loops import Planned
from polyfuse.strategy.products_cuda import band_by_dimension, extents_for, in_register_tiles, shapes_for
from polyfuse.strategy.register_shapes import Shape, seconds_of_wait, waiting_seconds
from polyfuse.strategy.windows_cuda import Convolution


@dataclass(frozen=True)
class Part:
    """A part of a step, and where it is a product in tiles of one, with the loop of each of its dimensions.

    `alone` if it is all of a step.
    """

    kernel: Kernel
    alone: bool
    product: Product | None = None
    band: tuple[tuple[int, Loop], ...] = ()


def part_of(schedule: Schedule, kernel: Kernel, alone: bool) -> Part:
    """A kernel as a part of a step."""
    product = product_in(schedule.nest, kernel)
    band = None if product is None else band_by_dimension(kernel, product)
    if product is None or isinstance(product, Convolution) or not isinstance(band, dict):
        return Part(kernel, alone)
    return Part(kernel, alone, product, tuple(band.items()))


def usual_shape(schedule: Schedule, counts: Counts, part: Part, machine: Machine) -> Shape | None:
    """The shape of register tiles that is expected to be fastest where both factors are staged in each step.

    Tensor cores take blocks of another shape than other parts of a step do: only a product that is alone has them.
    """
    if part.product is None:
        return None
    machine = machine if part.alone else replace(machine, math="ieee")
    shapes = shapes_for(schedule, counts, part.kernel, part.product, dict(part.band), machine)
    return next((shape for shape in shapes if part.alone or shape.math == "ieee"), None)


def held_shape(
    schedule: Schedule, counts: Counts, part: Part, machine: Machine, choose: Choose
) -> HeldShape | str | None:
    """The shape with a factor that stays in shared memory, if it is expected to be faster; or why there is none.

    None where no factor stays the same in all steps.
    """
    assert machine.gpu is not None, "blocks are a GPU's"
    usual = usual_shape(schedule, counts, part, machine)
    if part.product is None or usual is None:
        return None
    same = [
        factor for factor in (part.product.right, part.product.left) if _is_same(schedule.nest, part, factor)
    ]
    if not same:
        return None
    if schedule.nest.params:
        return f"{same[0].name} does not stay in shared memory: its size is known when the kernel is called"
    itemsize = schedule.nest.tensor(schedule.nest.statement(part.product.statement).write.tensor).itemsize
    extents = extents_for(schedule, counts, part.kernel, part.product, dict(part.band), machine)
    found = held_shapes(extents, itemsize, machine, machine.gpu, same[0] is part.product.right)
    name, steps = same[0].name, _times(counts, part.kernel)
    if not found:
        return (
            f"{name} does not stay in shared memory: {machine.name} has {machine.units} blocks of "
            f"{machine.gpu.shared_per_block} bytes, and no tiles of {extents.rows} × {extents.columns} results with "
            f"{extents.steps} steps of {name} each fit"
        )
    best = found[0]
    held = _seconds(best, steps, machine) + seconds_to_hold(best, extents, machine)
    each = _seconds(usual, steps, machine)
    options = sorted([(held, True), (each, False)])
    if options[choose(part.kernel.names, "held", [seconds for seconds, _ in options])][1]:
        why = (
            f"{name} stays in shared memory, {best.held_bytes} bytes of it in each of {best.blocks(extents)} blocks, "
            f"which copy them once; {microseconds(held)} expected for {steps} steps, {microseconds(each)} where "
            "each step reads it"
        )
        return replace(best, reason=why, once=seconds_to_hold(best, extents, machine))
    return (
        f"{name} does not stay in shared memory: {microseconds(held)} expected for {steps} steps so, "
        f"{microseconds(each)} where each step reads it"
    )


def _is_same(nest: Nest, part: Part, factor: Factor) -> bool:
    """Whether a factor is a tensor that no step writes, and of which each step reads the same."""
    assert part.product is not None, "it has factors"
    s = nest.statement(part.product.statement)
    moving = frozenset[int]().union(*(dims_of(loop.date(s.name)) for loop in part.kernel.around))
    written = {nest.statement(name).write.tensor for name in statements(part.kernel.around[0])}
    return not factor.computed and factor.access.tensor not in written and not moving & factor.axes.keys()


def _seconds(shape: Shape, steps: int, machine: Machine) -> float:
    """What a product in tiles takes in all steps, in one launch."""
    return machine.launch_seconds + steps * (shape.seconds - machine.launch_seconds)


def _times(counts: Counts, kernel: Kernel) -> int:
    return prod(counts.extent(loop) for loop in kernel.around)


def mapped(
    schedule: Schedule, counts: Counts, part: Part, held: HeldShape | None, machine: Machine, choose: Choose
) -> tuple[Schedule, KernelCost, tuple[str, ...]]:
    """A part on blocks and threads: a product in register tiles (the `held` ones if given), else a result a thread."""
    kernel = part.kernel
    costs = ranked(kernel, machine, counts.total_bytes)
    steps = _times(counts, kernel)
    plain = costs[choose(kernel.names, "tiles", [cost.total for cost in costs])]
    plain = replace(plain, overhead=machine.launch_seconds, waiting=steps * 2 * seconds_of_wait(machine))
    shape = held or usual_shape(schedule, counts, part, machine)
    done = None if shape is None else _in_tiles(schedule, counts, part, shape, machine)
    if shape is not None and done is not None:
        seconds = _seconds(shape, steps, machine) + (held.once if held is not None else 0.0)
        one_each = plain.total + steps * waiting_seconds(shape, machine)
        options = sorted([(seconds, True), (one_each, False)])
        if options[choose(kernel.names, "form", [each for each, _ in options])][1]:
            compute, memory = steps * shape.issuing, steps * shape.moving
            cost = replace(plain, tiling=Tiling((), ()), compute=compute, memory=memory, waiting=0.0)
            return done.schedule, replace(cost, waiting=max(0.0, seconds - cost.total)), done.notes
    return cuda.shaped(schedule, counts, kernel, plain.tiling, machine), plain, ()


def _in_tiles(
    schedule: Schedule, counts: Counts, part: Part, shape: Shape, machine: Machine
) -> Planned | None:
    """A product's part of a step in register tiles; None where a verb is refused."""
    assert part.product is not None, "it has a shape"
    done = in_register_tiles(schedule, counts, part.kernel, part.product, shape, machine)
    if isinstance(done, Planned):
        return done
    if isinstance(shape, HeldShape):
        raise InvalidSchedule(done)
    return None
