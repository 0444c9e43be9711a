"""How a maximum, a minimum or a product hands its adjoint to the values that it combines.

    m[i] max= x[i, j]      c[i] += where(x[i, j] == m[i], 1, 0)           equal values share evenly, as in torch.amax
                           x_bar[i, j] += where(x[i, j] == m[i], m_bar[i], 0) / c[i]
    m[p] max= x[s*p + r]   at[p] min= r where x[s*p + r] is m[p] or NaN    over windows the first one, as in max_pool
                           x_bar[s*p + r] += where(at[p] == r, m_bar[p], 0)
    t[i] *= x[i, j]        z[i] += where(x == 0, 1, 0);  q[i] *= where(x == 0, 1, x)
                           x_bar += where(x != 0, t_bar * t / x, where(z == 1, t_bar * q, 0))

Sums need none of this: each term's adjoint is that of the sum. A maximum with a NaN gives 0 / 0 to all, as torch does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import sympy

from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.number_types import DType, computed_in
from polyfuse.ir.scalar import Select, add, combine, div, mul, number, read
from polyfuse.ir.tree import parts
from polyfuse.rewrite.gradient.draft import Draft, element, onto
from polyfuse.rewrite.gradient.lifetimes import Lifetimes
from polyfuse.sets import IN, OUT, SET, dim_names

ZERO, ONE = number(0.0), number(1.0)

EXACT_IN_FLOAT32 = 2**24
"""Whole numbers up to here are float32 numbers."""


@dataclass(frozen=True)
class Share:
    """Statements that find out who gets the adjoint, and a term's seed.

    Attributes:
        statements: They run once the reduction is done, in this order.
        accesses: Results of these statements, as the reduction's instances read them.
        seed: From the statement and the position of its adjoint to the seed of its body; the position after it is the
            reduction's result, then follow `accesses`.
    """

    statements: tuple[Statement, ...]
    accesses: list[Access]
    seed: Callable[[Statement, int], sympy.Expr]


def with_explicit(nest: Nest) -> Nest:
    """Write reductions that have no share as assignments that read their target, which have derivatives like any other.

    for i: m max= x[i]  in a loop that uses m     ->     for i: m = max(m, x[i])

    A share needs a result that is final, begins at a number, and a reduction that stands alone.
    """
    lives = Lifetimes(nest)
    alone = {part.names for part in parts(nest.order)}

    def changed(s: Statement) -> Statement:
        if s.op in ("=", "+="):
            return s
        others = [one for one in nest.writers(s.write.tensor) if one is not s]
        final = lives.settled(s.write.tensor) and not any(one.reads or one.is_reduction for one in others)
        if final and (s.name,) in alone and all(a.tensor != s.write.tensor for a in s.reads):
            return s
        n = len(s.reads)
        body = combine(s.op, read(n), s.body)
        return replace(s, op="=", reads=(*s.reads, s.write), body=body)

    every = tuple(map(changed, nest.statements))
    return nest if every == nest.statements else replace(nest, statements=every)


def share_of(s: Statement, nest: Nest, draft: Draft) -> Share:
    """The share of a maximum, a minimum or a product."""
    if s.op == "*=":
        return _of_product(s, nest, draft)
    places = _places(s)
    return _shared_evenly(s, nest, draft) if places is None else _to_the_first(s, nest, draft, *places)


def _equal(a: sympy.Expr, b: sympy.Expr) -> sympy.Basic:
    return sympy.Eq(a, b, evaluate=False)


def _shared_evenly(s: Statement, nest: Nest, draft: Draft) -> Share:
    made, count = _fold(s, nest, draft, "ties", "+=", ZERO, lambda f, m: Select(_equal(f, m), ONE, ZERO))

    def seed(s: Statement, n: int) -> sympy.Expr:
        return div(Select(_equal(s.body, read(n + 1)), read(n), ZERO), read(n + 2))

    return Share(made, [count], seed)


def _to_the_first(s: Statement, nest: Nest, draft: Draft, place: sympy.Expr, count: int) -> Share:
    none = number(count)

    def earliest(f: sympy.Expr, m: sympy.Expr) -> sympy.Expr:
        is_number = sympy.Ge(sympy.Abs(f, evaluate=False), ZERO, evaluate=False)
        return Select(_equal(f, m), place, Select(is_number, none, place))

    wide: DType | None = "float64" if count > EXACT_IN_FLOAT32 else None
    made, at = _fold(s, nest, draft, "place", "min=", none, earliest, wide)
    return Share(made, [at], lambda s, n: Select(_equal(read(n + 2), place), read(n), ZERO))


def _of_product(s: Statement, nest: Nest, draft: Draft) -> Share:
    zeros, count = _fold(s, nest, draft, "zeros", "+=", ZERO, lambda f, m: Select(_equal(f, ZERO), ONE, ZERO))
    rest, others = _fold(s, nest, draft, "others", "*=", ONE, lambda f, m: Select(_equal(f, ZERO), ONE, f))

    def seed(s: Statement, n: int) -> sympy.Expr:
        alone = Select(_equal(read(n + 2), ONE), mul(read(n), read(n + 3)), ZERO)
        return Select(_equal(s.body, ZERO), alone, div(mul(read(n), read(n + 1)), s.body))

    return Share((*zeros, *rest), [count, others], seed)


def _fold(
    s: Statement,
    nest: Nest,
    draft: Draft,
    stem: str,
    op: str,
    initial: sympy.Expr,
    value: Callable[[sympy.Expr, sympy.Expr], sympy.Expr],
    dtype: DType | None = None,
) -> tuple[tuple[Statement, ...], Access]:
    """A reduction of the shape of `s` over its terms and results: its two statements, and the access to its result."""
    result = nest.tensor(s.write.tensor)
    made = draft.tensor(f"{s.name}_{stem}", result.shape, dtype or computed_in(result.dtype), "temporary")
    domain = draft.elements(result)
    n = len(s.reads)
    first = draft.statement(f"{made.name}_init", domain, element(domain, made.name), "=", [], initial)
    target = onto(s.write, made.name)
    body = value(s.body, read(n))
    second = draft.statement(f"{made.name}_fold", s.domain, target, op, [*s.reads, s.write], body)
    return (first, second), target


def _places(s: Statement) -> tuple[sympy.Expr, int] | None:
    """The number of a term among those of its window, and how many there are; None if the terms are whole axes."""
    kept = [d for d in range(len(s.dims)) if s.write.map.involves_dims(IN, d, 1)]
    inner = [d for d in range(len(s.dims)) if d not in kept]
    if not inner or not _are_windows(s, kept, inner):
        return None
    bounds = [(s.domain.dim_min_val(d), s.domain.dim_max_val(d)) for d in inner]
    if any(not end.is_int() for pair in bounds for end in pair):
        return None
    place: sympy.Expr | None = None
    count = 1
    for d, (low, high) in zip(inner, bounds, strict=True):
        size = int(high.to_python()) - int(low.to_python()) + 1
        index: sympy.Expr = sympy.Symbol(dim_names(s.domain)[d])
        if low.to_python() != 0:
            index = add(index, number(-int(low.to_python())))
        place = index if place is None else add(mul(place, number(size)), index)
        count *= size
    assert place is not None, "there is a dimension"
    return place, count


def _are_windows(s: Statement, kept: list[int], inner: list[int]) -> bool:
    """True if a subscript or a bound mixes dimensions of the result with others."""
    subscripts = [access.subscripts().get_pw_aff(o) for access in s.reads for o in range(access.map.dim(OUT))]
    bounds = [one for piece in s.domain.get_basic_sets() for one in piece.get_constraints()]
    used = [[d for d in (*kept, *inner) if one.involves_dims(IN, d, 1)] for one in subscripts]
    used += [[d for d in (*kept, *inner) if one.involves_dims(SET, d, 1)] for one in bounds]
    return any(set(dims) & set(kept) and set(dims) & set(inner) for dims in used)
