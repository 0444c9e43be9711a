"""Group statements into kernels: prepare the search over fusions, and change the nest for its groups afterwards.

    for i: for j: { zero; for k: P += a * b }   ->   for i: for j: { zero; for k: P_sum += a * b;  P = P_sum }

Which sums another kernel reads is known once statements are in kernels. On a GPU a product's then get a temporary of
their own (private_accumulator.py), which registers can hold. The same steps are taken again, and where that fails,
another search: what reads the sums may be in the product's kernel, too, and has to come behind the store.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir import Nest
from polyfuse.ir.tree import parts, statements
from polyfuse.machine import CpuMachine, GpuMachine, Machine
from polyfuse.measure import duration
from polyfuse.schedule import Schedule
from polyfuse.strategy.candidates import Choose, cheapest
from polyfuse.strategy.claims import Claims
from polyfuse.strategy.cost.roofline import Model
from polyfuse.strategy.cpu import stencil as tiled
from polyfuse.strategy.cpu.by_data import kept_in_order
from polyfuse.strategy.cpu.prefetch import PASS as PREFETCH
from polyfuse.strategy.cpu.prefetch import tiles_ahead
from polyfuse.strategy.cpu.row_sweep import row_by_row
from polyfuse.strategy.cuda.attention.schedule import dated
from polyfuse.strategy.cuda.gemm.launch_cost import tiled_alone
from polyfuse.strategy.cuda.scalars import scalars_together
from polyfuse.strategy.draft import Draft
from polyfuse.strategy.driver import Start
from polyfuse.strategy.fusion.alignments import Alignments, Searches, Starts
from polyfuse.strategy.fusion.gemm_pairs import alone_cost
from polyfuse.strategy.fusion.group_search import KeptApart, early_statements, kept_apart, search, with_store
from polyfuse.strategy.fusion.scc_order import in_waiting_order
from polyfuse.strategy.fusion.serial import with_joined
from polyfuse.strategy.plan import Decision
from polyfuse.strategy.remarks import details, weighed
from polyfuse.strategy.rewrites.private_accumulator import (
    AFTER_GROUPING,
    Summed,
    read_elsewhere,
    stored_after,
)
from polyfuse.strategy.transforms.band_verbs import separated

SPLIT = "index set splitting"

Grouped = tuple[Schedule, tuple[Decision, ...], frozenset[str]]


def in_kernels(given: Start, claims: Claims, refused: KeptApart) -> tuple[Claims, Model, Grouped]:
    """Statements in kernels, on a GPU with products summed up apart whose sums another kernel reads."""
    machine, fuse = given.model_machine, given.fuse
    found = _found(given, claims, refused)
    if not isinstance(machine, GpuMachine) or not given.choose.asks(AFTER_GROUPING):
        return found
    claims, model, (schedule, decisions, joined) = found
    left = read_elsewhere(schedule, model, claims.statements | joined, seen=not fuse)
    apart = stored_after(claims.nest, left)
    if apart is None:
        return found
    claims = replace(claims, nest=apart.nest, remarks=(*claims.remarks, *apart.remarks))
    same = _with_stores(schedule, apart)
    if same is None:
        return _found(given, claims, refused)
    return claims, _model(given.searches, apart.nest, machine), (same, decisions, joined)


def _with_stores(schedule: Schedule, apart: Summed) -> Schedule | None:
    """The same kernels of the changed nest, each store in its product's; None if that takes another search."""
    if len(apart.stores) < len(apart.products):
        return None
    try:
        done = Draft(apart.nest, apart.nest.order, schedule.steps).taken(Schedule(apart.nest))
    except (IllegalSchedule, InvalidSchedule):
        return None
    for product, store in apart.stores:
        stored = with_store(done, product, store)
        if stored is None:
            return None
        done = stored
    return done


def _found(given: Start, claims: Claims, refused: KeptApart) -> tuple[Claims, Model, Grouped]:
    """As the search finds them; consumers of what several statements write run in pieces if that is cheaper."""
    machine, fuse = given.model_machine, given.fuse
    searches = given.searches
    model = _model(searches, claims.nest, machine)
    start = _begun(claims.nest, machine, fuse)
    for pipeline in claims.tiled:
        assert isinstance(machine, CpuMachine), "pipelines in tiles are a CPU's"
        made, cost = pipeline.overlapped, pipeline.cost
        start = tiled.shaped(start, made, parallel=cost.units > 1)
        start, asked = tiles_ahead(start, made, cost, machine, model.counts.total_bytes)
        lines = details(PREFETCH, made.statements, asked)
        claims = replace(claims, remarks=(*claims.remarks, *lines))
    for names in claims.by_data:
        assert isinstance(machine, CpuMachine), "loops that data bound are claimed on a CPU"
        start = kept_in_order(start, names, machine)
    for one in claims.passes:
        start = row_by_row(start, one)
    for under, shape in claims.one_pass:
        start = dated(start, under, shape)
    choose = given.choose
    known = searches.alignments(claims.nest)
    whole = grouped(start, model, fuse, claims.statements, refused, choose, known)
    wanted = fuse and not claims.statements and given.choose.asks(SPLIT)
    split = searches.pieces(claims.nest) if wanted else None
    if split is None or not split.split:
        return claims, model, whole
    other = _model(searches, split.nest, machine)
    begun, of_pieces = _begun(split.nest, machine, fuse), searches.alignments(split.nest)
    parted = grouped(begun, other, fuse, refused=refused, choose=choose, alignments=of_pieces)
    usual, apart = (
        sum(m.cost(part).total for part in parts(found[0].tree))
        for m, found in ((model, whole), (other, parted))
    )
    said = f"{duration(apart)}, {duration(usual)} with whole statements."
    chosen = choose.wished(SPLIT)
    if not choose.takes(SPLIT, (), apart < usual):
        remark = weighed(SPLIT, (), False, f"not taken: {split}; {said}", apart, usual, chosen)
        return replace(claims, remarks=(*claims.remarks, remark)), model, whole
    remark = weighed(SPLIT, (), True, f"{split}: {said}", apart, usual, chosen)
    return replace(claims, nest=split.nest, remarks=(*claims.remarks, remark)), other, parted


def _model(searches: Searches, nest: Nest, machine: Machine) -> Model:
    """The costs of a nest's kernels, on a GPU with the tiles that a product gets if it is alone."""
    tiled = partial(tiled_alone, machine=machine) if isinstance(machine, GpuMachine) else None
    return searches.models.of(nest, machine, tiled)


def _begun(nest: Nest, machine: Machine, fuse: bool) -> Schedule:
    """The order as written; on a GPU with what computes single values together."""
    schedule = Schedule(nest)
    return scalars_together(schedule) if fuse and isinstance(machine, GpuMachine) else schedule


def _starts(start: Schedule, open_: tuple[str, ...]) -> Starts:
    """The order as written, and those with its common loops taken apart: as written, and by what waits for what."""
    apart = separated(start, open_, 0)
    reordered = separated(in_waiting_order(apart, open_), open_, 0)
    starts = [start]
    starts += [s for s in (apart, reordered) if len(parts(s.tree)) > len(parts(starts[-1].tree))]
    return tuple(starts)


def grouped(
    start: Schedule,
    model: Model,
    fuse: bool,
    done: frozenset[str] = frozenset(),
    refused: KeptApart = frozenset(),
    choose: Choose = cheapest,
    alignments: Alignments | None = None,
) -> Grouped:
    """Statements in kernels: (schedule, decisions, statements of serial kernels that were put together).

    The search starts from the order as written and, where that puts statements into common loops, from the order with
    these loops taken apart, as they are written and by what waits for what. The cheapest result counts. Kernels of
    statements that are `done` stay as they are, and what runs once for all calls keeps the loops that it was written
    with. No kernel is made of a `refused` group.
    """
    early = early_statements(start.nest, start.tree)
    open_ = tuple(name for name in statements(start.nest.order) if name not in done | early)
    if not open_:
        return start, (), frozenset()
    known = Alignments(start.nest) if alignments is None else alignments
    starts = known.starts_of(start, open_, lambda: _starts(start, open_))
    found = [
        search(s, model, fuse, done, refused, choose, alignments) for s in (starts if fuse else starts[-1:])
    ]
    schedule, decisions = min(
        found, key=lambda one: sum(alone_cost(one[0].nest, model, part).total for part in parts(one[0].tree))
    )
    if not fuse:
        return schedule, decisions, frozenset()
    return with_joined(schedule, model, decisions, done, refused | kept_apart(choose))
