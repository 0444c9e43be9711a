"""Price a product's blocks on one core: arithmetic, and the cache traffic that it does not hide.

Low et al., "Analytical Modeling Is Enough for High-Performance BLIS" (2016), sections 3 and 4, with what was measured.
"""

from __future__ import annotations

from itertools import product
from math import ceil, gcd

from polyfuse.strategy.cost.kernel_model import LINE
from polyfuse.strategy.cost.read_again import STRIDED
from polyfuse.strategy.cost.register_tiles import ENTRY, LATENCY, PAGE, cycles_missed, lines_held
from polyfuse.strategy.cpu.gemm.blocks import Blocking, Operand, Task

STREAM_EXPOSED = 0.2
"""The part of the time that multiply-adds do not hide of panels that tiles ask for and of rows of b as they lie; of
panels that go by again, and of rows and sums behind L2, it is the machine's (`CpuMachine.exposed`)."""

UNASKED = 1.25
"""The slowdown, relative to the bandwidth, of panels from beyond L2 for which tiles wait without a prefetch: 8 layers
of 64 x 512 x 512 with 8 MiB of panels, from an L3 of 28 GB/s (one core of a Xeon)."""

SCATTERED = 20.0
"""The slowdown of streaming panels whose rows lie in different pages and in few sets of L1 and L2: 64 x 1024 x
1024 with rows of 4 KiB took twice the time of its multiply-adds (one Zen 4 core). Where several rows share a page it is
so much less: 5 with rows of 1 KiB, 10 with rows of 2 KiB. In parts of the peak, as they lie and packed in the call (one
core of a Xeon, in turns): 256 73 and 81 %, 384 70 and 80, 511 62 and 81, 512 56 and 80, 256 in float64 58 and 75,
64 x 512 x 512 59 and 60. Some panels of these runs lay off their cache lines (stack_arrays.py); not measured anew."""

STREAMS = 8
"""Rows of b that a core's prefetchers follow at once. Of 7500 x 2500 float32 from memory, 2 rows of a took 3.7 ms in
blocks of 8 steps, 5.4 of 16, 8.4 of 32 and 7.6 of 1880, 8 rows 5.7, 8.7, 20.8 and (472 x 128) 21.5; NumPy 8 to 9 (one
core of a Zen 3)."""

SUMS_EXPOSED = 0.5
"""The part of the time to load sums from L2 and store them, once a block of steps, that is not hidden. An estimate."""

CUT = 60
"""Cycles more of a tile whose rows end inside a vector, which are stored in parts: 192 x 32 x 28 took 7.0 µs for 6.2
with 32 columns, and 192 x 32 x 108 19.4 for 19.0 with 112, in tiles of 6 x 16 (one core of a Zen 3)."""

TRANSPOSING = 4.0
"""The slowdown of sums that are turned when they leave their tile. An estimate, like `STRIDED`."""

PACKED_ACROSS = 6.0
"""The slowdown of packing that transposes: 0.3 to 0.5 ns a number of 512 x 512 for panels of 16, where two passes of
L2's rate would take 0.05 (one core of a Zen 4 with AVX2)."""

ROWS = 8
FOLLOWED = 0.006
"""Each row of a that is contiguous is a stream of its own to the prefetchers; what one more than ROWS costs:
with 12 and 14 rows products of 1344 and 2016 took 1 to 5 % longer than with 8 (one Zen 4 core)."""

BEGINNING = 0.2e-6
"""Seconds in which a tile begins another part of a panel behind L2: 1024 to 256 channels of 4 x 4 took 52 µs in three
blocks of steps and 36 in one, 64 parts more, where tiles asked for both (one core of a Zen 5)."""

ALIASED = 1.5
"""The lines of results that a tile may have in one set of L1, in its ways, before it waits for them: of the update of
1024 x 1024 weights by 16 samples with momentum, rows of 4 KiB, an L1 of 12 ways, tiles of 8 x 32 took 0.33 ms, 12 x 32
0.64, 14 x 32 0.68, 28 x 16 0.76 and 29 x 16 1.57 (one core of a Zen 5, 16 lines in a set to 58)."""

CROWDED = 6.5
"""Cycles of each line of sums that comes again from L2 for another block of steps, where sums and rows of b crowd into
few sets of L1: 16 x 1024 sums over 1024 steps, rows of 4 KiB, in blocks of 8 steps took 340 to 400 µs in tiles of 16 x
16 (24 lines in a set) and 180 to 240 in 6 x 64 and 4 x 64 (14 and 12); over 2048 x 2048 1840 and 1030 to 1170; with
rows of 4160 bytes 235, and 259 and 432 (one core of a Zen 5 with an L1 of 12 ways)."""

SUMMING = 1.5
"""Cycles in which a tile of dot products adds up the partial sums of one sum and adds them to it: shuffles, additions,
a load and a store of a row. The next tile's steps begin meanwhile."""

DOTS_LATENCY = 5.0
"""Cycles of a step of a tile of dot products at least: 2 rows of 4 columns, a multiply-add's latency of them, took 1.16
to 1.24 times as long as 3 (128 x 512 x 512, 64 x 3072 x 768)."""

DOTS_ENTRY = 8.0
"""Cycles in which a tile of dot products begins."""

DOTS_EXPOSED = 0.15
"""The part of the time of what a tile of dot products reads from behind L1 that it does not hide."""

DOTS_UNASKED = 0.5
"""The part of the time in which b first comes in that it does not hide: each tile begins rows of it anew."""


def seconds(task: Task, b: Blocking) -> float:
    """The time one core takes: arithmetic, and what it does not hide of the traffic."""
    if b.lanes:
        return in_dot_products(task, b)
    return (
        arithmetic(task, b)
        + entering(task, b)
        + streaming(task, b)
        + reloading(task, b)
        + packing(task, b)
        + carrying(task, b)
        + beginning(task, b)
        + turning(task, b)
        + leaving(task, b)
    )


def arithmetic(task: Task, b: Blocking) -> float:
    """Multiply-adds at the peak, loads among them, enough of them at once; a tile cut short has fewer of them."""
    e, lanes = task.extents, task.machine.vector_bytes // task.itemsize
    down, across = _whole_and_last(e.rows, b.rows), _whole_and_last(e.columns, b.columns)
    least = LATENCY * task.machine.multiply_adds
    work = 0.0  # multiply-adds of vectors in a step, of all tiles
    for (tall, rows), (wide, columns) in product(down, across):
        vectors = ceil(columns / lanes)
        loading = 1.0 + task.machine.loading * (rows + vectors) / (rows * vectors)
        broadcasts = task.machine.broadcast * rows * task.machine.multiply_adds
        work += tall * wide * max(least, rows * vectors, broadcasts) * loading
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
    """Each tile fills and drains the pipeline once a block of steps; one cut inside a vector stores it in parts."""
    e, lanes = task.extents, task.machine.vector_bytes // task.itemsize
    down = e.batches * ceil(e.rows / b.rows) * ceil(e.steps / b.steps)
    is_cut = bool(e.columns % b.columns % lanes)
    return down * (ceil(e.columns / b.columns) * ENTRY + is_cut * CUT) * task.machine.cycle


def streaming(task: Task, b: Blocking) -> float:
    """b's panels go by once for each tile of rows, from the cache that holds a block of them, as fast as it gives them.

    The first time they come from where all of b lies, unless packing has just put them nearer; a constant from where
    all that a call reads lies, as it was last used a call ago. They come once for all batches that go through a block
    of b together, else once for each: 6 convolutions of 512 channels of 8 x 8, 9 MiB of constant weights each, took 43
    and 53 ms (dilation 2 and 1) a row of pixels after the other, 32 and 30 with all rows in a block (one core of a Zen
    3). 64 x 1024 x 1024 took 1.42 ms with the rows shared out,
    where both cores read all of b, and 0.79 ms with the columns (two Zen 4 cores).
    """
    e = task.extents
    size, block = e.of_right(e.steps, e.columns) * task.itemsize, task.block(b)
    followed = follows(task, b)
    slower = 1.0 if b.pack_right or followed else _scattered(task.right)
    exposed = slower * STREAM_EXPOSED if slower > 1.0 else task.machine.exposed.panels
    passing = size / task.reading(_around(task, b))
    computing = arithmetic(task, b) / e.batches / ceil(e.rows / b.rows)
    near = max(exposed * passing, passing - computing)
    first = later = exposed * size / task.reading(max(size, 2 * block))
    if task.right.ahead and task.held > task.l2.size:
        first = _coming(task, b, size / task.coming(task.held))
        first *= 1.0 if b.pack_right else max(STRIDED, slower)
    elif followed:
        memory = size / task.coming(max(size, task.held))
        first = max(STREAM_EXPOSED * memory, memory - computing)
    elif b.pack_right and not task.right.ahead:
        first = near
    rounds = e.batches // task.together(b)
    later = min(first, later) if task.right.ahead else first
    return first + (rounds - 1) * later + (e.batches * ceil(e.rows / b.rows) - rounds) * near


def _coming(task: Task, b: Blocking, memory: float) -> float:
    """The exposed seconds of b's traffic from memory: prefetched data arrives while whole tiles compute.

    With all steps in a block, 4096 x 64 of them, the next one did not stay in L2 beside it. One layer of 4096, ms, with
    blocks of 4096 steps and of 128 (the latter in tiles of 8 x 32 at batch 8 and 16): batch 2 4.0 and 2.4, which is 28
    GB/s, 8 6.0 and 2.4, 16 6.2 and 3.5, 64 21.5 and 14.4; two of 2048, batch 64, 7.4 and 6.6; four of 1024 3.7 and 3.6
    (one core of a Xeon, L2 of 2 MiB).
    """
    if not task.in_time(b):
        return UNASKED * memory
    e = task.extents
    asking = (e.rows - e.rows % b.rows) / e.rows * task.together(b) / e.batches
    return max(STREAM_EXPOSED * memory, memory - asking * arithmetic(task, b))


def _around(task: Task, b: Blocking) -> int:
    """The bytes of a cache in which a block of b stays: half of it is for the rest, or for two tiles' rows and sums.

    A panel of 128 x 64 floats stays in 48 KiB while rows go by: an LSTM of 2 x 128 at batch 50 took 7.6 ms for 8.0 with
    all panels in L2, a tile of rows at a time (one core of a Xeon). What is asked for comes into L2.
    """
    block = task.block(b)
    if b.width > b.columns:
        return 2 * block
    size = min(2 * block, block + 2 * task.tile(b))
    return size + block if task.asks(b) and size > task.l1.size else size


def follows(task: Task, b: Blocking) -> bool:
    """True if whole rows of b go by as they lie, few at a time: as they are needed they have come from memory."""
    whole = b.width == task.extents.columns and task.right.contiguous
    return whole and not b.pack_right and b.steps * task.extents.window <= STREAMS


def asks_further_on(task: Task, b: Blocking) -> bool:
    """True if tiles ask for what lies further on in the few whole rows of b that go by from behind L2."""
    return follows(task, b) and task.held > task.l2.size and task.extents.window == 1 and b.columns < b.width


def _far(operand: Operand) -> float:
    """The slowdown of an operand's rows compared with sequential memory: no two of them lie in one page."""
    return STRIDED if operand.stride > PAGE // 2 else 1.0


def _scattered(operand: Operand) -> float:
    """The slowdown of streaming unpacked panels, by how few of their rows share a page."""
    return SCATTERED * min(1.0, operand.stride / PAGE) if _apart(operand) else 1.0


def _apart(operand: Operand) -> bool:
    """True if four or fewer rows share a page, which costs TLB misses."""
    return operand.stride >= PAGE // 4


def reloading(task: Task, b: Blocking) -> float:
    """An unpacked a comes in once a block of columns; for every tile, where its rows crowd into few sets of L1.

    Where rows are neighbours in memory each step takes a line, of which the next tile takes other rows; and where a
    block's steps crowd into few sets of L2, too, they come from behind it. 512 x 128 sums over 2500 steps with rows of
    2 KiB took 3.2 ms in blocks of 840 steps and 2.3 to 2.6 in blocks of 424; over 50 x 50 steps 4.1 in blocks of 1200,
    3.4 of 800 and 2.7 of 400 (one core of a Xeon with an L2 of 2 MiB).
    """
    e = task.extents
    if b.pack_left:
        return 0.0
    one = e.of_left(e.rows, e.steps) * task.itemsize
    size = e.batches * one
    going_by = one * max(1, task.together(b) // e.between)
    again = ceil(e.columns / b.width) - 1
    first = size / task.reading(max(one, size // e.between))
    once = first + again * size / task.reading(going_by)
    if not crowded(task, b):
        missed = _missed(task, b) if by_lines(task) else 0.0
        return task.machine.exposed.rows * _far(task.left) * once + missed
    if by_lines(task):
        tiles = e.batches * ceil(e.rows / b.rows) * ceil(e.columns / b.columns)
        moved = tiles * e.steps * e.window * _lines(b.rows * task.itemsize) * LINE
        fits = steps_held(task, task.l2.size // 2) >= b.steps
        return max(once, moved / (task.machine.reading(task.l2, 1.0) if fits else task.reading(going_by)))
    often = size * ceil(e.columns / b.columns) / task.machine.reading(task.l2, 1.0)
    return max(once, often)


def _missed(task: Task, b: Blocking) -> float:
    """Seconds of the lines of a that tiles of neighbouring rows wait for, once for each block of columns."""
    e = task.extents
    times = ceil(e.columns / b.width) * e.batches * e.window
    return times * _apart_seconds(task, b.rows, e.steps, b.steps * e.window, task.left.stride)


def _apart_seconds(task: Task, rows: int, lines: int, together: int, stride: int) -> float:
    """Seconds in which so many lines of rows come in parts of a tile's rows each, `together` of them, a stride apart.

    A line comes once if as many as go by until its next part is needed stay in half of L1, in the sets that they are
    in: a thirty-second of them where lines lie 2 KiB apart.
    """
    every = task.extents.rows
    stays = together <= lines_held(task.l1.size // 2, stride)
    parts = every * task.itemsize / LINE if stays else ceil(every / rows) * _lines(rows * task.itemsize)
    return cycles_missed(lines * parts, stride) * task.machine.cycle


def by_lines(task: Task) -> bool:
    """True if each step of a tile takes lines of a of its own: rows are neighbours, and no window's elements are."""
    return not task.left.contiguous and task.extents.overlap == 1


def steps_held(task: Task, size: int) -> int:
    """The steps of an unpacked a whose lines stay in so many bytes of a cache, by the sets that they fall into.

    Lines 2 KiB apart fall into a thirty-second of the sets.
    """
    return lines_held(size, task.left.stride) // task.extents.window


def _lines(size: int) -> float:
    """The cache lines, on average, that so many bytes lie in, which begin at any multiple of their number.

    >>> _lines(64), _lines(32), _lines(24)
    (1.0, 1.0, 1.25)
    """
    return 1.0 + (size - gcd(size, LINE)) / LINE


def crowded(task: Task, b: Blocking) -> bool:
    """True if an unpacked panel of a needs more than half of the ways of some set of L1.

    8 rows of 1 KiB, 4 KiB apart: all in the same quarter of the sets, 8 lines each.
    """
    row = min(PAGE, b.steps * task.itemsize) if task.left.contiguous else LINE
    window = task.extents.window if by_lines(task) else 1
    rows = b.rows if task.left.contiguous else b.steps * window
    return _in_a_set(rows, row, task.left.stride) > _ways(task) / 2


def _ways(task: Task) -> int:
    """The lines that a set of L1 holds."""
    return task.l1.size // PAGE


def _in_a_set(rows: int, row: int, stride: int) -> float:
    """The lines of so many rows of `row` bytes, a stride apart, that fall into the same set of L1.

    >>> _in_a_set(8, 128, 4096), _in_a_set(8, 128, 512), _in_a_set(8, 128, 4096 + 128)
    (8.0, 1.0, 0.25)
    """
    apart = gcd(stride, PAGE)
    covered = PAGE if row >= apart else min(rows, PAGE // apart) * row
    return rows * row / covered


def packing(task: Task, b: Blocking) -> float:
    """Reading and writing what a call packs: b once, or in one of its turns; a once for each block of columns."""
    e, total = task.extents, 0.0
    for packed, operand, elements, times in (
        (b.pack_right, task.right, e.of_right(e.steps, e.columns), e.batches // e.alike),
        (b.pack_left, task.left, e.of_left(e.rows, e.steps), e.batches * ceil(e.columns / b.width)),
    ):
        if packed and not operand.fixed:
            size = elements * task.itemsize
            slower = PACKED_ACROSS if not operand.contiguous else STRIDED if _apart(operand) else 1.0
            rate = task.coming(task.held) * operand.by_cores if operand.by_cores else task.rate(size)
            passing = slower * 2 * size * times / rate / operand.turns
            parts = operand is task.left and not operand.contiguous
            total += max(passing, _missed(task, b)) if parts else passing
    return total


def carrying(task: Task, b: Blocking) -> float:
    """The exposed seconds of the sums of all equal batches: loaded and stored once for each of several blocks.

    Those of one panel of columns go by before they are needed again, with the factors of a block: the others are done.
    """
    e, blocks = task.extents, ceil(task.extents.steps / b.steps)
    alike = task.together(b)  # others go through their blocks by themselves
    size = held = alike * e.rows * e.columns * task.itemsize
    if b.width == b.columns:
        going_by = alike * e.rows * b.columns + e.of_left(alike * e.rows, b.steps)
        held = min(size, going_by * task.itemsize + task.block(b))
    if blocks == 1:
        return 0.0
    exposed = SUMS_EXPOSED
    if held > task.l2.size:
        in_pieces = b.columns < b.width < e.columns
        exposed = task.machine.exposed.sums * (task.machine.exposed.pieces if in_pieces else 1.0)
    crowding = CROWDED * task.machine.cycle * size / LINE if _sums_crowd(task, b) else 0.0
    return (e.batches // alike) * blocks * (exposed * 2.0 * size / task.rate(held) + crowding)


def _sums_crowd(task: Task, b: Blocking) -> bool:
    """True if a tile's sums and the rows of b beside them, as they lie, are too many for a set of L1."""
    if task.results is None:
        return False
    row = b.columns * task.itemsize
    lines = _in_a_set(b.rows, row, task.results.stride)
    if not b.pack_right and task.right.contiguous:
        lines += _in_a_set(b.steps * task.extents.window, row, task.right.stride)
    return lines > ALIASED * _ways(task)


def beginning(task: Task, b: Blocking) -> float:
    """Begin a packed a anew behind L2: each tile's part of its panel lies apart where steps are in several blocks."""
    e, blocks = task.extents, ceil(task.extents.steps / b.steps)
    if blocks == 1 or not (b.pack_left and task.left.fixed) or task.held <= task.l2.size:
        return 0.0
    return BEGINNING * (blocks - 1) * ceil(e.rows / b.rows)


def turning(task: Task, b: Blocking) -> float:
    """A tile's sums are read and stored as columns, where rows are neighbours in memory."""
    e = task.extents
    if not task.across:
        return 0.0
    size = e.batches * e.rows * e.columns * task.itemsize
    stride = e.batches * e.rows * task.itemsize  # from one column's image to the next; batches are its rows
    missed = e.batches * _apart_seconds(task, b.rows, e.columns, b.width, stride)
    return TRANSPOSING * 2 * size / task.rate(b.rows * b.columns * task.itemsize) + missed


def leaving(task: Task, b: Blocking) -> float:
    """Where a tile's results crowd into few sets of L1, and L2 does not hold them, it waits for each of their lines."""
    e, into = task.extents, task.results
    if into is None or task.across or into.tensors * e.batches * e.rows * into.stride <= task.l2.size:
        return 0.0
    row = b.columns * task.itemsize
    if into.tensors * _in_a_set(b.rows, row, into.stride) <= ALIASED * _ways(task):
        return 0.0
    lines = into.tensors * e.batches * e.rows * e.columns * task.itemsize / LINE
    return cycles_missed(lines, into.stride) * task.machine.cycle


def in_dot_products(task: Task, b: Blocking) -> float:
    """Return one core's seconds for blocks of dot-product tiles, whose factors are not packed.

    Behind its steps a tile adds up the partial sums. b comes in once, and a once for each block of columns; where
    several batches have the same b, that stays for all of them. Where L1 does not hold a tile's rows of both, each tile
    has a from L2, too, and waits for all that comes from there: 32 x 3072 x 768 took 1128 µs in tiles of 4 x 4 and
    1365 in 3 x 4, 1211 and 1358 are expected (one core with an L1 of 48 KiB). Float32 `x @ w.T`, one core of a Zen 4
    with AVX2, µs expected and measured: 128 x 512 x 512 916 and 788, in tiles of packed columns 962 and 891; 64 x 3072
    x 768 4180 and 4710.
    """
    e, m = task.extents, task.machine
    tiles = e.batches * ceil(e.rows / b.rows) * ceil(e.columns / b.columns)
    sums = b.rows * b.columns
    issued = max(sums / m.multiply_adds, DOTS_LATENCY) * (1.0 + m.loading * (b.rows + b.columns) / sums)
    behind_steps = ceil(e.steps / b.steps) * (DOTS_ENTRY + SUMMING * sums)
    computing = tiles * (ceil(e.steps / b.lanes) * issued + behind_steps) * m.cycle
    weights, size = e.batches // e.alike, e.of_right(e.steps, e.columns) * task.itemsize
    coming = weights * size / task.reading(max(size, task.held))
    rows, going_by = (e.alike * e.rows * steps * task.itemsize for steps in (e.steps, b.steps))
    near, held = 0.0, task.block(b) + task.tile(b)
    if held > task.l1.size:
        near = (e.alike * ceil(e.rows / b.rows) - 1) * size / task.reading(2 * task.block(b))
    again = ceil(e.columns / b.width) * rows / task.reading(going_by + task.block(b))
    behind = weights * (near + again)
    if (b.rows + b.columns) * b.steps * task.itemsize > task.l1.size:
        passes = weights * (e.alike * ceil(e.rows / b.rows) - 1)
        passing = passes * size + tiles * b.rows * e.steps * task.itemsize
        exposed = passing / task.machine.reading(task.l2, 1.0)
    else:
        exposed = DOTS_EXPOSED * behind
    return computing + DOTS_UNASKED * coming + max(exposed, behind - computing)
