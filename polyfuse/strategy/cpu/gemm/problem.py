"""The blocking problem of a product: its sizes for one core, and the memory of its factors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, inf, lcm, prod

from polyfuse.analysis.once import is_constant
from polyfuse.ir.tensor import Tensor
from polyfuse.ir.tree import Loop
from polyfuse.machine import CpuMachine
from polyfuse.schedule import Schedule
from polyfuse.strategy.candidates import Choose
from polyfuse.strategy.cost.counts import Counts, dims_of
from polyfuse.strategy.cost.kernel_model import is_internal
from polyfuse.strategy.cost.load_balance import Share, busiest, pieces, place_of, place_one_by_one
from polyfuse.strategy.cpu.gemm.blocking import blocking, blockings
from polyfuse.strategy.cpu.gemm.blocks import Blocking, Extents, Operand, Results, Task
from polyfuse.strategy.match.gemm import Factor, Product, is_product, moved_axes, moves_by_one
from polyfuse.strategy.transforms.band_verbs import constant_extent

PIECES_IN_STEPS = 8
"""Pieces for each core of the columns that all steps have together, where a step has a part of them."""

PACKED_TOGETHER = "packed together"
"""The pass that has all cores put a factor into panels before a product, of which each then has rows."""

CLEARLY = 0.98
"""The largest expected cost of rows of panels that cores packed together, as a fraction of the other way to share a
product. Expected and measured on two Zen 5 cores, medians of 31 turns: float32 500 x 333 x 1000 0.92 and 0.91, 800 x
900 x 1000 0.96 and 0.95 to 0.98, 900 x 1100 x 1200 0.97 and 0.98, 257 x 333 x 1000 0.98 and 0.93 to 0.97; float64 2000
x 450 x 450 0.96 and 0.80 to 1.04, 600 x 420 x 2000 0.96 and 0.98 to 1.04."""


@dataclass(frozen=True)
class Question:
    """A product in a schedule, inside the loops `around` its whole kernel, and the machine that it is to run on.

    `held` are the bytes that go by before it reads the same numbers again: a call's, or those of a step of these loops.
    `made` are the tensors that other statements of its part of the kernel write, `kernel` the names of the whole one.
    `choose` decides. Cores do not share out dimensions of which a tile has all values `together`.
    """

    schedule: Schedule
    counts: Counts
    product: Product
    machine: CpuMachine
    around: tuple[Loop, ...]
    held: int
    made: frozenset[str]
    choose: Choose
    kernel: tuple[str, ...]
    together: frozenset[int] = frozenset()

    def loops(self) -> dict[int, Loop] | None:
        """The loop of each dimension of the product: inside those around the whole kernel, or one of these.

        None if a dimension has several, or another statement stands in a loop over rows, columns or steps.
        """
        found: dict[int, Loop] = {}
        for loop in self.schedule.loops(self.product.statement)[len(self.around) :]:
            dims = dims_of(loop.date(self.product.statement))
            if len(dims) != 1 or dims & found.keys():
                return None
            found[next(iter(dims))] = loop
        p = self.product
        if not {p.rows, p.columns, *p.steps} <= found.keys():
            return None
        for loop in self.around:
            for d in dims_of(loop.date(self.product.statement)):
                found.setdefault(d, loop)
        return found if found.keys() >= {p.rows, p.columns, *p.steps, *p.others} else None

    def task(self, loops: dict[int, Loop], parallel: bool) -> tuple[Task, float, Share | None]:
        """The product as one core does it, how often the busiest core does that much, and what is shared out."""
        p, units = self.product, self.machine.units if parallel else 1
        sizes = {d: self.counts.extent(loop) for d, loop in loops.items()}
        whole = self._sized(sizes), self.counts.filled(p.statement), None
        if units == 1:
            return whole
        shared = next((d for d in p.others if d not in self.together and sizes[d] >= units), None)
        if shared in self.alike() and len(self._profile(loops[shared])) == 1:
            part = ceil(sizes[shared] / units)
            count = ceil(sizes[shared] / part)
            return self._sized({**sizes, shared: part}), whole[1], Share(shared, part, count)
        if shared is not None:
            profile, extent = self._profile(loops[shared]), sizes[shared]
            place = place_one_by_one(profile, extent, units)
            often = busiest(profile, extent, 1, units, place)
            return self._sized({**sizes, shared: 1}), often, Share(shared, 1, extent, place)
        found = [each for d in self._shareable() for each in self._shared(sizes, d, self._profile(loops[d]))]
        if not found:
            return whole
        apart = min(found, key=lambda each: each[0])[1:]
        together = self._packed_together(sizes, loops)
        if together is None:
            return apart
        pays = self._busiest(*together) < CLEARLY * self._busiest(*apart)
        return together if self.choose.takes(PACKED_TOGETHER, (p.statement,), pays) else apart

    def alike(self) -> tuple[int, ...]:
        """The dimensions of batches that have the same b: what is packed serves all of them.

        y[b, i, j] += x[b, i, k] * w[k, j]      for b: { pack w; for i: … }   ->   pack w; for b: for i: …
        """
        return () if self.around else self.product.alike

    def task_in_steps(self, loops: dict[int, Loop]) -> tuple[Task, float, Share]:
        """The same inside loops in order, in each of which cores share what columns there are, in pieces.

        LU's columns behind block b are fewer with each b: of 1000 in halves one core would soon have none.
        """
        p, units = self.product, self.machine.units
        sizes = {d: self.counts.extent(loop) for d, loop in loops.items()}
        itemsize = self.schedule.nest.tensor(self.schedule.nest.statement(p.statement).write.tensor).itemsize
        least = min(sizes[p.columns], self.machine.vector_bytes // itemsize)
        part = max(least, ceil(sizes[p.columns] / (units * PIECES_IN_STEPS)))
        one = self._sized({**sizes, p.columns: part})
        choice = blocking(one)
        size = ceil(part / choice.columns) * choice.columns if choice is not None else part
        pieces = ceil(sizes[p.columns] / size)
        often = self.counts.filled(p.statement) * pieces / units
        return self._sized({**sizes, p.columns: size}), often, Share(p.columns, size, pieces)

    def _shared(
        self, sizes: dict[int, int], d: int, profile: tuple[float, ...]
    ) -> Iterator[tuple[float, Task, float, Share]]:
        """The ways to share a dimension out, with the seconds of the busiest core: in pieces where work is unequal.

        Panels of b that a piece packs begin where its columns do: in a triangle, at its rows. So its rows are whole
        tiles of columns, too. In pieces of 308 rows, 22 tiles of 14 by 16 columns, PolyBench's covariance had no tile
        left: 185 ms on two Zen 5 cores, 20 on one.
        """
        units, extent = self.machine.units, sizes[d]
        if len(profile) == 1:
            yield from self._in_whole_tiles(sizes, d, profile[0])
            return
        for part in pieces(extent, units):
            one = self._sized({**sizes, d: part})
            choice = blocking(one)
            if choice is None:
                continue
            tile = self._tile(choice, d)
            if d == self.product.rows and choice.pack_right:
                tile = lcm(tile, choice.columns)
            size = ceil(part / tile) * tile
            count = ceil(extent / size)
            place = place_of(count, units)
            work = busiest(profile, extent, size, units, place)
            whole = busiest(profile, extent, extent, 1, "cores")
            halved = busiest(profile, extent, ceil(extent / units), units, "cores")
            share = Share(d, size, count, place, work / whole, halved / whole)
            yield choice.seconds * work / part, one, work / part, share

    def _in_whole_tiles(
        self, sizes: dict[int, int], d: int, often: float, together: bool = False
    ) -> Iterator[tuple[float, Task, float, Share]]:
        """The ways to share a dimension out to cores in one piece each, of whole tiles of each width.

        320 columns on two cores: 192 and 128 in tiles of 64, 160 and 160 in tiles of 32, which take 0.92 of the time
        (256 rows, 1024 steps, a Zen 5). 64 rows: 36 and 28 in tiles of 6, 32 and 32 in tiles of 8, which take 0.88 (256
        columns and steps, a Zen 4). Narrower tiles than of two vectors lose more than equal parts gain: 176 and 157
        of 333 columns in tiles of 16 took 1.2 times what 192 and 141 in tiles of 32 did. If `together`, b is in panels
        that all cores made.
        """
        part = ceil(sizes[d] / self.machine.units)
        one = self._sized({**sizes, d: part})
        one = self._of_panels(one, sizes) if together else one
        equal = blockings(one)
        tiles = self._tiles(one, equal, d, part)
        found: list[tuple[float, Task, Share]] = []
        for size in sorted({ceil(part / tile) * tile for tile in tiles}):
            one = self._sized({**sizes, d: min(size, sizes[d])})
            one = self._of_panels(one, sizes) if together else one
            for b in blockings(one):
                if self._tile(b, d) in tiles and size % self._tile(b, d) == 0:
                    found.append((b.seconds, one, Share(d, size, ceil(sizes[d] / size))))
                    break
        if found:
            _, one, share = min(found, key=lambda each: each[0])
            yield equal[0].seconds * often, one, often, share

    def _packed_together(
        self, sizes: dict[int, int], loops: dict[int, Loop]
    ) -> tuple[Task, float, Share] | None:
        """Rows shared out, where all cores have put b into panels before, each a part of it.

        Else each core packs all of b, or has its part of the columns in whole panels: 480 and 420 of 900 in panels of
        32. GFLOP/s of two Zen 5 cores in turns, columns and rows, float32: 800 x 900 x 1000 430 and 454, 900 x 1100 x
        1200 458 and 466, 257 x 333 x 1000 360 and 380. None for other products, or where no row tiles are whole.
        """
        p = self.product
        profile = self._profile(loops[p.rows])
        alone = not p.across and len(p.steps) == 1 and not p.others and not p.right.computed
        known = all(constant_extent(self.schedule, loop) is not None for loop in loops.values())
        if not (alone and known and len(profile) == 1 and p.rows in self._shareable()):
            return None
        right = self.schedule.nest.tensor(p.right.access.tensor)
        if self._sized(sizes).right.fixed or right.name in self.made or right.role == "gathered":
            return None
        return next(
            (found[1:] for found in self._in_whole_tiles(sizes, p.rows, profile[0], together=True)), None
        )

    def _of_panels(self, one: Task, sizes: dict[int, int]) -> Task:
        """A core's part of a product of such sizes, of whose b all cores have made panels right before.

        These are one more thing that goes by before they are read: 1000 x 1100 x 1200 in float64 is 29 MB without them
        and 40 with, of which an L3 of 32 MiB loses some. It took 12.8 ms so, and 11.8 with columns on two Zen 5 cores.
        """
        p = self.product
        rows, columns, steps = (sizes[d] for d in (p.rows, p.columns, p.steps[0]))
        held = one.itemsize * (rows * steps + 2 * steps * columns + rows * columns)
        return replace(one, right=replace(one.right, by_cores=self.machine.units), held=held)

    def _busiest(self, task: Task, often: float, share: Share) -> float:
        """Seconds of the core with most to do, and what another kernel costs where b is packed in one."""
        choices = self.in_whole_tiles(list(blockings(task)), share)
        more = self.machine.launch_seconds + self.machine.region_seconds if task.right.by_cores else 0.0
        return choices[0].seconds * often + more if choices else inf

    def _tiles(self, task: Task, choices: tuple[Blocking, ...], d: int, part: int) -> set[int]:
        """Columns of tiles of two vectors or more, if any are; else those of the fastest, and that leaves no rest."""
        wide = {b.columns for b in choices if task.vectors(b) > 1}
        if wide and d == self.product.columns:
            return wide
        every = [self._tile(b, d) for b in choices]
        return {*every[:1], *[tile for tile in every if part % tile == 0][:1]}

    def in_whole_tiles(self, choices: list[Blocking], share: Share | None) -> list[Blocking]:
        """The blockings whose tiles divide a core's columns, where columns are shared out and some do."""
        if share is None or share.dim != self.product.columns:
            return choices
        return [b for b in choices if share.size % b.columns == 0] or choices

    def _tile(self, choice: Blocking, d: int) -> int:
        return choice.rows if d == self.product.rows else choice.columns

    def _profile(self, loop: Loop) -> tuple[float, ...]:
        return self.counts.profile(self.product.statement, loop.date(self.product.statement))

    def _shareable(self) -> tuple[int, ...]:
        """Of rows and columns those that every factor has which is computed in this kernel.

        for i: { l[i, k] = …; for j: y[i, j] += l[i, k] * b[k, j] }: one core's columns would need another core's l.
        """
        p = self.product
        factors = ((p.rows, p.right), (p.columns, p.left))
        return tuple(d for d, other in factors if other.access.tensor not in self.made)

    def _sized(self, sizes: dict[int, int]) -> Task:
        p, nest = self.product, self.schedule.nest
        first, *window = p.steps
        extents = Extents(
            sizes[p.rows],
            sizes[p.columns],
            sizes[first],
            prod(sizes[d] for d in p.others),
            prod(sizes[d] for d in window),
            prod(sizes[d] for d in window if d in p.windowed),
            prod(sizes[d] for d in self.alike()),
            prod(
                sizes[d] for d in window if p.left.axes[d] in {p.left.axes.get(other) for other in p.others}
            ),
        )
        last = first if p.windowed else max(p.steps, key=lambda d: p.left.axes[d])
        left = self._operand(p.left, p.rows, last, packable=not (window or p.windowed))
        right = replace(self._operand(p.right, first, p.columns), turns=self._turns())
        itemsize = nest.tensor(nest.statement(self.product.statement).write.tensor).itemsize
        along = not window and self._lie_along(first)
        into = self._results(extents)
        return Task(extents, left, right, itemsize, self.machine, p.across, self.held, along, into)

    def _results(self, e: Extents) -> Results | None:
        """Where the sums go: the tensors outside of the kernel that lie like them, as many bytes or more in all."""
        p, nest = self.product, self.schedule.nest
        sums = nest.statement(p.statement).write
        tensor = nest.tensor(sums.tensor)
        axes = moved_axes(sums, len(nest.statement(p.statement).dims)) or {}
        if p.rows not in axes:
            return None
        least = e.batches * e.rows * e.columns * tensor.itemsize
        used = {a.tensor for name in self.kernel for a in nest.statement(name).accesses}
        used &= {t.name for t in self.counts.nest.tensors}  # no panels
        used -= {p.left.access.tensor, p.right.access.tensor}
        outside = [t for t in used if not is_internal(self.counts, t, frozenset(self.kernel))]
        count = sum(self.counts.tensor_bytes(t) >= least for t in outside)
        return Results(self._strides(tensor)[axes[p.rows] + 1], count)

    def _turns(self) -> int:
        """How often the loops around the kernel come to the same b, which may be packed before all of them.

        for t: y[t] += h[t] * u      u is in memory before, and no t moves it
        """
        p, nest = self.product, self.schedule.nest
        moved = {d for loop in self.around for d in dims_of(loop.date(p.statement))}
        written = {nest.statement(name).write.tensor for name in self.kernel}
        if p.right.computed or moved & p.right.axes.keys() or p.right.access.tensor in written:
            return 1
        return prod(self.counts.extent(loop) for loop in self.around)

    def _lie_along(self, steps: int) -> bool:
        """True if both factors are read along the steps, by one, as tensors that stay where they are: x[i, k], w[j, k].

        All sums have all steps then. What is in other loops, or lies across the sums, has other tiles.
        """
        p, nest = self.product, self.schedule.nest
        s = nest.statement(p.statement)
        if self.around or p.across or p.group or not is_product(nest.domains[p.statement], {*p.steps}):
            return False
        axes = [f.axes[steps] == nest.tensor(f.access.tensor).innermost for f in (p.left, p.right)]
        even = [not f.computed and moves_by_one(f.access, len(s.dims)) for f in (p.left, p.right)]
        return all((*axes, *even)) and p.left.access.tensor != p.right.access.tensor

    def _operand(self, factor: Factor, row: int, along: int, packable: bool = True) -> Operand:
        """The factor with the dimension that its panel's rows count, and the dimension along a row."""
        nest = self.schedule.nest
        tensor = nest.tensor(factor.access.tensor)
        axes = moved_axes(factor.access, len(nest.statement(self.product.statement).dims)) or {}
        bytes_of = self._strides(tensor)
        contiguous = axes[along] == tensor.innermost
        stride = bytes_of[axes[row if contiguous else along] + 1]
        # one that is computed, or is one of two forms of a tensor, has a name that no tensor has
        fixed = is_constant(nest, self.schedule.tree, factor.name)
        return Operand(factor.name, stride, contiguous, fixed, factor.computed, packable)

    def _strides(self, tensor: Tensor) -> list[int]:
        """Bytes of a tensor, then from one element to the next along each axis."""
        bytes_of = [self.counts.tensor_bytes(tensor.name)]
        for size in tensor.shape:
            bytes_of.append(bytes_of[-1] // (size if isinstance(size, int) else self.counts.size(size)))
        return bytes_of
