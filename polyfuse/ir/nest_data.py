"""What a nest consists of, and look-ups in it: the base of `Nest`, for modules that `Nest` itself calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self, TypeVar

import islpy as isl
import numpy as np

from polyfuse.errors import InvalidNest
from polyfuse.errors.proving import proving
from polyfuse.ir.dependences import AccessRelations, access_relations, grouped
from polyfuse.ir.statement import Statement
from polyfuse.ir.tensor import Tensor
from polyfuse.ir.tree import Tree, dates, restrict
from polyfuse.sets import param_names

AnyNest = TypeVar("AnyNest", bound="NestData")
"""`Nest` where a function returns what it is given, changed."""


@dataclass(frozen=True)
class NestData:
    """Tensors, statements and their original order, not checked; the fields are described with `polyfuse.ir.Nest`."""

    tensors: tuple[Tensor, ...]
    statements: tuple[Statement, ...]
    order: Tree
    context: isl.Set
    constants: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict, compare=False)
    name: str = "nest"
    defaults: Mapping[str, float] = field(default_factory=dict)

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

    @cached_property
    def origin(self) -> object | None:
        """The rewrite that made this nest of another (polyfuse.rewrite.recorded); None if none did."""
        return None

    @cached_property
    def answers(self) -> dict[tuple[object, ...], Any]:
        """Answers about the nest, by question, for what every call asks."""
        return {}

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

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of all tensors and statements."""
        return frozenset((*self._tensors, *self._statements))

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
        return grouped((name, s) for s in self.statements for name in written_tensors(s))

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
        return grouped((name, s) for s in self.statements for name in read_tensors(s))

    @cached_property
    def varying(self) -> frozenset[str]:
        """The tensors that calls bring, take or change, and temporaries whose values depend on these.

        A statement that accesses one of them is of one call, and what it writes is, too.
        """
        found: set[str] = set()
        left = [t.name for t in self.tensors if t.role not in ("constant", "temporary")]
        while left:
            tensor = left.pop()
            if tensor not in found:
                found.add(tensor)
                left += [s.write.tensor for s in (*self.readers(tensor), *self.writers(tensor))]
        return frozenset(found)

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
        """The tensors that a run leaves for the caller, in order, which are results, and inputs changed in place."""
        return self.with_role("output", "inout")

    @cached_property
    def results(self) -> tuple[Tensor, ...]:
        """The tensors that a call returns, in order."""
        return self.with_role("output")

    @cached_property
    def general(self) -> tuple[Self, Mapping[str, int]]:
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


def written_tensors(s: Statement) -> tuple[str, ...]:
    """The tensor that a statement writes."""
    return (s.write.tensor,)


def read_tensors(s: Statement) -> tuple[str, ...]:
    """The tensors that a statement reads, without repetition."""
    return tuple(dict.fromkeys(a.tensor for a in s.reads))


def differing(
    old: Iterable[Statement], new: Iterable[Statement]
) -> tuple[tuple[Statement, ...], tuple[Statement, ...]]:
    """The statements that only the first have, and those that only the second have, as objects."""
    was, now = set(map(id, old)), set(map(id, new))
    return tuple([s for s in old if id(s) not in now]), tuple([s for s in new if id(s) not in was])


def regrouped(
    known: Mapping[str, tuple[Statement, ...]],
    keys: Callable[[Statement], Iterable[str]],
    gone: Iterable[Statement],
    made: Iterable[Statement],
    order: Iterable[Statement],
) -> Mapping[str, tuple[Statement, ...]]:
    """Statements by key, in order, from those of a nest with others: only keys of what is gone or made differ."""
    found = dict(known)
    left = {id(s) for s in gone}
    new = grouped((key, s) for s in made for key in keys(s))
    places = {s.name: place for place, s in enumerate(order)} if new else {}
    for key in {key for s in (*gone, *made) for key in keys(s)}:
        kept = (*(s for s in known.get(key, ()) if id(s) not in left), *new.get(key, ()))
        found[key] = tuple(sorted(kept, key=lambda s: places[s.name])) if key in new else kept
    return found
