"""A product over windows as one call: tile_mac_windows(…).

::

    for c < 16: for r = max(0, 1 - p) … min(3, 29 - p):
        for s < 3: for q = max(0, 1 - s - 14*j) … min(14, 29 - s - 14*j): …
    ->  tile_mac_windows(TileSpec(rows=14, columns=32, cases='1:14 0:14 0:13'), columns_here=32, y=y, …,
                         lows=(max(0, 1 - 14*j), 0, 0), highs=(14, 14, min(14, 27 - 14*j)))

The innermost loop of steps is written out where it is short: each of its values may have other rows. That is what the
border of a padded image does, so no padding is ever stored. Where sizes are known a few tiles differ in their rows, and
each of these has code of its own:

for l in 0, 9 of 56 rows in tiles of 6   ->   TileSpec(rows=6, columns=64, cases='1:6 0:6 0:6 or 0:2 0:2 0:1')
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from polyfuse.codegen.cpu.intrinsics.microkernels.tile_spec import AT_LEAST, TileSpec
from polyfuse.codegen.cpu.patterns.calls import of_tile
from polyfuse.codegen.cpu.patterns.window_steps import (
    Bounds,
    Steps,
    bounds_of,
    inner_movement,
    is_box,
    numbers,
    steps_of,
    where_present,
)
from polyfuse.codegen.looptree.index import binary, is_number
from polyfuse.codegen.looptree.intervals import Interval, interval
from polyfuse.codegen.looptree.joint_values import Facts, cases
from polyfuse.codegen.looptree.nodes import Element
from polyfuse.codegen.looptree.product import ProductLoops, corner, most_of, movement
from polyfuse.schedule.microkernel_verb import MOST_SUMS, padded

MOST_CASES = 4
"""The most tiles with different rows that get separate code: the first, the last, and their neighbours."""


def over_windows(tile: ProductLoops, facts: Facts) -> ast.Call | None:
    """The call; None if rows change with other steps, or no numbers bound the tile."""
    ranges = facts.ranges
    steps = steps_of(tile.steps, ranges)
    most_columns = most_of(tile.columns)
    if most_columns is None or not is_box((*tile.steps, tile.rows, tile.columns), tile.rows, steps.inner):
        return None
    width = padded(most_columns, tile.itemsize)
    rows = bounds_of(tile.rows, steps, ranges)
    starts = [interval(one.low, ranges).low for one in rows]
    ends = [interval(one.high, ranges).high for one in rows]
    known = [end for end in (*starts, *ends) if end is not None]
    if len(known) < 2 * len(rows) or (max(known) - min(known)) * width > MOST_SUMS:
        return None
    present = where_present(rows, steps, ranges)
    every = range(min(known), max(known))
    return _call(
        tile, steps, present, every, _exactly(present, every, facts) or _surely(present, every), width
    )


def _exactly(rows: Sequence[Bounds], every: range, facts: Facts) -> str | None:
    """All that the rows can be together, counted from the first one; None if there are too many cases, or unknown ones.

    1:6 0:6 0:6 or 0:2 0:2 0:1
    """
    found = cases([bound for one in rows for bound in (one.low, one.high)], facts)
    if not found or len(found) > MOST_CASES:
        return None
    ends = [[end - every.start for end in case] for case in found]
    return " or ".join(
        " ".join(f"{low}:{high}" for low, high in zip(case[::2], case[1::2], strict=True)) for case in ends
    )


def _surely(rows: Sequence[Bounds], every: range) -> str:
    """The rows that each step has in any case: at least 1:14 0:14 0:13."""
    return AT_LEAST + " ".join(_sure(one.sure, every) for one in rows)


def _call(
    tile: ProductLoops, steps: Steps, rows: Sequence[Bounds], every: range, cases: str, width: int
) -> ast.Call | None:
    sums, left, right = tile.store.target, tile.left, tile.right
    moves = [
        *(movement(element, tile.rows) for element in (sums, left)),
        *(inner_movement(element, steps) for element in (left, right)),
    ]
    along = [tuple(movement(element, loop) for loop in steps.loops) for element in (left, right)]
    columns = [movement(element, tile.columns) for element in (sums, left, right)]
    units = [_unit(element) for element in (sums, right)]
    if None in (*moves, *along[0], *along[1]) or columns != [units[0], (0,) * len(left.subscripts), units[1]]:
        return None
    sums_row, left_row, left_inner, right_inner = moves
    first: dict[str, ast.expr] = {loop.variable: loop.low for loop in (*steps.loops, tile.columns)}
    first |= {tile.rows.variable: ast.Constant(every.start), **steps.first(steps.values.start)}
    here = binary(ast.Sub(), tile.columns.high, tile.columns.low)
    counts = [binary(ast.Sub(), loop.high, loop.low) for loop in steps.loops]
    start = ast.Constant(every.start)
    return of_tile(
        "tile_mac_windows",
        TileSpec(len(every), width, cases=cases),
        columns_here=ast.Constant(width) if is_number(here, width) else here,
        y=ast.Name(sums.array),
        y_at=corner(sums, first),
        y_row=numbers(sums_row),
        a=ast.Name(left.array),
        a_at=corner(left, first),
        a_row=numbers(left_row),
        a_steps=ast.Tuple([numbers(one) for one in (*along[0], left_inner)]),
        b=ast.Name(right.array),
        b_at=corner(right, first),
        b_steps=ast.Tuple([numbers(one) for one in (*along[1], right_inner)]),
        counts=ast.Tuple(counts),
        lows=ast.Tuple([binary(ast.Sub(), one.low, start) for one in rows]),
        highs=ast.Tuple([binary(ast.Sub(), one.high, start) for one in rows]),
    )


def _unit(element: Element) -> tuple[int, ...]:
    """One element further along the last axis."""
    return (*(0 for _ in element.subscripts[1:]), 1)


def _sure(rows: Interval, every: range) -> str:
    """Bounds of rows that are there in any case, counted from the first one; '0:0' if none is."""
    if rows.low is None or rows.high is None or rows.low >= rows.high:
        return "0:0"
    return f"{rows.low - every.start}:{rows.high - every.start}"
