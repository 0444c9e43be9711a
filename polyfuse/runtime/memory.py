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


def plan_memory(source: Nest, nest: Nest, tree: Tree, sizes: Mapping[str, int]) -> MemoryPlan:
    """First fit, largest first: each temporary at the lowest offset that no tensor alive with it uses."""
    ranges = live_ranges(nest, tree)
    placed: dict[str, tuple[LiveRange, int, int]] = {}
    for life in sorted(ranges, key=lambda r: -nbytes(nest.tensor(r.tensor), sizes)):
        need = nbytes(nest.tensor(life.tensor), sizes)
        start = 0
        for other, begin, end in sorted(placed.values(), key=lambda entry: entry[1]):
            if other.overlaps(life) and start < end and begin < start + need:
                start = -(-end // ALIGNMENT) * ALIGNMENT
        placed[life.tensor] = (life, start, start + need)
    spans = {name: (start, stop) for name, (_, start, stop) in placed.items()}
    unplanned = sum(nbytes(t, sizes) for t in source.with_role("temporary"))
    return MemoryPlan(spans, max((stop for _, stop in spans.values()), default=0), unplanned)
