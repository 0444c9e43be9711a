"""Number the loops of sums by a subscript where this makes products of matrices of them, if that is cheaper.

for i: y[i, i:] = x[:, i] @ x[:, i:]     the sums y[i, j] of x[r, i] * x[r, j] are a product over a triangle, which
                                         gets tiles; those of x[r, i] * x[r, i + e] are one row times a matrix
                                         for each i, which is read from memory again
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import islpy as isl

from polyfuse.ir import Nest, Statement
from polyfuse.machine import Machine
from polyfuse.rewrite.reindex import Reindexed, reindex, renumbered_alone, why_not_reindex
from polyfuse.sets import IN, OUT, expression_text, merged_pieces
from polyfuse.strategy.candidates import Choose, cheapest
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.match.gemm import is_sum_of_products, products_of
from polyfuse.strategy.remarks import Remark
from polyfuse.strategy.rewrites.reductions.priced_alone import seconds_alone, taken_if_cheaper

PASS = "reindex"


def with_subscripts_as_indices(
    nest: Nest, machine: Machine, choose: Choose = cheapest
) -> tuple[Nest, tuple[Remark, ...]]:
    """The nest with sums renumbered that are products then, if that is cheaper; and a sentence on each."""
    said: list[Remark] = []
    for name in [s.name for s in nest.statements if is_sum_of_products(s)]:
        if products_of(nest, name, triangles=True, groups=True):
            continue
        done = next(_as_products(nest, nest.statement(name)), None)
        if done is None:
            continue
        taken, remark = taken_if_cheaper(
            PASS, name, str(done), partial(_prices, nest, done, name, machine), choose
        )
        said.append(remark)
        if taken:
            nest = done.nest
    return nest, tuple(said)


def _prices(nest: Nest, done: Reindexed, name: str, machine: Machine) -> tuple[float, float]:
    after = seconds_alone(done.nest, (name,), machine) * Counts(done.nest).filled(name)
    return seconds_alone(nest, (name,), machine), after


def _as_products(nest: Nest, s: Statement) -> Iterator[Reindexed]:
    """The nests in which a sum is a product, as one of its subscripts is an index."""
    for access in s.reads:
        subscripts = access.subscripts()
        for axis in range(access.map.dim(OUT)):
            value = merged_pieces(subscripts.get_pw_aff(axis))
            moving = [d for d in range(len(s.dims)) if value.involves_dims(IN, d, 1)]
            if value.n_piece() != 1 or len(moving) < 2:
                continue
            ((_, number),) = value.get_pieces()  # without its domain: outside it the statement does not run
            for d in reversed(moving):
                how = s.dims[d], expression_text(isl.PwAff.from_aff(number))
                tried = renumbered_alone(nest, s.name, *how)
                if tried is None or not products_of(tried, s.name):
                    continue
                if why_not_reindex(nest, s.name, *how) is None:
                    done = reindex(nest, s.name, *how)
                    if products_of(done.nest, s.name):  # not if a temporary keeps its places
                        yield done
