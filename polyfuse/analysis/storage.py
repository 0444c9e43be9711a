"""Check that a contracted buffer is large enough: the theorem, its check, and the buffer's geometry.

A temporary T kept in a buffer of one iteration of loop L is safe iff every flow pair through T has both its ends
in the same iteration of L (all dates from the root down to L agree), and, where each thread has a buffer of its
own, in the same thread. A buffer of several stages may have them in neighbouring iterations (analysis/stages.py).

for i: S[i]: t[i] = …;  R[i]: … t[i]      flow { S[i] -> R[i] } agrees on i: t may be one scalar
for i: S[i]: t[i] = …;  R[i]: … t[i-1]    flow { S[i] -> R[i+1] } does not: refused
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from math import prod

import islpy as isl

from polyfuse.analysis.digits import EVERY, cells_of, digits_of, floored, held_along
from polyfuse.analysis.legality import Broken
from polyfuse.analysis.stages import crowded, home, near, touching
from polyfuse.errors import InvalidSchedule
from polyfuse.ir.access import Access
from polyfuse.ir.bindings import Binding
from polyfuse.ir.dependences import Pairs
from polyfuse.ir.nest import Nest
from polyfuse.ir.statement import Statement
from polyfuse.ir.tree import (
    CLUSTER,
    Buffer,
    Loop,
    Panel,
    Tree,
    children,
    date_map,
    loops,
    loops_around,
    parts,
    path_to,
    statements,
)
from polyfuse.layouts import CoreMatrixLayout, Layout, SmemLayout, SwizzledLayout
from polyfuse.layouts.core_matrix import Digit
from polyfuse.sets import IN, OUT, SET, constant, dimension, greatest, least, pairs_where

THREADS = (Binding.THREAD_X, Binding.THREAD_Y, Binding.THREAD_Z)
CLUSTERS = (Binding.BLOCK_X, Binding.BLOCK_Y, Binding.BLOCK_Z)
"""The bindings that number the clusters of a grid, or its blocks if there are no clusters."""
BLOCKS = (*CLUSTERS, *CLUSTER)
"""The bindings of loops whose iterations are blocks; those of a cluster are unordered, too."""
LANE = Binding.LANE
"""Along thread.x, 32 of them: a reduction's values, which the warp combines; what they add up to is lane 0's."""
ON_THREADS = (*THREADS, LANE)
PRIVATE = ("local", "register")
"""Memories of which every thread has its own."""


@dataclass(frozen=True)
class Geometry:
    """The layout of a buffer: element e is at e - corner(where), without the digits left out, inside `box`.

    `held` says along each axis which elements have cells (analysis/digits.py), where those that one iteration accesses
    lie apart: four blocks' t[i, j], t[i + 64, j], t[i, j + 128], t[i + 64, j + 128] are 2 x 2 cells, of 65 x 129.
    `where` are the values of the loops down to the buffer's, then the block where blocks lie inside it, and for a
    private memory the thread; `prefix` gives them for each statement's instances. With stages, an element's `home`
    takes the place of the value of the buffer's loop, which is the one at `depth`.
    """

    buffer: Buffer
    loop: Loop
    box: tuple[int, ...]
    corner: tuple[isl.PwAff, ...]
    prefix: Mapping[str, isl.PwMultiAff]
    held: tuple[tuple[Digit, ...], ...]
    home: isl.PwAff | None = None
    depth: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """The buffer's extents: the stages, then the box's extents or those of its panels; one if these are spread."""
        stages = (self.buffer.stages,) if self.home is not None else ()
        if self.buffer.layout is not None:
            return (prod(stages) * self._stage_size,)
        return (*stages, *self._one_stage)

    @property
    def _one_stage(self) -> tuple[int, ...]:
        panel = self.buffer.panel
        if panel is None:
            return self.box
        others = (extent for axis, extent in enumerate(self.box) if axis != panel.axis)
        return (-(-self.box[panel.axis] // panel.width), *others, panel.width)

    @property
    def _stage_size(self) -> int:
        """The elements of one stage of spread panels."""
        panel, spread = self.buffer.panel, self.buffer.layout
        assert panel is not None
        assert spread is not None
        panels, *others, _ = self._one_stage
        return panels * spread.size(prod(others), panel.width)

    def cell(self, statement: str, access: Access) -> tuple[isl.PwAff, ...]:
        """The buffer's cell that an access of a statement's instance accesses, one function an axis of `shape`.

        { mac[i, j, k] -> w[k, j] }, panels of 32 along axis 1, corner (0, 0)  ->  floor(j/32), k, j mod 32
        """
        element, where = access.subscripts(), self.prefix[statement]
        if self.home is None:
            return self._laid_out(self._inside(element, where))
        value = self.home.pullback_pw_multi_aff(element)
        cell = self._laid_out(self._inside(element, where.set_pw_aff(self.depth, value)))
        stage = value.mod_val(isl.Val(self.buffer.stages))
        if self.buffer.layout is not None:
            return (cell[0].add(stage.scale_val(isl.Val(self._stage_size))),)
        return (stage, *cell)

    def _inside(self, element: isl.PwMultiAff, where: isl.PwMultiAff) -> list[isl.PwAff]:
        """An element's place in the box."""
        return [
            digits_of(element.get_pw_aff(d).sub(corner.pullback_pw_multi_aff(where)), self.held[d])
            for d, corner in enumerate(self.corner)
        ]

    def layout(self) -> isl.Map:
        """{ element of the box -> cell }: an element's place in the buffer, whoever accesses it."""
        box = isl.Set("{ [" + ", ".join(f"e{d}" for d in range(len(self.box))) + "] }")
        for d, extent in enumerate(self.box):
            box = box.lower_bound_val(SET, d, isl.Val(0)).upper_bound_val(SET, d, isl.Val(extent - 1))
        return date_map(box, [*self._laid_out([dimension(box, d) for d in range(len(self.box))])])

    def plain(self) -> Geometry:
        """The same box with its elements in the order of the tensor's axes."""
        return replace(self, buffer=replace(self.buffer, panel=None, layout=None))

    def _laid_out(self, inside: list[isl.PwAff]) -> tuple[isl.PwAff, ...]:
        """The cell of an element, counted from the box's corner."""
        panel = self.buffer.panel
        if panel is None:
            return tuple(inside)
        along, width = inside.pop(panel.axis), isl.Val(panel.width)
        number = along.scale_down_val(width).floor()
        cell = (number, *inside, along.sub(number.scale_val(width)))
        return cell if self.buffer.layout is None else (self._spread(cell, panel, self.buffer.layout),)

    def _spread(self, cell: tuple[isl.PwAff, ...], panel: Panel, spread: Layout) -> isl.PwAff:
        """The position of (panel, row…, element), the rows counted through."""
        number, *rows, along = cell
        extents = [extent for axis, extent in enumerate(self.box) if axis != panel.axis]
        row = rows[0]
        for extent, inner in zip(extents[1:], rows[1:], strict=True):
            row = row.scale_val(isl.Val(extent)).add(inner)
        if isinstance(spread, CoreMatrixLayout):
            first = number.scale_val(isl.Val(spread.size(prod(extents), panel.width)))
            place = first.add(digits_of(row, spread.along_steps(panel.width)))
            return place.add(digits_of(along, spread.along_results(panel.width)))
        if isinstance(spread, SwizzledLayout):
            line = number.scale_val(isl.Val(prod(extents))).add(row)
            return line.scale_val(isl.Val(panel.width)).add(along)
        tile = floored(along, spread.tile)
        inside = along.sub(tile.scale_val(isl.Val(spread.tile)))
        part = floored(inside, spread.vector)
        element = inside.sub(part.scale_val(isl.Val(spread.vector)))
        return reduce(
            isl.PwAff.add,
            (
                number.scale_val(isl.Val(spread.size(prod(extents), panel.width))),
                row.scale_val(isl.Val(spread.row(panel.width))),
                floored(row, spread.every).scale_val(isl.Val(spread.skip)),
                part.scale_val(isl.Val(spread.part(panel.width))),
                tile.scale_val(isl.Val(spread.vector)),
                element,
            ),
        )


def buffers_of(tree: Tree) -> Iterator[tuple[Loop, Buffer]]:
    """Every buffer with the loop it hangs on, outer first."""
    return ((loop, buffer) for loop in loops(tree) for buffer in loop.buffers)


def unsafe_buffer(nest: Nest, tree: Tree, proven: Tree | None = None) -> Broken | None:
    """The first flow that a contracted buffer would lose; None if all are safe.

    `proven` is a tree whose buffers are known to be safe: those that stand in `tree` as they do there are skipped.
    """
    before = {id(part): part for part in (parts(proven) if proven is not None else ())}
    now = {id(part): part for part in parts(tree)}
    known = {found[2] for key, part in before.items() if key not in now for found in _standings(part)}
    changed = [found for key, part in now.items() if key not in before for found in _standings(part)]
    for loop, buffer, standing in changed:
        if standing in known:
            continue
        inside = set(statements(loop))
        # a pair with an end inside shows best what is lost
        pairs = sorted(nest.flow_through(buffer.tensor), key=lambda p: inside.isdisjoint((p.source, p.sink)))
        for pair in pairs:
            lost = _lost(nest, tree, loop, buffer, pair)
            if lost is not None:
                return lost
        lost = crowded(nest, loop, buffer)
        if lost is not None:
            return lost
    return None


Standing = tuple[Buffer, tuple[str, ...], tuple[tuple[int, str | None], ...]]
"""All that a buffer's safety depends on: what is inside, and the dates (by identity) of the loops that part it."""


def _standings(tree: Tree, around: tuple[Loop, ...] = ()) -> Iterator[tuple[Loop, Buffer, Standing]]:
    """Every buffer with its loop and its standing, outer first."""
    if isinstance(tree, Loop):
        around = (*around, tree)
        if tree.buffers:
            owners = tuple(inner for inner in loops(tree.body) if inner.bind in (*BLOCKS, *ON_THREADS))
            dates = tuple((id(loop.dates), loop.bind) for loop in (*around, *owners))
            inside = statements(tree)
            yield from ((tree, buffer, (buffer, inside, dates)) for buffer in tree.buffers)
    for child in children(tree):
        yield from _standings(child, around)


def _lost(nest: Nest, tree: Tree, loop: Loop, buffer: Buffer, pair: Pairs) -> Broken | None:
    inside = statements(loop)
    span = "one iteration" if buffer.stages == 1 else f"{buffer.stages} iterations"
    why = f"{buffer.tensor} is kept in a {buffer.memory} buffer for {span} of {loop.name} only"
    remedy = f"promote {buffer.tensor} at an outer loop that contains both, or do not promote it"
    if pair.source not in inside or pair.sink not in inside:
        return Broken(pair.kind, pair.map, why, remedy)
    kept = pair.map
    around = path_to(tree, pair.source)
    for node in around[: _position(around, loop) + 1]:
        if isinstance(node, Loop):
            stages = buffer.stages if node is loop else 1
            kept = kept.intersect(near(node.date(pair.source), node.date(pair.sink), stages))
    ends = nest.statement(pair.source), nest.statement(pair.sink)
    places = []
    if buffer.memory in PRIVATE:
        places.append([thread_ids(tree, s, buffer.tensor) for s in ends])
    if _has_blocks(loop):
        places.append([block_ids(tree, s) for s in ends])
        why += ", and each block has its own"
        remedy = f"bind the loops of both to the same blocks, or leave {buffer.tensor} in global memory"
    for mine, other in (both for ids in places for both in zip(*ids, strict=True)):
        kept = kept.intersect(same_value(mine, other, pair.map))
    lost = pair.map.subtract(kept)
    return None if lost.is_empty() else Broken(pair.kind, lost, why, remedy)


def _has_blocks(loop: Loop) -> bool:
    """True if several blocks run one iteration of a loop, each with its own memory."""
    return any(inner.bind in BLOCKS for inner in loops(loop.body))


def _position(path: tuple[Tree, ...], node: Tree) -> int:
    return next(p for p, other in enumerate(path) if other is node)


def thread_ids(tree: Tree, s: Statement, tensor: str) -> tuple[isl.PwAff | None, ...]:
    """The thread (x, y, z) by which each instance of a statement accesses a tensor; None stands for thread 0.

    for l (lane): s[0] += x[l]      x[l] is read by thread l, s[0] changed by thread 0, which gets what the lanes have
    """
    bound = {loop.bind: loop.date(s.name) for loop in loops_around(tree, s.name)}
    lane = bound.get(LANE) if tensor != s.write.tensor else None
    return tuple(lane if axis == THREADS[0] and LANE in bound else bound.get(axis) for axis in THREADS)


def block_ids(tree: Tree, s: Statement) -> tuple[isl.PwAff | None, ...]:
    """The block (x, y, z) that runs each instance of a statement; None stands for block 0."""
    bound = {loop.bind: loop.date(s.name) for loop in loops_around(tree, s.name)}
    return tuple(bound.get(axis) for axis in BLOCKS)


def same_value(source: isl.PwAff | None, sink: isl.PwAff | None, pairs: isl.Map) -> isl.Map:
    """The pairs of instances on which two functions agree; None is the constant 0."""
    everything = isl.Map.universe(pairs.get_space())
    if source is not None and sink is not None:
        return pairs_where(source, "=", sink)
    if source is not None:
        return everything.intersect_domain(source.zero_set())
    if sink is not None:
        return everything.intersect_range(sink.zero_set())
    return everything


def prefix_of(tree: Tree, loop: Loop, statement: str) -> tuple[Loop, ...]:
    """The loops from the root down to `loop`, which is one of them, around a statement."""
    around = loops_around(tree, statement)
    return around[: _position(around, loop) + 1]


def runs_through(nest: Nest, part: Tree, loop: Loop) -> bool:
    """True if something runs in every iteration from a loop's first to its last, for all values of the loops around.

    for k: { copy[k + 3] if k + 3 <= 1;  use[k] if 0 <= k <= 1 }        k = -3, -2, 0, 1: nothing runs at -1
    """
    dates = {name: [x.date(name) for x in prefix_of(part, loop, name)] for name in statements(loop)}
    runs = (date_map(nest.domains[name], [*values]).range() for name, values in dates.items())
    every = reduce(isl.Set.union, runs).coalesce()
    later = isl.Map.lex_le(every.get_space())
    for d in range(every.dim(SET) - 1):
        later = later.equate(IN, d, OUT, d)
    between = every.apply(later).intersect(every.apply(later.reverse()))
    return bool(between.is_subset(every))


def geometry(nest: Nest, tree: Tree, loop: Loop, buffer: Buffer) -> Geometry:
    """The bounding box of what one iteration of the loop accesses of the tensor, as isl computes it.

    Elements between those accessed may have no cells (analysis/digits.py); panels and stages have cells for all. With
    stages it is the box of the elements with one home. The corner is a function of the loops' values; the shape holds
    for every iteration.
    Raises InvalidSchedule if the box has no constant size.
    """
    users = touching(nest, loop, buffer.tensor)
    prefix = {s.name: _where(tree, loop, buffer, s, nest.domains[s.name]) for s in users}
    last = home(nest, loop, buffer.tensor) if buffer.stages > 1 else None
    depth = len(prefix_of(tree, loop, users[0].name)) - 1
    parts = [
        _touched(prefix[s.name], access, nest.domains[s.name], last, depth)
        for s in users
        for access in s.accesses
        if access.tensor == buffer.tensor
    ]
    touched = reduce(isl.Map.union, parts)
    corner, shape, held = [], [], []
    for d in range(touched.dim(OUT)):
        low, extent = corner_in(buffer, touched, d, d)
        if not extent.is_int():
            raise InvalidSchedule(
                f"the footprint of one iteration of {loop.name} in {buffer.tensor} has no constant size; "
                f"tile first, or promote {buffer.tensor} at an inner loop"
            )
        span = int(extent.to_python()) + 1
        along = EVERY if span == 1 else _held(touched, buffer, d, low, span)
        corner.append(low)
        held.append(along)
        shape.append(span if along == EVERY else cells_of(along, span))
    return Geometry(buffer, loop, tuple(shape), tuple(corner), prefix, tuple(held), last, depth)


def _held(touched: isl.Map, buffer: Buffer, d: int, corner: isl.PwAff, span: int) -> tuple[Digit, ...]:
    """Return the digits of an axis's index that have cells.

    All in panels and stages, but in groups of neighbours that are along the axis of panels whose rows are spread.
    """
    ordered = buffer.panel is not None or buffer.stages > 1
    grouped = buffer.panel is not None and d == buffer.panel.axis and isinstance(buffer.layout, SmemLayout)
    if ordered and not grouped:
        return EVERY
    found = held_along(touched, d, corner, span)
    return EVERY if ordered and len(found) < 2 else found


def corner_of(touched: isl.Map, d: int) -> tuple[isl.PwAff, isl.Val]:
    """The least index along an axis of what each value of the loops accesses, and the most by which others are larger.

    The least index is one function, if a piece of it will do for all values of the loops in a box of the same size:
    max(6 * i, 512 * j) for rows 6 * i … 6 * i + 5, where those before 512 * j are not accessed, is 6 * i.
    """
    low, high = touched.dim_min(d), touched.dim_max(d)
    extent = isl.Val(0) if touched.is_empty() else greatest(high.sub(low))
    pieces = [piece for _, piece in low.get_pieces()] if low.n_piece() > 1 else []
    are_whole = bool(pieces) and _is_whole(low) and _is_whole(high)  # then so are their differences
    for one in map(isl.PwAff.from_aff, pieces):
        if not are_whole and not (_is_whole(low.sub(one)) and _is_whole(high.sub(one))):
            continue
        if least(low.sub(one)).is_nonneg() and greatest(high.sub(one)).le(extent):
            return one, extent
    return low, extent


def corner_in(buffer: Buffer, touched: isl.Map, d: int, axis: int) -> tuple[isl.PwAff, isl.Val]:
    """The same for an axis of a buffer: panels begin at their phase, if they have one and the box begins at a number.

    For j >= 1 in tiles of 32, one tile reads elements 32 to 63, which are one panel if the first one begins at 0, and
    lie in two if it begins at 1. Without a phase panels begin at a multiple of their width if no more are needed.
    """
    low, extent = corner_of(touched, d)
    panel = buffer.panel if buffer.layout is None else None
    if panel is None or panel.axis != axis or not extent.is_int() or not low.is_cst() or low.n_piece() != 1:
        return low, extent
    ((_, first),) = low.get_pieces()
    more = first.get_constant_val().sub(isl.Val(panel.phase or 0)).mod(isl.Val(panel.width))
    if panel.phase is None:
        panels = (int(size.to_python()) // panel.width for size in (extent, extent.add(more)))
        if len(set(panels)) > 1:
            return low, extent
    return low.add_constant_val(more.neg()), extent.add(more)


def _is_whole(function: isl.PwAff) -> bool:
    """True if a function has integer values everywhere: x / 2 only for even x."""
    return all(piece.get_denominator_val().is_one() for _, piece in function.get_pieces())


def _touched(
    where: isl.PwMultiAff, access: Access, domain: isl.Set, last: isl.PwAff | None, depth: int
) -> isl.Map:
    """{ values of the loops -> element }, an element's home in place of the value of the buffer's loop."""
    if last is not None:
        where = where.set_pw_aff(depth, last.pullback_pw_multi_aff(access.subscripts()))
    return access.map.intersect_domain(domain).apply_domain(isl.Map.from_pw_multi_aff(where))


def _where(tree: Tree, loop: Loop, buffer: Buffer, s: Statement, domain: isl.Set) -> isl.PwMultiAff:
    """The values of the loops from the root down to `loop` (and the block and the thread inside), as one function."""
    parts: list[isl.PwAff | int] = [outer.date(s.name) for outer in prefix_of(tree, loop, s.name)]
    if _has_blocks(loop):
        parts += [0 if block is None else block for block in block_ids(tree, s)]
    if buffer.memory in PRIVATE and any(inner.bind in ON_THREADS for inner in loops(loop.body)):
        parts += [0 if thread is None else thread for thread in thread_ids(tree, s, buffer.tensor)]
    values = (
        isl.PwMultiAff.from_pw_aff(p if isinstance(p, isl.PwAff) else constant(domain, p)) for p in parts
    )
    found = reduce(isl.PwMultiAff.flat_range_product, values).intersect_domain(domain).coalesce()
    if found.n_piece() == 1:
        return found
    # what isl reads off a map takes ten times as long and may come in dozens of pieces, but also in fewer than these
    return min(found, isl.PwMultiAff.from_map(date_map(domain, parts)), key=isl.PwMultiAff.n_piece)
