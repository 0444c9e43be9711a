"""A sheet of rows of boxed text, measured in inches, on which tree pictures and dependence plots are drawn."""

from __future__ import annotations

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
