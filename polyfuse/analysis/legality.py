"""Check that a tree keeps every dependence: the theorem, then its check.

    A tree is legal iff for every dependence source -> sink, at the first node (from the root) where the two differ,
      - a sequence runs source's child before sink's,
      - a loop in order gives source the smaller value,
      - a loop whose values run at once (cores, blocks, threads, vector lanes) does not tell them apart,
      - a pipeline gives source the smaller value, and the loop directly inside it does not give it the larger one.
    Reduction pairs may differ in any direction in a sequence and in a loop in order; they must not run at once, but on
    vector lanes and on a warp's, which are combined.

    In a pipeline, value j of the inner loop begins once the value before of the outer one has ended j; that one waited
    for the one before it, and so all values that are not larger in either loop have ended.

    { S[i] -> T[i] } under Loop(i, S[i] -> [i], T[i] -> [i - 1]):  source 4 runs at 4, its sink at 3: broken.

The check walks the tree with the pairs that are still equal; what an earlier proof covered is not proven again.

    A; B; C   ->   for l in 0: { A; B }; C        proven: a loop in order of one value tells no instances apart
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import islpy as isl

from polyfuse.ir.dependences import Dependences, Pairs
from polyfuse.ir.tree import BULK, CLUSTER, SHARED, Leaf, Loop, Sequence, Tree, parts, restrict, statements
from polyfuse.sets import pairs_where

PARALLEL = (
    *SHARED, "block.x", "block.y", "block.z", *CLUSTER, "thread.x", "thread.y", "thread.z", *BULK
)  # fmt: skip
"""Bindings whose values run at once, in no order."""


@dataclass(frozen=True)
class Broken:
    """Dependences that a tree breaks: their kind, the pairs, and where."""

    kind: str
    pairs: isl.Map
    why: str
    remedy: str


def first_broken(tree: Tree, pairs: tuple[Pairs, ...], proven: Tree | None = None) -> Broken | None:
    """The first dependence that `tree` breaks; None if it is legal.

    `proven` is a tree that is known to be legal for the same pairs: what it shares with `tree` is skipped.
    """
    return next(broken(tree, proven, pairs), None)


def unproven(dependences: Dependences, tree: Tree, proven: Tree | None) -> tuple[Pairs, ...]:
    """The dependences that `tree` may break though `proven` keeps them all.

    A; B; C  ->  A; B'; C      those with an end in B'

    Between kernels that both trees have, in the same order, or inside one of them, both give the same instances the
    same order. Trees may hold some of the nest's statements alone: pairs with others are not theirs to keep.
    """
    inside = tree.members
    if not isinstance(proven, Sequence):
        return dependences.among(inside)
    before = {id(child): place for place, child in enumerate(proven.children)}
    kept = [before[id(child)] for child in parts(tree) if id(child) in before]
    if kept != sorted(kept):
        return dependences.among(inside)
    changed = [child for child in parts(tree) if id(child) not in before]
    touched = dependences.touching(name for child in changed for name in statements(child))
    same = _in_the_same_order(changed, proven)
    return tuple(
        p
        for p in touched
        if same.get(p.source, -1) != same.get(p.sink, -2) and p.source in inside and p.sink in inside
    )


def _in_the_same_order(changed: Iterable[Tree], proven: Sequence) -> dict[str, int]:
    """The statements of proven kernels that a changed one holds and runs as before, each with its kernel's position.

    for i: A; B,  for i: C   ->   for i: { A; B; C }      A and B keep their order, whatever C is

    A pair is judged by the loops and sequences that hold both its ends, so by the tree without all other statements.
    """
    found: dict[str, int] = {}
    for child in changed:
        places = sorted({proven.places[name] for name in child.members if name in proven.places})
        for place in places:
            kernel = proven.children[place]
            within = restrict(child, kernel.members) if kernel.members <= child.members else None
            if within is not None and _same_order(within, kernel):
                found.update(dict.fromkeys(kernel.members, place))
    return found


def _same_order(one: Tree, other: Tree) -> bool:
    """True if two trees of the same statements have the same loops, but for names, and sequences."""
    if one is other:
        return True
    match one, other:
        case Leaf(), Leaf():
            return one.statement == other.statement
        case Loop(), Loop():
            # in a pipeline it matters, too, whether something else stands beside the loop directly inside
            alike = one.bind == other.bind != "pipeline"
            return (
                alike
                and one.members == other.members
                and all(_same_date(one.date(name), other.date(name)) for name in one.members)
                and _same_order(one.body, other.body)
            )
        case Sequence(), Sequence():
            own = one.children, other.children
            return len(own[0]) == len(own[1]) and all(map(_same_order, *own))
        case _:
            return False


def _same_date(one: isl.PwAff, other: isl.PwAff) -> bool:
    return one is other or one.is_equal(other)


def broken(tree: Tree, proven: Tree | None, pairs: tuple[Pairs, ...]) -> Iterator[Broken]:
    """All broken dependences, node by node."""
    if not pairs or tree is proven:
        return
    match tree:
        case Leaf():
            yield from _at_leaf(tree, pairs)
        case Loop():
            yield from _at_loop(tree, proven, pairs)
        case Sequence():
            yield from _at_sequence(tree, proven, pairs)


def _at_leaf(leaf: Leaf, pairs: tuple[Pairs, ...]) -> Iterator[Broken]:
    for pair in pairs:
        if not pair.map.is_empty():
            yield Broken(
                pair.kind,
                pair.map,
                "both instances have the same date, so their order is undefined",
                "keep a loop that gives them different dates",
            )


def _at_loop(loop: Loop, proven: Tree | None, pairs: tuple[Pairs, ...]) -> Iterator[Broken]:
    if isinstance(proven, Sequence) and _has_one_value(loop):
        yield from broken(loop.body, proven, pairs)
        return
    same = isinstance(proven, Loop) and loop.bind == proven.bind and loop.dates == proven.dates
    if same and isinstance(proven, Loop) and loop.bind == "pipeline":  # what its inner loop is matters too
        same = _inner_dates(loop) == _inner_dates(proven) is not None
    if same and isinstance(proven, Loop):
        if loop.body is proven.body:
            return
        settled = _settled(loop.body, proven.body)
        pairs = tuple(p for p in pairs if settled.get(p.source, -1) != settled.get(p.sink, -2))
    equal = []
    for pair in pairs:
        source, sink = loop.date(pair.source), loop.date(pair.sink)
        wrong = None if same else _wrong_at(loop, pair, source, sink)
        if wrong is not None:
            yield wrong
        rest = pair.inside(source, sink)
        if not rest.is_empty:
            equal.append(rest)
    yield from broken(loop.body, proven.body if same and isinstance(proven, Loop) else None, tuple(equal))


def _settled(body: Tree, proven: Tree) -> dict[str, int]:
    """The statements of those parts of a sequence that the proven one has too, each with its part's position."""
    if not (isinstance(body, Sequence) and isinstance(proven, Sequence)):
        return {}
    known = {id(child) for child in proven.children}
    parts = ((p, child) for p, child in enumerate(body.children) if id(child) in known)
    return {name: position for position, child in parts for name in statements(child)}


def _wrong_at(loop: Loop, pair: Pairs, source: isl.PwAff, sink: isl.PwAff) -> Broken | None:
    if loop.bind == "pipeline":
        return _wrong_in_pipeline(loop, pair, source, sink)
    if loop.bind in PARALLEL or (loop.bind in ("vector", "lane") and pair.kind != "reduction"):
        if not pair.differs(source, sink):
            return None
        wrong = differing(pair.map, source, sink)
        why = (
            f"loop {loop.name} is bound to {loop.bind}, so its iterations run in parallel, "
            "but it carries this dependence"
        )
        remedy = f"leave {loop.name} unbound, or bind a loop that does not carry this dependence"
    elif pair.kind == "reduction":
        return None
    else:
        behind = pair.where(source, ">", sink)
        if behind.is_empty:
            return None
        wrong = behind.map
        why = f"loop {loop.name} would run the second instance before the first"
        remedy = f"shift, skew or reverse {loop.name}, or keep the two in separate loops"
    return Broken(pair.kind, wrong, why, remedy)


def _wrong_in_pipeline(loop: Loop, pair: Pairs, source: isl.PwAff, sink: isl.PwAff) -> Broken | None:
    """source -> sink under for t (pipeline): for i:  t[source] < t[sink] and i[source] <= i[sink], or the same t.

    Two parts of a reduction may go either way, but not at once: the one with the smaller t has no larger i.
    """
    inner = loop.body
    if not isinstance(inner, Loop):
        wrong = differing(pair.map, source, sink)
    else:
        first, second = inner.date(pair.source), inner.date(pair.sink)
        back = pairs_where(source, ">", sink)
        back = back.intersect(pairs_where(first, "<", second)) if pair.kind == "reduction" else back
        ahead = pairs_where(source, "<", sink).intersect(pairs_where(first, ">", second))
        wrong = pair.map.intersect(back.union(ahead))
    name = inner.name if isinstance(inner, Loop) else "the loop inside"
    why = f"loop {loop.name} is bound to pipeline, in which the second instance does not wait for the first"
    remedy = (
        f"skew {name} by {loop.name}, so that the dependence goes backwards along neither, "
        f"or leave {loop.name} unbound"
    )
    return None if wrong.is_empty() else Broken(pair.kind, wrong, why, remedy)


def _inner_dates(loop: Loop) -> object:
    """The dates of the loop directly inside a loop; None if there is none."""
    return loop.body.dates if isinstance(loop.body, Loop) else None


def differing(pairs: isl.Map, source: isl.PwAff, sink: isl.PwAff) -> isl.Map:
    """The pairs to which the two functions give different values."""
    return pairs.intersect(pairs_where(source, ">", sink).union(pairs_where(source, "<", sink)))


def _at_sequence(node: Sequence, proven: Tree | None, pairs: tuple[Pairs, ...]) -> Iterator[Broken]:
    home = node.places
    before = {id(child): p for p, child in enumerate(proven.children)} if isinstance(proven, Sequence) else {}
    inside: dict[int, list[Pairs]] = {}
    for pair in pairs:
        first, second = home[pair.source], home[pair.sink]
        if first == second:
            inside.setdefault(first, []).append(pair)
        elif (
            first > second
            and pair.kind != "reduction"
            and not _kept(before, node.children[first], node.children[second])
            and not pair.is_empty
        ):
            yield would_run_after(pair)
    for position, own in inside.items():
        child = node.children[position]
        yield from broken(child, _counterpart(child, proven, before), tuple(own))


def would_run_after(pair: Pairs) -> Broken:
    """The dependences of a pair whose source's part a sequence would run after the sink's."""
    why = f"the part with {pair.source} would run after the part with {pair.sink}"
    return Broken(pair.kind, pair.map, why, f"keep the part with {pair.source} first")


def _kept(before: dict[int, int], first: Tree, second: Tree) -> bool:
    """True if both children had this relative order in the proven tree."""
    return before.get(id(first), -1) > before.get(id(second), len(before)) >= 0


def _counterpart(child: Tree, proven: Tree | None, before: dict[int, int]) -> Tree | None:
    """The proven child with the same statements; for a loop of one value around several, the sequence."""
    if not isinstance(proven, Sequence):
        return None
    if id(child) in before:
        return child
    around = proven if isinstance(child, Loop) and _has_one_value(child) else None
    return next((other for other in proven.children if other.members == child.members), around)


def _has_one_value(loop: Loop) -> bool:
    """True if a loop in order gives all its instances one number as date."""
    if loop.bind is not None:
        return False
    values = set[str]()
    for _, date in loop.dates:
        if date.n_piece() != 1 or not date.is_cst():
            return False
        ((_, value),) = date.get_pieces()
        values.add(str(value.get_constant_val()))
    return len(values) == 1
