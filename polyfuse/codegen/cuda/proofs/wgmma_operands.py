"""Prove with isl that a warpgroup may multiply factors in core matrices together.

    for k: for r: for c: y[r, c] += a[at(k, r)] * b[at(k, c)]   ->   tile_wgmma_bf16(rows, columns, steps, y, a, b, …)

128 threads, 4 on thread.x times 32 of thread.y, share instructions of 64 rows: the rows of the thread with thread.y = y
are tile y % 32 of its warpgroup's, its columns tile x of the four along thread.x (core_matrix.py says where a tile's
elements lie). Of a factor in swizzled lines, whose order is that of memory, they are those that an instruction gives
it: rows 16 * (y // 8 % 4) + y % 8 and 8 more of each 64, two of every eight columns. A factor's first element may
depend on the warpgroup and the loops around, on nothing else:
{ [loops around, y // 32] -> place(k, r) - distance(k, tile * (y % 32) + r) } is single-valued.
And every tile has all of its steps, as an instruction takes them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import islpy as isl

from polyfuse.analysis.digits import EVERY, digits_of, floored
from polyfuse.analysis.storage import THREADS, Geometry
from polyfuse.analysis.vector_access import agrees, is_multiple
from polyfuse.codegen.looptree.operations import CoreLines
from polyfuse.ir.nest import Nest
from polyfuse.ir.statement import Statement
from polyfuse.ir.tree import Tree, date_map, loops_around
from polyfuse.layouts.core_matrix import CORE_ROWS, INSTRUCTION_ROWS, CoreMatrixLayout, Digit
from polyfuse.layouts.swizzle import LINE_BYTES, WHOLE, SwizzledLayout
from polyfuse.layouts.wgmma_descriptors import Form
from polyfuse.schedule.binding import extent
from polyfuse.sets import SET

GROUP_TILES = 32
"""Tiles of rows in a warpgroup: lanes of 8 rows of four warps."""


@dataclass(frozen=True)
class Indices:
    """The indices of a product's instance: step, row and column in a thread's tile, thread, enclosing loops."""

    step: isl.PwAff
    row: isl.PwAff
    column: isl.PwAff
    x: isl.PwAff
    y: isl.PwAff
    around: tuple[isl.PwAff, ...]


def in_cores(geometries: Mapping[str, Geometry], s: Statement) -> bool:
    """True if both factors of a product lie in core matrices, or in swizzled lines of them."""
    held = (geometries.get(access.tensor) for access in s.reads)
    return all(g is not None and isinstance(g.buffer.layout, CoreMatrixLayout | SwizzledLayout) for g in held)


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
    """The layouts of the rows' factor (the read `left`) and of the columns'; None if they do not lie as they are read.

    `depth` elements are the 16 bytes of a core matrix' row.
    """
    rows, columns = tile
    group = floored(at.y, GROUP_TILES)
    lane = at.y.sub(group.scale_val(isl.Val(GROUP_TILES)))
    own = (
        _Along(at.row.add(lane.scale_val(isl.Val(rows))), (rows, 8, 2, depth), _rows(at.row, lane)),
        _Along(
            at.column.add(at.x.scale_val(isl.Val(columns))),
            (columns, 4, columns // 2, depth),
            digits_of(at.column, EIGHTS).add(at.x.scale_val(isl.Val(2))),
        ),
    )
    outside = ([*at.around, group], [*at.around])
    found = tuple(
        _lines(domain, s, position, at.step, along, where, geometries)
        for position, along, where in zip((left, right), own, outside, strict=True)
    )
    return (found[0], found[1]) if found[0] is not None and found[1] is not None else None


EIGHTS = (Digit(1, 2, 1), Digit(2, None, CORE_ROWS))
"""The digits of an instruction's column in a thread's column, without its lane: 2 of every 8."""


def _rows(row: isl.PwAff, lane: isl.PwAff) -> isl.PwAff:
    """The row of a warpgroup's instructions that a thread's row is: 16 * warp + g + 8 * h of instruction m."""
    own = digits_of(row, (Digit(1, 2, CORE_ROWS), Digit(2, None, INSTRUCTION_ROWS)))
    return own.add(digits_of(lane, (Digit(1, CORE_ROWS, 1), Digit(CORE_ROWS, None, 2 * CORE_ROWS))))


@dataclass(frozen=True)
class _Along:
    """The row or column of a product's instance, in a warpgroup's tiles and in its instructions' order."""

    in_tiles: isl.PwAff
    shape: tuple[int, int, int, int]
    in_order: isl.PwAff


def _lines(
    domain: isl.Set,
    s: Statement,
    position: int,
    step: isl.PwAff,
    along: _Along,
    outside: list[isl.PwAff],
    geometries: Mapping[str, Geometry],
) -> CoreLines | None:
    access = s.reads[position]
    held = geometries[access.tensor]
    cores, panel = held.buffer.layout, held.buffer.panel
    if panel is None:
        return None
    if isinstance(cores, SwizzledLayout):
        return _swizzled_lines(domain, s, position, step, along, outside, held)
    if (
        not isinstance(cores, CoreMatrixLayout)
        or (cores.tile, cores.lanes, cores.side, cores.depth) != along.shape
    ):
        return None
    steps, results = cores.along_steps(panel.width), cores.along_results(panel.width)
    (place,) = held.cell(s.name, access)
    first = place.sub(digits_of(step, steps)).sub(digits_of(along.in_tiles, results))
    if not (agrees(domain, outside, first) and is_multiple(domain, first, cores.depth)):
        return None
    form = Form(cores.turned)
    return CoreLines(position, cores.line(panel.width), cores.core, cores.far(panel.width), form)


def _swizzled_lines(
    domain: isl.Set,
    s: Statement,
    position: int,
    step: isl.PwAff,
    along: _Along,
    outside: list[isl.PwAff],
    held: Geometry,
) -> CoreLines | None:
    """Lines of 64 halves or 32 numbers: of a row's steps, or turned, of a step's rows. A tile's steps are one line, or
    its lines.

    steps    line = row, 8 rows a core       cores 8 lines apart
    turned   line = step, panels of 64       cores of steps 8 lines apart, 64 rows a panel apart; of halves alone
    """
    access, panel = s.reads[position], held.buffer.panel
    assert panel is not None
    lines = prod(extent for axis, extent in enumerate(held.box) if axis != panel.axis)
    (place,) = held.cell(s.name, access)
    size = lines * panel.width
    whole = WHOLE * panel.width // LINE_BYTES
    depth = along.shape[-1]
    by_lines = (Digit(1, None, panel.width),)
    forms: dict[Form, tuple[tuple[Digit, ...], tuple[Digit, ...], int, int, int]]
    forms = {Form(False, True): (EVERY, by_lines, depth, whole, INSTRUCTION_ROWS * panel.width)}
    if depth == CORE_ROWS:
        in_panels = Digit(1, panel.width, 1), Digit(panel.width, None, size)
        forms[Form(True, True)] = by_lines, in_panels, whole, size, size
    for form, (steps, results, line, core, far) in forms.items():
        first = place.sub(digits_of(step, steps)).sub(digits_of(along.in_order, results))
        if agrees(domain, outside, first) and is_multiple(domain, first, whole):
            return CoreLines(position, line, core, far, form)
    return None


def is_whole(domain: isl.Set, around: tuple[isl.PwAff, ...], step: isl.PwAff, steps: int) -> bool:
    """True if each tile has its last step.

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
