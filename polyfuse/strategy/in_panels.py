"""Eliminations in blocks of steps, where that is cheaper: LU and Cholesky as panels and products.

    for i: for j: for k: A[i, j] -= A[i, k] * A[k, j]; …   ->   for b: { the block's corner; below; right; a product }

isl's order gives the rows, columns and steps of all statements (isl_order.py), and `rewrite.panels` the blocks. Their
sizes are what the model compares: a product wants many steps, panels, which run in vectors along memory, few.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import sympy

from polyfuse.errors import IllegalRewrite
from polyfuse.ir import Nest, Statement
from polyfuse.ir.tree import Loop, Tree, parts, statements
from polyfuse.machine import Machine
from polyfuse.rewrite.in_place import in_place
from polyfuse.rewrite.panels import panels
from polyfuse.strategy.contraction import moved_axes
from polyfuse.strategy.counts import stride
from polyfuse.strategy.fusion import Refused
from polyfuse.strategy.isl_order import found_by_isl

SIZES = (32, 64)
"""Steps of a block. LU of 2000 x 2000 float64 numbers took 71 ms with 32, 77 with 48, 85 with 64, 97 with 96 and 113
with 128, of 500 x 500 1.8 with 16 and 2.2 with 32; Cholesky of 2000 37 to 39 with 32, 64 and 96 (one Zen 5 core)."""

LOOPS = 3


@dataclass(frozen=True)
class InPanels:
    """A nest whose eliminations run in blocks, a sentence on each, and what is to be in no kernel with them: all else.

    A solver that reads LU's result row by row would wait in its loop over blocks, and be no loop of its own.
    """

    nest: Nest
    said: tuple[str, ...]
    alone: Refused


def in_panels(nest: Nest, machine: Machine) -> Iterator[InPanels]:
    """The nest with its eliminations in blocks of each size. On a CPU: elsewhere products have other tiles."""
    if machine.kind != "cpu":
        return
    start, found = nest, _eliminations(nest)
    if not found:
        general, sizes = nest.general
        placed = in_place(general)
        start = placed.with_sizes(sizes) if sizes else placed
        found = _eliminations(start) if placed is not general else {}
    for size in SIZES if found else ():
        done, said, updates = start, list[str](), set[str]()
        for dates in found.values():
            try:
                made = panels(done, dates, size)
            except IllegalRewrite:
                continue
            done, updates = made.nest, updates.union(made.updates)
            said.append(f"{', '.join(dates)} run in {made}")
        if said:
            yield InPanels(done, tuple(said), _alone(done, updates))


def _alone(nest: Nest, updates: set[str]) -> Refused:
    """Each statement of an elimination with each one of another part: no kernel is to hold both."""
    every = [set(statements(part)) for part in parts(nest.order)]
    mine = [own for own in every if not own.isdisjoint(updates)]
    return frozenset(
        frozenset((one, other))
        for own in mine
        for others in every
        if others is not own
        for one in own
        for other in others
    )


def _eliminations(nest: Nest) -> dict[tuple[str, ...], dict[str, str]]:
    """The dates of the statements of each part that isl has rows, columns and steps for."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for part in parts(nest.order):
        own = [nest.statement(name) for name in statements(part)]
        main = next((s for s in own if _eliminates(s)), None)
        if main is None or not isinstance(part, Loop):
            continue
        dates = _dates(nest, part, main, own)
        if dates is not None:
            found[statements(part)] = dates
    return found


def _eliminates(s: Statement) -> bool:
    """Whether a sum of products reads what it makes: A[i, j] += a * b, where a or b is an element of A."""
    product = isinstance(s.body, sympy.Mul) and len(s.body.args) == 2
    reads = any(access.tensor == s.write.tensor for access in s.reads)
    return s.op == "+=" and product and reads and len(s.dims) == LOOPS


def _dates(nest: Nest, part: Tree, main: Statement, own: list[Statement]) -> dict[str, str] | None:
    """Rows, columns, steps and places in isl's order of a part; None where it has another form.

    isl's places only decide between instances whose dates agree, of which an elimination has none. What the innermost
    loop along memory meets first comes first: sums that run along their steps, and what waits for a sum before it.
    """
    order = found_by_isl(nest, part)
    if isinstance(order, str):
        return None
    dates = {name: text.strip("[]").split(", ") for name, text in order.dates.items()}
    written = moved_axes(main.write, LOOPS) or {}
    steps = [d for d in range(LOOPS) if d not in written]
    if any(len(date) != LOOPS + 1 for date in dates.values()) or len(steps) != 1:
        return None
    at = next((p for p, date in enumerate(dates[main.name]) if date == main.dims[steps[0]]), None)
    if at is None:
        return None
    along = max(range(LOOPS), key=lambda d: [stride(a, d) for a in main.accesses].count(1))
    sums_first = along == steps[0]
    names = sorted(dates, key=lambda name: nest.statement(name).is_reduction != sums_first)
    return {
        s.name: f"[{', '.join([*(d for p, d in enumerate(dates[s.name][:LOOPS]) if p != at), dates[s.name][at]])}, "
        f"{names.index(s.name)}]"
        for s in own
    }
