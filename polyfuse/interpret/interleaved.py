"""Run statements whose loops interleave: in the order of their dates, as many instances at a time as is equivalent.

    for i: { s[i] = 0; for k: s[i] += x[i, k]; y[i] = s[i] }    ->  s[:] = 0, then every sum, then y[:] = s[:]
    for t: { for i: S(t, i) } { for i: R(t, i) }                ->  S(0, :), R(0, :), S(1, :), R(1, :), ...

Theorem: statements may run one after the other where no element's accesses change their order between two of them.
Theorem: instances of one statement may all read before one writes where none reads what one before it writes:
`a[i] = a[i - 4] + 1` runs four at once. Both are looked up in the elements that the instances access.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from polyfuse.interpret.affine_grid import Ints, Points, chunks, values
from polyfuse.interpret.state import CHUNK, UFUNCS, Read, Run
from polyfuse.ir.tree import Loop, Tree, depth, path_to, statements
from polyfuse.ir.tree import Sequence as Siblings

FEW, SHORT, LONG = 8, 128, 32
"""Instances of one statement, and of several, that run one by one in less time than NumPy takes for them at once; and
how many of one statement in a row are enough to take them as they come.
"""

NONE = np.empty(0, np.int64)


def interleaved(runs: Sequence[Run], tree: Tree) -> None:
    """Run the instances of several statements, or of one that reads what it writes, in the order of their dates."""
    every = tuple(Instances(run, instances(run)) for run in runs)
    dates = np.concatenate([dates_of(each.run, tree, each.at) for each in every])
    order = np.lexsort(dates.T[::-1])
    counts = [each.at.shape[0] for each in every]
    owners = np.repeat(np.arange(len(every)), counts)[order]
    rows = np.concatenate([NONE, *(np.arange(count) for count in counts)])[order]
    if len(rows):
        InOrder(every, dates[order], owners, rows).execute(0, len(rows))


@dataclass(frozen=True)
class InOrder:
    """Instances of several statements by their dates: whose each is, and which row of its statement's."""

    every: tuple[Instances, ...]
    dates: Ints
    owners: Ints
    rows: Ints

    def execute(self, start: int, stop: int, column: int = 0) -> None:
        """Run the instances from `start` to `stop`, which have the same dates before `column`."""
        changes = np.flatnonzero(np.diff(self.owners[start:stop])) + 1 + start
        if stop - start >= LONG * (len(changes) + 1) or not len(changes):
            for first, end in pairwise((start, *changes.tolist(), stop)):
                self.every[self.owners[first]].execute(self.rows[first:end])
        elif stop - start <= SHORT:
            for owner, row in zip(
                self.owners[start:stop].tolist(), self.rows[start:stop].tolist(), strict=True
            ):
                self.every[owner].one(row)
        elif self.may_be_parted(start, stop):
            for owner, each in enumerate(self.every):
                each.execute(self.rows[start:stop][self.owners[start:stop] == owner])
        else:
            while not (cuts := np.flatnonzero(np.diff(self.dates[start:stop, column])) + 1 + start).size:
                column += 1
            for first, end in pairwise((start, *cuts.tolist(), stop)):
                self.execute(first, end, column + 1)

    def may_be_parted(self, start: int, stop: int) -> bool:
        """True if running statement after statement accesses each written element in the original order."""
        owners, found = self.owners[start:stop], list[Ints]()
        held = {owner: np.flatnonzero(owners == owner) for owner in np.unique(owners).tolist()}
        written = {self.every[owner].run.statement.write.tensor for owner in held}
        for owner, when in held.items():
            each = self.every[owner]
            for access, at in each.accesses:
                if access in written:
                    tensor = np.full(len(when), sorted(written).index(access))
                    element = at[self.rows[start:stop][when]]
                    found.append(np.stack([when, element, tensor, np.full(len(when), owner)]))
        every = np.concatenate(found, axis=1)
        _, element, tensor, owner = every[:, np.lexsort(every[:3])]
        same = (np.diff(element) == 0) & (np.diff(tensor) == 0)
        return bool((np.diff(owner)[same] >= 0).all())


def instances(run: Run) -> Points:
    """All instances of a statement, as vectors."""
    parts = [at.flat() for at in chunks(run.domain, run.state.sizes, CHUNK)]
    columns = [np.concatenate([NONE, *(at.dims[d] for at in parts)]) for d in range(len(run.statement.dims))]
    return Points(tuple(columns), run.state.sizes, sum(at.shape[0] for at in parts))


def dates_of(run: Run, tree: Tree, at: Points) -> Ints:
    """Return the date of each point: one row per point, ordered lexicographically, padded with zeros."""
    name = run.statement.name
    found = np.zeros((at.shape[0], depth(tree) + 1), np.int64)
    for column, node in enumerate(path_to(tree, name)):
        match node:
            case Loop():
                found[:, column] = values(node.date(name), at)
            case Siblings():
                found[:, column] = next(
                    k for k, child in enumerate(node.children) if name in statements(child)
                )
    return found


@dataclass(frozen=True)
class Instances:
    """All instances of a statement, by their rows in `at`."""

    run: Run
    at: Points

    def execute(self, rows: Ints) -> None:
        """Run some instances in order."""
        pieces = self.pieces(rows) if len(rows) > FEW else (rows,)
        for piece in pieces:
            if len(piece) > FEW:
                self.at_once(piece)
            else:
                for row in piece.tolist():
                    self.one(row)

    def pieces(self, rows: Ints) -> Iterator[Ints]:
        """The rows in order, cut where one reads what one before it in its piece writes."""
        own = [read.at[rows] for read in self.reads if read.own]
        if self.run.statement.is_reduction and not self.adds_in_order:
            own.append(self.where[rows])
        start, stops = 0, next_cuts(self.where[rows], own) if own else None
        while start < len(rows):
            stop = len(rows) if stops is None else int(stops[start])
            stop = min(stop, start + CHUNK)
            yield rows[start:stop]
            start = stop

    def at_once(self, rows: Ints) -> None:
        """Run instances of which none reads what one before it writes."""
        value, where = self.value(rows), self.where[rows]
        combine, target = UFUNCS.get(self.run.statement.op), self.run.target
        if combine is None:
            target[where] = np.broadcast_to(self.run.stored(value), rows.shape)  # of several the last stays
        elif self.adds_in_order:
            combine.at(target, where, np.broadcast_to(np.asarray(value, target.dtype), rows.shape))
        else:
            target[where] = self.run.stored(combine(target[where], value))

    @cached_property
    def one(self) -> Callable[[int], None]:
        """Return a function that runs the instance at one row."""
        run, function, stored, target = self.run, self.run.function, self.run.stored, self.run.target
        reads = [(read.vector, read.at.tolist(), read.half) for read in self.reads]
        where, combine = self.where.tolist(), UFUNCS.get(run.statement.op)
        dims, sizes = list(zip(*self.numbers, strict=True)), tuple(run.state.sizes.values())

        def execute(row: int) -> None:
            leaves = [
                vector[at[row]].astype(np.float32) if half else vector[at[row]] for vector, at, half in reads
            ]
            value, element = function([*leaves, *(dims[row] if dims else ()), *sizes]), where[row]
            target[element] = stored(value if combine is None else combine(target[element], value))

        return execute

    def value(self, rows: Any) -> Any:
        """The body's values at one row or several."""
        leaves = [read[rows] for read in self.reads]
        leaves += [dim[rows] for dim in self.numbers]
        return self.run.function([*leaves, *self.run.state.sizes.values()])

    @cached_property
    def adds_in_order(self) -> bool:
        """True if a sum's terms have its own type, so that NumPy may add them in order."""
        types = {np.dtype("f4") if read.half else read.vector.dtype for read in self.reads}
        return self.run.target.dtype in (np.dtype("f4"), np.dtype("f8")) and types <= {self.run.target.dtype}

    @cached_property
    def reads(self) -> list[Read]:
        """Return the elements that each instance reads."""
        return [self.run.read(access, self.at) for access in self.run.statement.reads]

    @property
    def accesses(self) -> list[tuple[str, Ints]]:
        """The tensors that it accesses, and the element of each instance."""
        statement = self.run.statement
        reads = [(access.tensor, read.at) for access, read in zip(statement.reads, self.reads, strict=True)]
        return [*reads, (statement.write.tensor, self.where)]

    @cached_property
    def where(self) -> Ints:
        """The element that each instance writes."""
        return self.run.elements(self.run.statement.write, self.at)

    @cached_property
    def numbers(self) -> list[Any]:
        """Each dimension's number in each instance."""
        return self.run.numbers(self.at)[: len(self.at.dims)]


def next_cuts(writes: Ints, reads: Sequence[Ints]) -> Ints:
    """For each instance at which a piece may begin, return its end: the next instance that reads an earlier one's
    result.

    >>> next_cuts(np.array([4, 5, 6, 7]), [np.array([2, 3, 4, 5])])  # a[i] = a[i - 2]
    array([2, 3, 4, 4])
    """
    count = len(writes)
    when = np.arange(count)
    written = np.sort(writes * count + when)  # by element, then by instance
    stops = np.full(count, count)
    for read in reads:
        position = np.searchsorted(written, read * count + when) - 1  # the last write before
        element, writer = np.divmod(written[position], count)
        late = np.flatnonzero((position >= 0) & (element == read))[::-1]
        first = np.full(count, count)
        first[writer[late]] = late  # of several readers the first stays
        stops = np.minimum(stops, first)
    cuts: Ints = np.minimum.accumulate(stops[::-1])[::-1]
    return cuts
