"""The memory plan: each temporary has an offset in one arena; those with disjoint live ranges share bytes."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from math import prod

from polyfuse.analysis.liveness import LiveRange, live_ranges
from polyfuse.analysis.once import kept
from polyfuse.ir.nest import Nest
from polyfuse.ir.sizes import extent
from polyfuse.ir.tensor import Tensor
from polyfuse.ir.tree import Tree

ALIGNMENT = 64
"""Bytes; a cache line, and the widest vector."""


@dataclass(frozen=True)
class MemoryPlan:
    """The offset of each temporary: bytes [start, stop) of an arena of `size` bytes.

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
    """The input of a memory plan, for any sizes.

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

    def only(self, names: Set[str]) -> Temporaries:
        """Return the temporaries with these names, in an arena of their own."""
        tensors = tuple(tensor for tensor in self.tensors if tensor.name in names)
        return replace(self, tensors=tensors, lives=tuple(r for r in self.lives if r.tensor in names))

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


@dataclass(frozen=True)
class Memory:
    """The temporaries by when they are needed: in a call, while what runs once runs, or from then on.

    Those `kept` are written once for all calls and read by each; they lie beside the constants, in no arena.
    """

    calls: Temporaries
    once: Temporaries
    kept: tuple[Tensor, ...]

    @staticmethod
    def of(source: Nest, nest: Nest, tree: Tree, early: tuple[bool, ...] | None) -> Memory:
        """The memory of a schedule's nest and tree; `early`: which of its kernels run once."""
        every, found = Temporaries.of(source, nest, tree), {} if early is None else kept(nest, tree, early)
        return Memory(
            every.only({t.name for t in every.tensors} - found.keys()),
            replace(every.only({name for name, outlives in found.items() if not outlives}), every=()),
            tuple(t for t in every.tensors if found.get(t.name)),
        )

    def kept_bytes(self, sizes: Mapping[str, int]) -> int:
        """The bytes kept besides the constants."""
        return sum(nbytes(tensor, sizes) for tensor in self.kept)


def plan_memory(source: Nest, nest: Nest, tree: Tree, sizes: Mapping[str, int]) -> MemoryPlan:
    """The plan of a schedule's temporaries for some sizes."""
    return Temporaries.of(source, nest, tree).plan(sizes)
