"""Build nests statement by statement from text, for notebooks.

    nest = (
        pf.NestBuilder("rows", context="[N] -> { : N >= 1 }")
        .tensor("A", ("N", "N"))
        .tensor("s", ("N",), role="output")
        .statement("zero", "[N] -> { [i] : 0 <= i < N }", "s[i]", "0.0")
        .statement("add", "[N] -> { [i, j] : 0 <= i < N and i < j < N }", "s[i]", "A[i, j]", op="+=")
        .nest()
    )

Every call gives a new builder; the old one stays as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import islpy as isl

from polyfuse.errors import InvalidNest
from polyfuse.errors.proving import proving
from polyfuse.ir import Access, DType, Nest, Role, Statement, Tensor, statement
from polyfuse.ir.nest_text import set_of
from polyfuse.ir.tree import Tree
from polyfuse.sets import IN, OUT, SET


@dataclass(frozen=True)
class NestBuilder:
    """A nest under construction. Immutable: each method returns another builder; `nest` checks and returns the nest.

    Attributes:
        name: The nest's name, shown in reports.
        context: The allowed symbolic sizes, as an isl set or its text.
        tensors: The tensors so far.
        statements: The statements so far.
        order: The original order; None for one after the other.
    """

    name: str = "nest"
    context: str | isl.Set = "{ : }"
    tensors: tuple[Tensor, ...] = ()
    statements: tuple[Statement, ...] = ()
    order: Tree | None = field(default=None, repr=False)

    def tensor(
        self, name: str, shape: tuple[int | str, ...] = (), dtype: DType = "float64", role: Role = "input"
    ) -> NestBuilder:
        """Add a tensor.

        Args:
            name: An identifier.
            shape: The extents: integers, or affine expressions in symbolic sizes as text.
            dtype: The element type.
            role: "input", "output", "inout", "temporary" or "constant".

        Returns:
            A builder with the tensor.
        """
        return replace(self, tensors=(*self.tensors, Tensor(name, shape, dtype, role)))

    @proving("reading a statement")
    def statement(
        self,
        name: str,
        domain: str | isl.Set,
        target: str | isl.Map,
        value: str,
        op: str = "=",
        reads: Mapping[str, str | isl.Map] | None = None,
    ) -> NestBuilder:
        """Add a statement: `target op value` for every point of `domain`.

        Args:
            name: An identifier.
            domain: An isl set, such as "[N] -> { [i, j] : 0 <= i <= j < N }".
            target: An element, "C[i, j]", or an isl map from instances to elements, "{ [i, j] -> C[i, j] }".
            value: A Python expression in the dimensions, tensors' elements and the names in `reads`.
            op: "=" or a reduction's operator, such as "+=".
            reads: Names that stand in `value` for the element that an isl map gives.

        Returns:
            A builder with the statement.

        Raises:
            InvalidNest: if the text cannot be read.
        """
        instances = set_of(domain).set_tuple_name(name)
        maps = dict(reads or {})
        written = target if isinstance(target, isl.Map) or "->" in target else None
        text = f"{target if written is None else _TARGET} {op} {value}"
        made = statement(instances, text)
        if written is not None:
            made = replace(made, write=_access(made, written))
        given = tuple(_access(made, maps[a.tensor]) if a.tensor in maps else a for a in made.reads)
        return replace(self, statements=(*self.statements, replace(made, reads=given)))

    def ordered(self, order: Tree) -> NestBuilder:
        """Set the original order; without one the statements run one after the other.

        Args:
            order: A schedule tree over the statements.

        Returns:
            A builder with the order.
        """
        return replace(self, order=order)

    @proving("building a nest")
    def nest(self) -> Nest:
        """Check the nest and return it.

        Returns:
            The nest.

        Raises:
            InvalidNest: if an invariant does not hold; the message has an instance.
        """
        return Nest.of(self.tensors, self.statements, self.order, set_of(self.context), name=self.name)


_TARGET = "target_given_as_map"


def _access(s: Statement, given: str | isl.Map) -> Access:
    """An access from an isl map, whose instances may have any name."""
    try:
        relation = isl.Map(given) if isinstance(given, str) else given
    except isl.Error as error:
        raise InvalidNest(
            f"statement {s.name}: {given!r} is not an isl map, such as '{{ [i] -> A[i + 1] }}'"
        ) from error
    tensor = relation.get_tuple_name(OUT)
    if tensor is None or relation.dim(IN) != s.domain.dim(SET):
        raise InvalidNest(
            f"statement {s.name}: {given} does not map its {len(s.dims)} dimensions to a tensor"
        )
    return Access(tensor, relation.set_tuple_name(IN, s.name).align_params(s.domain.get_space()))
