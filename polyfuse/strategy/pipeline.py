"""The strategy as one function: nest and machine in, finished schedule and the reasons for it out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from polyfuse.ir import Nest
from polyfuse.ir.empty import computes_nothing
from polyfuse.ir.tree import Tree, parts, statements
from polyfuse.ir.tree import loops as loops_of
from polyfuse.machine import Machine
from polyfuse.schedule import Schedule
from polyfuse.strategy.candidates import Choose, asked_once, cheapest
from polyfuse.strategy.cheaper import cheaper_of
from polyfuse.strategy.cost.composite import finished_cost, kernels_of, schedule_costs
from polyfuse.strategy.cost.counts import Counts, dims_of
from polyfuse.strategy.cost.cpu_loops import Estimator
from polyfuse.strategy.cost.kernel_model import Kernel
from polyfuse.strategy.cost.roofline import Model, evenly, in_blocks, ranked
from polyfuse.strategy.cpu import kernel as cpu
from polyfuse.strategy.cpu.gemm.recurrence import stepped
from polyfuse.strategy.cpu.gemm.schedule import BLOCKS, blocked
from polyfuse.strategy.cpu.nontemporal import in_long_blocks, past_caches
from polyfuse.strategy.cpu.prefetch import PASS as PREFETCH
from polyfuse.strategy.cpu.prefetch import rows_ahead
from polyfuse.strategy.cuda import kernel as cuda
from polyfuse.strategy.cuda.gemm.schedule import in_tiles
from polyfuse.strategy.cuda.gemm.stream_k import InShares
from polyfuse.strategy.cuda.gemm.tile_choice import PASS as TILES
from polyfuse.strategy.cuda.gemm.tile_choice import in_registers, under_maximum
from polyfuse.strategy.cuda.persistent.grid_steps import in_order
from polyfuse.strategy.cuda.transpose import NOT_IN_SQUARES, in_squares
from polyfuse.strategy.cuda.transpose import PASS as TRANSPOSE
from polyfuse.strategy.draft import Draft
from polyfuse.strategy.fusion.group_search import KeptApart, early_statements, part_with
from polyfuse.strategy.match.gemm import products_among
from polyfuse.strategy.passes.attention import in_one_kernel_if_cheaper
from polyfuse.strategy.passes.backtrack import (
    Doubt,
    Doubted,
    compared,
    doubts_of,
    holds_product,
    reconsidered,
)
from polyfuse.strategy.passes.cooperative_launch import in_one_launch
from polyfuse.strategy.passes.equal_kernels import Repeats
from polyfuse.strategy.passes.grouping import Grouped, in_kernels
from polyfuse.strategy.passes.loop_partition import with_full_tiles
from polyfuse.strategy.passes.missed_remarks import with_words
from polyfuse.strategy.passes.parallel_region import in_one_region
from polyfuse.strategy.passes.wavefront import PASS as WAVEFRONT
from polyfuse.strategy.passes.wavefront import Behind, behind_each_other, cheaper_in_turns, may_run_behind
from polyfuse.strategy.plan import Group, Plan
from polyfuse.strategy.remarks import Reason, Refused, Remark, applied, details, refused
from polyfuse.strategy.rewrites.before_fusion import before_schedules
from polyfuse.strategy.rewrites.blocked_factorization import PASS as FACTORIZATION
from polyfuse.strategy.rewrites.blocked_factorization import in_panels
from polyfuse.strategy.rewrites.online_softmax import PASS as ONLINE_SOFTMAX
from polyfuse.strategy.rewrites.online_softmax import in_one_pass, one_pass_remark
from polyfuse.strategy.rewrites.overlapped_tiling import Recomputed, recomputed
from polyfuse.strategy.rewrites.preround_operands import cheaper, rounded_first
from polyfuse.strategy.rewrites.private_accumulator import summed_apart
from polyfuse.strategy.rewrites.privatize_scratch import PASS as SCRATCH
from polyfuse.strategy.rewrites.privatize_scratch import scratch_apart
from polyfuse.strategy.rewrites.shared_sweep import PASS as SHARED_SWEEP
from polyfuse.strategy.rewrites.shared_sweep import beyond_first, read_once
from polyfuse.strategy.rewrites.snapshot_operand import PASS as SNAPSHOT
from polyfuse.strategy.rewrites.snapshot_operand import copied_first
from polyfuse.strategy.rewrites.split_k import in_parts
from polyfuse.strategy.transforms import time_loops as loops
from polyfuse.strategy.transforms.band_verbs import common_loops, far_and_near, internal
from polyfuse.strategy.transforms.collapse import in_long_rows
from polyfuse.strategy.transforms.inner_loops import waits
from polyfuse.strategy.transforms.packing import added

NOT_IN_BLOCKS = "not in blocks for the caches"
"""What a plan says of a CPU's kernel around a product without blocks, before why."""

NOT_IN_TILES = "not in register tiles"
"""The same of a GPU's kernel."""

COLLAPSE, NONTEMPORAL, TIME_LOOPS, GRID_STEPS = "collapse", "nontemporal stores", "time loops", "grid steps"
"""The names of the passes that give other kernels their shape."""

SCHEDULE = "schedule"
"""What a remark on the plan as a whole is of, where there is none."""

CODE_SECONDS = 0.5
"""What machine code for a loop over cores takes longer to make: the price of a region in a kernel that runs once."""


def plan_for(nest: Nest, machine: Machine, fuse: bool = True, choose: Choose = cheapest) -> Plan:
    """The schedule that the cost model finds best for a machine, by public verbs only.

    Scratch arrays of the caller are private to iterations where that is cheaper. Views are composed into their users,
    sums of products taken apart, isomorphic products batched, and long reductions to a few results split in two
    passes. Factors that a GPU's tensor cores take rounded are so in a pass of their own where that is cheaper.
    On a CPU cheap temporaries that no cache near a core holds are computed where they are read, and pipelines of
    stencils are rewritten to run in overlapping tiles, where that pays.
    The schedule's source is the nest after that. `fuse=False` is the baseline: every statement is a kernel, but a
    reduction's first value belongs with it, and each kernel is tiled and bound as the same kernel would be in a fused
    plan. `choose` takes sizes and shapes once the kernels stand: the cheapest, or what a search wants to try.
    Kernels that follow each other are then one launch on a GPU, and one parallel region on a CPU, where that is
    cheaper. On a GPU each sum of products without tiles has a note that says why.
    """
    if computes_nothing(nest):
        return as_written(nest, machine, ("no statement ever runs",))
    choose = asked_once(choose)
    usual = _in_private(nest, machine, fuse, choose)
    made = rounded_first(nest, machine) if fuse else None
    return usual if made is None else cheaper(usual, made, _in_private(made.nest, machine, fuse, choose))


def _in_private(nest: Nest, machine: Machine, fuse: bool, choose: Choose) -> Plan:
    """The plan for a nest, or for the nest whose scratch arrays are private to iterations where that is cheaper."""
    usual = _plan_of(nest, machine, fuse, choose)
    made = scratch_apart(nest) if fuse else None
    if made is None:
        return usual
    other = _plan_of(made.nest, machine, fuse, choose)
    return cheaper_of(SCRATCH, usual, other, usual.seconds, other.seconds, made.said, "in the array itself")


def _plan_of(nest: Nest, machine: Machine, fuse: bool, choose: Choose) -> Plan:
    """The plan for a nest in the arrays that it has."""
    lean, said = before_schedules(nest, machine) if fuse else (nest, ())
    plan = with_words(_in_kernels_of_their_own(lean, said, machine, fuse, choose))
    if not fuse:
        return plan
    if machine.kind == "cpu":
        return in_one_region(plan, lambda other: _read_once(lean, said, other, choose), choose)
    return in_one_launch(plan, lambda other: _plan_of(nest, other, fuse, choose))


def _in_kernels_of_their_own(
    lean: Nest, said: tuple[Remark, ...], machine: Machine, fuse: bool, choose: Choose
) -> Plan:
    """The plan before any kernels are one launch, or one region."""
    if fuse and machine.kind == "cuda":
        tiles, refused = _in_tiles(lean, said, machine, choose)
        usual = _read_once(lean, (*said, *refused), machine, choose) if tiles is None else tiles
        return in_one_kernel_if_cheaper(
            lean,
            usual,
            machine,
            lambda start, more: _planned(start.nest, (*said, *more), machine, True, choose, start),
        )
    return _read_once(lean, said, machine, choose) if fuse else _planned(lean, said, machine, fuse, choose)


def _read_once(nest: Nest, said: tuple[Remark, ...], machine: Machine, choose: Choose) -> Plan:
    """The plan for a nest, or with matrices read once for sums along rows and across them where that is cheaper."""
    usual = _in_panels(nest, said, machine, choose)
    made = read_once(nest, machine)
    said = (*said, *made.refused)
    usual = usual.with_remarks(*made.refused)
    if not made.passes:
        return usual
    other = _planned(made.nest, said, machine, True, choose, Recomputed(made.nest, passes=made.passes))
    every = frozenset(s.name for s in (*usual.schedule.nest.statements, *other.schedule.nest.statements))
    apart, together = compared(usual, other, every, beyond_first(machine))
    return cheaper_of(SHARED_SWEEP, usual, other, apart, together, made.said, "otherwise")


def _in_panels(nest: Nest, said: tuple[Remark, ...], machine: Machine, choose: Choose) -> Plan:
    """The plan for a nest, or for the nest with eliminations in blocks of the cheapest size where that is cheaper."""
    found = tuple(in_panels(nest, machine))
    said = (*said, *(line for made in found for line in made.refused))
    usual = _cheapest(nest, said, machine, choose)
    plans = [
        (made, _planned(made.nest, said, machine, True, choose, refused=made.alone))
        for made in found
        if made.said
    ]
    if not plans:
        return usual
    made, best = min(plans, key=lambda one: one[1].seconds)
    return cheaper_of(FACTORIZATION, usual, best, usual.seconds, best.seconds, made.said, "in loops")


def _cheapest(nest: Nest, said: tuple[Remark, ...], machine: Machine, choose: Choose) -> Plan:
    """The plan for a nest, or for the nest with products in place that read copies where that is cheaper."""
    usual = _cheaper(nest, said, machine, choose)
    made = copied_first(nest, machine)
    if made is None:
        return usual
    other = _cheaper(made.nest, said, machine, choose)
    return cheaper_of(SNAPSHOT, usual, other, usual.seconds, other.seconds, made.said, "in place")


def _in_tiles(
    nest: Nest, said: tuple[Remark, ...], machine: Machine, choose: Choose
) -> tuple[Plan | None, tuple[Remark, ...]]:
    """The plan for a nest whose products are rewritten for tiles on a GPU: in parts, or summed apart.

    Sums that get no tiles stay where they are. None where there is no such plan, and what was left out then: parts for
    which no tiles of results were found.
    """
    parted, refused = in_parts(nest, machine), tuple[Remark, ...]()
    for split in (parted, None) if parted is not None else (None,):
        start, summing, told = (
            (nest, (), ()) if split is None else (split.nest, split.products, split.remarks)
        )
        shared = {} if split is None else split.shared
        stay = frozenset[str]()
        summed = summed_apart(start)
        while summing or summed is not None:
            changed, own = (start, ()) if summed is None else (summed.nest, summed.products)
            made = Recomputed(changed, shared=shared)
            plan = _planned(changed, (*said, *refused, *told), machine, True, choose, made)
            lost = {name for name in (*summing, *own) if not in_tiles(plan.schedule, name)}
            if not lost:
                return plan, ()
            if not lost.isdisjoint(summing):
                break
            stay |= lost
            summed = summed_apart(start, stay)
        refused = (*refused, *map(_without_tiles, told))
    return None, refused


def _without_tiles(remark: Remark) -> Remark:
    """The remark on parts that are not taken, since what sums one up has no tiles."""
    text = f"not taken, since its kernel has no tiles of results: {remark}"
    return replace(remark, taken=False, reason=Reason.NO_TILES, text=text)


def _cheaper(nest: Nest, said: tuple[Remark, ...], machine: Machine, choose: Choose) -> Plan:
    """The plan for a nest, or for the nest with sums under maxima in one pass where that is cheaper."""
    usual = _planned(nest, said, machine, True, choose)
    made = in_one_pass(nest, machine)
    if made is None:
        return usual
    if not made.said:
        kept = (
            replace(why, text=f"sums under a maximum do not run in one pass: {why}") for why in made.refused
        )
        return usual.with_remarks(*kept)
    said = (*said, *made.refused)
    told = (applied(ONLINE_SOFTMAX, (), f"{line}.", Reason.CHEAPER) for line in made.said)
    blocks = _planned(made.nest, (*said, *told), machine, True, choose)
    apart, together = (sum(group.cost.total for group in plan.groups) for plan in (usual, blocks))
    pays = together < apart
    return (blocks if pays else usual).with_remarks(one_pass_remark(ONLINE_SOFTMAX, pays, together, apart))


def _planned(
    nest: Nest,
    said: tuple[Remark, ...],
    machine: Machine,
    fuse: bool,
    choose: Choose,
    made: Recomputed | None = None,
    refused: KeptApart = frozenset(),
) -> Plan:
    """The plan for a nest whose sums and views are as they should be, or with kernels in it that are decided.

    No kernel is made of a `refused` group.
    """
    tiles = fuse and machine.kind == "cpu"
    rewritten = made or (recomputed(nest, machine, choose) if tiles else Recomputed(nest))

    def without(others: KeptApart, choose: Choose = cheapest) -> Doubted:
        plan, doubts = _in_shape(rewritten, machine, fuse, choose, refused | others)
        return replace(plan, remarks=(*said, *plan.remarks)), doubts

    plan, doubts = without(frozenset(), choose)
    if doubts:
        first = (plan, doubts) if choose is cheapest else without(frozenset())
        again = reconsidered(first, without)
        plan = again.plan
        if choose is not cheapest:
            chosen, _ = without(again.refused, choose)
            plan = chosen.with_remarks(*again.remarks)
    if fuse and may_run_behind(rewritten.nest, machine):
        plan = _behind(plan, rewritten, said, machine, choose)
    return with_full_tiles(plan)


def _in_shape(
    rewritten: Recomputed, machine: Machine, fuse: bool, choose: Choose, refused: KeptApart
) -> Doubted:
    """Statements in kernels, none of them of a refused group, and each kernel in its shape."""
    rewritten, model, kernels = in_kernels(rewritten, machine, fuse, refused)
    return _in_shapes(rewritten, model, kernels, choose)


def _behind(
    plan: Plan, rewritten: Recomputed, said: tuple[Remark, ...], machine: Machine, choose: Choose
) -> Plan:
    """The plan, or one whose loops in time run behind each other on cores where that is cheaper."""
    rewritten, model, kernels = in_kernels(rewritten, machine, True, frozenset())
    behind = behind_each_other(kernels[0], model, choose)
    if behind is None:
        return plan
    if isinstance(behind, Refused):
        return plan.with_remarks(refused(WAVEFRONT, (), behind.reason, behind.text))
    other, _ = _in_shapes(rewritten, model, (behind.grouped, *kernels[1:]), choose, behind)
    other = replace(other, remarks=(*said, *other.remarks))
    return cheaper_in_turns(plan, other, behind, model.counts)


def _in_shapes(
    rewritten: Recomputed, model: Model, kernels: Grouped, choose: Choose, behind: Behind | None = None
) -> Doubted:
    """Each kernel in its shape, and the groups that turn out far dearer in theirs; `behind` has one in shape."""
    (schedule, decisions, joined), counts, machine = kernels, model.counts, model.machine
    groups: list[Group] = []
    doubts: list[Doubt] = []
    repeats = Repeats.of(schedule, counts) if choose is cheapest else None  # a search decides for each kernel
    rarely = Model(counts, replace(machine, region_seconds=CODE_SECONDS), model.tiled)
    start = schedule
    schedule = behind.shaped.schedule if behind is not None else start
    early = early_statements(start.nest, start.tree) if machine.kind == "cpu" else frozenset[str]()
    for part in parts(start.tree):
        known = rewritten.with_statements(statements(part))
        if known is not None:
            groups.append(Group(statements(part), known.cost.as_kernel()))
            continue
        under = rewritten.under_maximum(statements(part))
        if under is not None:
            schedule, group = under_maximum(schedule, *under, machine)
            groups.append(group)
            continue
        if rewritten.statements.issuperset(statements(part)):
            groups.append(Group(statements(part), finished_cost(counts, part, machine)))
            continue
        if behind is not None and part.members >= set(behind.names):
            names = (*behind.names, *added(behind.grouped, behind.shaped.schedule))
            own = Counts(behind.shaped.schedule.nest)
            groups += _groups(behind.shaped, own, names, machine, WAVEFRONT)
            continue
        own_model = model if early.isdisjoint(statements(part)) else rarely
        kernel, cost = own_model.kernel(part), own_model.cost(part)
        if not any(counts.work(name).instances for name in kernel.names):
            groups.append(Group(statements(part), cost))  # a batch of size 0: there is nothing to tile
            continue
        is_joined = bool(joined & set(kernel.names))
        shape = partial(_shaped, schedule, own_model, part, is_joined, choose, rewritten.shared)
        schedule, found = shape() if repeats is None or is_joined else repeats.shaped(schedule, part, shape)
        groups += found
        if machine.kind == "cpu":
            doubts += doubts_of(schedule.nest, decisions, kernel.names, cost.total, found)
    return Plan(schedule, decisions, tuple(groups), machine, rewritten.remarks), tuple(doubts)


def _shaped(
    schedule: Schedule,
    model: Model,
    part: Tree,
    joined: bool,
    choose: Choose,
    shared: Mapping[str, InShares],
) -> tuple[Schedule, list[Group]]:
    """One kernel in its final shape: in blocks around a product, in tiles of its band, or by its dependences."""
    kernel, counts, machine = model.kernel(part), model.counts, model.machine
    squares = in_squares(schedule, model, part) if not joined else None
    if isinstance(squares, tuple):
        return squares
    blocks = _blocked(schedule, model, part, joined, choose)
    if isinstance(blocks, loops.Planned):
        names = (*kernel.names, *added(schedule, blocks.schedule))
        return blocks.schedule, list(_groups(blocks, Counts(blocks.schedule.nest), names, machine, BLOCKS))
    registers = in_registers(schedule, model, part, choose, shared) if not joined else None
    if isinstance(registers, tuple):
        return registers
    if isinstance(registers, str):
        registers = Refused(Reason.OTHER_FORM, registers)
    whys = (
        (TRANSPOSE, NOT_IN_SQUARES, squares),
        (BLOCKS, NOT_IN_BLOCKS, blocks),
        (TILES, NOT_IN_TILES, registers),
    )
    remarks = tuple(
        refused(pass_, kernel.names, why.reason, f"{what}: {why}")
        for pass_, what, why in whys
        if why is not None
    )
    if kernel.band and not joined:
        costs = ranked(kernel, machine, counts.total_bytes)
        cost = costs[choose(kernel.names, "tiles", [cost.total for cost in costs])]
        program = cpu.shaped if machine.kind == "cpu" else cuda.shaped
        long = in_long_blocks(schedule, kernel, counts, cost.tiling, machine)
        shaped = long or program(schedule, counts, kernel, cost.tiling, machine)
        better = None if long else _better(schedule, shaped, counts, kernel, machine, choose)
        if better is None:
            copies = added(schedule, shaped)
            packs = kernels_of(shaped, copies, machine) if copies else ()
            if machine.kind == "cpu":
                shaped, made = in_long_rows(shaped, counts, kernel.names[0])
                shaped, past = past_caches(shaped, kernel, counts, cost, machine)
                shaped, asked = rows_ahead(shaped, kernel, cost, machine, counts.total_bytes)
                told = (COLLAPSE, made), (NONTEMPORAL, past), (PREFETCH, asked)
                remarks += tuple(r for pass_, notes in told for r in details(pass_, kernel.names, notes))
            return shaped, [*packs, Group(statements(part), cost, remarks)]
        return better.schedule, list(_groups(better, counts, kernel.names, machine, TIME_LOOPS))
    if machine.kind == "cpu":
        done, price = loops.planned(schedule, counts, part, machine, choose), None
    else:
        done, price = in_order(schedule, counts, part, machine, choose)
    if price is not None:
        remarks += details(GRID_STEPS, kernel.names, done.notes)
        return done.schedule, [Group(part_with(done.schedule, kernel.names[0]).names, price, remarks)]
    return done.schedule, list(_groups(done, counts, kernel.names, machine, TIME_LOOPS, remarks))


def _blocked(
    schedule: Schedule, model: Model, part: Tree, joined: bool, choose: Choose
) -> loops.Planned | Refused | None:
    """A CPU kernel around one product, or around several in steps, in blocks; why not, or None where it holds none."""
    kernel, cost, counts, machine = model.kernel(part), model.cost(part), model.counts, model.machine
    banded = bool(kernel.band) and not joined
    asked = machine.kind == "cpu"
    still = {} if banded or len(kernel.names) == 1 else _still(schedule, kernel.names)
    products = (
        products_among(schedule.nest, kernel.names, banded, groups=banded, still=still) if asked else ()
    )
    if not products:
        return None
    if not kernel.band and not joined and len(kernel.names) > 1:
        innermost_rows = tuple(choices[0] for choices in products)
        return stepped(schedule, counts, kernel, innermost_rows, machine, choose)
    if len(products) > 1:
        return None
    parallel = cost.tiling.parallel
    if banded:
        several = None if parallel is None else evenly(kernel.extents[parallel], machine.units)
        blocks = in_blocks(kernel, machine, counts.total_bytes, several)
        if choose(kernel.names, "form", [blocks.total, cost.total]) == 1:
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
    schedule: Schedule, shaped: Schedule, counts: Counts, kernel: Kernel, machine: Machine, choose: Choose
) -> loops.Planned | None:
    """Another shape for a CPU kernel whose one parallel loop is along memory, or in whose parallel loops one waits.

    for i (on cores): for j: x[i] += a[j, i]   ->   for i (tiles, on cores): for j: for i_in (vector): x[i] += a[j, i]
    """
    if machine.kind != "cpu" or not kernel.band:
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
    options = sorted([(usual, None), (other, done)], key=lambda option: round(option[0], 12))
    return options[choose(kernel.names, "order", [seconds for seconds, _ in options])][1]


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


def as_written(nest: Nest, machine: Machine, why: str) -> Plan:
    """The order as written with nothing chosen, for a nest whose plan was given up, and why."""
    schedule = Schedule(nest)
    costs = schedule_costs(schedule, machine)
    groups = tuple(
        Group(statements(part), cost) for part, cost in zip(parts(schedule.tree), costs, strict=True)
    )
    kept = f"the order as written is kept, with no loop changed: {why}"
    return Plan(
        schedule, (), groups, machine, (refused(SCHEDULE, schedule.nest.order.names, Reason.BUDGET, kept),)
    )
