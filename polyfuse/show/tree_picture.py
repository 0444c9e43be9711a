"""Draw a schedule tree: bindings, buffers and barriers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from polyfuse.errors.proving import proving
from polyfuse.ir import Nest
from polyfuse.ir.given import nest_given
from polyfuse.ir.tree import Sequence, Tree
from polyfuse.schedule import Schedule
from polyfuse.show.folded_tree import buffers_label, runs_of, trip_label
from polyfuse.show.labels import Row, dates_label, rows
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

OTHERS = {
    "nest": "#ffffff",
    "repeat": "#ffffff",
    "loop": "#eeeeee",
    "statement": "#ffffff",
    "barrier": "#f4cccc",
}

INDENT = 0.45
"""Inches a level."""

MOST_NAMES = 8
"""Statements that a loop's box names for each date."""


@proving("the view tree_picture")
def tree_picture(what: Schedule | Nest) -> Figure:
    """Draw a schedule tree: one box per loop, statement and barrier, indented below its loop.

    A loop's box shows its trips ("j: 2 × 256" is 2 tiles of 256 values), its binding (`@ cores`), its buffers, and the
    date that it gives to each statement. Equal parts, such as layers, are drawn once, below "× 12".

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
    every = [Row(0, "nest", nest.name), *folded(nest, tree, 1)]
    texts = [label(nest, row) for row in every]
    axes = sheet(
        max(INDENT * row.depth + width_of(text) for row, text in zip(every, texts, strict=True)) + 0.1,
        len(every),
    )
    parents: list[int] = []
    for line, row in enumerate(every):
        del parents[row.depth :]
        left = INDENT * row.depth + 0.05
        box(axes, left, line, texts[line], colour(row))
        if parents:
            corner = left - INDENT + 0.15
            xs, ys = (corner, corner, left), (middle(parents[-1]) + 0.35 * LINE, middle(line), middle(line))
            axes.plot(xs, ys, color=LINES, linewidth=1, zorder=0)
        parents.append(line)
    figure: Figure = axes.figure
    return figure


def folded(nest: Nest, tree: Tree, depth: int) -> Iterator[Row]:
    """The rows of a tree; children of a sequence that are equal up to names once, one level below their number."""
    if not isinstance(tree, Sequence):
        yield from rows(nest, tree, depth, folded)
        return
    for run in runs_of(nest, tree):
        inside = depth + (run.times > 1)
        if run.times > 1:
            yield Row(depth, "repeat", f"× {run.times}")
        for position in range(run.first, run.last):
            yield from folded(nest, tree.children[position], inside)
            if position in tree.barriers:
                yield Row(inside, "barrier", "barrier")


def label(nest: Nest, row: Row) -> str:
    """Return the text of a box."""
    if row.loop is None:
        return f"{row.text}    {row.detail}".rstrip()
    head = f"for {trip_label(nest, row.loop)} {buffers_label(row.loop)}".rstrip()
    return f"{head}    {dates_label(row.loop, MOST_NAMES)}"


def colour(row: Row) -> str:
    """The colour of a row's box."""
    place = (row.place or "").partition(".")[0]
    return PLACES.get(place, OTHERS[row.kind])
