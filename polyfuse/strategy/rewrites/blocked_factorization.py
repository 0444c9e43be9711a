"""Run eliminations in blocks of steps if this is cheaper: LU and Cholesky as panels and products.

    for i: for j: for k: A[i, j] -= A[i, k] * A[k, j]; …   ->   for b: { the block's corner; below; right; a product }

The elements that statements make say what rows and columns are, what sums read the steps, and `rewrite.panels` makes
the blocks. Their sizes are what the model compares: a product wants many steps, panels, which run in vectors, few.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce

import islpy as isl
import sympy

from polyfuse.errors import IllegalRewrite
from polyfuse.ir import Nest, Statement
from polyfuse.ir.tree import Loop, parts, statements
from polyfuse.machine import Machine
from polyfuse.rewrite.reductions.in_place import in_place_at_all_sizes
from polyfuse.rewrite.tiling.blocked_factorization import LOOPS, panels
from polyfuse.sets import IN, single_expression
from polyfuse.strategy.cost.counts import stride
from polyfuse.strategy.driver import Candidate, Start
from polyfuse.strategy.fusion.group_search import KeptApart
from polyfuse.strategy.remarks import Reason, Remark

PASS = "blocked factorization"

SIZES = (32, 64)
"""Steps of a block. LU of 2000 x 2000 float64 numbers took 71 ms with 32, 77 with 48, 85 with 64, 97 with 96 and 113
with 128, of 500 x 500 1.8 with 16 and 2.2 with 32; Cholesky of 2000 37 to 39 with 32, 64 and 96 (one Zen 5 core,
before rows below a block took turns)."""

AXES = 0, 1
"""The axes of a matrix: its rows and its columns."""


@dataclass(frozen=True)
class InPanels:
    """A nest whose eliminations run in blocks, a sentence on each, and what is to be in no kernel with them: all else.

    A solver that reads LU's result row by row would wait in its loop over blocks, and be no loop of its own. `refused`
    are remarks on those that cannot run in such blocks; where nothing can, there is nothing `said`.
    """

    nest: Nest
    size: int
    said: tuple[str, ...]
    refused: tuple[Remark, ...]
    alone: KeptApart


def candidates(start: Start) -> Iterator[Candidate | Remark]:
    """The nest with its eliminations in blocks of each size, and why others do not run so."""
    for made in in_panels(start.nest, start.model_machine):
        yield from made.refused
        if made.said:
            changed = replace(start, nest=made.nest, apart=start.apart | made.alone)
            yield Candidate(changed, made.said, "in loops", name=f"{made.size} steps")


def in_panels(nest: Nest, machine: Machine) -> Iterator[InPanels]:
    """The nest with its eliminations in blocks of each size. On a CPU: elsewhere products have other tiles."""
    if machine.kind != "cpu":
        return
    start, found = nest, _eliminations(nest)
    if not found:
        start = in_place_at_all_sizes(nest)
        found = _eliminations(start) if start is not nest else {}
    for size in SIZES if found else ():
        done, said, refused, updates = start, list[str](), list[Remark](), set[str]()
        for dates in found.values():
            names = ", ".join(dates)
            try:
                made = panels(done, dates, size)
            except IllegalRewrite as error:
                line = f"{names} do not run in blocks of {size} steps: {error.refusal.why}."
                refused.append(Remark(PASS, tuple(dates), False, Reason.ILLEGAL, line))
                continue
            done, updates = made.nest, updates.union(made.updates)
            said.append(f"{names} run in {made}")
        yield InPanels(done, size, tuple(said), tuple(refused), _alone(done, updates))


def _alone(nest: Nest, updates: set[str]) -> KeptApart:
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
    """The dates of the statements of each part that is an elimination."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for part in parts(nest.order):
        own = [nest.statement(name) for name in statements(part)]
        main = next((s for s in own if _eliminates(nest, s)), None)
        if main is None or not isinstance(part, Loop):
            continue
        dates = _dates(nest, main, own)
        if dates is not None:
            found[statements(part)] = dates
    return found


def _eliminates(nest: Nest, s: Statement) -> bool:
    """True if a sum of products reads the matrix that it makes: A[i, j] += a * b, where a or b is an element of A."""
    product = isinstance(s.body, sympy.Mul) and len(s.body.args) == 2
    matrix = nest.tensor(s.write.tensor).rank == len(AXES)
    return s.op == "+=" and product and matrix and len(s.dims) == LOOPS and _step(s) is not None


def _dates(nest: Nest, main: Statement, own: list[Statement]) -> dict[str, str] | None:
    """Rows, columns, steps and places of a part's statements; None if one makes something else.

    Rows and columns are those of the element that a statement makes, steps those of what a sum reads in its row or
    column: A[i, j] -= A[i, k] * A[k, j] at (i, j, k). What is no sum is done with its element's last step, as A[i, j]
    is divided by A[j, j] at (i, j, j). Places only decide between instances whose dates agree, of which an elimination
    has none. What the innermost loop along memory meets first comes first: sums along their steps, else the others.
    """
    if any(s.write.tensor != main.write.tensor for s in own):
        return None
    found = ((s, _step(s)) for s in own if s.is_reduction)
    sums = [(s, step) for s, step in found if step is not None]
    steps = {s.name: step for s, step in sums}
    behind = [axis for axis in AXES if all(_is_behind(nest, s, axis, step) for s, step in sums)]
    if not behind:
        return None
    along = max(range(LOOPS), key=lambda d: [stride(a, d) for a in main.accesses].count(1))
    sums_first = not any(
        main.write.subscripts().get_pw_aff(axis).involves_dims(IN, along, 1) for axis in AXES
    )
    names = sorted((s.name for s in own), key=lambda name: (name in steps) != sums_first)
    dates = {}
    for s in own:
        at = [s.write.subscripts().get_pw_aff(axis) for axis in AXES]
        step = steps[s.name] if s.name in steps else reduce(isl.PwAff.min, (at[axis] for axis in behind))
        texts = [single_expression(value.gist(nest.domains[s.name])) for value in (*at, step)]
        if None in texts:
            return None
        dates[s.name] = f"[{', '.join(map(str, texts))}, {names.index(s.name)}]"
    return dates


def _step(s: Statement) -> isl.PwAff | None:
    """The step of a sum: where along its row, or its column, an element of its matrix lies that it reads."""
    made = s.write.subscripts()
    for read in (access.subscripts() for access in s.reads if access.tensor == s.write.tensor):
        apart = [axis for axis in AXES if not read.get_pw_aff(axis).is_equal(made.get_pw_aff(axis))]
        if len(apart) == 1:
            return read.get_pw_aff(apart[0])
    return None


def _is_behind(nest: Nest, s: Statement, axis: int, step: isl.PwAff) -> bool:
    """True if a sum's elements are nowhere before its steps along an axis."""
    before = s.write.subscripts().get_pw_aff(axis).lt_set(step)
    return bool(nest.domains[s.name].is_disjoint(before))
