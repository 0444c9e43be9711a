"""Shape kernels that are equal up to names only once, such as the layers of a network.

    mac0 in blocks, w0 packed: decided and proven    ->    mac1, mac2, … in the same blocks, w1, w2, … packed

What is said about the first is said about the others, with their names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from polyfuse.analysis.once import constant_tensors
from polyfuse.ir import Nest
from polyfuse.ir.tree import Tree
from polyfuse.schedule import Schedule
from polyfuse.schedule.repeated import NOTHING, Alike, Done, Kinds, Renaming, Repeat, with_repeats
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.plan import Group

Shaped = tuple[Schedule, list[Group]]

Key = tuple[Alike, tuple[tuple[bool, bool, bool], ...]]
"""What the shape of a kernel depends on: all of it but names, and who else sees its tensors."""


@dataclass(frozen=True)
class Known:
    """What was made of the kernels of one nest that are equal up to names, and each kernel without names.

    Kernels are known by identity, and kept alive.
    """

    shapes: dict[Key, list[tuple[Done, list[Group]]]] = field(default_factory=dict)
    kernels: dict[int, tuple[Tree, Alike]] = field(default_factory=dict)

    def alike(self, nest: Nest, part: Tree) -> Alike:
        """The kernel without names, found once: searches leave most kernels as they were."""
        if id(part) not in self.kernels:
            self.kernels[id(part)] = part, Alike.of(nest, part)
        return self.kernels[id(part)][1]


@dataclass(frozen=True)
class Shapes:
    """What was made of the kernels of nests, for one machine and one set of options, in all searches for groups.

    A search without a doubtful group leaves the other kernels as they were, which then have their shapes.
    """

    made: list[tuple[Nest, Known]] = field(default_factory=list)

    def of(self, nest: Nest) -> Known:
        """Those of a nest; of another nest the model may think otherwise."""
        for known, shapes in self.made:
            if known is nest:
                return shapes
        self.made.append((nest, Known()))
        return self.made[-1][1]


@dataclass(frozen=True)
class Repeats:
    """The kernels planned so far. `fixed` are the tensors of constants alone, `users` each tensor's statements.

    Those in `waiting` have the shape of an earlier one and are put into the schedule together.
    """

    nest: Nest
    fixed: frozenset[str]
    users: dict[str, frozenset[str]]
    known: Known
    waiting: list[Repeat] = field(default_factory=list)

    @staticmethod
    def of(schedule: Schedule, counts: Counts, shapes: Shapes) -> Repeats:
        """For the kernels of this schedule, with the shapes that earlier searches gave them."""
        nest = schedule.nest
        return Repeats(nest, constant_tensors(nest, schedule.tree), counts.users, shapes.of(nest))

    def shaped(self, schedule: Schedule, part: Tree, make: Callable[[Schedule], Shaped]) -> Shaped:
        """The kernel as an equal one was shaped, which waits then, or else as `make` shapes it."""
        alike = self.known.alike(schedule.nest, part)
        form = alike.form
        key = alike, tuple(self._seen(name, part) for name in form.names if name in self.users)
        earlier = self.known.shapes.setdefault(key, [])
        taken = self._taken() if earlier else NOTHING
        for done, groups in earlier:
            found = done.again(schedule.nest, part, form, taken)
            if found is not None:
                repeat, renaming = found
                self.waiting.append(repeat)
                return schedule, [_renamed(group, renaming) for group in groups]
        before = self.finished(schedule)
        after, groups = make(before)
        earlier.append((Done(before, after, part, form), groups))
        return after, groups

    def finished(self, schedule: Schedule) -> Schedule:
        """The schedule with all that waits."""
        done = with_repeats(schedule, self.waiting)
        self.waiting.clear()
        return done

    def _taken(self) -> Kinds:
        """The names that what waits will add."""
        every = [repeat.added_by_kind for repeat in self.waiting]
        statements, tensors = (frozenset().union(*(names[kind] for names in every)) for kind in (0, 1))
        return statements, tensors

    def _seen(self, tensor: str, part: Tree) -> tuple[bool, bool, bool]:
        """Return three flags of a tensor: fixed; seen by the kernel alone; seen by the kernel and the caller only."""
        role, alone = self.nest.tensor(tensor).role, self.users[tensor] <= part.members
        return tensor in self.fixed, role == "temporary" and alone, role == "output" and alone


def _renamed(group: Group, renaming: Renaming) -> Group:
    remarks = (
        replace(each, statements=tuple(map(renaming, each.statements)), text=renaming(each.text))
        for each in group.remarks
    )
    return replace(group, statements=tuple(map(renaming, group.statements)), remarks=tuple(remarks))
