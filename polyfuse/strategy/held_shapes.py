"""Shapes of tiles one factor of which stays in shared memory while a loop around the product runs.

    for t: for k (of 16): { copy a tile of h[t];  copy a tile of u;  mac }
    ->  copy a block's part of u;  for t: for k (of 32): { copy a tile of h[t];  mac }

A recurrent layer's weights: every step of time multiplies with them. A block has to be on the GPU for all steps, which
those that wait for each other are, and its part has to fit beside the stages of the other factor. Since that one alone
is staged, tiles of more steps fit, and a block waits less often.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, field
from math import ceil
from typing import Any

from polyfuse.ir.tree import Spread
from polyfuse.machine import Gpu, Machine
from polyfuse.strategy.extents import Extents
from polyfuse.strategy.register_shapes import (
    WAYS,
    Shape,
    Side,
    candidates,
    costed,
    fits,
    seconds_of_wait,
    spread_for,
)

LONGER = (1, 2)
"""Tiles of so many times the steps that they have where both factors are staged."""


@dataclass(frozen=True)
class HeldShape(Shape):
    """A shape of which the right factor, or else the left one, lies in shared memory with all its `lines` of steps."""

    holds_right: bool = True
    lines: int = 0
    once: float = field(default=0.0, compare=False)
    """Seconds to copy what stays."""
    reason: str = field(default="", compare=False)
    """Why it stays, for a report."""

    @property
    def held(self) -> Side:
        """The factor that stays."""
        return self.right if self.holds_right else self.left

    @property
    def passing(self) -> Side:
        """The other one, of which each tile of steps is copied."""
        return self.left if self.holds_right else self.right

    @property
    def how(self) -> str:
        """What stays, for a report."""
        return f", whose {'right' if self.holds_right else 'left'} factor stays in shared memory"

    @property
    def staged(self) -> int:
        """Elements of a tile of steps, of the factor that is copied with each."""
        return self.passing.width * self.steps

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: the factor that stays, and all stages of the other."""
        passing = self.stages * self._elements(self.passing, self.steps)
        return self.itemsize * (self._elements(self.held, self.lines) + passing)

    @property
    def held_bytes(self) -> int:
        """Bytes that a block copies once."""
        return self.itemsize * self.lines * self.held.width

    def sentences(self, statement: str) -> tuple[str, ...]:
        """What was chosen and why, for a report."""
        return (*super().sentences(statement), *((self.reason,) if self.reason else ()))

    def laid_out(self, side: Side, by_steps: bool, wide: bool) -> Mapping[str, Any]:
        """What `promote` is told of a factor's tile: where it lies."""
        return {"spread": astuple(self._spread(side, by_steps, wide))}

    def _spread(self, side: Side, by_steps: bool, wide: bool) -> Spread:
        """More lines are laid out alike."""
        steps = 4 * self.vector
        plain = Shape(
            self.threads_z, self.threads_y, self.threads_x, self.rows, self.columns, steps, self.itemsize
        )
        return spread_for(plain, side, by_steps, wide)

    def _elements(self, side: Side, lines: int) -> int:
        """Elements of so many lines, spread as widely as any choice does."""
        return max(self._spread(side, *way).size(lines, side.width) for way in WAYS)


def held_shapes(
    extents: Extents, itemsize: int, machine: Machine, gpu: Gpu, holds_right: bool
) -> list[HeldShape]:
    """The shapes that fit a product and a machine, a tile for each of the blocks that are there, the cheapest first."""
    every = (s for s in _every(extents, itemsize, holds_right) if s.stages == 1 or extents.wide)
    fit = (s for s in every if fits(s, extents, gpu) and s.blocks(extents) <= machine.units)
    return sorted((costed(s, extents, machine, gpu) for s in fit), key=lambda s: s.seconds)


def _every(extents: Extents, itemsize: int, holds_right: bool) -> Iterator[HeldShape]:
    for s in candidates(itemsize):
        for times in LONGER:
            steps = s.steps * times
            if times > 1 and steps >= 2 * extents.steps:
                continue
            size = (s.threads_z, s.threads_y, s.threads_x, s.rows, s.columns, steps, itemsize, s.stages)
            lines = ceil(extents.steps / steps) * steps
            yield HeldShape(*size, holds_right=holds_right, lines=lines)


def seconds_to_hold(shape: HeldShape, extents: Extents, machine: Machine) -> float:
    """What it takes all blocks to copy their parts, once."""
    moved = shape.blocks(extents) * shape.held_bytes
    return moved / machine.bandwidth(machine.levels[0], machine.units) + seconds_of_wait(machine)
