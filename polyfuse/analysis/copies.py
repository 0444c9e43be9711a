"""Check that statements added by `promote` and `pack` are parts of the source's bodies, computed once and kept.

    load[k]: t[k] = alpha * A[k];  mac[k, j]: y[j] += t[k] * b[j]   against   mac[k, j]: y[j] += (alpha * A[k]) * b[j]

The theorem. Read a statement's body and its original's side by side from the top. Where the one has a read of an added
buffer t[e(x)], let c(x) be the instance of t's one writer that stores the element: its body, composed with c, must read
like the part of the original that stands there. At the leaves, tensors and elements are the same, as functions of x,
and what comes through a copy was written by the same instances as before.

A buffer may be cleared before its writer fills it, and a sum that has it as a factor may then have more instances than
the source: those whose element is only cleared. Each adds a product with zero, which leaves a sum as it is where the
other factor is finite (it is what padding an image means); nothing else is asked of them.

    clear[k]: t[k] = 0;  load[k] for k < n: t[k] = A[k];  mac[k] for k < m: y += t[k] * b[k]      n <= m

A copy may round its values once, to the format to which a microkernel may round its factors, if only such read them.

    load[k]: t[k] = tf32(A[k]);  mac[k, j], a microkernel of tf32 factors: y[j] += t[k] * b[j]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import islpy as isl
import sympy

from polyfuse.errors import ValidationFailure
from polyfuse.ir.access import Access
from polyfuse.ir.dependences import Pairs
from polyfuse.ir.nest import Nest
from polyfuse.ir.number_types import HALVES
from polyfuse.ir.precision import STORED, Math
from polyfuse.ir.scalar import Read, Tf32
from polyfuse.ir.statement import Statement
from polyfuse.ir.tree import Tree, loops_around, parts, restrict, statements
from polyfuse.sets import OUT, union_map, union_set


def check_copies(source: Nest, nest: Nest, tree: Tree) -> None:
    """Raise ValidationFailure unless the nest is the source, with parts of its bodies computed by copies.

    `tree` is the schedule, which says what may be rounded.
    """
    if nest is source:
        return
    originals = {s.name: s for s in source.statements}
    copies = _without_clears(nest, [s for s in nest.statements if s.name not in originals])
    added = {s.write.tensor: s for s in copies}
    if len(added) < len(copies) or any(t.name in added for t in source.tensors):
        raise _failed("two statements write one buffer")
    for copy in copies:
        if copy.op != "=" or set(copy.dims) & {symbol.name for symbol in copy.body.free_symbols}:
            raise _failed(f"{copy.name} is not a copy of values")
    for copy in copies:
        _check_rounding(nest, tree, copy)
    if restrict(nest.order, frozenset(originals)) != source.order:
        raise _failed("the source's original order is another one")
    for s in nest.statements:
        if s.name in originals:
            _same(source, nest, (s, originals[s.name]), added)


def _check_rounding(nest: Nest, tree: Tree, copy: Statement) -> None:
    """Raise ValidationFailure where a copy rounds its values and something reads them that may not."""
    to = rounds(nest, copy)
    if to is None:
        return
    for s in nest.statements:
        if any(access.tensor == copy.write.tensor for access in s.reads):
            math = next((x.math for x in loops_around(tree, s.name) if x.bind == "microkernel"), "ieee")
            if math != to:
                raise _failed(
                    f"{copy.name} rounds to {to}, and {s.name}, which reads that, is no microkernel of {to} factors"
                )


def rounds(nest: Nest, copy: Statement) -> Math | None:
    """The format to which a copy rounds its values; None if it keeps every bit."""
    if isinstance(copy.body, Tf32):
        return "tf32"
    dtype = nest.tensor(copy.write.tensor).dtype
    exact = isinstance(copy.body, Read) and nest.tensor(copy.reads[copy.body.position].tensor).dtype == dtype
    formats = {held: math for math, held in STORED.items() if held in HALVES}
    return None if exact else formats.get(dtype)


def holds_rounded(nest: Nest, tensor: str, math: Math, asking: frozenset[str] = frozenset()) -> bool:
    """True if a tensor holds only zeros and numbers of a format, by its type or by its writers.

    r[k] = tf32(x[k]);  t[k] = r[k]: both, of tf32 numbers. Not what is copied in a circle of tensors, those asked for.
    """
    held = nest.tensor(tensor)
    if held.dtype != STORED[math]:
        return False
    if held.is_half or math == "f64":
        return True
    writers = [s for s in nest.statements if s.write.tensor == tensor]
    if not writers or held.role != "temporary" or tensor in asking:
        return False
    asked = asking | {tensor}
    return all(s.op == "=" and _is_rounded(nest, s, math, asked) for s in writers)


def _is_rounded(nest: Nest, s: Statement, math: Math, asking: frozenset[str]) -> bool:
    """True if a body is zero, a number rounded to tf32, or an element of a tensor of such numbers."""
    if isinstance(s.body, Read):
        return holds_rounded(nest, s.reads[s.body.position].tensor, math, asking)
    return s.body.is_zero is True or isinstance(s.body, Tf32)


def _without_clears(nest: Nest, copies: list[Statement]) -> list[Statement]:
    """The copies but those that write zeros to a buffer which another one, wholly behind it, fills."""
    place = {name: p for p, part in enumerate(parts(nest.order)) for name in statements(part)}

    def clears(s: Statement) -> bool:
        later = [c for c in copies if c.write.tensor == s.write.tensor and place[c.name] > place[s.name]]
        return s.op == "=" and s.body.is_zero is True and bool(later)

    return [s for s in copies if not clears(s)]


def _check_added(nest: Nest, s: Statement, more: isl.Set, added: Mapping[str, Statement]) -> None:
    """Raise ValidationFailure unless instances that the source lacks add products with zero."""
    if more.is_empty():
        return
    if not all(more.is_subset(access.map.domain()) for access in s.accesses):
        raise _failed(f"{s.name} has instances that the source lacks, and they touch nothing")
    factors = s.body.args if s.op == "+=" and isinstance(s.body, sympy.Mul) else ()
    for access in (s.reads[factor.position] for factor in factors if isinstance(factor, Read)):
        copy = added.get(access.tensor)
        if copy is None:
            continue
        touched = access.map.intersect_domain(more)
        filled = copy.write.map.intersect_domain(nest.domains[copy.name]).range()
        clears = (c for c in nest.statements if c.write.tensor == access.tensor and c.name != copy.name)
        cleared = union_set(c.write.map.intersect_domain(nest.domains[c.name]).range() for c in clears)
        here = isl.UnionSet.from_set(touched.range())
        if touched.intersect_range(filled).is_empty() and here.is_subset(cleared):
            return
    raise _failed(f"{s.name} has instances that the source lacks, and they are no products with zero")


def _failed(why: str) -> ValidationFailure:
    return ValidationFailure(f"validation of copies failed: {why}")


@dataclass(frozen=True)
class _Leaf:
    """A read of the source's statement and the read it has become.

    `at` gives the instance that reads now, for each of the statement's: itself, or the last copy on the way.
    """

    mine: Access
    theirs: Access
    at: isl.Map


def _same(
    source: Nest, nest: Nest, pair: tuple[Statement, Statement], added: Mapping[str, Statement]
) -> None:
    """A statement and its original compute the same, and what comes through copies was written by the same."""
    s, original = pair
    domain = source.domains[s.name]
    if s.op != original.op or not original.domain.is_subset(s.domain):
        raise _failed(f"{s.name} is not the source's statement")
    _check_added(nest, s, nest.domains[s.name].subtract(domain), added)
    itself = isl.Map.identity(domain.get_space().map_from_set()).intersect_domain(domain)
    arriving: dict[str, isl.UnionMap] = {}
    for leaf in (
        _Leaf(s.write, original.write, itself),
        *_leaves(nest, (s, s.body), pair, itself, dict(added)),
    ):
        elements = leaf.at.apply_range(leaf.mine.map)
        if leaf.mine.tensor != leaf.theirs.tensor or not elements.is_equal(
            leaf.theirs.map.intersect_domain(domain)
        ):
            raise _failed(f"{s.name} touches {leaf.mine}, the source {leaf.theirs}")
        reader = leaf.at.get_tuple_name(OUT)
        into = (_kept(source, p) for p in nest.flow_through(leaf.mine.tensor) if p.sink == reader)
        flow = union_map(m.apply_range(leaf.at.reverse()) for m in into)
        arriving[leaf.mine.tensor] = arriving.get(leaf.mine.tensor, isl.UnionMap("{ }")).union(flow)
    for tensor, flow in arriving.items():
        wanted = union_map(p.map for p in source.flow_through(tensor) if p.sink == s.name)
        if not flow.is_equal(wanted):
            raise _failed(f"{s.name} reads a copy of {tensor} made before or after another write")


def _kept(source: Nest, pair: Pairs) -> isl.Map:
    """A pair's flow without instances that the source lacks: they write what was there."""
    domain = source.domains.get(pair.source)
    return pair.map if domain is None else pair.map.intersect_domain(domain)


def _leaves(
    nest: Nest,
    mine: tuple[Statement, sympy.Basic],
    pair: tuple[Statement, Statement],
    at: isl.Map,
    added: dict[str, Statement],
    theirs: sympy.Basic | None = None,
) -> Iterator[_Leaf]:
    """The reads of a part of a body next to those of the original's part; copies are gone through."""
    (reader, node), (s, original) = mine, pair
    part = original.body if theirs is None else theirs
    access = reader.reads[node.position] if isinstance(node, Read) else None
    if access is not None and access.tensor in added:
        copy = added[access.tensor]
        left = {tensor: other for tensor, other in added.items() if other is not copy}
        written = copy.write.map.intersect_domain(nest.domains[copy.name])
        there = at.apply_range(access.map).apply_range(written.reverse())
        if not there.domain().is_equal(at.domain()):
            raise _failed(f"{s.name} reads {access}, which {copy.name} does not fill")
        value = copy.body.args[0] if isinstance(copy.body, Tf32) else copy.body
        yield from _leaves(nest, (copy, value), pair, there, left, part)
    elif access is not None and isinstance(part, Read):
        yield _Leaf(access, original.reads[part.position], at)
    elif node.func is part.func and len(node.args) == len(part.args) and (node.args or node == part):
        for a, b in zip(node.args, part.args, strict=True):
            yield from _leaves(nest, (reader, a), pair, at, added, b)
    else:
        raise _failed(f"{reader.name} computes another part of {s.name} than the source")
