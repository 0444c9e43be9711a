"""A factor's tile in a block's shared memory, copied there by all its threads, in public verbs.

    for k (of 16): mac reads a[i, k]   ->   for k (of 16): { copy a's tile; mac reads the copy }

Every kernel in register tiles stages its factors so, attention's too (schedule.py).
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from polyfuse.analysis.storage import geometry
from polyfuse.errors import InvalidSchedule
from polyfuse.schedule import Schedule
from polyfuse.strategy.cuda.tiles.cluster import ClusterShape
from polyfuse.strategy.cuda.tiles.fma import Shape, Side
from polyfuse.strategy.cuda.tiles.persistent import StepShape
from polyfuse.strategy.cuda.tiles.warp_specialized import OwnWarpShape
from polyfuse.strategy.cuda.tiles.wgmma_tma import BulkShape, in_boxes
from polyfuse.strategy.cuda.transforms.thread_copies import by_threads
from polyfuse.strategy.match.gemm import Factor, Product
from polyfuse.strategy.match.operand_rows import by_steps, in_vectors
from polyfuse.strategy.transforms.band_verbs import inside, reordered
from polyfuse.strategy.transforms.packing import added


def staged_tile(
    schedule: Schedule, product: Product, shape: Shape, factor: Factor, along: int, at: str, side: Side
) -> Schedule:
    """A factor's tile in shared memory, copied by all threads, 16 bytes a time where they are neighbours.

    `at` is the loop of which each value needs a tile, with as many steps as the shape says; with all of them where the
    factor stays.
    """
    held = isinstance(shape, StepShape) and side == shape.held
    stages = 1 if held else shape.stages
    nest, name = schedule.nest, product.statement
    along_steps = by_steps(nest, product, factor)
    wide = in_vectors(nest, product, factor, shape.itemsize, shape.keeps_halves or shape.math == "ieee")
    of_steps, width = shape.panels(side, along_steps)
    dimension = product.steps[0] if of_steps else along
    done = schedule.promote(
        factor.name,
        name,
        at=at,
        memory="shared",
        panel=(factor.axes[dimension], width),
        stages=stages,
        **shape.laid_out(side, along_steps, wide),
    )
    (copy,) = added(schedule, done)
    check_fits(done, copy, at, shape)
    own = [loop.name for loop in done.loops(copy) if len(loop.dates) == 1 and loop.bind is None]
    step, element = own[factor.axes[product.steps[0]]], own[factor.axes[along]]
    if isinstance(shape, StepShape) and side.along_x and shape.groups > 1:
        done, element = _in_groups(done, copy, (element, step), shape.period)
    copied = replace(shape, stages=stages)
    vector = copied.at_once(along_steps) if wide else 1
    axes = copied.copying(along_steps)
    if isinstance(shape, BulkShape):
        done, box = in_boxes(done, copy, (step, element), along_steps, shape)
        if isinstance(shape, ClusterShape) and side == shape.shared and box.blocks != shape.cluster:
            raise InvalidSchedule(f"{factor.name} is not the same, or not copied, in all blocks of a cluster")
    else:
        done = by_threads(done, copy, (step, element), along_steps, vector, copied, side, axes, together=held)
    if stages == 1 or isinstance(shape, OwnWarpShape):  # whose warp runs ahead by itself
        return done
    return done.shift(copy, at, 1 - shape.stages)


def _in_groups(schedule: Schedule, copy: str, loops: tuple[str, str], period: int) -> tuple[Schedule, str]:
    """for e (of 0 … 7, 512 … 519, …): load   ->   for e_e_in (of 0 … 31): load, group after group."""
    element, step = loops
    schedule = schedule.split(copy, element, period)
    within = inside(schedule, copy, element).name
    schedule = reordered(schedule, copy, (step, element, within))
    before = {loop.name for loop in schedule.loops(copy)}
    schedule = schedule.collapse(copy, element, within)
    (made,) = {loop.name for loop in schedule.loops(copy)} - before
    return schedule, made


def check_fits(schedule: Schedule, copy: str, at: str, shape: Shape) -> None:
    """Raises InvalidSchedule where a tile takes more than the plan says: its elements lie apart, as in x[8 * k]."""
    tensor = schedule.nest.tensor(schedule.nest.statement(copy).write.tensor)
    (loop,) = (loop for loop in schedule.loops(copy) if loop.name == at)
    (buffer,) = (buffer for buffer in loop.buffers if buffer.tensor == tensor.name)
    size = prod(geometry(schedule.nest, schedule.tree, loop, buffer).shape) * tensor.itemsize
    if size > shape.shared_bytes:
        raise InvalidSchedule(
            f"a tile of {tensor.name} takes {size} bytes of shared memory, not {shape.shared_bytes}"
        )
