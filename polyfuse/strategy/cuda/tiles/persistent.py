"""Shapes of tiles of a product that runs again in each step of a loop, by blocks that stay on the GPU for all steps.

A factor that no step changes may stay in shared memory (`holds`), where a block's part of it fits beside the stages of
the other. That one alone is copied in each step, so that tiles of more steps fit, and a block waits less often:

    for t: for k (of 16): { copy a tile of h[t];  copy a tile of u;  mac }
    ->  copy a block's part of u;  for t: for k (of 32): { copy a tile of h[t];  mac }

Columns that are a period apart may be one block's (`groups`), which then has all that one unit of a later part reads:

    a block's columns:  0 … 31   ->   0 … 7, 512 … 519, 1024 … 1031, 1536 … 1543        four groups, 512 apart
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace
from math import ceil
from typing import Any, Literal

from polyfuse.ir.tree import Spread
from polyfuse.machine import Gpu, Machine
from polyfuse.strategy.cost.gpu_cycles import seconds_of_wait
from polyfuse.strategy.cuda.tiles.fma import WAYS, Shape, Side, candidates, fits, spread_for
from polyfuse.strategy.cuda.tiles.tile_cost import costed
from polyfuse.strategy.match.gemm_problem import Extents

LONGER = (1, 2)
"""Tiles of so many times the steps that they have where both factors are staged."""


@dataclass(frozen=True)
class StepShape(Shape):
    """A shape of which one factor may lie in shared memory with all its `lines` of steps, and columns in groups."""

    holds: Literal["left", "right"] | None = None
    lines: int = 0
    groups: int = 1
    period: int = 0
    once: float = field(default=0.0, compare=False)
    """Seconds to copy what stays."""
    reasons: tuple[str, ...] = field(default=(), compare=False)
    """Why it is so, for a report."""

    @property
    def units(self) -> int:
        """Columns of a block in each group: those of whole threads, so many that they divide a period; 0 if none do.

        Where they do not, isl takes 15 times as long for the proofs of a kernel (28 s for 97 units, one Zen 5 core).
        """
        if self.groups == 1:
            return self.block_columns
        most = self.threads_x // self.groups
        fit = (
            count * self.columns for count in range(most, 0, -1) if self.period % (count * self.columns) == 0
        )
        return next(fit, 0)

    @property
    def held(self) -> Side | None:
        """The factor that stays."""
        return None if self.holds is None else self.right if self.holds == "right" else self.left

    @property
    def how(self) -> str:
        """What stays, and which columns a block has, for a report."""
        held = f", whose {self.holds} factor stays in shared memory" if self.holds else ""
        return held + (f", {self.units} columns in each of {self.groups} groups" if self.groups > 1 else "")

    def blocks(self, extents: Extents) -> int:
        """Blocks of the grid."""
        if self.groups == 1:
            return super().blocks(extents)
        return ceil(extents.rows / self.block_rows) * ceil(self.period / self.units) * extents.count

    @property
    def staged(self) -> int:
        """Elements of a tile of steps, of the factors that are copied with each."""
        return sum(side.width for side in (self.left, self.right) if side != self.held) * self.steps

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: the factor that stays, and all stages of what does not."""
        return self.itemsize * sum(
            self._elements(side, self.lines)
            if side == self.held
            else self.stages * self._elements(side, self.steps)
            for side in (self.left, self.right)
        )

    @property
    def held_bytes(self) -> int:
        """Bytes that a block copies once."""
        return 0 if self.held is None else self.itemsize * self.lines * self.held.width

    def sentences(self, statement: str) -> tuple[str, ...]:
        """What was chosen and why, for a report."""
        return (*super().sentences(statement), *self.reasons)

    def laid_out(self, side: Side, by_steps: bool, wide: bool) -> Mapping[str, Any]:
        """What `promote` is told of a factor's tile: where it lies."""
        return {"spread": astuple(self._spread(side, by_steps, wide))}

    def _spread(self, side: Side, by_steps: bool, wide: bool) -> Spread:
        """More lines are laid out alike."""
        steps = 4 * self.vector
        z, y, x = self.threads_z, self.threads_y, self.threads_x
        stages = 1 if side == self.held else self.stages
        plain = Shape(z, y, x, self.rows, self.columns, steps, self.itemsize, stages)
        return spread_for(plain, side, by_steps, wide)

    def _elements(self, side: Side, lines: int) -> int:
        """Elements of so many lines, spread as widely as any choice does."""
        return max(self._spread(side, *way).size(lines, side.width) for way in WAYS)


def step_shapes(
    extents: Extents,
    itemsize: int,
    machine: Machine,
    gpu: Gpu,
    holds: Literal["left", "right"] | None,
    period: int = 0,
) -> list[StepShape]:
    """The shapes that fit a product and a machine, a tile for each of the blocks that are there, the cheapest first.

    With a `period` columns are in groups so far apart.
    """
    every = (s for s in _every(extents, itemsize, holds, period) if s.stages == 1 or extents.wide)
    fit = (s for s in every if s.units and fits(s, extents, gpu) and s.blocks(extents) <= machine.units)
    return sorted((_priced(s, extents, machine, gpu) for s in fit), key=lambda s: s.seconds)


def _priced(s: StepShape, extents: Extents, machine: Machine, gpu: Gpu) -> StepShape:
    """With what the model expects of a step, and of what is copied once."""
    moved = s.blocks(extents) * s.held_bytes
    once = moved / machine.bandwidth(machine.levels[0], machine.units) + seconds_of_wait(machine)
    return replace(costed(s, extents, machine, gpu), once=once if s.held is not None else 0.0)


def _every(
    extents: Extents, itemsize: int, holds: Literal["left", "right"] | None, period: int
) -> Iterator[StepShape]:
    groups = ceil(extents.columns / period) if period else 1
    for s in candidates(itemsize):
        for times in LONGER if holds is not None else (1,):
            steps = s.steps * times
            if times > 1 and steps >= 2 * extents.steps:
                continue
            size = (s.threads_z, s.threads_y, s.threads_x, s.rows, s.columns, steps, itemsize, s.stages)
            lines = ceil(extents.steps / steps) * steps if holds is not None else 0
            yield StepShape(*size, holds=holds, lines=lines, groups=groups, period=period)
