"""Repeat verbs on a part of a schedule that is equal to another up to names.

    mac0 in tiles, w0 packed    ->    mac1 in tiles, w1 packed, by the same steps with other names

The steps were proven where they were taken first, and their proofs are about the statements of that part and what they
depend on within it: with other names these are proofs about the other part. What lies outside stays before or behind
the part as it was. Nothing depends on this being right: every compile validates its finished tree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from polyfuse.ir.form import Form, form_of, numbered, renamed_statement, renamed_tree
from polyfuse.ir.nest import Nest
from polyfuse.ir.statement import Statement
from polyfuse.ir.tree import Tree, parts, sequence
from polyfuse.schedule.schedule import Schedule
from polyfuse.schedule.step import Step

T = TypeVar("T")


@dataclass(frozen=True)
class Alike:
    """The parts of a schedule that must be equal up to names: the tree, the original order, and the dependences."""

    form: Form
    written: tuple[Form, ...]
    places: tuple[tuple[int, ...], ...]
    pairs: tuple[str, ...]

    @staticmethod
    def of(nest: Nest, part: Tree) -> Alike:
        """Return the key of one part of a schedule's tree."""
        form, own = form_of(nest, part), part.members
        numbers = {name: number for number, name in enumerate(form.names)}
        written = [each for each in parts(nest.order) if own & each.members]
        pairs = nest.dependences().among(own)
        return Alike(
            form,
            tuple(form_of(nest, each) for each in written),
            tuple(tuple(numbers.get(name, -1) for name in each.names) for each in written),
            tuple(sorted(f"{p.kind} {numbered(str(p.map), numbers)}" for p in pairs)),
        )


@dataclass(frozen=True)
class Renaming:
    """New names for old ones, in names made of them too: w0 -> w1 makes pack_w0 pack_w1."""

    names: Mapping[str, str]

    def __call__(self, text: str) -> str:
        """A name, or a sentence, with the new names.

        >>> Renaming({"w0": "w1", "a": "b"})("pack_w0: a panel of w0, not of w00")
        'pack_w1: b panel of w1, not of w00'
        """
        if not self.names:
            return text
        return self._either.sub(lambda found: self.names[found[1]], text)

    @cached_property
    def _either(self) -> re.Pattern[str]:
        """Any of the old names, as a word or between underscores."""
        either = "|".join(map(re.escape, self.names))
        return re.compile(rf"(?<![^\W_])({either})(?![^\W_])")

    def step(self, step: Step) -> Step:
        """A verb with its arguments by the new names."""
        args, options = (self._value(value) for value in (step.args, step.options))
        assert isinstance(args, tuple)
        assert isinstance(options, tuple)
        return Step(step.verb, args, options)

    def _value(self, value: object) -> object:
        if isinstance(value, tuple):
            return tuple(self._value(each) for each in value)
        return self(value) if isinstance(value, str) else value


@dataclass(frozen=True)
class Done:
    """Verbs that were taken on a part: the schedule before and after, and the part's form."""

    before: Schedule
    after: Schedule
    part: Tree
    form: Form

    def again(self, schedule: Schedule, part: Tree, form: Form) -> tuple[Schedule, Renaming] | None:
        """The same on another part that is alike; None if it is not sure which names the verbs would give.

        Names that change have to have a number: x would be a word of a sentence, or a part of another name.
        """
        theirs = dict(zip(self.form.names, form.names, strict=True))
        renaming = Renaming({old: new for old, new in theirs.items() if old != new})
        dims = (dim for name in self.part.names for dim in self.before.nest.statement(name).dims)
        wanted = theirs | {word: word for word in (*self.form.loops, *dims)}
        clear = all(renaming(old) == new for old, new in wanted.items())
        if (
            form.loops != self.form.loops
            or not clear
            or not all(re.search(r"\d", old) for old in renaming.names)
        ):
            return None
        made, nest = self._made(), self._nest(schedule.nest, part, renaming)
        if made is None or nest is None:
            return None
        new = tuple(renamed_tree(each, renaming) for each in made)
        run = (one for each in parts(schedule.tree) for one in (new if each is part else (each,)))
        steps = (renaming.step(step) for step in self.after.steps[len(self.before.steps) :])
        return schedule.followed_by(tuple(steps), nest, sequence(tuple(run))), renaming

    def _made(self) -> tuple[Tree, ...] | None:
        """Return the part's new tree; None if other parts changed too."""
        old, new = parts(self.before.tree), parts(self.after.tree)
        at = next(p for p, each in enumerate(old) if each is self.part)
        behind = len(old) - at - 1
        others, kept = (*old[:at], *old[at + 1 :]), (*new[:at], *new[len(new) - behind :])
        same = len(others) == len(kept) and all(a is b for a, b in zip(others, kept, strict=True))
        return new[at : len(new) - behind] if same else None

    def _nest(self, nest: Nest, part: Tree, renaming: Renaming) -> Nest | None:
        """The nest with the copies that the verbs add to it."""
        before, after = self.before.nest, self.after.nest
        if after is before:
            return nest
        old = {t.name for t in before.tensors} | {s.name for s in before.statements}
        copies = [s for s in after.statements if s.name not in old]
        buffers = [t for t in after.tensors if t.name not in old]
        added = [*(renaming(s.name) for s in copies), *(renaming(t.name) for t in buffers)]
        taken = {t.name for t in nest.tensors} | {s.name for s in nest.statements}
        if len({*added} - taken) < len(added) or any(re.search(r"_\d+$", name) for name in added):
            return None
        inside = self.part.members | {s.name for s in copies}
        new = [renamed_statement(s, renaming) for s in after.statements if s.name in inside]
        order = [renamed_tree(each, renaming) for each in parts(after.order) if inside & each.members]
        if any(
            each.members & part.members and not each.members <= part.members for each in parts(nest.order)
        ):
            return None
        every = _in_place(nest.statements, lambda s: {s.name} & part.members, new)
        written = _in_place(parts(nest.order), lambda each: each.members & part.members, order)
        if every is None or written is None:
            return None
        tensors = (*nest.tensors, *(replace(t, name=renaming(t.name)) for t in buffers))
        touched = frozenset(map(renaming, _touched(before, after, inside)))
        return nest.rewritten(tensors, every, sequence(written), touched)


def _in_place(
    run: Sequence[T], own: Callable[[T], Collection[str]], new: Sequence[T]
) -> tuple[T, ...] | None:
    """A run with the elements that have names of one's own replaced by the new ones that have these; what has none of
    them stays before what it was before in `new`. None if names are together in one and apart in the other.
    """
    chunks: dict[frozenset[str], list[T]] = {}
    chunk: list[T] = []
    for each in new:
        chunk = [*chunk, each]
        if own(each):
            chunks[frozenset(own(each))], chunk = chunk, []
    if chunk:
        last = next(reversed(chunks))
        chunks[last] = [*chunks[last], *chunk]
    if any(own(each) and frozenset(own(each)) not in chunks for each in run):
        return None
    return tuple(one for each in run for one in (chunks.get(frozenset(own(each)), (each,))))


def _touched(before: Nest, after: Nest, inside: frozenset[str]) -> frozenset[str]:
    """The tensors that some statements access otherwise than before."""
    old = {s.name: s for s in before.statements}
    found = (
        s.tensors if s.name not in old else _moved(old[s.name], s)
        for s in after.statements
        if s.name in inside
    )
    return frozenset(tensor for tensors in found for tensor in tensors)


def _moved(old: Statement, new: Statement) -> tuple[str, ...]:
    pairs = zip(old.accesses, new.accesses, strict=True)
    return tuple(access.tensor for pair in pairs if pair[0] is not pair[1] for access in pair)
