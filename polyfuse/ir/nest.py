"""Nests: tensors and statements in their original order, nothing decided yet.

nest ::= context  tensor*  statement*  order
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import islpy as isl
import numpy as np

from polyfuse.errors import InvalidNest
from polyfuse.ir.check import check
from polyfuse.ir.dependences import (
    AccessRelations,
    Dependences,
    Pairs,
    access_relations,
    dependences,
    grouped,
    merged,
)
from polyfuse.ir.nest_text import set_of, statement_text
from polyfuse.ir.sizes import with_sizes
from polyfuse.ir.statement import Statement
from polyfuse.ir.tensor import Tensor
from polyfuse.ir.tree import Leaf, Loop, Tree, dates, restrict, sequence, statements
from polyfuse.proving import proving
from polyfuse.sets import dim_names, dimension, param_names


@dataclass(frozen=True)
class Nest:
    """A program: tensors, statements, and the original order in which the statements' instances run.

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

    tensors: tuple[Tensor, ...]
    statements: tuple[Statement, ...]
    order: Tree
    context: isl.Set
    constants: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict, compare=False)
    name: str = "nest"
    defaults: Mapping[str, float] = field(default_factory=dict)

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

    @cached_property
    def domains(self) -> Mapping[str, isl.Set]:
        """Each statement's domain, by name, limited to the context."""
        return {s.name: s.domain.intersect_params(self.context) for s in self.statements}

    @cached_property
    def accesses(self) -> AccessRelations:
        """All reads, assignments and accumulations."""
        return access_relations(self.statements, self.statements)

    @cached_property
    def params(self) -> tuple[str, ...]:
        """The symbolic sizes, in order of appearance."""
        found = dict.fromkeys(param_names(self.context))
        for s in self.statements:
            found.update(dict.fromkeys(param_names(s.domain)))
        return tuple(found)

    def tensor(self, name: str) -> Tensor:
        """Return the tensor of a name.

        Args:
            name: The tensor's name.

        Returns:
            The tensor.

        Raises:
            InvalidNest: if there is no such tensor.
        """
        if name in self._tensors:
            return self._tensors[name]
        raise InvalidNest(
            f"unknown tensor {name!r}; expected one of {', '.join(t.name for t in self.tensors)}"
        )

    @cached_property
    def _tensors(self) -> Mapping[str, Tensor]:
        return {tensor.name: tensor for tensor in self.tensors}

    def statement(self, name: str) -> Statement:
        """Return the statement of a name.

        Args:
            name: The statement's name.

        Returns:
            The statement.

        Raises:
            InvalidNest: if there is no such statement.
        """
        if name in self._statements:
            return self._statements[name]
        raise InvalidNest(
            f"unknown statement {name!r}; expected one of {', '.join(s.name for s in self.statements)}"
        )

    @cached_property
    def _statements(self) -> Mapping[str, Statement]:
        return {statement.name: statement for statement in self.statements}

    def writers(self, tensor: str) -> tuple[Statement, ...]:
        """Return the statements that write a tensor, in the nest's order.

        Args:
            tensor: The tensor's name.

        Returns:
            The statements.
        """
        return self._writers.get(tensor, ())

    @cached_property
    def _writers(self) -> Mapping[str, tuple[Statement, ...]]:
        return grouped((s.write.tensor, s) for s in self.statements)

    def readers(self, tensor: str) -> tuple[Statement, ...]:
        """Return the statements that read a tensor, in the nest's order.

        Args:
            tensor: The tensor's name.

        Returns:
            The statements.
        """
        return self._readers.get(tensor, ())

    @cached_property
    def _readers(self) -> Mapping[str, tuple[Statement, ...]]:
        return grouped(
            (name, s) for s in self.statements for name in dict.fromkeys(a.tensor for a in s.reads)
        )

    def with_role(self, *roles: str) -> tuple[Tensor, ...]:
        """Return the tensors with one of these roles, in order.

        Args:
            *roles: Roles such as "input" or "temporary".

        Returns:
            The tensors.
        """
        return tuple(t for t in self.tensors if t.role in roles)

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors that a call passes, in order."""
        return self.with_role("input", "inout")

    @cached_property
    def outputs(self) -> tuple[Tensor, ...]:
        """The tensors that a run leaves for the caller, in order: results, and inputs changed in place."""
        return self.with_role("output", "inout")

    @cached_property
    def results(self) -> tuple[Tensor, ...]:
        """The tensors that a call returns, in order."""
        return self.with_role("output")

    @cached_property
    def general(self) -> tuple[Nest, Mapping[str, int]]:
        """The nest before its sizes were fixed, and these sizes; itself and none if they never were.

        isl's scheduler takes 30 ms for gramschmidt with symbolic sizes, and 28 s for that of 1200 × 1000.
        """
        return self, {}

    @proving("the order of a nest")
    def original_dates(self) -> isl.UnionMap:
        """The original order as a map from instances to dates (vectors, compared lexicographically)."""
        return dates(self.order, self.domains)

    def dates_of(self, names: Iterable[str]) -> isl.UnionMap:
        """Return a map from some statements' instances to dates that order them as the original order does.

        Args:
            names: The statements' names.

        Returns:
            The map; its dates are comparable with each other only, not with `original_dates`.
        """
        order = restrict(self.order, frozenset(names))
        return dates(order, self.domains) if order is not None else isl.UnionMap("{ }")

    def dependences(self) -> Dependences:
        """The pairs of instances whose order must be kept, by kind; computed once."""
        return self._dependences

    @cached_property
    def _dependences(self) -> Dependences:
        with proving("the dependences of a nest"):
            return dependences(self.accesses, self.original_dates())

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
        known = {s.name: s for s in self.statements}
        new.__dict__["domains"] = {
            s.name: self.domains[s.name]
            if s.name in known and s.domain is known[s.name].domain
            else s.domain.intersect_params(self.context)
            for s in statements
        }
        inside = [s for s in statements if touched & set(s.tensors)]
        here = restrict(order, frozenset(s.name for s in inside))
        if here is not None:
            fresh = dependences(access_relations(inside, inside, touched), dates(here, new.domains))
            targets = {s.name: s.write.tensor for s in (*self.statements, *statements)}
            new.__dict__["_dependences"] = merged(self.dependences(), fresh, targets, touched)
        return new

    def flow_through(self, tensor: str) -> tuple[Pairs, ...]:
        """Return the flow and reduction dependences whose value is stored in a tensor.

        Args:
            tensor: The tensor's name.

        Returns:
            One relation per pair of statements.
        """
        return self._flow_by_tensor[tensor]

    @cached_property
    def _flow_by_tensor(self) -> Mapping[str, tuple[Pairs, ...]]:
        # A statement writes one tensor, so the source of a flow says which tensor its value travels through.
        targets = {s.name: s.write.tensor for s in self.statements}
        values = (p for p in self.dependences().pairs if p.kind in ("flow", "reduction"))
        return {
            **{tensor.name: () for tensor in self.tensors},
            **grouped((targets[p.source], p) for p in values),
        }

    @proving("the invariants of a nest")
    def check(self) -> None:
        """Check the nest's invariants.

        Raises:
            InvalidNest: if an invariant is broken; the message names the statement and an instance.
        """
        check(self)

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
        return with_sizes(self, sizes)

    def __getstate__(self) -> dict[str, Any]:
        """Derived values are computed again where they are needed."""
        names = ("tensors", "statements", "order", "context", "constants", "name", "defaults")
        return {name: self.__dict__[name] for name in names}

    def __str__(self) -> str:
        lines = [f"nest {self.name} over {self.context}"]
        lines += [f"  {tensor}" for tensor in self.tensors]
        lines += ["  " + statement_text(s).replace("\n", "\n  ") for s in self.statements]
        return "\n".join(lines)


def textual_order(every: tuple[Statement, ...]) -> Tree:
    """Statement after statement, each in its own loops over its domain's dimensions, outermost first."""
    return sequence(tuple(own_loops(s) for s in every))


def own_loops(s: Statement) -> Tree:
    """A statement in loops over its own dimensions: for i: for j: S[i, j]."""
    tree: Tree = Leaf(s.name)
    for position, name in reversed(list(enumerate(dim_names(s.domain)))):
        tree = Loop(name, ((s.name, dimension(s.domain, position)),), tree)
    return tree


def ordered_statements(nest: Nest) -> tuple[Statement, ...]:
    """The statements in the order their leaves have in the original tree."""
    return tuple(nest.statement(name) for name in statements(nest.order))
