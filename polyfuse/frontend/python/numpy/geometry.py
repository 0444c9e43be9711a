"""Questions about extents and subscripts that isl decides, at one place in a function.

same(N - 1, M)          is it so for all sizes that are allowed?
is_negative(i - N)      is it so for all iterations of the loops around?
order_of(…)             in which direction may the elements of an assignment be stored?
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import islpy as isl

from polyfuse.errors import NotAffine
from polyfuse.frontend.python.numpy.syntax import constant, linear, name, number, plus, times
from polyfuse.frontend.python.scope import Place, Range, Scope, place
from polyfuse.frontend.python.scope_names import Names
from polyfuse.ir.tree import date_map
from polyfuse.sets import IN, OUT, PARAM, SET


@dataclass(frozen=True)
class Geometry:
    """What is known at one place: the loops and branches around it, and the sizes that are allowed."""

    names: Names
    scope: Scope
    context: isl.Set

    def here(self) -> Place:
        """The instances of the place."""
        return place(self.names, self.scope, None)

    def value(self, node: ast.expr) -> isl.PwAff | None:
        """An integer as a function of indices and sizes; None if it is not affine."""
        try:
            return self.here().affine.value(node)
        except NotAffine:
            return None

    def is_affine(self, node: ast.expr) -> bool:
        """True if an integer is affine in indices and sizes."""
        return self.value(node) is not None

    def is_of_sizes(self, node: ast.expr) -> bool:
        """True if an integer is affine in sizes alone."""
        used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        return used <= set(self.names.sizes) and self.is_affine(node)

    def same(self, left: ast.expr, right: ast.expr) -> bool:
        """True if two integers are equal wherever the place is reached."""
        if ast.unparse(left) == ast.unparse(right):
            return True
        a, b = linear(left), linear(right)
        if a is not None and b is not None:
            keys = {*a, *b}
            if all(a.get(key, 0) == b.get(key, 0) for key in keys):
                return True
            if not keys - {""}:
                return False
        return self._never(left, right, isl.PwAff.ne_set)

    def is_negative(self, node: ast.expr) -> bool:
        """True if an integer is below 0 wherever the place is reached."""
        value = constant(node)
        return value < 0 if value is not None else self._never(node, number(0), isl.PwAff.ge_set)

    def is_natural(self, node: ast.expr) -> bool:
        """True if an integer is 0 or more wherever the place is reached."""
        value = constant(node)
        return value >= 0 if value is not None else self._never(node, number(0), isl.PwAff.lt_set)

    def at_most(self, left: ast.expr, right: ast.expr) -> bool:
        """True if an integer is no larger than another wherever the place is reached."""
        return self.same(left, right) or self._never(left, right, isl.PwAff.gt_set)

    def _never(self, left: ast.expr, right: ast.expr, where: object) -> bool:
        a, b = self.value(left), self.value(right)
        if a is None or b is None:
            return False
        found: isl.Set = where(a, b)  # type: ignore[operator]
        domain = self.here().domain.intersect_params(self.context)
        return bool(found.intersect(domain).is_empty())

    def largest(self, node: ast.expr) -> ast.expr | None:
        """The largest value of an extent over the loops around, in sizes alone; None if it is not affine."""
        value = self.value(node)
        if value is None:
            return None
        domain = self.here().domain.intersect_params(self.context)
        taken = isl.Map.from_pw_aff(value).intersect_domain(domain).range()
        if taken.is_empty():
            return number(0)
        top = taken.dim_max(0).gist(self.context.align_params(taken.get_space().params())).coalesce()
        found = [piece for _, piece in top.get_pieces()]
        texts = {str(piece) for piece in found}
        if len(texts) != 1 or not found[0].get_denominator_val().is_one():
            return None
        piece = found[0]
        made: ast.expr = number(int(piece.get_constant_val().to_python()))
        for position in range(piece.dim(PARAM)):
            by = int(piece.get_coefficient_val(PARAM, position).to_python())
            made = plus(made, times(number(by), name(piece.get_dim_name(PARAM, position))))
        return made

    def order_of(
        self,
        loops: Sequence[tuple[str, ast.expr]],
        target: Sequence[ast.expr],
        reads: Sequence[Sequence[ast.expr]],
    ) -> tuple[bool, ...] | None:
        """The direction of each loop (True: backwards) in which nothing is stored before it is read; None if none is.

        The theorem: with W the element that an instance stores and R one that it reads, all reads come before all
        writes as they would in NumPy if no instance p runs before an instance q with W(p) = R(q):

            { p -> q : W(p) = R(q) and p before q }   is empty
        """
        scope = (*self.scope, *(Range(index, number(0), extent, 1) for index, extent in loops))
        inside = place(self.names, scope, None)
        try:
            write = date_map(inside.affine.domain, [inside.affine.value(part) for part in target])
            read = [
                date_map(inside.affine.domain, [inside.affine.value(p) for p in parts]) for parts in reads
            ]
        except NotAffine:
            return None
        domain = inside.domain.intersect_params(self.context)
        outer = domain.dim(SET) - len(loops)
        meet = isl.Map.empty(isl.Space.map_from_set(domain.get_space()))
        for one in read:
            meet = meet.union(write.apply_range(one.reverse()))
        meet = meet.intersect_domain(domain).intersect_range(domain)
        for position in range(outer):
            meet = meet.equate(IN, position, OUT, position)
        for backwards in sorted(product((False, True), repeat=len(loops)), key=_plainness):
            if meet.intersect(_before(domain, outer, backwards)).is_empty():
                return backwards
        return None


def _plainness(backwards: tuple[bool, ...]) -> tuple[int, tuple[bool, ...]]:
    return sum(backwards), backwards


def _before(domain: isl.Set, outer: int, backwards: tuple[bool, ...]) -> isl.Map:
    """{ p -> q : p runs before q } in loops of which some run backwards."""
    space = domain.get_space()
    local = isl.LocalSpace.from_space(space)
    dates: list[isl.PwAff | int] = []
    for position in range(domain.dim(SET)):
        index = isl.PwAff.var_on_domain(local, SET, position)
        dates.append(index.neg() if position >= outer and backwards[position - outer] else index)
    date = date_map(isl.Set.universe(space), dates)
    earlier = isl.Map.lex_lt(date.get_space().range())
    return date.apply_range(earlier).apply_range(date.reverse())
