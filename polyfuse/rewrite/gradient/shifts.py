"""Find maxima that the outputs do not depend on: those that are subtracted only so that no exponential overflows.

    m[i] max= x[i, j];  e[i, j] = exp(x[i, j] - m[i]);  s[i] += e[i, j];  p[i, j] = e[i, j] / s[i]

The theorem. Add d[i] to each m[i]. Then e is exp(-d[i]) times what it was, and so is s; p is what it was, for every
d. So dp/dm is 0, and no derivative passes through the maximum. A value that changes by a factor exp(a * d) has scale a,
one that changes by b * d has shift b:

    m: shift 1        u + v: shifts add, equal scales stay         u * v: scales add         u ** n: scale n * a
    exp(u): its shift becomes its scale      log(u): its scale becomes its shift             sum of u: its scale

and all that a body combines has to change by the same d[i]: isl composes the accesses and compares them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction

import islpy as isl
import sympy

from polyfuse.ir import Nest, Statement
from polyfuse.ir.scalar import Read
from polyfuse.ir.tree import parts
from polyfuse.rewrite.gradient.lifetimes import Lifetimes


@dataclass(frozen=True)
class Change:
    """A value changes by exp(scale * d), or by shift * d; one of the two is 0."""

    scale: Fraction = Fraction(0)
    shift: Fraction = Fraction(0)

    @property
    def is_none(self) -> bool:
        """True if the value stays."""
        return self.scale == 0 and self.shift == 0


NONE = Change()


def still(nest: Nest, outputs: Collection[str], lives: Lifetimes) -> frozenset[str]:
    """The tensors of maxima and minima, one for each reduction, whose gradient is 0 as the outputs do not change."""
    candidates = [s.write.tensor for s in nest.statements if s.op in ("max=", "min=")]
    return frozenset(name for name in dict.fromkeys(candidates) if _is_still(nest, name, outputs, lives))


def _is_still(nest: Nest, extreme: str, outputs: Collection[str], lives: Lifetimes) -> bool:
    """Follow the change of a maximum through the statements, in order; False where a rule is missing."""
    identity = isl.Map.identity(nest.tensor(extreme).elements(nest.params).get_space().map_from_set())
    changes: dict[str, tuple[Change, isl.Map]] = {extreme: (Change(shift=Fraction(1)), identity)}
    for part in parts(nest.order):
        touched = [nest.statement(name) for name in part.names]
        inside = [s for s in touched if any(a.tensor in changes for a in s.reads)]
        if not inside:
            continue
        if len(touched) > 1 or not lives.settled(inside[0].write.tensor):
            return False
        (s,) = inside
        found = _of_statement(nest, s, changes)
        if found is None or s.write.tensor in changes:
            return False
        if not found[0].is_none:
            changes[s.write.tensor] = found
    return not changes.keys() & set(outputs)


def _of_statement(
    nest: Nest, s: Statement, changes: dict[str, tuple[Change, isl.Map]]
) -> tuple[Change, isl.Map] | None:
    """How what a statement writes changes, and { element -> element of the maximum }."""
    by: isl.Map | None = None
    leaves: dict[int, Change] = {}
    domain = nest.domains[s.name]
    for k, access in enumerate(s.reads):
        if access.tensor not in changes:
            continue
        leaves[k], element = changes[access.tensor]
        here = access.map.intersect_domain(domain).apply_range(element)
        if by is not None and not by.is_equal(here):
            return None
        by = here
    change = _of_body(s.body, leaves)
    if change is None or by is None:
        return None
    if change.is_none:
        return change, by
    others = [one for one in nest.writers(s.write.tensor) if one is not s]
    if s.op == "+=":
        from_zero = all(one.body.is_zero for one in others)
        if change.shift != 0 or not from_zero:
            return None
    elif s.op != "=" or others:
        return None
    onto = s.write.map.intersect_domain(domain).reverse().apply_range(by)
    return (change, onto) if onto.is_single_valued() else None


def _of_body(body: sympy.Basic, leaves: dict[int, Change]) -> Change | None:
    """How a body changes with its leaves; None if no rule says."""
    if not any(leaf.position in leaves for leaf in body.atoms(Read)):
        return NONE
    if isinstance(body, Read):
        return leaves[body.position]
    inside = [_of_body(arg, leaves) for arg in body.args]
    known = [one for one in inside if one is not None]
    if len(known) < len(inside):
        return None
    match body:
        case sympy.Add():
            scales = {one.scale for one in known}
            if len(scales) > 1:
                return None
            shift = sum((one.shift for one in known), Fraction(0))
            return Change(scale=scales.pop(), shift=shift)
        case sympy.Mul():
            return _of_product(body.args, known)
        case sympy.Pow() if known[1].is_none and body.args[1].is_number and known[0].shift == 0:
            return Change(scale=known[0].scale * Fraction(str(body.args[1])))
        case sympy.exp() if known[0].scale == 0:
            return Change(scale=known[0].shift)
        case sympy.log() if known[0].shift == 0:
            return Change(shift=known[0].scale)
    return None


def _of_product(factors: Sequence[sympy.Basic], known: Sequence[Change]) -> Change | None:
    shifted = [one for one in known if one.shift != 0]
    if not shifted:
        return Change(scale=sum((one.scale for one in known), Fraction(0)))
    numbers = [f for f, one in zip(factors, known, strict=True) if one.shift == 0]
    if len(shifted) > 1 or not all(f.is_Integer for f in numbers):
        return None
    by = Fraction(1)
    for factor in numbers:
        by *= int(factor)
    return Change(shift=shifted[0].shift * by)
