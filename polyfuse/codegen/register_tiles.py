"""What isl proves of a GPU's tiles of results in registers and of its 128-bit copies, before they become one operation.

    for k: for r: for c: y[r, c] += a[at(k, r)] * b[at(k, c)]     ->   tile_fma(rows, columns, y, a, …, b, …, count)
                                     or, by a warp together,      ->   tile_mma_tf32(rows, columns, y, a, …, b, …)
    for l: shared[to + step*l] = x[from + l]                      ->   copy_vector(4, shared, to, step, x, from)
                                     or, waited for later on,     ->   copy_ahead(4, shared, to, step, x, from)

A tile computes all of its results, those that it lacks too: nobody else may touch these in the thread's registers.
{ [loops around] -> element that another statement touches there }  is in  { [loops around] -> element summed there }

An operation knows how far an element lies from the tile's first one. That holds iff the place of an element without
that distance is the same for all instances that agree on the loops around:
{ [loops around] -> place(k, r) - distance(k, r) } is single-valued. The first element is at a multiple of the vector.

Tensor cores multiply what the lanes of a warp hold together (codegen/tensor_operations.py). Lane 4 * g + t, the thread
with thread.x = t and thread.y = g modulo 8, reads rows of its own, whatever t is; its columns are those of the thread
with thread.x = g // 2, the first or the second half of them. So columns are counted from those of thread.x = 0 on, in
tiles of half a thread's. And a warp's lanes run the same steps: { results } x { steps } are all of a block's instances.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce

import islpy as isl

from polyfuse.analysis.neighbours import ACCESS_BYTES, agrees, flat_position, is_multiple, is_one_access
from polyfuse.analysis.storage import BLOCKS, Geometry, floored
from polyfuse.codegen.warpgroup_tiles import (
    CoreLines,
    Indices,
    core_lines,
    elements_for_each,
    in_cores,
    is_whole,
)
from polyfuse.errors import InvalidSchedule
from polyfuse.ir.access import Access
from polyfuse.ir.nest import Nest
from polyfuse.ir.precision import Math
from polyfuse.ir.scalar import read
from polyfuse.ir.statement import Statement
from polyfuse.ir.tree import Loop, Spread, Tree, date_map, loops, loops_around, replace_node, statements
from polyfuse.schedule.binding import extent
from polyfuse.schedule.microkernel import Roles, roles_of
from polyfuse.sets import SET


@dataclass(frozen=True)
class Lines:
    """Where a factor's elements lie from its first one: steps are lines, every so many of them some more apart."""

    position: int
    line: int
    every: int
    skip: int
    part: int
    vector: int


@dataclass(frozen=True)
class TileProduct:
    """A product whose tile of results is in registers and whose factors are in spread panels, or in core matrices.

    `copied` elements of these are what each thread of a warpgroup brings there. Where all that is copied there in an
    iteration is for a later one, `ahead`, the product may begin before the copies; it then waits at the next barrier.
    """

    rows: int
    columns: int
    steps: int
    left: Lines | CoreLines
    right: Lines | CoreLines
    math: Math = "ieee"
    copied: int = 0
    ahead: bool = False
    waits: bool = True

    @property
    def by_warpgroup(self) -> bool:
        """Whether 128 threads share instructions, which read the factors where they lie."""
        return isinstance(self.left, CoreLines)


@dataclass(frozen=True)
class Neighbours:
    """A statement in a loop of so many values: the reads that are neighbours in memory, and whether its results are.

    `reads` are positions among the statement's reads.
    """

    count: int
    reads: tuple[int, ...]
    written: bool


@dataclass(frozen=True)
class VectorCopy:
    """A copy of so many neighbours at once to places `step` elements apart; or of one element.

    One that is `ahead` goes on while the thread does other things, until it waits for it (codegen/in_flight.py).
    """

    count: int
    step: int
    ahead: bool = False


Operation = TileProduct | VectorCopy | Neighbours
"""What isl can prove of a statement and the loops around it."""


def device_operations(
    nest: Nest, part: Tree, geometries: Mapping[str, Geometry], ahead: frozenset[str] = frozenset()
) -> dict[str, Operation]:
    """The statements of a kernel that are such an operation in their innermost loops, by name.

    `ahead` are the copies that something waits for. Raises InvalidSchedule where a microkernel is for tensor cores and
    its threads are no warps of theirs.
    """
    singles = (name for name in statements(part) if _is_copy(nest, nest.statement(name), geometries))
    found: dict[str, Operation] = {
        n: VectorCopy(1, 1, n in ahead and not _of_halves(nest, n)) for n in singles
    }
    for loop in loops(part):
        names = statements(loop)
        if loop.bind == "vector":
            found |= _in_neighbours(nest, part, loop, geometries)
        if len(names) != 1 or loop.bind not in ("microkernel", "vector"):
            continue
        s = nest.statement(names[0])
        operation = (
            _tile_product(nest, part, loop, s, geometries, ahead)
            if loop.bind == "microkernel"
            else _vector_copy(nest, part, loop, s, geometries, s.name in ahead)
        )
        if operation is not None:
            found[s.name] = operation
        elif loop.math != "ieee":
            raise InvalidSchedule(_lacking(loop.math, s.name))
    return found


def in_one_piece(tree: Tree, operations: frozenset[str]) -> Tree:
    """The tree without full tiles apart where the operation runs tiles that are cut as well as full ones."""
    for loop in loops(tree):
        names = statements(loop)
        if loop.bind == "microkernel" and loop.apart and len(names) == 1 and names[0] in operations:
            return in_one_piece(replace_node(tree, loop, replace(loop, apart=False)), operations)
    return tree


def _tile_product(
    nest: Nest, part: Tree, top: Loop, s: Statement, geometries: Mapping[str, Geometry], ahead: frozenset[str]
) -> TileProduct | None:
    free = replace(top, bind=None)
    try:
        roles = roles_of(nest, replace_node(part, top, free), s.name, free, top.math)
    except InvalidSchedule:
        return None
    if roles.rows is None or len(roles.steps) != 1:
        return None
    (by_step,) = roles.steps
    sums = geometries.get(s.write.tensor)
    rows, columns, steps = (extent(nest, loop) for loop in (roles.rows, roles.columns, by_step))
    if sums is None or rows is None or columns is None or steps is None:
        return None
    if sums.buffer.memory != "register" or tuple(e for e in sums.shape if e != 1) != (rows, columns):
        return None
    around = [loop.date(s.name) for loop in loops_around(part, s.name)]
    outside = around[: len(around) - 3]
    if not _sums_all(nest, s, outside, sums):
        return None
    k, r, c = (loop.date(s.name) for loop in (by_step, roles.rows, roles.columns))
    domain = nest.domains[s.name]
    if top.math != "ieee":
        factors = _fragments(nest, part, s, roles, geometries)
        if factors is None:
            return None
        first, second = factors
        copied = elements_for_each(nest, part, s, geometries) if isinstance(first, CoreLines) else 0
        held = {access.tensor for access in s.reads}
        copies = {name for name in statements(part) if nest.statement(name).write.tensor in held}
        return TileProduct(rows, columns, steps, first, second, top.math, copied, copies <= ahead)
    left = _lines(domain, s, roles.left, outside, (k, r), rows, geometries)
    right = _lines(domain, s, roles.right, outside, (k, c), columns, geometries)
    if left is None or right is None:
        return None
    return TileProduct(rows, columns, steps, left, right)


def _sums_all(nest: Nest, s: Statement, outside: list[isl.PwAff], sums: Geometry) -> bool:
    """Whether each tile sums up every element that others touch in the buffer of its results."""
    domain = nest.domains[s.name]
    dates = date_map(domain, outside)
    own = s.write.map.intersect_domain(domain).apply_domain(dates)
    buffers = isl.Map.from_pw_multi_aff(sums.prefix[s.name]).intersect_domain(domain).apply_domain(dates)
    for name, prefix in sums.prefix.items():
        other = nest.statement(name)
        for access in other.accesses:
            if name == s.name or access.tensor != s.write.tensor:
                continue
            touched = access.map.intersect_domain(nest.domains[name])
            there = touched.apply_domain(isl.Map.from_pw_multi_aff(prefix))
            if not buffers.apply_range(there).is_subset(own):
                return False
    return True


def _lines(
    domain: isl.Set,
    s: Statement,
    position: int,
    outside: list[isl.PwAff],
    inner: tuple[isl.PwAff, isl.PwAff],
    most: int,
    geometries: Mapping[str, Geometry],
) -> Lines | None:
    """Where a factor's elements lie, in tiles of `most`, if the first one's place is a function of `outside`."""
    access = s.reads[position]
    held = geometries.get(access.tensor)
    if held is None or not isinstance(held.buffer.spread, Spread) or held.buffer.panel is None:
        return None
    spread, width = held.buffer.spread, held.buffer.panel.width
    if spread.tile != most:
        return None
    lines = Lines(position, spread.row(width), spread.every, spread.skip, spread.part(width), spread.vector)
    (place,) = held.cell(s.name, access)
    step, along = inner
    tile = floored(along, most)
    along = along.sub(tile.scale_val(isl.Val(most)))
    part = floored(along, lines.vector)
    distance = reduce(
        isl.PwAff.add,
        (
            step.scale_val(isl.Val(lines.line)),
            floored(step, lines.every).scale_val(isl.Val(lines.skip)),
            tile.scale_val(isl.Val(lines.vector)),
            part.scale_val(isl.Val(lines.part)),
            along.sub(part.scale_val(isl.Val(lines.vector))),
        ),
    )
    first = place.sub(distance)
    proven = agrees(domain, outside, first) and is_multiple(domain, first, lines.vector)
    return lines if proven else None


def _fragments(
    nest: Nest, part: Tree, s: Statement, roles: Roles, geometries: Mapping[str, Geometry]
) -> tuple[Lines, Lines] | tuple[CoreLines, CoreLines] | None:
    """Where the factors of a warp's lanes lie; None for one that does not lie as they read it."""
    assert roles.rows is not None, "the verb has asked for rows"
    around = [x for x in loops_around(part, s.name) if x not in (*roles.steps, roles.rows, roles.columns)]
    places = {x.bind: x.date(s.name) for x in around}
    domain, (step,) = nest.domains[s.name], roles.steps
    if not {"thread.x", "thread.y"} <= places.keys() or _least_and_most(domain, places["thread.x"]) != (0, 3):
        return None
    serial = [x.date(s.name) for x in around if x.bind is None]
    blocks = [x.date(s.name) for x in around if x.bind in BLOCKS]
    k, r, c = (loop.date(s.name) for loop in (step, roles.rows, roles.columns))
    rows, columns = extent(nest, roles.rows), extent(nest, roles.columns)
    if rows is None or columns is None or not _all_steps(domain, s, blocks, [*serial, k]):
        return None
    if in_cores(geometries, s):
        others = tuple(x.date(s.name) for x in around if x.bind not in ("thread.x", "thread.y"))
        at = Indices(k, r, c, places["thread.x"], places["thread.y"], others)
        whole = is_whole(domain, (*blocks, *serial), k, int(extent(nest, step) or 0))
        return (
            core_lines(domain, s, roles.left, roles.right, (rows, columns), at, geometries) if whole else None
        )
    by_lane = [x.date(s.name) for x in around if x.bind != "thread.x"]
    by_warp = [x.date(s.name) for x in around if x.bind not in ("thread.x", "thread.y")]
    along = c.add(places["thread.x"].scale_val(isl.Val(columns)))
    left = _lines(domain, s, roles.left, by_lane, (k, r), rows, geometries)
    right = _lines(domain, s, roles.right, by_warp, (k, along), columns // 2, geometries)
    if left is None or right is None or 4 % left.every or 4 % right.every:
        return None
    return left, right


def _all_steps(domain: isl.Set, s: Statement, blocks: list[isl.PwAff], steps: list[isl.PwAff]) -> bool:
    """Whether every result of a block takes the same steps, each tile's from 0 on.

    { [block, result, step] }  is  { [block, result] } x { [step] } for each block
    """
    element = s.write.subscripts()
    subscripts = [element.get_pw_aff(axis) for axis in range(element.dim(isl.dim_type.out))]
    every = date_map(domain, [*blocks, *subscripts, *steps]).range()
    held, count = len(blocks), len(subscripts)
    results = every.project_out(SET, held + count, len(steps)).insert_dims(SET, held + count, len(steps))
    taken = every.project_out(SET, held, count)
    last = held + len(steps) - 1
    first = taken.fix_val(SET, last, isl.Val(0)).project_out(SET, last, 1)
    from_zero = taken.project_out(SET, last, 1).is_subset(first)
    return bool(from_zero and results.intersect(taken.insert_dims(SET, held, count)).is_subset(every))


def _least_and_most(domain: isl.Set, value: isl.PwAff) -> tuple[int, int] | None:
    """The numbers between which a date lies; None if they depend on sizes."""
    least, most = value.intersect_domain(domain).min_val(), value.intersect_domain(domain).max_val()
    return (int(least.to_python()), int(most.to_python())) if least.is_int() and most.is_int() else None


def _lacking(math: str, statement: str) -> str:
    return (
        f"microkernel: math={math!r} needs the sums of {statement} in registers and its factors in spread panels in "
        "shared memory, 4 threads on thread.x along the columns in tiles of half a thread's columns, a multiple of 8 "
        "on thread.y along the rows in tiles of a thread's rows, and the same steps for every result"
    )


def _in_neighbours(
    nest: Nest, part: Tree, loop: Loop, geometries: Mapping[str, Geometry]
) -> dict[str, Operation]:
    """What the statements of a vector loop touch 16 bytes at a time.

    All of it is read before the first statement and written after the last: that leaves out what a statement reads
    behind one that writes the same array, what is written twice, and what is added to in memory.
    """
    count, names = extent(nest, loop), statements(loop)
    if count is None:
        return {}
    every = [nest.statement(name) for name in names]
    found: dict[str, Operation] = {}
    for place, s in enumerate(every):

        def wide(access: Access, name: str = s.name) -> bool:
            held = geometries.get(access.tensor)
            near = held is None or (
                held.buffer.memory == "shared" and not isinstance(held.buffer.spread, Spread)
            )
            return near and is_one_access(nest, part, loop, name, access, count, held)

        before = {other.write.tensor for other in every[:place]}
        after = {access.tensor for other in every[place + 1 :] for access in other.accesses}
        reads = tuple(p for p, a in enumerate(s.reads) if a.tensor not in before and wide(a))
        target = s.write.tensor
        written = s.op == "=" and target not in before | after and wide(s.write)
        if reads or written:
            found[s.name] = Neighbours(count, reads, written)
    return found


def _is_copy(nest: Nest, s: Statement, geometries: Mapping[str, Geometry]) -> bool:
    """Whether a statement copies an element of a tensor into a spread buffer, bit for bit."""
    held = geometries.get(s.write.tensor)
    if held is None or held.buffer.spread is None or s.op != "=" or s.body != read(0):
        return False
    source = nest.tensor(s.reads[0].tensor)
    return source.name not in geometries and source.dtype == nest.tensor(s.write.tensor).dtype


def _vector_copy(
    nest: Nest, part: Tree, loop: Loop, s: Statement, geometries: Mapping[str, Geometry], ahead: bool
) -> VectorCopy | None:
    """A copy of neighbours in a tensor, the first at a multiple of 16 bytes, to a shared buffer."""
    if not _is_copy(nest, s, geometries):
        return None
    count, tensor = extent(nest, loop), nest.tensor(s.reads[0].tensor)
    if count is None or count * tensor.itemsize != ACCESS_BYTES:
        return None
    if tensor.gather is not None:
        return None  # no row lies behind the one before it
    held = geometries[s.write.tensor]
    source = flat_position(s.reads[0], tensor.shape)
    if source is None:
        return None
    outside = [x.date(s.name) for x in loops_around(part, s.name) if x is not loop]
    domain, along = nest.domains[s.name], loop.date(s.name)
    first = source.sub(along)
    if not (agrees(domain, outside, first) and is_multiple(domain, first, count)):
        return None
    (place,) = held.cell(s.name, s.write)
    for step in _steps(held, count):
        there = place.sub(along.scale_val(isl.Val(step)))
        if agrees(domain, outside, there) and (step != 1 or is_multiple(domain, there, count)):
            return VectorCopy(count, step, ahead and (step == 1 or not _of_halves(nest, s.name)))
    return None


def _of_halves(nest: Nest, name: str) -> bool:
    """Whether a statement writes halves: two bytes by themselves cannot be on their way, which takes 4, 8 or 16."""
    return nest.tensor(nest.statement(name).write.tensor).is_half


def _steps(held: Geometry, count: int) -> Iterator[int]:
    """How far apart neighbours may lie in the buffer: side by side, or in different lines of a panel."""
    yield 1
    spread, panel = held.buffer.spread, held.buffer.panel
    if isinstance(spread, Spread) and panel is not None and (spread.every == 1 or spread.every % count == 0):
        yield spread.row(panel.width) + (spread.skip if spread.every == 1 else 0)
