"""Nests: tensors and statements in their original order, nothing decided yet.

nest ::= context  tensor*  statement*  order
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import islpy as isl
import numpy as np

from polyfuse.errors import BudgetExceeded, quantity
from polyfuse.errors.budget import within
from polyfuse.errors.proving import proving
from polyfuse.errors.viewed import Viewed, shorter
from polyfuse.ir.access import Access
from polyfuse.ir.check import check
from polyfuse.ir.dependences import (
    Dependences,
    Pairs,
    access_relations,
    dependences,
    grouped,
    merged,
    no_fewer_pairs,
)
from polyfuse.ir.nest_data import NestData, differing, read_tensors, regrouped, written_tensors
from polyfuse.ir.nest_text import set_of, statement_text
from polyfuse.ir.sizes import with_sizes
from polyfuse.ir.statement import Statement
from polyfuse.ir.tensor import Tensor
from polyfuse.ir.tree import Leaf, Loop, Tree, dates, restrict, sequence, statements
from polyfuse.sets import dim_names, dimension

DEPENDENCE_OPERATIONS = 60_000, 20_000
"""isl operations for a nest's dependences: for any nest, and for each access of its statements.

A stencil of 27 elements in four loops takes 151,000, in 35 ms. Where divisors multiply, one operation takes isl ever
longer: 100,000 take four seconds for `a[(1000003 * i + 999983 * j) % 65521]`.
"""

WITHOUT_DIVISORS = 5
"""How many times as many operations a nest may take whose accesses have no divisors: 400,000 take isl 90 ms there."""


def _digits(access: Access) -> int:
    """The quotients and remainders in an access."""
    return int(sum(part.dim(isl.dim_type.div) for part in access.map.get_basic_maps()))


@dataclass(frozen=True)
class Nest(NestData, Viewed):
    """A program: tensors, statements, and the original order in which the statements' instances run.

    Its look-ups are those of `NestData`.

    Attributes:
        tensors: The tensors, in the order of a call's arguments.
        statements: The statements.
        order: The original order, a schedule tree.
        context: The isl set of allowed symbolic sizes.
        constants: The values of tensors with role constant. They refer to the model's arrays, and nests are compared
            without them.
        name: The name shown in reports.
        defaults: The values of scalar inputs that a call may leave out.
    """

    @staticmethod
    def of(
        tensors: Iterable[Tensor],
        statements: Iterable[Statement],
        order: Tree | None = None,
        context: str | isl.Set = "{ : }",
        constants: Mapping[str, np.ndarray[Any, Any]] | None = None,
        name: str = "nest",
    ) -> Nest:
        """Make a nest and check its invariants.

        Args:
            tensors: The tensors.
            statements: The statements.
            order: The original order; by default the statements run one after the other.
            context: The allowed symbolic sizes, as an isl set or its text.
            constants: The values of tensors with role constant.
            name: The name shown in reports.

        Returns:
            The checked nest.

        Raises:
            InvalidNest: if `check` finds a violation.
        """
        every = tuple(statements)
        allowed = set_of(context)
        order = order if order is not None else textual_order(every)
        nest = Nest(tuple(tensors), every, order, allowed, dict(constants or {}), name)
        nest.check()
        return nest

    def dependences(self) -> Dependences:
        """The pairs of instances whose order must be kept, by kind; computed once.

        Raises:
            BudgetExceeded: if isl needs too many operations for them.
        """
        if self._dependences is None:
            raise BudgetExceeded(f"the dependences of {self.name} are too many for isl: {self._hardest}")
        return self._dependences

    @cached_property
    def pairs_in_order(self) -> Dependences:
        """The pairs whose order a proof asks for, which are the dependences, or more where isl does not find them."""
        found = self._dependences
        if found is not None:
            return found
        with proving("pairs of instances that access one tensor"):
            return no_fewer_pairs(self.accesses, self.original_dates())

    def no_longer_asked(self) -> Nest:
        """The nest, for whose dependences isl is not asked again if it has not found them so far."""
        if "_dependences" in self.__dict__:
            return self
        known = copy(self)
        known.__dict__["_dependences"] = None
        return known

    @cached_property
    def _dependences(self) -> Dependences | None:
        """The dependences; None if isl needs more operations for them than it is given."""

        def asked() -> Dependences | None:
            return dependences(self.accesses, self.original_dates())

        with proving("the dependences of a nest"):
            return within(self.context.get_ctx(), self._operations, asked, lambda: None)

    @property
    def _operations(self) -> int:
        usual, more = DEPENDENCE_OPERATIONS
        every = [access for s in self.statements for access in s.accesses]
        return (usual + more * len(every)) * (1 if any(map(_digits, every)) else WITHOUT_DIVISORS)

    @property
    def _hardest(self) -> str:
        """The access with the most quotients and remainders, and what to do about it."""
        every = ((_digits(a), str(a), s.name) for s in self.statements for a in s.accesses)
        count, access, name = max(every, default=(0, "", ""), key=lambda each: each[0])
        what = f" ({access} in {name} has {quantity(count, 'quotient or remainder', 'quotients and remainders')})"
        return (
            f"they need more than {self._operations} operations{what if count else ''}; "
            "fewer or smaller divisors, fewer accesses of one array in a nest, or sizes as numbers may need fewer"
        )

    def rewritten(
        self,
        tensors: tuple[Tensor, ...],
        statements: tuple[Statement, ...],
        order: Tree,
        touched: frozenset[str],
    ) -> Nest:
        """Return a nest with other tensors and statements, which keeps the dependences through untouched tensors.

        Args:
            tensors: The new tensors.
            statements: The new statements.
            order: The new original order.
            touched: The names of the tensors whose accesses differ; dependences through others are taken over.

        Returns:
            The nest.
        """
        new = replace(self, tensors=tensors, statements=statements, order=order)
        gone, made = differing(self.statements, statements)
        domains = dict(self.domains)
        for s in gone:
            del domains[s.name]
        old = {s.name: s for s in gone}
        for s in made:
            known = s.name in old and s.domain is old[s.name].domain
            domains[s.name] = self.domains[s.name] if known else s.domain.intersect_params(self.context)
        written = regrouped(self._writers, written_tensors, gone, made, statements)
        read = regrouped(self._readers, read_tensors, gone, made, statements)
        new.__dict__.update(domains=domains, _writers=written, _readers=read)
        users = {s.name for t in touched for s in (*new.writers(t), *new.readers(t))}
        inside = [s for s in statements if s.name in users]
        here = restrict(order, frozenset(users))
        fresh = Dependences(())
        if here is not None:
            fresh = dependences(access_relations(inside, inside, touched), dates(here, domains))
        through = dict(self.pairs_through)
        lost = [p for tensor in touched for p in through.pop(tensor, ())]
        through |= grouped((new.statement(p.writer).write.tensor, p) for p in fresh.pairs)
        new.__dict__.update(_dependences=merged(self.dependences(), lost, fresh), pairs_through=through)
        return new

    def by_itself(self, part: Tree) -> Nest:
        """Return the nest of a part of an order alone, with all tensors and with the dependences inside the part.

        Args:
            part: A tree over some of the statements, which is the new original order.

        Returns:
            The nest.
        """
        alone = replace(self, statements=tuple(map(self.statement, part.names)), order=part)
        inside = Dependences(self.pairs_in_order.among(part.members))
        alone.__dict__.update(domains=self.domains, _tensors=self._tensors, _dependences=inside)
        return alone

    def flow_through(self, tensor: str) -> tuple[Pairs, ...]:
        """Return the flow and reduction dependences whose value is stored in a tensor.

        Args:
            tensor: The tensor's name.

        Returns:
            One relation per pair of statements.
        """
        return tuple(p for p in self.pairs_through.get(tensor, ()) if p.is_value)

    @cached_property
    def pairs_through(self) -> Mapping[str, tuple[Pairs, ...]]:
        """The dependences by the tensor that they pass through: a statement writes one, so it is a pair's writer's."""
        targets = {s.name: s.write.tensor for s in self.statements}
        return grouped((targets[p.writer], p) for p in self.dependences().pairs)

    @proving("the invariants of a nest")
    def check(self, touched: Container[str] | None = None) -> None:
        """Check the nest's invariants.

        Args:
            touched: The tensors whose accesses differ from those of the valid nest that this one is made of; None: all.

        Raises:
            InvalidNest: if an invariant is broken; the message names the statement and an instance.
        """
        check(self, touched)

    def with_constants(self, values: Mapping[str, np.ndarray[Any, Any]]) -> Nest:
        """Return the nest with other values for some constants.

        Args:
            values: Arrays by tensor name.

        Returns:
            The nest.
        """
        return replace(self, constants={**self.constants, **values})

    @proving("fixing the sizes of a nest")
    def with_sizes(self, sizes: Mapping[str, int]) -> Nest:
        """Return the nest for fixed sizes.

        Args:
            sizes: Values of symbolic sizes, all or some.

        Returns:
            The nest with these numbers in place of the symbols.

        Raises:
            BadArgument: if a size is unknown, or the context does not allow its value.
        """
        new = with_sizes(self, sizes)
        known = self.__dict__.get("_dependences")
        if known is not None:
            new.__dict__["_dependences"] = known.at_sizes(sizes, new.context)
        return new

    def __getstate__(self) -> dict[str, Any]:
        """Derived values are computed again where they are needed."""
        names = ("tensors", "statements", "order", "context", "constants", "name", "defaults")
        return {name: self.__dict__[name] for name in names}

    def __repr__(self) -> str:
        count = f"{quantity(len(self.statements), 'statement')}, {quantity(len(self.constants), 'constant')}"
        taken, made = (", ".join(map(_typed, some)) or "nothing" for some in (self.inputs, self.results))
        return f"<Nest {self.name}: {count}\n  {shorter(taken)}\n  -> {shorter(made)}>"

    def __str__(self) -> str:
        lines = [f"nest {self.name} over {self.context}"]
        lines += [f"  {tensor}" for tensor in self.tensors]
        lines += ["  " + statement_text(s).replace("\n", "\n  ") for s in self.statements]
        return "\n".join(lines)


def _typed(tensor: Tensor) -> str:
    """x: float32[8, 4]"""
    return str(tensor).partition(" ")[2]


def textual_order(every: tuple[Statement, ...]) -> Tree:
    """Statement after statement, each in its own loops over its domain's dimensions, outermost first."""
    return sequence(tuple(own_loops(s) for s in every))


def own_loops(s: Statement, inside: int = 0, without: frozenset[int] = frozenset()) -> Tree:
    """A statement in loops over its own dimensions, but for the first ones and some others: for i: for j: S[i, j]."""
    tree: Tree = Leaf(s.name)
    for position, name in reversed(list(enumerate(dim_names(s.domain)))):
        if position >= inside and position not in without:
            tree = Loop(name, ((s.name, dimension(s.domain, position)),), tree)
    return tree


def ordered_statements(nest: Nest) -> tuple[Statement, ...]:
    """The statements in the order their leaves have in the original tree."""
    return tuple(nest.statement(name) for name in statements(nest.order))
