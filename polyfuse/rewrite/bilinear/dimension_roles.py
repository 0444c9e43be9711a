"""Find the rows, steps and columns of a sum of products for a bilinear algorithm, and their blocks.

    Y[b, i, j] += alpha * A[b, i, k] * B[k, j]      rows i, steps k, columns j;  left alpha * A, right B

A bilinear algorithm computes a sum over k of left(i, k) * right(k, j), where left does not know the column and right
not the row. Every other dimension goes along, wherever it occurs. The domain is a box: { mac[i, j, k] : k > i } has no
blocks that are alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import islpy as isl
import sympy

from polyfuse.errors.refusals import Refusal
from polyfuse.ir import Nest, Statement
from polyfuse.ir.scalar import mul, reads_in
from polyfuse.ir.sizes import extent_text
from polyfuse.rewrite.refusal import refused
from polyfuse.sets import IN, OUT, SET, first_pair

Extent = int | str


@dataclass(frozen=True)
class Axis:
    """A dimension of a box: its first value, and how many there are."""

    start: Extent
    size: Extent


@dataclass(frozen=True)
class Roles:
    """A statement as a product of matrices. `rows`, `steps`, `columns` are names of its dimensions."""

    statement: Statement
    box: dict[str, Axis]
    rows: str
    steps: str
    columns: str
    left: sympy.Basic
    right: sympy.Basic

    @cached_property
    def target_dims(self) -> tuple[str, ...]:
        """The dimensions of the result, in the order of its axes."""
        return in_order(self.statement, {0})

    @cached_property
    def left_dims(self) -> tuple[str, ...]:
        """The dimensions of the left factor, in the order of its largest read's axes."""
        return in_order(self.statement, _accesses_of(self.left))

    @cached_property
    def right_dims(self) -> tuple[str, ...]:
        """The dimensions of the right factor, in the order of its largest read's axes."""
        return in_order(self.statement, _accesses_of(self.right))


def roles_of(nest: Nest, s: Statement, call: str, dims: tuple[str, str, str] | None) -> Roles | Refusal:
    """The statement as a product of matrices; why it is none. `dims` names rows, steps and columns."""
    remedy = "a statement Y[i, j] += A[i, k] * B[k, j], with more dimensions or factors where there are some"
    factors = factors_of(s.body)
    if any(access.tensor == s.write.tensor for access in s.reads):
        return refused(call, f"{s.name} reads {s.write.tensor}, which it writes", remedy)
    if s.op != "+=" or len(factors) < 2:
        return refused(call, f"{s.name} is not a sum of products", remedy)
    if set(s.dims) & {symbol.name for symbol in s.body.free_symbols}:
        return refused(
            call, f"the value of {s.name} depends on its index", "a value of tensors and numbers only"
        )
    types = {nest.tensor(tensor).dtype for tensor in s.tensors}
    if len(types) > 1:
        return refused(call, f"{s.name} mixes {' and '.join(sorted(types))}", "one element type")
    box = _box(nest, s, call)
    if isinstance(box, Refusal):
        return box
    found = dims if dims is not None else _largest(s, factors, box)
    if found is None or not _fits(s, factors, found):
        named = f"{s.name} with rows, steps, columns {', '.join(dims)}" if dims is not None else s.name
        return refused(
            call,
            f"the factors of {named} are not such that one is independent of the columns, the other of the rows",
            remedy,
        )
    right = [f for f in factors if found[2] in _dims_of(s, f)]
    left = [f for f in factors if f not in right]
    return Roles(s, box, *found, left=_times(left), right=_times(right))


def factors_of(body: sympy.Basic) -> list[sympy.Basic]:
    """The factors of a product of products, in order."""
    if not isinstance(body, sympy.Mul):
        return [body]
    return [factor for arg in body.args for factor in factors_of(arg)]


def in_order(s: Statement, positions: set[int]) -> tuple[str, ...]:
    """The dimensions that some accesses move with, in the order of the axes of the one that has most of them."""
    accesses = sorted((s.accesses[p] for p in positions), key=lambda a: -a.map.dim(OUT))
    found: dict[str, None] = {}
    for access in accesses:
        subscripts = access.subscripts()
        for axis in range(access.map.dim(OUT)):
            value = subscripts.get_pw_aff(axis)
            found |= {d: None for at, d in enumerate(s.dims) if value.involves_dims(IN, at, 1)}
    return tuple(found)


def _accesses_of(value: sympy.Basic) -> set[int]:
    return {leaf.position + 1 for leaf in reads_in(value)}


def _dims_of(s: Statement, value: sympy.Basic) -> frozenset[str]:
    return frozenset(in_order(s, _accesses_of(value)))


def _times(factors: list[sympy.Basic]) -> sympy.Basic:
    first, *rest = factors
    for factor in rest:
        first = mul(first, factor)
    return first


def _fits(s: Statement, factors: list[sympy.Basic], dims: tuple[str, str, str]) -> bool:
    """True if these rows, steps and columns split the product into two factors."""
    rows, steps, columns = dims
    if len(set(dims)) < 3 or not set(dims) <= set(s.dims):
        return False
    moved = [_dims_of(s, factor) for factor in factors]
    target = in_order(s, {0})
    with_rows, with_columns = (frozenset().union(*(m for m in moved if d in m)) for d in (rows, columns))
    both = any(rows in m and columns in m for m in moved)
    return (
        not both
        and rows in target
        and columns in target
        and steps not in target
        and steps in with_rows
        and steps in with_columns
    )


def _largest(s: Statement, factors: list[sympy.Basic], box: dict[str, Axis]) -> tuple[str, str, str] | None:
    """Rows, steps and columns with the most products; of equals those whose columns are furthest in."""
    target = in_order(s, {0})

    def worth(dims: tuple[str, str, str]) -> tuple[float, int, int]:
        extents = [box[d].size for d in dims]
        count = 1.0
        for size in extents:
            count *= min(1e4, size) if isinstance(size, int) else 256.0
        return count, target.index(dims[2]), target.index(dims[0])

    every = ((r, k, c) for r, k, c in product(s.dims, repeat=3) if _fits(s, factors, (r, k, c)))
    return max(every, key=worth, default=None)


# -- the box -----------------------------------------------------------------------------------------------------------


def _box(nest: Nest, s: Statement, call: str) -> dict[str, Axis] | Refusal:
    """The first value and the extent of each dimension; a refusal where the domain is not a box."""
    domain, remedy = nest.domains[s.name], "bounds that do not depend on the row, step or column"
    hull = isl.Set.universe(domain.get_space()).intersect_params(domain.params())
    found: dict[str, Axis] = {}
    for at, name in enumerate(s.dims):
        first, last = domain.dim_min(at), domain.dim_max(at)
        alone = domain.project_out(SET, at + 1, domain.dim(SET) - at - 1).project_out(SET, 0, at)
        here = alone.insert_dims(SET, 0, at).insert_dims(SET, at + 1, domain.dim(SET) - at - 1)
        hull = hull.intersect(here.set_tuple_name(s.name))
        start, size = _extent(first, nest), _extent(last.sub(first).add_constant_val(isl.Val(1)), nest)
        if start is None or size is None:
            return refused(call, f"the bounds of {name} in {s.name} are not affine in the sizes", remedy)
        found[name] = Axis(start, size)
    missing = hull.subtract(domain)
    if not missing.is_empty():
        relation = isl.Map.from_domain_and_range(domain, missing)
        pair = first_pair(relation)
        assert pair is not None, "a domain with a hole has an instance"
        why = f"{s.name} does not run over a box: it has the instance {list(pair[1])} and not {list(pair[2])}"
        return refused(call, why, remedy)
    return found


def _extent(value: isl.PwAff, nest: Nest) -> Extent | None:
    return extent_text(value.gist_params(nest.context).coalesce()) if not value.involves_nan() else None
