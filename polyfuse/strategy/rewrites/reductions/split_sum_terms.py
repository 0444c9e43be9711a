"""Split sums of several products into several sums, each of which runs in blocks: y += a b + c d  ->  y += a b;  y += c
d.

A tile of sums takes one product at a time. The sums then come and go once more for each term, which the model prices.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from polyfuse.ir import Nest, Statement
from polyfuse.machine import Machine
from polyfuse.rewrite.reductions.split_sum_terms import Terms, one_for_each_term, terms, why_not_terms
from polyfuse.strategy.candidates import Choose, cheapest
from polyfuse.strategy.match.gemm import products_of
from polyfuse.strategy.remarks import Remark
from polyfuse.strategy.rewrites.reductions.priced_alone import seconds_alone, taken_if_cheaper

PASS = "split sum terms"


def with_terms_apart(
    nest: Nest, machine: Machine, choose: Choose = cheapest
) -> tuple[Nest, tuple[Remark, ...]]:
    """The nest with the terms of sums apart that all are products, if that is cheaper; and a sentence on each."""
    said: list[Remark] = []
    for name in [s.name for s in nest.statements] if machine.kind == "cpu" else ():
        if why_not_terms(nest, name) is not None or not _are_products(nest, one_for_each_term(nest, name)):
            continue
        done = terms(nest, name)
        taken, remark = taken_if_cheaper(
            PASS,
            name,
            str(done),
            partial(_prices, nest, done, name, machine),
            choose,
            "as one",
            done.statements,
        )
        said.append(remark)
        if taken:
            nest = done.nest
    return nest, tuple(said)


def _are_products(nest: Nest, terms: tuple[Statement, ...]) -> bool:
    """True if all of some terms are products: asked before the nest with them apart, whose dependences cost more."""
    alone = replace(nest, statements=terms)
    return all(products_of(alone, each.name) for each in terms)


def _prices(nest: Nest, done: Terms, name: str, machine: Machine) -> tuple[float, float]:
    return seconds_alone(nest, (name,), machine), seconds_alone(done.nest, done.statements, machine)
