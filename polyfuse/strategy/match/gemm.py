"""Recognise a product: a contraction y[rows, columns] += a[rows, steps] * b[steps, columns] in a statement.

A convolution is one: rows are output pixels along an axis, columns filters, steps channels and the window's elements.

A factor is a read, or a value of reads and numbers that depends on its part of the dimensions alone:
(alpha * A[i, k]) * B[k, j]. Such a value is computed while it is packed, once for each element of a panel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import gcd

import islpy as isl
import sympy

from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.nest_text import value_text
from polyfuse.ir.number_types import computed_in
from polyfuse.ir.scalar import Read, operations, reads_in
from polyfuse.schedule.microkernel_verb import MOST_WRITTEN_OUT
from polyfuse.schedule.promote.promoted_values import value_dims
from polyfuse.sets import IN, OUT, PARAM, SET, dimension, greatest


@dataclass(frozen=True)
class Factor:
    """One side of a product: what `promote` is asked for, the read that moves with all of its dimensions.

    `axes` gives for each of these dimensions the axis of what is promoted; the dimensions of a window share axes.
    `reads` are all that a value reads, `operations` what computes one element of it.
    """

    name: str
    access: Access
    computed: bool
    axes: Mapping[int, int]
    reads: tuple[Access, ...]
    operations: int = 0

    @property
    def by_value(self) -> bool:
        """True if it is packed by its value, as A[32b + k, i]: then each of its dimensions has an axis of its own."""
        return self.name != self.access.tensor


@dataclass(frozen=True)
class Product:
    """The roles of a statement's dimensions and factors in a product.

    `steps` are summed over: channels, and the elements of a window. `others` are dimensions of the sums that are no
    rows or columns: batches, or more rows. Columns lie along axis `lanes` of the sums; `across`: it is not the last.
    Panels of columns begin where their blocks do if `group` is a multiple of their width: 16 for y[16 * g + f] and
    w[16 * g + f, k], the filters f of 16 in each group g of a convolution; 0: nothing else moves along their axes.
    With `of_several` columns are one row of all that the right factor has: the pixels of a row of x[c, h, w], or the
    columns of one of several weights w[m, j, k].
    """

    statement: str
    rows: int
    columns: int
    steps: tuple[int, ...]
    others: tuple[int, ...]
    left: Factor
    right: Factor
    lanes: int
    across: bool
    group: int = field(default=0, kw_only=True)
    of_several: bool = field(default=False, kw_only=True)

    @property
    def windowed(self) -> tuple[int, ...]:
        """The steps that read what neighbouring rows read too: those along the rows' axis of the left factor."""
        axis = self.left.axes[self.rows]
        return tuple(d for d in self.steps if self.left.axes[d] == axis)

    @property
    def alike(self) -> tuple[int, ...]:
        """The dimensions of batches that have the same right factor: all but those that it moves along."""
        return tuple(d for d in self.others if d not in self.right.axes)


def products_of(
    nest: Nest,
    name: str,
    triangles: bool = False,
    by_value: bool = False,
    groups: bool = False,
    still: frozenset[int] = frozenset(),
) -> tuple[Product, ...]:
    """The statement as a product, with any dimension as rows that may be; none if it is none.

    With `triangles` rows may also begin or end one step further with each row: { mac[i, j, k] : k > i }.
    With `by_value` reads that do not move by one along an axis of their own for each dimension are factors, too:
    x[2 * i, k], x[n - i, k] and x[i, k // 8, k % 8] have the dimensions i and k as their axes.
    With `groups` columns may be those of one group of several along an axis.
    The dimensions that stand `still` are those of loops around the product: one value of each is all there is.
    """
    found = contractions_of(nest, name, by_value, groups, still)
    if not found:
        return ()
    domain, answers = nest.domains[name], nest.statement(name).answers
    question = "products", triangles, by_value, groups, still
    if answers.get(question, (None,))[0] is not domain:  # or that of another context
        tiled = tuple(p for p in found if _in_tiles(domain, p) or (triangles and _in_triangles(domain, p)))
        answers[question] = domain, tiled
    products: tuple[Product, ...] = answers[question][1]
    return products


def contractions_of(
    nest: Nest,
    name: str,
    by_value: bool = False,
    groups: bool = False,
    still: frozenset[int] = frozenset(),
) -> tuple[Product, ...]:
    """The statement as a product, whichever of its instances there are: each sum may have steps of its own."""
    s = nest.statement(name)
    if s.op != "+=" or not isinstance(s.body, sympy.Mul) or len(s.body.args) != 2:
        return ()
    if len({computed_in(nest.tensor(tensor).dtype) for tensor in s.tensors}) > 1:
        return ()
    if any(nest.tensor(access.tensor).gather is not None for access in s.reads):
        return ()  # rows that lie anywhere: blocks read them from a tensor of their own
    question = "contractions", by_value, groups, still
    if question not in s.answers:
        both = (_factor(s, value, by_value, still) for value in s.body.args)
        factors = [factor for factor in both if factor is not None]
        s.answers[question] = tuple(_roles(s, factors, groups, still)) if len(factors) == 2 else ()
    found: tuple[Product, ...] = s.answers[question]
    return found


def products_among(
    nest: Nest,
    names: tuple[str, ...],
    triangles: bool = False,
    by_value: bool = False,
    groups: bool = False,
    still: Mapping[str, frozenset[int]] | None = None,
) -> tuple[tuple[Product, ...], ...]:
    """The products among a kernel's statements, in their order, each with its choices of rows."""
    held = still or {}
    found = (
        products_of(nest, name, triangles, by_value, groups, held.get(name, frozenset())) for name in names
    )
    return tuple(each for each in found if each)


def _factor(s: Statement, value: sympy.Basic, by_value: bool, still: frozenset[int]) -> Factor | None:
    """A value as a factor; None if it depends on an index as a number, is a divisor, or no read moves with it all."""
    accesses = [s.reads[leaf.position] for leaf in reads_in(value)]
    indices = set(s.dims) & {symbol.name for symbol in value.free_symbols}
    if not accesses or indices or (isinstance(value, sympy.Pow) and value.args[1] == -1):
        return None
    access = max(accesses, key=lambda a: a.map.dim(OUT))
    axes, dims = moved_axes(access, len(s.dims)), value_dims(s, value)
    of_value = {d: axis for axis, d in enumerate(dims)}
    if by_value and isinstance(value, Read) and not moves_by_one(access, len(s.dims)):
        return Factor(value_text(s, value), access, False, of_value, (access,))
    if axes is None or axes.keys() != set(dims) or _divides(access):
        return None  # x[k // 2] stays where it is for every other k
    # of a tensor that is both factors each has a form of its own: panels are read along their lanes alone
    alone = [a.tensor for a in s.reads].count(access.tensor) == 1
    if isinstance(value, Read) and alone:
        return Factor(access.tensor, access, False, axes, (access,))
    if not all(_is_alone(axes, d, still) for d in axes.keys() - still):
        return None  # a window of what would be computed while it is packed
    computed = not isinstance(value, Read)
    return Factor(value_text(s, value), access, computed, of_value, tuple(accesses), operations(value))


def _roles(s: Statement, factors: list[Factor], groups: bool, still: frozenset[int]) -> list[Product]:
    """Every choice of rows, the innermost first; with columns that are neighbours in memory, if there are any.

    Of several dimensions that may be columns it is the one along memory of the sums: the pixels of a row, for windows
    of one pixel, or the columns of one of several weights w[m, j, k] that have the same rows x[i, k]. Where the other
    factor has columns, too, that is one choice of two.
    """
    y = moved_axes(s.write, len(s.dims))
    if y is None:
        return []
    found, last = [], s.write.map.dim(OUT) - 1
    once = {d for d in range(len(s.dims)) if s.domain.plain_get_val_if_fixed(SET, d).is_int()}
    for left, right in (factors, reversed(factors)):
        a, b = left.axes, right.axes
        columns = sorted((d for d in y if d in b and d not in a), key=lambda d: y[d] != last)
        moving = [d for d in columns if d not in once]
        of_several = False
        if len(moving) == 1 and _is_alone(b, moving[0]):
            columns = (
                moving  # the one image of a batch is no column; windows' columns are cut short at its edges
            )
        elif len(moving) > 1 and y[moving[0]] == last and _moves_apart(s, right, moving[0]):
            columns, of_several = moving[:1], True
        rows = [d for d in y if d in a and d not in b]
        steps = [d for d in a if d in b and d not in y and d not in still]
        if len(columns) != 1 or not rows or not steps or len({*y, *steps, *still}) != len(s.dims):
            continue
        for row in reversed(rows):
            others = tuple(d for d in y if d not in (row, columns[0]))
            ordered = tuple(sorted(steps, key=lambda d: (a[d] == a[row], d)))
            across = y[columns[0]] != last
            lanes, group = y[columns[0]], _group(s, columns[0], y, right)
            if (
                group is None
                or (group and not groups)
                or not _is_alone(y, row)
                or (across and y[row] != last)
            ):
                continue
            one = Product(s.name, row, columns[0], ordered, others, left, right, lanes, across, group=group)
            found.append(replace(one, of_several=of_several))
    usual = [one for one in found if not (one.across or one.of_several)]
    return usual or sorted(found, key=lambda one: not one.across)


def _moves_apart(s: Statement, right: Factor, columns: int) -> bool:
    """True if a factor moves by one with a dimension, and no two dimensions move along one of its axes."""
    access, axis = right.access, right.axes[columns]
    if right.computed or right.axes != moved_axes(access, len(s.dims)):
        return False
    return len(set(right.axes.values())) == len(right.axes) and step_along(access, columns, axis) == 1


def _group(s: Statement, columns: int, y: Mapping[int, int], right: Factor) -> int | None:
    """Of which width panels along the columns' axes begin where their blocks do: whatever divides it, 0 for any.

    None if that is not known: several dimensions along an axis, and not columns beside multiples of one number.
    """
    if _is_alone(y, columns) and _is_alone(right.axes, columns):
        return 0
    if right.computed or right.axes != moved_axes(right.access, len(s.dims)):
        return None
    both = (_apart(s.write, columns, y[columns]), _apart(right.access, columns, right.axes[columns]))
    return None if None in both else gcd(*(one for one in both if one is not None))


def _apart(access: Access, dim: int, axis: int) -> int | None:
    """The divisor of all of a subscript but one dimension: 16 for 16 * g + f and f; None for 16 * g + 2 * f."""
    (_, value), *more = access.subscripts().get_pw_aff(axis).get_pieces()
    if more or value.dim(isl.dim_type.div) or value.involves_dims(PARAM, 0, value.dim(PARAM)):
        return None
    by = [int(value.get_coefficient_val(IN, d).to_python()) for d in range(value.dim(IN))]
    rest = [*by[:dim], *by[dim + 1 :], int(value.get_constant_val().to_python())]
    return gcd(*rest) if by[dim] == 1 else None


def _is_alone(axes: Mapping[int, int], dim: int, still: frozenset[int] = frozenset()) -> bool:
    """True if no other dimension moves along the axis that one does: panels along it then begin where its blocks do."""
    return [axis for d, axis in axes.items() if d not in still].count(axes[dim]) == 1


def is_sum_of_products(s: Statement) -> bool:
    """True if a statement adds up, over dimensions of its own, products of two values that it reads."""
    if s.op != "+=" or not isinstance(s.body, sympy.Mul):
        return False
    summed = any(not s.write.map.involves_dims(IN, d, 1) for d in range(len(s.dims)))
    return summed and len({factor for factor in s.body.args if reads_in(factor)}) > 1


def moved_axes(access: Access, dims: int) -> dict[int, int] | None:
    """For each dimension that an access moves with the axis that it moves along; None if one moves along several.

    { mac[q, f, s] -> x[f, 2q + s] }: q and s along axis 1, f along axis 0.
    """
    subscripts = access.subscripts()
    found: dict[int, int] = {}
    for axis in range(access.map.dim(OUT)):
        moving = [d for d in range(dims) if subscripts.get_pw_aff(axis).involves_dims(IN, d, 1)]
        if any(d in found for d in moving):
            return None
        found |= dict.fromkeys(moving, axis)
    return found


def _divides(access: Access) -> bool:
    """True if a subscript of an access is a quotient, or what a division leaves."""
    subscripts = access.subscripts()
    pieces = (
        value for axis in range(subscripts.dim(OUT)) for _, value in subscripts.get_pw_aff(axis).get_pieces()
    )
    return any(value.dim(isl.dim_type.div) for value in pieces)


def moves_by_one(access: Access, dims: int) -> bool:
    """True if each axis moves by one with each dimension that moves it, and no dimension moves two axes.

    { mac[q, f, s] -> x[f, q + s] } does, { mac[q, s] -> x[2q + s] } does not.
    """
    axes = moved_axes(access, dims)
    if axes is None:
        return False
    subscripts, instances = access.subscripts(), access.map.domain()
    for axis in set(axes.values()):
        rest = subscripts.get_pw_aff(axis)
        for d in (d for d, own in axes.items() if own == axis):
            rest = rest.sub(dimension(instances, d))
        if rest.involves_dims(IN, 0, dims):
            return False
    return True


def step_along(access: Access, dim: int, axis: int) -> int:
    """Return how far an access moves along an axis, at most, with one step of a dimension: x[f, 2q + s] by 2 with q."""
    pieces = access.subscripts().get_pw_aff(axis).get_pieces()
    return max(abs(int(value.get_coefficient_val(IN, dim).to_python())) for _, value in pieces)


def _in_tiles(domain: isl.Set, p: Product) -> bool:
    """True if all sums have the same steps; or columns are the same in all, and rows differ along short windows only.

    { mac[i, j, k] : j <= i } is in tiles; { mac[i, j, k] : k > i } is not, since step 3 has no row 4, and
    { mac[q, f, c, s] : 0 <= q + s - 1 < 28 } is.
    """
    if is_product(domain, set(p.steps)):
        return True
    if not is_product(domain, {p.columns}):
        return False
    inner = p.steps[-1]
    apart = set(range(domain.dim(SET))) - {p.rows, *p.steps}
    if is_product(domain, {p.rows}, given=apart):
        return True
    length = greatest(domain.dim_max(inner).sub(domain.dim_min(inner)))
    short = length.is_int() and length.to_python() < MOST_WRITTEN_OUT
    return bool(short) and is_product(domain, {p.rows}, given={*apart, inner})


def _in_triangles(domain: isl.Set, p: Product) -> bool:
    """True if columns are the same in all, and borders between rows and steps move by one step with each row.

    { mac[i, j, k] : k > i } is so, and { mac[i, j, k] : k > 2i } is not.
    """
    pieces = domain.coalesce().get_basic_sets()
    if len(p.steps) != 1 or len(pieces) != 1 or not is_product(domain, {p.columns}):
        return False
    for constraint in pieces[0].get_constraints():
        row, step = (constraint.get_coefficient_val(SET, d) for d in (p.rows, p.steps[0]))
        if not (row.is_zero() or step.is_zero()) and not row.abs().eq(step.abs()):
            return False
    return True


def is_product(domain: isl.Set, dims: set[int], given: set[int] | None = None) -> bool:
    """True if a set is that of some dimensions (for each value of the given ones) times that of all others."""
    mine = _cylinder(domain, dims | (given or set()))
    others = _cylinder(domain, set(range(domain.dim(SET))) - dims)
    return bool(domain.is_equal(mine.intersect(others)))


def _cylinder(domain: isl.Set, kept: set[int]) -> isl.Set:
    """All points that agree with one of a set in some dimensions."""
    name = domain.get_tuple_id()
    for d in set(range(domain.dim(SET))) - kept:
        domain = domain.project_out(SET, d, 1).insert_dims(SET, d, 1).set_tuple_id(name)
    return domain
