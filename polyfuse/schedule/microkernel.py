"""The verb that keeps a product's sums in registers while the contraction runs: microkernel.

    for k: for r: for c: y[r, c] += a[r, k] * b[k, c]   ->   one operation on a tile of sums
    for k: for c: y[c] += a[k] * b[k, c]                ->   one operation on a row of sums

It changes no order (every sum is added up over k as before), so nothing can be illegal; what it needs is the shape, and
a refusal says what the shape lacks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import islpy as isl
import sympy

from polyfuse.analysis.storage import buffers_of
from polyfuse.errors import InvalidSchedule
from polyfuse.ir.access import Access
from polyfuse.ir.nest import Nest
from polyfuse.ir.scalar import Read
from polyfuse.ir.tree import Leaf, Loop, Tree, loops_around, replace_node
from polyfuse.schedule.binding import extent
from polyfuse.schedule.chains import chain_from, loop_named
from polyfuse.sets import OUT, points

MOST_SUMS = 512
"""Sums of a tile at most, in whole vectors: 8 x 64 floats are all 32 registers of a CPU with 64-byte vectors."""


@dataclass(frozen=True)
class Roles:
    """Which loop of a product does what, and which of the two reads is the one whose rows are broadcast.

    A product of one row has no loop of rows.
    """

    steps: Loop
    rows: Loop | None
    columns: Loop
    left: int
    right: int


def microkernel(nest: Nest, tree: Tree, statement: str, loop: str) -> Tree:
    """for k: for r: for c: y += a * b  ->  a tile of r x c sums in registers, all steps of k."""
    found = loop_named(tree, statement, loop)
    roles_of(nest, tree, statement, found)
    return replace_node(tree, found, replace(found, bind="microkernel", apart=True))


def roles_of(nest: Nest, tree: Tree, statement: str, top: Loop) -> Roles:
    """What the loops of a product are. Raises InvalidSchedule, saying what does not fit."""

    def refuse(why: str) -> InvalidSchedule:
        return InvalidSchedule(f"microkernel: {why}, at loop {top.name} around {statement}")

    chain = chain_from(top)
    s = nest.statement(statement)
    if len(chain) not in (2, 3) or not isinstance(chain[-1].body, Leaf):
        raise refuse(
            "needs perfectly nested loops (steps, rows, columns), or for one row (steps, columns), around one statement"
        )
    if any(x.bind for x in chain):
        raise refuse("one of the loops is bound already")
    product = (
        isinstance(s.body, sympy.Mul)
        and len(s.body.args) == 2
        and all(isinstance(f, Read) for f in s.body.args)
    )
    if s.op != "+=" or not product or len(s.reads) != 2:
        raise refuse("needs a sum of products of two reads")
    if not nest.tensor(s.write.tensor).dtype.startswith("float"):
        raise refuse(
            f"needs floating-point numbers, and {s.write.tensor} is {nest.tensor(s.write.tensor).dtype}"
        )
    steps = [x for x in chain if _moves(nest, tree, statement, s.write, x) is None]
    if len(steps) != 1 or steps[0] is not top:
        raise refuse("the outermost of the loops must be the one that the sum does not depend on")
    pairs: tuple[tuple[Loop | None, Loop], ...] = ((None, chain[1]),)
    if len(chain) == 3:
        pairs = (chain[1], chain[2]), (chain[2], chain[1])
    for rows, columns in pairs:
        for left, right in ((0, 1), (1, 0)):
            roles = Roles(top, rows, columns, left, right)
            if _fits(nest, tree, statement, roles):
                _checked_extents(nest, roles, s.write.tensor, refuse)
                return roles
    raise refuse("needs y[rows, columns] += a[rows, steps] * b[steps, columns] with columns along last axes")


def _fits(nest: Nest, tree: Tree, statement: str, roles: Roles) -> bool:
    s = nest.statement(statement)
    a, b = s.reads[roles.left], s.reads[roles.right]

    def axis(access: Access, loop: Loop) -> int | None:
        return _moves(nest, tree, statement, access, loop)

    last = _lanes(tree, b)
    rows_fit = roles.rows is None or (
        axis(s.write, roles.rows) not in (None, s.write.map.dim(OUT) - 1)
        and axis(a, roles.rows) not in (None, axis(a, roles.steps))
        and axis(b, roles.rows) is None
    )
    return (
        rows_fit
        and axis(s.write, roles.columns) == s.write.map.dim(OUT) - 1
        and axis(a, roles.steps) is not None
        and axis(a, roles.columns) is None
        and axis(b, roles.columns) == last
        and axis(b, roles.steps) not in (None, last)
    )


def _lanes(tree: Tree, access: Access) -> int:
    """The axis whose elements are neighbours in memory: the last one, or that of the panels it lies in."""
    held = (buffer for _, buffer in buffers_of(tree) if buffer.tensor == access.tensor)
    panel = next((buffer.panel for buffer in held), None)
    return access.map.dim(OUT) - 1 if panel is None else panel.axis


def _checked_extents(nest: Nest, roles: Roles, tensor: str, refuse: Callable[[str], InvalidSchedule]) -> None:
    columns, itemsize = extent(nest, roles.columns), nest.tensor(tensor).itemsize
    if roles.rows is None:
        if columns is None or padded(columns, itemsize) != columns or columns > MOST_SUMS:
            raise refuse(f"needs at most {MOST_SUMS} sums of one row in whole vectors, not {columns}")
        return
    rows = extent(nest, roles.rows)
    if rows is None or columns is None or rows * padded(columns, itemsize) > MOST_SUMS or rows < 2:
        raise refuse(
            f"needs a tile of at least 2 rows and at most {MOST_SUMS} sums in whole vectors, not {rows} x {columns}"
        )


def padded(columns: int, itemsize: int) -> int:
    """The columns of as many whole vectors as hold these: vectors of 64 bytes, or one of 32 or 16."""
    if columns * itemsize <= 16:
        return 16 // itemsize
    if columns * itemsize <= 32:
        return 32 // itemsize
    return -(-columns * itemsize // 64) * 64 // itemsize


def _moves(nest: Nest, tree: Tree, statement: str, access: Access, loop: Loop) -> int | None:
    """The one axis along which an access moves by one element when the loop goes on by one; None if it stays.

    Raises InvalidSchedule if it moves otherwise.
    """
    around = loops_around(tree, statement)
    domain = nest.domains[statement]
    following = isl.Map.from_domain_and_range(domain, domain)
    for other in around:
        date = other.date(statement)
        later = date.add_constant_val(isl.Val(1)) if other is loop else date
        following = following.intersect(later.eq_map(date))
    moved = following.apply_domain(access.map).apply_range(access.map).deltas()
    if moved.is_empty():
        return None
    steps = list(points(moved.project_out(isl.dim_type.param, 0, moved.dim(isl.dim_type.param)).coalesce()))
    if len(steps) != 1 or any(value not in (0, 1) for value in steps[0]) or sum(steps[0]) > 1:
        raise InvalidSchedule(f"microkernel: {access} does not move by one element along {loop.name}")
    return steps[0].index(1) if 1 in steps[0] else None
