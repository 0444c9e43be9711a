"""Schedule convolutions on a GPU as implicit GEMM, in public verbs: filters times patches of an image.

    for n: for f: for p: for q: { zero; for c: for r: for s: mac; bias; relu }
    ->  for n, p (block.z): for f (block.y): for q (block.x):                    the sums in registers
          for p_z: for f_y: for q_x: for i: for j: zero                          p_z, f_y, q_x: threads
          for r: for s: for c (of 16): {
            copy the filters' elements for r, s, c; the image's pixels for them, zeros beyond its border
            for p_z: for f_y: for q_x: for c_in: for i: for j: mac }
          for p_z: for f_y: for q_x: for i: for j: bias; relu

The matrix of patches (im2col: Chellapilla, Puri & Simard 2006) is nowhere but a tile of it in shared memory: elements
are a value of the statement, indexed by the statement's own dimensions, so that stride, dilation and padding are the
copy's. Filters that are constants are laid out once for all calls, side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import islpy as isl
import sympy

from polyfuse.analysis.vector_access import ACCESS_BYTES, is_multiple
from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir import Nest
from polyfuse.ir.nest_text import value_text
from polyfuse.ir.number_types import HALVES, computed_in, is_real
from polyfuse.ir.precision import PRECISIONS, STORED
from polyfuse.ir.scalar import Read
from polyfuse.ir.tree import Loop, statements
from polyfuse.machine import GpuMachine
from polyfuse.schedule import Schedule
from polyfuse.schedule.promote.promoted_values import box_around, padded_domain
from polyfuse.sets import dimension, greatest
from polyfuse.strategy.cost.counts import Counts, dims_of
from polyfuse.strategy.cost.kernel_model import Kernel
from polyfuse.strategy.cuda.gemm.schedule import AXES, ResultLoops, Tiles
from polyfuse.strategy.cuda.tiles.operands import ImplicitGemm
from polyfuse.strategy.cuda.tiles.tile import ThreadblockTile
from polyfuse.strategy.cuda.tiles.tile_candidates import (
    fma_convolutions,
    mma_convolutions,
    mma_f64_convolutions,
)
from polyfuse.strategy.cuda.tiles.tile_shape import OperandTile
from polyfuse.strategy.cuda.transforms.staging import check_fits
from polyfuse.strategy.cuda.transforms.thread_copies import by_threads
from polyfuse.strategy.match.gemm import Factor, Product, moved_axes
from polyfuse.strategy.match.gemm_problem import Extents
from polyfuse.strategy.remarks import Reason, Refused
from polyfuse.strategy.transforms.band_verbs import constant_extent, inside, reordered
from polyfuse.strategy.transforms.packing import added
from polyfuse.strategy.transforms.time_loops import Planned


@dataclass(frozen=True)
class Convolution(Product):
    """A product whose rows or columns are pixels along one dimension; `deep` is the image's other one.

    `steps` are those of the window, then the channels. `pixels` is the factor that is read in windows.
    """

    deep: int
    pixels: Factor

    @property
    def groups(self) -> tuple[int, ...]:
        """The dimensions of the results that both factors move with."""
        return tuple(d for d in self.others if d in self.left.axes and d in self.right.axes)

    @property
    def channels(self) -> int:
        """The steps that are staged at a time."""
        return self.steps[-1]


def convolution_of(nest: Nest, name: str) -> Convolution | None:
    """A statement as a convolution; None if it is none.

    y[n, f, p, q] += x[n, c, p + r, q + s] * w[f, c, r, s]: rows f, columns q, the neighbours in y; deep p; others n, p.
    """
    s = nest.statement(name)
    factors = s.body.args if s.op == "+=" and isinstance(s.body, sympy.Mul) else ()
    if len(factors) != 2 or not all(isinstance(factor, Read) for factor in factors):
        return None
    tensors = [nest.tensor(s.reads[factor.position].tensor) for factor in factors]
    y = moved_axes(s.write, len(s.dims))
    if y is None or tensors[0].name == tensors[1].name or any(t.gather is not None for t in tensors):
        return None
    kinds = {computed_in(nest.tensor(t).dtype) for t in s.tensors}
    if len(kinds) > 1 or not is_real(kinds.pop()):
        return None
    both = []
    for factor in factors:
        access = s.reads[factor.position]
        axes = moved_axes(access, len(s.dims))
        if axes is None:
            return None
        both.append(Factor(access.tensor, access, False, axes, (access,)))
    return _roles(nest, name, y, *both)


def _roles(nest: Nest, name: str, y: Mapping[int, int], a: Factor, b: Factor) -> Convolution | None:
    """Pixels move with at least two dimensions of the results of their own, filters with one."""
    own = {f.name: sorted((d for d in y if d in f.axes and d not in g.axes), key=lambda d: y[d])
           for f, g in ((a, b), (b, a))}  # fmt: skip
    pixels, filters = (a, b) if len(own[a.name]) > len(own[b.name]) else (b, a)
    steps = [d for d in a.axes if d in b.axes and d not in y]
    rank = len(nest.statement(name).dims)
    if len(own[filters.name]) != 1 or len(own[pixels.name]) < 2 or not steps or len(y) + len(steps) != rank:
        return None
    *others, deep, along = own[pixels.name]
    (filter_,) = own[filters.name]
    last = max(y.values())
    sizes = {d: _size(nest.domains[name], d) for d in steps}
    if last not in (y[along], y[filter_]) or None in sizes.values():
        return None
    *window, channels = sorted(steps, key=lambda d: (sizes[d], -d))
    shared = [d for d in y if d in a.axes and d in b.axes]
    channels_last = last == y[filter_]
    left, right = (pixels, filters) if channels_last else (filters, pixels)
    rows, columns = (along, filter_) if channels_last else (filter_, along)
    return Convolution(
        statement=name,
        rows=rows,
        columns=columns,
        steps=(*sorted(window), channels),
        others=(*shared, *others, deep),
        left=left,
        right=right,
        lanes=y[columns],
        across=False,
        deep=deep,
        pixels=pixels,
    )


def _size(domain: isl.Set, d: int) -> int | None:
    """The values of a dimension, if that is a number."""
    size = greatest(domain.dim_max(d).sub(domain.dim_min(d)))
    return int(size.to_python()) + 1 if size.is_int() else None


def convolution_tiles(
    schedule: Schedule,
    counts: Counts,
    kernel: Kernel,
    product: Convolution,
    band: Mapping[int, Loop],
    machine: GpuMachine,
) -> tuple[ThreadblockTile, ...]:
    """The tiles that fit a convolution's sizes and a machine, the cheapest first."""
    nest, p = schedule.nest, product
    box = box_around(nest.domains[p.statement])
    *window, channels = (_size(box, d) or 1 for d in p.steps)
    extents = Extents(
        counts.extent(band[p.rows]),
        counts.extent(band[p.columns]),
        channels,
        prod(counts.extent(band[d]) for d in p.others if d != p.deep),
        wide=False,
        windows=prod(window),
        deep=counts.extent(band[p.deep]),
    )
    s = nest.statement(p.statement)
    itemsize = nest.tensor(s.write.tensor).itemsize
    padded = not s.domain.is_equal(padded_domain(nest, s))
    halves = {nest.tensor(access.tensor).dtype for access in s.reads} & set(HALVES)
    asked = itemsize, machine, machine.gpu
    operands = ImplicitGemm(p.pixels is p.left, padded, bool(halves))
    plain = fma_convolutions(extents, operands, *asked)
    made = set(HALVES) if machine.math == "tf32" else {STORED.get(machine.math)}
    if not halves <= made:
        return plain  # no copy makes one half of the other
    copied = replace(operands, wide=_in_vectors(nest, p), by_channels=_by_channels(nest, p))
    rounded = mma_convolutions(extents, copied, *asked)
    f64 = mma_f64_convolutions(extents, replace(operands, halves=False), *asked)
    return tuple(sorted((*rounded, *f64, *plain), key=lambda tile: tile.seconds))


def _by_channels(nest: Nest, product: Convolution) -> bool:
    """True if a pixel's channels are neighbours in memory."""
    return product.pixels.axes[product.channels] == nest.tensor(product.pixels.access.tensor).rank - 1


def _in_vectors(nest: Nest, product: Convolution) -> bool:
    """True if pixels can be copied four at a time: by their channels, or along a row that no window moves.

    x[n, p + r, q + s, c], or x[n, c, p, q], where rows have fours of elements; of float64 numbers twos
    """
    s, access = nest.statement(product.statement), product.pixels.access
    along = product.rows if product.pixels is product.left else product.columns
    last = nest.tensor(access.tensor).rank - 1
    fine = product.channels if _by_channels(nest, product) else along
    size = nest.tensor(access.tensor).shape[last]
    vector = ACCESS_BYTES // nest.tensor(s.write.tensor).itemsize
    first = access.subscripts().get_pw_aff(last).sub(dimension(s.domain, fine))
    return isinstance(size, int) and size % vector == 0 and is_multiple(s.domain, first, vector)


def in_patches(
    schedule: Schedule,
    counts: Counts,
    kernel: Kernel,
    product: Convolution,
    tile: ThreadblockTile,
    machine: GpuMachine,
) -> Planned | Refused:
    """A kernel around one convolution in register tiles, or why not."""
    try:
        return _Patches(schedule, counts, kernel, product, tile, machine).made()
    except (IllegalSchedule, InvalidSchedule) as error:
        return Refused(Reason.ILLEGAL, str(error))


class _Patches(Tiles):
    """One convolution's kernel on its way into register tiles."""

    product: Convolution

    def factors(self) -> tuple[tuple[Factor, int, OperandTile], ...]:
        """The pixels first: where they are padded the filters are read in more instances."""
        left, right = super().factors()
        return (left, right) if left[0] is self.product.pixels else (right, left)

    def cut(
        self, schedule: Schedule, band: dict[int, Loop], others: tuple[str, ...]
    ) -> tuple[Schedule, ResultLoops, tuple[str, ...]]:
        """for n: for p: for f: for q  ->  for n_p: for f: for q: for p_z: for f_y: for q_x: for i: for j."""
        first, s, p = self.kernel.names[0], self.tile.shape, self.product
        i, j, deep = (band[d].name for d in (p.rows, p.columns, p.deep))
        schedule = schedule.split(first, deep, s.threads_z)
        z = inside(schedule, first, deep).name
        names = []
        for outer, block, own in ((i, s.block_rows, s.rows), (j, s.block_columns, s.columns)):
            schedule = schedule.split(first, outer, block)
            thread = inside(schedule, first, outer).name
            schedule = schedule.split(first, thread, own)
            names.append((thread, inside(schedule, first, thread).name))
        (y, rows), (x, columns) = names
        over = ResultLoops((z, y, x), rows, columns)
        groups = tuple(band[d].name for d in p.groups if d in band)
        if len(groups) != 1:
            return self.in_one_batch(schedule, others, (i, j), over)
        # for g: for f: for q  ->  for g_f: for q, so that an image's place has nothing to do with a group
        filters, (g,) = (j if p.pixels is p.left else i), groups
        rest = tuple(name for name in others if name != g)
        blocks = (g, i, j) if filters == i else (i, g, j)
        schedule = reordered(schedule, first, (*rest, *blocks, *over.all))
        schedule = schedule.collapse(first, g, filters)
        one, two = schedule.loops(first)[len(self.kernel.around) + len(rest) :][:2]
        return self.in_one_batch(schedule, rest, (one.name, two.name), over)

    def stepped(self, schedule: Schedule, over: ResultLoops, keep: int) -> tuple[Schedule, str]:
        """for p_z …: for i: for j: for c: for r: for s  ->  for r: for s: for c (of 16): for p_z …: for c_in …

        With stages the longer one of the window, which is one loop then, and the channels is the inner one: the tiles
        of its other values are on their way, and each of the outer loop's begins with a wait.
        """
        loops = {
            next(iter(dims_of(loop.date(self.name)))): loop.name
            for loop in schedule.loops(self.name)[keep:]
            if loop.name not in over.all
        }
        *window, channels = (loops[d] for d in self.product.steps)
        schedule = schedule.split(self.name, channels, self.tile.shape.steps)
        fine = inside(schedule, self.name, channels).name
        order = (*window, channels, *over.threads, fine, over.rows, over.columns)
        schedule = schedule.reorder(self.name, *order)
        if self.tile.stages == 1 or not window:
            return schedule, channels
        for _ in window[1:]:
            outer, inner = (loop.name for loop in schedule.loops(self.name)[keep : keep + 2])
            schedule = schedule.collapse(self.name, outer, inner)
        elements, tiles = schedule.loops(self.name)[keep : keep + 2]
        if (constant_extent(schedule, elements) or 0) < (constant_extent(schedule, tiles) or 0):
            return schedule, tiles.name
        return schedule.reorder(self.name, tiles.name, elements.name), elements.name

    def staged(
        self, schedule: Schedule, factor: Factor, along: int, steps: str, side: OperandTile
    ) -> Schedule:
        """A factor's tile in shared memory: pixels one by one, zeros beyond the border; filters in vectors."""
        p, t, s = self.product, self.tile, schedule.nest.statement(self.name)
        pixels, tensor = factor is p.pixels, factor.access.tensor
        wide = t.operands.wide if pixels else self._side_by_side(schedule.nest, tensor, along)
        if wide and not pixels:
            axis = factor.axes[along]
            kept = t.mma.keeps_halves and schedule.nest.tensor(tensor).is_half
            packed = schedule.pack(tensor, self.name, panel=(axis, side.width), halves=kept)
            (copy,) = added(schedule, packed)
            tensor = packed.nest.statement(copy).write.tensor
            schedule, s = _spread_out(packed, copy), packed.nest.statement(self.name)
        value = next(v for v in s.body.args if isinstance(v, Read) and s.reads[v.position].tensor == tensor)
        axes = (*((p.deep,) if pixels else ()), p.channels, along)
        by_steps = pixels and factor.axes[p.channels] == schedule.nest.tensor(tensor).rank - 1
        of_steps, width = t.panels(side, by_steps)
        done = schedule.promote(
            value_text(s, value),
            self.name,
            at=steps,
            memory="shared",
            panel=(axes.index(p.channels if of_steps else along), width),
            axes=tuple(s.dims[d] for d in axes),
            padded=pixels and not s.domain.is_equal(padded_domain(schedule.nest, s)),
            stages=t.stages,
            **t.laid_out(side, by_steps, wide),
        )
        copies = added(schedule, done)
        check_fits(done, copies[-1], steps, t)
        own = [loop.name for loop in done.loops(copies[-1]) if set(statements(loop)) <= set(copies)]
        *deep, step, element = own
        values = t.operands.on_all_threads(t.mma, t.thread_values(side, by_steps, wide), side)
        placed = dict.fromkeys(deep, "thread.z")
        done = by_threads(
            done,
            copies[-1],
            (step, element),
            values,
            t.shape,
            placed=placed,
            together=t.operands.halves or t.math in PRECISIONS,
        )
        for copy in copies if t.stages > 1 else ():
            done = done.shift(copy, steps, 1 - t.stages)
        return done

    def _side_by_side(self, nest: Nest, tensor: str, along: int) -> bool:
        """True if filters may be laid out once for all calls, in whole vectors."""
        box = box_around(nest.domains[self.name])
        return (
            nest.tensor(tensor).role == "constant" and (_size(box, along) or 1) % self.tile.shape.vector == 0
        )


def _spread_out(schedule: Schedule, copy: str) -> Schedule:
    """A copy of a whole tensor, each element by a thread of its own: two axes are the grid, the others the block."""
    loops = [loop.name for loop in schedule.loops(copy)]
    places = dict(zip(loops, ("block.x", "block.y", *AXES[-len(loops[2:]) :]), strict=False))
    return schedule.bind(copy, **places)
