"""The verb `stream`: non-temporal stores.

No instance moves, but what a loop writes to a tensor reaches memory later than the instance that wrote it, at the
latest when the loop ends. That is seen by nobody if no other instance in the loop accesses the tensor.
"""

from __future__ import annotations

from dataclasses import replace

import islpy as isl

from polyfuse.errors import InvalidSchedule
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Leaf, Loop, Tree, date_map, parts, replace_node, statements
from polyfuse.schedule.chains import loops_of
from polyfuse.sets import OUT


def stream(nest: Nest, tree: Tree, statement: str) -> Tree:
    """for j (vector): y[i, j] = …  ->  the same, whose lines of y go to memory past the caches."""
    around = loops_of(tree, statement)
    inner = around[-1] if around else None
    if inner is None or inner.bind != "vector":
        what = (
            f"the innermost loop around {statement}, {inner.name}," if inner else f"{statement}, in no loop,"
        )
        raise InvalidSchedule(f"stream: {what} is not on vector lanes; vectorize it first")
    if any(x.bind is not None and x.bind.on_gpu for x in around):
        raise InvalidSchedule(
            f"stream: {statement} runs in a GPU's threads, whose stores bypass L1 already; stream is for CPUs"
        )
    written = nest.statement(statement)
    tensor = written.write.tensor
    if tensor in inner.streams:
        raise InvalidSchedule(f"stream: {inner.name} streams {tensor} already")
    if written.op != "=":
        raise InvalidSchedule(
            f"stream: {statement} accumulates into {tensor}; only assignments (=) can be streamed"
        )
    if any(b.tensor == tensor for x in around for b in x.buffers):
        raise InvalidSchedule(
            f"stream: {tensor} is promoted to a buffer around {statement}, which stays in cache"
        )
    if not all(isinstance(part, Leaf) for part in parts(inner.body)):
        raise InvalidSchedule(f"stream: {inner.name} contains loops, which may end inside a cache line")
    others = [name for name in statements(inner) if name != statement]
    reads = [statement] if any(read.tensor == tensor for read in written.reads) else []
    users = reads + [name for name in others if tensor in nest.statement(name).tensors]
    if users:
        raise InvalidSchedule(
            f"stream: {users[0]} in {inner.name} accesses {tensor} too, which is complete only when the loop ends; "
            "distribute first"
        )
    if not _goes_on(nest, around, statement):
        raise InvalidSchedule(
            f"stream: {statement} does not access {tensor} with unit stride along {inner.name}"
        )
    return replace_node(tree, inner, replace(inner, streams=(*inner.streams, tensor)))


def _goes_on(nest: Nest, around: tuple[Loop, ...], statement: str) -> bool:
    """True if the innermost loop has unit stride along the last axis.

    T = { dates -> element }: { d -> T(d + [0, …, 1]) } = { d -> T(d) + [0, …, 1] } wherever T has both.

    { [i, j] -> y[i, j] } is such a T, { [i, j] -> y[j, i] } and { [i, j] -> y[i, 2 j] } are not.
    """
    write = nest.statement(statement).write.map
    if write.dim(OUT) == 0:
        return False
    dates = date_map(nest.domains[statement], [loop.date(statement) for loop in around])
    touched = dates.reverse().apply_range(write.intersect_domain(nest.domains[statement]))
    later = _next(touched.domain()).apply_range(touched)
    beside = touched.apply_range(_next(touched.range()))
    known = later.domain().intersect(touched.domain())
    return bool(later.intersect_domain(known).is_equal(beside.intersect_domain(known)))


def _next(space: isl.Set) -> isl.Map:
    """{ [a, b] -> [a, b + 1] } over the space of a set."""
    same = isl.Space.map_from_set(space.get_space())
    functions = isl.MultiAff.identity(same)
    last = functions.dim(OUT) - 1
    moved = functions.get_aff(last).add_constant_val(isl.Val(1))
    return functions.set_aff(last, moved).as_map()
