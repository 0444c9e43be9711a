"""Compute half of a symmetric product if that is cheaper: y = a @ a.T  ->  y below the diagonal, and a copy above it.

BLAS has a function for it (syrk), which NumPy calls where both factors are one array. The price of a product in tiles
is that of the box around its results, of which the half fills one.
"""

from __future__ import annotations

from functools import partial

from polyfuse.ir import Nest
from polyfuse.machine import Machine
from polyfuse.rewrite.reductions.symmetric_sums import Mirrored, mirror, why_not_mirror
from polyfuse.strategy.candidates import Choose, cheapest
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.match.gemm import products_of
from polyfuse.strategy.remarks import Remark
from polyfuse.strategy.rewrites.reductions.priced_alone import seconds_alone, taken_if_cheaper

PASS = "symmetric sums"


def with_halves(nest: Nest, machine: Machine, choose: Choose = cheapest) -> tuple[Nest, tuple[Remark, ...]]:
    """The nest with half of each symmetric product copied, if that is cheaper; and a sentence on each."""
    said: list[Remark] = []
    for name in [s.name for s in nest.statements] if machine.kind == "cpu" else ():
        if not products_of(nest, name) or why_not_mirror(nest, name) is not None:
            continue
        done = mirror(nest, name)
        taken, remark = taken_if_cheaper(
            PASS,
            name,
            str(done),
            partial(_prices, nest, done, name, machine),
            choose,
            "whole",
            (name, done.copy),
        )
        said.append(remark)
        if taken:
            nest = done.nest
    return nest, tuple(said)


def _prices(nest: Nest, done: Mirrored, name: str, machine: Machine) -> tuple[float, float]:
    half = seconds_alone(done.nest, (name,), machine) * Counts(done.nest).filled(name)
    return seconds_alone(nest, (name,), machine), half + seconds_alone(done.nest, (done.copy,), machine)
