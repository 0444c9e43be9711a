"""Pack the factors of a product in panels: whole for all calls or by all cores, or in parts inside the product's
loops.
"""

from __future__ import annotations

from math import gcd

import islpy as isl

from polyfuse.ir.tree import Loop
from polyfuse.schedule import Schedule
from polyfuse.schedule.binding import extent
from polyfuse.sets import IN
from polyfuse.strategy.cost.counts import dims_of
from polyfuse.strategy.cost.roofline import CACHED
from polyfuse.strategy.cpu.gemm.blocks import Blocking, Task
from polyfuse.strategy.cpu.gemm.problem import Question
from polyfuse.strategy.match.gemm import Factor, Product, step_along
from polyfuse.strategy.transforms.packing import added, packed, packed_by_cores, packed_once, rows_asked_for

Panel = tuple[int, int]
"""The axis of a tensor along which its panels lie, and their width."""


def with_panels(
    schedule: Schedule, question: Question, task: Task, b: Blocking, block: str | None, rows: str
) -> Schedule:
    """The operands in panels: whole and ahead, or a block of b and a tile's rows of a at a time.

    `block` is the loop over blocks of b, if there are several parts of it, and `rows` the one over tiles of rows.
    """
    p, name = question.product, question.product.statement
    left, right = _panels(p, b)
    before = schedule
    if b.pack_right and task.right.ahead:
        shared = task.right.by_cores or (not task.right.fixed and task.machine.units > 1)
        pack = packed_by_cores if shared else packed_once
        schedule = pack(schedule, p.right.name, name, right)
    elif b.pack_right and block is not None:
        schedule = packed(schedule, p.right.name, name, block, right)
    if not task.right.fixed and _comes_in_parts_of_rows(question):
        for copy in added(before, schedule):
            schedule = rows_asked_for(schedule, p.right.access.tensor, copy)
    if b.pack_left and task.left.fixed:
        return packed_once(schedule, p.left.name, name, left)
    panel = None if task.left.contiguous else left
    return packed(schedule, p.left.name, name, rows, panel) if b.pack_left else schedule


def packed_inside(product: Product, task: Task, b: Blocking) -> dict[str, Panel]:
    """The panels of the tensors that are packed inside of the product's loops."""
    packed = ((b.pack_left, task.left, product.left), (b.pack_right, task.right, product.right))
    return {
        factor.access.tensor: panel
        for (packs, operand, factor), panel in zip(packed, _panels(product, b), strict=True)
        if packs and not operand.ahead
    }


def _panels(product: Product, b: Blocking) -> tuple[Panel, Panel]:
    """The panels of each factor, the left one first."""
    left, right = product.left, product.right
    return _panel(left, product.rows, b.rows), _panel(right, product.columns, b.columns)


def within_rows_of_panels(schedule: Schedule, name: str, inner: Loop, panel: Panel) -> Schedule:
    """A loop of what gives values in panels split in pieces that lie in one row of a panel each.

    Panels of 16 along 56i + j: for i: for j: x_rows[…]  ->  for i: for j (8 at a time): for j_in: x_rows[…]

    Number by number, each with a quotient and a remainder, 16 x 112 x 112 numbers took 640 of a product's 1180 µs, and
    30 so (one Zen 3 core).
    """
    axis, size = panel
    value = schedule.nest.statement(name).write.subscripts().get_pw_aff(axis)
    if value.n_piece() != 1:
        return schedule
    ((_, at),) = value.get_pieces()
    dims = dims_of(inner.date(name))
    if len(dims) != 1 or at.dim(isl.dim_type.div) or not at.get_coefficient_val(IN, *dims).is_one():
        return schedule
    others = (at.get_coefficient_val(IN, d) for d in range(at.dim(IN)) if d not in dims)
    width = gcd(size, *(int(step.to_python()) for step in (*others, at.get_constant_val())))
    if not 1 < width < (extent(schedule.nest, inner) or 0):
        return schedule
    return schedule.split(name, inner.name, width)


def _panel(factor: Factor, dim: int, size: int) -> Panel:
    """The axis of a factor that a dimension moves along, and the width of a panel there for so many of its values.

    6 pixels of x[m, 2k, 2l] along l take 12 numbers of a row of x. A factor's value moves by one along its own axes.
    """
    axis = factor.axes[dim]
    return axis, size * (1 if factor.by_value else step_along(factor.access, dim, axis))


def _comes_in_parts_of_rows(question: Question) -> bool:
    """True if blocks of b are parts of rows of a tensor in memory that comes from behind L2."""
    p = question.product
    if p.right.computed or question.held <= question.machine.levels[CACHED].size:
        return False
    right = question.schedule.nest.tensor(p.right.access.tensor)
    return right.role != "gathered" and p.right.axes[p.columns] == right.rank - 1 > 0
