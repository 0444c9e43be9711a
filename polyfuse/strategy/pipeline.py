"""The strategy as lists of passes: nest and machine in, finished schedule and a remark on each decision out.

    nest  --REWRITES-->  nest  --RESULT_TILES, ALTERNATIVES-->  nests  --KERNELS-->  plans  --cheapest-->  plan
    plan  --WHOLE_PLAN-->  plan;      and the same for what SOURCE_ALTERNATIVES make of the nest, the cheapest of all

What a pass does is in its module, what all of them have in common in `driver.py`: candidates are planned, priced, and
the cheapest is kept, with a remark on each. `force` overrules prices, by the passes' names (`PASSES`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from polyfuse.errors import BadArgument
from polyfuse.errors.proving import proving
from polyfuse.ir import Nest
from polyfuse.ir.empty import computes_nothing
from polyfuse.ir.tree import parts, statements
from polyfuse.machine import Machine
from polyfuse.schedule import Schedule
from polyfuse.strategy.candidates import Choose, Wish, cheapest
from polyfuse.strategy.cost.composite import schedule_costs
from polyfuse.strategy.cost.roofline import BAND_TILES
from polyfuse.strategy.cpu.gemm.problem import PACKED_TOGETHER
from polyfuse.strategy.cuda.gemm import depthwise
from polyfuse.strategy.cuda.persistent import grid_steps, step_choices
from polyfuse.strategy.driver import Alternative, Rewrite, Start, cheapest_plan, rewritten
from polyfuse.strategy.fusion import group_search
from polyfuse.strategy.options import PlannerOptions
from polyfuse.strategy.passes import (
    attention,
    backtrack,
    cooperative_launch,
    grouping,
    kernels,
    loop_partition,
    missed_remarks,
    parallel_region,
    shape_each,
    wavefront,
)
from polyfuse.strategy.passes.kernels import KernelPass, Kernels
from polyfuse.strategy.passes.result_tiles import with_result_tiles
from polyfuse.strategy.plan import Group, Plan
from polyfuse.strategy.remarks import Reason, refused
from polyfuse.strategy.rewrites import (
    batch_isomorphic,
    blocked_factorization,
    common_statements,
    detach_output,
    grouped_conv,
    online_softmax,
    overlapped_tiling,
    preround_operands,
    private_accumulator,
    private_places,
    privatize_scratch,
    rematerialize,
    shared_sweep,
    snapshot_operand,
    split_k,
    split_reduction,
    views,
)
from polyfuse.strategy.rewrites.reductions import (
    coalesce,
    complex_products,
    dense_sums,
    reindex,
    split_sum_terms,
    symmetric_sums,
)
from polyfuse.strategy.transforms import time_loops

Again = Callable[[PlannerOptions], Plan]
"""Makes the plan once more, where the model assumes something else."""


@dataclass(frozen=True)
class WholePlan:
    """A pass over a plan whose kernels are finished.

    Attributes:
        name: for remarks and for `force`.
        run: (start, plan, again) -> plan.
        kinds: the kinds of machines that it is for.
        fuses: whether it puts kernels together, which is not asked of a baseline (`fuse=False`).
        rewrites_again: whether `again` begins before the rewrites, some of which ask for the machine's tiles.
    """

    name: str
    run: Callable[[Start, Plan, Again], Plan]
    kinds: tuple[str, ...]
    fuses: bool = True
    rewrites_again: bool = False


SOURCE_ALTERNATIVES = (
    Alternative(privatize_scratch.PASS, privatize_scratch.candidates),
    Alternative(
        preround_operands.PASS,
        preround_operands.candidates,
        crossed_with=(privatize_scratch.PASS,),
        lost=preround_operands.without_tiles,
    ),
)
"""Alternatives to the nest before all other passes; every pass is asked about each of them.

Rounded operands and private scratch are crossed: the one changes what a product reads, the other which loops are free.
"""

REWRITES = (
    Rewrite(views.PASS, views.without_copies),
    Rewrite(common_statements.PASS, common_statements.computed_once, searches=True),
    Rewrite(grouped_conv.PASS, grouped_conv.in_groups),
    Rewrite(reindex.PASS, reindex.with_subscripts_as_indices, kinds=("cpu",)),
    Rewrite(coalesce.PASS, coalesce.with_pixels_in_one_loop, kinds=("cpu",)),
    Rewrite(complex_products.PASS, complex_products.with_real_products, kinds=("cpu",)),
    Rewrite(split_sum_terms.PASS, split_sum_terms.with_terms_apart),
    Rewrite(symmetric_sums.PASS, symmetric_sums.with_halves, kinds=("cpu",)),
    Rewrite(dense_sums.PASS, dense_sums.with_dense_sums, kinds=("cpu",)),
    Rewrite(batch_isomorphic.PASS, batch_isomorphic.in_batches),
    Rewrite(detach_output.PASS, detach_output.with_readers),
    Rewrite(split_reduction.WHERE_SUMMED, split_reduction.with_values_where_summed, kinds=("cuda",)),
    Rewrite(private_places.PASS, private_places.with_private_places, kinds=("cpu",)),
    Rewrite(split_reduction.PASS, split_reduction.in_two_passes, searches=True),
    Rewrite(rematerialize.PASS, rematerialize.computed_where_read, kinds=("cpu",), searches=True),
)
"""In this order, as each finds what the ones before it leave:

- views first: products and windows are recognised by their subscripts, which copies hide;
- common statements behind it: two copies of one tensor make the statements that read them different;
- reindex before all that asks whether a sum is a product;
- coalesce behind it, and before batches, whose statements it would have to take apart;
- complex products before split sum terms, which takes the parts' terms apart;
- split sum terms before batch isomorphic: terms of several sums may be isomorphic products;
- symmetric sums behind them: a term alone may be symmetric;
- dense sums before batch isomorphic, which then finds phases in arrays of their own;
- detach output behind batch isomorphic, so that a batch's output is detached once;
- values where summed before split reduction, which then splits what reads them;
- private places before it, as it counts the iterations that do nothing;
- split reduction and rematerialize last: they price kernels, and need to see those that there are going to be.
"""

RESULT_TILES = (split_k.PASS, private_accumulator.PASS)
"""On a GPU, instead of the nest itself wherever all their products get tiles (`passes/result_tiles.py`). They are
crossed: a product's parts are summed apart, too. Neither is crossed with attention, which has tiles of its own."""

ALTERNATIVES = (
    Alternative(
        online_softmax.PASS,
        online_softmax.candidates,
        prices=online_softmax.seconds_of_all_kernels,
        remarks=online_softmax.one_pass_remarks,
    ),
    Alternative(snapshot_operand.PASS, snapshot_operand.candidates, crossed_with=(online_softmax.PASS,)),
    Alternative(blocked_factorization.PASS, blocked_factorization.candidates),
    Alternative(
        shared_sweep.PASS, shared_sweep.candidates, prices=shared_sweep.seconds_of_calls_with_rows_ahead
    ),
    Alternative(attention.PASS, attention.candidates, remarks=online_softmax.one_pass_remarks),
)
"""Alternatives to the nest after the rewrites. Each is compared with the best of those before it.

Crossed are snapshot operand and online softmax alone. Blocked factorization and shared sweep decide kernels, or which
statements share none, and attention its whole kernels: with other changes in the same statements these would not fit.
"""

KERNELS = (
    KernelPass(backtrack.PASS, kernels.backtracked),
    KernelPass(wavefront.PASS, kernels.with_wavefront),
    KernelPass(loop_partition.PASS, kernels.with_loop_partition),
)
"""Once statements are in kernels and each kernel has its shape (`shape_each.FORMS`). Before that `overlapped tiling`
may claim some, and `private accumulator after grouping` and `index set splitting` change the nest for groups that were
found.

Backtrack and wavefront both search again: wavefront takes the first groups, not those of backtrack. Loop partition is
last: it wants loops that stay."""

WHOLE_PLAN = (
    WholePlan(missed_remarks.PASS, missed_remarks.with_words, ("cuda",), fuses=False),
    WholePlan(parallel_region.PASS, parallel_region.in_one_region, ("cpu",)),
    WholePlan(cooperative_launch.PASS, cooperative_launch.in_one_launch, ("cuda",), rewrites_again=True),
)
"""On finished kernels. Parallel region and cooperative launch change what the model should have assumed, so they plan
again with an option; missed remarks come before, as a joined kernel's parts keep theirs."""

CHOICES = (
    *(BAND_TILES, depthwise.PASS, PACKED_TOGETHER, time_loops.PASS),
    *(grid_steps.PASS, step_choices.SAME_BLOCKS, step_choices.STATIONARY),
)
"""What passes decide while a kernel gets its shape."""

ON_STATEMENTS = (
    *(
        views.PASS,
        common_statements.PASS,
        grouped_conv.PASS,
        reindex.PASS,
        coalesce.PASS,
        complex_products.PASS,
        split_sum_terms.PASS,
    ),
    *(symmetric_sums.PASS, dense_sums.PASS, detach_output.PASS),
    *(
        split_reduction.WHERE_SUMMED,
        private_places.PASS,
        rematerialize.PASS,
        split_k.PASS,
        overlapped_tiling.PASS,
    ),
    *(group_search.PASS, backtrack.PASS, loop_partition.PASS),
    *(form.name for form in shape_each.FORMS),
    *CHOICES,
)
"""The passes that decide on each kernel, or on each statement: `force` may ask them about some alone."""

PASSES = tuple(
    dict.fromkeys(
        (
            *(one.name for one in (*SOURCE_ALTERNATIVES, *REWRITES)),
            *RESULT_TILES,
            *(one.name for one in ALTERNATIVES),
            *(overlapped_tiling.PASS, group_search.PASS, grouping.SPLIT, private_accumulator.AFTER_GROUPING),
            *(form.name for form in shape_each.FORMS),
            *(*CHOICES, shape_each.EQUAL_KERNELS),
            *(one.name for one in (*KERNELS, *WHOLE_PLAN)),
        )
    )
)
"""All that `force` can ask for, in the order in which it is decided."""

NO_CANDIDATES = (shape_each.EQUAL_KERNELS, missed_remarks.PASS)
"""The passes that do nothing to a plan which could be wanted: they can only be left out."""


@proving("the choice of a schedule")
def plan_for(
    nest: Nest,
    machine: Machine,
    fuse: bool = True,
    choose: Choose = cheapest,
    force: Mapping[str, object] | None = None,
) -> Plan:
    """The schedule that the cost model finds best for a machine, by public verbs only.

    Args:
        nest: what is to run. The schedule's source is this nest after the rewrites that were taken.
        machine: where it is to run.
        fuse: False is the baseline: every statement is a kernel, but a reduction's first value belongs with it, and
            each kernel is tiled and bound as the same kernel would be in a fused plan.
        choose: decides where the model has several candidates, such as a search that tries others than the cheapest.
        force: what passes are to do whatever the model expects, by their names (`PASSES`): False leaves a pass out,
            True takes what it offers, and a text takes the candidate of that name. "PASS of STATEMENT" is about kernels
            with that statement alone, for the passes in `ON_STATEMENTS`.

    Returns:
        The plan, with a remark on every decision.

    Raises:
        BadArgument: if `force` names no pass, or something that the pass cannot do for this nest.
    """
    choose = choose.with_wishes(wishes_of(force or {}))
    if computes_nothing(nest):
        return as_written(nest, machine, "no statement ever runs")
    start = Start(nest, machine, choose, fuse)
    plan = cheapest_plan(start, SOURCE_ALTERNATIVES if fuse else (), rewritten_plan)
    _check_granted(plan, choose)
    return plan


def rewritten_plan(start: Start) -> Plan:
    """The plan for a nest in the arrays that it has."""
    lean = rewritten(start, REWRITES) if start.fuse else start

    def after_rewrites(options: PlannerOptions) -> Plan:
        return kernels_apart(replace(lean, options=options))

    def from_the_start(options: PlannerOptions) -> Plan:
        return rewritten_plan(replace(start, options=options))

    plan = kernels_apart(lean)
    for one in WHOLE_PLAN:
        if start.machine.kind in one.kinds and start.choose.asks(one.name) and (start.fuse or not one.fuses):
            plan = one.run(start, plan, from_the_start if one.rewrites_again else after_rewrites)
    return plan


def kernels_apart(start: Start) -> Plan:
    """The cheapest plan for a rewritten nest, before any kernels are one launch, or one region."""
    if not start.fuse:
        return kernel_plan(start)
    usual = None
    if start.machine.kind == "cuda":
        usual, remarks = with_result_tiles(start, kernel_plan)
        usual = usual or kernel_plan(start.with_remarks(*remarks))
    return cheapest_plan(start, ALTERNATIVES, kernel_plan, usual)


def kernel_plan(start: Start) -> Plan:
    """The plan for a nest as it is: statements in kernels, and each kernel in its shape."""
    found = Kernels.of(start)
    for one in KERNELS:
        if start.choose.asks(one.name):
            found = one.run(found)
    return found.plan


def wishes_of(force: Mapping[str, object]) -> tuple[Wish, ...]:
    """The checked choices for passes.

    Raises:
        BadArgument: for a name that no pass has, or a value that it does not take.
    """
    return tuple(_wish(name, choice) for name, choice in force.items())


def _wish(name: str, choice: object) -> Wish:
    pass_ = next((p for p in PASSES if name == p or name.startswith(f"{p} of ")), None)
    if pass_ is None:
        raise BadArgument(
            f"force: no pass is called {name!r}; there are {', '.join(sorted(PASSES))}. These also take the statements "
            f"that they are to be asked about, as in '{backtrack.PASS} of a, b': {', '.join(sorted(ON_STATEMENTS))}"
        )
    statements_ = frozenset(name.removeprefix(pass_).removeprefix(" of ").split(", ")) - {""}
    if statements_ and pass_ not in ON_STATEMENTS:
        raise BadArgument(
            f"force: {pass_!r} decides on the whole nest, and takes no statements, as in {name!r}"
        )
    if pass_ == group_search.PASS and len(statements_) < 2:
        raise BadArgument(
            f"force: {pass_!r} takes two statements or more, as in 'group of a, b', not {name!r}"
        )
    if pass_ in NO_CANDIDATES and choice is not False:
        raise BadArgument(f"force: {name!r} takes False alone, which leaves it out, not {choice!r}")
    if not isinstance(choice, bool | str):
        raise BadArgument(f"force: {name!r} takes True, False or a candidate's name, not {choice!r}")
    return Wish(pass_, statements_, choice)


def _check_granted(plan: Plan, choose: Choose) -> None:
    """BadArgument where a pass had nothing to do of what was wanted; with the candidates that it had."""
    taken = {remark.pass_ for remark in plan.log if remark.taken}
    for wish in choose.wishes:
        decided = wish in choose.granted
        if wish.choice is False:
            granted = decided or not wish.statements
        elif wish.pass_ in CHOICES:
            granted = decided
        else:
            granted = wish.pass_ in taken and (decided or wish.choice is True)
        if not granted:
            raise BadArgument(_not_granted(wish, tuple(choose.offered.get(wish.pass_, ())), plan))


MOST_NAMES = 10
"""Candidates that an error names."""


def _not_granted(wish: Wish, names: tuple[str, ...], plan: Plan) -> str:
    what = f"candidate {wish.choice!r}" if isinstance(wish.choice, str) else "candidate"
    line = f"force: {str(wish)!r} has no {what} for nest {plan.schedule.nest.name!r} on {plan.machine.name}"
    if isinstance(wish.choice, str) and names:
        more = f", and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        return f"{line}; it has {', '.join(map(repr, names[:MOST_NAMES]))}{more}"
    return f"{line}, or none that goes with what else was forced, or was found cheaper"


GIVEN_UP = "schedule"
"""The pass that the remark on a plan names where isl found none within its limit."""


def as_written(nest: Nest, machine: Machine, why: str) -> Plan:
    """The order as written with nothing chosen, for a nest whose plan was given up, and why."""
    schedule = Schedule(nest)
    costs = schedule_costs(schedule, machine)
    groups = tuple(
        Group(statements(part), cost) for part, cost in zip(parts(schedule.tree), costs, strict=True)
    )
    kept = f"the order as written is kept, with no loop changed: {why}"
    remark = refused(GIVEN_UP, schedule.nest.order.names, Reason.BUDGET, kept)
    return Plan(schedule, (), groups, machine, (remark,))
