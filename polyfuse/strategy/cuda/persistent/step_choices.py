"""Choose the parts of a step: a product's tiles, its stationary factor, and the parts that run in its blocks.

    product, gates  ->  product with u in shared memory and four groups of columns; gates in its blocks

Two questions, each answered by the model: do the parts that read a product's results alone run in its blocks, which
saves a grid barrier a step and may cost threads without columns; and does a factor that no step changes stay in shared
memory, for which all steps have to be faster than what the copy takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import Literal

from polyfuse.ir import Nest
from polyfuse.ir.tree import statements
from polyfuse.machine import Gpu, GpuMachine
from polyfuse.measure import duration
from polyfuse.schedule import Schedule
from polyfuse.strategy.candidates import Choose
from polyfuse.strategy.cost.counts import Counts, dims_of
from polyfuse.strategy.cuda.gemm.schedule import extents_for, product_tiles
from polyfuse.strategy.cuda.gemm.tile_choice import PASS as TILES
from polyfuse.strategy.cuda.persistent.same_blocks import Follower, follower
from polyfuse.strategy.cuda.persistent.step_parts import Part, seconds_of
from polyfuse.strategy.cuda.tiles.tile import ThreadblockTile
from polyfuse.strategy.cuda.tiles.tile_candidates import stationary_tiles
from polyfuse.strategy.cuda.tiles.tile_cost import waiting_seconds
from polyfuse.strategy.match.gemm import Factor, Product
from polyfuse.strategy.match.gemm_problem import Extents

SAME_BLOCKS, STATIONARY = "same blocks", "stationary operand"
"""What is decided of a product in a time loop: parts behind it run in its blocks; a factor stays in shared memory."""


def decided(
    schedule: Schedule, counts: Counts, every: Sequence[Part], machine: GpuMachine, gpu: Gpu, choose: Choose
) -> tuple[Part, ...]:
    """The parts with what they are to be."""
    found = list(every)
    for place, part in enumerate(every):
        if part.product is None:
            continue
        behind = _followers(schedule, counts, part, every[place + 1 :])
        asked = Asked(schedule, counts, part, tuple(behind), machine, gpu, choose)
        found[place] = asked.answered()
        tile = found[place].tile
        if tile is not None and asked.has_followers(tile):
            for position, (_, follows) in enumerate(behind, place + 1):
                found[position] = replace(found[position], follows=(follows, tile))
    return tuple(found)


def _followers(
    schedule: Schedule, counts: Counts, product: Part, behind: Sequence[Part]
) -> list[tuple[Part, Follower]]:
    """The parts right behind a product that need its own blocks' results alone, and count units alike."""
    found: list[tuple[Part, Follower]] = []
    for part in behind:
        loops = len(part.kernel.around) + len(part.kernel.band)
        if any(len(schedule.loops(name)) != loops for name in part.kernel.names):
            break
        one = follower(schedule.nest, counts, product.kernel, product.loops, part.kernel)
        if one is None or (found and one.period != found[0][1].period):
            break
        found.append((part, one))
    return found


@dataclass(frozen=True)
class Asked:
    """The decisions on a product, with the parts `behind` it that need only its own blocks' results."""

    schedule: Schedule
    counts: Counts
    part: Part
    behind: tuple[tuple[Part, Follower], ...]
    machine: GpuMachine
    gpu: Gpu
    choose: Choose

    def answered(self) -> Part:
        """The product with its tile and why it has that, or as it was where a result a thread is cheaper."""
        usual = self._usual()
        if usual is None:
            return self.part
        options, said = self._whose_blocks([usual, *self._staying(0)])
        tile, why = self._held(options)
        one_each = self.part.plain.total + self.part.times * waiting_seconds(usual, self.machine)
        tiled, names = self._seconds(tile), self.part.kernel.names
        if not self.choose.takes(TILES, names, tiled < one_each, "form", (tiled, one_each)):
            return self.part
        return replace(self.part, tile=tile, usual=usual, said=(*why, *said))

    def has_followers(self, tile: ThreadblockTile) -> bool:
        """True if the parts behind run in the blocks of a tile: each has one tile, with all columns of its units."""
        if not self.behind or tile.group > 1 or tile.blocks(self._extents) > self.machine.units:
            return False
        return self._groups == 1 or tile.operands.groups > 1

    # -- whose blocks ------------------------------------------------------------------------------------------------

    def _whose_blocks(self, apart: list[ThreadblockTile]) -> tuple[list[ThreadblockTile], tuple[str, ...]]:
        """Shapes to choose from, once it is decided whether parts behind run in the product's blocks; and why."""
        if not self.behind:
            return apart, ()
        names = ", ".join(name for part, _ in self.behind for name in part.kernel.names)
        their = f"the blocks that compute what they read of {self._product.statement}"
        if self._groups == 1:
            best = self._best(apart)
            if self.has_followers(best):
                return [tile for tile in apart if self.has_followers(tile)], (f"{names} run in {their}",)
            return apart, (f"{names} do not run in {their}: a block has several tiles of it",)
        together = [*self._tiles(None, self._period), *self._staying(self._period)]
        if not together:
            why = (
                f"no tiles for {self.machine.units} blocks have {self._groups} groups of columns that divide "
                f"{self._period}"
            )
            return apart, (f"{names} do not run in {their}: {why}",)
        barriers = self.gpu.meeting_seconds(self.part.times)
        seconds = self._seconds(self._best(together)), self._seconds(self._best(apart)) + barriers
        kernel = self.part.kernel.names
        so = self.choose.takes(SAME_BLOCKS, kernel, seconds[0] < seconds[1], "blocks", seconds)
        one, other = map(duration, seconds)
        how = "run" if so else "do not run"
        said = f"{names} {how} in {their}: {one} expected for {self.part.times} steps so, {other} with a grid barrier "
        return [*together] if so else apart, (said + "more in each",)

    def _best(self, options: Sequence[ThreadblockTile]) -> ThreadblockTile:
        return min(options, key=self._seconds)

    # -- what stays --------------------------------------------------------------------------------------------------

    def _held(self, options: Sequence[ThreadblockTile]) -> tuple[ThreadblockTile, tuple[str, ...]]:
        """The best of some tiles, once it is decided whether a factor stays in shared memory; and why."""
        if self._same is None:
            return self._best(options), ()
        name, steps = self._same.name, self.part.times
        stay = [tile for tile in options if tile.held is not None]
        read = [tile for tile in options if tile not in stay]
        not_so = f"{name} does not stay in shared memory: "
        if self.schedule.nest.params:
            return self._best(options), (f"{not_so}its size is known when the kernel is called",)
        if not stay:
            fits = (
                f"{self.machine.name} has {self.machine.units} blocks of {self.gpu.shared_per_block} bytes, and no "
                f"tiles of {self._extents.rows} × {self._extents.columns} results with {self._extents.steps} steps of "
                f"{name} each fit"
            )
            return self._best(options), (not_so + fits,)
        if not read:
            return self._best(options), ()
        best, usual = self._best(stay), self._best(read)
        seconds = self._seconds(best), self._seconds(usual)
        held, each = map(duration, seconds)
        kernel = self.part.kernel.names
        if not self.choose.takes(STATIONARY, kernel, seconds[0] < seconds[1], "held", seconds):
            return usual, (f"{not_so}{held} expected for {steps} steps so, {each} where each step reads it",)
        return best, (
            f"{name} stays in shared memory, {best.held_bytes} bytes of it in each of {best.blocks(self._extents)} "
            f"blocks, which copy them once; {held} expected for {steps} steps, {each} where each step reads it",
        )

    @cached_property
    def _same(self) -> Factor | None:
        """A factor that no step writes, and of which each step reads the same: weights."""
        return next(
            (
                f
                for f in (self._product.right, self._product.left)
                if _is_same(self.schedule.nest, self.part, f)
            ),
            None,
        )

    # -- tiles -------------------------------------------------------------------------------------------------------

    def _usual(self) -> ThreadblockTile | None:
        """The tile that is expected to be fastest where both factors are staged in each step.

        Tensor cores take blocks of another form than other parts do: only a product that is all of a step has them.
        """
        alone, machine = self.part.alone, self.machine
        machine = machine if alone else replace(machine, math="ieee")
        found = product_tiles(
            self.schedule, self.counts, self.part.kernel, self._product, dict(self.part.band), machine
        )
        return next((tile for tile in found if alone or tile.math == "ieee"), None)

    def _staying(self, period: int) -> list[ThreadblockTile]:
        """The tiles with a factor that stays."""
        if self._same is None or self.schedule.nest.params:
            return []
        return self._tiles("right" if self._same is self._product.right else "left", period)

    def _tiles(self, holds: Literal["left", "right"] | None, period: int) -> list[ThreadblockTile]:
        nest = self.schedule.nest
        itemsize = nest.tensor(nest.statement(self._product.statement).write.tensor).itemsize
        return stationary_tiles(self._extents, itemsize, self.machine, self.gpu, holds, period)

    def _seconds(self, tile: ThreadblockTile) -> float:
        return seconds_of(tile, self.part.times, self.machine)

    @property
    def _product(self) -> Product:
        assert self.part.product is not None, "only products are asked about"
        return self.part.product

    @cached_property
    def _extents(self) -> Extents:
        band = dict(self.part.band)
        return extents_for(self.schedule, self.counts, self.part.kernel, self._product, band, self.machine)

    @property
    def _period(self) -> int:
        return self.behind[0][1].period

    @property
    def _groups(self) -> int:
        """Groups of columns that a unit of the parts behind reads."""
        return ceil(self._extents.columns / self._period)


def _is_same(nest: Nest, part: Part, factor: Factor) -> bool:
    """True if a factor is a tensor that no step writes, and of which each step reads the same."""
    assert part.product is not None, "it has factors"
    moving = frozenset[int]().union(
        *(dims_of(loop.date(part.product.statement)) for loop in part.kernel.around)
    )
    written = {nest.statement(name).write.tensor for name in statements(part.kernel.around[0])}
    return not factor.computed and factor.access.tensor not in written and not moving & factor.axes.keys()
