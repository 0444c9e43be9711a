"""Block products for caches and registers, in public verbs: the loops of `blocking` around any contraction.

    for i: for j: { zero; for k: mac; bias; relu }
    ->  for j (blocks): for k (blocks): { pack b
          for i (tiles): { pack a
            for j_in (tiles): { zero, in the first block of k; microkernel; bias; relu, in the last } } }

What stands with the product in its kernel comes along by `fuse`, which places it by its dependences: the first value of
a sum in the first block of steps, what reads the finished sum in the last one. What reads several sums, as pooling
does, runs in the innermost loop that holds all that it reads, and tiles are cut so that this is a tile if it can be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, prod

from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir.tree import Loop
from polyfuse.machine import CpuMachine
from polyfuse.schedule import Schedule
from polyfuse.strategy.candidates import Choose, cheapest
from polyfuse.strategy.cost.counts import Counts, dims_of, stride
from polyfuse.strategy.cost.kernel_model import Kernel, internal
from polyfuse.strategy.cost.load_balance import Share
from polyfuse.strategy.cpu.depthwise import summed_in_rows, sums_along_memory
from polyfuse.strategy.cpu.gemm.batches_along_lines import along_lines
from polyfuse.strategy.cpu.gemm.block_cost import asks_further_on
from polyfuse.strategy.cpu.gemm.blocking import blockings
from polyfuse.strategy.cpu.gemm.blocks import Blocking, Task
from polyfuse.strategy.cpu.gemm.operand_packing import (
    Panel,
    packed_inside,
    with_panels,
    within_rows_of_panels,
)
from polyfuse.strategy.cpu.gemm.problem import Question
from polyfuse.strategy.cpu.gemm.remarks import sentences
from polyfuse.strategy.match.epilogue import (
    belongs,
    block_of,
    columns_axes,
    columns_dim,
    connected,
    needs_of,
    reached,
)
from polyfuse.strategy.match.gemm import Product
from polyfuse.strategy.remarks import Reason, Refused, Remark
from polyfuse.strategy.transforms.band_verbs import (
    along_memory,
    common_loops,
    constant_extent,
    contiguous,
    contracted,
    inside,
    on_lanes,
    promoted,
    rejoined,
    reordered,
    units,
    users_in,
)
from polyfuse.strategy.transforms.packing import apart, without_coarse_loops
from polyfuse.strategy.transforms.time_loops import Planned

BLOCKS = "blocks for the caches"
"""The name of the pass that puts products into blocks (`polyfuse.strategy.pipeline`)."""

CLEARLY = 0.8
"""The largest cost of blocks that a kernel's other statements forbid, as a fraction of its own blocks', for which it is
doubted (`passes/backtrack.py`), which takes a kernel apart for no smaller gain."""


def blocked(
    schedule: Schedule,
    counts: Counts,
    kernel: Kernel,
    products: tuple[Product, ...],
    machine: CpuMachine,
    parallel: bool,
    choose: Choose = cheapest,
) -> Planned | Refused:
    """A kernel around one product in blocks, or why not; of its choices of rows the fastest by the model."""
    try:
        schedule = without_coarse_loops(apart(schedule, kernel.names), kernel.names)
    except (IllegalSchedule, InvalidSchedule) as error:
        return Refused(Reason.ILLEGAL, str(error))
    tried = [
        _Blocks(schedule, counts, kernel, product, machine, choose).asked(parallel) for product in products
    ]
    possible = [one for one in tried if not isinstance(one, Refused)]
    if not possible:
        return next(one for one in tried if isinstance(one, Refused))
    best = min(possible, key=lambda one: one.choices[0].seconds)
    whole = [b for b in best.choices if b.width == best.task.extents.columns]
    try:
        return best.made(choose)
    except (IllegalSchedule, InvalidSchedule) as error:
        why = Refused(Reason.ILLEGAL, str(error))
    if not whole or best.choices[0] in whole:
        return why
    try:  # what follows may need whole rows of sums
        made = replace(best, choices=whole).made(cheapest)
    except (IllegalSchedule, InvalidSchedule) as error:
        return Refused(Reason.ILLEGAL, str(error))
    line = f"all columns are in one block, since a narrower one is refused: {why}"
    cheapest_of_all, own = best.choices[0].seconds * best.often, whole[0].seconds * best.often
    if cheapest_of_all >= CLEARLY * own:
        return replace(made, notes=(*made.notes, line))
    lost = Remark(BLOCKS, kernel.names, False, Reason.ILLEGAL, line, (cheapest_of_all, own))
    return replace(made, lost=lost)


def blocked_inside(
    schedule: Schedule,
    counts: Counts,
    kernel: Kernel,
    product: Product,
    machine: CpuMachine,
    names: tuple[str, ...],
    around: tuple[Loop, ...],
    held: int,
    choose: Choose = cheapest,
    parallel: bool = False,
) -> Planned | Refused:
    """One product of a kernel with the statements `names`, in blocks inside the loops around the whole kernel.

    `held` are the bytes that one step of these loops touches. If `parallel`, cores share its columns in each step.

    Raises IllegalSchedule or InvalidSchedule if a verb is refused.
    """
    asked = _Blocks(schedule, counts, kernel, product, machine, choose, names, around, held).asked(parallel)
    return asked if isinstance(asked, Refused) else asked.made(choose)


@dataclass(frozen=True)
class _Asked:
    """A kernel, and what the model says of the blocks of its product, the fastest first.

    The busiest core does the task `often` times: the part of it that there is of a triangle, or several pieces.
    """

    kernel: _Blocks
    loops: dict[int, Loop]
    task: Task
    often: float
    share: Share | None
    choices: list[Blocking]

    def made(self, choose: Choose) -> Planned:
        """The schedule in blocks. Raises IllegalSchedule or InvalidSchedule if a verb is refused."""
        choice = choose.best(
            BLOCKS,
            self.kernel.names,
            self.choices,
            seconds=lambda b: b.seconds,
            name=lambda b: b.name,
            what="blocks",
        )
        return Planned(*self.kernel.in_blocks(self.loops, self.task, choice, self.often, self.share))


class _Blocks:
    """One kernel on its way into blocks; or its statements `names`, inside loops around the whole kernel."""

    def __init__(
        self,
        schedule: Schedule,
        counts: Counts,
        kernel: Kernel,
        product: Product,
        machine: CpuMachine,
        choose: Choose,
        names: tuple[str, ...] | None = None,
        around: tuple[Loop, ...] = (),
        held: int | None = None,
    ) -> None:
        self.schedule, self.counts, self.kernel = schedule, counts, kernel
        self.product, self.machine, self.name = product, machine, product.statement
        self.names = kernel.names if names is None else names
        self.own = schedule.nest.statement(self.name).write.tensor
        self.around = around
        held = counts.total_bytes if held is None else held
        others = frozenset(schedule.nest.statement(n).write.tensor for n in self.names if n != self.name)
        self.after = self.names[self.names.index(self.name) + 1 :]
        self.needs = needs_of(schedule.nest, self.name, self.after)
        nest, together = schedule.nest, frozenset[int]()
        if not around:
            together = along_lines(nest, counts, kernel, product, self.needs, machine)
        self.question = Question(
            schedule, counts, product, machine, around, held, others, choose, kernel.names, together
        )
        self.axes = columns_axes(schedule.nest, product, self.after)

    def asked(self, parallel: bool) -> _Asked | Refused:
        """The model's answer, or the reason why there are no blocks."""
        loops = self.question.loops()
        if loops is None:
            outside = ", ".join(loop.name for loop in self.around)
            where = f"inside {outside}, around all statements, " if outside else ""
            line = f"{where}{self.name} has not one loop for each of rows, columns and steps"
            return Refused(Reason.OTHER_FORM, line)
        if self.product.across and self.own not in internal(self.kernel):
            line = f"the sums' neighbours in memory are not columns, and {self.own} is seen outside of the kernel"
            return Refused(Reason.OTHER_FORM, line)
        in_steps = parallel and self.around
        task, often, share = (
            self.question.task_in_steps(loops) if in_steps else self.question.task(loops, parallel)
        )
        most, block = task.extents.rows, self._block(self.product.rows)
        choices = [b for b in blockings(task) if b.rows % block == 0 or b.rows >= most]
        choices = [b for b in self.question.in_whole_tiles(choices, share) if self._begins_panels(b)]
        if any(self._block(d) > 1 for d in (*self.product.others, self.product.rows, self.product.columns)):
            choices = [b for b in choices if not b.lanes]  # what follows needs the sums of several tiles
        why = "a tile holds at least two rows and two columns of sums"
        if self.product.group:
            why += f", and whole vectors, or half of one, of the {self.product.group} columns of a group"
        return _Asked(self, loops, task, often, share, choices) if choices else Refused(Reason.NO_SIZE, why)

    def _begins_panels(self, b: Blocking) -> bool:
        """True if blocks begin where panels do: any, but for columns in groups, of which few are better off in rows.

        4 images of 64 channels of 28 x 28 in groups of 8 took 0.88 ms in rows of pixels (depthwise.py) and
        0.29 in blocks of half a vector (one Zen 4 core).
        """
        lanes = self.machine.vector_bytes // self.schedule.nest.tensor(self.own).itemsize
        group = self.product.group
        return not group or (group % b.columns == 0 and 2 * b.columns >= lanes)

    def _block(self, dim: int) -> int:
        """The values of a dimension that what follows needs at once; inside other loops it stays outside of tiles."""
        return 1 if self.around else block_of(self.schedule.nest, self.product, dim, self.needs) or 1

    def in_blocks(
        self,
        loops: dict[int, Loop],
        task: Task,
        b: Blocking,
        often: float,
        share: Share | None,
    ) -> tuple[Schedule, tuple[str, ...]]:
        """The schedule in blocks of these sizes, and what is said of them."""
        p, name, schedule = self.product, self.name, self.schedule
        first = p.steps[0]
        inner = {d: loop.name for d, loop in loops.items()}
        outer: list[str] = []
        panel: str | None = None
        ahead: str | None = None

        def cut(d: int, size: int) -> str:
            """Split a dimension's innermost loop; the name of the loop over blocks."""
            nonlocal schedule
            block = inner[d]
            schedule = schedule.split(name, block, size)
            inner[d] = inside(schedule, name, block).name
            return block

        shared = share.dim if share is not None else None
        if share is not None and (shared not in p.others or share.size > 1):
            outer.append(cut(share.dim, share.size))
        kept = {loop.name for loop in self.around}
        others = sorted((d for d in p.others if inner[d] not in kept), key=lambda d: d != shared)
        blocks = {d: self._block(d) for d in others}
        packs_left, packs_right = b.pack_left and not task.left.fixed, b.pack_right and not task.right.ahead
        near = self._in_tiles(loops, b, task)
        batches = {d: cut(d, blocks[d]) if blocks[d] > 1 else inner[d] for d in others if d not in near}
        within = tuple(inner[d] for d in others if blocks[d] > 1)
        alike = self.question.alike() if packs_right or b.lanes or b.inside else ()
        within_blocks = [batches[d] for d in batches if d in alike and (d != shared or outer)]
        outer += [loop for loop in batches.values() if loop not in within_blocks]
        # a buffer has a constant size, whatever the sizes at a call are
        several = b.steps < task.extents.steps or (
            (packs_left or packs_right) and self._is_symbolic(loops[first])
        )
        wide = b.width < task.extents.columns or (packs_right and self._is_symbolic(loops[p.columns]))
        if several and b.lanes:  # all rows stay near while b goes by
            outer.append(cut(first, b.steps))
        if wide or (packs_right and not several):
            # whole tiles: a core's columns are, which may be a few more than its part of them
            outer.append(cut(p.columns, ceil(b.width / b.columns) * b.columns))
            panel = ahead = outer[-1] if task.asks(b) else None
        if several and not b.lanes:
            outer.append(cut(first, b.steps))
            ahead = outer[-1] if panel is not None else None
        block = outer[-1] if outer else None
        outer += within_blocks
        rows = cut(p.rows, b.rows)
        # a tile of dot products has too few columns for what stands with it, which gets a row of tiles
        columns = () if b.lanes else (cut(p.columns, b.columns),)
        places = tuple(reversed((*outer, rows, *columns, *within)))
        tile, innermost = places[0], [inner[d] for d in (*near, *p.steps, p.rows, p.columns)]
        schedule = reordered(schedule, name, (*reversed(places), *innermost))
        if self.around:
            schedule = self._with_those_in_tiles(schedule, rows, *columns)
        else:
            schedule = self._with_guests(schedule, rows, places)
        in_panels = packed_inside(p, task, b)
        for place in places:
            schedule = self._guests_on_lanes(schedule, place, place in (*columns, tile), in_panels)
        if share is not None:
            schedule = schedule.bind(name, **{outer[0]: share.place})
        schedule = with_panels(schedule, self.question, task, b, block, rows)
        if p.across:
            schedule = schedule.promote(self.own, name, at=tile, panel=(p.lanes, b.columns))
        if b.lanes:
            order = cut(p.columns, b.columns), cut(first, b.lanes)
            innermost = [order[1], *(inner[d] for d in (p.rows, p.columns, first))]
            schedule = reordered(schedule, name, (order[0], *innermost))
        schedule = schedule.microkernel(name, innermost[len(near)])
        if ahead is not None:
            panels = (r.tensor for r in schedule.nest.statement(name).reads if stride(r, p.columns))
            schedule = schedule.prefetch(name, next(panels), ahead)
        elif columns and asks_further_on(task, b):
            right = p.right.access.tensor
            schedule = schedule.prefetch(name, right, columns[0], b.further_on(task.itemsize))
        elif task.asks_rows(b):
            panels = (r.tensor for r in schedule.nest.statement(name).reads if stride(r, p.rows))
            schedule = schedule.prefetch(name, next(panels), rows)
        schedule = self._in_buffers(schedule, panel if several else tile, {*columns, tile}, b.columns)
        names = loops[p.rows].name, loops[p.columns].name, loops[first].name
        said = sentences(task, b, names, often)
        if share is not None and share.part < 1.0:
            said = (*said, share.sentence(loops[share.dim].name, self.machine.units))
        elif share is not None and self.around:
            shared_out = (
                f"{loops[share.dim].name} in pieces of {share.size}, of which cores share what a step has"
            )
            said = (*said, shared_out)
        return schedule, said

    def _is_symbolic(self, loop: Loop) -> bool:
        return constant_extent(self.schedule, loop) is None

    def _in_tiles(self, loops: dict[int, Loop], b: Blocking, task: Task) -> tuple[int, ...]:
        """The batches that a tile runs through: those along lines, if half of L1 holds the sums of all of them."""
        if b.lanes or (b.pack_left and not task.left.fixed):
            return ()
        found = [
            d for d in sorted(self.question.together) if constant_extent(self.schedule, loops[d]) is not None
        ]
        found = [d for d in found if self._block(d) == 1]
        held = prod(self.counts.extent(loops[d]) for d in found) * b.rows * b.columns * task.itemsize
        return tuple(found) if held <= task.l1.size // 2 else ()

    def _with_guests(self, schedule: Schedule, rows: str, places: tuple[str, ...]) -> Schedule:
        """The kernel's other statements where the product's tiles are: first values, operands, what reads the sums.

        `places` are the loops over tiles, innermost first. What has nothing to do with the product keeps its own loops.
        """
        nest, tile = schedule.nest, places[0]
        flow = [(p.source, p.sink) for p in nest.dependences().among(self.names) if p.kind == "flow"]
        near = connected(self.name, flow, self.names)
        for guest in self.names:
            if guest not in near:
                schedule = along_memory(schedule, self.counts, (guest,), schedule.loops(guest))
        before = [name for name in self.names[: self.names.index(self.name)] if name in near]
        apart = [name for name in before if self.name not in reached(nest, name, self.names)]
        operands = [name for name in before if name not in apart]
        outside = places[places.index(rows) :]
        if any(sums_along_memory(nest, name) for name in operands):
            outside = (*outside[1:], rows)  # rows of an image, not of a tile
        for guest in reversed(operands):
            is_first_value = nest.statement(guest).write.tensor == self.own
            schedule = self._before(schedule, guest, (tile,) if is_first_value else outside)
        found: dict[str, str] = {}
        for guest in self.needs:
            schedule, found[guest] = self._placed(schedule, guest, places)
        after = [name for name in self.after if name not in self.needs and name in near]
        for guest in reversed([*apart, *after]):
            later = (found[name] for name in reached(nest, guest, self.names) if name in found)
            found[guest] = next(later, rows if guest in apart else tile)
            schedule = self._joined(schedule, guest, found[guest])
        return schedule

    def _before(self, schedule: Schedule, guest: str, places: tuple[str, ...]) -> Schedule:
        """A first value or an operand, in the innermost of some loops in which it runs at one time by one rule.

        What a window reads neighbouring tiles read as well. In the first of these it would be computed piece by piece:
        silu, which a convolution of 64 channels of 32 x 32 reads, took 1.7 ms of an image's 2.7 so (one Zen 4 core).
        """
        why: IllegalSchedule | InvalidSchedule = InvalidSchedule(
            f"{guest} belongs to no tile of {self.name}: windows of neighbouring ones share its values"
        )
        for at in places:
            try:
                joined = self._joined(schedule, guest, at)
            except (IllegalSchedule, InvalidSchedule) as refused:
                why = refused
                continue
            around = joined.loops(guest)
            shared = around[: [loop.name for loop in around].index(at) + 1]
            if all(loop.date(guest).n_piece() == 1 for loop in shared):
                return joined
        raise why

    def _placed(self, schedule: Schedule, guest: str, places: tuple[str, ...]) -> tuple[Schedule, str]:
        """The guest in the innermost loop over tiles that holds all it reads, and that loop."""
        why = InvalidSchedule(f"{guest} does not belong to single tiles of {self.name}")
        loops = schedule.loops(self.name)
        for at in places:
            around = loops[: [loop.name for loop in loops].index(at) + 1]
            sums = tuple(x for x in around if not dims_of(x.date(self.name)) <= {*self.product.steps})
            if belongs(self.needs[guest], self.name, sums):
                try:
                    return self._joined(schedule, guest, at), at
                except (IllegalSchedule, InvalidSchedule) as refused:
                    why = InvalidSchedule(str(refused))
        raise why

    def _with_those_in_tiles(self, schedule: Schedule, rows: str, columns: str) -> Schedule:
        """Inside loops around the whole kernel: what belongs to no single tile stays before or behind all of them."""
        before = self.names[: self.names.index(self.name)]
        target = {name: schedule.nest.statement(name).write.tensor for name in self.names}
        for guest in (*reversed(before), *self.after):
            at = rows if guest in before and target[guest] != target[self.name] else columns
            try:
                joined = self._joined(schedule, guest, at)
            except (IllegalSchedule, InvalidSchedule):
                continue
            schedule = joined if self._in_every(joined, guest, at) else schedule
        return schedule

    def _in_every(self, schedule: Schedule, guest: str, at: str) -> bool:
        """True if a guest statement has instances in every tile of the product, not only in the last ones."""
        loops = schedule.loops(self.name)[len(self.around) :]
        tiles = loops[: [loop.name for loop in loops].index(at) + 1]
        return all(
            self.counts.extent(replace(loop, dates=((guest, loop.date(guest)),)))
            == self.counts.extent(replace(loop, dates=((self.name, loop.date(self.name)),)))
            for loop in tiles
        )

    def _joined(self, schedule: Schedule, guest: str, at: str) -> Schedule:
        """The guest in the product's tiles. Raises InvalidSchedule if it would only share their loops' numbers."""
        schedule = schedule.fuse(self.name, guest, at=at)
        loops = schedule.loops(self.name)
        for loop in loops[: [loop.name for loop in loops].index(at) + 1]:
            own, both = (
                ((self.name, loop.date(self.name)),),
                tuple((n, loop.date(n)) for n in (self.name, guest)),
            )
            if self.counts.extent(replace(loop, dates=both)) > self.counts.extent(replace(loop, dates=own)):
                raise InvalidSchedule(f"{guest} does not belong to single tiles of {self.name}")
        return schedule

    def _guests_on_lanes(
        self, schedule: Schedule, place: str, in_tile: bool, panels: Mapping[str, Panel]
    ) -> Schedule:
        """Pointwise statements at a loop over tiles in common loops, that along memory innermost, on vector lanes.

        What is packed in `panels` comes in pieces of their rows.
        """
        keep = [loop.name for loop in schedule.loops(self.name)].index(place) + 1
        names = tuple(
            n
            for n in self.names
            if n == self.name or len(schedule.loops(n)) > keep == len(common_loops(schedule, (self.name, n)))
        )
        schedule = rejoined(schedule, names, keep)
        for unit in units(schedule, names, keep):
            if self.name not in unit:
                schedule = self._split_by_panels(schedule, unit, keep, panels)
                loops = schedule.loops(unit[0])[keep:]
                schedule = self._along(schedule, unit, loops, in_tile)
        return schedule

    def _split_by_panels(
        self, schedule: Schedule, unit: tuple[str, ...], keep: int, panels: Mapping[str, Panel]
    ) -> Schedule:
        """The loop along memory of what gives a packed temporary, in pieces; others as they are."""
        loops = schedule.loops(unit[0])[keep:]
        panel = panels.get(schedule.nest.statement(unit[0]).write.tensor)
        if panel is None or len(unit) > 1 or not loops:
            return schedule
        return within_rows_of_panels(schedule, unit[0], contiguous(self.counts, schedule, unit, loops), panel)

    def _along(
        self, schedule: Schedule, unit: tuple[str, ...], loops: tuple[Loop, ...], in_tile: bool
    ) -> Schedule:
        """A pointwise loop nest along memory; in a tile along the sums' panels where these lie across it.

        What reads several tiles, as overlapping windows do, finds them in memory as that lies. A sum over windows that
        the product reads has its row of results in registers.
        """
        row = summed_in_rows(schedule, self.counts, unit[0], loops, self.machine) if len(unit) == 1 else None
        if row is not None:
            return row
        if not (self.product.across and in_tile and self._is_of_tiles(unit)):
            return along_memory(schedule, self.counts, unit, self._by_step(schedule, unit[0], loops))
        dim = columns_dim(schedule.nest, unit[0], self.axes)
        lanes = [loop for loop in loops if dims_of(loop.date(unit[0])) == {dim}]
        return on_lanes(schedule, unit[0], loops, lanes[-1]) if lanes else schedule

    def _is_of_tiles(self, unit: tuple[str, ...]) -> bool:
        """True if a unit has the sums, or what this kernel alone has, in common with other statements.

        The bias behind the last phase of a transposed convolution reads all phases from memory, where rows lie along
        it: 32 to 16 channels of 16 x 16, the phase with bias and ReLU, took 38 µs across and 29 so (one Zen 5 core).
        """
        own = frozenset(unit)
        kept = {self.own, *(t for t in internal(self.kernel) if not self.counts.users[t] <= own)}
        return any(tensor in kept for name in unit for tensor in self.schedule.nest.statement(name).tensors)

    def _by_step(self, schedule: Schedule, name: str, loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
        """A statement's loops by how far its result moves in memory with each, the farthest first."""
        write = schedule.nest.statement(name).write

        def step(loop: Loop) -> int:
            dims = dims_of(loop.date(name))
            return max((self.counts.elements_between(write, d) for d in dims), default=0)

        return tuple(sorted(loops, key=step, reverse=True))

    def _in_buffers(self, schedule: Schedule, sums_at: str | None, tiles: set[str], width: int) -> Schedule:
        """Temporaries of this kernel alone in buffers; the sums in one of a tile, if there is one block of steps.

        Or in one of all tiles of a panel, whose blocks of steps are inside. What a tile holds lies as its sums do: in
        panels where columns lie across the sums.
        """
        for tensor in internal(self.kernel):
            if tensor != self.own and not self.around:
                users = users_in(schedule, self.names, tensor)
                around = common_loops(schedule, users)
                if self.product.across and tensor in self.axes and around and around[-1].name in tiles:
                    panel = self.axes[tensor], width
                    schedule = schedule.promote(tensor, users[0], at=around[-1].name, panel=panel)
                else:
                    schedule = contracted(schedule, tensor, users, self.machine)
            elif tensor == self.own and sums_at is not None and not self.product.across:
                near = promoted(schedule, self.own, self.name, sums_at, "local")
                users = users_in(schedule, self.names, tensor)
                schedule = near or contracted(schedule, tensor, users, self.machine)
        return schedule
