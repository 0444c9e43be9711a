"""The trees that the steps of a schedule made, one after the other, as rows and what changed of them.

s = s.split('mac0', 'j', 32)      rows 5 … 9 of the tree before are now: for j, for j_in, mac0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Loop, Sequence, Tree
from polyfuse.schedule import Schedule
from polyfuse.schedule.binding import extent
from polyfuse.schedule.step import Step
from polyfuse.show.labels import Row, rows

TreeRow = tuple[int, str, str, str, str | None, str | None, int | None]
"""(depth, kind, text, detail, place, loop, trips): `kind` is "loop", "statement" or "barrier"."""


class Again(Schedule):
    """Steps that have been proven, taken again: only `fuse` and `sections`, which choose a legal form, ask isl."""

    def _checked(
        self, verb: str, args: tuple[object, ...], options: Mapping[str, object], nest: Nest, tree: Tree
    ) -> Again:
        return self.followed_by((Step(verb, args, tuple(options.items())),), nest, tree)


def repeated(schedule: Schedule) -> Iterator[tuple[Step | None, Schedule]]:
    """Yield the nest as written, and then each step with the schedule that it made."""
    now: Schedule = Again(schedule.given)
    yield None, now
    for step in schedule.steps:
        now = getattr(now, step.verb)(*step.args, **dict(step.options))
        yield step, now


class Rows:
    """The rows of trees. What two trees have in common is made once, and written once in `table`."""

    def __init__(self) -> None:
        self.table: dict[TreeRow, int] = {}
        self._known: dict[object, tuple[object, tuple[Row, ...]]] = {}
        self._parts: dict[object, tuple[object, tuple[int, ...]]] = {}
        self._places: dict[int, int] = {}
        self._trips: dict[int, int | None] = {}

    def of(self, nest: Nest, tree: Tree) -> tuple[int, ...]:
        """Return the rows of a tree, from the top down, as positions in the table."""
        if not isinstance(tree, Sequence) or tree.barriers:
            return self._part(nest, tree)
        # a step changes few parts: of a net of 500 statements it would look up 5000 rows to find that most are the same
        return tuple(chain.from_iterable(self._part(nest, child) for child in tree.children))

    def _part(self, nest: Nest, tree: Tree) -> tuple[int, ...]:
        said = tuple(map(nest.statement, tree.names))
        key = (id(tree), *map(id, said))
        if key not in self._parts:
            found = tuple(self._place(nest, row) for row in self._rows(nest, tree, 0))
            self._parts[key] = (tree, said), found
        return self._parts[key][1]

    def _rows(self, nest: Nest, tree: Tree, depth: int) -> tuple[Row, ...]:
        said = tuple(nest.statement(name) for name in tree.names)
        key = (id(tree), depth, *map(id, said))
        if key not in self._known:
            # what the key names by its address is kept with it
            self._known[key] = (tree, said), tuple(rows(nest, tree, depth, self._rows))
        return self._known[key][1]

    def _place(self, nest: Nest, row: Row) -> int:
        if id(row) not in self._places:
            loop = row.loop
            name, trips = (None, None) if loop is None else (loop.name, self._extent(nest, loop))
            entry = (row.depth, row.kind, row.text, row.detail, row.place, name, trips)
            self._places[id(row)] = self.table.setdefault(entry, len(self.table))
        return self._places[id(row)]

    def _extent(self, nest: Nest, loop: Loop) -> int | None:
        if id(loop) not in self._trips:
            self._trips[id(loop)] = extent(nest, loop)
        return self._trips[id(loop)]


def splice(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, int, list[int]]:
    """Return what changed between two lists of rows: (position, rows removed, rows put in their place).

    >>> splice((1, 2, 3, 4), (1, 5, 6, 4))
    (1, 2, [5, 6])
    """
    least = min(len(before), len(after))
    same = next((k for k in range(least) if before[k] != after[k]), least)
    left = least - same
    tail = next((k for k in range(left) if before[-1 - k] != after[-1 - k]), left)
    return same, len(before) - same - tail, list(after[same : len(after) - tail])
