"""Enumerate the tiles of a product on a GPU, and price those that fit its sizes and the machine.

tiles_for                                                     a product: by threads or by tensor cores
fma_convolutions, mma_convolutions, mma_f64_convolutions      a convolution as an implicit product
stationary_tiles                                              a product in each step of a loop, by blocks that stay
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import product as pairs
from math import ceil
from typing import Literal

from polyfuse.analysis.banks import WARP
from polyfuse.analysis.vector_access import ACCESS_BYTES
from polyfuse.ir.number_types import ITEMSIZE
from polyfuse.ir.precision import STORED, Math
from polyfuse.layouts.core_matrix import FORMATS
from polyfuse.layouts.swizzle import LINE_BYTES
from polyfuse.machine import Gpu, GpuMachine
from polyfuse.schedule.microkernel_verb import MOST_REGISTERS
from polyfuse.strategy.cost.gpu_cycles import seconds_of_wait
from polyfuse.strategy.cuda.tiles.mma import FLOAT32, Fma, Mma, MmaF64, Wgmma
from polyfuse.strategy.cuda.tiles.operands import Gemm, ImplicitGemm, Stationary
from polyfuse.strategy.cuda.tiles.rasterization import GRID
from polyfuse.strategy.cuda.tiles.tile import Cluster, ThreadblockTile
from polyfuse.strategy.cuda.tiles.tile_copies import Copy, CpAsync, ThreadCopy, Tma
from polyfuse.strategy.cuda.tiles.tile_cost import costed
from polyfuse.strategy.cuda.tiles.tile_shape import TileShape
from polyfuse.strategy.match.gemm_problem import Extents

FLOAT64 = 8
"""Bytes of a float64 number."""

STAGES = (1, 2, 4)
"""Tiles of steps in shared memory: the one that is multiplied and those being copied. Three would need
remainders that are no masks. Of float64 numbers only the largest tiles have stages: with smaller ones ptxas (CUDA 13)
spills 8 to 44 bytes with any number of registers."""

WARPS = ((1, 1), (1, 2), (2, 2), (2, 4), (4, 2))
"""Warps of a block, down and across."""

DEEP = (16, 32, 64)
"""Steps that may be staged at a time: with more of them the latency of a tile is covered by more products."""

DEEP_F64 = (8, 16)
"""The same of float64 numbers on tensor cores."""

TILES_F64 = ((4, 4), (4, 8), (8, 4), (8, 8))
"""Rows and columns of a thread, of float64 numbers on tensor cores."""

CAPABILITY = (9, 0)
"""The GPUs that have instructions of warpgroups: their code, sm_90a, runs on no others."""

WARPGROUPS = ((1, 1), (1, 2), (2, 1))
"""Warpgroups of a block, down and across."""

ROUNDED_STAGES = (1, 2)
"""Tiles of steps in shared memory that come through registers: with two, one is copied while the other is used."""

KEPT_STAGES = (2, 4)
"""Tiles of steps in shared memory that are copied as they are, all but one on their way."""

KEPT_STEPS = (32, 64)
"""The numbers of steps that are staged at a time by asynchronous copies of threads."""

CLUSTERS = (2, 4)
"""Blocks of a cluster that the model chooses from. Larger ones leave SMs of a processing cluster without a block."""

MOST_THREADS = 256
"""Threads of a block of a convolution."""

PIXEL_TILES = ((2, 16), (4, 8), (4, 16), (8, 8), (8, 14), (8, 16))
"""Rows and columns of a thread of a convolution on tensor cores. 2 rows are 16 pixels of a warp where these are rows,
14 columns 56 of them."""

LONGER = (1, 2)
"""The steps of a tile with a stationary factor, as multiples of those of a tile that stages both operands."""


# -- products ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def tiles_for(extents: Extents, itemsize: int, machine: GpuMachine, gpu: Gpu) -> tuple[ThreadblockTile, ...]:
    """The tiles that a product may take, the cheapest first: tensor cores' where the machine's `math` has some.

    Of tensor cores' tiles that take equally long, to a nanosecond, the one whose copies are fewer instructions. Those
    of float64 numbers round nothing and compete with the others. Kept, since a network's layers ask the same.
    """
    found = mma_tiles(extents, itemsize, machine, gpu)
    if found:
        found += wgmma_tiles(extents, machine.math, machine, gpu)
        return tuple(sorted(found, key=lambda t: (round(t.seconds, 9), t.tiles * t.copies.instructions)))
    found = [*mma_f64_tiles(extents, itemsize, machine, gpu), *fma_tiles(extents, itemsize, machine, gpu)]
    return tuple(sorted(found, key=lambda t: t.seconds))


def fma_tiles(extents: Extents, itemsize: int, machine: GpuMachine, gpu: Gpu) -> list[ThreadblockTile]:
    """The tiles of threads' multiply-adds that fit a product and a machine, the cheapest first."""
    every = (t for t in every_fma(itemsize) if t.stages == 1 or extents.wide or extents.singles)
    found = [costed(t, extents, machine, gpu) for t in every if fits(t, extents, gpu) and _suits(t, extents)]
    return sorted(found, key=lambda t: t.seconds)


def every_fma(itemsize: int) -> Iterator[ThreadblockTile]:
    """The tiles of threads' multiply-adds, whatever a product's sizes.

    The largest tiles of a thread, 16 × 8 float32 results, are of 256 threads that copy ahead: blocks of fewer took 5 to
    10 % longer (8 × 16 results; H200), and without copies ahead one block on an SM has nothing else to do meanwhile.
    """
    vector = ACCESS_BYTES // itemsize
    steps = 4 * vector
    for stages in STAGES[1:] if itemsize == FLOAT32 else ():
        yield _by_threads(TileShape(4, 4, 16, 4 * vector, 2 * vector, steps, itemsize), stages)
    for (z, x), rows, columns, stages in pairs(
        ((4, 16), (4, 8), (2, 16), (2, 8), (1, 8)), (2 * vector, vector), (2 * vector, vector), STAGES
    ):
        if stages == 1 or itemsize == FLOAT32 or rows == columns == 2 * vector:
            yield _by_threads(TileShape(z, 4, x, rows, columns, steps, itemsize), stages)


def _by_threads(shape: TileShape, stages: int) -> ThreadblockTile:
    return ThreadblockTile(shape, Fma(), _in_stages(stages), stages)


def _in_stages(stages: int) -> Copy:
    """The copy for so many stages of numbers that are not rounded: asynchronous for more than one."""
    return CpAsync() if stages > 1 else ThreadCopy()


def fits(t: ThreadblockTile, extents: Extents, gpu: Gpu) -> bool:
    """True if a thread has all its rows and columns somewhere, and a block fits into an SM."""
    s = t.shape
    enough = extents.rows >= s.rows and extents.columns >= s.columns and extents.steps >= s.vector
    enough = enough and max(extents.count, ceil(extents.rows / s.block_rows)) <= GRID
    enough = enough and extents.loaded(s.block_rows, s.block_columns, t.staged_bytes // (4 * s.threads))
    return enough and _fits_an_sm(t, gpu)


def _fits_an_sm(t: ThreadblockTile, gpu: Gpu) -> bool:
    return t.shared_bytes <= gpu.shared_per_block and t.resident(gpu) >= 1


def _suits(t: ThreadblockTile, extents: Extents) -> bool:
    """True if a tile may be priced. Where tiles are cut short, the highest ones are for results that all take the
    same steps: else blocks differ, and guards stay (zero_fill.py), by which products of 2047 and 5001 took
    1.12 and 1.17 times as long in these as in others, for the same price (H200). Blocks of more rows of threads than
    columns cost the same as others and have more conditions: 3000 × 3000 by 3000 spills 4 bytes in 4 × 4 × 8 threads.
    """
    s = t.shape
    alike = s.rows <= 2 * s.vector or bool(extents.whole_steps)
    return s.is_whole(extents) or (alike and s.threads_z * s.threads_y <= s.threads_x)


# -- tensor cores ------------------------------------------------------------------------------------------------------


def mma_tiles(extents: Extents, itemsize: int, machine: GpuMachine, gpu: Gpu) -> list[ThreadblockTile]:
    """The tiles of mma.sync for a machine's `math` that fit a product, the cheapest first; none for other than float32
    sums.
    """
    if itemsize != FLOAT32 or machine.math not in dict(machine.tensor):
        return []
    every = _every_mma(machine.math)
    found = (costed(t, extents, machine, gpu) for t in every if fits_warps(t, extents, gpu))
    return sorted(found, key=lambda t: t.seconds)


def _every_mma(format: Math) -> Iterator[ThreadblockTile]:
    for (down, across), (rows, columns), steps in pairs(WARPS, ((4, 8), (8, 8), (8, 16)), DEEP):
        shape = TileShape(across, 8 * down, 4, rows, columns, steps, FLOAT32, Mma.axes)
        yield ThreadblockTile(shape, Mma(format), ThreadCopy())


def mma_f64_tiles(extents: Extents, itemsize: int, machine: GpuMachine, gpu: Gpu) -> list[ThreadblockTile]:
    """The tiles of mma.sync that fit a product of float64 numbers whose results all take the same steps, the cheapest
    first.
    """
    if itemsize != FLOAT64 or "f64" not in dict(machine.tensor) or not extents.whole_steps:
        return []
    every = (t for t in _every_mma_f64() if t.stages == 1 or extents.wide)
    found = (costed(t, extents, machine, gpu) for t in every if fits_warps(t, extents, gpu))
    return sorted(found, key=lambda t: t.seconds)


def _every_mma_f64() -> Iterator[ThreadblockTile]:
    for (down, across), (rows, columns), steps, stages in pairs(WARPS, TILES_F64, DEEP_F64, STAGES):
        shape = TileShape(across, 8 * down, 4, rows, columns, steps, FLOAT64, MmaF64.axes)
        yield ThreadblockTile(shape, MmaF64(), _in_stages(stages), stages)


def fits_warps(t: ThreadblockTile, extents: Extents, gpu: Gpu) -> bool:
    """True if every lane of a block has results somewhere, a tile its steps, and a block fits into an SM."""
    s = t.shape
    enough = extents.rows >= s.block_rows and extents.columns >= s.block_columns
    return enough and s.steps <= max(DEEP[0], extents.steps) and _fits_an_sm(t, gpu)


# -- warpgroups --------------------------------------------------------------------------------------------------------


def has_warpgroups(gpu: Gpu, format: Math) -> bool:
    """True if a GPU has instructions of warpgroups, and these take a format."""
    return gpu.compute_capability == CAPABILITY and format in FORMATS


def wgmma_tiles(extents: Extents, format: Math, machine: GpuMachine, gpu: Gpu) -> list[ThreadblockTile]:
    """The tiles of warpgroups that fit a product and a machine, unsorted; none for a GPU without such instructions.

    Operands that are rounded on their way come through registers. Those that are kept as they are threads ask for, or
    one for boxes; a warp that only copies, and clusters, are for blocks that run through their tiles of steps once.
    """
    if not has_warpgroups(gpu, format):
        return []
    every: list[Iterable[ThreadblockTile]] = [every_rounded(format)]
    if extents.kept is not None:
        kinds = (every_kept, every_boxed, *((every_produced, every_clustered) if extents.once else ()))
        every += [kind(format, extents.kept == "columns") for kind in kinds]
    return fitting(every, extents, machine, gpu)


def fitting(
    every: Iterable[Iterable[ThreadblockTile]], extents: Extents, machine: GpuMachine, gpu: Gpu
) -> list[ThreadblockTile]:
    """The tiles of warpgroups that fit, with their prices, whose clusters are complete."""
    fit = (t for tiles in every for t in tiles if _fits_warpgroups(t, extents, gpu))
    found = (costed(t, extents, machine, gpu) for t in fit)
    return [t for t in found if t.has_whole_clusters(extents)]


def every_rounded(format: Math) -> Iterator[ThreadblockTile]:
    """Tiles whose operands threads round and store."""
    tiles = ((2, 16), (2, 32), (4, 16), (4, 32))
    for (down, across), (rows, columns), stages in pairs(WARPGROUPS, tiles, ROUNDED_STAGES):
        threads_y = 32 * down  # a step for each of them where a copy's neighbours are not steps
        shape = TileShape(across, threads_y, 4, rows, columns, threads_y, FLOAT32, Wgmma.axes)
        yield ThreadblockTile(shape, Wgmma(format), ThreadCopy(), stages)


def every_kept(format: Math, by_columns: bool) -> Iterator[ThreadblockTile]:
    """Tiles whose operands threads ask for as they are: no thread has one in its registers, so that tiles of later
    steps are on their way while one is multiplied, and a tile of results may be larger than where threads round.
    """
    tiles = ((2, 16), (2, 32), (2, 64), (4, 16), (4, 32))
    for (down, across), (rows, columns), steps, stages in pairs(WARPGROUPS, tiles, KEPT_STEPS, KEPT_STAGES):
        shape = TileShape(across, 32 * down, 4, rows, columns, steps, _stored(format), Wgmma.axes)
        yield ThreadblockTile(shape, Wgmma(format), CpAsync(), stages, operands=Gemm(by_columns))


def every_boxed(format: Math, by_columns: bool) -> Iterator[ThreadblockTile]:
    """Tiles whose operands come in boxes, of one instruction's rows each."""
    size = _stored(format)
    for (down, across), columns, stages in pairs(WARPGROUPS, (16, 32, 64), KEPT_STAGES):
        shape = TileShape(across, 32 * down, 4, 2, columns, LINE_BYTES // size, size, Wgmma.axes)
        yield ThreadblockTile(shape, Wgmma(format), Tma(), stages, operands=Gemm(by_columns))


def every_produced(format: Math, by_columns: bool) -> Iterator[ThreadblockTile]:
    """The same with a warp that only copies."""
    return (replace(t, producer_warp=True) for t in every_boxed(format, by_columns))


def every_clustered(format: Math, by_columns: bool) -> Iterator[ThreadblockTile]:
    """The same in clusters of blocks."""
    for t, blocks, down in pairs(every_produced(format, by_columns), CLUSTERS, (True, False)):
        yield replace(t, cluster=Cluster(blocks, down))


def _stored(format: Math) -> int:
    """Bytes of a format's numbers in memory."""
    return ITEMSIZE[STORED[format]]


def _fits_warpgroups(t: ThreadblockTile, extents: Extents, gpu: Gpu) -> bool:
    """True if every tile has all of its steps, every thread of a block has results, and a block fits into an SM."""
    s = t.shape
    whole = extents.whole_steps > 0 and extents.whole_steps % s.steps == 0
    enough = whole and extents.rows >= s.block_rows and extents.columns >= s.block_columns
    enough = enough and t.registers <= MOST_REGISTERS
    enough = enough and (t.cluster is None or t.cluster.blocks <= gpu.cluster)
    return enough and _fits_an_sm(t, gpu)


# -- convolutions ------------------------------------------------------------------------------------------------------

# With channels first columns are pixels and rows filters, with channels last the other way round: the results'
# neighbours in memory are columns. A block's pixels are a patch of the image, whose window's element is staged like
# any factor.


@lru_cache(maxsize=64)
def fma_convolutions(
    extents: Extents, operands: ImplicitGemm, itemsize: int, machine: GpuMachine, gpu: Gpu
) -> tuple[ThreadblockTile, ...]:
    """The tiles of threads' multiply-adds that fit a convolution and a machine, the cheapest first, of equals those
    whose blocks have fewer rows of the image, each of which has addresses and guards of its own. Kept, since layers ask
    the same.

    Halves are copied through registers, so that none is on its way while its thread multiplies: in one stage.
    """
    every = (t for t in _every_convolution(itemsize, operands) if t.stages == 1 or not operands.halves)
    found = [costed(t, extents, machine, gpu) for t in every if _fits_pixels(t, extents, gpu)]
    return tuple(sorted(found, key=lambda t: (round(t.seconds, 9), t.shape.threads_z)))


def _every_convolution(itemsize: int, operands: ImplicitGemm) -> Iterator[ThreadblockTile]:
    vector = ACCESS_BYTES // itemsize
    for (y, x), z, rows, columns, stages in pairs(
        ((4, 8), (8, 4), (8, 8), (4, 16), (16, 4), (8, 16), (16, 8)),
        (1, 2, 4, 8),
        (2 * vector, vector),
        (2 * vector, vector),
        STAGES,
    ):
        if 2 * WARP <= x * y * z <= MOST_THREADS:
            shape = TileShape(z, y, x, rows, columns, 4 * vector, itemsize, ImplicitGemm.axes)
            yield ThreadblockTile(shape, Fma(), _in_stages(stages), stages, operands=operands)


def _fits_pixels(t: ThreadblockTile, extents: Extents, gpu: Gpu) -> bool:
    """True if a thread has all its rows and columns somewhere, and a block fits into an SM."""
    s = t.shape
    enough = extents.rows >= s.rows and extents.columns >= s.columns and extents.deep > s.threads_z // 2
    return enough and _fits_grid(t, extents) and _fits_an_sm(t, gpu)


def _fits_grid(t: ThreadblockTile, extents: Extents) -> bool:
    deep = extents.count * ceil(extents.deep / t.shape.threads_z)
    return max(deep, ceil(extents.rows / t.shape.block_rows)) <= GRID


@lru_cache(maxsize=64)
def mma_convolutions(
    extents: Extents, operands: ImplicitGemm, itemsize: int, machine: GpuMachine, gpu: Gpu
) -> tuple[ThreadblockTile, ...]:
    """The tiles of mma.sync for a machine's `math` that fit a convolution, the cheapest first; none for sums of other
    numbers.

    Factors are rounded once, where an element of the window is staged, and come through registers: there is one stage.
    Halves of the format come the same way, bit for bit: a pixel is two bytes, and no copy that goes on by itself has
    fewer than four.
    """
    if itemsize != FLOAT32 or machine.math not in dict(machine.tensor):
        return ()
    every = every_mma_convolution(machine.math, operands)
    found = [t for t in every if is_laid_out(t.shape, machine.math, operands)]
    fit = (t for t in found if _fits_rounded_pixels(t, operands, extents, gpu))
    return tuple(sorted((costed(t, extents, machine, gpu) for t in fit), key=lambda t: t.seconds))


def every_mma_convolution(format: Math, operands: ImplicitGemm) -> Iterator[ThreadblockTile]:
    """The tiles of mma.sync for convolutions, whether they have a layout or not."""
    for down, z, (rows, columns), steps in pairs((1, 2), (1, 2, 4, 8), PIXEL_TILES, DEEP):
        if WARP * down * z <= MOST_THREADS:
            shape = TileShape(z, 8 * down, 4, rows, columns, steps, FLOAT32, ImplicitGemm.axes)
            yield ThreadblockTile(shape, Mma(format), ThreadCopy(), operands=operands)


def is_laid_out(s: TileShape, format: Math, operands: ImplicitGemm) -> bool:
    """True if a tile has a layout in which no access waits for a bank: lines of tf32 numbers are read in vectors."""
    if s.rows == 2:
        return operands.pixels_left and operands.by_channels and s.steps > DEEP[0]
    if s.columns == 14:
        return format != "tf32" and not (operands.pixels_left or operands.wide or operands.by_channels)
    return True


def _fits_rounded_pixels(t: ThreadblockTile, operands: ImplicitGemm, extents: Extents, gpu: Gpu) -> bool:
    """True if a block fits, and all its lanes have pixels where these lie behind each other in panels of steps.

    Such a lane may read what no thread has copied, but not what is not there.
    """
    s = t.shape
    in_lines = t.math == "tf32" and not operands.by_channels
    pixels = extents.rows - s.block_rows if operands.pixels_left else extents.columns - s.block_columns
    there = not operands.by_channels or pixels >= 0
    return there and _fits_warps_of_pixels(t, extents, gpu, max(extents.steps, 0 if in_lines else DEEP[0]))


def _fits_warps_of_pixels(t: ThreadblockTile, extents: Extents, gpu: Gpu, most: int) -> bool:
    """True if all warps of a block have pixels, and it fits into an SM, with at most so many steps.

    Lines lie in fours, which the next row of an image with fewer channels than a tile has steps would not begin with.
    """
    s = t.shape
    enough = extents.deep >= s.threads_z and s.steps <= most
    enough = enough and extents.rows > s.block_rows // 2 and extents.columns > s.block_columns // 2
    return enough and _fits_grid(t, extents) and _fits_an_sm(t, gpu)


@lru_cache(maxsize=64)
def mma_f64_convolutions(
    extents: Extents, operands: ImplicitGemm, itemsize: int, machine: GpuMachine, gpu: Gpu
) -> tuple[ThreadblockTile, ...]:
    """The tiles of mma.sync that fit a convolution of float64 numbers, the cheapest first; none where tensor cores have
    none.
    """
    if itemsize != FLOAT64 or "f64" not in dict(machine.tensor):
        return ()
    every = _every_mma_f64_convolution(operands)
    fit = (t for t in every if _fits_warps_of_pixels(t, extents, gpu, extents.steps))
    return tuple(sorted((costed(t, extents, machine, gpu) for t in fit), key=lambda t: t.seconds))


def _every_mma_f64_convolution(operands: ImplicitGemm) -> Iterator[ThreadblockTile]:
    for down, z, (rows, columns), steps, stages in pairs((1, 2), (1, 2, 4, 8), TILES_F64, DEEP_F64, STAGES):
        if WARP * down * z <= MOST_THREADS:
            shape = TileShape(z, 8 * down, 4, rows, columns, steps, FLOAT64, ImplicitGemm.axes)
            yield ThreadblockTile(shape, MmaF64(), _in_stages(stages), stages, operands=operands)


# -- steps of a loop ---------------------------------------------------------------------------------------------------


def stationary_tiles(
    extents: Extents,
    itemsize: int,
    machine: GpuMachine,
    gpu: Gpu,
    holds: Literal["left", "right"] | None,
    period: int = 0,
) -> list[ThreadblockTile]:
    """The tiles that fit a product and a machine, a tile for each of the blocks that are there, the cheapest first.

    With a `period` columns are in groups so far apart.
    """
    every = (t for t in _every_stationary(extents, itemsize, holds, period) if t.stages == 1 or extents.wide)
    fit = (t for t in every if t.units and fits(t, extents, gpu) and t.blocks(extents) <= machine.units)
    return sorted((_with_copy(t, extents, machine, gpu) for t in fit), key=lambda t: t.seconds)


def _with_copy(t: ThreadblockTile, extents: Extents, machine: GpuMachine, gpu: Gpu) -> ThreadblockTile:
    """The tile with the expected costs of a step and of the factor that is copied once."""
    moved = t.blocks(extents) * t.held_bytes
    once = moved / machine.bandwidth(machine.levels[0], machine.units) + seconds_of_wait(machine)
    return replace(costed(t, extents, machine, gpu), once=once if t.held is not None else 0.0)


def _every_stationary(
    extents: Extents, itemsize: int, holds: Literal["left", "right"] | None, period: int
) -> Iterator[ThreadblockTile]:
    groups = ceil(extents.columns / period) if period else 1
    for t in every_fma(itemsize):
        for times in LONGER if holds is not None else (1,):
            steps = t.shape.steps * times
            if times > 1 and steps >= 2 * extents.steps:
                continue
            depth = ceil(extents.steps / steps) * steps if holds is not None else 0
            yield replace(t.sized(steps=steps), operands=Stationary(holds, depth, groups, period))
