"""Blocked dimensions and statements over the offsets in a block: the spaces of prefix, product and suffix.

    i = start + p * extent + i'        block p, offset i' in 0 … extent - 1

Padded, a dimension of N values has blocks of ceil(N / m), of which the last lacks some: there a sum of blocks has fewer
terms, and none stands for zero. Peeled, it has blocks of floor(N / m), and the rest is left to the statement as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import islpy as isl
import sympy

from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.scalar import Read, add, mul, neg, number, read, reads_in, sub, substitute
from polyfuse.ir.sizes import extent_text
from polyfuse.rewrite.bilinear.dimension_roles import Axis, Extent, Roles
from polyfuse.sets import on_domain

Point = dict[str, int]
"""A block: which one of each dimension that is cut."""


@dataclass(frozen=True)
class Blocks:
    """The box of a statement in blocks: `counts` for the dimensions that are cut, `extents` of one block for all."""

    nest: Nest
    roles: Roles
    counts: Point
    padded: bool

    @cached_property
    def extents(self) -> dict[str, Extent]:
        """The values of one block in each dimension."""
        return {d: self._of_block(axis, self.counts.get(d, 1)) for d, axis in self.roles.box.items()}

    def _of_block(self, axis: Axis, count: int) -> Extent:
        if count == 1:
            return axis.size
        if isinstance(axis.size, int):
            return (axis.size + (count - 1 if self.padded else 0)) // count
        text = f"floor(({axis.size}{f' + {count - 1}' if self.padded else ''})/{count})"
        found = extent_text(isl.PwAff(f"{self.sizes} {{ [] -> [({text})] }}"))
        assert found is not None, "a quotient is one piece"
        return found

    @cached_property
    def sizes(self) -> str:
        """The symbolic sizes, as isl's text begins with them."""
        return f"[{', '.join(self.nest.params)}] ->"

    def box(self, name: str, dims: Sequence[str], outer: tuple[str, int] | None = None) -> isl.Set:
        """Every offset in a block: { name[i, k] : 0 <= i < extent, … }, with one more dimension outside or not."""
        extents = [*([outer] if outer else []), *((d, self.extents[d]) for d in dims)]
        bounds = " and ".join(f"0 <= {d} < {extent}" for d, extent in extents) or "1 = 1"
        inner = ", ".join(d for d, _ in extents)
        box = isl.Set(f"{self.sizes} {{ {name}[{inner}] : {bounds} }}")
        return box.gist_params(self.nest.context)

    def origin(self, name: str, dims: Sequence[str], block: Point) -> isl.Map:
        """{ name[i', k'] -> S[i, j, k] }: what an offset in a block is in the statement; other dims at their first."""
        places = []
        for d, axis in self.roles.box.items():
            shift = f"{block[d]} * ({self.extents[d]}) + {d}" if d in block else d
            places.append(f"({axis.start}) + {shift}" if d in dims else f"({axis.start})")
        at = f"{name}[{', '.join(dims)}] -> {self.roles.statement.name}[{', '.join(places)}]"
        return isl.Map(f"{self.sizes} {{ {at} }}")

    def inside(self, name: str, dims: Sequence[str], block: Point) -> isl.Set:
        """The offsets at which a block has an element."""
        limits = [
            f"{at} * ({self.extents[d]}) + {d} < {self.roles.box[d].size}"
            for d, at in block.items()
            if d in dims
        ]
        return isl.Set(f"{self.sizes} {{ {name}[{', '.join(dims)}] : {' and '.join(limits) or '1 = 1'} }}")

    def tensor_shape(self, dims: Sequence[str]) -> tuple[Extent, ...]:
        """The shape of what has a place for every offset in a block."""
        return tuple(self.extents[d] for d in dims)


@dataclass(frozen=True)
class Term:
    """A coefficient times a value: of accesses by statement instances, as a body over Read leaves."""

    factor: int
    value: sympy.Basic
    reads: tuple[Access, ...]


def summed(
    name: str, domain: isl.Set, write: Access, op: str, terms: Sequence[Term], zero: sympy.Expr
) -> Statement:
    """name: write op f0 * value0 + f1 * value1 + …; zero if there is no term."""
    listed: list[Access] = []
    body: sympy.Expr | None = None
    for term in terms:
        leaves = {read(p): _leaf(access, listed) for p, access in enumerate(term.reads)}
        value = substitute(term.value, leaves)
        scaled = value if abs(term.factor) == 1 else mul(number(abs(term.factor)), value)
        if body is None:
            body = scaled if term.factor > 0 else neg(scaled)
        else:
            body = (add if term.factor > 0 else sub)(body, scaled)
    limited = tuple(replace(a, map=on_domain(a.map, domain)) for a in listed)
    return Statement(name, domain, write, op, limited, body if body is not None else zero)


def multiplied(name: str, domain: isl.Set, write: Access, left: Term, right: Term) -> Statement:
    """name: write += left * right."""
    listed: list[Access] = []
    sides = []
    for side in (left, right):
        leaves = {read(p): _leaf(access, listed) for p, access in enumerate(side.reads)}
        sides.append(substitute(side.value, leaves))
    limited = tuple(replace(a, map=on_domain(a.map, domain)) for a in listed)
    return Statement(name, domain, write, "+=", limited, mul(*sides))


def _leaf(access: Access, listed: list[Access]) -> Read:
    """The read of an access; equal ones are listed once."""
    for position, known in enumerate(listed):
        if known.tensor == access.tensor and known.map.is_equal(access.map):
            return read(position)
    listed.append(access)
    return read(len(listed) - 1)


def moved(value: sympy.Basic, s: Statement, origin: isl.Map) -> Term:
    """A value of a statement's reads as a new statement's instances see it."""
    leaves = reads_in(value)
    accesses = tuple(
        Access(s.reads[leaf.position].tensor, origin.apply_range(s.reads[leaf.position].map))
        for leaf in leaves
    )
    return Term(1, substitute(value, {leaf: read(p) for p, leaf in enumerate(leaves)}), accesses)


def element(tensor: str, name: str, dims: Sequence[str], subscripts: Sequence[str], sizes: str) -> Access:
    """{ name[dims] -> tensor[subscripts] }."""
    return Access(
        tensor, isl.Map(f"{sizes} {{ {name}[{', '.join(dims)}] -> {tensor}[{', '.join(subscripts)}] }}")
    )
