"""Find statements that may run as one: those that compute the same, with sources complete at the same time.

agenda     what is not done, but all of whose sources are
batch      the statements of the agenda that are compatible with one of them; the batch that lies least deep is next
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import islpy as isl

from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.nest_text import body_text
from polyfuse.ir.tree import parts, statements
from polyfuse.sets import IN, OUT

Group = tuple[str, ...]


def agenda(nest: Nest, wanted: Mapping[str, Group] | None = None) -> tuple[Group, ...]:
    """The statements in an order that keeps all dependences, each with those that may run with it.

    `wanted` says which may be together, if not all. A part of several statements stands for itself, by its first one.
    """
    units = [statements(part) for part in parts(nest.order)]
    unit = {name: names[0] for names in units for name in names}
    before: dict[str, set[str]] = {names[0]: set() for names in units}
    for pair in nest.dependences().pairs:
        if unit[pair.source] != unit[pair.sink]:
            before[unit[pair.sink]].add(unit[pair.source])
    depth = _depths(before)
    alone = {names[0] for names in units if len(names) == 1}
    fit = cache(lambda first, second: compatible(nest, nest.statement(first), nest.statement(second)))
    after = {name: [n for n in before if name in before[n]] for name in before}
    done: set[str] = set()
    found: list[tuple[str, ...]] = []
    while len(done) < len(before):
        ready = [n for n in before if n not in done and before[n] <= done]
        next_ = [n for n in ready if before[n] or not after[n] or _is_next(n, before, after, done)] or ready
        groups: list[list[str]] = []
        for name in next_:
            fits = (
                g
                for g in groups
                if {name, g[0]} <= alone
                and (wanted is None or name in wanted.get(g[0], ()))
                and fit(g[0], name)
            )
            group = next(fits, None)
            if group is None:
                groups.append([name])
            else:
                group.append(name)
        chosen = min(groups, key=lambda g: sum(depth[n] for n in g) / len(g))
        found.append(tuple(chosen))
        done |= set(chosen)
    return tuple(found)


def _is_next(
    name: str, before: Mapping[str, set[str]], after: Mapping[str, list[str]], done: set[str]
) -> bool:
    """True if a statement without sources, such as a sum's initial value, is the only one for which a user waits."""
    return any(not any(before[b] for b in before[user] - done) for user in after[name])


def _depths(before: Mapping[str, set[str]]) -> dict[str, int]:
    """The longest way to each unit. The units' order keeps all dependences, so sources come first."""
    found: dict[str, int] = {}
    for name, sources in before.items():
        found[name] = max((found[s] + 1 for s in sources), default=0)
    return found


def compatible(nest: Nest, first: Statement, second: Statement) -> bool:
    """True if two statements compute the same value of tensors of the same kind, instance by instance."""
    return _computes_the_same(first, second) and difference(nest, first, second) is None


def _computes_the_same(first: Statement, second: Statement) -> bool:
    """True if two statements have the same operator and body; what they access may differ."""
    return first.form[0] == second.form[0]


def difference(nest: Nest, first: Statement, second: Statement) -> str | None:
    """Return the difference that prevents two statements from being batched; None if there is none."""
    if not _computes_the_same(first, second):
        both = "; ".join(map(body_text, (first, second)))
        return f"{first.name} and {second.name} compute different values: {both}"
    if not first.domain.reset_tuple_id().is_equal(second.domain.reset_tuple_id()):
        return f"{first.name} and {second.name} run over different domains: {first.domain}; {second.domain}"
    if first.write.tensor != second.write.tensor and nest.tensor(first.write.tensor).role != "temporary":
        tensors = f"{first.write.tensor} and {second.write.tensor}"
        return f"{tensors} are visible to the caller, who gave two tensors"
    for a, b in zip(first.accesses, second.accesses, strict=True):
        if not _corresponds(nest, a, b):
            tensors = " and ".join(f"{x} ({_kind(nest, x)})" for x in (a, b))
            return f"{first.name} and {second.name} access {tensors}: no elements of tensors of one kind"
    return None


def _kind(nest: Nest, access: Access) -> str:
    tensor = nest.tensor(access.tensor)
    return f"{tensor.role}, {tensor.dtype}, {list(tensor.shape)}"


def _corresponds(nest: Nest, a: Access, b: Access) -> bool:
    """Two accesses at one place: of one tensor, a constant apart; or equal ones of tensors of one kind."""
    first, second = nest.tensor(a.tensor), nest.tensor(b.tensor)
    if first.name == second.name:
        return _is_constant_apart(a, b)
    kind = (first.role, first.shape, first.dtype) == (second.role, second.shape, second.dtype)
    usable = first.role in ("temporary", "constant", "input")
    return kind and usable and bool(_plain(a).is_equal(_plain(b)))


def _plain(access: Access) -> isl.Map:
    return access.map.reset_tuple_id(IN).reset_tuple_id(OUT)


def _is_constant_apart(a: Access, b: Access) -> bool:
    first, second = a.subscripts(), b.subscripts()
    for axis in range(a.map.dim(OUT)):
        one = first.get_pw_aff(axis)
        other = second.get_pw_aff(axis).as_map().set_tuple_name(IN, a.map.get_tuple_name(IN))
        moved = other.domain().is_equal(one.domain())
        if not moved or len(one.get_pieces()) != 1:
            return bool(_plain(a).is_equal(_plain(b)))
        difference = other.as_pw_multi_aff().get_pw_aff(0).sub(one)
        if not difference.is_cst():
            return False
    return True


def ranks(nest: Nest, groups: tuple[Group, ...]) -> dict[str, int]:
    """An order of the temporaries in which those whose statements are in the same groups are neighbours.

    A temporary belongs to the member that its writers are of: what one statement reads and writes is of one member, if
    it reads temporaries of one member alone.
    """
    every = [(k, nest.statement(name)) for k, group in enumerate(groups) for name in group]
    member: dict[str, str] = {}

    def of_reads(s: Statement) -> str | None:
        found = {member[a.tensor] for a in s.reads if a.tensor in member}
        return found.pop() if len(found) == 1 else None

    for _, s in every:
        own = nest.tensor(s.write.tensor).role == "temporary" and s.write.tensor not in member
        if own and s.reads:  # a first value is of no member: what adds to it is
            member[s.write.tensor] = of_reads(s) or s.write.tensor
    path: dict[str, list[int]] = {}
    for k, s in every:
        path.setdefault(of_reads(s) or member.get(s.write.tensor, ""), []).append(k)
    order = {name: k for k, name in enumerate(dict.fromkeys(s.write.tensor for s in nest.statements))}
    keys = {t: (path.get(m, []), order.get(m, 0), order.get(t, 0)) for t, m in member.items()}
    ranked = sorted(keys, key=lambda t: keys[t])
    return {**{t.name: 0 for t in nest.tensors}, **{t: k for k, t in enumerate(ranked)}}
