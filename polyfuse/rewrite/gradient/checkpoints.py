"""Reverse a time loop in segments: keep its state at the begin of each, and run a segment again before its adjoint.

    for t: X[i] = f(X[i])                                 forward: every value that a derivative reads is kept
    ->  for t: { at t = S * c: point[c, i] = X[i];  X[i] = f(X[i]) }
        for c, backwards:
            X_again[i] = point[c, i]
            for t in segment c: { kept[t - S * c, i] = X_again[i];  X_again[i] = f(X_again[i]) }
            for t in segment c, backwards: X_bar[i] = X_bar[i] * f'(kept[t - S * c, i])

The theorem. A segment of the loop is a map of memory to memory. Its arguments are the elements that it reads before it
writes them, and what the loop only reads. Where no statement overwrites the latter, running the segment again on copies
that hold the former leaves in the copies what it left in the arrays. The adjoint of the loop is that of its segments in
reversed order (Griewank and Walther, Evaluating Derivatives, section 12: checkpoints of one level).

For `count` segments of `steps` iterations, values are kept for `steps` iterations and states for `count` segments,
instead of values for all iterations: with steps = sqrt(iterations) that is about 2 * sqrt(iterations) instead. Each
iteration runs once more.

A segment is reversed by its number, a parameter of isl; `embed` then makes it the outermost dimension of what was made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import islpy as isl

from polyfuse.ir import Access, Nest, Statement, Tensor
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.nest import own_loops
from polyfuse.ir.scalar import read
from polyfuse.ir.tree import Leaf, Loop, Tree, date_map, parts, sequence
from polyfuse.ir.tree import Sequence as Siblings
from polyfuse.rewrite.gradient.draft import Draft, onto
from polyfuse.rewrite.gradient.lifetimes import Lifetimes
from polyfuse.rewrite.gradient.stored import Stored, for_any
from polyfuse.rewrite.refusal import check_legal, refused
from polyfuse.sets import IN, OUT, PARAM, SET, dim_names, dimension, least_and_most

Checkpoints = int | Literal["auto"]
"""How many segments a time loop is cut in; "auto" is the number that needs the fewest bytes."""


@dataclass(frozen=True)
class TimeLoop:
    """An outermost loop whose values are known numbers.

    Attributes:
        part: Its position in the nest's order.
        first: Its first value.
        iterations: How many values it has.
    """

    part: int
    first: int
    iterations: int


@dataclass(frozen=True)
class Cut:
    """A time loop that runs in segments, in the nest that came of it.

    Attributes:
        loop: The loop's name.
        count: The number of segments.
        points: The arrays that keep the states.
        kept: The arrays that the backward pass fills for one segment after the other.
        forward: The loop's statements, which run once more.
    """

    loop: str
    count: int
    points: tuple[str, ...]
    kept: tuple[str, ...]
    forward: tuple[str, ...]


@dataclass(frozen=True)
class Segments:
    """A time loop cut in segments.

    Attributes:
        whole: The nest with the whole loop.
        loop: The loop.
        steps: The iterations of a segment; the last may have fewer.
        number: The parameter that numbers the segments, and the dimension that it becomes.
    """

    whole: Nest
    loop: TimeLoop
    steps: int
    number: str

    @staticmethod
    def of(nest: Nest, loop: TimeLoop, steps: int) -> Segments:
        """Cut a time loop of a nest in segments of so many iterations."""
        taken = set(nest.params) | nest.names | {name for s in nest.statements for name in s.dims}
        return Segments(nest, loop, steps, fresh("segment", taken))

    @property
    def count(self) -> int:
        """The number of segments."""
        return -(-self.loop.iterations // self.steps)

    @property
    def tree(self) -> Loop:
        """The loop in the nest's order."""
        found = parts(self.whole.order)[self.loop.part]
        assert isinstance(found, Loop), "a time loop"
        return found

    @cached_property
    def one(self) -> Nest:
        """The nest with one segment of the loop, whose number is a parameter."""
        limited = tuple(
            replace(s, domain=self._within(s)) if s.name in self.tree.members else s
            for s in self.whole.statements
        )
        numbers = isl.Set(f"[{self.number}] -> {{ : 0 <= {self.number} < {self.count} }}")
        return replace(self.whole, statements=limited, context=self.whole.context.intersect(numbers))

    def _within(self, s: Statement) -> isl.Set:
        """The instances of a statement that belong to the segment."""
        begin = self._begin(s)
        date = self.tree.date(s.name)
        end = begin.add_constant_val(isl.Val(self.steps))
        return s.domain.intersect(date.ge_set(begin)).intersect(date.lt_set(end))

    def _begin(self, s: Statement) -> isl.PwAff:
        """The loop's first value in the segment, as a function of a statement's instances."""
        dims = ", ".join(s.dims)
        return isl.PwAff(
            f"[{self.number}] -> {{ {s.name}[{dims}] -> [({self.steps} * {self.number} + {self.loop.first})] }}"
        )

    @cached_property
    def lives(self) -> Lifetimes:
        """What the whole nest overwrites."""
        return Lifetimes(self.whole)

    @cached_property
    def rerun(self) -> frozenset[str]:
        """The tensors that the loop writes and whose values are lost: a segment that runs again has copies of them."""
        written = {self.whole.statement(name).write.tensor for name in self.tree.members}
        return frozenset(name for name in written if not self.lives.settled(name))

    @property
    def why_not(self) -> str | None:
        """Why a segment cannot run again: a value that it reads is lost; None if it can."""
        for name in self.tree.names:
            s = self.whole.statement(name)
            for access in s.reads:
                lost = access.tensor not in self.rerun and not self.lives.survives(name, access.tensor)
                if lost:
                    return f"{name} reads {access.tensor}, which is overwritten after the loop"
        return None

    @cached_property
    def state(self) -> Mapping[str, isl.Set]:
        """The elements of each of `rerun` that a segment reads before it writes them."""
        found: dict[str, isl.Set] = {}
        pairs = self.whole.dependences().pairs
        for name in self.tree.names:
            s = self.one.statement(name)
            for access in (*((s.write,) if s.is_reduction else ()), *s.reads):
                if access.tensor not in self.rerun:
                    continue
                left = self.one.domains[name]
                for pair in pairs:
                    source = self.one.statement(pair.source)
                    if (
                        pair.kind in ("flow", "reduction")
                        and pair.sink == name
                        and pair.source in self.tree.members
                        and source.write.tensor == access.tensor
                    ):
                        same = source.write.map.apply_range(access.map.reverse())
                        inside = pair.map.intersect(same).intersect_domain(self.one.domains[source.name])
                        left = left.subtract(inside.range())
                elements = left.apply(access.map).coalesce()
                if not elements.is_empty():
                    known = found.get(access.tensor)
                    found[access.tensor] = elements if known is None else known.union(elements).coalesce()
        return found


def cut(call: str, nest: Nest, stored: Stored, checkpoints: Checkpoints) -> Segments:
    """Cut the time loop that keeps the most values in so many segments.

    The number "auto" is the one by which arrays need the fewest bytes: n states of s bytes and values of an nth of k
    bytes are least for n = sqrt(k / s).

    Args:
        call: The function that was called, for errors.
        nest: The nest.
        stored: The copies that its derivatives ask for.
        checkpoints: The number of segments.

    Returns:
        The loop in segments.

    Raises:
        IllegalRewrite: if no loop of known iterations keeps values, or a segment cannot run again.
    """
    kept: dict[int, int] = {}
    found = {loop.part: loop for loop in time_loops(nest)}
    for position, part in enumerate(parts(nest.order)):
        sizes = [
            _bytes(stored.draft.tensors[one.access.tensor])
            for (name, _), one in stored.kept.items()
            if name in part.members
        ]
        if sizes and position in found:
            kept[position] = sum(sizes)
    title = f"{call} of {nest.name} with checkpoints"
    if not kept:
        why = "no loop of a known number of iterations keeps values that it overwrites"
        check_legal(refused(title, why, "sizes as numbers (`with_sizes`), or no checkpoints"))
    loop = found[max(kept, key=lambda position: kept[position])]
    segments = Segments.of(nest, loop, loop.iterations)
    state = sum(_bytes(nest.tensor(name)) for name in segments.rerun)
    least = max(1, round(math.sqrt(kept[loop.part] / max(1, state))))
    count = min(loop.iterations, least if checkpoints == "auto" else checkpoints)
    segments = replace(segments, steps=-(-loop.iterations // count))
    if segments.why_not is not None:
        check_legal(refused(title, segments.why_not, "no checkpoints"))
    return segments


def time_loops(nest: Nest) -> tuple[TimeLoop, ...]:
    """The outermost loops of a nest that run several statements or instances in order, of known numbers of values."""
    found = []
    for position, part in enumerate(parts(nest.order)):
        if not isinstance(part, Loop):
            continue
        ends = [_range(part.date(name), nest.domains[name]) for name in part.names]
        known = [one for one in ends if one is not None]
        if len(known) == len(ends):
            first, last = min(low for low, _ in known), max(high for _, high in known)
            found.append(TimeLoop(position, first, last - first + 1))
    return tuple(found)


def _range(date: isl.PwAff, domain: isl.Set) -> tuple[int, int] | None:
    """The least and the largest value of a loop for a statement; None if they are no numbers."""
    low, high = least_and_most(date, domain)
    return (int(low.to_python()), int(high.to_python())) if low.is_int() and high.is_int() else None


def _bytes(tensor: Tensor) -> int:
    """The size of a tensor; an extent that is a symbol counts as 1."""
    return tensor.itemsize * math.prod(size for size in tensor.shape if isinstance(size, int))


class Replay:
    """The statements that save a loop's states, and those that run its segments again."""

    def __init__(self, segments: Segments, draft: Draft) -> None:
        self.segments, self.draft = segments, draft
        nest = segments.whole
        self.again = {
            name: draft.tensor(
                f"{name}_again", nest.tensor(name).shape, nest.tensor(name).dtype, "temporary"
            ).name
            for name in sorted(segments.rerun)
        }
        self.points = {
            name: draft.tensor(
                f"{name}_point",
                (segments.count, *nest.tensor(name).shape),
                nest.tensor(name).dtype,
                "temporary",
            ).name
            for name in segments.state
        }

    @property
    def texts(self) -> tuple[str, ...]:
        """A line for each checkpoint."""
        one = self.segments
        return tuple(
            f"{name} is kept every {one.steps} iterations of {one.tree.name}, in {self.draft.tensors[point]}, from "
            f"which {one.count} segments run again"
            for name, point in self.points.items()
        )

    def cut(self, stored: Stored) -> Cut:
        """What the loop became, by the names of its arrays."""
        one = self.segments
        kept = [copy.access.tensor for (name, _), copy in stored.kept.items() if name in one.tree.members]
        arrays = (*self.again.values(), *kept)
        return Cut(one.tree.name, one.count, tuple(self.points.values()), arrays, one.tree.names)

    def forward(self) -> Tree:
        """The loop, which saves its state where a segment begins."""
        one, loop = self.segments, self.segments.tree
        saves, dates = [], list(loop.dates)
        for name in self.points:
            made = self._moved(f"save_{name}", name, name, self.points[name], saving=True)
            saves.append(own_loops(made, 1))
            begin = dimension(made.domain, 0).scale_val(isl.Val(one.steps))
            dates.append((made.name, begin.add_constant_val(isl.Val(one.loop.first))))
        return replace(loop, dates=tuple(dates), body=sequence((*saves, loop.body)))

    def backward(self, copies: Mapping[str, Sequence[Statement]], adjoints: Sequence[Tree]) -> Tree:
        """The segments in reversed order: each is run again, then its adjoints.

        Args:
            copies: Statements of the draft that keep values, by the statement before which they run.
            adjoints: The adjoints of one segment, statements of the draft.

        Returns:
            The loop over the segments. Statements of the draft are replaced by those of all segments.
        """
        one = self.segments
        restores = [
            self._moved(f"restore_{name}", name, self.points[name], self.again[name], saving=False)
            for name in self.points
        ]
        names: dict[str, str] = {}
        for name in one.tree.names:
            s = one.one.statement(name)
            if s.write.tensor in self.again:
                made = self.draft.statement(f"{name}_again", s.domain, s.write, s.op, s.reads, s.body)
                names[name] = made.name
        tree = self._rerun(one.tree, names, copies)
        inside = tuple(map(_reusing, (*(() if tree is None else (tree,)), *adjoints)))
        for name in (one_name for part in inside for one_name in part.names):
            self.draft.statements[name] = self._embedded(self.draft.statements[name])
        body = sequence((*(own_loops(s, 1) for s in restores), *(self._tree(part) for part in inside)))
        dates = tuple((name, dimension(self.draft.statements[name].domain, 0).neg()) for name in body.names)
        return Loop(one.number, dates, body, reuse=True)

    def _moved(self, called: str, name: str, source: str, target: str, *, saving: bool) -> Statement:
        """A statement that copies the state of a tensor to the array of checkpoints, or back from it."""
        elements = self.segments.state[name].reset_tuple_id()
        domain = self._with_number(elements)
        for d, letter in enumerate(dim_names(self.draft.elements(self.segments.whole.tensor(name)))):
            domain = domain.set_dim_name(SET, d + 1, letter)
        everywhere = isl.Set.universe(domain.get_space())
        every = [dimension(domain, d) for d in range(domain.dim(SET))]

        def at(tensor: str, places: list[isl.PwAff]) -> Access:
            return Access(tensor, date_map(everywhere, list(places)).set_tuple_name(OUT, tensor))

        point = at(target if saving else source, every)
        array = at(source if saving else target, every[1:])
        write, found = (point, array) if saving else (array, point)
        return self.draft.statement(called, domain, write, "=", [found], read(0))

    def _rerun(
        self, tree: Tree, names: Mapping[str, str], copies: Mapping[str, Sequence[Statement]]
    ) -> Tree | None:
        """A part of the loop on copies, with the statements that keep values."""
        match tree:
            case Leaf(name):
                kept = [Leaf(one.name) for one in copies.get(name, ())]
                found = [*kept, *([Leaf(names[name])] if name in names else [])]
                return sequence(tuple(found)) if found else None
            case Siblings():
                inside = [self._rerun(child, names, copies) for child in tree.children]
                left = tuple(one for one in inside if one is not None)
                return sequence(left) if left else None
            case Loop():
                body = self._rerun(tree.body, names, copies)
                if body is None:
                    return None
                dates = []
                for name, date in tree.dates:
                    made = [one.name for one in copies.get(name, ())] + [
                        names[n] for n in (name,) if n in names
                    ]
                    for new in made:
                        dates.append(
                            (new, date.set_tuple_id(IN, self.draft.statements[new].domain.get_tuple_id()))
                        )
                return replace(tree, dates=tuple(dates), body=body)

    # -- the number of the segment as a dimension ---------------------------------------------------------------------

    def _embedded(self, s: Statement) -> Statement:
        """A statement of one segment as one of all segments, on copies of what the loop overwrites."""

        def of(access: Access) -> Access:
            found = onto(access, self.again.get(access.tensor, access.tensor))
            return Access(found.tensor, _first_in(found.map, self.segments.number))

        reads = tuple(map(of, s.reads))
        return replace(s, domain=self._with_number(s.domain), write=of(s.write), reads=reads)

    def _with_number(self, domain: isl.Set) -> isl.Set:
        """A set of one segment as one of all, with the segment's number first."""
        number, name = self.segments.number, domain.get_tuple_name()
        numbers = isl.Set(f"[{number}] -> {{ : 0 <= {number} < {self.segments.count} }}")
        limited = domain.intersect_params(numbers)
        found = limited.move_dims(SET, 0, PARAM, limited.find_dim_by_name(PARAM, number), 1)
        found = found.set_dim_name(SET, 0, number).coalesce()
        return found if name is None else found.set_tuple_name(name)

    def _tree(self, tree: Tree) -> Tree:
        """A part of the order of one segment's statements, for all segments."""
        match tree:
            case Leaf():
                return tree
            case Siblings():
                return sequence(tuple(self._tree(child) for child in tree.children))
            case Loop():
                dates = tuple((name, self._date(name, date)) for name, date in tree.dates)
                return replace(tree, dates=dates, body=self._tree(tree.body))

    def _date(self, name: str, date: isl.PwAff) -> isl.PwAff:
        moved = _date_of(_first_in(isl.Map.from_pw_aff(date), self.segments.number))
        return moved.set_tuple_id(IN, self.draft.statements[name].domain.get_tuple_id())


def _reusing(tree: Tree) -> Tree:
    """A part of a segment, whose iterations share memory too: else they would need that of all segments again."""
    return replace(tree, reuse=True) if isinstance(tree, Loop) else tree


def _first_in(relation: isl.Map, number: str) -> isl.Map:
    """A relation of instances of one segment, whose number is a parameter, as one of instances of all segments."""
    name, target = relation.get_tuple_name(IN), relation.get_tuple_name(OUT)
    aligned = relation
    if relation.find_dim_by_name(PARAM, number) < 0:
        position = relation.dim(PARAM)
        aligned = relation.add_dims(PARAM, 1).set_dim_name(PARAM, position, number)
    found = aligned.move_dims(IN, 0, PARAM, aligned.find_dim_by_name(PARAM, number), 1)
    found = found.set_dim_name(IN, 0, number)
    if name is not None:
        found = found.set_tuple_name(IN, name)
    return found if target is None else found.set_tuple_name(OUT, target)


def without_number(s: Statement, number: str) -> Statement:
    """A statement outside of the loop, without the parameter that numbers segments."""

    def of(access: Access) -> Access:
        return Access(access.tensor, for_any(access.map, number))

    reads = tuple(map(of, s.reads))
    return replace(s, domain=for_any(s.domain, number), write=of(s.write), reads=reads)


def order_without_number(tree: Tree, number: str) -> Tree:
    """A part of the order outside of the loop, without the parameter that numbers segments."""
    match tree:
        case Leaf():
            return tree
        case Siblings():
            return sequence(tuple(order_without_number(child, number) for child in tree.children))
        case Loop():
            dates = tuple(
                (name, _date_of(for_any(isl.Map.from_pw_aff(date), number))) for name, date in tree.dates
            )
            return replace(tree, dates=dates, body=order_without_number(tree.body, number))


def _date_of(relation: isl.Map) -> isl.PwAff:
    return isl.PwMultiAff.from_map(relation).get_pw_aff(0)
