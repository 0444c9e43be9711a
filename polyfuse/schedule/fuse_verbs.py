"""The verbs `fuse`, `distribute` and `move`: move statements between loops and inside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce

import islpy as isl

from polyfuse.analysis.legality import Broken, would_run_after
from polyfuse.errors import InvalidSchedule
from polyfuse.errors.budget import within
from polyfuse.ir.dependences import Pairs
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import (
    Leaf,
    Loop,
    Sequence,
    Tree,
    children,
    is_flat,
    loops_around,
    path_to,
    replace_node,
    sequence,
    statements,
    with_children,
)
from polyfuse.ir.whole import is_whole
from polyfuse.schedule.chains import chain_from, loop_named
from polyfuse.sets import IN, OUT, dimension, pairs_where

Dates = dict[str, isl.PwAff]

INSIDE_OPERATIONS = 30_000
"""isl operations for a date inside the shared loops.

Those of one case took at most 3,200 in training steps of DLRM, the digits CNN and an encoder layer; those of two cases
5,500. The place in a tile of 14 rows inside a window of 32 took 1,031,104 and has 23 cases.
"""


@dataclass(frozen=True)
class Alignment:
    """The way in which a tree joins another's loops: its dates at each shared loop, and the rest of it inside them."""

    shared: tuple[Dates, ...]
    rest: Tree


def distribute(tree: Tree, statement: str, loop: str) -> Tree:
    """for i: { S; T }  ->  for i: S; for i: T."""
    found = loop_named(tree, statement, loop)
    if not isinstance(found.body, Sequence):
        raise InvalidSchedule(
            f"distribute: the body of {loop} around {statement} has only one part, so there is nothing to distribute"
        )
    if found.buffers:
        names = ", ".join(buffer.tensor for buffer in found.buffers)
        raise InvalidSchedule(f"distribute: {names} is promoted at {loop}; distribute first, then promote")
    parts = tuple(_only(found, child) for child in found.body.children)
    return _flattened(replace_node(tree, found, Sequence(parts)))


def move(tree: Tree, statement: str, behind: str) -> Tree:
    """S; T; R  ->  T; S; R, given S behind T."""
    node, own, other = _apart("move", tree, statement, behind)
    rest = [child for child in node.children if child is not own]
    rest.insert(rest.index(other) + 1, own)
    return replace_node(tree, node, sequence(tuple(rest)))


def _only(loop: Loop, child: Tree) -> Loop:
    keep = set(statements(child))
    dates = tuple((n, d) for n, d in loop.dates if n in keep)
    return replace(loop, dates=dates, body=child, barrier=False, slots=0)


def _flattened(tree: Tree) -> Tree:
    """Sequences directly inside sequences merged into one."""
    if is_flat(tree):
        return tree
    below = tuple(_flattened(child) for child in children(tree))
    if isinstance(tree, Sequence) and any(isinstance(child, Sequence) for child in below):
        return sequence(below)
    return with_children(tree, below)


def fusions(
    nest: Nest, tree: Tree, first: str, second: str, at: str, shift: Mapping[str, int] | None
) -> Iterator[Tree]:
    """The trees in which the part with `second` joins the loops of `first` down to `at`, best alignment first."""
    node, home, guest = _apart("fuse", tree, first, second)
    shared = _loops_down_to(home, first, at)
    places = [p for p, child in enumerate(node.children) if child is home or child is guest]
    guest_last = node.children[places[1]] is guest
    outside = tuple(
        a for a, b in zip(loops_around(tree, first), loops_around(tree, second), strict=False) if a is b
    )
    for alignment in _alignments(nest, home, guest, shared, outside, guest_last, shift or {}):
        merged = _joined(home, shared, alignment, guest_last)
        for place in places:
            parts = [c for c in node.children if c is not home and c is not guest]
            parts.insert(place if place == places[0] else place - 1, merged)
            yield _flattened(replace_node(tree, node, sequence(tuple(parts))))


def kept_apart(
    nest: Nest, tree: Tree, first: str, second: str, at: str, shift: Mapping[str, int]
) -> Broken | None:
    """The dependence that keeps two kernels apart because a kernel between them runs after one and before the other.

    A; B; C, given A -> B and B -> C:  in A's place C would run before B, and in C's place A after B.

    It is the one that the first of `fusions` breaks, found without any of these trees; None also where parts that
    are not kernels meet.
    """
    node, home, guest = _apart("fuse", tree, first, second)
    places = sorted(tree.places[name] for name in (first, second)) if isinstance(tree, Sequence) else []
    if node is not tree or places[1] - places[0] < 2:
        return None
    pairs = nest.pairs_in_order
    between = frozenset[str]().union(*(part.members for part in node.children[places[0] + 1 : places[1]]))
    early, late = (node.children[place] for place in places)
    if not any(p.sink in between and _holds(p) for p in pairs.touching(early.members)):
        return None
    ahead = (p for p in pairs.touching(late.members) if p.source in between and _holds(p))
    broken = next(ahead, None)
    shared = _loops_down_to(home, first, at)
    if broken is None or not _has_alignment(nest, home, guest, shared, guest is late, shift):
        return None
    return would_run_after(broken)


def _holds(pair: Pairs) -> bool:
    """True if a pair's order has to be kept in a sequence."""
    return pair.kind != "reduction" and not pair.is_empty


def _has_alignment(
    nest: Nest,
    home: Tree,
    guest: Tree,
    shared: tuple[Loop, ...],
    guest_last: bool,
    shift: Mapping[str, int],
) -> bool:
    """True if there is a tree to refuse: InvalidSchedule if there is none."""
    if _own_loops(guest, shared, shift) is not None:
        return True
    return next(_alignments(nest, home, guest, shared, (), guest_last, shift), None) is not None


def shift_given(shift: object) -> dict[str, int]:
    """Numbers of iterations by loop; InvalidSchedule for anything else. None is none."""
    if shift is None:
        return {}
    if not isinstance(shift, Mapping) or not all(map(is_whole, shift.values())):
        raise InvalidSchedule(
            f"fuse: shift gives an integer for each loop, as in shift={{'i': 1}}, not {shift!r}"
        )
    return {loop: int(amount) for loop, amount in shift.items()}


def _apart(verb: str, tree: Tree, first: str, second: str) -> tuple[Sequence, Tree, Tree]:
    """The sequence where two statements part, and its children that hold them."""
    for name in (first, second):
        if name not in statements(tree):
            raise InvalidSchedule(
                f"unknown statement {name!r}; expected one of {', '.join(statements(tree))}"
            )
    if first == second:
        raise InvalidSchedule(f"{verb}: {first!r} is named twice")
    shared = [a for a, b in zip(path_to(tree, first), path_to(tree, second), strict=False) if a is b]
    node = shared[-1]
    if not isinstance(node, Sequence):
        raise InvalidSchedule(f"{verb}: {first} and {second} do not part at a sequence")
    home = next(child for child in node.children if first in statements(child))
    guest = next(child for child in node.children if second in statements(child))
    return node, home, guest


def _loops_down_to(home: Tree, statement: str, at: str) -> tuple[Loop, ...]:
    around = loops_around(home, statement)
    names = [loop.name for loop in around]
    if at not in names:
        known = ", ".join(names) or "none"
        raise InvalidSchedule(f"fuse: no loop {at!r} around {statement} to fuse at; its loops are {known}")
    return around[: names.index(at) + 1]


def _alignments(
    nest: Nest,
    home: Tree,
    guest: Tree,
    shared: tuple[Loop, ...],
    outside: tuple[Loop, ...],
    guest_last: bool,
    shift: Mapping[str, int],
) -> Iterator[Alignment]:
    """Yield alignments: by the guest's own loops if these fit the dependences or a shift is given, else by these."""
    own = _own_loops(guest, shared, shift)
    if own is not None and (shift or _meets(nest, shared, own, guest)):
        yield own
        return
    found = False
    for partner in _partners(nest, home, guest, guest_last):
        derived = _derived(nest, home, guest, partner, shared, outside, guest_last)
        if derived is not None:
            found = True
            yield derived
    if own is not None:
        yield own
    if own is None and not found:
        names = ", ".join(loop.name for loop in shared)
        raise InvalidSchedule(
            f"fuse: {', '.join(statements(guest))} has no loops that match {names}, and no dependence on "
            f"{', '.join(statements(home))} that would place it"
        )


def _own_loops(guest: Tree, shared: tuple[Loop, ...], shift: Mapping[str, int]) -> Alignment | None:
    unknown = set(shift) - {loop.name for loop in shared}
    if unknown:
        known = ", ".join(loop.name for loop in shared)
        raise InvalidSchedule(f"fuse: shift names {', '.join(sorted(unknown))}, the shared loops are {known}")
    chain = chain_from(guest) if isinstance(guest, Loop) else ()
    if len(chain) < len(shared) or any(loop.bind or loop.buffers for loop in chain[: len(shared)]):
        return None
    dates = []
    for mine, theirs in zip(chain, shared, strict=False):
        amount = shift.get(theirs.name, 0)
        dates.append({name: _later(date, amount) for name, date in mine.dates})
    return Alignment(tuple(dates), _apart_from(chain[len(shared) - 1].body, {loop.name for loop in shared}))


def _later(date: isl.PwAff, amount: int) -> isl.PwAff:
    """The date moved by a constant; the same object if it is 0, so that what is known of it stays known."""
    return date.add_constant_val(isl.Val(amount)) if amount else date


def _apart_from(tree: Tree, taken: set[str]) -> Tree:
    """The tree with other names for loops that are called as one around it will be: a name says which loop is meant."""
    if isinstance(tree, Loop):
        tree = replace(tree, name=fresh(tree.name, taken))
        taken = {*taken, tree.name}
    return with_children(tree, tuple(_apart_from(child, taken) for child in children(tree)))


def _meets(nest: Nest, shared: tuple[Loop, ...], own: Alignment, guest: Tree) -> bool:
    """True if every dependence between the two trees has distance 0 at every shared loop around both its ends."""
    inside = guest.members
    for pair in nest.dependences().touching(inside):
        at_home = {pair.source, pair.sink} - inside
        if len(at_home) != 1:
            continue
        for loop, dates in zip(shared, own.shared, strict=True):
            if not at_home <= {name for name, _ in loop.dates}:
                break
            source = dates[pair.source] if pair.source in inside else loop.date(pair.source)
            sink = dates[pair.sink] if pair.sink in inside else loop.date(pair.sink)
            if not pair.map.is_subset(pairs_where(source, "=", sink)):
                return False
    return True


def _partners(nest: Nest, home: Tree, guest: Tree, guest_last: bool) -> Iterator[str]:
    """The statements whose dates may place a single guest: the last that all its instances depend on, then the last.

    A dependence of few instances says nothing of the others: y[j, i] and then y[i, j] are both written for j = i alone.
    """
    names = statements(guest)
    if len(names) != 1:
        return
    (name,) = names
    linked = [n for n in reversed(statements(home)) if _linked(nest, n, name)]
    every = next((n for n in linked if _linked_to_all(nest, n, name, guest_last)), None)
    yield from dict.fromkeys(n for n in (every, *linked[:1]) if n is not None)


def _linked_to_all(nest: Nest, partner: str, name: str, guest_last: bool) -> bool:
    """True if each instance of a guest has a source in the partner; a sink, if the guest is to run first."""
    found = isl.Set.empty(nest.domains[name].get_space())
    for pair in nest.dependences().between(partner, name):
        if guest_last and (pair.source, pair.sink) == (partner, name):
            found = found.union(pair.map.range())
        elif not guest_last and (pair.source, pair.sink) == (name, partner):
            found = found.union(pair.map.domain())
    return bool(nest.domains[name].is_subset(found))


def _derived(
    nest: Nest,
    home: Tree,
    guest: Tree,
    partner: str,
    shared: tuple[Loop, ...],
    outside: tuple[Loop, ...],
    guest_last: bool,
) -> Alignment | None:
    """One statement placed by its dependences on a partner: after its last source, or before its first sink.

    Loops `outside` are around both already. Inside the shared ones it has loops of its own where the other's dates for
    it differ from case to case, as those of a window's last element do where the window is cut.

    for i, j tiles: for k: mac;  for i: for j: relu   ->   relu[i, j] at tile (floor(i/64), floor(j/64))
    """
    (name,) = statements(guest)
    domain = nest.domains[name]
    loops = loops_around(home, partner)
    if len(loops) < len(shared):  # a partner that is not in all of these loops says nothing of the inner ones
        return None
    placed = [_placed(nest, loop, partner, name, guest_last) for loop in loops[: len(shared)]]
    fixed = [date for date in placed if date is not None]
    if len(fixed) < len(shared) or any(not domain.is_subset(date.domain()) for date in fixed):
        return None
    inner: list[Loop] = []
    taken = {loop.name for loop in (*outside, *shared)}
    for loop in loops[len(shared) :]:
        date = _placed_inside(nest, loop, partner, name, guest_last)
        if date is not None and _is_worth_a_loop(domain, date, fixed) and domain.is_subset(date.domain()):
            inner.append(Loop(fresh(loop.name, taken), ((name, date),), Leaf(name)))
            taken.add(inner[-1].name)
    inner = _telling(domain, name, fixed, inner)
    rest: Tree = Leaf(name)
    known = [*(loop.date(name) for loop in outside), *fixed]
    for loop in reversed(_completed(domain, name, known, inner, taken)):
        rest = replace(loop, body=rest)
    return Alignment(tuple({name: date} for date in fixed), rest)


def _is_worth_a_loop(domain: isl.Set, date: isl.PwAff, fixed: list[isl.PwAff]) -> bool:
    """True if a date inside the shared loops is one function, of an axis that shared loops tile if it is a tile's.

    It tells all dimensions that it depends on: 4k + l does for l < 4. The place k + m that step m of a window reads
    does not, and in a loop over these places results would come piece by piece.
    """
    if date.n_piece() != 1 or date.is_cst():
        return False
    ((_, value),) = date.get_pieces()
    dims = [d for d in range(date.dim(IN)) if date.involves_dims(IN, d, 1)]
    of_tile = bool(value.dim(isl.dim_type.div))
    if of_tile and not any(other.involves_dims(IN, d, 1) for d in dims for other in fixed):
        return False
    if len(dims) == 1:
        return True
    together = _together(domain, [*fixed, date])
    told = (dimension(domain, d) for d in dims)
    return all(together.is_subset(pairs_where(each, "=", each)) for each in told)


def _telling(domain: isl.Set, name: str, fixed: list[isl.PwAff], inner: list[Loop]) -> list[Loop]:
    """The inner loops without those of remainders that do not tell, with all other dates, which value it is.

    In tiles of blocks of p = 112i + j the place in a tile, j mod 16, leaves open which j it is: j would have a loop of
    its own inside, of every sixteenth value.
    """
    together = _together(domain, [*fixed, *(loop.date(name) for loop in inner)])

    def tells(loop: Loop) -> bool:
        date = loop.date(name)
        ((_, value),) = date.get_pieces()
        moving = [d for d in range(date.dim(IN)) if date.involves_dims(IN, d, 1)]
        if not value.dim(isl.dim_type.div) or len(moving) != 1:
            return True
        each = dimension(domain, moving[0])
        return bool(together.is_subset(pairs_where(each, "=", each)))

    return [loop for loop in inner if tells(loop)]


def _completed(
    domain: isl.Set, name: str, fixed: list[isl.PwAff], inner: list[Loop], taken: set[str]
) -> list[Loop]:
    """The inner loops, with loops over the statement's own dimensions added until no two instances share a date.

    A dimension that the dates tell already has no loop of its own.
    """
    chosen = list(inner)
    for d in range(domain.dim(isl.dim_type.set)):
        together = _together(domain, [*fixed, *(x.date(name) for x in chosen)])
        if together.is_subset(isl.Map.identity(together.get_space())):
            break
        value = dimension(domain, d)
        if together.is_subset(pairs_where(value, "=", value)):
            continue
        own = fresh(domain.get_dim_name(isl.dim_type.set, d) or f"d{d}", taken)
        taken.add(own)
        chosen.append(Loop(own, ((name, value),), Leaf(name)))
    return chosen


def _together(domain: isl.Set, dates: list[isl.PwAff]) -> isl.Map:
    """The pairs of instances that share all of these dates."""
    together = isl.Map.from_domain_and_range(domain, domain)
    for date in dates:
        together = together.intersect(pairs_where(date, "=", date))
    return together


def _linked(nest: Nest, first: str, second: str) -> bool:
    return bool(nest.dependences().between(first, second))


def _placed(nest: Nest, loop: Loop, partner: str, name: str, guest_last: bool) -> isl.PwAff | None:
    """The loop's last value among a statement's sources in `partner`, or its first among its sinks.

    Instances without any are where they would be by the same function, rounded down: the last row of a triangle, which
    has no steps; of every third row only, (m - 1) / 3 is whole for those alone.
    """
    wanted = (partner, name) if guest_last else (name, partner)
    pairs = [p for p in nest.dependences().between(partner, name) if (p.source, p.sink) == wanted]
    if not pairs:
        return None
    first, *more = pairs
    every = first if not more else replace(first, map=reduce(isl.Map.union, (p.map for p in pairs)))
    best = every.last_source(loop.date(partner)) if guest_last else every.first_sink(loop.date(partner))
    date = isl.PwMultiAff.from_map(best)
    if date.dim(OUT) != 1:
        return None
    value = date.get_pw_aff(0).gist(nest.domains[name])
    pieces = value.get_pieces()
    return isl.PwAff.from_aff(pieces[0][1].floor()) if len(pieces) == 1 else value


def _placed_inside(nest: Nest, loop: Loop, partner: str, name: str, guest_last: bool) -> isl.PwAff | None:
    """Return `_placed` of a loop inside the shared ones; None where isl needs more than `INSIDE_OPERATIONS` for it.

    A date of so many cases is not worth a loop.
    """

    def asked() -> isl.PwAff | None:
        return _placed(nest, loop, partner, name, guest_last)

    pieces = [piece for _, piece in loop.date(partner).get_pieces()]
    if not any(piece.dim(isl.dim_type.div) for piece in pieces):
        return asked()
    return within(nest.context.get_ctx(), INSIDE_OPERATIONS, asked, lambda: None)


def _joined(home: Tree, shared: tuple[Loop, ...], alignment: Alignment, guest_last: bool) -> Tree:
    """The home tree with the guest's dates at the shared loops and its rest at the end (or start) of the last body."""
    last = shared[-1]
    parts = (last.body, alignment.rest) if guest_last else (alignment.rest, last.body)
    new: Tree = _extended(last, alignment.shared[-1], sequence(parts))
    for position in range(len(shared) - 2, -1, -1):
        outer, inner = shared[position], shared[position + 1]
        body = replace_node(outer.body, inner, new)
        new = _extended(outer, alignment.shared[position], body)
    return replace_node(home, shared[0], new)


def _extended(loop: Loop, dates: Dates, body: Tree) -> Loop:
    return replace(loop, dates=(*loop.dates, *dates.items()), body=body)
