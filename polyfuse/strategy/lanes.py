"""Which reductions the lanes of a warp may share with profit: those along a row of memory."""

from __future__ import annotations

from polyfuse.analysis.banks import WARP
from polyfuse.ir.tree import Loop
from polyfuse.strategy.counts import Counts, dims_of, stride


def lane_loop(counts: Counts, name: str, loops: tuple[Loop, ...]) -> Loop | None:
    """The loop of a reduction along which its reads are neighbours, if it has a warp of values; None without one."""
    s = counts.nest.statement(name)
    if not s.is_reduction or not counts.nest.tensor(s.write.tensor).dtype.startswith("float"):
        return None
    for loop in reversed(loops):
        dims = dims_of(loop.date(name))
        moved = [max((stride(access, d) for d in dims), default=0) for access in s.reads]
        still = all(stride(s.write, d) == 0 for d in dims)
        if still and max(moved, default=0) == 1 and counts.extent(loop) >= WARP:
            return loop
    return None
