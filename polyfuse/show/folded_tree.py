"""A schedule tree that folds, with trip counts, and equal parts once.

i: 4 × 16 @ cores        4 tiles of 16 values
  × 12                   the part below runs twelve times in a row, up to names
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement

from polyfuse.errors.viewed import equal_but_for_numbers
from polyfuse.ir.form import form_of
from polyfuse.ir.nest import Nest
from polyfuse.ir.nest_text import body_text
from polyfuse.ir.tree import Leaf, Loop, Sequence, Tree, loops
from polyfuse.schedule.binding import extent


@dataclass(frozen=True)
class Run:
    """The elements `first` to `last` (excluded) of a row, which are repeated so many `times` in all."""

    first: int
    last: int
    times: int


def runs(keys: list[Hashable]) -> list[Run]:
    """Return a row as runs: each position takes the period that covers most, of these the shortest.

    >>> runs(["start", "a", "b", "a", "b", "a", "b", "end"])
    [Run(first=0, last=1, times=1), Run(first=1, last=3, times=3), Run(first=7, last=8, times=1)]
    """
    found, at = [], 0
    while at < len(keys):
        width, times = 1, 1
        for period in range(1, (len(keys) - at) // 2 + 1):
            again = _times(keys, at, period)
            if again > 1 and again * period > times * width:
                width, times = period, again
        found.append(Run(at, at + width, times))
        at += width * times
    return found


def _times(keys: list[Hashable], at: int, period: int) -> int:
    pattern, times = keys[at : at + period], 1
    while keys[at + times * period : at + (times + 1) * period] == pattern:
        times += 1
    return times


def runs_of(nest: Nest, row: Sequence) -> list[Run]:
    """The children of a sequence as runs of parts that are equal up to names.

    Each part of a run writes a tensor that no part before it touches, and none that one before it reads, as layers do:
    it may go on with a sum that the one before has set to zero. Two sweeps between the same arrays, from A to B and
    back, are equal up to names too, and are shown both.
    """
    keys: list[Hashable] = [
        (form_of(nest, child), position in row.barriers) for position, child in enumerate(row.children)
    ]
    found = []
    for run in runs(keys):
        if run.times == 1 or _new_tensors(nest, row, run):
            found.append(run)
        else:
            width = run.last - run.first
            found.append(Run(run.first, run.first + width * run.times, 1))
    return found


def _new_tensors(nest: Nest, row: Sequence, run: Run) -> bool:
    """Whether each repetition writes a tensor that none before it touches, and none that one before it reads."""
    width, touched, read = run.last - run.first, set[str](), set[str]()
    for first in range(run.first, run.first + width * run.times, width):
        inside = [
            nest.statement(name) for child in row.children[first : first + width] for name in child.names
        ]
        written = {statement.write.tensor for statement in inside}
        if written <= touched or written & read:
            return False
        touched.update(name for statement in inside for name in statement.tensors)
        read.update(access.tensor for statement in inside for access in statement.reads)
    return True


def trip_label(nest: Nest, loop: Loop) -> str:
    """Return a loop with its trips and, of tiles, the values in one: "j: 2 × 256 @ cores".

    Sizes that are no numbers are left out.
    """
    trips = extent(nest, loop)
    inside: dict[str, int | None] = {}
    for other in loops(loop.body):
        if other.name.startswith(f"{loop.name}_in"):
            inside.setdefault(other.name, extent(nest, other))
    counts = [] if trips is None else [str(trips)]
    if counts and inside and all(inside.values()):
        values = 1
        for value in inside.values():
            values *= value or 1
        counts.append(str(values))
    named = f"{loop.name}: {' × '.join(counts)}" if counts else loop.name
    return f"{named} @ {loop.bind}" if loop.bind else named


def buffers_label(loop: Loop) -> str:
    """Return a loop's buffers, equal ones once: "[y0 in local × 2]"."""
    each = equal_but_for_numbers(map(str, loop.buffers))
    return "  ".join(f"[{one}{f' × {n}' if n > 1 else ''}]" for one, n in each)


def add_tree(parent: Element, nest: Nest, tree: Tree) -> None:
    """Add a tree: loops fold, equal neighbours of a sequence are shown once."""
    match tree:
        case Leaf(name):
            row = SubElement(parent, "div")
            SubElement(row, "code").text = name
            SubElement(row, "code", {"class": "dim"}).text = f"  {body_text(nest.statement(name))}"
        case Loop():
            fold = SubElement(parent, "details", {"open": "open"})
            summary = SubElement(fold, "summary")
            SubElement(summary, "code").text = trip_label(nest, tree)
            if tree.buffers:
                SubElement(summary, "code", {"class": "dim"}).text = f"  {buffers_label(tree)}"
            inside = SubElement(fold, "div", {"class": "inside"})
            add_tree(inside, nest, tree.body)
            if tree.barrier:
                _barrier(inside, "barrier")
            if tree.slots:
                _barrier(inside, f"handed over in {tree.slots} slots")
        case Sequence():
            add_row(parent, nest, tree)


def add_row(parent: Element, nest: Nest, row: Sequence) -> None:
    """Add the children of a sequence, equal ones once."""
    for run in runs_of(nest, row):
        into = parent
        if run.times > 1:
            SubElement(parent, "div", {"class": "dim"}).text = f"× {run.times}"
            into = SubElement(parent, "div", {"class": "inside"})
        for position in range(run.first, run.last):
            add_tree(into, nest, row.children[position])
            if position in row.barriers:
                _barrier(into, "barrier")


def _barrier(parent: Element, text: str) -> None:
    SubElement(parent, "div", {"class": "dim"}).text = text
