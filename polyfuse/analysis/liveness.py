"""Live ranges of temporaries: from the first kernel that accesses one to the last."""

from __future__ import annotations

from dataclasses import dataclass

from polyfuse.analysis.storage import buffers_of
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Tree, parts, statements


@dataclass(frozen=True)
class LiveRange:
    """A tensor's life in kernels: needed from kernel `first` to kernel `last`, both included."""

    tensor: str
    first: int
    last: int

    def overlaps(self, other: LiveRange) -> bool:
        """True if both are live in some kernel."""
        return self.first <= other.last and other.first <= self.last


def live_ranges(nest: Nest, tree: Tree) -> tuple[LiveRange, ...]:
    """The life of every temporary that is not kept in a buffer inside a kernel, in order of first use."""
    contracted = {buffer.tensor for _, buffer in buffers_of(tree)}
    wanted = {t.name for t in nest.with_role("temporary")} - contracted
    seen: dict[str, tuple[int, int]] = {}
    for position, part in enumerate(parts(tree)):
        for name in statements(part):
            for tensor in nest.statement(name).tensors:
                if tensor in wanted:
                    first, _ = seen.get(tensor, (position, position))
                    seen[tensor] = (first, position)
    return tuple(LiveRange(tensor, first, last) for tensor, (first, last) in seen.items())
