"""Fast matrix products: compute a contraction by a bilinear algorithm.

    mac[i, j, k]: Y[i, j] += A[i, k] * B[k, j]          with Strassen's <2, 2, 2; 7>, blocks of half the size
                    ->
    mac_L0[i, k]: L[0, i, k] = A[i, k] + A[i + M/2, k + K/2]                    prefix: 7 sums of blocks of A, 7 of B
    mac_product[t, i, j, k]: P[t, i, j] += L[t, i, k] * R[t, k, j]              7 products of blocks, as one statement
    mac_Y1[i, j]: Y[i, j + N/2] = P[2, i, j] + P[4, i, j]                       suffix: 4 sums of products

The theorem has three parts. The algorithm's identity is proven when it is made (polyfuse.bilinear.algorithm). Blocks
cover the statement's box: i = start + p * extent + i' is a bijection between (p, i') with a value in the box and the
box; elements beyond it stand for zero, which adds nothing, or are left to the statement itself. And the statement may
run as a whole at one date, between what runs before and after it: every dependence of the nest still goes forward when
it does, and it reads nothing that it writes. Floating-point results round differently: polyfuse.bilinear.error_bound
says how much.

Nothing is decided here about kernels: what comes out is a nest like any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import islpy as isl

from polyfuse.bilinear import Algorithm
from polyfuse.errors import IllegalRewrite, quantity
from polyfuse.errors.proving import proving
from polyfuse.errors.refusals import Refusal
from polyfuse.ir import Nest, Statement
from polyfuse.ir.dependences import Pairs
from polyfuse.ir.nest import own_loops
from polyfuse.ir.number_types import is_integer
from polyfuse.ir.tree import Tree, dates, parts, restrict, sequence, statements
from polyfuse.rewrite.bilinear.block_spaces import Blocks
from polyfuse.rewrite.bilinear.dimension_roles import Roles, roles_of
from polyfuse.rewrite.bilinear.product_statements import Writer, peeled
from polyfuse.rewrite.recorded import recorded
from polyfuse.rewrite.refusal import check_legal, refused
from polyfuse.sets import maps_of

Edges = Literal["pad", "peel"]


@dataclass(frozen=True)
class Bilinear:
    """The result of `bilinear`.

    Attributes:
        nest: The new nest.
        statement: The statement that was replaced.
        algorithm: The algorithm.
        prefix: The statements that add up blocks of the factors.
        product: The statements that multiply.
        suffix: The statements that add up the products.
        rest: The statements that compute peeled edges.
        additions: The number of additions of blocks.
    """

    nest: Nest
    statement: str
    algorithm: Algorithm
    prefix: tuple[str, ...]
    product: tuple[str, ...]
    suffix: tuple[str, ...]
    rest: tuple[str, ...]
    additions: int

    def __str__(self) -> str:
        rest = f", and what is left in {', '.join(self.rest)}" if self.rest else ""
        return (
            f"{self.statement} is computed by {self.algorithm}: {len(self.prefix)} sums of blocks before, "
            f"{len(self.suffix)} after, {self.additions} additions of blocks{rest}"
        )


@recorded("bilinear")
@proving("the rewrite bilinear")
def bilinear(
    nest: Nest,
    statement: str,
    algorithm: Algorithm,
    *,
    dims: tuple[str, str, str] | None = None,
    edges: Edges = "pad",
    apart: bool = False,
    inline: Iterable[Literal["left", "right"]] = (),
    modulo: int = 0,
) -> Bilinear:
    """Compute a sum of products by a bilinear algorithm <m, k, n; r>.

    Y += A * B  ->  prefix; P += L * R; suffix

    Args:
        nest: The nest.
        statement: The statement that sums products over a box.
        algorithm: The algorithm.
        dims: Its rows, steps and columns; by default the ones with the most products. Other dimensions (batches, a
            kernel's offsets) are kept.
        edges: "pad" rounds sizes that are not multiples up, with zeros that are never stored; "peel" rounds them down
            and computes the rest with the statement itself.
        apart: True makes each product a statement that is added to the result at once; edges are then peeled.
        inline: With `apart`, the factors ("left", "right") whose sums are computed where they are multiplied.
        modulo: 2 allows an algorithm that multiplies modulo 2, for integers of which only the last bit is needed.

    Returns:
        The new nest and the statements in it.

    Raises:
        IllegalRewrite: with the reason, and with instances if two show it.
    """
    call = f"bilinear({statement!r}, {algorithm.name})"
    s = nest.statement(statement)
    check_legal(_modular(nest, s, algorithm, call, modulo))
    roles = roles_of(nest, s, call, dims)
    if isinstance(roles, Refusal):
        raise IllegalRewrite(roles)
    order = _alone(nest, statement, call)
    if isinstance(order, Refusal):
        raise IllegalRewrite(order)
    counts = {roles.rows: algorithm.m, roles.steps: algorithm.k, roles.columns: algorithm.n}
    blocks = Blocks(nest, roles, counts, padded=edges == "pad" and not apart)
    small = next((d for d in counts if blocks.extents[d] == 0), None)
    if small is not None:
        why = f"{small} has {quantity(roles.box[small].size, 'value')}, fewer than {counts[small]} blocks"
        raise IllegalRewrite(refused(call, why, "edges='pad', or a smaller algorithm"))
    return _rewritten(nest, roles, order, blocks, algorithm, apart, tuple(inline))


def _modular(nest: Nest, s: Statement, algorithm: Algorithm, call: str, modulo: int) -> Refusal | None:
    """Return the reason why a mod-2 algorithm does not compute the statement's value."""
    if not algorithm.modulus:
        return None
    dtype = nest.tensor(s.write.tensor).dtype
    if is_integer(dtype) and modulo == algorithm.modulus:
        return None
    why = f"{algorithm.name} multiplies modulo {algorithm.modulus} only, but {s.write.tensor} is {dtype}"
    remedy = "an algorithm over the integers" + (
        f", or modulo={algorithm.modulus} if only the last bit of each result is needed"
        if is_integer(dtype)
        else ""
    )
    return refused(call, why, remedy)


# -- the order ---------------------------------------------------------------------------------------------------------


def _alone(nest: Nest, statement: str, call: str) -> tuple[tuple[Tree, ...], tuple[Tree, ...]] | Refusal:
    """Return the parts before and after a statement that may run at one date as a whole; else the reason why not."""
    every = parts(nest.order)
    at = next(p for p, part in enumerate(every) if statement in statements(part))
    names = statements(every[at])
    here = names.index(statement)
    split = (restrict(every[at], frozenset(group)) for group in (names[:here], names[here + 1 :]))
    first, last = ((part,) if part is not None else () for part in split)
    before, after = (*every[:at], *first), (*last, *every[at + 1 :])
    if len(names) == 1:
        return before, after
    tree = sequence((*before, own_loops(nest.statement(statement)), *after))
    order = dates(tree, nest.domains)
    forward = order.lex_lt_union_map(order)
    for pair in nest.dependences().pairs:
        if pair.kind != "reduction" and not (pair.source == pair.sink == statement):
            for broken in maps_of(isl.UnionMap.from_map(pair.map).subtract(forward)):
                why = f"{statement} shares a loop with statements that depend on it and that it depends on"
                return refused(
                    call, why, "a contraction whose operands are complete before it starts", broken
                )
    return before, after


# -- the result --------------------------------------------------------------------------------------------------------


def _rewritten(
    nest: Nest,
    roles: Roles,
    order: tuple[tuple[Tree, ...], tuple[Tree, ...]],
    blocks: Blocks,
    algorithm: Algorithm,
    apart: bool,
    inline: tuple[str, ...],
) -> Bilinear:
    s = roles.statement
    left = peeled(blocks) if not blocks.padded else ()
    init = _first_value(nest, s)
    to = Writer(blocks, algorithm, assigns=init is not None)
    if apart:
        to.apart(inline)
    else:
        to.batched()
    rest = tuple(_part(s, f"{s.name}_rest_{d}", domain) for d, domain in left)
    first = _still_zero(nest, init, s, left, roles) if init is not None else ()
    replaced = {s.name: (*to.order, *rest)} | ({init.name: first} if init is not None else {})
    kept = [x for old in nest.statements for x in replaced.get(old.name, (old,))]
    group = sequence(tuple(own_loops(x) for x in (*to.order, *rest)))
    before, after = (tuple(_replaced(part, init, first) for part in side) for side in order)
    result = replace(
        nest,
        tensors=(*nest.tensors, *to.tensors),
        statements=tuple(kept),
        order=sequence(tuple(part for part in (*before, group, *after) if part is not None)),
    )
    result.check()
    prefix, products, suffix, over = (
        tuple(x.name for x in found) for found in (to.prefix, to.products, to.suffix, rest)
    )
    return Bilinear(result, s.name, algorithm, prefix, products, suffix, over, to.additions)


def _first_value(nest: Nest, s: Statement) -> Statement | None:
    """The statement that sets the sums to zero, if it does only that and nothing else comes before: it can go.

    Each element has one sum, so that the suffix may assign it.
    """
    pairs = [p for p in nest.dependences().pairs if p.kind == "flow"]
    written = isl.UnionSet.from_set(nest.domains[s.name].apply(s.write.map))
    into = {
        p.source
        for p in pairs
        if p.sink == s.name and nest.statement(p.source).write.tensor == s.write.tensor
    }
    if len(into) != 1:
        return None
    init = nest.statement(into.pop())
    alone = all(p.sink == s.name or _through(pairs, init, s, p) for p in pairs if p.source == init.name)
    is_zero = init.op == "=" and init.body.is_number and float(init.body) == 0.0
    same = isl.UnionSet.from_set(nest.domains[init.name].apply(init.write.map)).is_equal(written)
    target = [s.dims.index(d) for d in s.dims if _moves(s, d)]
    return init if alone and is_zero and same and _one_sum_each(nest, s, target) else None


def _through(pairs: list[Pairs], init: Statement, s: Statement, pair: Pairs) -> bool:
    """True if a reader of the initial value reads it after the statement has added to it."""
    onward = [p.map for p in pairs if p.source == s.name and p.sink == pair.sink]
    into = next(p.map for p in pairs if p.source == init.name and p.sink == s.name)
    return bool(onward) and bool(pair.map.is_subset(into.apply_range(onward[0])))


def _moves(s: Statement, d: str) -> bool:
    at = s.dims.index(d)
    subscripts = s.write.subscripts()
    return any(
        subscripts.get_pw_aff(axis).involves_dims(isl.dim_type.in_, at, 1)
        for axis in range(subscripts.dim(isl.dim_type.out))
    )


def _one_sum_each(nest: Nest, s: Statement, target: list[int]) -> bool:
    """True if an element belongs to one value of the dimensions that the write depends on."""
    write = s.write.map.intersect_domain(nest.domains[s.name])
    for at in reversed(range(len(s.dims))):
        if at not in target:
            write = write.project_out(isl.dim_type.in_, at, 1)
    return bool(write.is_injective())


def _still_zero(
    nest: Nest, init: Statement, s: Statement, left: tuple[tuple[str, isl.Set], ...], roles: Roles
) -> tuple[Statement, ...]:
    """First values for the elements that whole blocks do not reach."""
    found = []
    for d, domain in left:
        if d == roles.steps:
            continue
        touched = domain.apply(s.write.map)
        here = nest.domains[init.name].intersect(touched.apply(init.write.map.reverse()))
        found.append(_part(init, f"{init.name}_rest_{d}", here))
    return tuple(found)


def _part(s: Statement, name: str, domain: isl.Set) -> Statement:
    """Some of a statement's instances, under another name."""

    def renamed(map_: isl.Map) -> isl.Map:
        return map_.set_tuple_name(isl.dim_type.in_, name)

    return replace(
        s,
        name=name,
        domain=domain.set_tuple_name(name).coalesce(),
        write=replace(s.write, map=renamed(s.write.map)),
        reads=tuple(replace(a, map=renamed(a.map)) for a in s.reads),
    )


def _replaced(part: Tree, init: Statement | None, first: tuple[Statement, ...]) -> Tree | None:
    """A part of the order without a statement, or with others in its place."""
    if init is None or init.name not in statements(part):
        return part
    rest = restrict(part, frozenset(statements(part)) - {init.name})
    found = (*(own_loops(x) for x in first), *((rest,) if rest is not None else ()))
    return sequence(found) if found else None
