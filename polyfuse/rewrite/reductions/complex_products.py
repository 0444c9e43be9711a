"""Compute the two parts of a complex product as one real product of twice the columns and twice the steps.

    for i, j, k: S0: y[i, j, 0] += a[i, k, 0] * b[k, j, 0] - a[i, k, 1] * b[k, j, 1]
                 S1: y[i, j, 1] += a[i, k, 0] * b[k, j, 1] + a[i, k, 1] * b[k, j, 0]

    ->  w[k, p, 2 j + q] = ± b[k, j, 0 or 1]                          four numbers for each of b
        c[i, l] = 0;   c[i, l] += a[i, k, p] * w[k, p, l]             l = 2 j + q, for k and p
        y[i, j, q] += c[i, 2 j + q]

The theorem. A complex number a as a row (a0, a1), times the matrix ((b0, b1), (-b1, b0)), is the row of the product's
parts. So a product of complex matrices is one of real matrices, in which each b is such a block. The same products are
added, in another order, which a declared reduction may choose; a sign moves from a product to its factor, which is
exact. The block of any other sum of ± a[p] * b[q] has other numbers: that of conj(a) * b is ((b0, b1), (b1, -b0)).

Two sums that read the same four numbers, and lie in pairs in memory, have no register tiles; the real product has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import islpy as isl
import sympy

from polyfuse.errors.proving import proving
from polyfuse.errors.refusals import Refusal
from polyfuse.ir import Access, Nest, Statement, Tensor
from polyfuse.ir.dependences import relation_of
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.nest import own_loops
from polyfuse.ir.scalar import Read, mul, neg, number, read
from polyfuse.ir.tree import parts, restrict, sequence, statements
from polyfuse.rewrite.recorded import recorded
from polyfuse.rewrite.reductions.split_sum_terms import terms_of
from polyfuse.rewrite.refusal import check_legal, refused
from polyfuse.sets import IN, OUT, SET, dim_names, dimension_of, on_domain

EXAMPLE = "y[i, j, 0] += a[i, k, 0] * b[k, j, 0] - a[i, k, 1] * b[k, j, 1], and the same for y[i, j, 1]"

DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class RealProduct:
    """The result of `real_product`.

    Attributes:
        nest: The new nest.
        statements: The sums of both parts, as they were.
        product: The real product.
        blocks: The statements that write a factor's numbers as blocks.
        around: What sets the sums to 0, and what adds them to the result.
    """

    nest: Nest
    statements: tuple[str, str]
    product: str
    blocks: tuple[str, ...]
    around: tuple[str, ...]

    def __str__(self) -> str:
        return f"{' and '.join(self.statements)} are the real product {self.product}"


@dataclass(frozen=True)
class _Part:
    """A read of one part of a pair: { S[i, j, k] -> b[k, j] }, and 0 or 1."""

    pairs: isl.Map
    part: int


@dataclass(frozen=True)
class _Pair:
    """The factors of two sums: the one with rows, the one with columns, and the numbers of its blocks.

    Attributes:
        first: The sums of real parts.
        second: The sums of imaginary parts.
        column: The dimension of the columns.
        result: { S[i, j, k] -> y[i, j] }, and so for the factors.
        axis: The axis of the factor with columns along which these lie.
        blocks: (p, q) -> (sign, part): a[p] is multiplied by sign * b[part] in the part q of the result.
    """

    first: Statement
    second: Statement
    column: int
    result: isl.Map
    rows: isl.Map
    columns: isl.Map
    axis: int
    blocks: Mapping[tuple[int, int], tuple[int, int]]


@recorded("real_product")
@proving("the rewrite real_product")
def real_product(nest: Nest, statement: str) -> RealProduct:
    """Compute a complex product as a real one.

    y[i, j, 0] += …;  y[i, j, 1] += …   ->   c[i, l] += a[i, k, p] * w[k, p, l];  y[i, j, q] += c[i, 2 j + q]

    Args:
        nest: The nest.
        statement: The statement that accumulates one of the two parts.

    Returns:
        The new nest.

    Raises:
        IllegalRewrite: if `why_not_real_product` returns a reason.
    """
    pair = _pair(nest, statement)
    check_legal(pair if isinstance(pair, Refusal) else None)
    assert isinstance(pair, _Pair), "a legal rewrite has a pair"
    y, b = nest.tensor(pair.first.write.tensor), nest.tensor(pair.columns.get_tuple_name(OUT))
    taken, names = {t.name for t in nest.tensors}, {x.name for x in nest.statements}
    w, c = fresh(f"{b.name}_blocks", taken), fresh(f"{y.name}_sums", taken)
    blocks = _blocks(nest, pair, b, w, names)
    flat, product = _product(nest, pair, w, c, names)
    zero = _zero(nest, flat, c, fresh(f"zero_{c}", names))
    added = _added(nest, pair, c, names)
    others = tuple(extent for axis, extent in enumerate(b.shape[:-1]) if axis != pair.axis)
    tensors = (
        *nest.tensors,
        Tensor(w, (*others, 2, _twice(b.shape[pair.axis])), b.dtype, "temporary"),
        Tensor(c, (*y.shape[:-2], _twice(y.shape[-2])), y.dtype, "temporary"),
    )
    made, gone = (*blocks, zero, product, *added), {pair.first.name, pair.second.name}
    run, (_, last) = parts(nest.order), _between(nest, pair)
    before, behind = (
        [kept for part in some if (kept := restrict(part, part.members - gone)) is not None]
        for some in (run[: last + 1], run[last + 1 :])
    )
    order = sequence((*before, *map(own_loops, made), *behind))
    ordered = {x.name: x for x in (*nest.statements, *made)}
    every = tuple(ordered[name] for name in statements(order))
    result = nest.rewritten(tensors, every, order, frozenset({*pair.first.tensors, w, c}))
    result.check()
    return RealProduct(
        result,
        (pair.first.name, pair.second.name),
        product.name,
        tuple(x.name for x in blocks),
        (zero.name, *(x.name for x in added)),
    )


@proving("the question why_not_real_product")
def why_not_real_product(nest: Nest, statement: str) -> Refusal | None:
    """Return the reason why a sum is no part of a complex product that can be a real one.

    Args:
        nest: The nest.
        statement: The statement's name.

    Returns:
        The reason; None if the rewrite is legal.
    """
    found = _pair(nest, statement)
    return found if isinstance(found, Refusal) else None


# -- what is asked -----------------------------------------------------------------------------------------------------


def _pair(nest: Nest, statement: str) -> _Pair | Refusal:
    """The factors of a sum and of that of the other part, or why they are none."""
    s, call = nest.statement(statement), f"real_product({statement!r})"
    y, part = nest.tensor(s.write.tensor), _last(nest, s, s.write)
    if s.op != "+=" or part is None or y.rank < 2 or y.shape[-1] != 2 or y.dtype not in DTYPES:
        return refused(call, f"{statement} does not sum one part of pairs of numbers", EXAMPLE)
    partners = [x for x in nest.writers(y.name) if x is not s and _is_partner(nest, s, x, 1 - part)]
    if len(partners) != 1:
        return refused(call, f"no other statement sums the other part of {y.name} in the same way", EXAMPLE)
    first, second = (s, partners[0]) if part == 0 else (partners[0], s)
    found = _factors(nest, first, second)
    if found is None:
        return refused(call, f"{first.name} and {second.name} are no sums of products of two pairs", EXAMPLE)
    seen = _seen_between(nest, found)
    return found if seen is None else refused(call, seen, "loops of the two sums alone")


def _is_partner(nest: Nest, s: Statement, other: Statement, part: int) -> bool:
    """True if another statement sums the other part in the same loops."""
    if other.op != "+=" or len(other.dims) != len(s.dims) or _last(nest, other, other.write) != part:
        return False
    domain = nest.domains[other.name].set_tuple_name(s.name)
    return bool(
        domain.is_equal(nest.domains[s.name])
        and _same(nest, _pairs_of(nest, s, s.write), _as(s, _pairs_of(nest, other, other.write)))
    )


def _factors(nest: Nest, first: Statement, second: Statement) -> _Pair | None:
    """The two factors, if each term of both sums is ± one part of the one times one part of the other."""
    result = _pairs_of(nest, first, first.write)
    last = result.dim(OUT) - 1
    column = _dimension_along(result, last)
    found = [_products(nest, first, s) for s in (first, second)]
    if column is None or not all(found) or _depends(result.project_out(OUT, last, 1), column):
        return None
    if not _is_free(nest.domains[first.name], column):
        return None
    rows, columns = sorted((one.pairs for one in found[0][0][1:]), key=lambda each: _depends(each, column))
    blocks: dict[tuple[int, int], tuple[int, int]] = {}
    for q, products in enumerate(found):
        for sign, *both in products:
            one, other = both if _same(nest, both[0].pairs, rows) else reversed(both)
            if not (_same(nest, one.pairs, rows) and _same(nest, other.pairs, columns)):
                return None
            if (one.part, q) in blocks:
                return None
            blocks[one.part, q] = (sign, other.part)
    if len(blocks) < 4:  # with a 0 in a block, NaN and infinity would reach a part that they do not reach
        return None
    axes = [x for x in range(columns.dim(OUT)) if _dimension_along(columns, x) == column]
    if _depends(rows, column) or not axes or _depends(columns.project_out(OUT, axes[0], 1), column):
        return None
    if first.write.tensor in (rows.get_tuple_name(OUT), columns.get_tuple_name(OUT)):
        return None
    every = range(len(first.dims))
    if not any(_depends(result, d) and _depends(rows, d) and not _depends(columns, d) for d in every):
        return None
    return _Pair(first, second, column, result, rows, columns, axes[0], blocks)


def _products(nest: Nest, first: Statement, s: Statement) -> list[tuple[int, _Part, _Part]]:
    """The terms of a sum as ± one part of a pair times one of another; none if one of them is something else."""
    found = []
    for term in terms_of(s.body):
        sign, reads = _signed(term)
        read_ = [_part_read(nest, first, s, at) for at in reads]
        if len(read_) != 2 or read_[0] is None or read_[1] is None:
            return []
        found.append((sign, read_[0], read_[1]))
    return found


def _signed(term: sympy.Basic) -> tuple[int, tuple[int, ...]]:
    """The sign and the reads of a product of these alone: -a * b -> (-1, (0, 1)); no reads for any other term."""
    if isinstance(term, Read):
        return 1, (term.position,)
    if term == -1:
        return -1, ()
    if not isinstance(term, sympy.Mul):
        return 1, ()
    factors = [_signed(factor) for factor in term.args]
    if any(sign > 0 and not reads for sign, reads in factors):
        return 1, ()
    return prod(sign for sign, _ in factors), tuple(at for _, reads in factors for at in reads)


def _part_read(nest: Nest, first: Statement, s: Statement, at: int) -> _Part | None:
    """A read of one part of a pair, in the dimensions of the first sum; None if it is no such read."""
    access = s.reads[at]
    tensor, part = nest.tensor(access.tensor), _last(nest, s, access)
    if part is None or tensor.shape[-1] != 2 or tensor.dtype not in DTYPES or tensor.gather:
        return None
    return _Part(_as(first, _pairs_of(nest, s, access)), part)


def _last(nest: Nest, s: Statement, access: Access) -> int | None:
    """The last subscript, if it is 0 or 1 in all instances."""
    rank = access.map.dim(OUT)
    if not rank:
        return None
    elements = access.map.intersect_domain(nest.domains[s.name]).range()
    part = elements.plain_get_val_if_fixed(SET, rank - 1)
    return part.to_python() if part.is_zero() or part.is_one() else None


def _pairs_of(nest: Nest, s: Statement, access: Access) -> isl.Map:
    """{ S[…] -> b[…] }: an access without its last subscript, on the statement's domain."""
    last = access.map.dim(OUT) - 1
    pairs = access.map.project_out(OUT, last, 1).intersect_domain(nest.domains[s.name])
    return pairs.set_tuple_name(OUT, access.tensor)


def _as(s: Statement, relation: isl.Map) -> isl.Map:
    return relation.set_tuple_name(IN, s.name)


def _same(nest: Nest, one: isl.Map, other: isl.Map) -> bool:
    return bool(
        one.get_tuple_name(OUT) == other.get_tuple_name(OUT)
        and one.intersect_params(nest.context).is_equal(other.intersect_params(nest.context))
    )


def _depends(relation: isl.Map, d: int) -> bool:
    """True if a subscript depends on a dimension."""
    plain = on_domain(relation, relation.domain())
    return bool(plain.involves_dims(IN, d, 1))


def _dimension_along(relation: isl.Map, axis: int) -> int | None:
    """The dimension that a subscript is; None if it is something else."""
    return dimension_of(isl.PwMultiAff.from_map(relation).get_pw_aff(axis), relation.domain())


def _is_free(domain: isl.Set, d: int) -> bool:
    """True if a dimension has the same values for all values of the others."""
    behind = domain.dim(SET) - d - 1
    own = domain.project_out(SET, d + 1, behind).project_out(SET, 0, d)
    others = domain.project_out(SET, d, 1).insert_dims(SET, d, 1)
    every = others.intersect(own.insert_dims(SET, 0, d).add_dims(SET, behind))
    return bool(every.is_equal(domain.reset_tuple_id()))


def _between(nest: Nest, pair: _Pair) -> tuple[int, int]:
    """The numbers of the first and the last top part of the order that has one of the two sums."""
    sums = {pair.first.name, pair.second.name}
    places = [p for p, part in enumerate(parts(nest.order)) if not part.members.isdisjoint(sums)]
    return places[0], places[-1]


def _seen_between(nest: Nest, pair: _Pair) -> str | None:
    """Why the sums cannot run behind all that they share loops with; None if they can."""
    y, (begin, last) = pair.first.write.tensor, _between(nest, pair)
    between = {name for part in parts(nest.order)[begin : last + 1] for name in statements(part)}
    read_ = {pair.rows.get_tuple_name(OUT), pair.columns.get_tuple_name(OUT)}
    sums = (pair.first, pair.second)
    dates = nest.original_dates()
    for x in nest.statements:
        if x.name not in between or x in sums:
            continue
        if x.write.tensor in read_:
            return f"{x.name} writes {x.write.tensor}, which the sums read, in the same loops"
        if any(access.tensor == y for access in x.reads):
            return f"{x.name} reads {y} in the same loops"
        if x.write.tensor == y:
            before, after = (relation_of([(z, z.write) for z in which]) for which in ((x,), sums))
            begun = before.apply_range(after.reverse()).intersect_params(nest.context)
            if not begun.is_subset(dates.lex_lt_union_map(dates)):
                return f"{x.name} writes {y} after a sum"
    return None


# -- what is made ------------------------------------------------------------------------------------------------------


def _twice(extent: int | str) -> int | str:
    return 2 * extent if isinstance(extent, int) else f"2*({extent})"


def _named(domain: isl.Set, name: str) -> isl.Set:
    """A set of elements as a statement's domain, its dimensions e0, e1, …"""
    domain = domain.set_tuple_name(name)
    for d in range(domain.dim(SET)):
        domain = domain.set_dim_name(SET, d, f"e{d}")
    return domain


def _access(tensor: str, relation: isl.Map, domain: isl.Set) -> Access:
    return Access(tensor, on_domain(relation.set_tuple_name(OUT, tensor), domain))


def _map(domain: isl.Set, subscripts: str) -> isl.Map:
    """{ S[e0, e1] -> [subscripts] }, by the dimensions' names."""
    return isl.Map(f"{{ {domain.get_tuple_name()}[{', '.join(dim_names(domain))}] -> [{subscripts}] }}")


def _blocks(nest: Nest, pair: _Pair, b: Tensor, w: str, names: set[str]) -> tuple[Statement, ...]:
    """w[k, p, 2 j + q] = ± b[k, j, part]."""
    read_ = pair.columns.range().gist_params(nest.context)
    made = []
    for (p, q), (sign, part) in sorted(pair.blocks.items()):
        name = fresh(f"{b.name}_block_{p}{q}", names)
        names.add(name)
        domain = _named(read_, name)
        dims = list(dim_names(domain))
        place = ", ".join(
            [*(d for x, d in enumerate(dims) if x != pair.axis), str(p), f"2*{dims[pair.axis]} + {q}"]
        )
        write = _access(w, _map(domain, place), domain)
        of = _access(b.name, _map(domain, ", ".join([*dims, str(part)])), domain)
        made.append(Statement(name, domain, write, "=", (of,), read(0) if sign > 0 else neg(read(0))))
    return tuple(made)


def _product(nest: Nest, pair: _Pair, w: str, c: str, names: set[str]) -> tuple[isl.Set, Statement]:
    """c[i, l] += a[i, k, p] * w[k, p, l], and the elements of c."""
    s, name = pair.first, fresh(f"{pair.first.name}_real", names)
    names.add(name)
    dims = list(dim_names(s.domain))
    flat, part = fresh("l", dims), fresh("p", dims)
    new = [*(flat if d == pair.column else dim for d, dim in enumerate(dims)), part]
    column = dims[pair.column]
    apart = isl.Map(
        f"{{ {s.name}[{', '.join(dims)}] -> {name}[{', '.join(new)}] : "
        f"2*{column} <= {flat} <= 2*{column} + 1 and 0 <= {part} <= 1 }}"
    )
    domain = nest.domains[s.name].apply(apart).coalesce().gist_params(nest.context)
    for d, dim in enumerate(new):
        domain = domain.set_dim_name(SET, d, dim)
    back, columns, steps = apart.reverse(), _map(domain, flat), _map(domain, part)

    def flattened(pairs: isl.Map, axis: int | None, *behind: isl.Map) -> isl.Map:
        kept = pairs if axis is None else pairs.project_out(OUT, axis, 1)
        found = back.apply_range(kept.reset_tuple_id(OUT)).intersect_domain(domain)
        for each in behind:
            found = found.flat_range_product(each)
        return found

    own = flattened(pair.result, pair.result.dim(OUT) - 1, columns)
    a = flattened(pair.rows, None, steps)
    b = flattened(pair.columns, pair.axis, steps, columns)
    product = Statement(
        name,
        domain,
        _access(c, own, domain),
        "+=",
        (_access(pair.rows.get_tuple_name(OUT), a, domain), _access(w, b, domain)),
        mul(read(0), read(1)),
    )
    return own.range(), product


def _zero(nest: Nest, elements: isl.Set, c: str, name: str) -> Statement:
    """c[i, l] = 0."""
    domain = _named(elements.coalesce().gist_params(nest.context), name)
    return Statement(
        name, domain, _access(c, _map(domain, ", ".join(dim_names(domain))), domain), "=", (), number(0.0)
    )


def _added(nest: Nest, pair: _Pair, c: str, names: set[str]) -> tuple[Statement, ...]:
    """y[i, j, q] += c[i, 2 j + q]."""
    elements, y = pair.result.range().gist_params(nest.context), pair.first.write.tensor
    made = []
    for q in (0, 1):
        name = fresh(f"{y}_part_{q}", names)
        names.add(name)
        domain = _named(elements, name)
        *others, last = dim_names(domain)
        of = _access(c, _map(domain, ", ".join([*others, f"2*{last} + {q}"])), domain)
        write = _access(y, _map(domain, ", ".join([*others, last, str(q)])), domain)
        made.append(Statement(name, domain, write, "+=", (of,), read(0)))
    return tuple(made)
