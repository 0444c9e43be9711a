"""The order in which statement instances run, as a tree.

    tree     ::= Loop(name, dates, body)     for each value of the loop, in increasing order: body
               | Sequence(children)          the children one after the other
               | Leaf(statement)             one statement; its instances that get here run at one point

A loop's `dates` say, for each statement below it, the value of the loop at which an instance runs: a quasi-affine
function such as { mac[i, j, k] -> [floor(i/64)] }. A chain of loops is isl's band; a tree becomes an isl schedule
tree by `to_isl`. A nest's original order and every schedule are such trees.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, count, repeat
from operator import attrgetter

import islpy as isl

from polyfuse.ir.bindings import BULK as BULK
from polyfuse.ir.bindings import CLUSTER as CLUSTER
from polyfuse.ir.bindings import ON_CORES as ON_CORES
from polyfuse.ir.bindings import OWN_WARP as OWN_WARP
from polyfuse.ir.bindings import SHARED as SHARED
from polyfuse.ir.bindings import Binding as Binding
from polyfuse.ir.precision import Math
from polyfuse.layouts import CoreMatrixLayout, Layout, SwizzledLayout
from polyfuse.sets import IN, OUT, SET, numbered, union_map, union_set


@dataclass(frozen=True)
class Panel:
    """A layout: the tensor in panels of `width` elements along `axis`, one panel after the other.

    axis 1, width 32:  t[k, j]  ->  panel[j // 32, k, j % 32]      the elements of a panel's row are neighbours

    With a `phase` panels begin at elements that leave it as a remainder by the width, as the tiles of who reads them
    do; otherwise at the first element that is held, or where this needs no more panels, at a multiple.
    """

    axis: int
    width: int
    phase: int | None = None


@dataclass(frozen=True)
class Buffer:
    """A copy of the part of a tensor that the loop it hangs on accesses, in a memory of its own.

    It lives for one iteration of that loop (the body below). `memory`: "local" (private to a core or a thread),
    "register" (private to a thread, one element each), "shared" (one per block). Without a `panel` the elements lie
    in the order of the tensor's axes; a `layout` says how the rows of panels in shared memory lie: apart, in core
    matrices or swizzled. With `stages` it holds what so many iterations in a row need.
    """

    tensor: str
    memory: str
    panel: Panel | None = None
    layout: Layout | None = None
    stages: int = 1

    def __str__(self) -> str:
        """The text in a dump: "w in local", "w in local, 2 stages", "w in local, panels of 32 along axis 1"."""
        place = f"{self.tensor} in {self.memory}"
        if self.stages > 1:
            place = f"{place}, {self.stages} stages"
        if self.panel is None:
            return place
        place = f"{place}, panels of {self.panel.width} along axis {self.panel.axis}"
        s = self.layout
        if s is None or isinstance(s, CoreMatrixLayout | SwizzledLayout):
            return place if s is None else f"{place}, {s}"
        gaps = f" {s.gap} apart" if s.gap else ""
        skips = f", {s.skip} skipped every {s.every} rows" if s.skip else ""
        return f"{place}, vectors of {s.vector} of tiles of {s.tile} side by side{gaps}{skips}"


@dataclass(frozen=True)
class Fetch:
    """A loop on vector lanes, or a microkernel, asks for what it accesses of a tensor `by` values of `loop` later."""

    tensor: str
    loop: str
    by: int = 1

    @property
    def later(self) -> str:
        """The prefetched iteration: "the next i", "i + 4"."""
        return f"the next {self.loop}" if self.by == 1 else f"{self.loop} + {self.by}"

    def __str__(self) -> str:
        """The text in a dump: "fetches x of the next i"."""
        return f"fetches {self.tensor} of {self.later}"


@dataclass(frozen=True)
class Leaf:
    """One statement."""

    statement: str

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The statement."""
        return (self.statement,)

    @cached_property
    def members(self) -> frozenset[str]:
        """The statement."""
        return frozenset(self.names)


@dataclass(frozen=True)
class Loop:
    """One schedule dimension over the statements below it.

    `bind` says what runs its values (bindings.py), None in order.
    `barrier` asks for a barrier of the block's threads at the end of each iteration, with `grid` one of all blocks'.
    `apart` asks for code of its own for the full tiles of the loops around it, `fetches` for lines of memory ahead of
    time; both change no order. Of copies by a warp of their own, which the block's threads use in the same iteration or
    later, so many `slots` may be filled and not yet used (producer_consumer.py).
    `streams` are tensors that a loop on vector lanes stores past the caches.
    `math` says what a microkernel may round a product's factors to.
    `reuse`, in a nest's order, asks that its iterations use the same memory: `expand` gives them none of their own.
    """

    name: str
    dates: tuple[tuple[str, isl.PwAff], ...]
    body: Tree
    bind: Binding | None = None
    buffers: tuple[Buffer, ...] = ()
    barrier: bool = False
    grid: bool = False
    apart: bool = False
    fetches: tuple[Fetch, ...] = ()
    streams: tuple[str, ...] = ()
    math: Math = "ieee"
    slots: int = 0
    reuse: bool = False

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The statements below, in order."""
        return self.body.names

    @cached_property
    def members(self) -> frozenset[str]:
        """The statements below, to look one up."""
        return self.body.members

    @cached_property
    def forms(self) -> tuple[tuple[str, str], ...]:
        """Each statement with its date as a text without the name."""
        return tuple((name, numbered(str(date), {name: 0})) for name, date in self.dates)

    @cached_property
    def flat(self) -> bool:
        """True if no sequence below is directly inside another."""
        return is_flat(self.body)

    def date(self, statement: str) -> isl.PwAff:
        """The loop's value for each instance of a statement."""
        return self._by_statement[statement]

    @cached_property
    def _by_statement(self) -> dict[str, isl.PwAff]:
        return dict(self.dates)

    def partial(self) -> isl.UnionPwAff:
        """The dates of all statements as one function."""
        union = isl.UnionPwAff("{ }")
        for _, date in self.dates:
            union = union.union_add(isl.UnionPwAff.from_pw_aff(date))
        return union


@dataclass(frozen=True)
class Sequence:
    """Children in order. `barriers` holds the positions after which the block's threads meet, `grid` those of them
    after which all blocks' do.
    """

    children: tuple[Tree, ...]
    barriers: tuple[int, ...] = ()
    grid: tuple[int, ...] = ()

    @cached_property
    def places(self) -> dict[str, int]:
        """The position of the child that holds each statement below."""
        counts = map(len, map(_names, self.children))
        return dict(zip(self.names, chain.from_iterable(map(repeat, count(), counts)), strict=True))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The statements below, in order."""
        return tuple(chain.from_iterable(map(_names, self.children)))

    @cached_property
    def members(self) -> frozenset[str]:
        """The statements below, to look one up."""
        return frozenset(self.names)

    @cached_property
    def flat(self) -> bool:
        """True if no sequence from here down is directly inside another."""
        return _has_no_sequence(self.children) and all(map(is_flat, self.children))


Tree = Loop | Sequence | Leaf

_names = attrgetter("names")
"""A node's names. Networks have sequences of hundreds of kernels: what is asked of each is asked without a frame."""


def _has_no_sequence(run: tuple[Tree, ...]) -> bool:
    return Sequence not in set(map(type, run))


def statements(tree: Tree) -> tuple[str, ...]:
    """The names of the statements of a tree, in order; each node knows its own, found once."""
    return tree.names


def children(tree: Tree) -> tuple[Tree, ...]:
    """The subtrees directly below."""
    match tree:
        case Leaf():
            return ()
        case Loop():
            return (tree.body,)
        case Sequence():
            return tree.children


def parts(tree: Tree) -> tuple[Tree, ...]:
    """Return the parts that a tree runs in sequence: a sequence's children, or the tree itself. At the top, the
    kernels.
    """
    return tree.children if isinstance(tree, Sequence) else (tree,)


def with_children(tree: Tree, new: tuple[Tree, ...]) -> Tree:
    """The same node over other subtrees; unchanged subtrees keep their identity."""
    match tree:
        case Leaf():
            return tree
        case Loop():
            return tree if new[0] is tree.body else replace(tree, body=new[0])
        case Sequence():
            same = len(new) == len(tree.children) and all(
                a is b for a, b in zip(new, tree.children, strict=True)
            )
            return tree if same else replace(tree, children=new)


def parts_with(tree: Tree, names: Collection[str]) -> tuple[Tree, ...]:
    """The parts of the outermost sequence that hold some of these statements, in order."""
    if not isinstance(tree, Sequence):
        return (tree,) if not tree.members.isdisjoint(names) else ()
    found = {tree.places[name] for name in names if name in tree.places}
    return tuple(tree.children[place] for place in sorted(found))


def sequence(run: tuple[Tree, ...]) -> Tree:
    """A sequence without needless levels: one part stands for itself, sequences inside are flattened."""
    flat = run if _has_no_sequence(run) else tuple(c for part in run for c in parts(part))
    return flat[0] if len(flat) == 1 else Sequence(flat)


def is_flat(tree: Tree) -> bool:
    """True if no sequence is directly inside another; each node knows its own, found once."""
    return isinstance(tree, Leaf) or tree.flat


def walk(tree: Tree) -> Iterator[Tree]:
    """Every node, parents before children."""
    open_: list[Tree] = [tree]
    while open_:
        node = open_.pop()
        yield node
        open_.extend(reversed(children(node)))


def loops(tree: Tree) -> Iterator[Loop]:
    """Every loop, outer before inner."""
    return (node for node in walk(tree) if isinstance(node, Loop))


def path_to(tree: Tree, statement: str) -> tuple[Tree, ...]:
    """The nodes from the root to a statement's leaf; KeyError if it is not there."""
    if statement not in tree.members:
        raise KeyError(statement)
    path = [tree]
    while not isinstance(tree, Leaf):
        tree = tree.body if isinstance(tree, Loop) else tree.children[tree.places[statement]]
        path.append(tree)
    return tuple(path)


def loops_around(tree: Tree, statement: str) -> tuple[Loop, ...]:
    """The loops around a statement, outermost first."""
    return tuple(node for node in path_to(tree, statement) if isinstance(node, Loop))


def replace_node(tree: Tree, old: Tree, new: Tree) -> Tree:
    """The tree with the node `old` (by identity) replaced."""
    if tree is old:
        return new
    if not old.members <= tree.members:
        return tree
    return with_children(tree, tuple(replace_node(child, old, new) for child in children(tree)))


def restrict(tree: Tree, keep: frozenset[str]) -> Tree | None:
    """The tree with only some of its statements; None if none of them is in it."""
    if tree.members <= keep:
        return tree
    if tree.members.isdisjoint(keep):
        return None
    match tree:
        case Leaf(name):
            return tree if name in keep else None
        case Loop():
            body = restrict(tree.body, keep)
            if body is None:
                return None
            dates = tuple((name, date) for name, date in tree.dates if name in keep)
            return tree if body is tree.body else replace(tree, body=body, dates=dates)
        case Sequence():
            lost = tree.members - keep
            if 2 * len(lost) < len(tree.members):  # most parts stay as they are
                every = list[Tree | None](tree.children)
                for place in {tree.places[name] for name in lost}:
                    every[place] = restrict(tree.children[place], keep)
            else:
                every = [restrict(child, keep) for child in parts_with(tree, keep)]
            parts = tuple(part for part in every if part is not None)
            if not parts:
                return None
            return with_children(tree, parts) if len(parts) == len(tree.children) else sequence(parts)


def depth(tree: Tree) -> int:
    """The number of dates on the longest path: one per loop and one per sequence."""
    below = max((depth(child) for child in children(tree)), default=0)
    return below + (0 if isinstance(tree, Leaf) else 1)


def dates(tree: Tree, domains: Mapping[str, isl.Set]) -> isl.UnionMap:
    """Return the date of each instance: a map to one space, ordered lexicographically; shorter dates end in zeros.

    Sequence(Leaf("A"), Loop("i", {B[i] -> [i]}, Leaf("B")))  ->  { A[] -> [0, 0]; B[i] -> [1, i] }
    """
    width = depth(tree)
    return union_map(
        date_map(domains[name], [*parts, *([0] * (width - len(parts)))])
        for name, parts in date_parts(tree).items()
    )


def date_parts(tree: Tree) -> dict[str, list[isl.PwAff | int]]:
    """For each statement, return its dates from the root down: a loop's function or a position in a sequence."""
    match tree:
        case Leaf(name):
            return {name: []}
        case Loop():
            return {name: [tree.date(name), *rest] for name, rest in date_parts(tree.body).items()}
        case Sequence():
            return {
                name: [position, *rest]
                for position, child in enumerate(tree.children)
                for name, rest in date_parts(child).items()
            }


def date_map(domain: isl.Set, parts: list[isl.PwAff | int]) -> isl.Map:
    """The map from a statement's instances to the given dates."""
    space = domain.get_space()
    zero = isl.LocalSpace.from_space(space)
    pieces = isl.PwAffList.alloc(domain.get_ctx(), len(parts))
    for part in parts:
        value = (
            part
            if isinstance(part, isl.PwAff)
            else isl.PwAff.from_aff(isl.Aff.val_on_domain(zero, isl.Val(part)))
        )
        pieces = pieces.add(value)
    out = isl.Space.map_from_domain_and_range(space, space.params().add_dims(isl.dim_type.set, len(parts)))
    return isl.MultiPwAff.from_pw_aff_list(out, pieces).as_map().intersect_domain(domain)


Marks = Mapping[int, tuple[str, ...]]
"""Names of isl mark nodes to put above a node, outermost first, by the node's id()."""


Isolated = Mapping[int, isl.Set]
"""Values of a loop, with those of the loops around it, that get a loop of their own, by the loop's id()."""


def to_isl(
    tree: Tree, domains: Mapping[str, isl.Set], marks: Marks | None = None, isolated: Isolated | None = None
) -> isl.Schedule:
    """The isl schedule tree over the tree's statements, with `marks` for what isl does not know."""
    domain = _filter(tree, domains).intersect(union_set(domains[name] for name in statements(tree)))
    root = isl.Schedule.from_domain(domain).get_root()
    return _insert(root.child(0), tree, domains, marks or {}, isolated or {}).get_schedule()


def _filter(tree: Tree, domains: Mapping[str, isl.Set]) -> isl.UnionSet:
    """Every instance of a tree's statements, whether in the domains or not."""
    return union_set(isl.Set.universe(domains[name].get_space()) for name in statements(tree))


def _insert(
    node: isl.ScheduleNode, tree: Tree, domains: Mapping[str, isl.Set], marks: Marks, isolated: Isolated
) -> isl.ScheduleNode:
    """Put a tree at a leaf of an isl schedule tree; the result stands where `node` stood."""
    match tree:
        case Loop():
            band = isl.MultiUnionPwAff.from_union_pw_aff(tree.partial())
            node = node.insert_partial_schedule(band)
            # atomic: one loop for all statements, never one per combination of those that are active
            if id(tree) in isolated:
                node = node.band_set_ast_build_options(_isolating(isolated[id(tree)]))
                node = node.band_member_set_isolate_ast_loop_type(0, isl.ast_loop_type.atomic)
            node = node.band_member_set_ast_loop_type(0, isl.ast_loop_type.atomic)
            node = _insert(node.child(0), tree.body, domains, marks, isolated).parent()
        case Sequence():
            filters = isl.UnionSetList.alloc(node.get_ctx(), len(tree.children))
            for child in tree.children:
                filters = filters.add(_filter(child, domains))
            node = node.insert_sequence(filters)
            for position, child in enumerate(tree.children):
                inside = _insert(node.child(position).child(0), child, domains, marks, isolated)
                node = inside.parent().parent()
    for name in reversed(marks.get(id(tree), ())):
        node = node.insert_mark(isl.Id(name))
    return node


def _isolating(values: isl.Set) -> isl.UnionSet:
    """{ [i, k] : … }  ->  { isolate[[i] -> [k]] : … }, the option by which isl's AST generation gives them a loop."""
    outer = values.dim(SET) - 1
    pairs = isl.Map.from_range(values).move_dims(IN, 0, OUT, 0, outer).wrap()
    return isl.UnionSet.from_set(pairs.set_tuple_name("isolate"))
