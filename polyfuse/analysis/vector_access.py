"""Find accesses of a short loop that are one access of 16, 8 or 4 bytes: contiguous and aligned.

    for l (of 4): z[i, 4*j + l] = x[i, 4*j + l] * s[i]          z and x of float32: yes; s: one number for all

An element lies l behind the first one iff { [loops around] -> position(l) - l } is single-valued; and the first one's
position has to be a multiple of the loop's length, for all instances. An array begins at a multiple of 16 bytes: those
of this project do, and a GPU's caller is asked for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl

from polyfuse.analysis.storage import Geometry
from polyfuse.ir.access import Access
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Loop, Tree, date_map, loops_around
from polyfuse.sets import IN, OUT, SET

ACCESS_BYTES = 16
"""The widest access of one thread."""

ACCESSES = ACCESS_BYTES, ACCESS_BYTES // 2, ACCESS_BYTES // 4
"""Bytes of an access of several elements, the widest first."""


def is_one_access(
    nest: Nest,
    part: Tree,
    loop: Loop,
    name: str,
    access: Access,
    count: int,
    held: Geometry | None,
) -> bool:
    """True if an access in a loop of `count` values is one access of 16, 8 or 4 bytes.

    `held` says where the tensor's elements lie in a buffer, None that they are in memory.
    """
    tensor = nest.tensor(access.tensor)
    if count * tensor.itemsize not in ACCESSES or tensor.gather is not None:
        return False
    position = flat_position(access, tensor.shape) if held is None else flat_cell(held, name, access)
    if position is None:
        return False
    domain = nest.domains[name]
    outside = [x.date(name) for x in loops_around(part, name) if x is not loop]
    first = position.sub(loop.date(name))
    return agrees(domain, outside, first) and is_multiple(domain, first, count)


def flat_position(access: Access, shape: tuple[int | str, ...]) -> isl.PwAff | None:
    """The row-major position of an element of a tensor; None unless all extents but the first are numbers."""
    subscripts = access.subscripts()
    return _row_major([subscripts.get_pw_aff(axis) for axis in range(len(shape))], shape)


def flat_cell(held: Geometry, name: str, access: Access) -> isl.PwAff | None:
    """The row-major position of an element in its buffer; None for a single variable."""
    kept = [
        (value, extent)
        for value, extent in zip(held.cell(name, access), held.shape, strict=True)
        if extent != 1
    ]
    return _row_major([value for value, _ in kept], [extent for _, extent in kept])


def _row_major(indices: Sequence[isl.PwAff], shape: Sequence[int | str]) -> isl.PwAff | None:
    position = None
    for index, size in zip(indices, shape, strict=True):
        if position is None:
            position = index
        elif isinstance(size, int):
            position = position.scale_val(isl.Val(size)).add(index)
        else:
            return None
    return position


def agrees(domain: isl.Set, outside: list[isl.PwAff], value: isl.PwAff) -> bool:
    """True if a value is the same for all instances with the same dates."""
    both = date_map(domain, [*outside, value]).range()
    last = both.dim(SET) - 1
    as_map = isl.Map.from_range(both).move_dims(IN, 0, OUT, 0, last)
    return bool(as_map.is_single_valued())


def is_multiple(domain: isl.Set, value: isl.PwAff, of: int) -> bool:
    """True if a value is a multiple of a number for all instances."""
    rest = value.intersect_domain(domain).mod_val(isl.Val(of))
    return bool(rest.non_zero_set().is_empty())
