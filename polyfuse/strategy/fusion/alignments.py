"""Remember how the search for groups has fused two kernels: searches for one nest try the same pairs again.

    mac0, relu0 at i  ->  for i: { mac0; relu0 }, in mac0's place
    mac1, relu1 at i  ->  the same with other names

A nest is searched once for each doubtful group, and again for a machine whose kernels share one region. What `fuse`
makes of two kernels depends on these two alone (by identity: a tree is a value), and on whether anything between them
has to stay before the second, or behind the first. One kernel that has to stand for all of them: where it lets the two
be is legal for the others, too. So it depends on the form of at most four kernels, and the layers of a network are
fused once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

from polyfuse.ir import Nest, Violation
from polyfuse.ir.form import Form, dependences_of, form_of, names_between, renamed_tree
from polyfuse.ir.tree import Loop, Tree, parts, sequence
from polyfuse.rewrite.index_set_splitting import Pieces, pieces
from polyfuse.schedule import Schedule
from polyfuse.schedule.repeated import Renaming
from polyfuse.schedule.step import Step
from polyfuse.strategy.cost.roofline import Models
from polyfuse.strategy.fusion.kernel_line import KernelLine

Fused = Schedule | Violation | None

Key = tuple[object, ...]
"""The kernels by identity, then a statement of each and the innermost loop that they are to share."""


@dataclass(frozen=True)
class Found:
    """What was made of two kernels: one kernel and whether it is in the first one's place, a violation, or nothing.

    These kernels are kept alive, since they are known by identity.
    """

    kernels: tuple[Tree, ...]
    result: Tree | Violation | None
    early: bool = False
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class Run:
    """Two kernels, with what holds them apart between them, up to names: their form, one after the other.

    The dependences among them are written out where another run of this form is compared with it.
    """

    form: Form
    nest: Nest = field(compare=False)
    tree: Tree = field(compare=False)

    @staticmethod
    def of(nest: Nest, tree: Tree) -> Run:
        """Return the run of some kernels."""
        return Run(form_of(nest, tree), nest, tree)

    @cached_property
    def dependences(self) -> tuple[str, ...]:
        """The dependences among the statements of all, without names."""
        return dependences_of(self.nest, self.tree, self.form)


@dataclass(frozen=True)
class Pair:
    """Two kernels of a run, by the numbers of a statement of each, and the loop down to which they are to be fused."""

    run: Run
    asked: tuple[int, int, str]

    @staticmethod
    def of(run: Run, first: str, second: str, at: str) -> Pair:
        """Return the pair of which the kernel with `first` is to share loops down to `at` with `second`'s."""
        names = run.form.names
        return Pair(run, (names.index(first), names.index(second), at))


@dataclass(frozen=True)
class Ends:
    """The statements outside a kernel that it has to run behind, and those that have to run behind it, in order."""

    kernel: Tree
    sources: tuple[str, ...]
    sinks: tuple[str, ...]


Starts = tuple[Schedule, ...]
"""Schedules of the order as written, the first, and of its statements in other orders."""


@dataclass(frozen=True)
class Alignments:
    """What was made of pairs of kernels of one nest."""

    nest: Nest
    found: dict[Key, Found] = field(default_factory=dict)
    alike: dict[Pair, list[tuple[Pair, Found]]] = field(default_factory=dict)
    runs: dict[tuple[int, ...], Run] = field(default_factory=dict)
    ends: dict[int, Ends] = field(default_factory=dict)
    starts: dict[tuple[int, tuple[str, ...]], Starts] = field(default_factory=dict)
    refused: dict[tuple[object, ...], Found] = field(default_factory=dict)

    def fused(
        self,
        start: Schedule,
        line: KernelLine,
        first: str,
        second: str,
        at: str,
        make: Callable[[Schedule], Fused],
    ) -> Found:
        """Return the fusion of two kernels of a line, or its refusal, as found before, or else as `make` finds it.

        `make` is given the two by themselves, with those between them that hold them apart: what is legal for these is
        legal in place of the first, or of the second, and no step is as long as the network. The schedule is any of
        the nest's. A refusal of the verb's own is that of all statements in the two kernels and in the same loops.
        """
        places = sorted({line.places[first], line.places[second]})
        among = sorted({*places, *self._held(line, places[0], places[-1])})
        kernels = tuple(map(line.at, among))
        ids = tuple(map(id, kernels))
        key = (*ids, first, second, at)
        if key not in self.found:
            step = Step("fuse", (first, second), (("at", at),))
            question = ids, line.places[first] == places[0], _down_to(at, line.loops(first))
            if question in self.refused:
                self.found[key] = _asked_by(step, self.refused[question])
                return self.found[key]
            if ids not in self.runs:  # asked about at each depth
                self.runs[ids] = Run.of(self.nest, sequence(kernels))
            pair = Pair.of(self.runs[ids], first, second, at)
            equal = self._of_equal(pair, kernels)
            if equal is None:
                alone = by_itself(start, pair.run.tree)
                equal = made_of(alone, make(alone), kernels)
                self.alike.setdefault(pair, []).append((pair, equal))
            self.found[key] = equal
            if isinstance(equal.result, Violation) and equal.result.verb == str(step):
                self.refused[question] = equal
        return self.found[key]

    def reordered(self, start: Schedule, kernel: Tree, order: tuple[str, ...]) -> Found:
        """Return a kernel of one statement with its loops in another order, as found before if it was."""
        key = (id(kernel), order)
        if key not in self.found:
            alone = by_itself(start, kernel)
            self.found[key] = made_of(alone, alone.reorder(kernel.names[0], *order), (kernel,))
        return self.found[key]

    def _of_equal(self, pair: Pair, kernels: tuple[Tree, ...]) -> Found | None:
        """What was made of a pair that is equal up to names, with this one's; None if that is not known."""
        same_form = self.alike.get(pair, ())
        equal = next((one for one in same_form if one[0].run.dependences == pair.run.dependences), None)
        names = names_between(equal[0].run.form, pair.run.form) if equal is not None else None
        if equal is None or names is None:
            return None
        known = equal[1]
        if isinstance(known.result, Violation):
            own = {old: new for old, new in names.items() if old in self.nest.domains}
            return _refused_so(known.result, Renaming(own), kernels)
        if known.result is None:
            return Found(kernels, None)
        result = renamed_tree(known.result, lambda name: names.get(name, name))
        return Found(kernels, result, known.early, tuple(step.renamed(names) for step in known.steps))

    def _held(self, line: KernelLine, early: int, late: int) -> tuple[int, ...]:
        """The places of up to two kernels between two others: one runs before the second, one behind the first.

        A; B; C; D; E, given A -> C and B, D -> E    ->    B and C, for A and E

        The second kernel may be in the first one's place iff nothing between runs before it, and the first in the
        second's iff nothing runs behind it. Which of several does makes no difference but to the dependence that a
        refusal names: it is the first of the nest's. Parts of a reduction may go either way.
        """
        if late - early < 2:
            return ()
        home, every = line.places, (self._ends(line.at(late)).sources, self._ends(line.at(early)).sinks)
        first = (next((name for name in names if early < home[name] < late), None) for names in every)
        return tuple(home[name] for name in first if name is not None)

    def _ends(self, kernel: Tree) -> Ends:
        """The other ends of a kernel's dependences, found once."""
        if id(kernel) not in self.ends:
            inside, pairs = kernel.members, self.nest.pairs_in_order
            kept = [p for p in pairs.touching(inside) if p.kind != "reduction" and not p.is_empty]
            sources = dict.fromkeys(p.source for p in kept if p.sink in inside and p.source not in inside)
            sinks = dict.fromkeys(p.sink for p in kept if p.source in inside and p.sink not in inside)
            self.ends[id(kernel)] = Ends(kernel, tuple(sources), tuple(sinks))
        return self.ends[id(kernel)]

    def starts_of(self, start: Schedule, names: tuple[str, ...], make: Callable[[], Starts]) -> Starts:
        """The orders from which searches begin, as they were made before, or else as `make` does it.

        They are the same trees then, by which the kernels of earlier searches are known.
        """
        key = id(start.tree), names
        if key not in self.starts:
            self.starts[key] = make()
        return self.starts[key]


@dataclass(frozen=True)
class Searches:
    """What the searches for one plan have asked: models of nests on machines, and how pairs of kernels were fused."""

    models: Models = field(default_factory=Models)
    made: list[Alignments] = field(default_factory=list)
    parted: list[tuple[Nest, Pieces]] = field(default_factory=list)

    def alignments(self, nest: Nest) -> Alignments:
        """Those of a nest."""
        found = next((each for each in self.made if each.nest is nest), None)
        if found is None:
            found = Alignments(nest)
            self.made.append(found)
        return found

    def pieces(self, nest: Nest) -> Pieces:
        """A nest whose consumers run in pieces: the same one for each search."""
        found = next((made for known, made in self.parted if known is nest), None)
        if found is None:
            found = pieces(nest)
            self.parted.append((nest, found))
        return found


def _down_to(at: str, loops: tuple[Loop, ...]) -> tuple[int, ...]:
    """Loops down to one of a name, by identity: what a kernel that joins them there depends on."""
    names = [loop.name for loop in loops]
    return tuple(map(id, loops[: names.index(at) + 1]))


def _asked_by(step: Step, refused: Found) -> Found:
    """The refusal of a fusion of the same two kernels at the same loops, which other statements in these ask for."""
    assert isinstance(refused.result, Violation), "it was refused"
    return replace(refused, result=replace(refused.result, verb=str(step)))


def _refused_so(violation: Violation, renaming: Renaming, kernels: tuple[Tree, ...]) -> Found | None:
    """The violation in the words of an equal pair; None if a name is no more than a word."""
    if not all(re.search(r"\d", old) and renaming(old) == new for old, new in renaming.names.items()):
        return None
    source, sink = (
        replace(each, statement=renaming(each.statement)) for each in (violation.source, violation.sink)
    )
    verb, why, remedy = map(renaming, (violation.verb, violation.why, violation.remedy))
    return Found(kernels, replace(violation, verb=verb, source=source, sink=sink, why=why, remedy=remedy))


def by_itself(schedule: Schedule, part: Tree) -> Schedule:
    """Return a schedule of some kernels without the others."""
    return schedule.followed_by((), schedule.nest.by_itself(part), part)


def made_of(
    schedule: Schedule, made: Fused, kernels: tuple[Tree, ...], places: tuple[int, int] = (0, 1)
) -> Found:
    """Return the kernel that a verb made of those at two places of a schedule, or the verb's refusal.

    Args:
        schedule: The schedule before.
        made: The schedule with one kernel in place of two, or why there is none.
        kernels: What is kept alive.
        places: Those of the two.
    """
    if not isinstance(made, Schedule):
        return Found(kernels, made)
    old = set(map(id, parts(schedule.tree)))
    run = parts(made.tree)
    place = next((p for p, part in enumerate(run) if id(part) not in old), places[0])
    return Found(kernels, run[place], place == places[0], made.steps[len(schedule.steps) :])
