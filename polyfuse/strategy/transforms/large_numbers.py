"""Write relations with sizes in place of their large numbers.

isl's scheduler solves integer programs whose time grows with the numbers in them, and counts few operations there, so
that its limit on operations does not stop it. For the eight statements of LU's adjoint, over i and j < N:

    N = 4: 0.07 s    N = 8: 0.7 s    N = 12: 3.8 s    N = 16: more than 15 s    N as a size: 0.03 s

A relation with a size instead of a number is that of the number where the size has its value. So an order that respects
it for all values of the size respects the relation itself, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

import islpy as isl

from polyfuse.ir.fresh_names import fresh
from polyfuse.sets import PARAM

LARGE = 5
"""The least number that a size stands for. Distances of stencils and strides are mostly less."""

NEAR = 3
"""Numbers at most so far from a size, or from twice a size, are written by it: 199 by 200, and 398."""


@dataclass(frozen=True)
class Sizes:
    """Sizes for large numbers, each size's value by its name."""

    values: Mapping[str, int]

    @property
    def context(self) -> isl.Set:
        """The sizes' values that are asked about: all from `LARGE` on."""
        bounds = " and ".join(f"{name} >= {LARGE}" for name in self.values)
        return isl.Set(f"[{', '.join(self.values)}] -> {{ : {bounds} }}") if bounds else isl.Set("{ : }")

    def of_map(self, relation: isl.Map) -> isl.Map:
        """Return a relation with these sizes in its constraints; one with quotients keeps its numbers.

        >>> Sizes({"N": 200}).of_map(isl.Map("{ S[i] -> T[j = i] : 0 <= i <= 198 }"))
        Map("[N] -> { S[i] -> T[j = i] : 0 <= i <= -2 + N }")
        """
        if not self.values:
            return relation
        space = isl.Space.params_alloc(isl.DEFAULT_CONTEXT, len(self.values))
        for d, name in enumerate(self.values):
            space = space.set_dim_name(PARAM, d, name)
        aligned = relation.align_params(space)
        parts = (isl.Map.from_basic_map(self._of_basic(part)) for part in aligned.get_basic_maps())
        return reduce(isl.Map.union, parts, isl.Map.empty(aligned.get_space()))

    def of_set(self, domain: isl.Set) -> isl.Set:
        """Return a set with these sizes in its constraints.

        >>> Sizes({"N": 200}).of_set(isl.Set("{ S[i, j] : 0 <= i < 4 and i <= j <= 400 - i }"))
        Set("[N] -> { S[i, j] : 0 <= i <= 3 and i <= j <= 2N - i }")
        """
        return self.of_map(isl.Map.from_range(domain)).range()

    def _of_basic(self, relation: isl.BasicMap) -> isl.BasicMap:
        if relation.dim(isl.dim_type.div):
            return relation
        made = isl.BasicMap.universe(relation.get_space())
        for constraint in relation.get_constraints():
            number = _number(constraint)
            name, times = self._written(abs(number))
            if times:
                times = times if number > 0 else -times
                constraint = constraint.set_constant_val(isl.Val(number - times * self.values[name]))
                at = relation.find_dim_by_name(PARAM, name)
                constraint = constraint.set_coefficient_val(PARAM, at, isl.Val(times))
            made = made.add_constraint(constraint)
        return made

    def _written(self, number: int) -> tuple[str, int]:
        """The size that a number is near to and how many times it; ("", 0) for one that stays."""
        if number >= LARGE:
            for times in (1, 2):
                for name, value in self.values.items():
                    if abs(number - times * value) <= NEAR:
                        return name, times
        return "", 0


def sizes_for(relations: Iterable[isl.Map | isl.Set], taken: Iterable[str]) -> Sizes:
    """Return sizes for the large numbers of some relations, from the least number on.

    Args:
        relations: The relations whose constraints are read; those with quotients are left out.
        taken: Names that no size may have.

    Returns:
        The sizes.
    """
    numbers = set[int]()
    for relation in relations:
        as_map = isl.Map.from_range(relation) if isinstance(relation, isl.Set) else relation
        for part in as_map.get_basic_maps():
            if not part.dim(isl.dim_type.div):
                numbers.update(abs(_number(constraint)) for constraint in part.get_constraints())
    found, names = Sizes({}), set(taken)
    for number in sorted(number for number in numbers if number >= LARGE):
        if not found._written(number)[1]:
            name = fresh(f"size{len(found.values)}", names)
            names.add(name)
            found = Sizes({**found.values, name: number})
    return found


def _number(constraint: isl.Constraint) -> int:
    return int(constraint.get_constant_val().to_python())
