"""Two-dimensional slices of iteration domains, as numbers: points, dependences between them, tiles.

slice ::= { S[t, i, j] : … }  with sizes given and every dimension but the plotted ones held at one value
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import islpy as isl

from polyfuse.errors import BadArgument
from polyfuse.ir import Nest
from polyfuse.ir.dependences import Pairs
from polyfuse.ir.tree import Loop, date_map
from polyfuse.sets import IN, SET, bounding_count, fix_params, param_names, points

MOST_POINTS = 2500
"""More points than this are no longer told apart in a picture."""


@dataclass(frozen=True)
class Slice:
    """The instances of one statement in the plotted plane.

    `axes` are the positions of the plotted dimensions, `held` the values of the others by name, `at` by position.
    """

    statement: str
    instances: isl.Set
    axes: tuple[int, ...]
    held: Mapping[str, int]
    at: Mapping[int, int]

    def points(self) -> list[tuple[int, ...]]:
        """The plotted coordinates of every instance."""
        return [self.plotted(point) for point in points(self.instances)]

    def plotted(self, point: Sequence[int]) -> tuple[int, ...]:
        """The plotted coordinates of an instance."""
        return tuple(point[axis] for axis in self.axes)


def cut(
    nest: Nest, statement: str, dims: Sequence[str], sizes: Mapping[str, int], at: Mapping[str, int]
) -> Slice:
    """The slice of a statement's domain along `dims`; a dimension that `at` does not name is held at its least value.

    Raises BadArgument if the slice is not a finite, visible number of points.
    """
    names = nest.statement(statement).dims
    missing = [d for d in dims if d not in names]
    if missing:
        raise BadArgument(f"statement {statement} has no dimension {missing[0]!r}; it has {', '.join(names)}")
    instances = _sized(nest, statement, sizes)
    held: dict[str, int] = {}
    for position, name in enumerate(names):
        if name in dims:
            continue
        value = isl.Val(at[name]) if name in at else _least(instances, position, statement)
        held[name] = int(value.to_python())
        instances = instances.fix_val(SET, position, value)
    _visible(instances, statement, at)
    positions = {names.index(name): value for name, value in held.items()}
    return Slice(statement, instances, tuple(names.index(d) for d in dims), held, positions)


def _sized(nest: Nest, statement: str, sizes: Mapping[str, int]) -> isl.Set:
    """The domain with its sizes filled in."""
    domain = nest.domains[statement]
    open_ = [name for name in param_names(domain) if name not in sizes]
    if open_:
        example = ", ".join(f"{name!r}: 8" for name in open_)
        raise BadArgument(
            f"the domain of {statement} depends on {', '.join(open_)}; give numbers: sizes={{{example}}}"
        )
    fixed = fix_params(domain, dict(sizes))
    if fixed.is_empty():
        given = f" with {dict(sizes)}" if sizes else ""
        raise BadArgument(f"statement {statement} has no instance{given}; its domain is {domain}")
    return fixed


def _least(instances: isl.Set, position: int, statement: str) -> isl.Val:
    least = instances.dim_min_val(position)
    if not least.is_int():
        raise BadArgument(f"the domain of {statement} is not bounded: {instances}")
    return least


def _visible(instances: isl.Set, statement: str, at: Mapping[str, int]) -> None:
    if instances.is_empty():
        raise BadArgument(f"statement {statement} has no instance at {dict(at)}")
    if not instances.is_bounded():
        raise BadArgument(f"the domain of {statement} is not bounded: {instances}")
    count = bounding_count(instances, {})
    if count > MOST_POINTS:
        raise BadArgument(
            f"the slice of {statement} has up to {count} points, more than the {MOST_POINTS} that a plot shows; "
            "give smaller sizes"
        )


def arrows(
    pairs: Pairs, source: Slice, sink: Slice, sizes: Mapping[str, int]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The plotted ends of a dependence's pairs inside the slices; a pair that two others imply is left out."""
    relation = fix_params(pairs.map.wrap(), dict(sizes)).unwrap()
    relation = relation.intersect_domain(source.instances).intersect_range(sink.instances)
    if pairs.source == pairs.sink:
        relation = relation.subtract(relation.apply_range(relation))
    width = relation.dim(IN)
    ends = points(relation.wrap().flatten())
    return [(source.plotted(both[:width]), sink.plotted(both[width:])) for both in ends]


def tiles(
    instances: Slice, loops: Sequence[Loop], sizes: Mapping[str, int]
) -> dict[tuple[int, ...], tuple[int, ...]]:
    """For each plotted point, return the values of the loops that make the tiles."""
    parts: list[isl.PwAff | int] = [loop.date(instances.statement) for loop in loops]
    space = instances.instances.get_space()
    relation = date_map(isl.Set.universe(space), parts)
    dated = fix_params(relation.wrap(), dict(sizes)).unwrap().intersect_domain(instances.instances)
    width = dated.dim(IN)
    return {instances.plotted(both[:width]): both[width:] for both in points(dated.wrap().flatten())}


def tile_loops(around: Sequence[Loop], named: Sequence[str] | None) -> tuple[Loop, ...]:
    """The loops named; without names those that were cut into tiles: a loop `i` with a loop `i_in` inside it."""
    if named is None:
        names = [loop.name for loop in around]
        return tuple(
            x for k, x in enumerate(around) if any(n.startswith(f"{x.name}_in") for n in names[k + 1 :])
        )
    known = {loop.name: loop for loop in around}
    missing = [name for name in named if name not in known]
    if missing:
        raise BadArgument(f"no loop {missing[0]!r} around the statement; its loops are {', '.join(known)}")
    return tuple(known[name] for name in named)
