"""Prove the layout of tensor-core operands in shared memory, as a warp's lanes read them together.

Lane 4 * g + t, the thread with thread.x = t and thread.y = g modulo 8, holds of every instruction's 16 rows two of its
own, and of its 8 columns one (PTX ISA, "Matrix Fragments for mma.m16n8k8", "… for mma.m16n8k16"). Three layouts serve:

    rows of 16 bytes along the steps        ldmatrix: eight rows, g's are a thread's own       factors by their steps
    lines of steps, 8 halves side by side   ldmatrix.trans: 8 rows of 8 threads, or 4 pairs    other factors of halves
                                            of columns of 4 threads, are neighbours
    lines of steps of 4 or 8 bytes each     each lane reads neighbours of its own line         other factors of tf32,
                                                                                               all of f64

ldmatrix gives lane 4 * g + t the words t of rows g of four matrices; lane 8 * q + row says where row `row` of matrix q
lies. So it serves iff the place of an element is that of the warp's first one and a distance that grows evenly with
lanes, own rows and steps: { [loops around, warp] -> place - distance } is single-valued, and a multiple of 16 bytes.
All steps of a warp's lanes are the same: { results } x { steps } are all of a block's instances.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import islpy as isl

from polyfuse.analysis.copies import holds_rounded
from polyfuse.analysis.digits import floored
from polyfuse.analysis.storage import BLOCKS, Geometry
from polyfuse.analysis.vector_access import ACCESS_BYTES, agrees, is_multiple
from polyfuse.codegen.cuda.proofs.operand_lines import lines_of
from polyfuse.codegen.cuda.proofs.wgmma_operands import Indices, core_lines, in_cores, is_whole
from polyfuse.codegen.looptree.operations import CoreLines, Fragment, Lines, Matrices
from polyfuse.ir.nest import Nest
from polyfuse.ir.number_types import ITEMSIZE
from polyfuse.ir.precision import STEPS, STORED, Math
from polyfuse.ir.statement import Statement
from polyfuse.ir.tree import Tree, date_map, loops_around
from polyfuse.layouts.smem import SmemLayout
from polyfuse.schedule.binding import extent
from polyfuse.schedule.microkernel_verb import Roles
from polyfuse.sets import IN, SET, least_and_most

EIGHT = 8
"""Rows of a matrix that ldmatrix reads, and lanes of a warp along the rows."""

ACROSS = 4
"""Lanes of a warp along the columns."""

IN_LINES: tuple[Math, ...] = ("tf32", "f64")
"""The formats of which a lane can read its own line of steps: one element of it is one of an instruction's words."""


@dataclass(frozen=True)
class _Side:
    """A factor: its read, how many rows or columns a thread has, how many a lane's part of them, and the lanes."""

    position: int
    own: int
    part: int
    lanes: int
    along: isl.PwAff
    by_warp: list[isl.PwAff]


def fragments_of(
    nest: Nest,
    part: Tree,
    s: Statement,
    roles: Roles,
    geometries: Mapping[str, Geometry],
    math: Math,
) -> tuple[Fragment, Fragment] | tuple[CoreLines, CoreLines] | None:
    """The layouts of the factors of a warp's lanes; None if one does not lie as they read it, or is not rounded."""
    assert roles.rows is not None, "the verb has asked for rows"
    around = [x for x in loops_around(part, s.name) if x not in (*roles.steps, roles.rows, roles.columns)]
    places: dict[str | None, isl.PwAff] = {x.bind: x.date(s.name) for x in around}
    domain, (step,) = nest.domains[s.name], roles.steps
    if not {"thread.x", "thread.y"} <= places.keys() or _known_ends(domain, places["thread.x"]) != (0, 3):
        return None
    inside = max((place + 1 for place, x in enumerate(around) if x.bind in BLOCKS), default=0)
    blocks = [x.date(s.name) for x in around[:inside]]  # and loops in order around them: other results
    within = [x.date(s.name) for x in around[inside:] if x.bind is None]
    serial = [date for date in within if _counts_steps(s, date)]
    blocks += [date for date in within if not _counts_steps(s, date)]  # as attention's blocks of keys
    k, r, c = (loop.date(s.name) for loop in (step, roles.rows, roles.columns))
    rows, columns = extent(nest, roles.rows), extent(nest, roles.columns)
    if rows is None or columns is None or not _all_steps(domain, s, blocks, [*serial, k]):
        return None
    x, y = places["thread.x"], places["thread.y"]
    others = [loop.date(s.name) for loop in around if loop.bind not in ("thread.x", "thread.y")]
    if in_cores(geometries, s):
        at = Indices(k, r, c, x, y, tuple(others))
        rounded = all(holds_rounded(nest, access.tensor, math) for access in s.reads)
        if not rounded or not is_whole(domain, (*blocks, *serial), k, int(extent(nest, step) or 0)):
            return None
        depth = ACCESS_BYTES // ITEMSIZE[STORED[math]]
        return core_lines(domain, s, roles.left, roles.right, (rows, columns), depth, at, geometries)
    warp = [*others, floored(y, EIGHT)]
    lane = y.sub(floored(y, EIGHT).scale_val(isl.Val(EIGHT)))
    sides = (
        _Side(roles.left, rows, rows, EIGHT, r.add(lane.scale_val(isl.Val(rows))), warp),
        _Side(roles.right, columns, columns // 2, ACROSS, c.add(x.scale_val(isl.Val(columns))), others),
    )
    found: list[Fragment | None] = [_matrices(nest, s, side, k, geometries, math) for side in sides]
    if math in IN_LINES:
        own = [_Side(roles.left, rows, rows, EIGHT, r, [*others, y]), sides[1]]
        for n, side in enumerate(own):
            found[n] = found[n] or _lines(nest, s, side, k, geometries, math)
    left, right = found
    return None if left is None or right is None else (left, right)


def _lines(
    nest: Nest,
    s: Statement,
    side: _Side,
    step: isl.PwAff,
    geometries: Mapping[str, Geometry],
    math: Math,
) -> Lines | None:
    if not holds_rounded(nest, s.reads[side.position].tensor, math):
        return None
    inner = (step, side.along)
    lines = lines_of(nest.domains[s.name], s, side.position, side.by_warp, inner, side.part, geometries)
    return lines if lines is not None and 4 % lines.every == 0 else None


def _matrices(
    nest: Nest,
    s: Statement,
    side: _Side,
    step: isl.PwAff,
    geometries: Mapping[str, Geometry],
    math: Math,
) -> Matrices | None:
    access, domain = s.reads[side.position], nest.domains[s.name]
    held, tensor = geometries.get(access.tensor), nest.tensor(access.tensor)
    if math == "f64" or held is None or not isinstance(held.buffer.layout, SmemLayout):
        return None  # a matrix has words of 32 bits
    if not holds_rounded(nest, tensor.name, math):
        return None
    found = _by_steps(held, side, step, STEPS[math])
    if found is None and math not in IN_LINES:
        found = _by_elements(held, side, step)
    if found is None:
        return None
    matrices, distance = found
    neighbours = ACCESS_BYTES // tensor.itemsize
    apart = (matrices.row, matrices.own, matrices.step if matrices.transposed else 0)
    (place,) = held.cell(s.name, access)
    first = place.sub(distance)
    aligned = all(each % neighbours == 0 for each in apart) and is_multiple(domain, first, neighbours)
    return matrices if aligned and agrees(domain, side.by_warp, first) else None


def _by_steps(held: Geometry, side: _Side, step: isl.PwAff, depth: int) -> tuple[Matrices, isl.PwAff] | None:
    """Panels of steps, those of one row neighbours, the rows of a lane's part behind each other; and the distance."""
    spread, panel = held.buffer.layout, held.buffer.panel
    assert isinstance(spread, SmemLayout)
    assert panel is not None
    width, others = panel.width, [n for axis, n in enumerate(held.box) if axis != panel.axis and n > 1]
    # Rows that follow each other: lanes without results read what is there, too.
    rows = others[-1] if others else 1
    lanes = side.lanes * side.own // side.part
    fits = spread.vector == width and width % depth == 0 and rows % (lanes * side.part) == 0
    if not fits or (spread.skip and spread.every != side.part):
        return None
    line = spread.row(width)
    row = side.part * line + spread.skip
    tile = floored(side.along, side.part)
    inside = side.along.sub(tile.scale_val(isl.Val(side.part)))
    distance = tile.scale_val(isl.Val(row)).add(inside.scale_val(isl.Val(line))).add(step)
    return Matrices(side.position, False, row, line, 1), distance


def _by_elements(held: Geometry, side: _Side, step: isl.PwAff) -> tuple[Matrices, isl.PwAff] | None:
    """Panels of rows or columns, of which eight of different lanes are neighbours, or four pairs; and the distance."""
    spread, panel = held.buffer.layout, held.buffer.panel
    assert isinstance(spread, SmemLayout)
    assert panel is not None
    width, vector = panel.width, spread.vector
    fits = spread.tile == side.own and vector * side.lanes == EIGHT and width % (side.lanes * side.own) == 0
    if not fits or (spread.skip and spread.every != 1):
        return None
    line, part = spread.row(width) + spread.skip, spread.part(width)
    tile = floored(side.along, side.own)
    inside = side.along.sub(tile.scale_val(isl.Val(side.own)))
    number = floored(inside, vector)
    neighbour = inside.sub(number.scale_val(isl.Val(vector))).add(tile.scale_val(isl.Val(vector)))
    distance = neighbour.add(number.scale_val(isl.Val(part))).add(step.scale_val(isl.Val(line)))
    return Matrices(side.position, True, line, part, line), distance


def _counts_steps(s: Statement, date: isl.PwAff) -> bool:
    """True if a loop goes on with dimensions that do not move the result."""
    moved = (d for d in range(len(s.dims)) if date.involves_dims(IN, d, 1))
    return any(not s.write.map.involves_dims(IN, d, 1) for d in moved)


def _all_steps(domain: isl.Set, s: Statement, blocks: list[isl.PwAff], steps: list[isl.PwAff]) -> bool:
    """True if every result of a block takes the same steps, each tile's from 0 on.

    { [block, result, step] }  is  { [block, result] } x { [step] } for each block
    """
    element = s.write.subscripts()
    subscripts = [element.get_pw_aff(axis) for axis in range(element.dim(isl.dim_type.out))]
    every = date_map(domain, [*blocks, *subscripts, *steps]).range()
    held, count = len(blocks), len(subscripts)
    results = every.project_out(SET, held + count, len(steps)).insert_dims(SET, held + count, len(steps))
    taken = every.project_out(SET, held, count)
    last = held + len(steps) - 1
    first = taken.fix_val(SET, last, isl.Val(0)).project_out(SET, last, 1)
    from_zero = taken.project_out(SET, last, 1).is_subset(first)
    return bool(from_zero and results.intersect(taken.insert_dims(SET, held, count)).is_subset(every))


def _known_ends(domain: isl.Set, value: isl.PwAff) -> tuple[int, int] | None:
    """The numbers between which a date lies; None if they depend on sizes."""
    least, most = least_and_most(value, domain)
    return (int(least.to_python()), int(most.to_python())) if least.is_int() and most.is_int() else None
