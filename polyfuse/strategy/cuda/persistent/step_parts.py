"""Schedule one part of a persistent kernel's step: products in register tiles, others with one result a thread.

    for t: { for i: for j: for k: mac;  … }  ->  for t: { mac's blocks, in register tiles;  … }

What was decided of a part (step_choices.py) is in it: its tiles, or whose blocks it runs in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from polyfuse.errors import InvalidSchedule
from polyfuse.ir.tree import Loop
from polyfuse.machine import GpuMachine
from polyfuse.schedule import Schedule
from polyfuse.strategy.candidates import Choose
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.gpu_cycles import seconds_of_wait
from polyfuse.strategy.cost.kernel_model import Kernel
from polyfuse.strategy.cost.roofline import KernelCost, Tiling, chosen_tiling, ranked
from polyfuse.strategy.cuda import kernel as cuda
from polyfuse.strategy.cuda.gemm.implicit_gemm import Convolution
from polyfuse.strategy.cuda.gemm.schedule import band_by_dimension, in_register_tiles
from polyfuse.strategy.cuda.gemm.tile_choice import product_in
from polyfuse.strategy.cuda.persistent.same_blocks import Follower, in_same_blocks
from polyfuse.strategy.cuda.tiles.tile import ThreadblockTile
from polyfuse.strategy.match.gemm import Product
from polyfuse.strategy.transforms.time_loops import Planned


@dataclass(frozen=True)
class Part:
    """A part of a step, what it costs with a result a thread, and where it is a product the loop of each dimension.

    `alone` if it is all of a step. `tile` is a product's; `follows` says whose rows and units a part's are, and that
    product's tile. `usual` is the product's tile where nothing stays, `said` why it is so, for a report.
    """

    kernel: Kernel
    alone: bool
    plain: KernelCost
    times: int
    product: Product | None = None
    band: tuple[tuple[int, Loop], ...] = ()
    tile: ThreadblockTile | None = None
    usual: ThreadblockTile | None = None
    follows: tuple[Follower, ThreadblockTile] | None = None
    said: tuple[str, ...] = ()

    @property
    def loops(self) -> tuple[Loop, Loop]:
        """A product's loops over rows and columns."""
        assert self.product is not None, "a product has rows and columns"
        band = dict(self.band)
        return band[self.product.rows], band[self.product.columns]

    def inside(self, run: Loop) -> Part:
        """The part with one more loop around all steps."""
        return replace(self, kernel=replace(self.kernel, around=(run, *self.kernel.around)))

    def unshaped(self) -> Part:
        """The part with both factors read in each step, and in blocks of its own."""
        return replace(self, tile=self.usual, follows=None, said=())


def part_of(
    schedule: Schedule, counts: Counts, kernel: Kernel, alone: bool, machine: GpuMachine, choose: Choose
) -> Part:
    """A kernel as a part of a step."""
    costs = ranked(kernel, machine, counts.total_bytes)
    times = prod(counts.extent(loop) for loop in kernel.around)
    plain = chosen_tiling(kernel, costs, choose)
    plain = replace(plain, overhead=machine.launch_seconds, waiting=times * 2 * seconds_of_wait(machine))
    part = Part(kernel, alone, plain, times)
    product = product_in(schedule.nest, kernel)
    band = None if product is None else band_by_dimension(kernel, product)
    if product is None or isinstance(product, Convolution) or not isinstance(band, dict):
        return part
    return replace(part, product=product, band=tuple(band.items()))


def seconds_of(tile: ThreadblockTile, times: int, machine: GpuMachine) -> float:
    """The seconds of a tiled product in all steps of one launch."""
    return machine.launch_seconds + times * (tile.seconds - machine.launch_seconds) + tile.once


def mapped(
    schedule: Schedule, counts: Counts, part: Part, machine: GpuMachine
) -> tuple[Schedule, KernelCost, tuple[str, ...]]:
    """A part on blocks and threads as it was decided; with a result a thread where a verb refuses tiles."""
    kernel = part.kernel
    if part.follows is not None:
        return in_same_blocks(schedule, kernel, *part.follows), part.plain, part.said
    done = None if part.tile is None else _in_tiles(schedule, counts, part, part.tile, machine)
    if part.tile is None or done is None:
        return cuda.shaped(schedule, counts, kernel, part.plain.tiling, machine), part.plain, part.said
    seconds = seconds_of(part.tile, part.times, machine)
    compute, memory = part.times * part.tile.issuing, part.times * part.tile.moving
    cost = replace(part.plain, tiling=Tiling((), ()), compute=compute, memory=memory, waiting=0.0)
    return done.schedule, replace(cost, waiting=max(0.0, seconds - cost.total)), (*done.notes, *part.said)


def _in_tiles(
    schedule: Schedule, counts: Counts, part: Part, tile: ThreadblockTile, machine: GpuMachine
) -> Planned | None:
    """A product's part of a step in register tiles; None if a verb is refused, unless other parts count on it."""
    assert part.product is not None, "it has a tile"
    done = in_register_tiles(schedule, counts, part.kernel, part.product, tile, machine)
    if isinstance(done, Planned):
        return done
    if tile.operands.across_steps:
        raise InvalidSchedule(done.text)
    return None
