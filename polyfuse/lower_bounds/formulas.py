"""A statement's bound as text: its formula, the inequality that it rests on, and where that is from."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import sympy

from polyfuse.ir.nest import Nest
from polyfuse.lower_bounds.cardinality import polynomial
from polyfuse.lower_bounds.statement_bound import CHAIN, StatementBound

BY_ACCESS = "Brascamp–Lieb: Christ et al. 2013, arXiv:1308.0068"
BY_CHAINS = "chains of values: Olivry et al. 2020, arXiv:1911.06664"


@dataclass(frozen=True)
class Formula:
    """A bound on the elements that enter fast memory for one statement.

    Attributes:
        statement: The statement.
        text: The bound, where S is the number of elements that fast memory holds.
        inequality: The instances of a segment, bounded by what they touch.
        source: The kind of argument, and where it is from.
        size: The elements that fast memory holds: S.
        elements: The bound for it.
        applies: True if it exceeds what has to be moved once.
    """

    statement: str
    text: str
    inequality: str
    source: str
    size: int
    elements: int
    applies: bool

    @property
    def value(self) -> str:
        """= 516,095 elements for S = 4,096"""
        rest = "" if self.applies else "; what is moved once is more"
        return f"= {self.elements:,} elements for S = {self.size:,}{rest}"


def formula(given: Nest, bound: StatementBound, elements: int, applies: bool) -> Formula:
    """Return a bound as a formula.

    Args:
        given: The nest as it was written, whose sizes may be symbols.
        bound: The bound, for sizes that are numbers.
        elements: The size of fast memory.
        applies: Whether it exceeds what has to be moved once.
    """
    by_chains = any(factor.tensor == CHAIN for factor in bound.factors)
    value = max(0, int(bound.entering(elements)))
    source = BY_CHAINS if by_chains else BY_ACCESS
    return Formula(
        bound.statement, _entering(given, bound), _inequality(bound), source, elements, value, applies
    )


def _entering(given: Nest, bound: StatementBound) -> str:
    """2·NI·NJ·NK / √S - 2·S"""
    power = bound.sigma - 1
    below: dict[Fraction, list[str]] = {}
    for text, exponent in (*((str(extent), u) for _, extent, u in bound.extents), ("S", power)):
        below.setdefault(exponent, []).append(text)
    divided = "".join(f" / {_power(texts, exponent)}" for exponent, texts in below.items())
    begins = f" - {bound.begins:,}" if bound.begins else ""
    return (
        f"{_coefficient(bound.constant)}{_instances(given, bound)}{divided} - {_number(1 / power)}S{begins}"
    )


def _instances(given: Nest, bound: StatementBound) -> str:
    """The number of instances, in the sizes that the nest was written with if it is a polynomial of them."""
    found = polynomial(given.domains[bound.statement]) if given.params else None
    if found is None or not found.free_symbols:
        return f"{bound.instances:,}"
    text = str(sympy.factor(found)).replace("**", "^").replace("*", "·")
    return text if isinstance(sympy.factor(found), sympy.Mul | sympy.Symbol) else f"({text})"


def _coefficient(value: sympy.Expr) -> str:
    """2·, 0.385·, or nothing for 1."""
    if value == 1:
        return ""
    return f"{value}·" if value.is_Integer else f"{float(value):.3g}·"


def _number(value: Fraction) -> str:
    return "" if value == 1 else f"{value}·" if value.denominator == 1 else f"({value})·"


def _power(texts: list[str], exponent: Fraction) -> str:
    """√S, or √(3·3·S)."""
    text = texts[0] if len(texts) == 1 else f"({'·'.join(texts)})"
    if exponent == Fraction(1, 2):
        return f"√{text}"
    return f"{text}{_exponent(exponent)}"


def _inequality(bound: StatementBound) -> str:
    """|E| <= |C[i, j]|^(1/2) |A[i, k]|^(1/2) |B[k, j]|^(1/2)"""
    parts = [
        f"|{'along ' if factor.tensor == CHAIN else ''}{factor.text}|{_exponent(factor.exponent)}"
        for factor in bound.factors
    ]
    parts += [f"|{dim}|{_exponent(u)}" for dim, _, u in bound.extents]
    small = ", ".join(f"|{dim}| <= {extent}" for dim, extent, _ in bound.extents)
    return f"|E| <= {' '.join(parts)}{f', {small}' if small else ''}"


def _exponent(value: Fraction) -> str:
    return "" if value == 1 else f"^{value}" if value.denominator == 1 else f"^({value})"
