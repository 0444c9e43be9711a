"""Keep the values that derivatives need and that the nest overwrites later.

    S[t, i]: a[i] = a[i] * a[i]      ->      S_keep[t, i]: S_a[t, i] = a[i];  S[t, i]: a[i] = a[i] * a[i]

Asked of the nest's dependences: a read whose element is written again later has an anti dependence. Such a read's value
is copied, just before its statement runs, to an array with an element for each instance. All others are read where they
are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import islpy as isl
import sympy

from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.scalar import read, reads_in
from polyfuse.ir.sizes import extent_text
from polyfuse.ir.tree import Leaf, Loop, Tree, date_map, sequence
from polyfuse.ir.tree import Sequence as Siblings
from polyfuse.rewrite.gradient.draft import Draft
from polyfuse.rewrite.gradient.lifetimes import Lifetimes
from polyfuse.rewrite.refusal import check_legal, refused
from polyfuse.sets import IN, OUT, PARAM, constant, dimension, greatest

S = TypeVar("S", isl.Set, isl.Map)


@dataclass(frozen=True)
class Kept:
    """A copy of what a statement reads: the statement that makes it, and how the reader finds it."""

    copy: Statement
    access: Access


class Stored:
    """The copies that the backward pass has asked for.

    `segment` is the parameter that numbers the segments of a loop that runs in segments: its copies are kept for one.
    """

    def __init__(self, nest: Nest, draft: Draft, lives: Lifetimes, segment: str | None = None) -> None:
        self.nest, self.draft, self.lives, self.segment = nest, draft, lives, segment
        self.kept: dict[tuple[str, int], Kept] = {}

    def of(self, s: Statement, accesses: Sequence[Access], body: sympy.Basic) -> list[Access]:
        """The accesses of a derivative, with copies in place of values that are lost."""
        found = list(accesses)
        for leaf in reads_in(body):
            k = leaf.position
            if k < len(s.reads) and not self.lives.survives(s.name, s.reads[k].tensor):
                found[k] = self._copy(s, k)
        return found

    def _copy(self, s: Statement, k: int) -> Access:
        if (s.name, k) not in self.kept:
            self.kept[s.name, k] = self._made(s, k)
        return self.kept[s.name, k].access

    def _made(self, s: Statement, k: int) -> Kept:
        tensor = self.nest.tensor(s.reads[k].tensor)
        domain = self.nest.domains[s.name]
        shape: list[int | str] = []
        places: list[isl.PwAff | int] = []
        for d, name in enumerate(s.dims):
            start, extent = self._range(domain, d)
            if extent is None:
                why = f"{s.name} reads {tensor.name} before it is overwritten, and loop {name} has no extent in sizes"
                check_legal(refused(f"vjp of {self.nest.name}", why, "sizes as numbers (`with_sizes`)"))
                raise AssertionError("refused")
            shape.append(extent)
            places.append(dimension(s.domain, d).sub(start.insert_domain(s.domain.get_space())))
        made = self.draft.tensor(f"{s.name}_{tensor.name}", tuple(shape), tensor.dtype, "temporary")
        everywhere = isl.Set.universe(s.domain.get_space())
        access = Access(made.name, date_map(everywhere, places).set_tuple_name(OUT, made.name))
        copy = self.draft.statement(
            f"{s.name}_keep_{tensor.name}", s.domain, access, "=", [s.reads[k]], read(0)
        )
        return Kept(copy, access)

    def _range(self, domain: isl.Set, d: int) -> tuple[isl.PwAff, int | str | None]:
        """Where the places of a dimension begin, a function of sizes, and how many there are from there: at a negative
        number, at 0, or where the segment of a time loop begins.
        """
        if self.segment is not None:
            low = domain.dim_min(d).gist(self.nest.context)
            most = greatest(domain.dim_max(d).sub(low))
            if involves(low, self.segment) and most.is_int():
                return low, int(most.to_python()) + 1
            domain = for_any(domain, self.segment)
        least = domain.dim_min_val(d)
        start = min(0, int(least.to_python())) if least.is_int() else 0
        extent = domain.dim_max(d).add_constant_val(isl.Val(1 - start)).gist(self.nest.context)
        begin = constant(domain.params(), start)
        return begin, extent_text(extent) if least.is_int() else None

    @property
    def texts(self) -> tuple[str, ...]:
        """A line for each copy."""
        return tuple(
            f"{kept.copy.reads[0].tensor} is overwritten after {name} reads it: kept in "
            f"{self.draft.tensors[kept.access.tensor]}"
            for (name, _), kept in self.kept.items()
        )

    @property
    def copies(self) -> dict[str, list[Statement]]:
        """The copies, by the statement just before which each runs."""
        found: dict[str, list[Statement]] = {}
        for (name, _), kept in self.kept.items():
            found.setdefault(name, []).append(kept.copy)
        return found


def with_copies(tree: Tree, copies: Mapping[str, Sequence[Statement]]) -> Tree:
    """A part of the order with the copies, each just before its statement."""
    match tree:
        case Leaf(name):
            return sequence((*(Leaf(one.name) for one in copies.get(name, ())), tree))
        case Siblings():
            return sequence(tuple(with_copies(child, copies) for child in tree.children))
        case Loop():
            dates = [
                (one.name, date.set_tuple_id(IN, one.domain.get_tuple_id()))
                for name, date in tree.dates
                for one in copies.get(name, ())
            ]
            return replace(tree, dates=(*tree.dates, *dates), body=with_copies(tree.body, copies))


def for_any(relation: S, parameter: str) -> S:
    """A set or a relation for any value of a parameter."""
    position = relation.find_dim_by_name(PARAM, parameter)
    return relation if position < 0 else relation.project_out(PARAM, position, 1)


def involves(value: isl.PwAff, parameter: str) -> bool:
    """True if a function depends on a parameter."""
    position = value.find_dim_by_name(PARAM, parameter)
    return position >= 0 and bool(value.involves_dims(PARAM, position, 1))
