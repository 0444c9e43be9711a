"""Run parts of a step in the blocks that computed their operands, so that no grid barrier separates them.

    for t: { for i: for j < 4 n: z[i, j] = …;  for i: for k < n: … z[i, k], z[i, n + k], z[i, 2 n + k] … }
    ->  for t: { blocks of rows i and units j mod n: z;  the same blocks of rows i and units k: … }

The theorem: at both ends of every dependence from the product to the part in one step rows and units are the same,
(i, j mod n) = (i, k). Then both ends of it are one block's, if both are cut alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import permutations

import islpy as isl

from polyfuse.ir.dependences import Pairs
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Loop
from polyfuse.schedule import Schedule
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.kernel_model import Kernel
from polyfuse.strategy.cuda.tiles.tile import ThreadblockTile
from polyfuse.strategy.transforms.band_verbs import constant_extent, inside, reordered

MOST_THREADS = 128
"""Threads of a block at most, if the product has not more: a launch has the longest of its parts along each axis, and
ptxas took 79 of 72 registers planned for tiles of 4 × 4 in blocks of 256 threads, of which whole blocks fit an SM."""

WRITTEN_OUT = 4
"""Rows of a thread that are written out at most."""


@dataclass(frozen=True)
class Follower:
    """The loops of a part whose rows and units are a product's, whose columns count modulo the `period`."""

    rows: str
    units: str
    period: int


def follower(
    nest: Nest, counts: Counts, product: Kernel, tile: tuple[Loop, Loop], part: Kernel
) -> Follower | None:
    """How a part follows a product with these row and column loops; None if it needs other blocks' results."""
    rows, columns = tile
    if len(product.band) != 2 or len(part.band) != 2 or nest.params:
        return None
    if any(not set(part.names) <= set(loop.names) for loop in product.around):
        return None  # it runs behind all steps, or before
    pairs = [
        pair for pair in nest.dependences().pairs if pair.source in product.names and pair.sink in part.names
    ]
    for own, units in permutations(part.band):
        period = counts.extent(units)
        if period > counts.extent(columns) or not pairs:
            continue
        if all(_of_one_block(pair, product.around, (rows, own), (columns, units), period) for pair in pairs):
            return Follower(own.name, units.name, period)
    return None


def _of_one_block(
    pair: Pairs,
    around: tuple[Loop, ...],
    rows: tuple[Loop, Loop],
    columns: tuple[Loop, Loop],
    period: int,
) -> bool:
    """True if row and unit, the column modulo the period, are the same at both ends in one step."""
    source, sink = pair.source, pair.sink
    step = (loop.date(source).eq_map(loop.date(sink)) for loop in around)
    unit = columns[0].date(source).mod_val(isl.Val(period))
    same = rows[0].date(source).eq_map(rows[1].date(sink)).intersect(unit.eq_map(columns[1].date(sink)))
    return bool(reduce(isl.Map.intersect, step, pair.map).is_subset(same))


def in_same_blocks(schedule: Schedule, part: Kernel, follows: Follower, tile: ThreadblockTile) -> Schedule:
    """for i: for k: S  ->  for i_k (block.x): for i_z: for i_y: for k_x (threads): for i: for k: S.

    The blocks are those of a product in such tiles; a thread has one value where there are so many threads.
    """
    name, rows, units, shape = part.names[0], follows.rows, follows.units, tile.shape
    schedule, down = _cut(schedule, name, rows, shape.block_rows)
    schedule, across = _cut(schedule, name, units, tile.units)
    schedule, x = _cut(schedule, name, across, shape.threads_x)
    y = min(shape.block_rows // shape.threads_z, MOST_THREADS // (shape.threads_z * shape.threads_x))
    y = max(y, shape.threads_y)
    schedule, z = _cut(schedule, name, down, shape.threads_z * y)
    schedule, y_name = _cut(schedule, name, z, y)
    schedule = reordered(schedule, name, (rows, units, z, y_name, x, down, across))
    place = [loop.name for loop in schedule.loops(name)].index(rows)
    schedule = schedule.collapse(name, rows, units)
    block = schedule.loops(name)[place].name
    places = {block: "block.x", z: "thread.z", y_name: "thread.y", x: "thread.x"}
    schedule = schedule.bind(name, **places)
    for serial in (down, across):
        loop = next(loop for loop in schedule.loops(name) if loop.name == serial)
        if (constant_extent(schedule, loop) or WRITTEN_OUT + 1) <= WRITTEN_OUT:
            schedule = schedule.unroll(name, serial)
    return schedule


def _cut(schedule: Schedule, name: str, loop: str, size: int) -> tuple[Schedule, str]:
    """for i  ->  for i: for i_in (of size), with the inner one's name."""
    schedule = schedule.split(name, loop, size)
    return schedule, inside(schedule, name, loop).name
