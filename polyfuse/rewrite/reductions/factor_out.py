"""Factoring: take a factor that all terms share out of a sum.

    for i, k: y[i] += a[i, k] / s[i] * v[k]      ->      for i, k: t[i] += a[i, k] * v[k]
                                                         for i:    y[i] = t[i] / s[i]

The theorem. A factor may leave where its value is the same for all instances that add to one element, that is, where
the elements it reads are functions of that element and nobody writes them in the part of the program that holds the
sum. Σ f·t = f·Σ t, with one rounding instead of one a term: sums are reassociated as declared reductions only, and so
is this. It is the first half of what attention needs to run in one pass (online_softmax.py is the second).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import islpy as isl
import sympy

from polyfuse.errors.proving import proving
from polyfuse.errors.refusals import Refusal
from polyfuse.ir import Access, Nest, Statement, Tensor
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.nest import own_loops
from polyfuse.ir.nest_text import value_text
from polyfuse.ir.number_types import computed_in
from polyfuse.ir.scalar import mul, read, reads_in, substitute
from polyfuse.ir.tree import parts, sequence, statements
from polyfuse.rewrite.recorded import recorded
from polyfuse.rewrite.refusal import check_legal, refused
from polyfuse.sets import on_domain


@dataclass(frozen=True)
class Factored:
    """The result of `factor`.

    Attributes:
        nest: The new nest.
        statement: The statement whose sum lost a factor.
        after: The statement that multiplies by the factor.
        factor: The factor, as text.
    """

    nest: Nest
    statement: str
    after: str
    factor: str

    def __str__(self) -> str:
        return f"{self.factor} leaves the sum of {self.statement}; {self.after} applies it once an element"


@dataclass(frozen=True)
class Split:
    """A sum's body as a product: what varies from term to term, and what does not."""

    inside: sympy.Basic
    outside: sympy.Basic


@recorded("factor")
@proving("the rewrite factor")
def factor(nest: Nest, statement: str) -> Factored:
    """Factor a common factor out of a sum, to be applied once per element (distributivity).

    S: y[e] += f[e] * t   ->   S: y_sum[e] += t;   S_scale: y[e] = y_sum[e] * f[e]

    Args:
        nest: The nest.
        statement: The statement that accumulates the sum.

    Returns:
        The new nest.

    Raises:
        IllegalRewrite: if `why_not_factor` returns a reason.
    """
    check_legal(why_not_factor(nest, statement))
    s = nest.statement(statement)
    zero = first_value(nest, s)
    assert zero is not None, "asked before"
    target = nest.tensor(s.write.tensor)
    inner = Tensor(
        fresh(f"{target.name}_sum", {t.name for t in nest.tensors}), target.shape, target.dtype, "temporary"
    )
    cut = split(s)
    after = _after(s, cut, inner, fresh(f"{statement}_scale", {x.name for x in nest.statements}))
    changed = {
        statement: with_body(replace(s, write=into(s.write, inner)), s.reads, cut.inside),
        zero.name: replace(zero, write=into(zero.write, inner)),
    }
    kept = tuple(changed.get(x.name, x) for x in nest.statements)
    at = next(p for p, x in enumerate(kept) if x.name == statement) + 1
    run = parts(nest.order)
    here = _part(nest, statement) + 1
    result = replace(
        nest,
        tensors=(*nest.tensors, inner),
        statements=(*kept[:at], after, *kept[at:]),
        order=sequence((*run[:here], own_loops(after), *run[here:])),
    )
    result.check()
    return Factored(result, statement, after.name, value_text(s, cut.outside))


@proving("the question why_not_factor")
def why_not_factor(nest: Nest, statement: str) -> Refusal | None:
    """Return the reason why no factor can be taken out of a statement's sum.

    Args:
        nest: The nest.
        statement: The statement's name.

    Returns:
        The reason; None if the rewrite is legal.
    """
    s = nest.statement(statement)
    target = nest.tensor(s.write.tensor)
    call = f"factor({statement!r})"

    def no(why: str, remedy: str, pairs: isl.Map | None = None) -> Refusal:
        return refused(call, why, remedy, pairs)

    if s.op != "+=":
        return no(f"{statement} is not a sum (its operator is {s.op})", "a statement with +=")
    cut = split(s)
    if cut.outside == sympy.Integer(1):
        return no(
            f"all factors of {statement} vary from term to term", "a factor that is the same for all terms"
        )
    if cut.inside == sympy.Integer(1):
        return no(f"no factor of {statement} varies from term to term", "a sum whose terms differ")
    types = {computed_in(nest.tensor(name).dtype) for name in s.tensors}
    if len(types) > 1:
        return no(f"{statement} mixes {' and '.join(sorted(types))}", "one element type")
    if first_value(nest, s) is None:
        return no(
            f"{target.name} is not set to 0 by one statement that writes exactly the elements of {statement}",
            "one initial 0 for each sum, and no other writer",
        )
    run = parts(nest.order)
    here = _part(nest, statement)
    inside = [nest.statement(name) for name in statements(run[here])]
    needed = {s.reads[leaf.position].tensor for leaf in reads_in(cut.outside)}
    writer = next((x.name for x in inside if x.write.tensor in needed), None)
    if writer is not None:
        return no(f"{writer} writes the factor in the loops of {statement}", "separate loops (`distribute`)")
    early = (x.name for part in run[: here + 1] for x in map(nest.statement, statements(part)) if x is not s)
    reader = next((name for name in early if target.name in map(_tensor, nest.statement(name).reads)), None)
    if reader is not None:
        return no(f"{reader} reads {target.name} before the sum's loops end", "separate loops (`distribute`)")
    return None


def split(s: Statement) -> Split:
    """The body's factors, those that are functions of the target's element apart.

    a[i, k] / s[i] * v[k]   ->   Split(a[i, k] * v[k], 1 / s[i])
    """
    moving: list[sympy.Basic] = []
    fixed: list[sympy.Basic] = []
    for part in factors(s.body):
        symbols = part.free_symbols - set(reads_in(part))
        stays = not symbols and all(_fixed(s, s.reads[leaf.position]) for leaf in reads_in(part))
        (fixed if stays else moving).append(part)
    return Split(product(moving), product(fixed))


def factors(body: sympy.Basic) -> list[sympy.Basic]:
    """The factors of nested products, in order: (a * b) * c  ->  a, b, c."""
    if isinstance(body, sympy.Mul):
        return [part for arg in body.args for part in factors(arg)]
    return [body]


def product(parts_: list[sympy.Basic]) -> sympy.Basic:
    """Factors as one product, from the left; 1 for none."""
    return reduce(mul, parts_) if parts_ else sympy.Integer(1)


def first_value(nest: Nest, s: Statement) -> Statement | None:
    """The one other statement that writes a sum's tensor, if it sets 0, earlier, for just the elements of the sum."""
    others = [x for x in nest.writers(s.write.tensor) if x is not s]
    if len(others) != 1 or others[0].is_reduction or not others[0].body.is_zero:
        return None
    zero = others[0]
    written = nest.domains[zero.name].apply(zero.write.map)
    names = statements(nest.order)
    first = names.index(zero.name) < names.index(s.name)
    return zero if first and written.is_equal(nest.domains[s.name].apply(s.write.map)) else None


def with_body(s: Statement, reads: tuple[Access, ...], body: sympy.Basic) -> Statement:
    """The statement with another body over some reads; those that the body does not use are dropped."""
    used = [leaf.position for leaf in reads_in(body)]
    numbered: dict[sympy.Basic, sympy.Basic] = {read(old): read(new) for new, old in enumerate(used)}
    return replace(s, reads=tuple(reads[p] for p in used), body=substitute(body, numbered))


def into(write: Access, tensor: Tensor) -> Access:
    """The same element of another tensor."""
    return Access(tensor.name, write.map.set_tuple_name(isl.dim_type.out, tensor.name))


def elements_of(s: Statement, name: str) -> isl.Set:
    """The elements that a statement writes, as the domain of another: { y[i] }  ->  { name[e0] }."""
    domain = s.domain.apply(s.write.map).set_tuple_name(name)
    for d in range(domain.dim(isl.dim_type.set)):
        domain = domain.set_dim_name(isl.dim_type.set, d, f"e{d}")
    return domain.coalesce()


def _after(s: Statement, cut: Split, inner: Tensor, name: str) -> Statement:
    """y[e] = y_sum[e] * f[e]."""
    domain = elements_of(s, name)
    to_element = isl.Map.identity(domain.get_space().map_from_set())
    found = to_element.set_tuple_name(isl.dim_type.out, inner.name)
    whose = to_element.set_tuple_name(isl.dim_type.out, s.write.tensor).apply_range(
        s.write.map.intersect_domain(s.domain).reverse()
    )
    used = [leaf.position for leaf in reads_in(cut.outside)]
    reads = [Access(s.reads[p].tensor, on_domain(whose.apply_range(s.reads[p].map), domain)) for p in used]
    moved: dict[sympy.Basic, sympy.Basic] = {read(old): read(new + 1) for new, old in enumerate(used)}
    return Statement(
        name,
        domain,
        Access(s.write.tensor, to_element.set_tuple_name(isl.dim_type.out, s.write.tensor)),
        "=",
        (Access(inner.name, found), *reads),
        mul(read(0), substitute(cut.outside, moved)),
    )


def _fixed(s: Statement, access: Access) -> bool:
    """True if an access is a function of the element that the statement writes."""
    writes = s.write.map.intersect_domain(s.domain)
    return bool(writes.reverse().apply_range(access.map).is_single_valued())


def _part(nest: Nest, statement: str) -> int:
    return next(p for p, part in enumerate(parts(nest.order)) if statement in statements(part))


def _tensor(access: Access) -> str:
    return access.tensor
