"""Draw a schedule tree: bindings, buffers and barriers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyfuse.errors.proving import proving
from polyfuse.ir import Nest
from polyfuse.ir.given import nest_given
from polyfuse.schedule import Schedule
from polyfuse.show.labels import Row, rows
from polyfuse.show.sheet import LINE, LINES, box, middle, sheet, width_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLACES = {
    "cores": "#cfe2f3",
    "dynamic": "#cfe2f3",
    "pipeline": "#cfe2f3",
    "block": "#cfe2f3",
    "cluster": "#cfe2f3",
    "thread": "#d9ead3",
    "vector": "#fff2cc",
    "unroll": "#fce5cd",
}
"""The colour of a loop by what runs its values."""

OTHERS = {"nest": "#ffffff", "loop": "#eeeeee", "statement": "#ffffff", "barrier": "#f4cccc"}

INDENT = 0.45
"""Inches a level."""


@proving("the view tree_picture")
def tree_picture(what: Schedule | Nest) -> Figure:
    """Draw a schedule tree: one box per loop, statement and barrier, indented below its loop.

    A loop's box shows its binding (`@ cores`), its buffers, and the date that it gives to each statement.

    Args:
        what: A schedule, or a nest for its original order.

    Returns:
        A matplotlib Figure.

    Raises:
        BadArgument: if something else is given.
        TargetUnavailable: if matplotlib is not installed.
    """
    if isinstance(what, Schedule):
        nest, tree = what.nest, what.tree
    else:
        nest = nest_given("tree_picture", what, "a schedule or a nest")
        tree = nest.order
    every = [Row(0, "nest", nest.name), *rows(nest, tree, 1)]
    axes = sheet(max(INDENT * row.depth + width_of(label(row)) for row in every) + 0.1, len(every))
    parents: list[int] = []
    for line, row in enumerate(every):
        del parents[row.depth :]
        left = INDENT * row.depth + 0.05
        box(axes, left, line, label(row), colour(row))
        if parents:
            corner = left - INDENT + 0.15
            xs, ys = (corner, corner, left), (middle(parents[-1]) + 0.35 * LINE, middle(line), middle(line))
            axes.plot(xs, ys, color=LINES, linewidth=1, zorder=0)
        parents.append(line)
    figure: Figure = axes.figure
    return figure


def label(row: Row) -> str:
    """Return the text of a box."""
    return f"{row.text}    {row.detail}".rstrip()


def colour(row: Row) -> str:
    """The colour of a row's box."""
    place = (row.place or "").partition(".")[0]
    return PLACES.get(place, OTHERS[row.kind])
