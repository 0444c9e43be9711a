"""The trees that the steps of a schedule made, one after the other, as rows and what changed of them.

s = s.split('mac0', 'j', 32)      rows 5 … 9 of the tree before are now: for j, for j_in, mac0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from polyfuse.analysis.legality import Broken, first_broken
from polyfuse.analysis.storage import unsafe_buffer
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Loop, Sequence, Tree, loops, parts, sequence
from polyfuse.schedule import Schedule
from polyfuse.schedule.binding import extent
from polyfuse.schedule.step import Step
from polyfuse.show.labels import Row, rows

TreeRow = tuple[int, str, str, str, str | None, str | None, int | None]
"""(depth, kind, text, detail, place, loop, trips): `kind` is "loop", "statement" or "barrier"."""


WITHIN = frozenset((
    "bind", "collapse", "distribute", "fuse", "interchange", "microkernel", "pack", "prefetch", "promote",
    "reorder", "reverse", "separate", "shift", "skew", "split", "stream", "tile", "unroll", "vectorize",
))  # fmt: skip
"""Verbs that change only the parts of the outermost sequence that hold the statements they name."""


class Again(Schedule):
    """Steps that have been proven, taken again: only `fuse` and `sections`, which choose a legal form, ask isl."""

    def _checked(
        self, verb: str, args: tuple[object, ...], options: Mapping[str, object], nest: Nest, tree: Tree
    ) -> Again:
        return self.followed_by((Step(verb, args, tuple(options.items())),), nest, tree)

    def _proof(self, nest: Nest, tree: Tree, known: Tree | None) -> Broken | None:
        within = tree.members
        touching = nest.pairs_in_order.touching(tree.names)
        pairs = tuple(pair for pair in touching if pair.source in within and pair.sink in within)
        return first_broken(tree, pairs, known) or unsafe_buffer(nest, tree, known)

    def taken(self, step: Step) -> Again:
        """Return the schedule after one more step, taken on the parts that it changes.

        A; B; C  ->  A; B'; C       the verb sees B alone
        """
        tree = self.tree
        named = [arg for arg in step.args if isinstance(arg, str) and arg in tree.members]
        if step.verb not in WITHIN or not named or not isinstance(tree, Sequence) or tree.barriers:
            return self._after(step)
        places = [tree.places[name] for name in named]
        before, after = tree.children[: min(places)], tree.children[max(places) + 1 :]
        part = sequence(tree.children[min(places) : max(places) + 1])
        if step.verb == "fuse" and any(loop.buffers for loop in loops(part)):
            return self._after(step)  # whether a buffer is safe depends on its readers elsewhere too
        done = self.followed_by((), self.nest, part)._after(step)
        return self.followed_by((step,), done.nest, sequence((*before, *parts(done.tree), *after)))

    def _after(self, step: Step) -> Again:
        done: Again = getattr(self, step.verb)(*step.args, **dict(step.options))
        return done


def repeated(schedule: Schedule) -> Iterator[tuple[Step | None, Schedule]]:
    """Yield the nest as written, and then each step with the schedule that it made."""
    now = Again(schedule.given)
    yield None, now
    for step in schedule.steps:
        now = now.taken(step)
        yield step, now


class Rows:
    """The rows of trees. What two trees have in common is made once, and written once in `table`."""

    def __init__(self) -> None:
        self.table: dict[TreeRow, int] = {}
        self._known: dict[object, tuple[object, tuple[Row, ...]]] = {}
        self._parts: dict[object, tuple[object, tuple[int, ...]]] = {}
        self._places: dict[int, int] = {}
        self._trips: dict[int, int | None] = {}
        self._nest: Nest | None = None
        self._of_nest: dict[int, tuple[int, ...]] = {}

    def of(self, nest: Nest, tree: Tree) -> tuple[int, ...]:
        """Return the rows of a tree, from the top down, as positions in the table."""
        # a step changes few parts: of a net of 500 statements it would look up 5000 rows to find that most are the same
        if nest is not self._nest:
            self._nest, self._of_nest = nest, {}
        every = tree.children if isinstance(tree, Sequence) and not tree.barriers else (tree,)
        for part in every:
            if id(part) not in self._of_nest:
                self._of_nest[id(part)] = self._part(nest, part)
        return tuple(chain.from_iterable(self._of_nest[id(part)] for part in every))

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
