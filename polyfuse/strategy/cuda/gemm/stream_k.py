"""Schedule products by stream-k on a GPU: decide when, choose tiles, and build the kernel in public verbs.

    for b: for i: for j: { zero; for k: mac; store part }
    ->  for p (block.x):  for b_i_j:                                        a share: the end of a tile, whole ones, …
          for i_z: for i_y: for j_x: for r: for c: zero
          for k (chunks): { copy a tile of a; of b;  … mac }                those of the tile that are in the share
          for i_z: for i_y: for j_x: for r: for c: store part

Whole waves of blocks leave most of a GPU idle in the last one, if that has few: 144 tiles on 132 SMs take two. In
shares all blocks have as many chunks, and there is one wave; what it costs is that every result goes through memory
once more, and the kernel that adds up the parts (stream_k.py has the reference). The loop over parts is skewed
by that over tiles, a share's part of a tile each: part p of a tile is in the p-th block after that of its first chunk.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil

from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.machine import Gpu, GpuMachine
from polyfuse.measure import duration
from polyfuse.rewrite.reductions.stream_k import Dealt
from polyfuse.schedule import Schedule
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.gpu_cycles import seconds_of_wait
from polyfuse.strategy.cost.kernel_model import Kernel
from polyfuse.strategy.cuda.gemm.schedule import ResultLoops, Tiles, of_one_step
from polyfuse.strategy.cuda.tiles.tile import ThreadblockTile
from polyfuse.strategy.match.gemm import Product, contractions_of
from polyfuse.strategy.match.gemm_problem import Extents
from polyfuse.strategy.remarks import Reason, Refused
from polyfuse.strategy.transforms.band_verbs import reordered
from polyfuse.strategy.transforms.time_loops import Planned

LEAST_CHUNKS = 8
"""Chunks of a share at least: stages are filled anew for each tile."""

MOST_STAGES = 2
"""A share's bounds take registers: with four stages some tiles spill 4 bytes on sm_80 or sm_90 (ptxas, CUDA 13)."""

IN_FLIGHT = 4
"""Partial results that a thread asks for before it adds them; an assumption, as the compiler unrolls such loops."""


@dataclass(frozen=True)
class Priced:
    """A tile for one product in so many equal shares, with what the model expects of all of it, in seconds.

    The tile has what is expected of the kernel of the parts.
    """

    tile: ThreadblockTile
    count: int
    seconds: float


@dataclass(frozen=True)
class InShares:
    """A product that was dealt out: in which tiles."""

    tile: ThreadblockTile
    dealt: Dealt


def seconds_to_add(parts: int, stored: int, machine: GpuMachine) -> float:
    """The seconds of a kernel that adds so many parts of each result, of so many bytes in all."""
    reading = stored / machine.bandwidth(machine.level(stored), machine.units)
    return reading + machine.launch_seconds + parts / IN_FLIGHT * seconds_of_wait(machine)


def cheapest_in_shares(
    tiles: Iterable[ThreadblockTile], extents: Extents, machine: GpuMachine, gpu: Gpu
) -> Priced | None:
    """The tile that is expected to be fastest in shares, one for each block that is resident; None if none gains."""
    priced = (_priced(t, extents, machine, gpu) for t in tiles if _may_be_shared(t, extents))
    return min((p for p in priced if p is not None), key=lambda p: p.seconds, default=None)


def _may_be_shared(t: ThreadblockTile, extents: Extents) -> bool:
    """True if a block may have several such tiles: tensor cores multiply the same steps for every result.

    Tiles that are cut short keep their guards there, since no block runs all that others do (zero_fill.py),
    and spill: 132 bytes of 1500 × 1500 by 1500 for an H200, whose loop has 57 % multiply-adds.
    """
    return t.math == "ieee" and t.stages <= MOST_STAGES and t.shape.is_whole(extents)


def _priced(t: ThreadblockTile, extents: Extents, machine: GpuMachine, gpu: Gpu) -> Priced | None:
    """A tile in shares: chunks take what they take on full SMs; and each result is stored and loaded once more."""
    blocks, s = t.blocks(extents), t.shape
    resident = min(t.resident(gpu), ceil(blocks / machine.units))
    slots = machine.units * resident
    waves, share = ceil(blocks / slots), ceil(blocks * t.tiles / slots)
    most = ceil(blocks / machine.units) * t.tiles
    if share * resident >= most or share < LEAST_CHUNKS:
        return None
    memory, cut = machine.levels[-1], s.block_rows * s.block_columns * s.itemsize
    end = extents.results * s.itemsize / machine.bandwidth(memory, min(blocks, machine.units))
    # a boundary between shares cuts one tile in two
    stored = (blocks + slots) * cut
    storing = stored / machine.bandwidth(machine.level(stored), machine.units)
    begun = 1 + ceil(share / t.tiles)
    seconds = machine.launch_seconds + share * t.tile + begun * seconds_of_wait(machine) + storing
    part = share * resident / most
    why = (
        f"{duration(seconds)} expected: {slots} blocks, {resident} on an SM, one share of {share} tiles of steps "
        f"each, where {blocks} blocks of {t.tiles} would take {waves} {'wave' if waves == 1 else 'waves'}"
    )
    shared = replace(
        t,
        group=1,
        seconds=seconds,
        issuing=t.issuing * part,
        moving=(t.moving - end) * part + storing,
        tiles=share,
        why=why,
    )
    return Priced(shared, slots, seconds + seconds_to_add(1 + ceil(t.tiles / share), stored, machine) + end)


def in_shares(
    schedule: Schedule, counts: Counts, kernel: Kernel, own: InShares, machine: GpuMachine
) -> Planned | Refused:
    """A kernel that sums up the parts of a product, a share a block; or why not."""
    found = (of_one_step(contractions_of(schedule.nest, name, by_value=True)) for name in kernel.names)
    product = next((p for p in found if p is not None), None)
    if product is None:
        return Refused(Reason.OTHER_FORM, "there is no product of one step")
    try:
        return _Shares(schedule, counts, kernel, product, own, machine).made()
    except (IllegalSchedule, InvalidSchedule) as error:
        return Refused(Reason.ILLEGAL, str(error))


class _Shares(Tiles):
    """One kernel on its way into register tiles, several tiles in one block."""

    def __init__(
        self,
        schedule: Schedule,
        counts: Counts,
        kernel: Kernel,
        product: Product,
        own: InShares,
        machine: GpuMachine,
    ) -> None:
        super().__init__(schedule, counts, kernel, product, own.tile, machine)
        self.dealt = own.dealt

    def in_grid(self, schedule: Schedule, blocks: tuple[str, ...]) -> Schedule:
        """Shares on block.x, the tiles of one in order."""
        return schedule.bind(self.kernel.names[0], **{blocks[0]: "block.x"})

    def in_one_batch(
        self, schedule: Schedule, others: tuple[str, ...], blocks: tuple[str, ...], over: ResultLoops
    ) -> tuple[Schedule, ResultLoops, tuple[str, ...]]:
        """for p: for b: for i: for j  ->  for p (shares): for b_i_j (tiles of results, in the dimensions' order)."""
        first, p = self.kernel.names[0], self.product
        by_dim = dict(zip((*p.others, p.rows, p.columns), (*others, *blocks), strict=True))
        part, *results = (by_dim[d] for d in sorted(by_dim))
        schedule = reordered(schedule, first, (*results, part, *over.all))
        for _ in results[1:]:
            two = schedule.loops(first)[:2]
            schedule = schedule.collapse(first, two[0].name, two[1].name)
        tiles = schedule.loops(first)[0].name
        schedule = schedule.skew(first, part, by=tiles, factor=self.dealt.chunks, per=self.dealt.share)
        return schedule.interchange(first, tiles, part), over, (part, tiles)
