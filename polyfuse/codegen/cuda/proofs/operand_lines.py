"""Prove the layout of a factor's elements in shared memory, in lines of steps.

An operation knows how far an element lies from the tile's first one. That holds iff the place of an element without
that distance is the same for all instances that agree on the loops around:
{ [loops around] -> place(k, r) - distance(k, r) } is single-valued. The first element is at a multiple of the vector.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import islpy as isl

from polyfuse.analysis.digits import floored
from polyfuse.analysis.storage import Geometry
from polyfuse.analysis.vector_access import agrees, is_multiple
from polyfuse.codegen.looptree.operations import Lines
from polyfuse.ir.statement import Statement
from polyfuse.layouts.smem import SmemLayout


def lines_of(
    domain: isl.Set,
    s: Statement,
    position: int,
    outside: list[isl.PwAff],
    inner: tuple[isl.PwAff, isl.PwAff],
    most: int,
    geometries: Mapping[str, Geometry],
) -> Lines | None:
    """The layout of a factor's elements, in tiles of `most`, if the first one's place is a function of `outside`."""
    access = s.reads[position]
    held = geometries.get(access.tensor)
    if held is None or not isinstance(held.buffer.layout, SmemLayout) or held.buffer.panel is None:
        return None
    spread, width = held.buffer.layout, held.buffer.panel.width
    if spread.tile != most:
        return None
    lines = Lines(position, spread.row(width), spread.every, spread.skip, spread.part(width), spread.vector)
    (place,) = held.cell(s.name, access)
    step, along = inner
    tile = floored(along, most)
    along = along.sub(tile.scale_val(isl.Val(most)))
    part = floored(along, lines.vector)
    distance = reduce(
        isl.PwAff.add,
        (
            step.scale_val(isl.Val(lines.line)),
            floored(step, lines.every).scale_val(isl.Val(lines.skip)),
            tile.scale_val(isl.Val(lines.vector)),
            part.scale_val(isl.Val(lines.part)),
            along.sub(part.scale_val(isl.Val(lines.vector))),
        ),
    )
    first = place.sub(distance)
    proven = agrees(domain, outside, first) and is_multiple(domain, first, lines.vector)
    return lines if proven else None
