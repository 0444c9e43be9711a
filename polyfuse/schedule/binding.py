"""The verbs `bind`, `unroll` and `vectorize`: choose what executes a loop's iterations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import islpy as isl

from polyfuse.analysis.storage import BLOCKS
from polyfuse.errors import InvalidSchedule
from polyfuse.errors.budget import within
from polyfuse.ir.bindings import Binding
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import ON_CORES, Loop, Tree, loops, path_to, replace_node, statements
from polyfuse.schedule.chains import loop_named, only_loop

PLACES = tuple(
    place for place in Binding if place not in (Binding.VECTOR, Binding.UNROLL, Binding.MICROKERNEL)
)
"""The places to which `bind` may bind a loop."""

MOST_UNROLLED = 64
"""More copies of a body than this cost the compiler more than they gain."""

EXTENT_OPERATIONS = 500_000
"""isl operations for a loop's number of values. One that is not found is treated as one that depends on sizes."""


def bind(nest: Nest, tree: Tree, statement: str | None, places: Mapping[str, str]) -> Tree:
    """for i: S  ->  parallel for i over cores: S."""
    for name, place in places.items():
        if place not in PLACES:
            raise InvalidSchedule(f"bind: unknown place {place!r}; expected one of {', '.join(PLACES)}")
        loop = only_loop(tree, name) if statement is None else loop_named(tree, statement, name)
        _check_place(tree, loop, place)
        tree = replace_node(tree, loop, replace(loop, bind=Binding(place)))
    return tree


def _check_place(tree: Tree, loop: Loop, place: str) -> None:
    if loop.bind is not None:
        raise InvalidSchedule(f"bind: loop {loop.name} is already bound to {loop.bind}")
    around = path_to(tree, statements(loop)[0])
    relatives = [x for x in (*around, *loops(loop)) if isinstance(x, Loop) and x is not loop]
    for other in relatives:
        if other.bind == place:
            raise InvalidSchedule(f"bind: loop {other.name} on the same path is already bound to {place}")
        if other.bind is not None and {other.bind, place} & {*ON_CORES} and other.bind in PLACES:
            raise InvalidSchedule(
                f"bind: loop {other.name} is bound to {other.bind}; {_mixed(other.bind, place)}"
            )
    if place == Binding.PIPELINE and (not isinstance(loop.body, Loop) or loop.body.bind is not None):
        raise InvalidSchedule(
            f"bind: {loop.name} does not directly contain exactly one sequential loop, in which its iterations could "
            "wait for each other; distribute or interchange first"
        )
    outside = [x for x in around[: _place_of(around, loop)] if isinstance(x, Loop)]
    wrong = [x for x in outside if x.bind is not None and x.bind not in BLOCKS]
    if place in BLOCKS and wrong:
        raise InvalidSchedule(
            f"bind: only sequential loops and loops over blocks may enclose a loop bound to {place}, but "
            f"{wrong[0].name} "
            f"is bound to {wrong[0].bind}, and {loop.name} lies in it"
        )


def _mixed(one: str, other: str) -> str:
    if {one, other} <= {*ON_CORES}:
        rows = "a pipeline's rows run" if one == Binding.PIPELINE else "its values run"
        return f"{rows} on the cores already"
    return "cores and a GPU's places do not mix"


def _place_of(around: tuple[Tree, ...], loop: Loop) -> int:
    return next(p for p, node in enumerate(around) if node is loop)


def unroll(nest: Nest, tree: Tree, statement: str, loop: str) -> Tree:
    """for i in 0, 1: S[i]  ->  S[0]; S[1]."""
    found = _unbound(tree, statement, loop)
    count = extent(nest, found)
    if count is None or count > MOST_UNROLLED:
        size = "no constant number of" if count is None else str(count)
        raise InvalidSchedule(
            f"unroll: loop {loop} has {size} values, at most {MOST_UNROLLED} are unrolled; split it first"
        )
    return replace_node(tree, found, replace(found, bind=Binding.UNROLL))


def vectorize(nest: Nest, tree: Tree, statement: str, loop: str) -> Tree:
    """for j: S[j]  ->  S[0:n] on vector lanes; the loop must be innermost but for unrolled ones."""
    found = _unbound(tree, statement, loop)
    inner = [x.name for x in loops(found.body) if x.bind != "unroll"]
    if inner:
        raise InvalidSchedule(
            f"vectorize: {', '.join(inner)} lies inside {loop}; make {loop} innermost first"
        )
    return replace_node(tree, found, replace(found, bind=Binding.VECTOR))


def _unbound(tree: Tree, statement: str, name: str) -> Loop:
    loop = loop_named(tree, statement, name)
    if loop.bind is not None:
        raise InvalidSchedule(f"loop {name} is already bound to {loop.bind}")
    return loop


def extent(nest: Nest, loop: Loop) -> int | None:
    """The number of values a loop runs through at most, over all its statements.

    None if it depends on sizes, or if isl needs more than EXTENT_OPERATIONS to find it.
    """
    return within(nest.context.get_ctx(), EXTENT_OPERATIONS, lambda: _extent(nest, loop), lambda: None)


def _extent(nest: Nest, loop: Loop) -> int | None:
    low, high = [], []
    for name, date in loop.dates:
        if nest.domains[name].is_empty():
            continue
        # not the function's own extremes: where 2k = N - 1, isl writes k as (N - 1)/2, and has none for that
        values = nest.domains[name].apply(date.as_map())
        low.append(values.dim_min_val(0))
        high.append(values.dim_max_val(0))
    if not low:
        return 0
    if not all(value.is_int() for value in (*low, *high)):
        return None
    return max(_int(v) for v in high) - min(_int(v) for v in low) + 1


def _int(value: isl.Val) -> int:
    return int(value.to_python())
