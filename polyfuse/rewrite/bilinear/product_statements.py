"""Build the statements and tensors of a fast product: prefix, products and suffix.

    prefix    L[t, i, k] = sum of U[t, a] A[block a + (i, k)]       R[t, k, j] = sum of V[t, b] B[block b + (k, j)]
    product   P[t, i, j] += L[t, i, k] * R[t, k, j]                 one batched product
    suffix    Y[block c + (i, j)] = sum of W[c, t] P[t, i, j]       for each block c

With `apart` each product stands by itself and is added to its blocks of the result at once (Huang et al., "Strassen's
algorithm reloaded", SC 2016): sums of blocks need no tensors where they are computed in the product's own factors, and
one product's tensor serves all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import islpy as isl
import sympy

from polyfuse.bilinear import Algorithm
from polyfuse.ir import Access, Statement, Tensor
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.number_types import is_real
from polyfuse.ir.scalar import number, read
from polyfuse.rewrite.bilinear.block_spaces import Blocks, Point, Term, element, moved, multiplied, summed
from polyfuse.rewrite.bilinear.common_sums import Sum, Sums, shared


@dataclass(frozen=True)
class Side:
    """One factor: its value, its dimensions, the two that are cut, and the letter of its tensors."""

    letter: str
    value: sympy.Basic
    dims: tuple[str, ...]
    cut: tuple[str, str]


@dataclass
class Writer:
    """Collects the statements and tensors that replace one statement, in the order in which they run."""

    blocks: Blocks
    algorithm: Algorithm
    assigns: bool
    tensors: list[Tensor] = field(default_factory=list)
    prefix: list[Statement] = field(default_factory=list)
    products: list[Statement] = field(default_factory=list)
    suffix: list[Statement] = field(default_factory=list)
    order: list[Statement] = field(default_factory=list)
    additions: int = 0

    def __post_init__(self) -> None:
        s, roles = self.blocks.roles.statement, self.blocks.roles
        self.name, self.sizes = s.name, self.blocks.sizes
        self.dtype = self.blocks.nest.tensor(s.write.tensor).dtype
        self.zero = number(0.0 if is_real(self.dtype) else 0)
        self.taken = {t.name for t in self.blocks.nest.tensors} | {
            x.name for x in self.blocks.nest.statements
        }
        self.t = fresh("t", {*s.dims, *self.taken, *self.blocks.nest.params})
        self.left = Side("L", roles.left, roles.left_dims, (roles.rows, roles.steps))
        self.right = Side("R", roles.right, roles.right_dims, (roles.steps, roles.columns))

    # -- the two forms -------------------------------------------------------------------------------------------------

    def batched(self) -> None:
        """All products in one statement, sums of blocks in tensors."""
        rank, x = self.algorithm.rank, self.algorithm
        self._stored(self.left, shared(x.left))
        self._stored(self.right, shared(x.right))
        target = self.blocks.roles.target_dims
        results = self._tensor("P", (rank, *self.blocks.tensor_shape(target)))
        dims = (self.t, *target, *(d for d in self.blocks.roles.box if d not in target))
        outer = (self.t, rank)
        zero = self._named("zero")
        self._add(
            self.products,
            summed(
                zero,
                self.blocks.box(zero, target, outer),
                self._at(results, zero, (self.t, *target), (self.t, *target)),
                "=",
                (),
                self.zero,
            ),
        )
        name = self._named("product")
        factors = (
            Term(1, read(0), (self._at(f"{self.name}_{side.letter}", name, dims, (self.t, *side.dims)),))
            for side in (self.left, self.right)
        )
        domain = self.blocks.box(name, dims[1:], outer)
        write = self._at(results, name, dims, (self.t, *target))
        self._add(self.products, multiplied(name, domain, write, *factors))
        self._combined(results, target)

    def apart(self, inlined: Sequence[str]) -> None:
        """Each product by itself; the sums of the inlined sides ("left", "right") in its factors."""
        x = self.algorithm
        sides = (("left", self.left, x.left), ("right", self.right, x.right))
        kept: dict[str, Sums] = {}
        for word, side, forms in sides:
            if word not in inlined:
                kept[word] = self._stored(side, shared(forms), alone=False)
        target = self.blocks.roles.target_dims
        dims = (*target, *(d for d in self.blocks.roles.box if d not in target))
        begun: set[int] = set()
        for t in range(x.rank):
            result = self._tensor(f"P{t}", self.blocks.tensor_shape(target))
            zero = self._named(f"zero{t}")
            write = self._at(result, zero, target, target)
            self._add(self.products, summed(zero, self.blocks.box(zero, target), write, "=", (), self.zero))
            name = self._named(f"product{t}")
            factors = [
                self._factor(name, dims, side, forms[t], t, stored=word in kept)
                for word, side, forms in sides
            ]
            domain = self.blocks.box(name, dims)
            self._add(self.products, multiplied(name, domain, self._at(result, name, dims, target), *factors))
            self._added(result, t, target, begun)

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _stored(self, side: Side, sums: Sums, alone: bool = True) -> Sums:
        """The prefix of one side; without `alone` a form that is one block as it is gets no place."""
        forms = [one.form for one in sums.sums if one.form is not None]
        shape = self.blocks.tensor_shape(side.dims)
        results = self._tensor(side.letter, (len(forms), *shape))
        self.additions += sums.additions
        known: dict[int, Access] = {}
        for one in sums.sums:
            if not alone and _is_block(one, sums):
                continue
            place = results if one.form is not None else self._tensor(f"{side.letter}_sum{one.value}", shape)
            name = self._named(
                f"{side.letter}{one.form}" if one.form is not None else f"{side.letter}_sum{one.value}"
            )
            at = ([str(one.form)] if one.form is not None else []) + list(side.dims)

            def write(name: str, place: str = place, at: Sequence[str] = tuple(at)) -> Access:
                return self._at(place, name, side.dims, at)

            self._in_pieces(name, side, one, sums.blocks, write, known)
            known[one.value] = write(name)
        return sums

    def _in_pieces(
        self,
        name: str,
        side: Side,
        one: Sum,
        blocks: int,
        write: Callable[[str], Access],
        known: Mapping[int, Access],
    ) -> None:
        """One sum of blocks over the offsets; where blocks end at different offsets, a statement for each case."""
        pieces: list[tuple[isl.Set, tuple[tuple[int, int], ...]]] = [(self.blocks.box(name, side.dims), ())]
        for value, factor in one.terms:
            inside = self.blocks.inside(name, side.dims, self._block(side, value)) if value < blocks else None
            split = []
            for domain, terms in pieces:
                here = domain if inside is None else domain.intersect(inside)
                outside = domain.subtract(here)
                split += [(here, (*terms, (value, factor))), (outside, terms)]
            pieces = [(domain, terms) for domain, terms in split if not self._is_empty(domain)]
        cases: dict[tuple[tuple[int, int], ...], isl.Set] = {}
        for domain, terms in pieces:
            cases[terms] = cases[terms].union(domain) if terms in cases else domain
        for at, (terms, domain) in enumerate(cases.items()):
            own = name if at == 0 else self._named(f"{name.removeprefix(f'{self.name}_')}_edge{at}")
            found = domain.coalesce().gist_params(self.blocks.nest.context).set_tuple_name(own)
            values = [self._value(own, side, value, factor, blocks, known) for value, factor in terms]
            self._add(self.prefix, summed(own, found, write(own), "=", values, self.zero))

    def _value(
        self, name: str, side: Side, value: int, factor: int, blocks: int, known: Mapping[int, Access]
    ) -> Term:
        """A term of a sum: a block of the factor, or a sum that has a place."""
        if value >= blocks:
            access = known[value]
            renamed = Access(access.tensor, access.map.set_tuple_name(isl.dim_type.in_, name))
            return Term(factor, read(0), (renamed,))
        origin = self.blocks.origin(name, side.dims, self._block(side, value))
        term = moved(side.value, self.blocks.roles.statement, origin)
        return Term(factor, term.value, term.reads)

    def _factor(
        self, name: str, dims: Sequence[str], side: Side, form: Sequence[int], t: int, stored: bool
    ) -> Term:
        """A factor of one product by itself: its place, or the sum of blocks as a value."""
        nonzero = [(block, factor) for block, factor in enumerate(form) if factor]
        if stored and nonzero != [(nonzero[0][0], 1)]:
            return Term(
                1, read(0), (self._at(f"{self.name}_{side.letter}", name, dims, (str(t), *side.dims)),)
            )
        origins = [self.blocks.origin(name, dims, self._block(side, block)) for block, _ in nonzero]
        terms = [moved(side.value, self.blocks.roles.statement, origin) for origin in origins]
        terms = [Term(f, term.value, term.reads) for term, (_, f) in zip(terms, nonzero, strict=True)]
        self.additions += len(terms) - 1
        whole = summed(
            name, self.blocks.box(name, dims), self._at("_", name, dims, ()), "=", terms, self.zero
        )
        return Term(1, whole.body, whole.reads)

    def _combined(self, results: str, target: tuple[str, ...]) -> None:
        """The suffix: each block of the result as a sum of products."""
        roles, x = self.blocks.roles, self.algorithm
        # a block of the result may lack the offsets that another one has
        sums = shared(x.result, reuse=False)
        self.additions += sums.additions
        known: dict[int, Access] = {}
        for one in sums.sums:
            block = self._result_block(one.form) if one.form is not None else {}
            name = self._named(f"Y{one.form}" if one.form is not None else f"Y_sum{one.value}")
            domain = self.blocks.box(name, target).intersect(self.blocks.inside(name, target, block))
            if self._is_empty(domain):
                continue
            terms = []
            for value, factor in one.terms:
                access = known.get(value) or self._at(results, name, target, (str(value), *target))
                terms.append(Term(factor, read(0), (_from(access, name),)))
            op = "=" if self.assigns or one.form is None else "+="
            if one.form is None:
                place = self._tensor(f"Y_sum{one.value}", self.blocks.tensor_shape(target))
                write = known[one.value] = self._at(place, name, target, target)
            else:
                origin = self.blocks.origin(name, target, block)
                write = Access(roles.statement.write.tensor, origin.apply_range(roles.statement.write.map))
            self._add(self.suffix, summed(name, domain, write, op, terms, self.zero))

    def _added(self, result: str, t: int, target: tuple[str, ...], begun: set[int]) -> None:
        """One product added to the blocks of the result that it is part of."""
        roles = self.blocks.roles
        for c, row in enumerate(self.algorithm.result):
            if not row[t]:
                continue
            name, block = self._named(f"Y{c}_{t}"), self._result_block(c)
            origin = self.blocks.origin(name, target, block)
            domain = self.blocks.box(name, target).intersect(self.blocks.inside(name, target, block))
            if self._is_empty(domain):
                continue
            write = Access(roles.statement.write.tensor, origin.apply_range(roles.statement.write.map))
            op = "=" if self.assigns and c not in begun else "+="
            begun.add(c)
            term = Term(row[t], read(0), (self._at(result, name, target, target),))
            self._add(self.suffix, summed(name, domain, write, op, (term,), self.zero))
        self.additions += sum(bool(row[t]) for row in self.algorithm.result)

    # -- names and places ----------------------------------------------------------------------------------------------

    def _block(self, side: Side, value: int) -> Point:
        columns = self.blocks.counts[side.cut[1]]
        return {side.cut[0]: value // columns, side.cut[1]: value % columns}

    def _result_block(self, value: int) -> Point:
        roles = self.blocks.roles
        columns = self.blocks.counts[roles.columns]
        return {roles.rows: value // columns, roles.columns: value % columns}

    def _at(self, tensor: str, name: str, dims: Sequence[str], subscripts: Sequence[str]) -> Access:
        return element(tensor, name, dims, subscripts, self.sizes)

    def _tensor(self, suffix: str, shape: tuple[int | str, ...]) -> str:
        name = f"{self.name}_{suffix}"
        self.tensors.append(Tensor(name, shape, self.dtype, "temporary"))
        return name

    def _named(self, suffix: str) -> str:
        return f"{self.name}_{suffix}"

    def _add(self, to: list[Statement], s: Statement) -> None:
        to.append(s)
        self.order.append(s)

    def _is_empty(self, domain: isl.Set) -> bool:
        return bool(domain.intersect_params(self.blocks.nest.context).is_empty())


def peeled(blocks: Blocks) -> tuple[tuple[str, isl.Set], ...]:
    """Return the part of a statement outside of whole blocks, as disjoint boxes by the dimension at whose end they
    lie.
    """
    roles = blocks.roles
    domain = blocks.nest.domains[roles.statement.name]
    found = []
    for d in (roles.rows, roles.columns, roles.steps):
        at = roles.statement.dims.index(d)
        dims = ", ".join(roles.statement.dims)
        edge = f"({roles.box[d].start}) + {blocks.counts[d]} * ({blocks.extents[d]})"
        rest = isl.Set(f"{blocks.sizes} {{ {roles.statement.name}[{dims}] : {d} >= {edge} }}")
        here = domain.intersect(rest)
        if not here.is_empty():
            found.append((roles.statement.dims[at], here))
        domain = domain.subtract(here)
    return tuple(found)


def _is_block(one: Sum, sums: Sums) -> bool:
    return len(one.terms) == 1 and one.terms[0][0] < sums.blocks and one.terms[0][1] == 1


def _from(access: Access, name: str) -> Access:
    return Access(access.tensor, access.map.set_tuple_name(isl.dim_type.in_, name))
