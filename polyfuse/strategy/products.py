"""Products blocked for caches and registers, in public verbs: the loops that `blocking` draws, around any contraction.

    for i: for j: { zero; for k: mac; bias; relu }
    ->  for j (blocks): for k (blocks): { pack b
          for i (tiles): { pack a
            for j_in (tiles): { zero, in the first block of k; microkernel; bias; relu, in the last } } }

What stands with the product in its kernel comes along by `fuse`, which places it by its dependences: the first value of
a sum in the first block of steps, what reads the finished sum in the last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

import islpy as isl
import sympy

from polyfuse.analysis.once import constant_tensors
from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir import Access, Nest
from polyfuse.ir.scalar import Read
from polyfuse.ir.tree import Loop, Sequence
from polyfuse.machine import Machine
from polyfuse.schedule import Schedule
from polyfuse.schedule.chains import loop_named
from polyfuse.sets import IN, OUT, SET
from polyfuse.strategy.blocking import Blocking, Extents, Operand, Task, blocking, sentences
from polyfuse.strategy.counts import Counts, dims_of
from polyfuse.strategy.kernel import Kernel
from polyfuse.strategy.loops import Planned
from polyfuse.strategy.moves import (
    along_memory,
    contracted,
    inside,
    internal,
    promoted,
    rejoined,
    reordered,
    units,
    users_in,
)


@dataclass(frozen=True)
class Product:
    """A contraction y[rows, columns] += a[rows, steps] * b[steps, columns]: which dimension and which read does what.

    `others` are dimensions that all three move with. Columns lie along y's last axis; `axes` are the axes of a along
    its rows, and of b along its columns.
    """

    statement: str
    rows: int
    columns: int
    steps: int
    others: tuple[int, ...]
    left: Access
    right: Access
    axes: tuple[int, int]


def blocked(
    schedule: Schedule, counts: Counts, kernel: Kernel, machine: Machine, parallel: bool
) -> Planned | str | None:
    """A kernel around one product in blocks; why not; or None where there is no product to speak of."""
    found = [p for p in (product_of(schedule.nest, name) for name in kernel.names) if p is not None]
    if len(found) != 1:
        return None
    product = found[0]
    return _Blocks(schedule, counts, kernel, product, machine).made(parallel)


# -- which loop does what ----------------------------------------------------------------------------------------------


def product_of(nest: Nest, name: str) -> Product | None:
    """The statement as a product; None if it is none."""
    s = nest.statement(name)
    reads = isinstance(s.body, sympy.Mul) and all(isinstance(factor, Read) for factor in s.body.args)
    if s.op != "+=" or not reads or len(s.reads) != 2 or len(s.body.args) != 2:
        return None
    found = _roles(nest, name)
    return found if found is not None and _all_steps(nest.domains[name], found.steps) else None


def _all_steps(domain: isl.Set, steps: int) -> bool:
    """Whether every sum has the same steps: a tile then has all its rows and columns in each of them, or in none.

    { mac[i, j, k] : k > i } is refused: step 3 has no row 4.
    """
    rank = domain.dim(SET)
    sums = domain.project_out(SET, steps, 1).insert_dims(SET, steps, 1)
    values = domain.project_out(SET, steps + 1, rank - steps - 1).project_out(SET, 0, steps)
    values = values.insert_dims(SET, 1, rank - steps - 1).insert_dims(SET, 0, steps)
    return bool(domain.reset_tuple_id().is_equal(sums.reset_tuple_id().intersect(values.reset_tuple_id())))


def _roles(nest: Nest, name: str) -> Product | None:
    s = nest.statement(name)
    moved = [_axes(access, len(s.dims)) for access in (s.write, *s.reads)]
    if any(axes is None for axes in moved):
        return None
    last = s.write.map.dim(OUT) - 1
    for left, right in ((1, 2), (2, 1)):
        y, a, b = (moved[p] or {} for p in (0, left, right))
        columns = [d for d in y if y[d] == last and d in b and d not in a]
        rows = [d for d in y if d in a and d not in b]
        steps = [d for d in a if d in b and d not in y]
        others = tuple(d for d in y if d in a and d in b)
        if len(columns) == len(rows) == len(steps) == 1 and len(others) + 3 == len(s.dims):
            axes = a[rows[0]], b[columns[0]]
            accesses = s.accesses[left], s.accesses[right]
            return Product(name, rows[0], columns[0], steps[0], others, *accesses, axes)
    return None


def _axes(access: Access, dims: int) -> dict[int, int] | None:
    """For each dimension the one axis that an access moves along with it; None if two share an axis or one has two."""
    subscripts = access.subscripts()
    found: dict[int, int] = {}
    for axis in range(access.map.dim(OUT)):
        moving = [d for d in range(dims) if subscripts.get_pw_aff(axis).involves_dims(IN, d, 1)]
        if len(moving) > 1 or any(d in found for d in moving):
            return None
        found |= dict.fromkeys(moving, axis)
    return found


# -- the verbs ---------------------------------------------------------------------------------------------------------


class _Blocks:
    """One kernel on its way into blocks."""

    def __init__(
        self, schedule: Schedule, counts: Counts, kernel: Kernel, product: Product, machine: Machine
    ) -> None:
        self.schedule, self.counts, self.kernel = schedule, counts, kernel
        self.product, self.machine, self.name = product, machine, product.statement
        self.fixed = constant_tensors(schedule.nest, schedule.tree)

    def made(self, parallel: bool) -> Planned | str:
        """The schedule in blocks, or why it cannot be."""
        try:
            schedule = apart(self.schedule, self.kernel.names)
            loops = self._loops(schedule)
            if loops is None:
                return "the product's loops are not one for each dimension"
            task, cores = self._task(loops, parallel)
            choice = blocking(task)
            if choice is None:
                return "no row of the sums holds a whole vector"
            return Planned(*self._in_blocks(schedule, loops, task, choice, cores))
        except (IllegalSchedule, InvalidSchedule) as refused:
            return str(refused)

    def _loops(self, schedule: Schedule) -> dict[int, Loop] | None:
        """The loop of each dimension of the product."""
        found: dict[int, Loop] = {}
        for loop in schedule.loops(self.name):
            dims = dims_of(loop.date(self.name))
            if len(dims) != 1 or dims & found.keys():
                return None
            found[next(iter(dims))] = loop
        return found if len(found) == len(self.product.others) + 3 else None

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
        extents = Extents(sizes[p.rows], sizes[p.columns], sizes[p.steps], prod(sizes[d] for d in p.others))
        moved = [_axes(a, len(nest.statement(self.name).dims)) or {} for a in (p.left, p.right)]
        left = self._operand(p.left, moved[0][p.rows], moved[0][p.steps])
        right = self._operand(p.right, moved[1][p.steps], moved[1][p.columns])
        itemsize = nest.tensor(nest.statement(self.name).write.tensor).itemsize
        return Task(extents, left, right, itemsize, self.machine)

    def _operand(self, access: Access, row: int, along: int) -> Operand:
        """The factor with the axis that its panel's rows count, and the axis along a row."""
        tensor = self.schedule.nest.tensor(access.tensor)
        bytes_of = [self.counts.tensor_bytes(tensor.name)]
        for size in tensor.shape:
            bytes_of.append(bytes_of[-1] // (size if isinstance(size, int) else self.counts.size(size)))
        last = tensor.rank - 1
        fixed = tensor.name in self.fixed
        return Operand(tensor.name, bytes_of[(row if along == last else along) + 1], along == last, fixed)

    def _in_blocks(
        self,
        schedule: Schedule,
        loops: dict[int, Loop],
        task: Task,
        b: Blocking,
        cores: tuple[int, int] | None,
    ) -> tuple[Schedule, tuple[str, ...]]:
        p, name = self.product, self.name
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
        outer += [inner[d] for d in p.others if inner[d] not in outer]
        several = b.steps < task.extents.steps
        if b.width < task.extents.columns or (b.pack_right and not task.right.fixed and not several):
            outer.append(cut(p.columns, b.width))
        if several:
            outer.append(cut(p.steps, b.steps))
        rows, columns = cut(p.rows, b.rows), cut(p.columns, b.columns)
        order = (*outer, rows, columns, inner[p.steps], inner[p.rows], inner[p.columns])
        schedule = reordered(schedule, name, order)
        schedule = self._with_guests(schedule, rows, columns)
        schedule = self._guests_on_lanes(schedule, columns)
        if cores is not None:
            schedule = schedule.bind(name, **{outer[0]: "cores"})
        schedule = self._packed(schedule, task, b, outer[-1] if outer else None, rows)
        schedule = schedule.microkernel(name, inner[p.steps])
        schedule = self._in_buffers(schedule, several, columns)
        names = loops[p.rows].name, loops[p.columns].name, loops[p.steps].name
        return schedule, sentences(task, b, names)

    def _packed(self, schedule: Schedule, task: Task, b: Blocking, block: str | None, rows: str) -> Schedule:
        """The operands in panels: whole and once for all calls, or a block of b and a tile's rows of a at a time."""
        p, name = self.product, self.name
        if b.pack_right and task.right.fixed:
            schedule = packed_once(schedule, p.right.tensor, name, (p.axes[1], b.columns))
        elif b.pack_right and block is not None:
            schedule = packed(schedule, p.right.tensor, name, block, (p.axes[1], b.columns))
        if b.pack_left and task.left.fixed:
            return packed_once(schedule, p.left.tensor, name, (p.axes[0], b.rows))
        panel = None if task.left.contiguous else (p.axes[0], b.rows)
        return packed(schedule, p.left.tensor, name, rows, panel) if b.pack_left else schedule

    def _with_guests(self, schedule: Schedule, rows: str, columns: str) -> Schedule:
        """The kernel's other statements where the product's tiles are: first values, operands, what reads the sums."""
        nest, names = schedule.nest, self.kernel.names
        own = nest.statement(self.name).write.tensor
        position = names.index(self.name)
        for guest in reversed(names[:position]):
            first_value = nest.statement(guest).write.tensor == own
            schedule = self._joined(schedule, guest, columns if first_value else rows)
        for guest in names[position + 1 :]:
            schedule = self._joined(schedule, guest, columns)
        return schedule

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
            for n in self.kernel.names
            if len(schedule.loops(n)) > keep and schedule.loops(n)[keep - 1].name == columns
        )
        schedule = rejoined(schedule, names, keep)
        for unit in units(schedule, names, keep):
            if self.name not in unit:
                loops = schedule.loops(unit[0])[keep:]
                schedule = along_memory(schedule, self.counts, unit, loops)
        return schedule

    def _in_buffers(self, schedule: Schedule, several: bool, columns: str) -> Schedule:
        """Temporaries of this kernel alone in buffers; the sums in one of a tile, if there is one block of steps."""
        own = schedule.nest.statement(self.name).write.tensor
        for tensor in internal(self.kernel):
            if tensor != own:
                users = users_in(schedule, self.kernel.names, tensor)
                schedule = contracted(schedule, tensor, users, self.machine)
            elif not several:
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


def packed(
    schedule: Schedule, tensor: str, statement: str, at: str, panel: tuple[int, int] | None
) -> Schedule:
    """A copy of what one iteration of a loop reads, in panels or as it is; it goes along memory, on vector lanes."""
    done = schedule.promote(tensor, statement, at=at, panel=panel)
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
