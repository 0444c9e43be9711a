"""Find reductions along a row of memory, which the lanes of a warp or the warps of a block share with profit."""

from __future__ import annotations

from polyfuse.analysis.banks import WARP
from polyfuse.ir.number_types import is_real
from polyfuse.ir.tree import Loop
from polyfuse.strategy.cost.counts import Counts, dims_of, stride

LONG_ROW = 2048
"""Values of a row from which on it has a block: eight for each thread of eight warps. An assumption, not measured."""

EACH = 8
"""Values that a thread of a long row combines at least."""

MOST_THREADS = 1024


def row_threads(extent: int) -> int:
    """Threads that share a row: a warp, or a power of two of them.

    >>> [row_threads(n) for n in (100, 2000, 2048, 5000, 65536)]
    [32, 32, 256, 512, 1024]
    """
    if extent < LONG_ROW:
        return WARP
    return min(MOST_THREADS, 1 << (extent // EACH).bit_length() - 1)


def lane_loop(counts: Counts, name: str, loops: tuple[Loop, ...]) -> Loop | None:
    """The loop of a reduction along which its reads are neighbours, if it has a warp of values; None without one."""
    s = counts.nest.statement(name)
    if not s.is_reduction or not is_real(counts.nest.tensor(s.write.tensor).dtype):
        return None
    for loop in reversed(loops):
        dims = dims_of(loop.date(name))
        moved = [max((stride(access, d) for d in dims), default=0) for access in s.reads]
        still = all(stride(s.write, d) == 0 for d in dims)
        if still and max(moved, default=0) == 1 and counts.extent(loop) >= WARP:
            return loop
    return None
