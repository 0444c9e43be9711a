"""Products blocked for caches and registers, in public verbs: the loops that `blocking` draws, around any contraction.

    for i: for j: { zero; for k: mac; bias; relu }
    ->  for j (blocks): for k (blocks): { pack b
          for i (tiles): { pack a
            for j_in (tiles): { zero, in the first block of k; microkernel; bias; relu, in the last } } }

What stands with the product in its kernel comes along by `fuse`, which places it by its dependences: the first value of
a sum in the first block of steps, what reads the finished sum in the last one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, prod

from polyfuse.analysis.once import constant_tensors
from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir.tree import Loop, Sequence
from polyfuse.machine import Machine
from polyfuse.schedule import Schedule
from polyfuse.schedule.chains import loop_named
from polyfuse.strategy.blocking import Blocking, Extents, Operand, Task, blocking, blockings, sentences
from polyfuse.strategy.choice import Choose, cheapest
from polyfuse.strategy.contraction import Factor, Product, moved_axes
from polyfuse.strategy.counts import Counts, dims_of
from polyfuse.strategy.kernel import Kernel
from polyfuse.strategy.loops import Planned
from polyfuse.strategy.moves import (
    along_memory,
    constant_extent,
    contracted,
    inside,
    internal,
    on_lanes,
    promoted,
    rejoined,
    reordered,
    units,
    users_in,
)


def blocked(
    schedule: Schedule,
    counts: Counts,
    kernel: Kernel,
    products: tuple[Product, ...],
    machine: Machine,
    parallel: bool,
    choose: Choose = cheapest,
) -> Planned | str:
    """A kernel around one product in blocks, or why not; of its choices of rows the fastest by the model."""
    try:
        schedule = apart(schedule, kernel.names)
    except (IllegalSchedule, InvalidSchedule) as refused:
        return str(refused)
    tried = [_Blocks(schedule, counts, kernel, product, machine).asked(parallel) for product in products]
    possible = [one for one in tried if not isinstance(one, str)]
    if not possible:
        return str(tried[0])
    try:
        return min(possible, key=lambda one: one.choices[0].seconds).made(choose)
    except (IllegalSchedule, InvalidSchedule) as refused:
        return str(refused)


def blocked_inside(
    schedule: Schedule,
    counts: Counts,
    kernel: Kernel,
    product: Product,
    machine: Machine,
    names: tuple[str, ...],
    around: tuple[Loop, ...],
    choose: Choose = cheapest,
) -> Planned | str:
    """One product of a kernel with the statements `names`, in blocks inside the loops around the whole kernel.

    Raises IllegalSchedule or InvalidSchedule where a verb is refused.
    """
    asked = _Blocks(schedule, counts, kernel, product, machine, names, around).asked(False)
    return asked if isinstance(asked, str) else asked.made(choose)


@dataclass(frozen=True)
class _Asked:
    """A kernel, and what the model says of the blocks of its product, the fastest first."""

    kernel: _Blocks
    loops: dict[int, Loop]
    task: Task
    cores: tuple[int, int] | None
    choices: list[Blocking]

    def made(self, choose: Choose) -> Planned:
        """The schedule in blocks. Raises IllegalSchedule or InvalidSchedule where a verb is refused."""
        choice = self.choices[choose(self.kernel.names, "blocks", [b.seconds for b in self.choices])]
        return Planned(*self.kernel.in_blocks(self.loops, self.task, choice, self.cores))


class _Blocks:
    """One kernel on its way into blocks; or its statements `names`, inside loops around the whole kernel."""

    def __init__(
        self,
        schedule: Schedule,
        counts: Counts,
        kernel: Kernel,
        product: Product,
        machine: Machine,
        names: tuple[str, ...] | None = None,
        around: tuple[Loop, ...] = (),
    ) -> None:
        self.schedule, self.counts, self.kernel = schedule, counts, kernel
        self.product, self.machine, self.name = product, machine, product.statement
        self.names = kernel.names if names is None else names
        self.around = around
        self.fixed = constant_tensors(schedule.nest, schedule.tree)

    def asked(self, parallel: bool) -> _Asked | str:
        """What the model says; or why there are no blocks."""
        loops = self._loops()
        if loops is None:
            outside = ", ".join(loop.name for loop in self.around)
            where = f"inside {outside}, around all statements, " if outside else ""
            return f"{where}{self.name} has not one loop for each of rows, columns and steps"
        own = self.schedule.nest.statement(self.name).write.tensor
        if self.product.across and own not in internal(self.kernel):
            return f"the sums' neighbours in memory are not columns, and {own} is seen outside of the kernel"
        task, cores = self._task(loops, parallel)
        choices = blockings(task)
        return (
            _Asked(self, loops, task, cores, choices)
            if choices
            else "a tile holds at least two rows and two columns of sums"
        )

    def _loops(self) -> dict[int, Loop] | None:
        """The loop of each dimension of the product: inside those around the whole kernel, or one of these.

        None where a dimension has several, or another statement stands in a loop over rows, columns or steps.
        """
        found: dict[int, Loop] = {}
        for loop in self.schedule.loops(self.name)[len(self.around) :]:
            dims = dims_of(loop.date(self.name))
            if len(dims) != 1 or dims & found.keys():
                return None
            found[next(iter(dims))] = loop
        p = self.product
        if not {p.rows, p.columns, *p.steps} <= found.keys():
            return None
        for loop in self.around:
            for d in dims_of(loop.date(self.name)):
                found.setdefault(d, loop)
        return found if len(found) == len(p.others) + len(p.steps) + 2 else None

    def _task(self, loops: dict[int, Loop], parallel: bool) -> tuple[Task, tuple[int, int] | None]:
        """The product as one core does it, and the loop that is shared out: (dimension, values a core)."""
        p, units = self.product, self.machine.units if parallel else 1
        sizes = {d: self.counts.extent(loop) for d, loop in loops.items()}
        whole = self._sized(sizes)
        if units == 1:
            return whole, None
        shared = next((d for d in p.others if sizes[d] >= units), None)
        if shared is not None:
            return self._sized({**sizes, shared: 1}), (shared, 1)
        found = []
        for d in (p.rows, p.columns):
            part = ceil(sizes[d] / units)
            one = self._sized({**sizes, d: part})
            choice = blocking(one)
            if choice is not None:
                tile = choice.rows if d == p.rows else choice.columns
                found.append((choice.seconds, one, (d, ceil(part / tile) * tile)))
        if not found:
            return whole, None
        _, one, cores = min(found, key=lambda each: each[0])
        return one, cores

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
        )
        left = self._operand(p.left, p.rows, first, packable=not (window or p.windowed))
        right = self._operand(p.right, first, p.columns)
        itemsize = nest.tensor(nest.statement(self.name).write.tensor).itemsize
        return Task(extents, left, right, itemsize, self.machine, across=p.across)

    def _operand(self, factor: Factor, row: int, along: int, packable: bool = True) -> Operand:
        """The factor with the dimension that its panel's rows count, and the dimension along a row."""
        nest = self.schedule.nest
        tensor = nest.tensor(factor.access.tensor)
        axes = moved_axes(factor.access, len(nest.statement(self.name).dims)) or {}
        bytes_of = [self.counts.tensor_bytes(tensor.name)]
        for size in tensor.shape:
            bytes_of.append(bytes_of[-1] // (size if isinstance(size, int) else self.counts.size(size)))
        last = tensor.rank - 1
        contiguous = axes[along] == last
        stride = bytes_of[axes[row if contiguous else along] + 1]
        # one that is computed, or is one of two forms of a tensor, has a name that no tensor has
        return Operand(factor.name, stride, contiguous, factor.name in self.fixed, factor.computed, packable)

    def in_blocks(
        self,
        loops: dict[int, Loop],
        task: Task,
        b: Blocking,
        cores: tuple[int, int] | None,
    ) -> tuple[Schedule, tuple[str, ...]]:
        """The schedule in blocks of these sizes, and what is said of them."""
        p, name, schedule = self.product, self.name, self.schedule
        first = p.steps[0]
        inner = {d: loop.name for d, loop in loops.items()}
        outer: list[str] = []

        def cut(d: int, size: int) -> str:
            """Split a dimension's innermost loop; the name of the loop over blocks."""
            nonlocal schedule
            block = inner[d]
            schedule = schedule.split(name, block, size)
            inner[d] = inside(schedule, name, block).name
            return block

        if cores is not None:
            outer.append(cut(*cores) if cores[0] not in p.others else inner[cores[0]])
        kept = {loop.name for loop in self.around}
        outer += [inner[d] for d in p.others if inner[d] not in outer and inner[d] not in kept]
        packs_left, packs_right = b.pack_left and not task.left.fixed, b.pack_right and not task.right.fixed
        # a buffer has a constant size, whatever the sizes at a call are
        several = b.steps < task.extents.steps or (
            (packs_left or packs_right) and self._is_symbolic(loops[first])
        )
        wide = b.width < task.extents.columns or (packs_right and self._is_symbolic(loops[p.columns]))
        if wide or (packs_right and not several):
            # whole tiles: a core's columns are, which may be a few more than its part of them
            outer.append(cut(p.columns, ceil(b.width / b.columns) * b.columns))
        if several:
            outer.append(cut(first, b.steps))
        rows, columns = cut(p.rows, b.rows), cut(p.columns, b.columns)
        order = (*outer, rows, columns, *(inner[d] for d in p.steps), inner[p.rows], inner[p.columns])
        schedule = reordered(schedule, name, order)
        schedule = self._with_guests(schedule, rows, columns)
        schedule = self._guests_on_lanes(schedule, columns)
        if cores is not None:
            schedule = schedule.bind(name, **{outer[0]: "cores"})
        schedule = self._packed(schedule, task, b, outer[-1] if outer else None, rows)
        if p.across:
            own = schedule.nest.statement(name).write.tensor
            schedule = schedule.promote(own, name, at=columns, panel=(p.lanes, b.columns))
        schedule = schedule.microkernel(name, inner[first])
        schedule = self._in_buffers(schedule, several, columns)
        names = loops[p.rows].name, loops[p.columns].name, loops[first].name
        return schedule, sentences(task, b, names)

    def _packed(self, schedule: Schedule, task: Task, b: Blocking, block: str | None, rows: str) -> Schedule:
        """The operands in panels: whole and once for all calls, or a block of b and a tile's rows of a at a time."""
        p, name = self.product, self.name
        left, right = (p.left.axes[p.rows], b.rows), (p.right.axes[p.columns], b.columns)
        if b.pack_right and task.right.fixed:
            schedule = packed_once(schedule, p.right.name, name, right)
        elif b.pack_right and block is not None:
            schedule = packed(schedule, p.right.name, name, block, right)
        if b.pack_left and task.left.fixed:
            return packed_once(schedule, p.left.name, name, left)
        panel = None if task.left.contiguous else left
        return packed(schedule, p.left.name, name, rows, panel) if b.pack_left else schedule

    def _is_symbolic(self, loop: Loop) -> bool:
        return constant_extent(self.schedule, loop) is None

    def _with_guests(self, schedule: Schedule, rows: str, columns: str) -> Schedule:
        """The other statements where the product's tiles are: first values, operands, what reads the sums.

        Inside loops around the whole kernel, those that belong to no single tile stay before or behind all of them.
        """
        nest, names = schedule.nest, self.names
        own = nest.statement(self.name).write.tensor
        position = names.index(self.name)
        places = [(g, nest.statement(g).write.tensor == own) for g in reversed(names[:position])]
        for guest, in_tile in [*places, *((g, True) for g in names[position + 1 :])]:
            at = columns if in_tile else rows
            try:
                joined = self._joined(schedule, guest, at)
            except (IllegalSchedule, InvalidSchedule):
                if not self.around:
                    raise
                continue
            if not self.around or self._in_every(joined, guest, at):
                schedule = joined
        return schedule

    def _in_every(self, schedule: Schedule, guest: str, at: str) -> bool:
        """Whether a guest has instances in each of the product's tiles, not only where the last of its operands is."""
        tiles = loop_named(schedule.tree, self.name, at)
        own, whole = (replace(tiles, dates=((n, tiles.date(n)),)) for n in (guest, self.name))
        return self.counts.extent(own) == self.counts.extent(whole)

    def _joined(self, schedule: Schedule, guest: str, at: str) -> Schedule:
        """The guest in the product's tiles. Raises InvalidSchedule where it would only share their loops' numbers."""
        tiles = self.counts.extent(loop_named(schedule.tree, self.name, at))
        schedule = schedule.fuse(self.name, guest, at=at)
        if self.counts.extent(loop_named(schedule.tree, self.name, at)) > tiles:
            raise InvalidSchedule(f"{guest} does not belong to single tiles of {self.name}")
        return schedule

    def _guests_on_lanes(self, schedule: Schedule, columns: str) -> Schedule:
        """Pointwise statements of a tile in common loops, the loop along memory innermost, on vector lanes."""
        keep = [loop.name for loop in schedule.loops(self.name)].index(columns) + 1
        names = tuple(
            n
            for n in self.names
            if len(schedule.loops(n)) > keep and schedule.loops(n)[keep - 1].name == columns
        )
        schedule = rejoined(schedule, names, keep)
        for unit in units(schedule, names, keep):
            if self.name not in unit:
                loops = schedule.loops(unit[0])[keep:]
                schedule = self._along(schedule, unit, loops)
        return schedule

    def _along(self, schedule: Schedule, unit: tuple[str, ...], loops: tuple[Loop, ...]) -> Schedule:
        """A pointwise loop nest along memory; along the sums' panels where these lie across it."""
        if not self.product.across:
            return along_memory(schedule, self.counts, unit, loops)
        own = schedule.nest.statement(self.name).write.tensor
        for access in (a for name in unit for a in schedule.nest.statement(name).accesses if a.tensor == own):
            axes = moved_axes(access, len(schedule.nest.statement(unit[0]).dims)) or {}
            lanes = [
                x for x in loops if any(axes.get(d) == self.product.lanes for d in dims_of(x.date(unit[0])))
            ]
            if lanes:
                return on_lanes(schedule, unit[0], loops, lanes[0])
        return schedule

    def _in_buffers(self, schedule: Schedule, several: bool, columns: str) -> Schedule:
        """Temporaries of this kernel alone in buffers; the sums in one of a tile, if there is one block of steps."""
        own = schedule.nest.statement(self.name).write.tensor
        for tensor in internal(self.kernel):
            if tensor != own and not self.around:
                users = users_in(schedule, self.names, tensor)
                schedule = contracted(schedule, tensor, users, self.machine)
            elif tensor == own and not several and not self.product.across:
                schedule = promoted(schedule, own, self.name, columns, "local") or schedule
        return schedule


def apart(schedule: Schedule, names: tuple[str, ...]) -> Schedule:
    """Every statement in loops of its own, by `distribute`, innermost first. Raises IllegalSchedule where it cannot."""
    for name in names:
        for loop in reversed(schedule.loops(name)):
            here = next(x for x in schedule.loops(name) if x.name == loop.name)
            if isinstance(here.body, Sequence):
                schedule = schedule.distribute(name, here.name)
    return schedule


def packed(schedule: Schedule, what: str, statement: str, at: str, panel: tuple[int, int] | None) -> Schedule:
    """A copy of what one iteration of a loop reads, or a value of it, in panels or as it is; on vector lanes."""
    done = schedule.promote(what, statement, at=at, panel=panel)
    (copy,) = added(schedule, done)
    own = [loop.name for loop in done.loops(copy) if len(loop.dates) == 1]
    return done.vectorize(copy, own[-1]) if panel is None else _row_by_row(done, copy, own, panel)


def packed_once(schedule: Schedule, tensor: str, statement: str, panel: tuple[int, int]) -> Schedule:
    """A copy of a whole tensor that calls have in common, in panels, made on vector lanes."""
    done = schedule.pack(tensor, statement, panel=panel)
    (copy,) = added(schedule, done)
    return _row_by_row(done, copy, [loop.name for loop in done.loops(copy)], panel)


def added(before: Schedule, after: Schedule) -> tuple[str, ...]:
    """The copies that a later schedule has and an earlier one has not."""
    known = {s.name for s in before.nest.statements}
    return tuple(s.name for s in after.nest.statements if s.name not in known)


def _row_by_row(schedule: Schedule, copy: str, own: list[str], panel: tuple[int, int]) -> Schedule:
    """A copy into panels, row by row of a panel."""
    along = own[panel[0]]
    schedule = schedule.split(copy, along, panel[1])
    lanes = inside(schedule, copy, along).name
    others = [loop for loop in own if loop != along]
    # the tensor is read in its own order: rows of panels, 4 KiB apart, would come one cache line at a time
    return reordered(schedule, copy, (*others, along, lanes)).vectorize(copy, lanes)
