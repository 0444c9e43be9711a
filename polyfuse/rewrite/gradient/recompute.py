"""Compute values of the forward pass again, where the backward pass reads them.

    F: a[i] = f(x[i]);  …;  B: x_bar[i] += y_bar[i] * a[i]
    ->  F: a[i] = f(x[i]);  …;  F_again: a_again[i] = f(x[i]);  B: x_bar[i] += y_bar[i] * a_again[i]

The theorem. Let C be some temporaries, and let no statement overwrite what the writers of C read of other tensors. Then
these statements, run again on copies of C in their order, leave in the copies what they left in C. Each value that is
computed again has copies of its own, which live from there to its last reader.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.tree import Loop, Sequence, Tree, parts, restrict, sequence
from polyfuse.rewrite.gradient.draft import onto
from polyfuse.rewrite.gradient.lifetimes import Lifetimes
from polyfuse.sets import IN


@dataclass(frozen=True)
class Passes:
    """A nest that has a forward pass and a backward pass.

    Attributes:
        nest: The nest.
        forward: The statements of the forward pass.
    """

    nest: Nest
    forward: frozenset[str]

    @cached_property
    def kept(self) -> tuple[str, ...]:
        """The temporaries of the forward pass that the backward pass reads, in their order."""
        behind = [s for s in self.nest.statements if s.name not in self.forward]
        read = {access.tensor for s in behind for access in s.reads}
        written = {s.write.tensor for s in self.nest.statements if s.name in self.forward}
        return tuple(t.name for t in self.nest.with_role("temporary") if t.name in read & written)

    @cached_property
    def _lives(self) -> Lifetimes:
        return Lifetimes(self.nest)

    def again(self, tensor: str, stored: Collection[str]) -> tuple[Statement, ...] | None:
        """The statements that compute a tensor again from stored ones and inputs; None if a value they read is lost."""
        needed, found = {tensor}, dict[str, Statement]()
        while True:
            more = {
                s.name: s
                for s in self.nest.statements
                if s.name in self.forward and s.write.tensor in needed and s.name not in found
            }
            if not more:
                break
            found |= more
            for s in more.values():
                for name in {access.tensor for access in s.reads} - needed:
                    if self.nest.tensor(name).role == "temporary" and name not in stored:
                        needed.add(name)
        for s in found.values():
            outside = {access.tensor for access in s.reads} - needed
            if any(not self._lives.survives(s.name, name) for name in outside):
                return None
        return tuple(s for s in self.nest.statements if s.name in found)


def numbers_alone(passes: Passes) -> tuple[str, ...]:
    """The kept tensors that are functions of single numbers and places, such as random ones: they need no reads."""

    def alone(name: str) -> bool:
        if not any(
            name == a.tensor for s in passes.nest.statements if s.name in passes.forward for a in s.reads
        ):
            return False  # it is computed for the backward pass only
        writers = passes.nest.writers(name)
        reads = {access.tensor for s in writers for access in s.reads}
        return (
            passes.nest.tensor(name).rank > 0
            and all(not s.is_reduction and s.name in passes.forward for s in writers)
            and all(passes.nest.tensor(one).rank == 0 for one in reads)
        )

    return tuple(name for name in passes.kept if alone(name))


def recomputed(passes: Passes, tensors: Collection[str]) -> Nest:
    """Return the nest whose backward pass computes some kept tensors again, from those that stay kept and inputs.

    Args:
        passes: The nest and its forward pass.
        tensors: Kept tensors, each of which `Passes.again` knows how to compute.

    Returns:
        The nest.
    """
    nest = passes.nest
    stored = [name for name in passes.kept if name not in tensors]
    taken, called = {t.name for t in nest.tensors}, set(nest.names)
    made_tensors, made, before = [], list[Statement](), dict[int, list[Tree]]()
    moved: dict[str, str] = {}
    run = parts(nest.order)
    for tensor in [name for name in passes.kept if name in tensors]:
        again = passes.again(tensor, stored)
        assert again is not None, "asked before"
        copies: dict[str, str] = {}
        for name in dict.fromkeys(s.write.tensor for s in again):
            copies[name] = fresh(f"{name}_again", taken)
            taken.add(copies[name])
            made_tensors.append(replace(nest.tensor(name), name=copies[name]))
        names: dict[str, str] = {}
        for s in again:
            names[s.name] = fresh(f"{s.name}_again", called)
            called.add(names[s.name])
            made.append(_renamed(s, names[s.name], copies))
        order = restrict(nest.order, frozenset(names))
        assert order is not None, "a kept tensor is written"
        moved[tensor] = copies[tensor]
        first = next(p for p, part in enumerate(run) if _reads(passes, part, tensor))
        before.setdefault(first, []).append(_tree(order, names, {s.name: s for s in made}))
    every = [s if s.name in passes.forward else _reading(s, moved) for s in nest.statements]
    trees = [tree for p, part in enumerate(run) for tree in (*before.get(p, ()), part)]
    inside = [t for t in nest.tensors if t.role != "output"]
    results = [t for t in nest.tensors if t.role == "output"]
    return _without_unread(
        replace(
            nest,
            tensors=(*inside, *made_tensors, *results),
            statements=(*every, *made),
            order=sequence(tuple(trees)),
        )
    )


def _without_unread(nest: Nest) -> Nest:
    """The nest without temporaries that nothing reads, and without what computes them."""
    while True:
        read = {access.tensor for s in nest.statements for access in s.reads}
        gone = {t.name for t in nest.with_role("temporary") if t.name not in read}
        kept = [s for s in nest.statements if s.write.tensor not in gone]
        if not gone:
            return nest
        order = restrict(nest.order, frozenset(s.name for s in kept))
        assert order is not None, "results are written"
        tensors = tuple(t for t in nest.tensors if t.name not in gone)
        nest = replace(nest, tensors=tensors, statements=tuple(kept), order=order)


def _reads(passes: Passes, part: Tree, tensor: str) -> bool:
    """True if the backward pass reads a tensor in a part."""
    behind = [passes.nest.statement(name) for name in part.names if name not in passes.forward]
    return any(access.tensor == tensor for s in behind for access in s.reads)


def _reading(s: Statement, moved: Mapping[str, str]) -> Statement:
    """The statement, reading copies."""
    return replace(s, reads=tuple(onto(a, moved.get(a.tensor, a.tensor)) for a in s.reads))


def _renamed(s: Statement, name: str, copies: Mapping[str, str]) -> Statement:
    """The statement on copies of what it reads and writes."""

    def of(access: Access) -> Access:
        found = onto(access, copies.get(access.tensor, access.tensor))
        return Access(found.tensor, found.map.set_tuple_name(IN, name))

    reads = tuple(map(of, s.reads))
    return replace(s, name=name, domain=s.domain.set_tuple_name(name), write=of(s.write), reads=reads)


def _tree(tree: Tree, names: Mapping[str, str], made: Mapping[str, Statement]) -> Tree:
    """A part of the order around the statements by their new names."""
    match tree:
        case Loop():
            dates = tuple(
                (names[name], date.set_tuple_id(IN, made[names[name]].domain.get_tuple_id()))
                for name, date in tree.dates
            )
            return replace(tree, dates=dates, body=_tree(tree.body, names, made))
        case Sequence():
            return sequence(tuple(_tree(child, names, made) for child in tree.children))
    return replace(tree, statement=names[tree.statement])
