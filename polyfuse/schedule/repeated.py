"""Repeat verbs on a part of a schedule that is equal to another up to names.

    mac0 in tiles, w0 packed    ->    mac1 in tiles, w1 packed, by the same steps with other names

The steps were proven where they were taken first, and their proofs are about the statements of that part and what they
depend on within it: with other names these are proofs about the other part. What lies outside stays before or behind
the part as it was. Nothing depends on this being right: every compile validates its finished tree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from polyfuse.ir.form import Form, dependences_of, form_of, renamed_statement, renamed_tree
from polyfuse.ir.nest import Nest
from polyfuse.ir.statement import Statement
from polyfuse.ir.tensor import Tensor
from polyfuse.ir.tree import Tree, parts, parts_with, sequence
from polyfuse.schedule.schedule import Schedule
from polyfuse.schedule.step import Step

T = TypeVar("T")

Kinds = tuple[frozenset[str], frozenset[str]]
"""Names of statements, and names of tensors: either may be called like one of the others."""

NOTHING: Kinds = (frozenset(), frozenset())
"""No names."""


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
        form = form_of(nest, part)
        numbers = {name: number for number, name in enumerate(form.names)}
        written = parts_with(nest.order, part.members)
        return Alike(
            form,
            tuple(form_of(nest, each) for each in written),
            tuple(tuple(numbers.get(name, -1) for name in each.names) for each in written),
            dependences_of(nest, part, form),
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
class Repeat:
    """The verbs on another part, which wait to be put into a schedule, with what else becomes one.

    Attributes:
        part: The part as it is.
        new: What it becomes.
        steps: The verbs.
        statements: What takes the place of statements in the nest, by their names.
        written: What takes the place of parts of the nest's order, by their statements' names.
        buffers: The tensors that the verbs add.
        touched: The tensors that statements access otherwise.
    """

    part: Tree
    new: tuple[Tree, ...]
    steps: tuple[Step, ...]
    statements: Mapping[frozenset[str], tuple[Statement, ...]]
    written: Mapping[frozenset[str], tuple[Tree, ...]]
    buffers: tuple[Tensor, ...]
    touched: frozenset[str]

    @property
    def added(self) -> frozenset[str]:
        """The names of the statements and tensors that the nest does not have yet."""
        return frozenset().union(*self.added_by_kind)

    @cached_property
    def added_by_kind(self) -> Kinds:
        """The names of the statements that the nest does not have yet, and those of the tensors."""
        names = (s.name for run in self.statements.values() for s in run)
        return frozenset(names).difference(*self.statements), frozenset(t.name for t in self.buffers)


def with_repeats(schedule: Schedule, repeats: Sequence[Repeat]) -> Schedule:
    """The schedule with verbs repeated on several parts at once: its nest is made anew once, not once a part."""
    if not repeats:
        return schedule
    new = {id(repeat.part): repeat.new for repeat in repeats}
    run = (one for part in parts(schedule.tree) for one in new.get(id(part), (part,)))
    steps = tuple(step for repeat in repeats for step in repeat.steps)
    nest = schedule.nest
    if any(repeat.statements for repeat in repeats):
        every = {key: value for repeat in repeats for key, value in repeat.statements.items()}
        written = {key: value for repeat in repeats for key, value in repeat.written.items()}
        nest = nest.rewritten(
            (*nest.tensors, *(buffer for repeat in repeats for buffer in repeat.buffers)),
            tuple(one for s in nest.statements for one in every.get(frozenset({s.name}), (s,))),
            sequence(tuple(one for each in parts(nest.order) for one in written.get(each.members, (each,)))),
            frozenset().union(*(repeat.touched for repeat in repeats)),
        )
    return schedule.followed_by(steps, nest, sequence(tuple(run)))


@dataclass(frozen=True)
class Done:
    """Verbs that were taken on a part: the schedule before and after, and the part's form."""

    before: Schedule
    after: Schedule
    part: Tree
    form: Form

    def again(
        self, nest: Nest, part: Tree, form: Form, taken: Kinds = NOTHING
    ) -> tuple[Repeat, Renaming] | None:
        """The same on another part that is alike; None if it is not sure which names the verbs would give.

        Names that change have to have a number: x would be a word of a sentence, or a part of another name. Names that
        are `taken` will be in the nest before it.
        """
        if id(part) not in self._again:  # asked by each search that leaves the part as it is
            self._again[id(part)] = part, self._repeated(nest, part, form)
        found = self._again[id(part)][1]
        if found is None:
            return None
        repeat, renaming = found
        alike = self._numbered_alike(nest, renaming, repeat.added_by_kind, taken)
        return found if alike and repeat.added.isdisjoint(nest.names.union(*taken)) else None

    def _repeated(self, nest: Nest, part: Tree, form: Form) -> tuple[Repeat, Renaming] | None:
        """The same on another part that is alike, if it gets the names that renaming gives."""
        theirs = dict(zip(self.form.names, form.names, strict=True))
        renaming = Renaming({old: new for old, new in theirs.items() if old != new})
        dims = (dim for name in self.part.names for dim in self.before.nest.statement(name).dims)
        wanted = theirs | {word: word for word in (*self.form.loops, *dims)}
        clear = all(renaming(old) == new for old, new in wanted.items())
        if (
            form.loops != self.form.loops
            or not clear
            or not all(re.search(r"\d", old) for old in renaming.names)
            or self._made is None
        ):
            return None
        new = tuple(renamed_tree(each, renaming) for each in self._made)
        steps = tuple(renaming.step(step) for step in self.after.steps[len(self.before.steps) :])
        if self.after.nest is self.before.nest:
            return Repeat(part, new, steps, {}, {}, (), frozenset()), renaming
        found = self._in_nest(nest, part, renaming)
        if found is None:
            return None
        repeat = Repeat(part, new, steps, *found)
        copies, buffers = self._added
        return (repeat, renaming) if len(copies) + len(buffers) == len(repeat.added) else None

    @cached_property
    def _again(self) -> dict[int, tuple[Tree, tuple[Repeat, Renaming] | None]]:
        """A cache by the parts' identities, which are kept alive beside it."""
        return {}

    @cached_property
    def _made(self) -> tuple[Tree, ...] | None:
        """The part's new tree; None if other parts changed too."""
        old, new = parts(self.before.tree), parts(self.after.tree)
        at = next(p for p, each in enumerate(old) if each is self.part)
        behind = len(old) - at - 1
        others, kept = (*old[:at], *old[at + 1 :]), (*new[:at], *new[len(new) - behind :])
        same = len(others) == len(kept) and all(a is b for a, b in zip(others, kept, strict=True))
        return new[at : len(new) - behind] if same else None

    @cached_property
    def _added(self) -> tuple[tuple[Statement, ...], tuple[Tensor, ...]]:
        """The statements and the tensors that the verbs add to the nest."""
        old, after = self.before.nest.names, self.after.nest
        copies = tuple(s for s in after.statements if s.name not in old)
        return copies, tuple(t for t in after.tensors if t.name not in old)

    def _numbered_alike(self, nest: Nest, renaming: Renaming, added: Kinds, taken: Kinds) -> bool:
        """True if each added name with a number that it has because others were taken gets this number here, too.

        The weights that a backward pass packs again are pack_w0_2 where there is a pack_w0, and pack_w1_2 where there
        is a pack_w1. In pack_arg7_1 the number belongs to the tensor arg7_1.
        """
        copies, buffers = self._added
        made = [s.name for s in copies], [t.name for t in buffers]
        for names, there, *here in zip(
            made, _kinds(self.after.nest), _kinds(nest), added, taken, strict=True
        ):
            for name in names:
                number = re.fullmatch(r"(.+)_(\d+)", name)
                if number is None or number[1] not in there:
                    continue
                word, last = renaming(number[1]), int(number[2])
                before = {word, *(f"{word}_{n}" for n in range(2, last))}
                if renaming(name) != f"{word}_{last}" or not before <= frozenset().union(*here):
                    return False
        return True

    @cached_property
    def _own(self) -> tuple[tuple[Statement, ...], tuple[Tree, ...], frozenset[str]]:
        """Of the nest after the verbs what belongs to the part: statements, parts of the order, tensors touched."""
        before, after = self.before.nest, self.after.nest
        inside = self.part.members | {s.name for s in self._added[0]}
        own = tuple(s for s in after.statements if s.name in inside)
        return own, parts_with(after.order, inside), _touched(before, after, inside)

    def _in_nest(self, nest: Nest, part: Tree, renaming: Renaming) -> InNest | None:
        """What takes the place of the part's statements in the nest; None if it is not sure what does."""
        inside, (own, order, touched) = part.members, self._own
        old = parts_with(nest.order, inside)
        if any(not each.members <= inside for each in old):
            return None
        every = _in_place([renamed_statement(s, renaming) for s in own], lambda s: inside & {s.name})
        written = _in_place([renamed_tree(each, renaming) for each in order], lambda e: inside & e.members)
        if any(frozenset({name}) not in every for name in inside):
            return None
        if any(each.members not in written for each in old):
            return None
        buffers = tuple(replace(t, name=renaming(t.name)) for t in self._added[1])
        return every, written, buffers, frozenset(map(renaming, touched))


def _kinds(nest: Nest) -> Kinds:
    return frozenset(s.name for s in nest.statements), frozenset(t.name for t in nest.tensors)


InNest = tuple[
    Mapping[frozenset[str], tuple[Statement, ...]],
    Mapping[frozenset[str], tuple[Tree, ...]],
    tuple[Tensor, ...],
    frozenset[str],
]
"""The last fields of a `Repeat`."""


def _in_place(new: Sequence[T], own: Callable[[T], frozenset[str]]) -> dict[frozenset[str], tuple[T, ...]]:
    """What takes the place of what has some names: the element with these, behind those before it that have none."""
    chunks: dict[frozenset[str], tuple[T, ...]] = {}
    chunk: tuple[T, ...] = ()
    for each in new:
        chunk = (*chunk, each)
        if own(each):
            chunks[own(each)], chunk = chunk, ()
    if chunk:
        last = next(reversed(chunks))
        chunks[last] = (*chunks[last], *chunk)
    return chunks


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
    """The tensors of accesses that only one of them has: a value of several reads is one read once it is packed."""
    before, after = ({id(access) for access in s.accesses} for s in (old, new))
    both = before & after
    return tuple(access.tensor for s in (old, new) for access in s.accesses if id(access) not in both)
