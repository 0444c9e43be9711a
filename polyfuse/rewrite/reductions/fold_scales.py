"""Folding: move a constant factor of a sum's result into a constant factor of its terms.

    for e, k: y[e] += x[k] * w[j, k]          for j, k: w_folded[j, k] = w[j, k] * r[j]      once for all calls
    for e: z[e] = y[e] + b[j]            ->   for j:    offset[j] = b[j] * r[j] + d[j]       once for all calls
    for e: h[e] = z[e] * r[j] + d[j]          for e, k: y[e] += x[k] * w_folded[j, k]
                                              for e:    h[e] = y[e] + offset[j]

The theorem. Let statements from a sum to S compute p·u + q of the value u before them, p and q of constants alone, each
value read by the next statement only and when it is finished. Then S is P·y + Q of the sum y, and P·Σ x·w = Σ x·(P·w).
P may join w where all terms with one element of w add to results with the same P: r is a function of w's element.

It rounds otherwise, and no worse: with n terms both forms err by at most (n + 3)·u·(|P|·Σ |x·w| + |Q|) to first order
(u: 2⁻²⁴ for float32). What is infinite or NaN in P reaches the result by another way.

Statements of constants alone come first in the new nest: they may run before all others (analysis/once.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import islpy as isl
import sympy

from polyfuse.analysis.once import constant_tensors
from polyfuse.errors import IllegalRewrite, quantity
from polyfuse.errors.proving import proving
from polyfuse.errors.refusals import Refusal
from polyfuse.ir import Access, Nest, Statement, Tensor
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.nest import own_loops
from polyfuse.ir.nest_text import value_text
from polyfuse.ir.scalar import add, mul, operations, read, reads_in, substitute
from polyfuse.ir.tree import Tree, parts, restrict, sequence, statements
from polyfuse.rewrite.linear import Linear, linear_in
from polyfuse.rewrite.recorded import recorded
from polyfuse.rewrite.reductions.factor_out import factors, first_value
from polyfuse.rewrite.refusal import refused
from polyfuse.sets import IN, OUT, SET, dim_names, on_domain


@dataclass(frozen=True)
class Folded:
    """The result of `fold`.

    Attributes:
        nest: The new nest.
        statement: The statement that lost a factor.
        factor: The factor, as text.
        into: The constant into which it is multiplied.
        by: The statement that multiplies, once for all calls.
        saved: Operations saved per element of the result and call.
    """

    nest: Nest
    statement: str
    factor: str
    into: str
    by: str
    saved: int

    def __str__(self) -> str:
        return (
            f"{self.factor} leaves {self.statement} for {self.into}, which {self.by} multiplies by it once for all "
            f"calls: {quantity(self.saved, 'fewer operation')} an element in each call, and other rounding"
        )


@dataclass(frozen=True)
class Chain:
    """A value computed from a sum: scale · sum + offset, over reads of constants."""

    sum: Statement
    zero: Statement
    between: tuple[Statement, ...]
    source: Access
    value: Linear
    reads: tuple[Access, ...]


@proving("the rewrite fold")
def fold(nest: Nest, statement: str) -> Folded:
    """Fold a constant factor of a sum into one of its constants, once for all calls.

    y += x * w;  h = y * r[j] + d[j]   ->   w_folded = w * r[j];  y += x * w_folded;  h = y + d[j]

    Args:
        nest: The nest.
        statement: The statement that multiplies by the factor.

    Returns:
        The new nest.

    Raises:
        IllegalRewrite: if `why_not_fold` returns a reason.
    """
    done = folded(nest, statement, constant_tensors(nest, nest.order))
    if isinstance(done, Refusal):
        raise IllegalRewrite(done)
    done.nest.check()
    return done


@recorded("fold", without=("fixed",))
@proving("the rewrite fold")
def folded(nest: Nest, statement: str, fixed: frozenset[str]) -> Folded | Refusal:
    """Return what `fold` makes, its nest not checked yet; or why not. `fixed` is `constant_tensors(nest, nest.order)`.

    Dependences through tensors that no changed statement touches are taken over, though early kernels now come first:
    none leads from another kernel to an early one.
    """
    chain = _chain(nest, statement, fixed)
    if isinstance(chain, Refusal):
        return chain
    position = _place(nest, statement, chain, fixed)
    if isinstance(position, Refusal):
        return position
    s = nest.statement(statement)
    weight = chain.sum.reads[position]
    tensor, scaled = _scaled(nest, chain, weight, s)
    made, offset = _offset(nest, chain, s)
    changed = {
        chain.sum.name: replace(
            chain.sum,
            reads=tuple(into(a, tensor) if p == position else a for p, a in enumerate(chain.sum.reads)),
        ),
        statement: _shifted(s, chain, made),
    }
    gone = {t.name for t in chain.between}
    kept = tuple(changed.get(x.name, x) for x in nest.statements if x.name not in gone)
    new = (scaled, *(x for x in (offset,) if x is not None))
    run = [(part, _is_early(nest, part, fixed)) for part in parts(nest.order)]
    left = (restrict(part, frozenset(x.name for x in kept)) for part, early in run if not early)
    order = sequence(
        (
            *(part for part, early in run if early),
            *map(own_loops, new),
            *(part for part in left if part is not None),
        )
    )
    lost = {t.write.tensor for t in chain.between}
    tensors = (*(t for t in nest.tensors if t.name not in lost), tensor)
    if isinstance(made, Tensor):
        tensors = (*tensors, made)
    every = {x.name: x for x in (*new, *kept)}
    old = (*chain.between, chain.sum, s)
    touched = frozenset(name for x in (*old, *changed.values(), *new) for name in x.tensors)
    result = nest.rewritten(tensors, tuple(every[name] for name in statements(order)), order, touched)
    before = sum(operations(x.body) for x in (*chain.between, s))
    scale, used = _numbered(chain.value.scale, 0)
    factor = value_text(replace(s, reads=tuple(chain.reads[p] for p in used), body=scale), scale)
    saved = before - operations(changed[statement].body)
    return Folded(result, statement, factor, weight.tensor, scaled.name, saved)


@proving("the question why_not_fold")
def why_not_fold(nest: Nest, statement: str) -> Refusal | None:
    """Return the reason why no factor of a statement's value can be folded into a constant.

    Args:
        nest: The nest.
        statement: The statement's name.

    Returns:
        The reason; None if the rewrite is legal.
    """
    fixed = constant_tensors(nest, nest.order)
    chain = _chain(nest, statement, fixed)
    if isinstance(chain, Refusal):
        return chain
    place = _place(nest, statement, chain, fixed)
    return place if isinstance(place, Refusal) else None


def still_fixed(nest: Nest, fixed: frozenset[str], done: Folded) -> frozenset[str]:
    """Return the constant tensors of a nest in which a scale was folded: those left, and those that the fold made.

    Args:
        nest: The nest before.
        fixed: Its constant tensors.
        done: The fold.

    Returns:
        The names, as `constant_tensors` would find them in all kernels.
    """
    before = {tensor.name for tensor in nest.tensors}
    return frozenset(t.name for t in done.nest.tensors if t.name in fixed or t.name not in before)


def _is_early(nest: Nest, part: Tree, fixed: frozenset[str]) -> bool:
    """True if a kernel runs once for all calls: it writes constant tensors, whose writers all do (analysis/once.py)."""
    return all(nest.statement(name).write.tensor in fixed for name in statements(part))


# -- from the statement back to the sum --------------------------------------------------------------------------------


def _chain(nest: Nest, statement: str, fixed: frozenset[str]) -> Chain | Refusal:
    """Express a statement's value as p · sum + q with constant p and q, or return the reason why it is not."""
    call = f"fold({statement!r})"
    s = nest.statement(statement)
    if s.op != "=" or not s.reads:
        return refused(
            call, f"{statement} is not a function of one earlier value", "an assignment (=) that reads one"
        )
    to_here = isl.Map.identity(s.domain.get_space().map_from_set())
    found, value = s, Linear.identity()
    reads: list[Access] = []
    between: list[Statement] = []
    while True:
        step = _step(found, fixed)
        if step is None:
            return refused(
                call,
                f"{found.name} does not compute p * u + q of one value u, where p and q depend on constants only",
                "scales and offsets that are constants",
            )
        source, own = step
        moved: dict[sympy.Basic, sympy.Basic] = {}
        for position, access in enumerate(found.reads):
            if access is not source:
                moved[read(position)] = read(len(reads))
                reads.append(Access(access.tensor, to_here.apply_range(access.map)))
        value = value.after(own.renamed(moved))
        here = Access(source.tensor, to_here.apply_range(source.map))
        writers = nest.writers(source.tensor)
        why = _unfinished(nest, found, source, writers)
        if why is not None:
            return refused(call, *why)
        total = next((x for x in writers if x.op == "+="), None)
        if total is not None:
            zero = first_value(nest, total)
            if zero is None:
                return refused(
                    call, f"{total.name} does not start from 0 everywhere", "an initial 0 for each sum"
                )
            return Chain(total, zero, tuple(between), here, value, tuple(reads))
        producer = writers[0]
        if len(writers) > 1 or producer.op != "=" or not producer.write.map.is_injective():
            return refused(call, f"{source.tensor} is neither a sum nor written once per element", "a sum")
        write = producer.write.map.intersect_domain(producer.domain)
        to_here = here.map.apply_range(write.reverse())
        between.append(producer)
        found = producer


def _step(s: Statement, fixed: frozenset[str]) -> tuple[Access, Linear] | None:
    """Return the only read that is not a constant, and the body as a linear function of it; None if there is none."""
    varying = [position for position, access in enumerate(s.reads) if access.tensor not in fixed]
    if len(varying) != 1 or s.body.free_symbols - set(reads_in(s.body)):
        return None
    value = linear_in(s.body, read(varying[0]))
    return None if value is None else (s.reads[varying[0]], value)


def _unfinished(
    nest: Nest, reader: Statement, source: Access, writers: tuple[Statement, ...]
) -> tuple[str, str, isl.Map | None] | None:
    """Return the reason why an operand is used elsewhere or is incomplete, as (why, needed, pairs)."""
    tensor = nest.tensor(source.tensor)
    if tensor.role != "temporary" or not writers:
        return f"{tensor.name} is {tensor.role}: the caller sees it", "a temporary", None
    others = [x.name for x in nest.readers(tensor.name) if x is not reader]
    if others:
        return f"{', '.join(others)} reads {tensor.name} too", "a value that nothing else reads", None
    names = {x.name for x in writers}
    for pair in nest.dependences().after(reader.name):
        if pair.sink in names:
            return (
                f"{pair.sink} writes {tensor.name} after {reader.name} has read it",
                "a finished value",
                pair.map,
            )
    return None


# -- where the factor goes ---------------------------------------------------------------------------------------------


def _place(nest: Nest, statement: str, chain: Chain, fixed: frozenset[str]) -> int | Refusal:
    """Return the position of the sum's read that the scale may join, or the reason why there is none."""
    call, total = f"fold({statement!r})", chain.sum
    if chain.value.scale == sympy.Integer(1):
        return refused(call, f"{statement} multiplies by no scale", "a scale")
    if fixed >= set(total.tensors):
        return refused(
            call, f"{total.name} depends on constants only, and runs once for all calls already", "nothing"
        )
    names = {a.tensor for a in (*chain.reads, chain.source, *total.accesses, nest.statement(statement).write)}
    types = {nest.tensor(name).dtype for name in names}
    if len(types) > 1 or not types <= {"float32", "float64"}:
        return refused(call, f"the value mixes {' and '.join(sorted(types))}", "one floating-point type")
    if _key(chain) is None:
        return refused(
            call, "the offset has no constant whose element says all others", "offsets along one axis"
        )
    scales = [chain.reads[leaf.position] for leaf in reads_in(chain.value.scale)]
    held = [p for p in factors(total.body) if p in map(read, range(len(total.reads)))]
    constant = [total.reads[p.position] for p in held if total.reads[p.position].tensor in fixed]
    if not constant:
        return refused(call, f"no factor of {total.name} is a constant", "a product with a constant")
    for access in constant:
        whose = _owners(chain, access)
        if held.count(read(total.reads.index(access))) == 1 and all(
            whose.apply_range(scale.map).is_single_valued() for scale in scales
        ):
            return total.reads.index(access)
    elements = " and ".join(dict.fromkeys(map(str, constant)))
    return refused(
        call,
        f"the scale is not a function of the element {elements} of {total.name}",
        "a scale that is equal for all results to which one element of the constant contributes",
    )


def _owners(chain: Chain, access: Access) -> isl.Map:
    """Return the map from elements of a sum's factor to the instances that scale its results: { w[j, k] -> norm[i, j]
    }.
    """
    terms = chain.sum.domain
    adds = chain.sum.write.map.intersect_domain(terms)
    return (
        access.map.intersect_domain(terms).reverse().apply_range(adds).apply_range(chain.source.map.reverse())
    )


def _scaled(nest: Nest, chain: Chain, weight: Access, s: Statement) -> tuple[Tensor, Statement]:
    """w_folded[e..] = w[e..] * scale, for all elements that the sum reads."""
    known = nest.tensor(weight.tensor)
    tensor = replace(known, name=_new_tensor(nest, f"{known.name}_folded"), role="temporary")
    name = fresh(f"{s.name}_fold", {x.name for x in nest.statements})
    domain = _elements(weight.map.intersect_domain(chain.sum.domain).range(), name)
    reads = _through(chain, _owners(chain, weight), chain.value.scale, domain)
    own = isl.Map.identity(domain.get_space().map_from_set())
    body, used = _numbered(chain.value.scale, 1)
    return tensor, Statement(
        name,
        domain,
        Access(tensor.name, own.set_tuple_name(OUT, tensor.name)),
        "=",
        (Access(known.name, own.set_tuple_name(OUT, known.name)), *(reads[p] for p in used)),
        mul(read(0), body),
    )


def _key(chain: Chain) -> Access | None:
    """The read of the offset of which all its others are functions; any if it has none or is a number."""
    reads = [chain.reads[leaf.position] for leaf in reads_in(chain.value.offset)]
    for access in reads:
        back = access.map.intersect_domain(_domain(chain)).reverse()
        if all(back.apply_range(other.map).is_single_valued() for other in reads):
            return access
    return None if reads else chain.source


def _domain(chain: Chain) -> isl.Set:
    return chain.source.map.domain()


def _offset(nest: Nest, chain: Chain, s: Statement) -> tuple[Tensor | Access | None, Statement | None]:
    """The tensor of offsets and what computes it; the access alone where the offset is one read, or no read at all."""
    value = chain.value.offset
    leaves = reads_in(value)
    if not leaves:
        return None, None
    if value == leaves[0]:
        return chain.reads[leaves[0].position], None
    key = _key(chain)
    assert key is not None, "asked before"
    name = fresh(f"{s.name}_offset", {x.name for x in nest.statements})
    known = nest.tensor(key.tensor)
    tensor = Tensor(_new_tensor(nest, f"{s.write.tensor}_offset"), known.shape, known.dtype, "temporary")
    back = key.map.intersect_domain(s.domain).reverse()
    domain = _elements(back.domain(), name)
    reads = _through(chain, back, value, domain)
    own = isl.Map.identity(domain.get_space().map_from_set())
    body, used = _numbered(value, 0)
    made = Statement(
        name,
        domain,
        Access(tensor.name, own.set_tuple_name(OUT, tensor.name)),
        "=",
        tuple(reads[p] for p in used),
        body,
    )
    return tensor, made


def _shifted(s: Statement, chain: Chain, offset: Tensor | Access | None) -> Statement:
    """h[e] = y[e] + offset: what is left of the statement."""
    source = Access(chain.source.tensor, chain.source.map)
    if offset is None:
        number = chain.value.offset
        return replace(s, reads=(source,), body=read(0) if number.is_zero else add(read(0), number))
    if isinstance(offset, Tensor):
        key = _key(chain)
        assert key is not None, "asked before"
        offset = into(key, offset)
    return replace(s, reads=(source, offset), body=add(read(0), read(1)))


# -- accesses ----------------------------------------------------------------------------------------------------------


def into(access: Access, tensor: Tensor) -> Access:
    """The same element of another tensor."""
    return Access(tensor.name, access.map.set_tuple_name(OUT, tensor.name))


def _through(chain: Chain, back: isl.Map, value: sympy.Basic, domain: isl.Set) -> dict[int, Access]:
    """Return a value's reads as accesses of the elements' statement: { fold[e0, e1] -> r[e0] }."""
    found = {}
    own = back.set_tuple_name(IN, domain.get_tuple_name())
    for axis, dim in enumerate(dim_names(domain)):
        own = own.set_dim_name(IN, axis, dim)
    for leaf in reads_in(value):
        access = chain.reads[leaf.position]
        found[leaf.position] = Access(access.tensor, on_domain(own.apply_range(access.map), domain))
    return found


def _numbered(value: sympy.Basic, first: int) -> tuple[sympy.Basic, list[int]]:
    """A value over reads numbered from `first`, and the positions that they had."""
    used = [leaf.position for leaf in reads_in(value)]
    numbers: dict[sympy.Basic, sympy.Basic] = {read(old): read(first + new) for new, old in enumerate(used)}
    return substitute(value, numbers), used


def _elements(found: isl.Set, name: str) -> isl.Set:
    """Elements of a tensor as the domain of a statement: { w[a, b] }  ->  { name[e0, e1] }."""
    domain = found.coalesce().set_tuple_name(name)
    for axis in range(domain.dim(SET)):
        domain = domain.set_dim_name(SET, axis, f"e{axis}")
    return domain


def _new_tensor(nest: Nest, name: str) -> str:
    return fresh(name, {t.name for t in nest.tensors})
