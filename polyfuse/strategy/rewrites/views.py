"""Compose views into their users, except where a copy is cheaper.

A product that reads x[k // 8, k % 8], or whose steps come from two tensors, is no longer of the form that runs in
blocks for the caches; beside a large one a copy is cheap. A copy in loops that it shares with its users moves nothing
through memory.
"""

from __future__ import annotations

from polyfuse.ir import Nest, Statement
from polyfuse.ir.tree import parts, statements
from polyfuse.machine import CpuMachine, Machine
from polyfuse.measure import duration
from polyfuse.rewrite import Composed, compose_views
from polyfuse.rewrite.views.flow import is_view
from polyfuse.strategy.candidates import Choose, cheapest
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.roofline import TILE_EFFICIENCY
from polyfuse.strategy.fusion.group_search import early_statements
from polyfuse.strategy.match.gemm import products_of
from polyfuse.strategy.remarks import Reason, Remark, applied, refused

PASS = "views"


def without_copies(
    nest: Nest, machine: Machine, choose: Choose = cheapest
) -> tuple[Nest, tuple[Remark, ...]]:
    """The nest with its views composed, and a sentence on each of them; the same nest if there are none."""
    alone = {statements(part)[0] for part in parts(nest.order) if len(statements(part)) == 1}
    if not any(is_view(s) and s.reads and s.name in alone for s in nest.statements):
        return nest, ()
    early = early_statements(nest, nest.order)
    filled = [s.write.tensor for s in nest.statements]
    keep = {
        s.name: f"{s.write.tensor} is put together once for all calls"
        for s in nest.statements
        if s.name in early and filled.count(s.write.tensor) > 1
    }
    keep |= {
        s.name: f"{s.name} shares its loops with others, which have its value at hand"
        for s in nest.statements
        if s.name not in alone
    }

    def accept(before: Nest, done: Composed) -> str | None:
        if not choose.asks(PASS, done.statements):
            return "a wish keeps it"
        return None if choose.forces(PASS, done.statements) else _why_keep(before, done, machine)

    views = compose_views(nest, accept, keep)
    return views.nest, (
        *(applied(PASS, made.statements, f"{made}.") for made in views.composed),
        *(refused(PASS, (), Reason.DEARER, str(kept)) for kept in views.kept),
    )


def _why_keep(before: Nest, done: Composed, machine: Machine) -> str | None:
    """The reason why a copy is cheaper; None if it is not."""
    lost = [
        s
        for s in before.statements
        if s.name in done.into
        and products_of(before, s.name)
        and (len(done.into[s.name]) > 1 or not products_of(done.nest, done.into[s.name][0]))
    ]
    if not lost:
        return None
    if not isinstance(machine, CpuMachine):
        chosen = any(
            before.tensor(a.tensor).gather for n in done.statements for a in before.statement(n).reads
        )
        names = ", ".join(s.name for s in lost)
        return f"{names} would no longer run in register tiles" if chosen else None
    slower = sum(_seconds_lost(before, s, machine) for s in lost)
    copies = [before.statement(name) for name in done.statements]
    copying = _seconds_copying(before, copies, machine)
    if slower <= copying:
        return None
    names = ", ".join(s.name for s in lost)
    return (
        f"{names} would no longer run in blocks, about {duration(slower)} slower, and the copy takes "
        f"{duration(copying)}"
    )


def _seconds_lost(nest: Nest, s: Statement, machine: CpuMachine) -> float:
    flops = Counts(nest).work(s.name).flops
    peak = machine.peak(nest.tensor(s.write.tensor).itemsize, machine.units)
    return flops / (machine.loops * peak) - flops / (peak * TILE_EFFICIENCY)


def _seconds_copying(nest: Nest, copies: list[Statement], machine: Machine) -> float:
    counts = Counts(nest)
    moved = sum(2 * counts.work(s.name).instances * nest.tensor(s.write.tensor).itemsize for s in copies)
    level = machine.level(counts.total_bytes)
    return moved / machine.bandwidth(level, machine.units) + machine.launch_seconds * len(copies)
