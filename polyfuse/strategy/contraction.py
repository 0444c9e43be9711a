"""What a product is: a contraction y[rows, columns] += a[rows, steps] * b[steps, columns], read off a statement.

A factor is a read, or a value of reads and numbers that depends on its part of the dimensions alone:
(alpha * A[i, k]) * B[k, j]. Such a value is computed while it is packed, once for each element of a panel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import islpy as isl
import sympy

from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.scalar import Read, reads_in
from polyfuse.ir.text import value_text
from polyfuse.schedule.promotion import value_dims
from polyfuse.sets import IN, OUT, SET


@dataclass(frozen=True)
class Factor:
    """One side of a product: what `promote` is asked for, the read that moves with all of its dimensions.

    `axes` gives for each of these dimensions the axis of what is promoted.
    """

    name: str
    access: Access
    computed: bool
    axes: Mapping[int, int]


@dataclass(frozen=True)
class Product:
    """Which dimension of a statement and which factor does what; `others` are dimensions of y that are batches.

    Columns lie along y's last axis. A batch moves both factors, or a alone: y[t, i, j] += a[t, i, k] * b[k, j] has the
    rows i of each t. Of several dimensions that move a alone, the rows are y's last one.
    """

    statement: str
    rows: int
    columns: int
    steps: int
    others: tuple[int, ...]
    left: Factor
    right: Factor


def product_of(nest: Nest, name: str) -> Product | None:
    """The statement as a product; None if it is none."""
    s = nest.statement(name)
    if s.op != "+=" or not isinstance(s.body, sympy.Mul) or len(s.body.args) != 2:
        return None
    if len({nest.tensor(tensor).dtype for tensor in s.tensors}) > 1:
        return None
    factors = [_factor(s, value) for value in s.body.args]
    found = _roles(s, [factor for factor in factors if factor is not None])
    return found if found is not None and _all_steps(nest.domains[name], found.steps) else None


def products_among(nest: Nest, names: tuple[str, ...]) -> tuple[Product, ...]:
    """The products among a kernel's statements, in their order."""
    return tuple(p for p in (product_of(nest, name) for name in names) if p is not None)


def _factor(s: Statement, value: sympy.Basic) -> Factor | None:
    """A value as a factor; None if it depends on an index as a number, is a divisor, or no read moves with it all."""
    accesses = [s.reads[leaf.position] for leaf in reads_in(value)]
    indices = set(s.dims) & {symbol.name for symbol in value.free_symbols}
    if not accesses or indices or (isinstance(value, sympy.Pow) and value.args[1] == -1):
        return None
    access = max(accesses, key=lambda a: a.map.dim(OUT))
    axes, dims = moved_axes(access, len(s.dims)), value_dims(s, value)
    if axes is None or axes.keys() != set(dims):
        return None
    # of a tensor that is both factors each has a form of its own: panels are read along their lanes alone
    alone = [a.tensor for a in s.reads].count(access.tensor) == 1
    if isinstance(value, Read) and alone:
        return Factor(access.tensor, access, False, axes)
    of_value = {d: axis for axis, d in enumerate(dims)}
    return Factor(value_text(s, value), access, not isinstance(value, Read), of_value)


def _roles(s: Statement, factors: list[Factor]) -> Product | None:
    y = moved_axes(s.write, len(s.dims))
    if y is None or len(factors) != 2:
        return None
    last = s.write.map.dim(OUT) - 1
    for left, right in (factors, reversed(factors)):
        a, b = left.axes, right.axes
        columns = [d for d in y if y[d] == last and d in b and d not in a]
        rows = sorted((d for d in y if d in a and d not in b), key=lambda d: y[d])
        steps = [d for d in a if d in b and d not in y]
        if len(columns) != 1 or len(steps) != 1 or not rows:
            continue
        others = tuple(d for d in y if d in a and (d in b or d in rows[:-1]))
        if len(others) + 3 == len(s.dims):
            return Product(s.name, rows[-1], columns[0], steps[0], others, left, right)
    return None


def moved_axes(access: Access, dims: int) -> dict[int, int] | None:
    """For each dimension the one axis that an access moves along with it; None if two share an axis or one has two."""
    subscripts = access.subscripts()
    found: dict[int, int] = {}
    for axis in range(access.map.dim(OUT)):
        moving = [d for d in range(dims) if subscripts.get_pw_aff(axis).involves_dims(IN, d, 1)]
        if len(moving) > 1 or any(d in found for d in moving):
            return None
        found |= dict.fromkeys(moving, axis)
    return found


def _all_steps(domain: isl.Set, steps: int) -> bool:
    """Whether every sum has the same steps: a tile then has all its rows and columns in each of them, or in none.

    { mac[i, j, k] : k > i } is refused: step 3 has no row 4.
    """
    rank = domain.dim(SET)
    sums = domain.project_out(SET, steps, 1).insert_dims(SET, steps, 1)
    values = domain.project_out(SET, steps + 1, rank - steps - 1).project_out(SET, 0, steps)
    values = values.insert_dims(SET, 1, rank - steps - 1).insert_dims(SET, 0, steps)
    return bool(domain.reset_tuple_id().is_equal(sums.reset_tuple_id().intersect(values.reset_tuple_id())))
