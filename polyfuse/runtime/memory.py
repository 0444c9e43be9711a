"""The memory plan: every temporary at an offset of one arena; those never needed at once share bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from polyfuse.analysis.liveness import LiveRange, live_ranges
from polyfuse.ir.nest import Nest
from polyfuse.ir.sizes import extent
from polyfuse.ir.tensor import Tensor
from polyfuse.ir.tree import Tree

ALIGNMENT = 64
"""Bytes; a cache line, and the widest vector."""


@dataclass(frozen=True)
class MemoryPlan:
    """Where each temporary lies: bytes [start, stop) of an arena of `size` bytes.

    `unplanned` is what all temporaries of the nest would take with an allocation each, those kept in a kernel's
    buffers included.
    """

    spans: Mapping[str, tuple[int, int]]
    size: int
    unplanned: int


def shape_of(tensor: Tensor, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape in numbers."""
    return tuple(s if isinstance(s, int) else extent(s, sizes) for s in tensor.shape)


def nbytes(tensor: Tensor, sizes: Mapping[str, int]) -> int:
    """The bytes of a whole tensor."""
    return prod(shape_of(tensor, sizes)) * tensor.itemsize


@dataclass(frozen=True)
class Temporaries:
    """What a memory plan is made from, for any sizes.

    `tensors` lie in the arena, `lives` says when each is needed; `every` are all temporaries of the nest as it was
    given, those kept in a kernel's buffers included.
    """

    tensors: tuple[Tensor, ...]
    lives: tuple[LiveRange, ...]
    every: tuple[Tensor, ...]

    @staticmethod
    def of(source: Nest, nest: Nest, tree: Tree) -> Temporaries:
        """The temporaries of a schedule's nest and tree; `source` is the nest it was made for."""
        lives = live_ranges(nest, tree)
        return Temporaries(
            tuple(nest.tensor(life.tensor) for life in lives), lives, source.with_role("temporary")
        )

    def plan(self, sizes: Mapping[str, int]) -> MemoryPlan:
        """First fit, largest first: each temporary at the lowest offset that no tensor alive with it uses."""
        placed: dict[str, tuple[LiveRange, int, int]] = {}
        needs = {tensor.name: nbytes(tensor, sizes) for tensor in self.tensors}
        for life in sorted(self.lives, key=lambda r: -needs[r.tensor]):
            need, start = needs[life.tensor], 0
            for other, begin, end in sorted(placed.values(), key=lambda entry: entry[1]):
                if other.overlaps(life) and start < end and begin < start + need:
                    start = -(-end // ALIGNMENT) * ALIGNMENT
            placed[life.tensor] = (life, start, start + need)
        spans = {name: (start, stop) for name, (_, start, stop) in placed.items()}
        unplanned = sum(nbytes(t, sizes) for t in self.every)
        return MemoryPlan(spans, max((stop for _, stop in spans.values()), default=0), unplanned)


def plan_memory(source: Nest, nest: Nest, tree: Tree, sizes: Mapping[str, int]) -> MemoryPlan:
    """The plan of a schedule's temporaries for some sizes."""
    return Temporaries.of(source, nest, tree).plan(sizes)
