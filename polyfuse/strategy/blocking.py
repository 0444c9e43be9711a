"""How a product is blocked on a CPU core: its register tile, its blocks for the caches, what is packed.

    for j (blocks of `width`):
      for k (blocks of `steps`):              pack b: steps x width, in panels of `columns`
        for i (tiles of `rows`):              pack a: rows x steps, stays in L1
          for j_in (tiles of `columns`):      b's panels stream by, from L2 if steps x width fits there
            rows x columns sums in registers, over `steps`

Goto & van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008), section 4: of the two operands of the
innermost product one stays in L1 and the other streams. Here a's panel stays: its side of the tile is the shorter one,
which leaves most of L1 to what streams. A block may be one panel of b, with all steps: then that stays near, all of a
streams by, from L2, and b comes in once, each tile asking for its share of the next panel. Sizes are chosen by an
analytical model as in Low et al., "Analytical Modeling Is Enough for High-Performance BLIS" (2016), sections 3 and 4:
registers bound the tile, L1 the steps, L2 the width; where that leaves a choice, the time that the traffic between the
caches takes decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from math import ceil, gcd

from polyfuse.machine import Level, Machine
from polyfuse.schedule.microkernel import padded

PAGE = 4096
"""Bytes of a page, whose end no prefetcher crosses; and of one way of an L1 cache, which is indexed inside a page."""

LINE = 64
"""Bytes of a cache line."""

STREAM_EXPOSED = 0.2
"""The part of the time to stream b's panels that multiply-adds do not hide: packed products of 1024 to 2048 ran at 91
to 94 % of the peak of a Zen 4 core, whose panels take about a third of the arithmetic's time."""

UNASKED = 1.25
"""How much longer panels take than their bandwidth says that come from behind L2 while tiles wait for them and that
nobody has asked for: 8 layers of 64 x 512 x 512 with 8 MiB of panels, from an L3 of 28 GB/s (one core of a Xeon)."""

STRIDED = 3.0
"""How much longer rows in different places take, of a panel (4.5 ms for these 8 layers, 2.5 as panels) or of a copy."""

SCATTERED = 20.0
"""How much longer to stream panels takes whose rows lie in different pages, and in few sets of L1 and L2: 64 x 1024 x
1024 with rows of 4 KiB took twice the time of its multiply-adds (one Zen 4 core). Where several rows share a page it is
so much less: 5 with rows of 1 KiB, 10 with rows of 2 KiB. In parts of the peak, as they lie and packed in the call (one
core of a Xeon, in turns): 256 73 and 81 %, 384 70 and 80, 511 62 and 81, 512 56 and 80, 256 in float64 58 and 75,
64 x 512 x 512 59 and 60. Some panels of these runs lay off their cache lines (codegen/stack.py); not measured anew."""

SUMS_EXPOSED = 0.5
"""The part of the time to load and store sums, once a block of steps, that is not hidden. An estimate."""

TRANSPOSING = 4.0
"""How much longer packing takes where the panel's neighbours are not the tensor's. An estimate, like `STRIDED`."""

ROWS = 8
FOLLOWED = 0.006
"""Each row of a that is contiguous is a stream of its own to the prefetchers; what one more than ROWS costs:
with 12 and 14 rows products of 1344 and 2016 took 1 to 5 % longer than with 8 (one Zen 4 core)."""

LATENCY = 8
"""Vectors of sums that keep the multipliers busy: two of them, four cycles from one sum to the next."""

ENTRY = 20
"""Cycles before a tile's first sums are added and after its last ones: latencies of loads, multiply-adds, stores."""

VECTORS = (1, 2, 4)
"""Vectors in a row of the tile: whole cache lines or parts of one, and few, since more rows use each more often."""


@dataclass(frozen=True)
class Operand:
    """One factor: bytes from one row of its panels to the next, and whether a panel's row is contiguous.

    One that is `fixed` depends on constants alone: packed once for all calls, it costs memory and no time. One that is
    packed `by_cores` is in panels before the product begins, each core having copied its part of it.

    A row of a's panel is one of the product's rows, over steps; a row of b's panel is one step, over columns. What is
    `computed` of tensors, alpha * A[i, k], has to be packed. One that is not `packable` stays where it is: windows that
    overlap would be copied again and again. Two that lie alike are equal, whatever their tensors are called.
    """

    tensor: str = field(compare=False)
    stride: int
    contiguous: bool
    fixed: bool = False
    computed: bool = False
    packable: bool = True
    by_cores: int = 0

    @property
    def ahead(self) -> bool:
        """Whether all of it is in panels before the product begins, if it is packed."""
        return self.fixed or self.by_cores > 0


@dataclass(frozen=True)
class Extents:
    """The values of a product's loops: y[rows, columns] += a[rows, steps] * b[steps, columns], `batches` times.

    Each of the `steps` goes through the elements of a `window`; neighbouring rows read the same numbers `overlap`
    times: 9 and 3 for a window of 3 x 3. Of the batches so many at a time are `alike`: they have the same b.
    """

    rows: int
    columns: int
    steps: int
    batches: int = 1
    window: int = 1
    overlap: int = 1
    alike: int = 1

    def of_left(self, rows: int, steps: int) -> int:
        """The numbers that so many rows read of a in so many steps."""
        return rows * steps * self.window // self.overlap

    def of_right(self, steps: int, columns: int) -> int:
        """The numbers of b for so many steps and columns."""
        return steps * self.window * columns


@dataclass(frozen=True)
class Blocking:
    """The sizes of the loops above, and which operands are packed; `seconds` by the model."""

    rows: int
    columns: int
    steps: int
    width: int
    pack_left: bool
    pack_right: bool
    seconds: float = 0.0


@dataclass(frozen=True)
class Task:
    """A product on one core of a machine.

    `across`: the sums' neighbours in memory are no columns. Then all steps are in one block, the sums in a buffer where
    columns are neighbours, and they are turned when they leave it. `held` are the bytes that go by before the same
    numbers are read again: those of a call, or of a step of a loop around all of the product.
    """

    extents: Extents
    left: Operand
    right: Operand
    itemsize: int
    machine: Machine
    across: bool = False
    held: int = 0

    @property
    def l1(self) -> Level:
        """The first cache."""
        return self.machine.levels[0]

    @property
    def l2(self) -> Level:
        """The second cache."""
        return self.machine.levels[1]

    def vectors(self, b: Blocking) -> int:
        """The vector registers that a row of a tile takes."""
        return max(1, b.columns * self.itemsize // self.machine.vector_bytes)

    def asks(self, b: Blocking) -> bool:
        """Whether a block of b is one panel, whose tiles ask for the next one: what is found packed, behind L2."""
        one = b.width == b.columns < self.extents.columns and self.held > self.l2.size
        return one and b.pack_right and self.right.ahead and self.extents.window == 1

    def rate(self, size: float) -> float:
        """Bytes per second, read and written, from the level that holds `size` bytes."""
        return self.machine.bandwidth(self.machine.level(size), 1.0)

    def reading(self, size: float) -> float:
        """The same where they are only read."""
        return self.machine.reading(self.machine.level(size), 1.0)

    def coming(self, size: float) -> float:
        """Bytes per second that come in from the level that holds `size` bytes, where other cores read the same b."""
        level, cores = self.machine.level(size), max(1, self.right.by_cores)
        return self.machine.reading(level, cores) / cores


def blocking(task: Task) -> Blocking | None:
    """The fastest blocking by the model, of equals the first; None where there are no two rows and columns."""
    return next(iter(blockings(task)), None)


@lru_cache(maxsize=64)
def blockings(task: Task) -> tuple[Blocking, ...]:
    """Every blocking with its seconds, the fastest first; none where there are no two rows and columns.

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
    for steps in step_blocks(task, rows):
        fitting = _width_in(task.l2.size // 2, steps, columns, task)
        found |= dict.fromkeys((steps, width) for width in (every, fitting))
    # only what is found packed is asked for ahead of time
    return found | {(task.extents.steps, one): None} if task.right.ahead else found


def step_blocks(task: Task, rows: int) -> Iterator[int]:
    """Steps of a block such that a's panel of `rows` fills at most half of L1: the fewest equal blocks, and more."""
    steps = task.extents.steps
    if task.across:
        yield steps
        return
    fewest = max(1, ceil(2 * task.extents.of_left(rows, steps) * task.itemsize / task.l1.size))
    for blocks in (fewest, fewest + 1, 2 * fewest):
        size = ceil(steps / blocks)
        yield size if blocks == 1 else ceil(size / 8) * 8


def _width_in(size: int, steps: int, columns: int, task: Task) -> int:
    """The columns of a block of b that fits into `size` bytes; whole tiles, at least one."""
    fitting = size // (task.extents.of_right(steps, 1) * task.itemsize) // columns * columns
    return min(task.extents.columns, max(columns, fitting))


# -- what a choice costs -----------------------------------------------------------------------------------------------


def seconds(task: Task, b: Blocking) -> float:
    """The time one core takes: arithmetic, and what it does not hide of the traffic."""
    return (
        arithmetic(task, b)
        + entering(task, b)
        + streaming(task, b)
        + reloading(task, b)
        + packing(task, b)
        + SUMS_EXPOSED * carrying(task, b)
        + turning(task, b)
    )


def arithmetic(task: Task, b: Blocking) -> float:
    """Multiply-adds at the peak, loads among them, enough of them at once; a tile cut short has fewer of them."""
    e, lanes = task.extents, task.machine.vector_bytes // task.itemsize
    down, across = _whole_and_last(e.rows, b.rows), _whole_and_last(e.columns, b.columns)
    work = 0.0  # multiply-adds of vectors in a step, of all tiles
    for (tall, rows), (wide, columns) in product(down, across):
        vectors = ceil(columns / lanes)
        loading = 1.0 + task.machine.loading * (rows + vectors) / (rows * vectors)
        work += tall * wide * max(LATENCY, rows * vectors) * loading
    slower = 1.0 + FOLLOWED * max(0, b.rows - ROWS) if task.left.contiguous else 1.0
    return (
        slower * 2.0 * lanes * e.batches * work * e.steps * e.window / task.machine.peak(task.itemsize, 1.0)
    )


def _whole_and_last(extent: int, size: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """(how many, size) of whole tiles and of the last one, if it is cut short.

    >>> _whole_and_last(512, 6)
    ((85, 6), (1, 2))
    """
    whole, last = divmod(extent, size)
    return (whole, size), (int(last > 0), max(1, last))


def entering(task: Task, b: Blocking) -> float:
    """Each tile fills and drains the pipeline once a block of steps."""
    e, m = task.extents, task.machine
    tiles = e.batches * ceil(e.rows / b.rows) * ceil(e.columns / b.columns) * ceil(e.steps / b.steps)
    cycle = LATENCY // 4 * 2 * m.vector_bytes / task.itemsize / m.peak(task.itemsize, 1.0)
    return tiles * ENTRY * cycle


def streaming(task: Task, b: Blocking) -> float:
    """b's panels go by once for each tile of rows, from the cache that holds a block of them.

    The first time they come from where all of b lies, unless packing has just put them nearer; a constant from where
    all that a call reads lies, as it was last used a call ago. 64 x 1024 x 1024 took 1.42 ms with the rows shared out,
    where both cores read all of b, and 0.79 ms with the columns (two Zen 4 cores).
    """
    e = task.extents
    size, block = (e.of_right(*part) * task.itemsize for part in ((e.steps, e.columns), (b.steps, b.width)))
    slower = 1.0 if b.pack_right else _scattered(task.right)
    near = STREAM_EXPOSED * slower * size / task.reading(_around(task, b, block))
    first = STREAM_EXPOSED * slower * size / task.reading(max(size, 2 * block))
    if task.right.ahead and task.held > task.l2.size:
        first = size / task.coming(task.held) * (STREAM_EXPOSED if task.asks(b) else UNASKED)
        first *= 1.0 if b.pack_right else max(STRIDED, slower)
    elif b.pack_right and not task.right.ahead:
        first = near
    return e.batches * (first + (ceil(e.rows / b.rows) - 1) * near)


def _around(task: Task, b: Blocking, block: int) -> int:
    """The bytes of a cache in which a block of b stays: half of it is for the rest, or for two tiles' rows and sums.

    A panel of 128 x 64 floats stays in 48 KiB while rows go by: an LSTM of 2 x 128 at batch 50 took 7.6 ms for 8.0 with
    all panels in L2, a tile of rows at a time (one core of a Xeon).
    """
    if b.width > b.columns:
        return 2 * block
    tile = task.extents.of_left(b.rows, b.steps) + b.rows * b.columns
    return min(2 * block, block + 2 * tile * task.itemsize)


def _far(operand: Operand) -> float:
    """How much longer an operand's rows take than memory in order: no two of them lie in one page."""
    return STRIDED if operand.stride > PAGE // 2 else 1.0


def _scattered(operand: Operand) -> float:
    """How much longer panels take to stream as they lie: by how few of their rows share a page."""
    return SCATTERED * min(1.0, operand.stride / PAGE) if _apart(operand) else 1.0


def _apart(operand: Operand) -> bool:
    """Whether so few rows share a page that it shows: four or fewer."""
    return operand.stride >= PAGE // 4


def reloading(task: Task, b: Blocking) -> float:
    """An unpacked a comes in once a block of columns; for every tile, where its rows crowd into few sets of L1."""
    e = task.extents
    if b.pack_left:
        return 0.0
    one = e.of_left(e.rows, e.steps) * task.itemsize
    size = e.batches * one
    once = size * ceil(e.columns / b.width) / task.reading(one)
    often = size * ceil(e.columns / b.columns) / task.machine.reading(task.l2, 1.0)
    return max(once, often) if crowded(task, b) else STREAM_EXPOSED * _far(task.left) * once


def crowded(task: Task, b: Blocking) -> bool:
    """Whether an unpacked panel of a needs more than half of the ways of some set of L1.

    8 rows of 1 KiB, 4 KiB apart: all in the same quarter of the sets, 8 lines each.
    """
    ways = task.l1.size // PAGE
    row = min(PAGE, b.steps * task.itemsize) if task.left.contiguous else LINE
    rows = b.rows if task.left.contiguous else b.steps
    apart = gcd(task.left.stride, PAGE)
    covered = PAGE if row >= apart else min(rows, PAGE // apart) * row
    return rows * row / covered > ways / 2


def packing(task: Task, b: Blocking) -> float:
    """Reading and writing what a call packs: b once, a once for each block of columns."""
    e, total = task.extents, 0.0
    for packed, operand, elements, times in (
        (b.pack_right, task.right, e.of_right(e.steps, e.columns), e.batches // e.alike),
        (b.pack_left, task.left, e.rows * e.steps, e.batches * ceil(e.columns / b.width)),
    ):
        if packed and not operand.fixed:
            size = elements * task.itemsize
            slower = TRANSPOSING if not operand.contiguous else STRIDED if _apart(operand) else 1.0
            rate = task.coming(task.held) * operand.by_cores if operand.by_cores else task.rate(size)
            total += slower * 2 * size * times / rate
    return total


def carrying(task: Task, b: Blocking) -> float:
    """Sums, of all batches that are alike, are loaded and stored once for each block of steps, if there are several."""
    e, blocks = task.extents, ceil(task.extents.steps / b.steps)
    alike = e.alike if b.pack_right else 1  # else each batch goes through its blocks by itself
    size = alike * e.rows * e.columns * task.itemsize
    return 0.0 if blocks == 1 else e.batches // alike * 2.0 * size * blocks / task.rate(size)


def turning(task: Task, b: Blocking) -> float:
    """A tile's sums are read and stored as columns, where rows are neighbours in memory."""
    e = task.extents
    size = e.batches * e.rows * e.columns * task.itemsize
    return TRANSPOSING * 2 * size / task.rate(b.rows * b.columns * task.itemsize) if task.across else 0.0
