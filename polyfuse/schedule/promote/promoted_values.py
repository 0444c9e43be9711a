"""Values of a statement's body that `promote` computes once per iteration of a loop and keeps in a buffer.

    for k: for j: y += (alpha * A[k]) * b[j]   ->   for k: t[k] = alpha * A[k];  for k: for j: y += t[k] * b[j]

A factor of a sum may be `padded`: where the statement has no instance, in the box around those that it has, the buffer
has zeros and the statement new instances, which add a product with zero.

    for q: for s: if 0 <= q + s - 1 < n: y[q] += x[q + s - 1] * w[s]
    ->  for q: for s: t[q, s] = 0;  for q: for s: if 0 <= q + s - 1 < n: t[q, s] = x[q + s - 1]
        for q: for s: y[q] += t[q, s] * w[s]

That is what libraries compute that pad images: the same sums, if the other factor is finite there. Panels are filled
up with zeros, so that each copy of one is of as many elements.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import islpy as isl
import sympy

from polyfuse.analysis.storage import corner_of, prefix_of
from polyfuse.errors import InvalidSchedule
from polyfuse.ir.access import Access
from polyfuse.ir.nest import Nest
from polyfuse.ir.nest_text import body_text, value_text
from polyfuse.ir.number_types import computed_in
from polyfuse.ir.precision import Math
from polyfuse.ir.scalar import Read, read, reads_in, substitute
from polyfuse.ir.statement import Statement
from polyfuse.ir.tree import Buffer, Loop, Panel, Tree, date_map
from polyfuse.schedule.promote.copy_statements import Copied, Promoted, copied_in, prefix_map, rounding_of
from polyfuse.sets import IN, OUT, SET, dimension, on_domain


@dataclass(frozen=True)
class Value:
    """A part of a statement's body, the dimensions that are its buffer's axes, and how it is kept.

    With `chosen` axes the others that it depends on are known from the loops around. `padded`: see above. What it is
    `rounded` to is said by `copying.rounding_of`.
    """

    statement: Statement
    body: sympy.Basic
    dims: tuple[int, ...]
    chosen: bool = False
    padded: bool = False
    rounded: Math = "ieee"

    @property
    def text(self) -> str:
        """The value as it is printed."""
        return value_text(self.statement, self.body)


def value_in(nest: Nest, tree: Tree, value: Value, loop: Loop, place: Buffer) -> Promoted:
    """The value computed at the start of each iteration of a loop, and read where it stands.

    The buffer's axes are dimensions that the value depends on. Operations keep their order, so that nothing rounds
    otherwise.
    """
    s, text = value.statement, value.text
    accesses = [s.reads[leaf.position] for leaf in reads_in(value.body)]
    dtypes = {
        computed_in(nest.tensor(name).dtype) for name in (s.write.tensor, *(a.tensor for a in accesses))
    }
    if len(dtypes) > 1:
        raise InvalidSchedule(f"promote: {text} in {s.name} mixes {' and '.join(sorted(dtypes))}")
    if set(s.dims) & {symbol.name for symbol in value.body.free_symbols}:
        raise InvalidSchedule(f"promote: {text} depends on an index of {s.name} as a number")
    prefix = prefix_of(tree, loop, s.name)
    element = date_map(isl.Set.universe(s.domain.get_space()), [dimension(s.domain, d) for d in value.dims])
    domain = nest.domains[s.name]
    footprint = _footprint(value, element, prefix, domain)
    wider, every = None, s.domain
    if value.padded:
        every = padded_domain(nest, s)
        _check_padded(value, element, prefix, domain, every)
        wider = _footprint(value, element, prefix, every.intersect_params(nest.context))
        wider = wider if place.panel is None else _in_whole_panels(wider, place.panel)
    numbered = {leaf: read(p) for p, leaf in enumerate(reads_in(value.body))}

    def redirected(buffer: str) -> dict[str, Statement]:
        dates = prefix_map(every.intersect_params(nest.context), s.name, prefix)
        there = dates.flat_range_product(element).set_tuple_name(OUT, buffer)
        return {s.name: _with_buffer(replace(s, domain=every), value.body, Access(buffer, there))}

    main = accesses[0].tensor if len(accesses) == 1 else max(accesses, key=lambda a: a.map.dim(OUT)).tensor
    reads = tuple(_read(value, a, element, prefix, domain) for a in accesses)
    body, dtype = rounding_of(text, substitute(value.body, numbered), dtypes.pop(), value.rounded)
    what = Copied(main, footprint, reads, body, dtype, wider)
    return copied_in(nest, tree, prefix, what, redirected, place)


def _footprint(value: Value, element: isl.Map, prefix: tuple[Loop, ...], domain: isl.Set) -> isl.Map:
    """{ values of the loops -> elements of the buffer } for some instances."""
    dates = prefix_map(domain, value.statement.name, prefix)
    found = element.intersect_domain(domain).apply_domain(dates).coalesce()
    if any(found.range().dim_min_val(d).is_neg() for d in range(len(value.dims))):
        raise InvalidSchedule(f"promote: {value.text} has negative indices in {value.statement.name}")
    return found


def _read(
    value: Value, access: Access, element: isl.Map, prefix: tuple[Loop, ...], domain: isl.Set
) -> Access:
    """Return the value's access as a function of the loops' values and its element's indices."""
    if not value.chosen:
        there = element.reverse().apply_range(access.map).insert_dims(IN, 0, len(prefix))
        return Access(access.tensor, there)
    places = prefix_map(domain, value.statement.name, prefix).flat_range_product(element)
    there = places.reverse().apply_range(access.map)
    if not there.is_single_valued():
        raise InvalidSchedule(
            f"promote: {value.text} is not known from its axes {', '.join(_names(value))} and the loops around: name "
            "more axes, or promote further in"
        )
    return Access(access.tensor, on_domain(there, there.domain()))


def _names(value: Value) -> list[str]:
    return [value.statement.dims[d] for d in value.dims]


# -- padding -----------------------------------------------------------------------------------------------------------


def padded_domain(nest: Nest, s: Statement) -> isl.Set:
    """All steps of a sum for every element of its tensor; of dimensions that share an axis the box around instances.

    { mac[q, s] : 0 <= q < 4 and 0 <= s < 3 and 0 <= q + s - 3 < 2 }, y[q]: q from 0, to which no instance adds
    """
    everywhere, shape = isl.Set.universe(s.domain.get_space()), nest.tensor(s.write.tensor).shape
    axes, subscripts = moving_axes(s.write), s.write.subscripts()
    sides = []
    for d in range(s.domain.dim(SET)):
        axis = axes.get(d)
        size = None if axis is None else shape[axis]
        if isinstance(size, int) and subscripts.get_pw_aff(axis).plain_is_equal(dimension(everywhere, d)):
            side = everywhere.lower_bound_val(SET, d, isl.Val(0)).upper_bound_val(SET, d, isl.Val(size - 1))
        else:
            side = _side(s.domain, d)
        sides.append(side)
    return reduce(isl.Set.intersect, sides, everywhere).coalesce()


def box_around(domain: isl.Set) -> isl.Set:
    """The smallest box around a set, between functions of sizes.

    >>> print(box_around(isl.Set("{ S[i, j] : 0 <= i < 4 and i <= j < 6 }")))
    { S[i, j] : 0 <= i <= 3 and 0 <= j <= 5 }
    """
    sides = (_side(domain, d) for d in range(domain.dim(SET)))
    return reduce(isl.Set.intersect, sides, isl.Set.universe(domain.get_space())).coalesce()


def _side(domain: isl.Set, d: int) -> isl.Set:
    """All points between the least and the largest value of one dimension."""
    value = dimension(domain, d)
    low, high = (
        bound.insert_dims(IN, 0, domain.dim(SET)).set_tuple_id(IN, domain.get_tuple_id())
        for bound in (domain.dim_min(d), domain.dim_max(d))
    )
    return low.le_set(value).intersect(value.le_set(high))


def _check_padded(
    value: Value, element: isl.Map, prefix: tuple[Loop, ...], domain: isl.Set, every: isl.Set
) -> None:
    """Raises InvalidSchedule unless all new instances are products with elements that no old one has."""
    s = value.statement
    if s.op != "+=" or not (isinstance(s.body, sympy.Mul) and value.body in s.body.args):
        raise InvalidSchedule(
            f"promote: only a factor of a sum can be padded, and {s.name} is {body_text(s)}"
        )
    places = prefix_map(every, s.name, prefix).flat_range_product(element)
    taken = places.intersect_domain(domain).range()
    if not places.intersect_range(taken).domain().is_subset(domain):
        raise InvalidSchedule(
            f"promote: {value.text} cannot be padded: where {s.name} has no instance, another one of the same "
            f"{', '.join(_names(value))} has"
        )
    inside = {leaf.position for leaf in reads_in(value.body)}
    for access in (access for p, access in enumerate(s.reads) if p not in inside):
        if not every.is_subset(access.map.domain()):
            raise InvalidSchedule(f"promote: {access.tensor} is promoted for {s.name} already: pad first")
        if (
            not access.map.intersect_domain(every)
            .range()
            .is_subset(access.map.intersect_domain(domain).range())
        ):
            raise InvalidSchedule(f"promote: padded, {s.name} would touch other elements of {access.tensor}")


def _in_whole_panels(footprint: isl.Map, panel: Panel) -> isl.Map:
    """{ [p] -> [e] : 8p <= e < 12 } in panels of 8  ->  { [p] -> [e] : 8p <= e < 8p + 8 }."""
    d = panel.axis
    low, extent = corner_of(footprint, d)
    if not extent.is_int():
        return footprint
    width = (int(extent.to_python()) // panel.width + 1) * panel.width
    names = [f"e{axis}" for axis in range(footprint.dim(OUT))]
    along = isl.Map(f"{{ [v] -> [{', '.join(names)}] : v <= {names[d]} < v + {width} }}")
    others = footprint.project_out(OUT, d, 1).insert_dims(OUT, d, 1)
    return others.intersect(low.as_map().apply_range(along)).coalesce()


# -- values in a body --------------------------------------------------------------------------------------------------


def dims_named(s: Statement, axes: tuple[str, ...]) -> tuple[int, ...]:
    """The positions of a statement's dimensions. Raises InvalidSchedule for one that it has not, or for none."""
    if not axes or len(set(axes)) < len(axes) or not set(axes) <= set(s.dims):
        raise InvalidSchedule(
            f"promote: axes are different dimensions of {s.name}, {', '.join(s.dims)}, not {axes!r}"
        )
    return tuple(s.dims.index(name) for name in axes)


def value_named(s: Statement, text: str) -> sympy.Basic:
    """The part of a statement's body that reads like this. A divisor's reciprocal is none: a / b is one division."""
    found = next((node for node in sympy.preorder_traversal(s.body) if value_text(s, node) == text), None)
    if found is not None and isinstance(found, sympy.Pow) and found.args[1] == -1:
        raise InvalidSchedule(
            f"promote: {text} stands for a division in {s.name} and is not a value of its own"
        )
    if found is None or not found.atoms(Read):
        raise InvalidSchedule(
            f"promote: {text!r} is neither a tensor nor a value in {s.name}: {body_text(s)}"
        )
    return found


def value_dims(s: Statement, value: sympy.Basic) -> tuple[int, ...]:
    """The dimensions that a value depends on, in the order of the axes of what it reads most of."""
    accesses = [s.reads[leaf.position] for leaf in reads_in(value)]
    axes = [moving_axes(access) for access in accesses]
    most = max(axes, key=len, default={})
    dims = {d for moved in axes for d in moved}
    return tuple(sorted(dims, key=lambda d: (most.get(d, -1), d)))


def moving_axes(access: Access) -> dict[int, int]:
    """For each dimension with which an access moves, return the last axis along which it does."""
    subscripts, rank = access.subscripts(), access.map.dim(IN)
    return {
        d: axis
        for axis in range(access.map.dim(OUT))
        for d in range(rank)
        if subscripts.get_pw_aff(axis).involves_dims(IN, d, 1)
    }


def _with_buffer(s: Statement, value: sympy.Basic, buffer: Access) -> Statement:
    """The statement with reads of a buffer in place of a value."""
    new = len(s.reads)
    body = substitute(s.body, {value: read(new)})
    every, used = (*s.reads, buffer), [leaf.position for leaf in reads_in(body)]
    numbered = {read(old): read(position) for position, old in enumerate(used)}
    return replace(s, reads=tuple(every[p] for p in used), body=substitute(body, numbered))
