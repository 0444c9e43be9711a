"""Stage a factor's tile in shared memory, copied by all threads of a block, in public verbs.

    for k (of 16): mac reads a[i, k]   ->   for k (of 16): { copy a's tile; mac reads the copy }

Every kernel in register tiles stages its factors so, attention's too (schedule.py).
"""

from __future__ import annotations

from math import prod

from polyfuse.analysis.storage import buffers_of, geometry
from polyfuse.errors import InvalidSchedule
from polyfuse.ir.tree import BULK, parts
from polyfuse.layouts.swizzle import MOST_ALONG
from polyfuse.schedule import Schedule
from polyfuse.schedule.promote.tma_boxes import BulkCopy, bulk_copy
from polyfuse.strategy.cuda.tiles.tile import ThreadblockTile
from polyfuse.strategy.cuda.tiles.tile_copies import line_of
from polyfuse.strategy.cuda.tiles.tile_shape import OperandTile
from polyfuse.strategy.cuda.transforms.thread_copies import by_threads
from polyfuse.strategy.match.gemm import Factor, Product
from polyfuse.strategy.match.operand_rows import by_steps, in_vectors
from polyfuse.strategy.transforms.band_verbs import inside, reordered
from polyfuse.strategy.transforms.packing import added


def staged_tile(
    schedule: Schedule,
    product: Product,
    tile: ThreadblockTile,
    factor: Factor,
    along: int,
    at: str,
    side: OperandTile,
) -> Schedule:
    """A factor's tile in shared memory, copied by all threads, 16 bytes a time where they are neighbours.

    `at` is the loop of which each value needs a tile, with as many steps as the tile says; with all of them where the
    factor stays.
    """
    stages, held = tile.stages_of(side), side == tile.held
    nest, name = schedule.nest, product.statement
    along_steps = by_steps(nest, product, factor)
    halves = tile.mma.keeps_halves or tile.math == "ieee"
    wide = in_vectors(nest, product, factor, tile.shape.itemsize, halves)
    of_steps, width = tile.panels(side, along_steps)
    dimension = product.steps[0] if of_steps else along
    done = schedule.promote(
        factor.name,
        name,
        at=at,
        memory="shared",
        panel=(factor.axes[dimension], width),
        stages=stages,
        **tile.laid_out(side, along_steps, wide),
    )
    (copy,) = added(schedule, done)
    check_fits(done, copy, at, tile)
    own = [loop.name for loop in done.loops(copy) if len(loop.dates) == 1 and loop.bind is None]
    step, element = own[factor.axes[product.steps[0]]], own[factor.axes[along]]
    if side.along_x and tile.operands.groups > 1:
        done, element = _in_groups(done, copy, (element, step), tile.operands.period)
    if tile.copy.boxes:
        done, box = in_boxes(done, copy, (step, element), along_steps, tile)
        if tile.cluster is not None and side == tile.shared and box.blocks != tile.cluster.blocks:
            raise InvalidSchedule(f"{factor.name} is not the same, or not copied, in all blocks of a cluster")
    else:
        values = tile.thread_values(side, along_steps, wide)
        done = by_threads(done, copy, (step, element), values, tile.shape, together=held)
    if stages == 1 or tile.producer_warp:  # a warp that only copies runs ahead by itself
        return done
    return done.shift(copy, at, 1 - tile.stages)


def in_boxes(
    schedule: Schedule, copy: str, loops: tuple[str, str], by_steps: bool, tile: ThreadblockTile
) -> tuple[Schedule, BulkCopy]:
    """A copy whose loops (steps, elements along the results) one instruction runs, a box at a time; and a box.

    for e0: for e1: load   ->   for e1 (panels of 64): for e0 (bulk, or bulk.warp): for e1_in: load

    Raises InvalidSchedule if they are no boxes.
    """
    step, element = loops
    line, fine = (element, step) if by_steps else (step, element)
    others = [x.name for x in schedule.loops(copy) if len(x.dates) == 1 and x.name not in loops]
    schedule = schedule.split(copy, line, MOST_ALONG).split(copy, fine, line_of(tile.element))
    box = [inside(schedule, copy, each).name for each in (line, fine)]
    schedule = schedule.reorder(copy, *others, line, fine, *box)
    schedule = schedule.unroll(copy, line).unroll(copy, fine).bind(copy, **{box[0]: tile.bound_to})
    kernel = next(part for part in parts(schedule.tree) if copy in part.members)
    held = {b.tensor: geometry(schedule.nest, kernel, loop, b) for loop, b in buffers_of(kernel)}
    top = next(x for x in schedule.loops(copy) if x.bind in BULK)
    _, made = bulk_copy(schedule.nest, kernel, top, held, None)
    return schedule, made


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


def check_fits(schedule: Schedule, copy: str, at: str, tile: ThreadblockTile) -> None:
    """Raises InvalidSchedule if a tile takes more than the plan says: its elements lie apart, as in x[8 * k]."""
    tensor = schedule.nest.tensor(schedule.nest.statement(copy).write.tensor)
    (loop,) = (loop for loop in schedule.loops(copy) if loop.name == at)
    (buffer,) = (buffer for buffer in loop.buffers if buffer.tensor == tensor.name)
    size = prod(geometry(schedule.nest, schedule.tree, loop, buffer).shape) * tensor.itemsize
    if size > tile.shared_bytes:
        raise InvalidSchedule(
            f"a tile of {tensor.name} takes {size} bytes of shared memory, not {tile.shared_bytes}"
        )
