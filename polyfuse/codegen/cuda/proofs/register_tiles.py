"""Prove with isl that a GPU's register tiles and 128-bit copies may become one operation.

    for k: for r: for c: y[r, c] += a[at(k, r)] * b[at(k, c)]     ->   tile_fma(rows, columns, y, a, …, b, …, count)
                                     or, by a warp together,      ->   tile_mma_tf32(rows, columns, y, a, …, b, …)
    for l: shared[to + step*l] = x[from + l]                      ->   copy_vector(4, shared, to, step, x, from)
                                     or, waited for later on,     ->   copy_ahead(4, shared, to, step, x, from)

A tile computes all of its results, those that it lacks too: nobody else may touch these in the thread's registers.
{ [loops around] -> element that another statement touches there }  is in  { [loops around] -> element summed there }

An operation knows how far an element lies from the tile's first one (operand_lines.py). Tensor cores multiply
what the lanes of a warp hold together (fragment_layouts.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import islpy as isl

from polyfuse.analysis.copies import rounds
from polyfuse.analysis.digits import floored
from polyfuse.analysis.storage import Geometry
from polyfuse.analysis.vector_access import ACCESS_BYTES, agrees, flat_position, is_multiple, is_one_access
from polyfuse.codegen.cuda.proofs.fragment_layouts import fragments_of
from polyfuse.codegen.cuda.proofs.operand_lines import lines_of
from polyfuse.codegen.cuda.proofs.wgmma_operands import elements_for_each
from polyfuse.codegen.looptree.half_types import FORMATS, WIDENED
from polyfuse.codegen.looptree.operations import CoreLines, Neighbours, Operation, TileProduct, VectorCopy
from polyfuse.errors import InvalidSchedule
from polyfuse.ir.access import Access
from polyfuse.ir.nest import Nest
from polyfuse.ir.scalar import Tf32, read
from polyfuse.ir.statement import Statement
from polyfuse.ir.tree import BULK, Loop, Tree, date_map, loops, loops_around, replace_node, statements
from polyfuse.layouts.smem import SmemLayout
from polyfuse.schedule.binding import extent
from polyfuse.schedule.microkernel_verb import roles_of
from polyfuse.schedule.promote.tma_boxes import BulkCopy, bulk_copy, check_swizzled


def device_operations(
    nest: Nest, part: Tree, geometries: Mapping[str, Geometry], ahead: frozenset[str] = frozenset()
) -> dict[str, Operation]:
    """The statements of a kernel that are such an operation in their innermost loops, by name.

    `ahead` are the copies that something waits for. Raises InvalidSchedule if a microkernel is for tensor cores and
    its threads are no warps of theirs.
    """
    found: dict[str, Operation] = {}
    for s in map(nest.statement, statements(part)):
        conversion = _conversion(nest, s, geometries)
        if conversion and _is_cleared(nest, part, s):
            found[s.name] = VectorCopy(1, 1, conversion=conversion)
        elif conversion is not None and _keeps_bits(nest, s):
            found[s.name] = VectorCopy(1, 1, s.name in ahead and _is_async(nest, s, 1))
    for loop in loops(part):
        names = statements(loop)
        if loop.bind in BULK:
            name, copy = bulk_copy(nest, part, loop, geometries, ahead)
            found[name] = copy
        if loop.bind == "vector":
            found |= _in_neighbours(nest, part, loop, geometries)
            names = tuple(name for name in names if not _clears(nest, name, names))
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
    check_swizzled(nest, part, geometries, _on_lines(found))
    return found


def _on_lines(found: Mapping[str, Operation]) -> frozenset[str]:
    """The operations that know of swizzled lines."""
    return frozenset(
        name
        for name, operation in found.items()
        if isinstance(operation, BulkCopy) or (isinstance(operation, TileProduct) and operation.by_warpgroup)
    )


def _tile_product(
    nest: Nest, part: Tree, top: Loop, s: Statement, geometries: Mapping[str, Geometry], ahead: frozenset[str]
) -> TileProduct | None:
    free = replace(top, bind=None)
    try:
        roles = roles_of(nest, replace_node(part, top, free), s.name, free, top.math)
    except InvalidSchedule:
        return None
    if roles.rows is None or len(roles.steps) != 1 or roles.lanes is not None:
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
    if not _has_cells(domain, s, sums, (r, c)):
        return None
    if top.math != "ieee":
        found = fragments_of(nest, part, s, roles, geometries, top.math)
        if found is None:
            return None
        first, second = found
        copied = elements_for_each(nest, part, s, geometries) if isinstance(first, CoreLines) else 0
        held = {access.tensor for access in s.reads}
        copies = {name for name in statements(part) if nest.statement(name).write.tensor in held}
        return TileProduct(rows, columns, steps, first, second, top.math, copied, copies <= ahead)
    left = lines_of(domain, s, roles.left, outside, (k, r), rows, geometries)
    right = lines_of(domain, s, roles.right, outside, (k, c), columns, geometries)
    if left is None or right is None:
        return None
    return TileProduct(rows, columns, steps, left, right)


def _has_cells(domain: isl.Set, s: Statement, sums: Geometry, tile: tuple[isl.PwAff, isl.PwAff]) -> bool:
    """True if result (r, c) of a tile has cell [r, c]: not where a buffer leaves others out, or rows run backwards."""
    cell = (
        value for value, extent in zip(sums.cell(s.name, s.write), sums.shape, strict=True) if extent != 1
    )
    return all(
        value.sub(date).intersect_domain(domain).non_zero_set().is_empty()
        for value, date in zip(cell, tile, strict=True)
    )


def _sums_all(nest: Nest, s: Statement, outside: list[isl.PwAff], sums: Geometry) -> bool:
    """True if each tile sums up every element that others touch in the buffer of its results."""
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


def _lacking(math: str, name: str) -> str:
    rounded = "" if math == "f64" else f" with rounded={math!r}"
    return (
        f"microkernel: math={math!r} needs the sums of {name} in registers, its factors promoted{rounded} to "
        "spread panels in shared memory (polyfuse.codegen.cuda.proofs.fragment_layouts says which), "
        "4 threads on thread.x along "
        "the columns, a multiple of 8 on thread.y along the rows, and the same steps for every result"
    )


def _in_neighbours(
    nest: Nest, part: Tree, loop: Loop, geometries: Mapping[str, Geometry]
) -> dict[str, Operation]:
    """The elements that the statements of a vector loop access 16 bytes at a time.

    All of it is read before the first statement and written after the last: that leaves out what a statement reads
    behind one that writes the same array, what is written twice, and what is added to again and again.
    """
    count, names = extent(nest, loop), statements(loop)
    if count is None:
        return {}
    every = [nest.statement(name) for name in names]
    found: dict[str, Operation] = {}
    for place, s in enumerate(every):

        def wide(access: Access, name: str = s.name, filled: bool = False) -> bool:
            held = geometries.get(access.tensor)
            near = held is None or (
                held.buffer.memory == "shared" and (filled or not isinstance(held.buffer.layout, SmemLayout))
            )
            return near and is_one_access(nest, part, loop, name, access, count, held)

        before = {other.write.tensor for other in every[:place]}
        after = {access.tensor for other in every[place + 1 :] for access in other.accesses}
        reads = tuple(p for p, a in enumerate(s.reads) if a.tensor not in before and wide(a))
        target = s.write.tensor
        alone = target not in before | after and (s.op == "=" or _adds_once(nest, s, geometries))
        written = alone and wide(s.write, filled=True)
        if reads or written:
            found[s.name] = Neighbours(count, reads, written)
    return found


def _adds_once(nest: Nest, s: Statement, geometries: Mapping[str, Geometry]) -> bool:
    """True if a statement adds once to each element of a tensor in memory, and reads it for nothing else.

    What is added to in a loop may stay in a register there: it is no access of 16 bytes in each iteration.
    """
    target = s.write.tensor
    if s.op != "+=" or target in geometries or any(access.tensor == target for access in s.reads):
        return False
    return bool(s.write.map.intersect_domain(nest.domains[s.name]).is_injective())


def _conversion(nest: Nest, s: Statement, geometries: Mapping[str, Geometry]) -> str | None:
    """The conversion of the elements that a statement copies into a padded buffer; None for other statements.

    Halves that stay halves of their type are "rounded" to it: the operation for runs of these.
    """
    held = geometries.get(s.write.tensor)
    if held is None or held.buffer.layout is None or s.op != "=" or s.body not in (read(0), Tf32(read(0))):
        return None
    source, target = nest.tensor(s.reads[0].tensor), nest.tensor(s.write.tensor)
    if source.name in geometries:
        return None
    math, in_lines = rounds(nest, s), isinstance(held.buffer.layout, SmemLayout)
    if source.is_half and in_lines and target.dtype == "float32":
        return WIDENED[source.dtype]
    if math is None:
        kept = source.is_half and in_lines
        return None if source.dtype != target.dtype else f"rounded_{FORMATS[target.dtype]}" if kept else ""
    return f"rounded_{math}" if source.dtype == "float32" and in_lines else None


def _keeps_bits(nest: Nest, copy: Statement) -> bool:
    """True if a copy neither rounds nor widens."""
    same = nest.tensor(copy.reads[0].tensor).dtype == nest.tensor(copy.write.tensor).dtype
    return same and rounds(nest, copy) is None


def _is_cleared(nest: Nest, part: Tree, copy: Statement) -> bool:
    """True if another statement writes to the buffer that a copy fills: the zeros around what it copies."""
    writers = [name for name in statements(part) if nest.statement(name).write.tensor == copy.write.tensor]
    return len(writers) > 1


def _clears(nest: Nest, name: str, names: tuple[str, ...]) -> bool:
    """True if a statement stores zeros around what a later one of these copies in a loop that is one operation."""
    s, *later = (nest.statement(each) for each in names[names.index(name) :])
    copies = [x for x in later if x.write.tensor == s.write.tensor and x.reads]
    filled = any(rounds(nest, x) is not None or nest.tensor(x.reads[0].tensor).is_half for x in copies)
    return s.op == "=" and s.body.is_zero is True and filled


def _vector_copy(
    nest: Nest, part: Tree, loop: Loop, s: Statement, geometries: Mapping[str, Geometry], ahead: bool
) -> VectorCopy | None:
    """A copy of neighbours in a tensor, the first at a multiple of 16 bytes or of 8, to a shared buffer."""
    conversion = _conversion(nest, s, geometries)
    if conversion is None:
        return None
    count, tensor = extent(nest, loop), nest.tensor(s.reads[0].tensor)
    sizes = (4, 8, ACCESS_BYTES) if ahead else (8, ACCESS_BYTES) if tensor.is_half else (ACCESS_BYTES,)
    if count is None or count * tensor.itemsize not in sizes:
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
    for run, step in _runs(held, count):
        number = floored(along, run)
        there = place.sub(number.scale_val(isl.Val(step))).sub(along.sub(number.scale_val(isl.Val(run))))
        if agrees(domain, outside, there) and is_multiple(domain, there, run):
            if ahead and _keeps_bits(nest, s) and _is_async(nest, s, run) and run in (1, count):
                return VectorCopy(count, 1 if run == count else step, True, run)
            if not conversion and (1 < run < count or count * tensor.itemsize < ACCESS_BYTES):
                return None
            return VectorCopy(count, 1 if run == count else step, False, run, conversion)
    return None


def _is_async(nest: Nest, s: Statement, neighbours: int) -> bool:
    """True if so many elements can be on their way while a thread goes on: 4 bytes at least."""
    return neighbours * nest.tensor(s.write.tensor).itemsize >= 4


def _runs(held: Geometry, count: int) -> Iterator[tuple[int, int]]:
    """Candidate runs of neighbours in the buffer and their distances: contiguous, vectors, or lines of a panel."""
    yield count, count
    spread, panel = held.buffer.layout, held.buffer.panel
    if not isinstance(spread, SmemLayout) or panel is None:
        return
    if spread.vector < min(count, spread.tile):
        yield spread.vector, spread.part(panel.width)
    if spread.every == 1 or spread.every % count == 0:
        yield 1, spread.row(panel.width) + (spread.skip if spread.every == 1 else 0)
