"""Short sequences of Schedule's verbs, from which both targets' programs are made."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import lcm, prod

import islpy as isl

from polyfuse.analysis.storage import geometry
from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir import Access, Nest
from polyfuse.ir.tree import Buffer, Leaf, Loop, Sequence, Tree, path_to, statements
from polyfuse.machine import Machine
from polyfuse.schedule import Schedule
from polyfuse.schedule.binding import extent
from polyfuse.sets import IN, OUT
from polyfuse.strategy.cost.counts import Counts, dims_of, stride
from polyfuse.strategy.cost.kernel_model import Kernel, internal
from polyfuse.strategy.cost.roofline import Tiling
from polyfuse.strategy.fusion.group_search import aligned, shared_loops

MOST_PHASES = 4
"""Iterations of an innermost loop that are written out, so that each has subscripts without a division."""


@dataclass(frozen=True)
class Tiled:
    """A kernel whose band is cut: `tiles` are its tile loops, outermost first, `points` the loops inside a tile."""

    schedule: Schedule
    tiles: tuple[str, ...]
    points: tuple[str, ...]


def cut(schedule: Schedule, kernel: Kernel, tiling: Tiling, bounded: bool = False) -> Tiled:
    """for i: for j: S  ->  for j (tiles): for i (tiles): for i_in: for j_in: S, by a tiling's sizes and order.

    A size of 1 leaves the loop as a tile loop; a tile as large as the loop leaves it as a loop inside the tile, unless
    no tile loop would be left. With `bounded` that loop has a constant extent: one that depends on symbolic sizes is
    split, since a block has so many threads at most.
    """
    name = kernel.names[0]
    tiles: dict[int, str] = {}
    points: list[str] = []
    whole = all(s == e > 1 for s, e in zip(tiling.sizes, kernel.extents, strict=True))
    for position, loop in enumerate(kernel.band):
        size, all_of_it = tiling.sizes[position], kernel.extents[position]
        if size == 1:
            tiles[position] = loop.name
        elif (
            size == all_of_it
            and not (whole and position == 0)
            and not (bounded and constant_extent(schedule, loop) is None)
        ):
            points.append(loop.name)
        else:
            schedule = schedule.split(name, loop.name, size)
            tiles[position] = loop.name
            points.append(inside(schedule, name, loop.name).name)
    outer = [tiles[position] for position in tiling.order if position in tiles]
    return Tiled(reordered(schedule, name, (*outer, *points)), tuple(outer), tuple(points))


def inside(schedule: Schedule, statement: str, loop: str) -> Loop:
    """The next loop around a statement inside the named one."""
    loops = schedule.loops(statement)
    return loops[[x.name for x in loops].index(loop) + 1]


def where_legal(schedule: Schedule, verb: str, *args: str) -> Schedule:
    """The schedule after a verb, or as it was if a dependence forbids it."""
    try:
        done = getattr(schedule, verb)(*args)
    except IllegalSchedule:
        return schedule
    assert isinstance(done, Schedule)
    return done


def reordered(schedule: Schedule, statement: str, names: tuple[str, ...]) -> Schedule:
    """`reorder` where the loops are not in that order yet and may be."""
    wanted = set(names)
    now = tuple(loop.name for loop in schedule.loops(statement) if loop.name in wanted)
    return schedule if now == names else where_legal(schedule, "reorder", statement, *names)


def separated(schedule: Schedule, names: tuple[str, ...], keep: int) -> Schedule:
    """Loops inside the outermost `keep` around a kernel's statements taken apart, until each part is perfectly nested.

    for i_in: { for k: S; T }  ->  for i_in: for k: S; for i_in: T        loops whose body is statements alone stay

    A loop that carries a dependence between its parts stays as it is.
    """
    refused: set[tuple[str, str]] = set()
    found = _imperfect(schedule, names, keep, refused)
    while found is not None:
        done = where_legal(schedule, "distribute", *found)
        if done is schedule:
            refused.add(found)
        schedule = done
        found = _imperfect(schedule, names, keep, refused)
    return schedule


def _imperfect(
    schedule: Schedule, names: tuple[str, ...], keep: int, refused: set[tuple[str, str]]
) -> tuple[str, str] | None:
    """A loop to take apart next, innermost first, named by its first statement."""
    for name in names:
        for loop in reversed(schedule.loops(name)[keep:]):
            body, key = loop.body, (statements(loop)[0], loop.name)
            together = not isinstance(body, Sequence) or all(
                isinstance(child, Leaf) for child in body.children
            )
            if not together and key not in refused:
                return key
    return None


def is_perfect(schedule: Schedule, unit: tuple[str, ...]) -> bool:
    """True if all loops of a unit stand around all its statements."""
    loops = schedule.loops(unit[0])
    return all(
        len(schedule.loops(n)) == len(loops) == len(common_loops(schedule, (unit[0], n))) for n in unit[1:]
    )


def rejoined(schedule: Schedule, names: tuple[str, ...], keep: int, siblings: bool = False) -> Schedule:
    """Pointwise producers and consumers that `separated` took apart, in one loop nest again.

    With `siblings` also those that read the same tensor, so that a function of an element is computed once for both.
    """
    inside = schedule.nest.dependences().among(names)
    linked = {(p.source, p.sink) for p in inside if p.kind == "flow"}
    for first, second in pairwise(names):
        loops, others = schedule.loops(first)[keep:], schedule.loops(second)[keep:]
        pointwise = all(_is_pointwise(schedule, name, keep, siblings) for name in (first, second))
        read = [{a.tensor for a in schedule.nest.statement(name).reads} for name in (first, second)]
        if (
            not pointwise
            or not ((first, second) in linked or (siblings and read[0] & read[1]))
            or not loops
            or len(loops) != len(others)
            or loops[0] is others[0]
        ):
            continue
        fused = aligned(schedule, first, second, loops[-1].name)
        schedule = fused if isinstance(fused, Schedule) else schedule
    return schedule


def _is_pointwise(schedule: Schedule, name: str, keep: int, once: bool) -> bool:
    """True for a statement that adds nothing up; with `once` also for one that adds to each element once."""
    s = schedule.nest.statement(name)
    if not s.is_reduction:
        return True
    moved = {d for loop in schedule.loops(name)[keep:] for d in dims_of(loop.date(name))}
    return once and s.op == "+=" and all(stride(s.write, d) for d in moved)


def units(schedule: Schedule, names: tuple[str, ...], keep: int) -> list[tuple[str, ...]]:
    """The kernel's statements by the loop nests they stand in below the outermost `keep` loops."""
    found: list[tuple[Tree, tuple[str, ...]]] = []
    for name in names:
        below = path_to(schedule.tree, name)
        loops = [node for node in below if isinstance(node, Loop)]
        top: Tree = loops[keep] if len(loops) > keep else below[-1]
        if not any(known is top for known, _ in found):
            found.append((top, statements(top)))
    return [own for _, own in found]


def far_and_near(nest: Nest, name: str, dims: frozenset[int]) -> tuple[int, int]:
    """(accesses that jump when these dimensions advance, accesses that do not go on to a neighbour): best if small."""
    moved = [max((stride(a, d) for d in dims), default=0) for a in nest.statement(name).accesses]
    return moved.count(2), len(moved) - moved.count(1)


def goes(each: tuple[str, Access], loop: Loop, far: int) -> bool:
    """True if an access of a statement moves so far with a loop: see `stride`."""
    name, access = each
    return max((stride(access, d) for d in dims_of(loop.date(name))), default=0) == far


def contiguous(counts: Counts, schedule: Schedule, names: tuple[str, ...], loops: tuple[Loop, ...]) -> Loop:
    """The loop that walks along memory: of equals the innermost."""

    def quality(loop: Loop) -> tuple[int, int]:
        every = [far_and_near(schedule.nest, name, dims_of(loop.date(name))) for name in names]
        return sum(far for far, _ in every), sum(near for _, near in every)

    return min(reversed(loops), key=quality)


def along_memory(
    schedule: Schedule, counts: Counts, unit: tuple[str, ...], loops: tuple[Loop, ...]
) -> Schedule:
    """A pointwise loop nest with the loop that walks along memory innermost, on vector lanes."""
    return on_lanes(schedule, unit[0], loops, contiguous(counts, schedule, unit, loops))


def on_lanes(schedule: Schedule, name: str, loops: tuple[Loop, ...], vector: Loop) -> Schedule:
    """One of a statement's loops innermost, on vector lanes."""
    others = [loop.name for loop in loops if loop is not vector]
    schedule = reordered(schedule, name, (*others, vector.name))
    is_last = schedule.loops(name)[-1].name == vector.name
    return vectorized(schedule, name, vector) if is_last else schedule


def vectorized(schedule: Schedule, name: str, inner: Loop) -> Schedule:
    """An innermost loop on vector lanes if that is legal; written out in phases where its subscripts divide."""
    period = lcm(*(phases(schedule, n, inner) for n in statements(inner)))
    if period == 1 or period > MOST_PHASES:
        return where_legal(schedule, "vectorize", name, inner.name)
    schedule = schedule.split(name, inner.name, period)
    return where_legal(schedule, "unroll", name, schedule.loops(name)[-1].name)


def phases(schedule: Schedule, name: str, loop: Loop) -> int:
    """After how many values of a loop a statement's subscripts move on evenly: 2 for T[j // 2], 1 for T[2 * j].

    for j: y[j] = T[j // 2]  ->  for j: { y[2 * j] = T[j]; y[2 * j + 1] = T[j] }       no gather from T

    The pyramid's level of 2048² took 7.7 ms with loads one by one for `j // 2`, and 3.9 ms so (one Zen 5 core).
    """
    dims = dims_of(loop.date(name))
    found = 1
    for access in schedule.nest.statement(name).accesses:
        element = access.subscripts()
        pieces = (piece for d in range(element.dim(OUT)) for _, piece in element.get_pw_aff(d).get_pieces())
        for piece in pieces:
            for k in range(piece.dim(isl.dim_type.div)):
                part = piece.get_div(k)
                if any(part.involves_dims(IN, dim, 1) for dim in dims):
                    found = lcm(found, int(part.get_denominator_val().to_python()))
    return found


def constant_extent(schedule: Schedule, loop: Loop) -> int | None:
    """The number of values of a loop, if it does not depend on sizes."""
    return extent(schedule.nest, loop)


def users_in(schedule: Schedule, names: tuple[str, ...], tensor: str) -> tuple[str, ...]:
    """The kernel's statements that touch a tensor."""
    return tuple(name for name in names if tensor in schedule.nest.statement(name).tensors)


def common_loops(schedule: Schedule, names: tuple[str, ...]) -> tuple[Loop, ...]:
    """The loops around all of some statements, outermost first."""
    common = schedule.loops(names[0])
    for name in names[1:]:
        common = tuple(x for x in shared_loops(schedule, names[0], name) if any(x is y for y in common))
    return common


def promoted(schedule: Schedule, tensor: str, statement: str, at: str, memory: str) -> Schedule | None:
    """`promote`, or None if it is not legal there."""
    try:
        return schedule.promote(tensor, statement, at=at, memory=memory)
    except (IllegalSchedule, InvalidSchedule):
        return None


def buffer_bytes(schedule: Schedule, loop: Loop, tensor: str, memory: str) -> int | None:
    """The size of the buffer that promoting the tensor at the loop would need; None if it is not constant."""
    try:
        shape = geometry(schedule.nest, schedule.tree, loop, Buffer(tensor, memory)).shape
    except InvalidSchedule:
        return None
    return prod(shape) * schedule.nest.tensor(tensor).itemsize


def held_in_registers(schedule: Schedule, kernel: Kernel, results: int) -> Schedule:
    """Each temporary of a kernel in registers: one element of it in the innermost loops, or a thread's `results`.

    Raises InvalidSchedule if one does not fit.
    """
    for tensor in internal(kernel):
        users = users_in(schedule, kernel.names, tensor)
        itemsize = schedule.nest.tensor(tensor).itemsize
        for loop in reversed(common_loops(schedule, users)):
            size = buffer_bytes(schedule, loop, tensor, "register")
            done = promoted(schedule, tensor, users[0], loop.name, "register")
            if done is not None and size is not None:
                if size > results * itemsize:
                    raise InvalidSchedule(f"a thread's part of {tensor} is more than its results")
                schedule = done
                break
        else:
            raise InvalidSchedule(f"{tensor} does not fit into registers")
    return schedule


def contracted(schedule: Schedule, tensor: str, users: tuple[str, ...], machine: Machine) -> Schedule:
    """The temporary in a buffer of the innermost loop that holds all its uses, if that fits into L2 or is far smaller.

    t[N, N, N] of which each of N steps uses t[k, :, :] is N times what a step needs, in whatever memory that lies.
    """
    around = common_loops(schedule, users)
    for loop in reversed(around):
        size = buffer_bytes(schedule, loop, tensor, "local")
        if size is None:
            return schedule
        of_all_cores = 2 * size * machine.units
        if size > machine.levels[1].size // 2 and Counts(schedule.nest).tensor_bytes(tensor) < of_all_cores:
            return schedule
        done = promoted(schedule, tensor, users[0], loop.name, "local")
        if done is not None:
            return done
    return schedule
