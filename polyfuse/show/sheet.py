"""A sheet of rows of boxed text, measured in inches, on which tree pictures and dependence plots are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polyfuse.show.optional import need

LINE = 0.42
LETTER = 0.082
"""Inches: the height of a row, the width of a letter of 9 point monospace."""

LINES = "#888888"


def sheet(width: float, rows: int) -> Any:
    """The axes of a new figure of so many rows; (0, 0) is its upper left corner."""
    figure = need("matplotlib.figure").Figure(figsize=(width, LINE * rows))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(LINE * rows, 0))
    axes.axis("off")
    return axes


def middle(row: int) -> float:
    """The height of a row's middle."""
    return LINE * (row + 0.5)


def box(axes: Any, x: float, row: int, text: str, colour: str) -> Any:
    """A line of text in a box whose left edge is at x."""
    edge = {"boxstyle": "round,pad=0.3", "facecolor": colour, "edgecolor": LINES}
    form = {"family": "monospace", "fontsize": 9, "va": "center", "ha": "left", "parse_math": False}
    return axes.text(x + 0.08, middle(row), text, bbox=edge, **form)


def width_of(text: str) -> float:
    """Inches that a box with this text takes."""
    return LETTER * (len(text) + 3)


NOTE = 7.5
"""Points: the size of a note's letters."""


def note(axes: Any, x: float, row: int, parts: Sequence[tuple[str, str]]) -> None:
    """A line of small text in the lower half of a row, above the next one's box: (text, colour) from left to right."""
    for text, colour in parts:
        axes.text(
            x + 0.08, LINE * (row + 0.75), text, family="monospace", fontsize=NOTE, va="center", color=colour
        )
        x += LETTER * NOTE / 9 * len(text)


def note_width(text: str) -> float:
    """Inches that a note takes."""
    return LETTER * NOTE / 9 * (len(text) + 2)


def frame(axes: Any, left: float, first: int, right: float, last: int, text: str) -> None:
    """A dashed frame around the rows from `first` to `last`, with a text in its upper right corner."""
    top, bottom = LINE * (first + 0.35), LINE * (last + 0.95)
    form = {"color": LINES, "linewidth": 0.8, "linestyle": (0, (4, 3)), "zorder": 0}
    axes.plot([left, right, right, left, left], [top, top, bottom, bottom, top], **form)
    axes.text(right - 0.08, top + 0.06, text, fontsize=9, va="top", ha="right")
