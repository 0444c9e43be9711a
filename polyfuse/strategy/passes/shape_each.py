"""Give each kernel its shape: blocks or tiles around a product, tiles of its band, or an order by its dependences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from polyfuse.ir.scalar import Read
from polyfuse.ir.tree import Tree, parts, parts_with, sequence, statements
from polyfuse.ir.tree import loops as loops_of
from polyfuse.machine import CpuMachine, GpuMachine, Machine
from polyfuse.schedule import Schedule
from polyfuse.strategy.candidates import Choose
from polyfuse.strategy.claims import Claims
from polyfuse.strategy.cost.composite import finished_cost, kernels_of
from polyfuse.strategy.cost.counts import Counts, dims_of
from polyfuse.strategy.cost.cpu_loops import Estimator
from polyfuse.strategy.cost.kernel_model import Kernel, internal, kernel_of
from polyfuse.strategy.cost.roofline import (
    KernelCost,
    Model,
    chosen_tiling,
    cost_of,
    evenly,
    in_blocks,
    ranked,
    slower_apart,
)
from polyfuse.strategy.cpu import kernel as cpu
from polyfuse.strategy.cpu.gemm.recurrence import stepped
from polyfuse.strategy.cpu.gemm.schedule import BLOCKS, CLEARLY, blocked
from polyfuse.strategy.cpu.nontemporal import in_long_blocks, past_caches
from polyfuse.strategy.cpu.prefetch import PASS as PREFETCH
from polyfuse.strategy.cpu.prefetch import rows_ahead
from polyfuse.strategy.cuda import kernel as cuda
from polyfuse.strategy.cuda.gemm.stream_k import InShares
from polyfuse.strategy.cuda.gemm.tile_choice import PASS as TILES
from polyfuse.strategy.cuda.gemm.tile_choice import in_registers, under_maximum
from polyfuse.strategy.cuda.persistent.grid_steps import PASS as GRID_STEPS
from polyfuse.strategy.cuda.persistent.grid_steps import in_order
from polyfuse.strategy.cuda.transpose import NOT_IN_SQUARES, in_squares
from polyfuse.strategy.cuda.transpose import PASS as TRANSPOSE
from polyfuse.strategy.draft import Draft
from polyfuse.strategy.driver import Start
from polyfuse.strategy.fusion.group_search import early_statements, part_with
from polyfuse.strategy.match.gemm import products_among, products_of
from polyfuse.strategy.options import PlannerOptions
from polyfuse.strategy.passes.backtrack import (
    Doubt,
    Doubted,
    doubts_of,
    holds_product,
)
from polyfuse.strategy.passes.equal_kernels import Repeats, Shapes
from polyfuse.strategy.passes.grouping import Grouped
from polyfuse.strategy.passes.wavefront import PASS as WAVEFRONT
from polyfuse.strategy.passes.wavefront import Behind
from polyfuse.strategy.plan import Group, Plan
from polyfuse.strategy.remarks import Reason, Refused, Remark, details, refused
from polyfuse.strategy.transforms import time_loops as loops
from polyfuse.strategy.transforms.band_verbs import common_loops, far_and_near
from polyfuse.strategy.transforms.collapse import in_long_rows
from polyfuse.strategy.transforms.inner_loops import waits
from polyfuse.strategy.transforms.packing import added
from polyfuse.strategy.transforms.time_loops import PASS as TIME_LOOPS

EQUAL_KERNELS = "equal kernels"
"""The pass that gives kernels which are equal but for names the same shape (equal_kernels.py)."""

COLLAPSE, NONTEMPORAL = "collapse", "nontemporal stores"
"""The names of what else gives kernels their shape, for remarks."""


def in_shapes(
    given: Start,
    claims: Claims,
    model: Model,
    kernels: Grouped,
    choose: Choose,
    shapes: Shapes,
    behind: Behind | None = None,
) -> Doubted:
    """Each kernel in its shape, and the groups that turn out far dearer in theirs.

    `shapes` are known from earlier searches for the same start; `behind` has one kernel in shape.
    """
    (schedule, decisions, joined), counts, machine = kernels, model.counts, model.machine
    groups: list[Group] = []
    doubts: list[Doubt] = []
    made: list[tuple[tuple[str, ...], float, list[Group]]] = []
    alike = choose.decides_alike and choose.asks(EQUAL_KERNELS)
    repeats = Repeats.of(schedule, counts, shapes) if alike else None
    rarely = given.searches.models.of(counts.nest, PlannerOptions(runs_once=True).on(machine), model.tiled)
    start = schedule
    schedule = behind.shaped.schedule if behind is not None else start
    early = early_statements(start.nest, start.tree) if machine.kind == "cpu" else frozenset[str]()
    for part in parts(start.tree):
        known = claims.with_statements(statements(part))
        if known is not None:
            groups.append(Group(statements(part), known.cost.as_kernel()))
            continue
        under = claims.under_maximum(statements(part))
        if under is not None:
            assert isinstance(machine, GpuMachine), "sums under a maximum are a GPU's kernel"
            schedule = repeats.finished(schedule) if repeats is not None else schedule
            schedule, group = under_maximum(schedule, *under, machine)
            groups.append(group)
            continue
        if claims.statements.issuperset(statements(part)):
            groups.append(Group(statements(part), finished_cost(counts, part, machine)))
            continue
        if behind is not None and part.members >= set(behind.names):
            names = (*behind.names, *added(behind.grouped, behind.shaped.schedule))
            own = Counts.of(behind.shaped.schedule)
            groups += _groups(behind.shaped, own, names, machine, WAVEFRONT)
            continue
        own_model = model if early.isdisjoint(statements(part)) else rarely
        kernel, cost = own_model.kernel(part), own_model.cost(part)
        if not any(counts.work(name).instances for name in kernel.names):
            groups.append(Group(statements(part), cost))  # a batch of size 0: there is nothing to tile
            continue
        is_joined = bool(joined & set(kernel.names))
        task = Task(given, schedule, own_model, part, is_joined, choose, claims.shared)
        shape = partial(_shaped_in, task, early)
        if repeats is None:
            schedule, found = shape(schedule)
        elif is_joined:
            schedule, found = shape(repeats.finished(schedule))
        else:
            schedule, found = repeats.shaped(schedule, part, shape)
        groups += found
        made.append((kernel.names, cost.total, found))
    if repeats is not None:
        schedule = repeats.finished(schedule)
    if machine.kind == "cpu":
        for names, expected, found in made:
            doubts += doubts_of(start.nest, schedule.nest, decisions, names, expected, found, choose)
    return Plan(schedule, decisions, tuple(groups), machine, claims.remarks), tuple(doubts)


@dataclass(frozen=True)
class Task:
    """One kernel that is to have a shape: a part of a schedule, in a form that `given` does not leave out.

    `joined` says that it was put together of kernels with nothing to run at once; `shared` are products in shares.
    """

    given: Start
    schedule: Schedule
    model: Model
    part: Tree
    joined: bool
    choose: Choose
    shared: Mapping[str, InShares]

    @property
    def kernel(self) -> Kernel:
        """Its statements, extents and uses, as the model sees them."""
        return self.model.kernel(self.part)


FEW = 4
"""How many times a vector holds all columns of a product that may run along its rows."""

Shaped = tuple[Schedule, list[Group]]
"""The schedule with a kernel in shape, and the kernels that it became."""


@dataclass(frozen=True)
class Form:
    """A shape that a kernel may have.

    Attributes:
        name: the pass, for remarks and for `force`.
        without: what is said of a kernel that it does not fit, before why.
        run: the kernel so; why not, or None where there is nothing of the kind in it.
    """

    name: str
    without: str
    run: Callable[[Task], Shaped | Refused | None]


def _in_squares(task: Task) -> Shaped | Refused | None:
    """A GPU's pointwise kernel in squares of blocks."""
    machine = task.model.machine
    if task.joined or not isinstance(machine, GpuMachine):
        return None
    return in_squares(task.schedule, task.model, task.part, machine)


def _in_blocks(task: Task) -> Shaped | Refused | None:
    """A CPU's kernel around products in blocks."""
    machine = task.model.machine
    if not isinstance(machine, CpuMachine):
        return None
    blocks = _blocked(task.schedule, task.model, task.part, task.joined, task.choose, machine)
    if not isinstance(blocks, loops.Planned):
        return blocks
    names = (*task.kernel.names, *added(task.schedule, blocks.schedule))
    counts = task.model.counts.after(blocks.schedule.nest)
    lost = () if blocks.lost is None else (blocks.lost,)
    groups = list(_groups(blocks, counts, names, machine, BLOCKS, lost))
    return _in_rows(task, groups, machine) or (blocks.schedule, groups)


def _in_rows(task: Task, blocks: list[Group], machine: CpuMachine) -> Shaped | None:
    """A kernel of few columns, that computes sums and nothing else, along its rows; None where blocks are as good.

    A phase of a transposed convolution of 16 to 3 channels of 32 x 32: 3 of 4 lanes in blocks, 16 pixels in rows; it
    takes 20 µs in blocks and 11 in rows (one Zen 5 core).
    """
    nest, kernel = task.schedule.nest, task.kernel
    sums = [name for name in kernel.names if nest.statement(name).is_reduction]
    others = [nest.statement(name) for name in kernel.names if name not in sums]
    if task.joined or not kernel.band or len(sums) != 1 or task.choose.forces(BLOCKS, kernel.names):
        return None
    if any(one.reads and not isinstance(one.body, Read) for one in others):
        return None
    product = next(iter(products_of(nest, sums[0])), None)
    if product is None:
        return None
    lanes = machine.vector_bytes // nest.tensor(nest.statement(sums[0]).write.tensor).itemsize
    if FEW * task.model.counts.box_of(sums[0], {product.columns}) > lanes:
        return None
    shaped, groups = _in_band_tiles(task, ())
    if all(loop.bind != "microkernel" for loop in loops_of(part_with(shaped, sums[0]))):
        return None
    rows, apart = (sum(group.cost.total for group in every) for every in (groups, blocks))
    if rows >= CLEARLY * apart:
        return None
    line = f"{sums[0]} sums along rows: {rows * 1e6:.3g} µs so, {apart * 1e6:.3g} µs in blocks of few columns"
    note = details(BLOCKS, kernel.names, (line,))
    return shaped, [
        replace(one, remarks=(*one.remarks, *note)) if sums[0] in one.statements else one for one in groups
    ]


def _in_register_tiles(task: Task) -> Shaped | Refused | None:
    """A GPU's kernel around one product in register tiles."""
    machine = task.model.machine
    if task.joined or not isinstance(machine, GpuMachine):
        return None
    return in_registers(task.schedule, task.model, task.part, task.choose, task.shared, machine)


FORMS = (
    Form(TRANSPOSE, NOT_IN_SQUARES, _in_squares),
    Form(BLOCKS, "not in blocks for the caches", _in_blocks),
    Form(TILES, "not in register tiles", _in_register_tiles),
)
"""The shapes that a kernel is tried in, the first that fits is taken. What is left runs in tiles of its band, or by its
dependences."""


def _shaped_in(task: Task, early: frozenset[str], schedule: Schedule) -> Shaped:
    """The task's kernel in its final shape, in a schedule where others have theirs.

    A; B; C    ->  B  ->  pack; B'    ->    A; pack; B'; C

    It gets its shape in a tree without the others, so that no step is as long as the network, but with those that run
    `early` and that it depends on: these say what is a constant.
    """
    run, kept = parts(schedule.tree), _made_early(schedule, task.part, early)
    alone = sequence(tuple(part for part in run if part is task.part or id(part) in kept))
    begun = schedule.followed_by((), schedule.nest, alone)
    done, groups = _shaped(replace(task, schedule=begun))
    new = tuple(part for part in parts(done.tree) if id(part) not in kept)
    place = next(place for place, part in enumerate(run) if part is task.part)
    tree = sequence((*run[:place], *new, *run[place + 1 :]))
    return schedule.followed_by(done.steps[len(schedule.steps) :], done.nest, tree), groups


def _made_early(schedule: Schedule, part: Tree, early: frozenset[str]) -> frozenset[int]:
    """The kernels, by identity, of `early` statements whose values a kernel gets, also through others."""
    nest, found, open_ = schedule.nest, set[int](), [part]
    while open_:
        for name in open_.pop().names:
            tensors = nest.statement(name).tensors
            makers = {w.name for tensor in tensors for w in nest.writers(tensor) if w.name in early}
            known = {id(part), *found}
            new = [each for each in parts_with(schedule.tree, makers) if id(each) not in known]
            found.update(map(id, new))
            open_ += new
    return frozenset(found)


def _shaped(task: Task) -> Shaped:
    """One kernel in its final shape, with a remark on each form that it might have had and has not."""
    remarks: tuple[Remark, ...] = ()
    for form in FORMS:
        made = form.run(task) if task.choose.asks(form.name, task.kernel.names) else None
        if isinstance(made, Refused):
            remarks += (refused(form.name, task.kernel.names, made.reason, f"{form.without}: {made}"),)
        elif made is not None:
            return made
    if task.kernel.band and not task.joined:
        return _in_band_tiles(task, remarks)
    return _by_dependences(task, remarks)


def _in_band_tiles(task: Task, remarks: tuple[Remark, ...]) -> Shaped:
    """A kernel in tiles of its parallel loops, or in the order that waits less."""
    kernel, machine = task.kernel, task.model.machine
    costs = ranked(kernel, machine, task.model.counts.total_bytes)
    cost = chosen_tiling(kernel, costs, task.choose)
    if isinstance(machine, GpuMachine):
        shaped = cuda.shaped(task.schedule, task.model.counts, kernel, cost.tiling, machine)
        return shaped, [*_packs(task, shaped), Group(statements(task.part), cost, remarks)]
    assert isinstance(machine, CpuMachine)
    return _in_cpu_tiles(task, cost, machine, remarks)


def _in_cpu_tiles(task: Task, cost: KernelCost, machine: CpuMachine, remarks: tuple[Remark, ...]) -> Shaped:
    """A CPU's kernel in tiles of its parallel loops, or in the order that waits less."""
    schedule, kernel, counts = task.schedule, task.kernel, task.model.counts
    long = in_long_blocks(schedule, kernel, counts, cost.tiling, machine)
    shaped = long or cpu.shaped(schedule, counts, kernel, cost.tiling, machine)
    better = None if long else _better(schedule, shaped, counts, kernel, machine, task.choose)
    if better is not None:
        return better.schedule, list(_groups(better, counts, kernel.names, machine, TIME_LOOPS))
    packs = _packs(task, shaped)
    shaped, made = in_long_rows(shaped, counts, kernel.names[0])
    shaped, past = past_caches(shaped, kernel, counts, cost, machine)
    shaped, asked = rows_ahead(shaped, kernel, cost, machine, counts.total_bytes)
    told = (COLLAPSE, made), (NONTEMPORAL, past), (PREFETCH, asked)
    remarks += tuple(r for pass_, notes in told for r in details(pass_, kernel.names, notes))
    found = part_with(shaped, kernel.names[0])
    apart = any(slower_apart(share, kernel.itemsize, machine) > 1.0 for share in kernel.shares)
    if not apart and any(loop.bind == "microkernel" for loop in loops_of(found)):
        # register tiles load numbers that lie apart one by one
        tiles = finished_cost(counts.after(shaped.nest), found, machine)
        cost = replace(cost, compute=tiles.compute, memory=max(cost.memory, tiles.memory))
    elif any(use.passes > 1 for use in kernel.uses):
        cost = cost_of(
            _as_joined(kernel, counts.after(shaped.nest), found), machine, counts.total_bytes, cost.tiling
        )
    return shaped, [*packs, Group(statements(task.part), cost, remarks)]


def _as_joined(kernel: Kernel, counts: Counts, found: Tree) -> Kernel:
    """The kernel with each tensor read in as many loops as there are now: fewer where inner ones were joined.

    Group norm of 64 x 28 x 28: what is subtracted, and its sums and squares, have one loop, not three.
    """
    now = kernel_of(counts, found).uses
    most = {use.tensor: max(same.passes for same in now if same.tensor == use.tensor) for use in now}
    uses = (replace(use, passes=min(use.passes, most.get(use.tensor, 1))) for use in kernel.uses)
    return replace(kernel, uses=tuple(uses))


def _packs(task: Task, shaped: Schedule) -> list[Group]:
    """The kernels that copy for one that was put into a shape."""
    copies = added(task.schedule, shaped)
    return list(kernels_of(shaped, copies, task.model.machine)) if copies else []


def _by_dependences(task: Task, remarks: tuple[Remark, ...]) -> Shaped:
    """A kernel whose outermost loop carries a dependence, or that was put together of several."""
    schedule, part, kernel, choose = task.schedule, task.part, task.kernel, task.choose
    counts, machine = task.model.counts, task.model.machine
    if isinstance(machine, GpuMachine):
        done, price = in_order(schedule, counts, part, machine, choose)
    else:
        assert isinstance(machine, CpuMachine)
        done, price = loops.planned(schedule, counts, part, machine, choose), None
    if price is not None:
        remarks += details(GRID_STEPS, kernel.names, done.notes)
        return done.schedule, [Group(part_with(done.schedule, kernel.names[0]).names, price, remarks)]
    return done.schedule, list(_groups(done, counts, kernel.names, machine, TIME_LOOPS, remarks))


def _blocked(
    schedule: Schedule, model: Model, part: Tree, joined: bool, choose: Choose, machine: CpuMachine
) -> loops.Planned | Refused | None:
    """A CPU kernel around one product, or around several in steps, in blocks; why not, or None if it holds none."""
    kernel, cost, counts = model.kernel(part), model.cost(part), model.counts
    banded = bool(kernel.band) and not joined
    still = {} if banded or len(kernel.names) == 1 else _still(schedule, kernel.names)
    products = products_among(schedule.nest, kernel.names, banded, groups=banded, still=still)
    if not products:
        return None
    if not kernel.band and not joined and len(kernel.names) > 1:
        innermost_rows = tuple(choices[0] for choices in products)
        return stepped(schedule, counts, kernel, innermost_rows, machine, choose)
    if len(products) > 1:
        each = ", ".join(choices[0].statement for choices in products)
        return Refused(Reason.OTHER_FORM, f"{each} are several products, and blocks are around one")
    parallel = cost.tiling.parallel
    if banded:
        several = None if parallel is None else evenly(kernel.extents[parallel], machine.units)
        blocks = in_blocks(kernel, machine, counts.total_bytes, several)
        if not choose.takes(BLOCKS, kernel.names, True, "form", (blocks.total, cost.total)):
            return Refused(Reason.CHOSEN, "tiles of the band were chosen")
    return blocked(schedule, counts, kernel, products[0], machine, parallel is not None, choose)


def _still(schedule: Schedule, names: tuple[str, ...]) -> dict[str, frozenset[int]]:
    """For each statement the dimensions of the loops around all of them that no loop inside these moves."""
    around = len(common_loops(schedule, names))
    found = {}
    for name in names:
        outer, inner = (
            {d for loop in loops for d in dims_of(loop.date(name))}
            for loops in (schedule.loops(name)[:around], schedule.loops(name)[around:])
        )
        found[name] = frozenset(outer - inner)
    return found


def _better(
    schedule: Schedule, shaped: Schedule, counts: Counts, kernel: Kernel, machine: CpuMachine, choose: Choose
) -> loops.Planned | None:
    """Another shape for a CPU kernel whose one parallel loop is along memory, or in whose parallel loops one waits.

    for i (on cores): for j: x[i] += a[j, i]   ->   for i (tiles, on cores): for j: for i_in (vector): x[i] += a[j, i]
    """
    if not kernel.band:
        return None
    dims = {name: dims_of(kernel.band[0].date(name)) for name in kernel.names}
    jumps = any(far_and_near(schedule.nest, name, moved)[0] for name, moved in dims.items())
    part = part_with(schedule, kernel.names[0])
    written = Draft(schedule.nest, schedule.tree)
    only_if_one_waits = jumps or internal(kernel) or len(kernel.band) > 1
    inside = (loop for loop in loops_of(part) if all(loop.name != x.name for x in kernel.band))
    if only_if_one_waits and not any(waits(written, loop) for loop in inside):
        return None
    done = loops.planned(schedule, counts, part, machine, choose)
    estimator = Estimator(counts, machine)
    usual, other = (estimator.of(loops.held_by(s.tree, kernel.names)).total for s in (shaped, done.schedule))
    pays = round(other, 12) < round(usual, 12)
    return done if choose.takes(TIME_LOOPS, kernel.names, pays, "order", (other, usual)) else None


def _groups(
    done: loops.Planned,
    counts: Counts,
    names: tuple[str, ...],
    machine: Machine,
    pass_: str,
    before: tuple[Remark, ...] = (),
) -> Iterator[Group]:
    """The kernels that one part became, in order; the product's, or the first statement's, has the remarks.

    Those from `before`, and what the pass that gave them their shape found.
    """
    own = set(map(id, (part_with(done.schedule, name) for name in names)))
    ordered = [part for part in parts(done.schedule.tree) if id(part) in own]
    tells = next((part for part in ordered if holds_product(part)), part_with(done.schedule, names[0]))
    for part in ordered:
        remarks = (*before, *details(pass_, names, done.notes)) if part is tells else ()
        yield Group(statements(part), finished_cost(counts, part, machine), remarks)
