"""Compute a complex product as a real one if that is cheaper: sums over pairs of numbers have no register tiles.

The price has the copy of one factor's numbers as blocks, and the sums that are added to the result.
"""

from __future__ import annotations

from functools import partial

from polyfuse.ir import Nest
from polyfuse.machine import Machine
from polyfuse.rewrite.reductions.complex_products import RealProduct, real_product, why_not_real_product
from polyfuse.strategy.candidates import Choose, cheapest
from polyfuse.strategy.match.gemm import products_of
from polyfuse.strategy.remarks import Remark
from polyfuse.strategy.rewrites.reductions.priced_alone import seconds_alone, taken_if_cheaper

PASS = "complex products"


def with_real_products(
    nest: Nest, machine: Machine, choose: Choose = cheapest
) -> tuple[Nest, tuple[Remark, ...]]:
    """The nest with complex products as real ones where that is cheaper, and a sentence on each."""
    said: list[Remark] = []
    asked: set[str] = set()
    for name in [s.name for s in nest.statements if s.op == "+="]:
        if name in asked or why_not_real_product(nest, name) is not None:
            continue
        done = real_product(nest, name)
        asked |= set(done.statements)
        if not products_of(done.nest, done.product):
            continue
        taken, remark = taken_if_cheaper(
            PASS,
            name,
            str(done),
            partial(_prices, nest, done, machine),
            choose,
            "as two sums",
            (done.product,),
        )
        said.append(remark)
        if taken:
            nest = done.nest
    return nest, tuple(said)


def _prices(nest: Nest, done: RealProduct, machine: Machine) -> tuple[float, float]:
    becomes = (*done.blocks, done.product, *done.around)
    return seconds_alone(nest, done.statements, machine), seconds_alone(done.nest, becomes, machine)
