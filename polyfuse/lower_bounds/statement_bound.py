"""The least number of values that must come into fast memory for one statement's instances.

Cut the time of a run into segments in each of which T values enter the fast memory of S elements: they are loaded from
slow memory, or computed without a predecessor in the same place ("born"). In a segment at most K = S + T values are
available. Let E be the statement's instances of a segment.

    an access phi of a tensor        |phi(E)| elements of it are available; tensors have no element in common, and
                                     groups of a tensor's accesses few (access_groups.py)
    a chain of values (chains.py)    |phi_b(E)| values are available, or chains begin there: these count as entering
    a dimension i of few values      |phi_i(E)| <= L_i                       (Dinh, Demmel 2020, arXiv:2003.00119)

With the exponents of `brascamp_lieb`, the groups' sums s_t and sigma = sum of all s_t, the largest |E| is

    F(K) = prod_i L_i^u_i · prod_t (K s_t / sigma)^s_t

and all instances D need at least |D| / F(S + T) - 1 full segments. T = S / (sigma - 1) is best:

    entering >= c |D| / S^(sigma - 1) - S / (sigma - 1)
    c = (sigma - 1)^(sigma - 1) / (prod_t s_t^s_t prod_i L_i^u_i)

For a product this is 2 M N K / sqrt(S) - 2 S (as Smith, Lowery, Langou, van de Geijn 2019, arXiv:1702.02017). Orders
of a reduction's terms are all allowed, and each instance runs once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import log

import sympy

from polyfuse.ir.nest import Nest
from polyfuse.lower_bounds.access_groups import access_groups
from polyfuse.lower_bounds.accesses import Projection, may_skip, needed, projection, updates
from polyfuse.lower_bounds.brascamp_lieb import exponents
from polyfuse.lower_bounds.cardinality import cardinality
from polyfuse.lower_bounds.chains import Chain, chains, most
from polyfuse.lower_bounds.subspaces import axes, span
from polyfuse.sets import SET, bounding_box

Grouped = tuple[Projection, int]

CHAIN = ""
"""The tensor that stands for the values of chains."""

FEW_BORN = 0.25
"""The part of the instances up to which values of a tensor may be born for it to be of use in a bound."""

SMALL = 2
"""Extents of dimensions that are asked about as small, the least ones."""


@dataclass(frozen=True)
class Factor:
    """An access or a chain in a bound.

    Attributes:
        tensor: Its tensor; "" for a chain.
        text: The access as a program has it, or the direction.
        exponent: Its exponent.
        group: The number of its group among the accesses of its tensor (access_groups.py).
    """

    tensor: str
    text: str
    exponent: Fraction
    group: int = 0


@dataclass(frozen=True)
class StatementBound:
    """A bound on the values that enter fast memory for a statement.

    Attributes:
        statement: The statement.
        instances: The number of its instances.
        factors: Accesses and chains with exponents above 0.
        extents: (dimension, number of values, exponent) of small dimensions.
        tensors: The tensors whose values are counted.
        begins: Values that need not enter: chains that begin, and elements that pass from one group to another.
    """

    statement: str
    instances: int
    factors: tuple[Factor, ...]
    extents: tuple[tuple[str, int, Fraction], ...]
    tensors: frozenset[str]
    begins: int = 0

    @property
    def sigma(self) -> Fraction:
        """The sum of the exponents of accesses and chains."""
        return sum((factor.exponent for factor in self.factors), Fraction(0))

    @property
    def shares(self) -> tuple[Fraction, ...]:
        """The sums of exponents by tensor and group."""
        found: dict[tuple[str, int], Fraction] = {}
        for factor in self.factors:
            key = factor.tensor, factor.group
            found[key] = found.get(key, Fraction(0)) + factor.exponent
        return tuple(found.values())

    @property
    def constant(self) -> sympy.Expr:
        """The factor c of the formula, without small dimensions."""
        power = _exact(self.sigma - 1)
        own = sympy.prod([_exact(s) ** _exact(s) for s in self.shares])
        return sympy.simplify(power**power / own)

    def entering(self, elements: int) -> float:
        """Return the least number of values that enter a fast memory of some elements, births included."""
        power = float(self.sigma - 1)
        logarithm = power * log(power) - sum(float(s) * log(s) for s in self.shares)
        logarithm -= sum(float(u) * log(extent) for _, extent, u in self.extents)
        leading = self.instances * 2.718281828459045**logarithm / elements**power
        return float(leading * (1 - 1e-9) - elements / power - self.begins)


def _exact(value: Fraction) -> sympy.Rational:
    return sympy.Rational(value.numerator, value.denominator)


def statement_bounds(
    nest: Nest, name: str, inside: Collection[str], elements: int, born: dict[str, int]
) -> tuple[StatementBound, ...]:
    """Return the bounds that a statement has: by its accesses, and by its chains of values.

    Args:
        nest: A nest without sizes.
        name: The statement.
        inside: The statements that run.
        elements: The size of fast memory, for which exponents are chosen.
        born: By tensor, the number of values that are computed without a predecessor in the same place.
    """
    instances = cardinality(nest.domains[name])
    if not instances or elements < 2 or may_skip(nest.statement(name)):
        return ()
    found = [*_by_accesses(nest, name, instances, elements, born), _by_chains(nest, name, inside, instances)]
    return tuple(bound for bound in found if bound is not None and bound.sigma > 1)


def _by_accesses(
    nest: Nest, name: str, instances: int, elements: int, born: dict[str, int]
) -> Iterator[StatementBound]:
    """Bounds by accesses, with no dimension as small, those of the least extent, those of the two least, and so on."""
    statement, dim = nest.statement(name), nest.domains[name].dim(SET)
    accesses = (*((statement.write,) if updates(statement) else ()), *needed(statement))
    groups = access_groups(nest, statement, accesses)
    found: dict[tuple[object, ...], Grouped] = {}
    for access, group in zip(accesses, groups.numbers, strict=True):
        one = projection(access, dim)
        few = born.get(access.tensor, 0) <= FEW_BORN * instances
        if (
            one is not None
            and few
            and nest.tensor(access.tensor).role != "gathered"
            and len(one.kernel) < dim
        ):
            found.setdefault((one.tensor, one.kernel, group), (one, group))
    projections = list(found.values())
    extents = [high - low + 1 for low, high in bounding_box(nest.domains[name]) or ()]
    kernels = [one.kernel for one, _ in projections]
    for most_values in (1, *sorted({extent for extent in extents if extent > 1})[:SMALL]):
        small = [d for d, extent in enumerate(extents) if 1 < extent <= most_values]
        planes = [axes([c for c in range(dim) if c != d], dim) for d in small]
        prices = [*([log(elements)] * len(kernels)), *(log(extents[d]) for d in small)]
        solved = exponents(dim, [*kernels, *planes], prices)
        if solved is None:
            continue
        factors = tuple(
            Factor(one.tensor, one.text, s, group)
            for (one, group), s in zip(projections, solved, strict=False)
            if s
        )
        tensors = frozenset(factor.tensor for factor in factors)
        passing = sum(groups.passing[tensor] for tensor in tensors)
        limits = zip(small, solved[len(kernels) :], strict=True)
        used = tuple((statement.dims[d], extents[d], u) for d, u in limits if u)
        yield StatementBound(name, instances, factors, used, tensors, passing)


def _by_chains(nest: Nest, name: str, inside: Collection[str], instances: int) -> StatementBound | None:
    found = chains(nest, name, inside)
    dim = nest.domains[name].dim(SET)
    if len(found) < 2 or dim < 2:
        return None
    kernels = [span([chain.direction]) for chain in found]
    solved = exponents(dim, kernels, [1.0] * len(found))
    if solved is None:
        return None
    used = [(chain, s) for chain, s in zip(found, solved, strict=True) if s]
    factors = tuple(Factor(CHAIN, _text(chain), s) for chain, s in used)
    tensors = frozenset(nest.statement(each).write.tensor for chain, _ in used for each in chain.through)
    return StatementBound(name, instances, factors, (), tensors, sum(chain.begins for chain, _ in used))


def _text(chain: Chain) -> str:
    return f"({', '.join(map(str, chain.direction))})"


def births(nest: Nest, inside: Collection[str]) -> dict[str, int]:
    """Return, by tensor, the number of values that statements compute without a predecessor in the same place."""
    found: dict[str, int] = {}
    for name in inside:
        statement = nest.statement(name)
        if not updates(statement):
            tensor = statement.write.tensor
            found[tensor] = found.get(tensor, 0) + most(nest.domains[name])
    return found
