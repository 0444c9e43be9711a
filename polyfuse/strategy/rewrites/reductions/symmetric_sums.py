"""Compute half of a symmetric product if that is cheaper: y = a @ a.T  ->  y below the diagonal, and a copy above it.

BLAS has a function for it (syrk), which NumPy calls where both factors are one array. The price of a product in tiles
is that of the box around its results, of which the half fills one.
"""

from __future__ import annotations

from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir import Nest
from polyfuse.machine import Machine
from polyfuse.rewrite.reductions.symmetric_sums import mirror, why_not_mirror
from polyfuse.strategy.candidates import Choose, cheapest
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.roofline import microseconds
from polyfuse.strategy.match.gemm import products_of
from polyfuse.strategy.remarks import Reason, Remark, refused, weighed
from polyfuse.strategy.rewrites.reductions.split_sum_terms import seconds_alone

PASS = "symmetric sums"


def with_halves(nest: Nest, machine: Machine, choose: Choose = cheapest) -> tuple[Nest, tuple[Remark, ...]]:
    """The nest with half of each symmetric product copied, if that is cheaper; and a sentence on each."""
    said: list[Remark] = []
    for name in [s.name for s in nest.statements] if machine.kind == "cpu" else ():
        if not products_of(nest, name) or why_not_mirror(nest, name) is not None:
            continue
        done = mirror(nest, name)
        try:
            before = seconds_alone(nest, (name,), machine)
            half = seconds_alone(done.nest, (name,), machine) * Counts(done.nest).filled(name)
            after = half + seconds_alone(done.nest, (done.copy,), machine)
        except (IllegalSchedule, InvalidSchedule) as error:
            said.append(refused(PASS, (name,), Reason.ILLEGAL, f"not taken: {done}; {error}"))
            continue
        chosen = choose.wished(PASS, (name,))
        numbers = f"{microseconds(after)} so, {microseconds(before)} whole"
        taken = choose.takes(PASS, (name,), after < before)
        if taken:
            nest = done.nest
        line = f"{'' if taken else 'not taken: '}{done}: {numbers}."
        said.append(
            weighed(PASS, (name, done.copy) if taken else (name,), taken, line, after, before, chosen)
        )
    return nest, tuple(said)
