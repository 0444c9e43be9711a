"""Sum each phase of a stride in an array without gaps.

    x_bar[2q + 1] += y_bar[q - k] * w[2k]      ->      p[q] += y_bar[q - k] * w[2k];    x_bar[2q + 1] += p[q]

A strided convolution's phases are products like those of a convolution of stride 1, but their sums lie apart, where no
register tile can store them. The array of a phase is as large as the elements that it has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import islpy as isl

from polyfuse.ir import Access, Nest
from polyfuse.ir.scalar import read
from polyfuse.ir.sizes import extent_text
from polyfuse.ir.tree import date_map
from polyfuse.rewrite.gradient.draft import Draft, element
from polyfuse.rewrite.gradient.gathers import Addition
from polyfuse.rewrite.gradient.owners import Instances
from polyfuse.sets import IN, OUT, SET, dim_names, dimension


@dataclass(frozen=True)
class Phase:
    """A phase's own array: the sum into it, and the addition of its elements to those of the adjoint."""

    total: str
    elements: isl.Set
    terms: Addition
    back: Addition


def lies_apart(domain: isl.Set, write: Access, nest: Nest) -> bool:
    """True if a sum's elements lie apart, and an array can have them without gaps."""
    along = _dims_of(write)
    if along is None or write.map.intersect_domain(domain).is_injective():
        return False
    return all(_extent(domain, d, nest) is not None for d in along)


def in_own_array(one: Addition, name: str, nest: Nest, draft: Draft) -> Phase:
    """Return the sums of an addition, which lie apart, in an array of their own.

    Args:
        one: The addition, in loops of its own.
        name: The array's name.
        nest: The nest, for the sizes.
        draft: The draft that the array is added to.
    """
    domain, along = one.instances.domain, _dims_of(one.write)
    assert along is not None, "asked before"
    shape = tuple(size for d in along if (size := _extent(domain, d, nest)) is not None)
    made = draft.tensor(name, shape, draft.tensors[one.write.tensor].dtype, "temporary")
    elements = draft.elements(made)
    everywhere = isl.Set.universe(domain.get_space())
    to = date_map(everywhere, [dimension(domain, d) for d in along])
    target = Access(made.name, to.set_tuple_name(OUT, made.name))
    at = to.intersect_domain(domain).set_tuple_name(OUT, domain.get_tuple_name())
    written = at.range().coalesce()
    for d, letter in enumerate(dim_names(elements)):
        written = written.set_dim_name(SET, d, letter)
    stored = Instances(written, at.reverse())
    back = Addition(stored, stored.access(one.write), (element(written, made.name),), read(0))
    return Phase(made.name, elements, replace(one, write=target), back)


def _extent(domain: isl.Set, d: int, nest: Nest) -> int | str | None:
    """The numbers from 0 to the last value of a dimension; None if that is no size or it has negative values."""
    low = domain.dim_min_val(d)
    if not low.is_int() or low.is_neg():
        return None
    return extent_text(domain.dim_max(d).add_constant_val(isl.Val(1)).gist(nest.context))


def _dims_of(write: Access) -> list[int] | None:
    """For each coordinate that is not the same everywhere, its dimension; None if no stride lies along one of them."""
    found: list[int] = []
    strided = False
    for o in range(write.map.dim(OUT)):
        (_, value), *more = write.subscripts().get_pw_aff(o).get_pieces()
        by = [int(value.get_coefficient_val(IN, d).to_python()) for d in range(value.dim(IN))]
        moving = [d for d, step in enumerate(by) if step]
        if more or len(moving) > 1 or value.dim(isl.dim_type.div):
            return None
        strided = strided or any(abs(by[d]) > 1 for d in moving)
        found += moving
    return found if strided and len(set(found)) == len(found) else None
