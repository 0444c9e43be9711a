"""Schedule kernels of products that depend on the previous step: recurrent layers, power iterations.

    for t: { for i: for j: for k: mac; for i: for j: gates }
    ->  for i (parts, on cores): for t: { the product's blocks; for i_in: for j (vector): gates }

The loop that carries the dependences between the statements stays around all of them. Inside it each product is blocked
as it would be alone (schedule.py), with those statements in its tiles that belong there; the others stand in loops of
their own before or behind it. Rows that no step mixes are shared out: a core takes its own through all steps, and
waits for no other.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import takewhile
from math import ceil

from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir.tree import Loop, Sequence
from polyfuse.ir.tree import loops as loops_of
from polyfuse.machine import CpuMachine
from polyfuse.schedule import Schedule
from polyfuse.strategy.candidates import Choose, cheapest
from polyfuse.strategy.cost.counts import Counts, dims_of
from polyfuse.strategy.cost.factorization_cost import panels_beside
from polyfuse.strategy.cost.kernel_model import Kernel, internal, kernel_of
from polyfuse.strategy.cost.roofline import CACHED, in_blocks
from polyfuse.strategy.cpu.gemm.factorization import panels_on_cores
from polyfuse.strategy.cpu.gemm.schedule import blocked_inside
from polyfuse.strategy.cpu.gemv import in_one_row
from polyfuse.strategy.draft import Draft
from polyfuse.strategy.fusion.group_search import part_with
from polyfuse.strategy.match.gemm import Product
from polyfuse.strategy.remarks import Reason, Refused
from polyfuse.strategy.transforms.band_verbs import (
    along_memory,
    common_loops,
    contracted,
    inside,
    is_perfect,
    rejoined,
    units,
    users_in,
    where_legal,
)
from polyfuse.strategy.transforms.inner_loops import nest_of, rows_by_turns, turned
from polyfuse.strategy.transforms.time_loops import Planned
from polyfuse.strategy.transforms.time_tilings import vectorized

ROWS = 16
"""Parts of rows that are to stay in a cache have a multiple of so many: whole tiles, of up to 16 rows."""


def stepped(
    schedule: Schedule,
    counts: Counts,
    kernel: Kernel,
    products: tuple[Product, ...],
    machine: CpuMachine,
    choose: Choose = cheapest,
    rows: bool = False,
) -> Planned | Refused:
    """A kernel of one or more products in blocks inside the loops that carry its dependences, or why not.

    With `rows` a product of a single row may be in microkernels of a row: nothing of it is shared out to cores.
    """
    names = kernel.names
    notes: list[str] = []
    schedule = _turned_panels(schedule, kernel, products)
    schedule = each_alone(schedule, names)
    steps = common_loops(schedule, names) if len(names) > 1 else ()
    if not steps:
        return Refused(Reason.OTHER_FORM, "no loop stands around all its statements")
    try:
        shared = _rows_outside(schedule, counts, kernel, products[0], machine, steps)
        if shared is not None:
            schedule = each_alone(shared, names)
        around = common_loops(schedule, names)
        held = int(_held(counts, schedule, names[0], around))
        of_products = frozenset(p.statement for p in products)
        panels = panels_beside(schedule.nest, names, of_products)
        parallel = machine.units > 1 and shared is None and bool(panels)
        for product, group in _grouped(schedule, names, products):
            done = blocked_inside(
                schedule, counts, kernel, product, machine, group, around, held, choose, parallel
            )
            if isinstance(done, Refused):
                row = _one_row(schedule, counts, product, machine, len(around)) if rows else None
                if row is None:
                    return done
                done = row
            schedule, notes = done.schedule, [*notes, *done.notes]
        if parallel:
            schedule = panels_on_cores(schedule, counts, kernel.names, of_products, machine, len(around))
        schedule = _on_lanes(schedule, counts, kernel, products, len(around))
        schedule = _in_buffers(schedule, kernel, machine)
    except (IllegalSchedule, InvalidSchedule) as error:
        return Refused(Reason.ILLEGAL, str(error))
    return Planned(schedule, (_sentence(products, steps, around), *notes))


def _turned_panels(schedule: Schedule, kernel: Kernel, products: tuple[Product, ...]) -> Schedule:
    """Nests of several sums and what they wait for, the loop along memory innermost, as far as that is legal.

    Rows that are parallel and whose steps wait take turns: LU of 2000 x 2000 takes 60 ms so, and 73 with a row after
    the other (one Zen 5 core).
    """
    of_product = {p.statement for p in products}
    for name in kernel.names:
        draft = Draft(schedule.nest, schedule.tree)
        own = nest_of(draft, kernel.names, name)
        sums = any(schedule.nest.statement(n).is_reduction for n in own)
        if len(own) > 1 and sums and of_product.isdisjoint(own):
            with suppress(IllegalSchedule):
                schedule = rows_by_turns(turned(draft, kernel.names, own), own).taken(schedule)
    return schedule


def each_alone(schedule: Schedule, names: tuple[str, ...]) -> Schedule:
    """Every statement in loops of its own, but for those that carry dependences between their statements."""
    refused: set[str] = set()
    for name in names:
        for loop in reversed(schedule.loops(name)):
            here = next(x for x in schedule.loops(name) if x.name == loop.name)
            if isinstance(here.body, Sequence) and here.name not in refused:
                done = where_legal(schedule, "distribute", name, here.name)
                refused |= {here.name} if done is schedule else set()
                schedule = done
    return schedule


def _sentence(products: tuple[Product, ...], steps: tuple[Loop, ...], around: tuple[Loop, ...]) -> str:
    inner = ", ".join(loop.name for loop in steps)
    text = f"{', '.join(p.statement for p in products)} in blocks inside {inner}, which carries dependences"
    parts = [loop.name for loop in around if loop.bind == "cores"]
    return f"{text}; each core takes its values of {parts[0]} through all of {inner}" if parts else text


def _grouped(
    schedule: Schedule, names: tuple[str, ...], products: tuple[Product, ...]
) -> list[tuple[Product, tuple[str, ...]]]:
    """Each product with what may stand in its tiles: its sums' first values, and the statements up to the next one."""
    found: list[tuple[Product, tuple[str, ...]]] = []
    targets = {p.statement: schedule.nest.statement(p.statement).write.tensor for p in products}
    sums = set(targets.values())
    for position, product in enumerate(products):
        at = names.index(product.statement)
        before = names.index(products[position - 1].statement) if position else -1
        after = names.index(products[position + 1].statement) if position + 1 < len(products) else len(names)

        def writes(name: str, of: str) -> bool:
            s = schedule.nest.statement(name)
            return s.write.tensor == targets[of] and s.op == "=" and not {r.tensor for r in s.reads} & sums

        first = [n for n in names[before + 1 : at] if writes(n, product.statement)]
        others = [p.statement for p in products[position + 1 :]]
        later = [n for n in names[at + 1 : after] if not any(writes(n, other) for other in others)]
        found.append((product, (*first, product.statement, *later)))
    return found


def _one_row(
    schedule: Schedule, counts: Counts, product: Product, machine: CpuMachine, around: int
) -> Planned | None:
    """A product of one row inside the loops around the kernel as microkernels of a row; None if it has more."""
    name = product.statement
    loops = schedule.loops(name)[around:]
    found = {min(dims_of(x.date(name)), default=-1): x for x in loops}
    steps, columns = found.get(product.steps[0]), found.get(product.columns)
    others = [x for x in loops if x is not steps and x is not columns]
    if steps is None or columns is None or any(counts.extent(x) > 1 for x in others):
        return None
    made = in_one_row(schedule, name, loops, steps, columns, machine)
    return (
        None
        if made is None
        else Planned(made, (f"{name}'s row in registers, {product.right.name} read once",))
    )


def _rows_outside(
    schedule: Schedule,
    counts: Counts,
    kernel: Kernel,
    product: Product,
    machine: CpuMachine,
    steps: tuple[Loop, ...],
) -> Schedule | None:
    """for t: { for i: S; for i: T }  ->  for i (parts, on cores): for t: for i_in: { S; T }.

    Parts for all cores, where that pays; and so few rows that a step's values stay in L2. Batches go outside too, and
    one that all cores have equal parts of is shared instead of the rows. None if neither is wanted, or where it is
    not legal.
    """
    name = product.statement
    own = [loop for loop in schedule.loops(name) if all(loop.name != step.name for step in steps)]
    rows = next((x for x in own if dims_of(x.date(name)) == {product.rows}), None)
    if rows is None:
        return None
    batches = _batches(product, own[: own.index(rows)])
    shared = next((x for x in batches if counts.extent(x) % machine.units == 0), rows)
    cores = _cores_for(kernel, counts, counts.extent(shared), machine)
    if cores == 1 and _held(counts, schedule, name, steps) <= machine.levels[CACHED].size:
        return None
    try:
        for guest in kernel.names:
            if rows.name not in {x.name for x in common_loops(schedule, (name, guest))}:
                schedule = schedule.fuse(name, guest, at=rows.name)
        part = counts.extent(rows) if shared is not rows else ceil(counts.extent(rows) / cores)
        size = min(part, _rows_in_cache(schedule, counts, name, rows.name, machine))
        outside = [batch.name for batch in batches]
        if size < counts.extent(rows):
            schedule = schedule.split(name, rows.name, size)
            outside.append(rows.name)
        elif not batches:
            return None
        outside.sort(key=lambda loop: loop != shared.name)
        last = inside(schedule, name, rows.name).name if rows.name in outside else rows.name
        schedule = schedule.reorder(name, *outside, *(loop.name for loop in steps), last)
        return schedule.bind(name, **{shared.name: "cores"}) if cores > 1 else schedule
    except (IllegalSchedule, InvalidSchedule):
        return None


def _batches(product: Product, outer: list[Loop]) -> tuple[Loop, ...]:
    """The loops outside of a product's rows, if these are over batches alone."""
    wanted = [{d} for d in product.others]
    return tuple(outer) if all(dims_of(loop.date(product.statement)) in wanted for loop in outer) else ()


def _cores_for(kernel: Kernel, counts: Counts, rows: int, machine: CpuMachine) -> int:
    """The number of cores that share the rows: all, or one."""
    if machine.units == 1 or rows < machine.units:
        return 1
    alone, shared = (
        in_blocks(kernel, machine, counts.total_bytes, parts).total for parts in (None, float(machine.units))
    )
    return machine.units if shared < alone else 1


def _held(counts: Counts, schedule: Schedule, name: str, steps: tuple[Loop, ...]) -> float:
    """The bytes that one step touches."""
    step = kernel_of(counts, part_with(schedule, name), steps)
    return sum(u.bytes_in((1,) * len(steps), step.extents) for u in step.uses)


def _rows_in_cache(schedule: Schedule, counts: Counts, name: str, rows: str, machine: CpuMachine) -> int:
    """The rows at which a step touches half of L2; all rows if operands that no row moves would be read too often.

    for t: for i:  a step of all rows reads and writes them once a step; parts read the rest once a step and part
    """
    around = tuple(takewhile(lambda loop: loop.name != rows, schedule.loops(name)))
    band = schedule.loops(name)[: len(around) + 1]
    kernel = kernel_of(counts, part_with(schedule, name), band)
    every = kernel.extents[-1]
    one_step = (*(1 for _ in band[:-1]), every)
    moving = sum(u.bytes_in(one_step, kernel.extents) for u in kernel.uses if u.ratios[-1] < 1.0)
    staying = sum(u.bytes_in(one_step, kernel.extents) for u in kernel.uses if u.ratios[-1] == 1.0)
    cache = machine.levels[CACHED].size
    fitting = int(every * (cache / 2) / moving) if moving else every
    size = max(ROWS, fitting // ROWS * ROWS)
    size = next((r for r in range(size, size // 2, -ROWS) if every % r == 0), size)
    again = (ceil(every / size) - 1) * staying
    return size if moving + staying > cache and again < moving else every


def _on_lanes(
    schedule: Schedule, counts: Counts, kernel: Kernel, products: tuple[Product, ...], around: int
) -> Schedule:
    """The statements outside tiles in common loops where they can be, the loop along memory innermost, on lanes."""
    tiles = [schedule.loops(p.statement)[around] for p in products]
    names = tuple(n for n in kernel.names if not any(x is t for x in schedule.loops(n) for t in tiles))
    schedule = rejoined(schedule, names, around, siblings=True)
    for unit in units(schedule, names, around):
        loops = schedule.loops(unit[0])[around:]
        if loops and is_perfect(schedule, unit):
            schedule = along_memory(schedule, counts, unit, loops)
        elif loops:
            schedule = vectorized(Draft(schedule.nest, schedule.tree), unit).taken(schedule)
    return schedule


def _in_buffers(schedule: Schedule, kernel: Kernel, machine: CpuMachine) -> Schedule:
    """Temporaries of this kernel alone in buffers, if they are not in one of a tile."""
    for tensor in internal(kernel):
        part = part_with(schedule, kernel.names[0])
        if not any(buffer.tensor == tensor for loop in loops_of(part) for buffer in loop.buffers):
            schedule = contracted(schedule, tensor, users_in(schedule, kernel.names, tensor), machine)
    return schedule
