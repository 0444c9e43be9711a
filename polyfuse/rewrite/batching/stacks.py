"""Build a batch (batch.py): slices of one temporary, stacks of copies, subscripts that advance by member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import islpy as isl

from polyfuse.ir import Access, Nest, Statement, Tensor
from polyfuse.ir import tree as trees
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.nest import own_loops
from polyfuse.ir.scalar import read
from polyfuse.rewrite.batching.agenda import Group, ranks
from polyfuse.rewrite.views.read_through import with_pieces
from polyfuse.sets import IN, OUT, SET, dim_names


@dataclass(frozen=True)
class Stacked:
    """A nest in batches, the tensors that copies stack (stack -> tensors, in order), and the statements that copy."""

    nest: Nest
    stacks: Mapping[str, tuple[str, ...]]
    copies: frozenset[str]


@dataclass(frozen=True)
class Plan:
    """Statements in groups, and where the temporaries that a group has one each of lie in stacked ones."""

    nest: Nest
    groups: tuple[Group, ...]
    places: Mapping[str, tuple[str, int]]
    sizes: Mapping[str, int]

    @staticmethod
    def of(nest: Nest, groups: tuple[Group, ...]) -> Plan:
        """Temporaries that some group accesses in one place are slices of one tensor, in the order of the members."""
        parent = {t.name: t.name for t in nest.tensors}

        def root(name: str) -> str:
            while parent[name] != name:
                name = parent[name]
            return name

        for group in groups:
            for tensors in zip(*(_touched(nest, name) for name in group), strict=True):
                for a, b in pairwise(tensors):
                    if nest.tensor(a).role == "temporary" and root(a) != root(b):
                        parent[root(b)] = root(a)
        rank = ranks(nest, groups)
        classes: dict[str, list[str]] = {}
        for tensor in nest.with_role("temporary"):
            classes.setdefault(root(tensor.name), []).append(tensor.name)
        taken = {t.name for t in nest.tensors}
        places: dict[str, tuple[str, int]] = {}
        sizes: dict[str, int] = {}
        for members in classes.values():
            if len(members) > 1:
                name = fresh(f"{min(members, key=lambda t: rank[t])}s", taken)
                taken.add(name)
                for position, member in enumerate(sorted(members, key=lambda t: rank[t])):
                    places[member] = name, position
                sizes[name] = len(members)
        return Plan(nest, groups, places, sizes)

    def in_runs(self) -> tuple[Group, ...]:
        """The groups cut where the slices that their members access are not evenly spaced."""
        found: list[Group] = []
        for group in self.groups:
            ordered = sorted(group, key=self._key)
            run = [ordered[0]]
            for name in ordered[1:]:
                if self._steps([*run, name]) is None:
                    found.append(tuple(run))
                    run = []
                run.append(name)
            found.append(tuple(run))
        return tuple(found)

    def _key(self, name: str) -> tuple[int, ...]:
        """Return the sort key of members: the position of their slices."""
        s = self.nest.statement(name)
        at = [self.places.get(a.tensor, ("", 0))[1] for a in s.accesses]
        return (
            *at[:1],
            *(c for part in _offsets(s.write) for c in part),
            *at[1:],
            self._written[name],
        )

    def _steps(self, group: Sequence[str]) -> list[list[int]] | None:
        """For each access, return the step of its subscripts from one member to the next; None if it is not constant.

        An access whose tensors are copied into a stack moves there by 1: [1, 0, …].
        """
        steps = []
        for accesses in zip(*(self.nest.statement(name).accesses for name in group), strict=True):
            starts = [self._start(access, accesses) for access in accesses]
            moves = [[b - a for a, b in zip(one, other, strict=True)] for one, other in pairwise(starts)]
            if any(move != moves[0] for move in moves):
                return None
            steps.append(moves[0] if moves else [0] * len(starts[0]))
        return steps

    def _start(self, access: Access, accesses: tuple[Access, ...]) -> list[int]:
        """The constant part of an access's subscripts, after the position in a stack if it has one."""
        own = [c for part in _offsets(access) for c in part]
        if access.tensor in self.places:
            return [self.places[access.tensor][1], *own]
        several = len({a.tensor for a in accesses}) > 1
        return [accesses.index(access), *own] if several else own

    # -- the nest after --------------------------------------------------------------------------------------------

    def built(self) -> Stacked:
        """The nest in batches: copies of constants first, each other stack's copies before the batch that reads it."""
        stacks: dict[tuple[str, ...], Tensor] = {}
        made: dict[str, Statement] = {}
        first: list[trees.Tree] = []
        order: list[trees.Tree] = []
        copies: list[Statement] = []
        taken = {t.name for t in self.nest.tensors} | set(self.sizes)
        by_first = {group[0]: group for group in self.groups}
        for part in (self.part(group) for group in self.groups):
            name = trees.statements(part)[0]
            group = by_first.get(name, (name,))
            if len(group) == 1:
                for each in trees.statements(part):
                    made[each] = self.placed(self.nest.statement(each))
                order.append(part)
                continue
            for filled in self._stacks(group, stacks, taken):
                copies += filled
                made |= {s.name: s for s in filled}
                loops = with_pieces(own_loops(filled[0]), {filled[0].name: tuple(s.name for s in filled)})
                constant = self.nest.tensor(filled[0].reads[0].tensor).role == "constant"
                (first if constant else order).append(loops)
            made[name] = self._batch(group, stacks)
            order.append(own_loops(made[name]))
        order = [*first, *order]
        result = replace(
            self.nest,
            tensors=self._tensors(stacks),
            statements=tuple(made[n] for part in order for n in trees.statements(part)),
            order=trees.sequence(tuple(order)),
        )
        return Stacked(result, {t.name: of for of, t in stacks.items()}, frozenset(s.name for s in copies))

    def part(self, group: Group) -> trees.Tree:
        """The part of the nest's order that a group's first statement is in."""
        return self._parts[group[0]]

    @cached_property
    def _parts(self) -> Mapping[str, trees.Tree]:
        return {name: part for part in trees.parts(self.nest.order) for name in trees.statements(part)}

    @cached_property
    def _written(self) -> Mapping[str, int]:
        """The index in the nest of each statement."""
        return {s.name: position for position, s in enumerate(self.nest.statements)}

    def _tensors(self, stacks: Mapping[tuple[str, ...], Tensor]) -> tuple[Tensor, ...]:
        found: dict[str, Tensor] = {}
        for tensor in self.nest.tensors:
            if tensor.name in self.places:
                stack = self.places[tensor.name][0]
                shape = (self.sizes[stack], *tensor.shape)
                found.setdefault(stack, replace(tensor, name=stack, shape=shape))
            elif tensor.role != "output":
                found[tensor.name] = tensor
        found |= {t.name: t for t in stacks.values()}
        return (*found.values(), *self.nest.with_role("output"))

    def placed(self, s: Statement) -> Statement:
        """A statement by itself, its temporaries slices of stacks where they are."""

        def moved(access: Access) -> Access:
            if access.tensor not in self.places:
                return access
            stack, position = self.places[access.tensor]
            return Access(stack, _with_first(access.map, position, stack))

        return replace(s, write=moved(s.write), reads=tuple(map(moved, s.reads)))

    def _stacks(
        self, group: Group, stacks: dict[tuple[str, ...], Tensor], taken: set[str]
    ) -> list[tuple[Statement, ...]]:
        """Copies into each of the stacks that a group needs and that are not there yet."""
        found = []
        for accesses in zip(*(self.nest.statement(name).accesses for name in group), strict=True):
            of = tuple(a.tensor for a in accesses)
            if len(set(of)) == 1 or of[0] in self.places or of in stacks:
                continue
            tensor = self.nest.tensor(of[0])
            name = fresh(f"{tensor.name}s", taken)
            taken.add(name)
            stacks[of] = Tensor(name, (len(of), *tensor.shape), tensor.dtype, "temporary")
            found.append(tuple(self._copy(name, position, part) for position, part in enumerate(of)))
        return found

    def _copy(self, stack: str, position: int, tensor: str) -> Statement:
        name = f"stack_{stack}_{position}"
        elements = self.nest.tensor(tensor).elements(self.nest.params).set_tuple_name(name)
        for d in range(elements.dim(SET)):
            elements = elements.set_dim_name(SET, d, f"e{d}")
        whole = _like(isl.Map.identity(elements.get_space().map_from_set()), elements)
        source = Access(tensor, whole.set_tuple_name(OUT, tensor))
        return Statement(
            name, elements, Access(stack, _with_first(whole, position, stack)), "=", (source,), read(0)
        )

    def _batch(self, group: Group, stacks: Mapping[tuple[str, ...], Tensor]) -> Statement:
        """The first member with a dimension for the members."""
        first = self.nest.statement(group[0])
        steps = self._steps(group)
        assert steps is not None, "the group is a run"
        taken = {*first.dims, *self.nest.params}
        dims = (fresh("m", taken), *first.dims)
        domain = first.domain.insert_dims(SET, 0, 1).set_tuple_name(first.name)
        domain = domain.lower_bound_val(SET, 0, isl.Val(0)).upper_bound_val(SET, 0, isl.Val(len(group) - 1))
        for d, name in enumerate(dims):
            domain = domain.set_dim_name(SET, d, name)
        every = [self.nest.statement(name).accesses for name in group]
        accesses = []
        for number, access in enumerate(first.accesses):
            of = tuple(each[number].tensor for each in every)
            stack = stacks[of].name if of in stacks else None
            accesses.append(self._moving(access, steps[number], stack, domain))
        return replace(first, domain=domain, write=accesses[0], reads=tuple(accesses[1:]))

    def _moving(self, access: Access, step: list[int], stack: str | None, domain: isl.Set) -> Access:
        """The first member's access, whose subscripts move by `step` from one member to the next."""
        relation, tensor = access.map, access.tensor
        if stack is not None:
            relation, tensor = _with_first(relation, 0, stack), stack
        elif tensor in self.places:
            tensor, position = self.places[tensor]
            relation = _with_first(relation, position, tensor)
        wide = relation.insert_dims(IN, 0, 1).set_tuple_name(IN, domain.get_tuple_name())
        wide = wide.set_tuple_name(OUT, tensor)
        return Access(tensor, _like(_shifted(wide, step) if any(step) else wide, domain))


def _touched(nest: Nest, name: str) -> tuple[str, ...]:
    return tuple(access.tensor for access in nest.statement(name).accesses)


def _offsets(access: Access) -> list[tuple[int, ...]]:
    """The constant of each subscript; none where it has several pieces."""
    subscripts = access.subscripts()
    found: list[tuple[int, ...]] = []
    for axis in range(access.map.dim(OUT)):
        pieces = subscripts.get_pw_aff(axis).get_pieces()
        value = pieces[0][1].get_constant_val() if len(pieces) == 1 else isl.Val(0)
        found.append((int(value.to_python()),) if value.is_int() else (0,))
    return found


def _with_first(relation: isl.Map, position: int, tensor: str) -> isl.Map:
    """{ S[i] -> T[i] }  ->  { S[i] -> stack[position, i] }."""
    wide = relation.insert_dims(OUT, 0, 1).fix_val(OUT, 0, isl.Val(position))
    return wide.set_tuple_name(OUT, tensor)


def _shifted(relation: isl.Map, step: Sequence[int]) -> isl.Map:
    """{ S[m, i] -> T[e] }  ->  { S[m, i] -> T[e + step * m] }."""
    parts = isl.PwMultiAff.from_map(relation)
    member = isl.PwAff.var_on_domain(isl.LocalSpace.from_space(relation.domain().get_space()), SET, 0)
    for axis, amount in enumerate(step):
        if amount:
            parts = parts.set_pw_aff(axis, parts.get_pw_aff(axis).add(member.scale_val(isl.Val(amount))))
    return parts.as_map()


def _like(relation: isl.Map, domain: isl.Set) -> isl.Map:
    for d, name in enumerate(dim_names(domain)):
        relation = relation.set_dim_name(IN, d, name)
    return relation
