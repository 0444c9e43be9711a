"""Choose the blocking of a product on a CPU core: register tile, cache blocks, packing.

    for j (blocks of `width`):
      for k (blocks of `steps`):              pack b: steps x width, in panels of `columns`
        for i (tiles of `rows`):              pack a: rows x steps, stays in L1
          for j_in (tiles of `columns`):      b's panels stream by, from L2 if steps x width fits there
            rows x columns sums in registers, over `steps`

Goto & van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008), section 4: of the two operands of the
innermost product one stays in L1 and the other streams. Here a's panel stays: its side of the tile is the shorter one,
which leaves most of L1 to what streams. A block may be one panel of b, with all steps: then that stays near, all of a
streams by, from L2, and b comes in once, each tile asking for its share of the next panel. Where two panels do not stay
in L2 together, it has fewer steps, the tiles ask for the next block, and all rows' sums of a panel are in a buffer.
For few rows of a, b is not packed: then a block may be a few whole rows of it, which go by as streams.
Sizes are chosen by an analytical model as in Low et al., "Analytical Modeling Is Enough for High-Performance BLIS"
(2016), sections 3 and 4: registers bound the tile, L1 the steps, L2 the width; where that leaves a choice, the time
that the traffic between the caches takes decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import ceil

from polyfuse.schedule.microkernel_verb import padded
from polyfuse.strategy.cpu.gemm.block_cost import STREAMS, by_lines, seconds, steps_held
from polyfuse.strategy.cpu.gemm.blocks import Blocking, Task

VECTORS = (1, 2, 4)
"""Vectors in a row of the tile: whole cache lines or parts of one, and few, since more rows use each more often."""

DOT_COLUMNS = (4, 8)
"""Columns of a tile of dot products: powers of two, whose partial sums are added up in a tree."""


def blocking(task: Task) -> Blocking | None:
    """The fastest blocking by the model, of equals the first; None if there are no two rows and columns."""
    return next(iter(blockings(task)), None)


@lru_cache(maxsize=64)
def blockings(task: Task) -> tuple[Blocking, ...]:
    """Every blocking with its seconds, the fastest first; none if there are no two rows and columns.

    Kept, since a network's layers ask the same: 8 of width 1024 ask 24 times for 630 prices, of two tasks.
    """
    priced = (replace(choice, seconds=seconds(task, choice)) for choice in dict.fromkeys(choices(task)))
    return tuple(sorted(priced, key=lambda one: round(one.seconds, 12)))


# -- what can be chosen ------------------------------------------------------------------------------------------------


def choices(task: Task) -> Iterator[Blocking]:
    """Every blocking that the registers and L1 allow: large tiles, few blocks, no packing first."""
    packings = [
        (left, right)
        for left, right in product((False, True), repeat=2)
        if (right or (task.right.contiguous and not task.right.computed and not task.right.by_cores))
        and (left or not task.left.computed)
        and (task.left.packable or not left)
    ]
    for rows, columns in tiles(task):
        for (steps, width), (left, right) in product(_blocks(task, rows, columns), packings):
            yield Blocking(rows, columns, steps, width, left, right)
            several = steps < task.extents.steps or width < task.extents.columns
            if right and task.right.ahead and task.extents.alike > 1 and several:
                yield Blocking(rows, columns, steps, width, left, right, inside=True)
    if task.along:
        yield from _dot_products(task)


def _dot_products(task: Task) -> Iterator[Blocking]:
    """Blocks of tiles of dot products whose partial sums, a vector of each row and one of b fit into the registers.

    A block of b stays in L1 while all rows of a go by, or these stay in L2 while all of b goes by.
    """
    e, lanes, registers = (
        task.extents,
        task.machine.vector_bytes // task.itemsize,
        task.machine.vector_registers,
    )
    for columns in (c for c in DOT_COLUMNS if c <= min(lanes, e.columns)):
        for rows in range(2, e.rows + 1):
            if rows * columns + min(rows, columns) + 1 > registers:
                break
            for width in dict.fromkeys((*(v * lanes for v in VECTORS if v * lanes < e.columns), e.columns)):
                for steps in _dot_steps(task, width):
                    if steps >= 2 * lanes:
                        yield Blocking(rows, columns, steps, width, False, False, lanes=lanes)


def _dot_steps(task: Task, width: int) -> dict[int, None]:
    """Steps of a block of so many columns: the fewest equal blocks, whole vectors, for each cache it may stay in."""
    e, lanes = task.extents, task.machine.vector_bytes // task.itemsize
    l1, l2 = task.l1.size // 2, task.l2.size // 2
    found: dict[int, None] = {}
    for size, lines in ((l1, width), (l2, width), (l2, e.alike * e.rows)):
        blocks = ceil(e.steps / max(lanes, size // (lines * task.itemsize)))
        found[e.steps if blocks == 1 else ceil(e.steps / blocks / lanes) * lanes] = None
    return found


def tiles(task: Task) -> Iterator[tuple[int, int]]:
    """(rows, columns) of tiles whose sums, a row of b and one number of a fit into the vector registers.

    16 registers, 8 lanes: 2 vectors a row leave 16 - 2 - 1 = 13 for sums: 6 rows of 16. Fewer columns than a vector has
    lanes are one vector, or a part of it: half a register where they fit into that.
    """
    e, lanes = task.extents, task.machine.vector_bytes // task.itemsize
    if 1 < e.columns < lanes:
        for rows in range(min(task.machine.vector_registers - 2, e.rows), 1, -1):
            yield rows, min(lanes, padded(e.columns, task.itemsize))
        return
    for vectors in VECTORS:
        most = (task.machine.vector_registers - vectors - 1) // vectors
        for rows in range(min(most, e.rows), 0, -1):
            if rows > 1 and vectors * lanes <= e.columns:
                yield rows, vectors * lanes


def _blocks(task: Task, rows: int, columns: int) -> dict[tuple[int, int], None]:
    """(steps, width) of blocks: a's panel stays in L1 while b streams by; or one panel of b stays near while a does."""
    every, one = task.extents.columns, min(columns, task.extents.columns)
    found: dict[tuple[int, int], None] = {}
    for steps in step_blocks(task, rows, columns):
        fitting = _width_in(task.l2.size // 2, steps, columns, task)
        found |= dict.fromkeys((steps, width) for width in (every, fitting))
    if task.extents.steps > STREAMS and task.right.contiguous and task.extents.window == 1:
        found[STREAMS, every] = None
    if task.right.ahead:  # only what is found packed is asked for ahead of time
        found |= dict.fromkeys((steps, one) for steps in _asked_steps(task, rows, one))
    return found


def _asked_steps(task: Task, rows: int, columns: int) -> Iterator[int]:
    """Steps of blocks of one panel: all, or so many that the next block stays in a cache beside this one."""
    steps = task.extents.steps
    yield steps
    whole = Blocking(rows, columns, steps, columns, pack_left=False, pack_right=True)
    if task.across or not task.asks(whole) or task.in_time(whole):
        return
    for size in (task.l2.size // 16, task.l1.size // 2):
        yield ceil(steps / ceil(task.block(whole) / size) / 8) * 8


def step_blocks(task: Task, rows: int, columns: int) -> Iterator[int]:
    """Steps of a block such that a's panel of `rows` fills at most half of L1: the fewest equal blocks, and more.

    1800 steps are 12 blocks of 150, where 152, whole lines, would leave a shorter block, with loops of its own.

    All of them, where one tile has all columns and a is constant: nothing of a is read again. Also so many steps that
    its lines stay in L2, where they crowd into few sets.
    """
    steps = task.extents.steps
    if task.across:
        yield steps
        return
    fewest = max(1, ceil(2 * task.extents.of_left(rows, steps) * task.itemsize / task.l1.size))
    alone = (1,) if task.left.fixed and task.extents.columns <= columns else ()
    for blocks in dict.fromkeys((*alone, fewest, fewest + 1, 2 * fewest)):
        size = ceil(steps / blocks)
        yield size if steps == size * blocks else ceil(size / 8) * 8
    if by_lines(task) and 1 <= (held := steps_held(task, task.l2.size // 2)) < steps:
        yield ceil(steps / ceil(steps / held))


def _width_in(size: int, steps: int, columns: int, task: Task) -> int:
    """The columns of a block of b that fits into `size` bytes; whole tiles, at least one."""
    fitting = size // (task.extents.of_right(steps, 1) * task.itemsize) // columns * columns
    return min(task.extents.columns, max(columns, fitting))
