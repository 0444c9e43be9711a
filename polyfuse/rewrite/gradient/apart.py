"""Distribute the loops of a nest before it is reversed, so that adjoints of products have loops of their own.

    for i: { for j: y[i, j] *= b;   for k, j: y[i, j] += a[i, k] * w[k, j] }
    ->  for i: for j: y[i, j] *= b;     for i: for k, j: y[i, j] += a[i, k] * w[k, j]

The theorem (Kennedy & McKinley, LCPC 1993). A loop L around A; B runs A[l], B[l] for each l. Running all of A before
all of B reverses the order of B[l] and A[l'] with l < l' only, in one iteration of the loops around L. No dependence
goes from B to A there, so each read finds the value that it found before.

The adjoint of a loop holds the adjoints of all that is in it. In a loop of a product alone they are products, too. The
strategy fuses again what pays. A sum of several products is several sums first, each with adjoints of its own.
"""

from __future__ import annotations

from dataclasses import replace

import sympy

from polyfuse.ir import Nest, Statement
from polyfuse.ir.dependences import Pairs
from polyfuse.ir.scalar import reads_in
from polyfuse.ir.tree import Leaf, Loop, Tree, loops, sequence
from polyfuse.ir.tree import Sequence as Siblings
from polyfuse.rewrite.reductions.factor_out import factors
from polyfuse.rewrite.reductions.split_sum_terms import terms, terms_of, why_not_terms
from polyfuse.rewrite.storage.expansion import expand


def in_own_loops(nest: Nest) -> Nest:
    """Return the nest with loops distributed over their bodies, where no dependence runs back.

    Temporaries that several iterations reuse are expanded first, as they would tie the parts of a loop together.
    """
    if not any(isinstance(loop.body, Siblings) for loop in loops(nest.order)):
        return nest
    wide = expand(nest).nest
    order = _apart(wide.order, wide.dependences().among(wide.order.names))
    more = sum(1 for _ in loops(order)) > sum(1 for _ in loops(nest.order))
    return replace(wide, order=order) if more else nest


def with_products_apart(nest: Nest) -> Nest:
    """Return the nest with sums of several products as several sums (`split_sum_terms`).

    y[i, j] += a[i, k] * b[j, k] + b[i, k] * a[j, k]  ->  y[i, j] += a[i, k] * b[j, k];  y[i, j] += b[i, k] * a[j, k]
    """
    for s in nest.statements:
        if _is_sum_of_products(nest, s) and why_not_terms(nest, s.name) is None:
            nest = terms(nest, s.name).nest
    return nest


def _is_sum_of_products(nest: Nest, s: Statement) -> bool:
    """True if a statement adds several products of two or more reads in each of several steps."""
    if s.op != "+=" or not isinstance(s.body, sympy.Add):
        return False
    every = [sum(bool(reads_in(factor)) for factor in factors(term)) for term in terms_of(s.body)]
    return min(every) > 1 and not s.write.map.intersect_domain(nest.domains[s.name]).is_injective()


def _apart(tree: Tree, pairs: tuple[Pairs, ...]) -> Tree:
    """A part of the order, distributed; the pairs are those of one iteration of the loops around."""
    match tree:
        case Leaf():
            return tree
        case Siblings():
            return sequence(tuple(_apart(child, pairs) for child in tree.children))
        case Loop():
            inside = tuple(
                pair.inside(tree.date(pair.source), tree.date(pair.sink))
                for pair in pairs
                if {pair.source, pair.sink} <= tree.members
            )
            body = _apart(tree.body, inside)
            return sequence(tuple(_around(tree, run) for run in _runs(body, pairs)))


def _runs(body: Tree, pairs: tuple[Pairs, ...]) -> list[Tree]:
    """The parts of a loop's body that may have loops of their own, in their order."""
    every = body.children if isinstance(body, Siblings) else (body,)
    place = {name: position for position, child in enumerate(every) for name in child.names}
    back = [
        (place[pair.sink], place[pair.source])
        for pair in pairs
        if pair.kind != "reduction"
        and pair.sink in place
        and pair.source in place
        and place[pair.sink] < place[pair.source]
        and not pair.is_empty
    ]
    found: list[list[Tree]] = []
    for position, child in enumerate(every):
        if found and any(first < position <= last for first, last in back):
            found[-1].append(child)
        else:
            found.append([child])
    return [sequence(tuple(run)) for run in found]


def _around(loop: Loop, body: Tree) -> Loop:
    """The loop around some of its body."""
    dates = tuple((name, date) for name, date in loop.dates if name in body.members)
    return replace(loop, dates=dates, body=body)
