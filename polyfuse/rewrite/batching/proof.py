"""The proof of batching (batch.py): a batch accesses what its members did, and values come from where they did."""

from __future__ import annotations

import islpy as isl

from polyfuse.errors import ValidationFailure
from polyfuse.ir import Nest, Statement
from polyfuse.ir import tree as trees
from polyfuse.rewrite.batching.agenda import Group
from polyfuse.rewrite.batching.stacks import Plan, Stacked
from polyfuse.sets import IN, OUT, maps_of, union_map, union_set


def proven(plan: Plan, made: Stacked) -> Nest:
    """The nest in batches; ValidationFailure unless it computes what the nest did."""
    origins = []
    for group in plan.groups:
        names = group if len(group) > 1 else trees.statements(plan.part(group))
        for position, name in enumerate(names):
            batch = made.nest.statement(group[0] if len(group) > 1 else name)
            origins.append(_origin(plan.nest, batch, group, name, position))
            _same_accesses(plan, made, batch, name, position, origins[-1])
    _copied(plan, made)
    back = union_map(origins)
    _same_flow(plan.nest, made, back)
    _same_last(plan.nest, made.nest, back)
    made.nest.check()
    return made.nest


def _origin(nest: Nest, batch: Statement, group: Group, name: str, position: int) -> isl.Map:
    """{ batch[m, i] -> member[i] : m = position }, or the identity of what stays by itself."""
    domain = nest.domains[name]
    origin = isl.Map.identity(domain.get_space().map_from_set()).intersect_domain(domain)
    if len(group) > 1:
        origin = origin.insert_dims(IN, 0, 1).fix_val(IN, 0, isl.Val(position))
    return origin.set_tuple_name(IN, batch.name).set_tuple_name(OUT, name)


def _same_accesses(
    plan: Plan, made: Stacked, batch: Statement, name: str, position: int, origin: isl.Map
) -> None:
    """Every access is the member's, up to T_m[e] being called T[m, e]."""
    member = plan.placed(plan.nest.statement(name))
    for mine, theirs in zip(batch.accesses, member.accesses, strict=True):
        now = origin.reverse().apply_range(mine.map)
        if mine.tensor != theirs.tensor:
            if made.stacks[mine.tensor][position] != theirs.tensor or not _first_is(now, position):
                raise ValidationFailure(f"batching {name}: {mine} is not {theirs}")
            now = now.project_out(OUT, 0, 1).set_tuple_name(OUT, theirs.tensor)
        if not now.is_equal(theirs.map.intersect_domain(plan.nest.domains[name])):
            raise ValidationFailure(f"batching {name}: {now} is not {theirs.map}")


def _first_is(relation: isl.Map, position: int) -> bool:
    return bool(relation.is_subset(relation.fix_val(OUT, 0, isl.Val(position))))


def _copied(plan: Plan, made: Stacked) -> None:
    """Every stack is filled with what it stacks, which nothing writes, before anything reads it."""
    written = {s.write.tensor for s in plan.nest.statements}
    filled: dict[str, list[Statement]] = {}
    for s in made.nest.statements:
        if s.name in made.copies:
            filled.setdefault(s.write.tensor, []).append(s)
        for stack in {access.tensor for access in s.reads} & made.stacks.keys():
            if len(filled.get(stack, ())) != len(made.stacks[stack]):
                raise ValidationFailure(f"batching: {s.name} reads {stack} before it is filled")
    for stack, of in made.stacks.items():
        for position, (copy, tensor) in enumerate(zip(filled[stack], of, strict=True)):
            moved = copy.write.map.intersect_domain(copy.domain).reverse().apply_range(copy.reads[0].map)
            whole = plan.nest.tensor(tensor).elements(plan.nest.params)
            wanted = isl.Map.identity(whole.get_space().map_from_set()).intersect_domain(whole)
            wanted = wanted.insert_dims(IN, 0, 1).fix_val(IN, 0, isl.Val(position)).set_tuple_name(IN, stack)
            if tensor in written or not moved.is_equal(wanted):
                raise ValidationFailure(
                    f"batching: {copy.name} does not copy {tensor} to {stack}[{position}]"
                )


def _same_flow(nest: Nest, made: Stacked, back: isl.UnionMap) -> None:
    """Sums' own pairs count as flow, as in flow.py."""
    old, new = nest.dependences(), made.nest.dependences()
    found = new.flow.union(new.reduction)
    found = found.subtract_domain(union_set(made.nest.domains[name] for name in sorted(made.copies)))
    found = found.apply_domain(back).apply_range(back)
    expected = old.flow.union(old.reduction)
    for other in (expected.subtract(found), found.subtract(expected)):
        for pair in maps_of(other):
            raise ValidationFailure(f"batching {nest.name} changed the flow: {pair}")


def _same_last(nest: Nest, after: Nest, back: isl.UnionMap) -> None:
    """Check that the caller's values are last written by the same instance: output dependences still go forward."""
    for pair in nest.dependences().pairs:
        if pair.kind != "output" or nest.tensor(nest.statement(pair.source).write.tensor).role == "temporary":
            continue
        moved = isl.UnionMap.from_map(pair.map).apply_domain(back.reverse()).apply_range(back.reverse())
        names = {m.get_tuple_name(side) for m in maps_of(moved) for side in (IN, OUT)}
        order = trees.restrict(after.order, frozenset(names))
        assert order is not None, "both statements are there"
        dates = trees.dates(order, after.domains)
        if maps_of(moved.subtract(dates.lex_lt_union_map(dates))):
            raise ValidationFailure(f"batching {nest.name}: {pair.sink} no longer writes after {pair.source}")
