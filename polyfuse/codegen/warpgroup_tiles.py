"""What isl proves of a product whose factors lie in core matrices, before a warpgroup multiplies them together.

    for k: for r: for c: y[r, c] += a[at(k, r)] * b[at(k, c)]   ->   tile_wgmma_bf16(rows, columns, steps, y, a, b, …)

128 threads, 4 on thread.x times 32 of thread.y, share instructions of 64 rows: the rows of the thread with thread.y = y
are tile y % 32 of its warpgroup's, its columns tile x of the four along thread.x (ir/cores.py says where a tile's
elements lie). A factor's first element may depend on the warpgroup and the loops around, on nothing else:
{ [loops around, y // 32] -> place(k, r) - distance(k, tile * (y % 32) + r) } is single-valued.
And every tile has all of its steps, as an instruction takes them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import islpy as isl

from polyfuse.analysis.neighbours import agrees, is_multiple
from polyfuse.analysis.storage import THREADS, Geometry, digits_of, floored
from polyfuse.ir.cores import Cores
from polyfuse.ir.nest import Nest
from polyfuse.ir.statement import Statement
from polyfuse.ir.tree import Tree, date_map, loops_around
from polyfuse.schedule.binding import extent
from polyfuse.sets import SET

GROUP_TILES = 32
"""Tiles of rows in a warpgroup: lanes of 8 rows of four warps."""


@dataclass(frozen=True)
class CoreLines:
    """Where a factor's core matrices lie from its first one, in elements: along steps, along results, far ones.

    `turned`: the rows of a core are steps.
    """

    position: int
    line: int
    core: int
    far: int
    turned: bool


@dataclass(frozen=True)
class Indices:
    """What an instance of a product is: its step, row and column in a thread's tile, its thread, the loops around."""

    step: isl.PwAff
    row: isl.PwAff
    column: isl.PwAff
    x: isl.PwAff
    y: isl.PwAff
    around: tuple[isl.PwAff, ...]


def in_cores(geometries: Mapping[str, Geometry], s: Statement) -> bool:
    """Whether both factors of a product lie in core matrices."""
    held = (geometries.get(access.tensor) for access in s.reads)
    return all(g is not None and isinstance(g.buffer.spread, Cores) for g in held)


def core_lines(
    domain: isl.Set,
    s: Statement,
    left: int,
    right: int,
    tile: tuple[int, int],
    depth: int,
    at: Indices,
    geometries: Mapping[str, Geometry],
) -> tuple[CoreLines, CoreLines] | None:
    """Where the rows' factor (the read `left`) and the columns' lie; None where they do not lie as they are read.

    `depth` elements are the 16 bytes of a core matrix' row.
    """
    rows, columns = tile
    group = floored(at.y, GROUP_TILES)
    lane = at.y.sub(group.scale_val(isl.Val(GROUP_TILES)))
    row = at.row.add(lane.scale_val(isl.Val(rows)))
    column = at.column.add(at.x.scale_val(isl.Val(columns)))
    found = (
        _lines(domain, s, left, at.step, row, (rows, 8, 2, depth), [*at.around, group], geometries),
        _lines(
            domain, s, right, at.step, column, (columns, 4, columns // 2, depth), [*at.around], geometries
        ),
    )
    return (found[0], found[1]) if found[0] is not None and found[1] is not None else None


def _lines(
    domain: isl.Set,
    s: Statement,
    position: int,
    step: isl.PwAff,
    along: isl.PwAff,
    shape: tuple[int, int, int, int],
    outside: list[isl.PwAff],
    geometries: Mapping[str, Geometry],
) -> CoreLines | None:
    access = s.reads[position]
    held = geometries[access.tensor]
    cores, panel = held.buffer.spread, held.buffer.panel
    if not isinstance(cores, Cores) or panel is None:
        return None
    if (cores.tile, cores.lanes, cores.side, cores.depth) != shape:
        return None
    steps, results = cores.along_steps(panel.width), cores.along_results(panel.width)
    (place,) = held.cell(s.name, access)
    first = place.sub(digits_of(step, steps)).sub(digits_of(along, results))
    if not (agrees(domain, outside, first) and is_multiple(domain, first, cores.depth)):
        return None
    return CoreLines(position, cores.line(panel.width), cores.core, cores.far(panel.width), cores.turned)


def is_whole(domain: isl.Set, around: tuple[isl.PwAff, ...], step: isl.PwAff, steps: int) -> bool:
    """Whether each tile has its last step.

    { [loops around] of some step }  is  { [loops around] of step `steps` - 1 }
    """
    every = date_map(domain, [*around, step]).range()
    last = every.fix_val(SET, len(around), isl.Val(steps - 1))
    tiles, whole = (taken.project_out(SET, len(around), 1) for taken in (every, last))
    return bool(tiles.is_subset(whole))


def elements_for_each(nest: Nest, part: Tree, s: Statement, geometries: Mapping[str, Geometry]) -> int:
    """The elements of both factors' tiles for each of a block's threads, about."""
    threads = prod(extent(nest, loop) or 1 for loop in loops_around(part, s.name) if loop.bind in THREADS)
    return sum(prod(geometries[access.tensor].box) for access in s.reads) // threads
