"""Windows on iteration domains, and what lies in them: points, pairs of dependences, tiles.

    { mac0[i, j, k] : 0 <= i < 64 and 0 <= j < 512 and 0 <= k < 512 }   ->   i: 4 … 11, j: 28 … 35, k: 0 … 7

A domain of at most POINTS points is its own window. A window into a larger one lies across the first border between
tiles, where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import islpy as isl

from polyfuse.ir.dependences import Pairs
from polyfuse.ir.tree import Loop, date_map
from polyfuse.sets import IN, SET, Box, bounding_box, bounding_count, fix_params, points

POINTS, SIDE = 640, 16
"""The most points of a window, and the most values of a dimension where there are others; alone it has more."""

LINE = 40
"""The most values of a window with one dimension."""

CANDIDATES = 20_000
"""The most pairs of points among which a dependence is looked for; windows are halved until so few are left."""


@dataclass(frozen=True)
class Window:
    """A box of points of a statement's domain.

    Attributes:
        box: The least and the greatest value of each dimension.
        whole: The same of the whole domain.
        points: The points in lexicographic order.
        filled: Whether they are all points of the box.
    """

    box: Box
    whole: Box
    points: tuple[tuple[int, ...], ...]

    @property
    def filled(self) -> bool:
        """Whether every point of the box is in the domain."""
        return len(self.points) == prod(high - low + 1 for low, high in self.box)


def window(domain: isl.Set, periods: Sequence[int | None], around: Sequence[int] | None = None) -> Window:
    """Return the window on a domain of known size.

    Args:
        domain: A bounded set without parameters, with at least one point.
        periods: For each dimension the number of its values in a tile; None where it is not tiled.
        around: A point that has to lie in the window.
    """
    whole = bounding_box(domain)
    assert whole is not None, "the domain has a point"
    extents = [high - low + 1 for low, high in whole]
    widths = _widths(extents)
    box = []
    for d, (low, high) in enumerate(whole):
        width, period = widths[d], periods[d]
        start = low
        if around is not None:
            start = around[d] - width // 2
        elif period is not None and period < extents[d] and width < 2 * period:
            start = (low // period + 1) * period - width // 2
        start = max(low, min(start, high - width + 1))
        box.append((start, start + width - 1))
    found = tuple(points(within_box(domain, tuple(box))))
    if (
        not found and around is None
    ):  # a domain that is thin in its box: the window goes around one of its points
        sample = domain.sample_point()
        return window(
            domain, periods, [int(sample.get_coordinate_val(SET, d).to_python()) for d in range(len(box))]
        )
    return Window(tuple(box), whole, found)


def _widths(extents: Sequence[int]) -> list[int]:
    """The widths of a box of at most POINTS points, as even as the extents allow.

    >>> _widths([1000, 3]), _widths([64, 64, 64])
    ([16, 3], [9, 8, 8])
    """
    widths = [1] * len(extents)
    side = LINE if len(extents) == 1 else SIDE
    while True:
        short = [d for d, width in enumerate(widths) if width < min(side, extents[d])]
        if not short:
            return widths
        d = min(short, key=widths.__getitem__)
        widths[d] += 1
        if prod(widths) > POINTS:
            widths[d] -= 1
            return widths


def within_box(domain: isl.Set, box: Box) -> isl.Set:
    """The part of a set inside a box."""
    for d, (low, high) in enumerate(box):
        domain = domain.lower_bound_val(SET, d, isl.Val(low)).upper_bound_val(SET, d, isl.Val(high))
    return domain


def pairs_inside(
    pairs: Pairs, source: Box, sink: Box, sizes: Mapping[str, int]
) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """Return the pairs of instances of a dependence inside two windows; one that two others imply is left out."""
    relation = fix_params(pairs.map.wrap(), dict(sizes)).unwrap()
    while True:
        inside = relation.intersect_domain(
            within_box(isl.Set.universe(relation.domain().get_space()), source)
        )
        inside = inside.intersect_range(within_box(isl.Set.universe(relation.range().get_space()), sink))
        if bounding_count(inside.wrap().flatten(), {}) <= CANDIDATES:
            break
        source, sink = _halved(source), _halved(sink)
    if pairs.source == pairs.sink:
        inside = inside.subtract(inside.apply_range(inside))
    width = relation.dim(IN)
    return tuple((both[:width], both[width:]) for both in points(inside.wrap().flatten()))


def _halved(box: Box) -> Box:
    return tuple((low, low + (high - low) // 2) for low, high in box)


def periods(loops: Sequence[Loop], statement: str, dims: int) -> list[int | None]:
    """Return for each dimension the most of its values that one iteration of the loops holds: for floor(i/32) 32.

    Args:
        loops: The loops over tiles.
        statement: The statement.
        dims: The number of its dimensions.
    """
    found: list[int | None] = [None] * dims
    for loop in loops:
        for _, piece in loop.date(statement).get_pieces():
            for position in range(piece.dim(isl.dim_type.div)):
                div = piece.get_div(position)
                for d in range(dims):
                    step = div.get_coefficient_val(IN, d)
                    if not step.is_zero():
                        size = int(step.inv().abs().floor().to_python())
                        found[d] = max(size, found[d] or 1)
    return found


def tile_dates(
    seen: Window, domain: isl.Set, loops: Sequence[Loop], statement: str, sizes: Mapping[str, int]
) -> list[tuple[int, ...]]:
    """Return, for each point of a window, the values of the loops over tiles.

    Args:
        seen: The window.
        domain: The statement's domain, with its sizes filled in.
        loops: The loops over tiles around the statement.
        statement: The statement.
        sizes: Values of symbolic sizes.
    """
    parts: list[isl.PwAff | int] = [loop.date(statement) for loop in loops]
    dated = fix_params(date_map(isl.Set.universe(domain.get_space()), parts).wrap(), dict(sizes)).unwrap()
    inside = dated.intersect_domain(within_box(domain, seen.box))
    width = len(seen.box)
    return [both[width:] for both in points(inside.wrap().flatten())]
