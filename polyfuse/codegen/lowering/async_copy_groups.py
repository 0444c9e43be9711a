"""Group asynchronous copies that run while other tiles are used, and place the waits for them.

    for k: { copy x[k + 1];  use x[k] }     x in shared memory, in two stages
    ->  for k: { copy_ahead(…);  tile_fma(…);  await_copies(0);  syncthreads }

A thread's copies of one iteration are a group. At an iteration's end all groups but the last N have arrived, so what
iteration d has asked for is there N + 1 iterations later: N + 1 is the least distance from a copy to a use. Where some
iterations between run nothing, and so wait for nothing, N is 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from polyfuse.analysis.storage import runs_through
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Loop, Tree, loops


@dataclass(frozen=True)
class InFlight:
    """The asynchronous copies of a loop's iterations, and the groups that may be open at an iteration's end."""

    loop: Loop
    copies: tuple[str, ...]
    open: int


def in_flight(nest: Nest, part: Tree) -> tuple[InFlight, ...]:
    """Of each loop at whose end threads meet: the copies into its stages that no iteration needs at once."""
    found = []
    for loop in loops(part):
        ahead = dict(_ahead(nest, loop)) if loop.barrier else {}
        if ahead:
            still_open = min(ahead.values()) - 1 if runs_through(nest, part, loop) else 0
            found.append(InFlight(loop, tuple(ahead), still_open))
    return tuple(found)


def _ahead(nest: Nest, loop: Loop) -> Iterator[tuple[str, int]]:
    """The statements that fill a staged buffer in shared memory, and how many iterations before the first use."""
    for buffer in loop.buffers:
        if buffer.memory != "shared" or buffer.stages == 1:
            continue
        flows = [pair for pair in nest.flow_through(buffer.tensor) if pair.kind == "flow"]
        for source in dict.fromkeys(pair.source for pair in flows):
            distances = [
                pair.map.apply_domain(loop.date(source).as_map())
                .apply_range(loop.date(pair.sink).as_map())
                .deltas()
                .dim_min_val(0)
                for pair in flows
                if pair.source == source
            ]
            least = min(int(d.to_python()) for d in distances)
            if least > 0:
                yield source, least
