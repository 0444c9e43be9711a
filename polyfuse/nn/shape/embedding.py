"""Embeddings: rows of a table, chosen by number. The only subscripts that are values.

e[i, j] = w[x[i], j]     x holds integers
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from polyfuse.errors import BadArgument
from polyfuse.ir import Tensor
from polyfuse.nn.graph import INTEGERS, Constant, Input, Value, as_value, viewed
from polyfuse.nn.nest_writer import Array, Emitter, element, extents
from polyfuse.nn.operations import Operation
from polyfuse.nn.shape.operations import View
from polyfuse.nn.sizes import Shape

WHOLE = ("reshape", "permute")
"""Views that show each element once. Those of row numbers are views of the rows, which compose with what reads them."""


@dataclass(frozen=True)
class Lookup(Operation):
    """The rows of a table (N, …) that an array of integers chooses, or a view of one; None: the array itself."""

    view: View | None = None

    @property
    def stems(self) -> tuple[str, ...]:
        """One statement."""
        return ("lookup",)

    @property
    def result(self) -> str:
        """The rows are an e."""
        return "e"

    @property
    def operand_stems(self) -> tuple[str, ...]:
        """The table is the layer's weight."""
        return ("x", "w")

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """(…), (N, D) -> (…, D)."""
        index, table = shapes
        return (*(index if self.view is None else self.view.sizes), *table[1:])

    def needed(self, shapes: Sequence[Shape]) -> Shape:
        """Sizes of which none may be negative, so that the view reads inside of the numbers."""
        return () if self.view is None else self.view.inside

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """`e[i, j] = rows[i, j]`, where rows is w[x]; of a view x[:, 2] `e[i, j] = rows[i, 2, j]`."""
        index, table = operands
        names = to.dims(out.rank)
        rows = to.gathered(table, index)
        places = names if self.view is None else (*self.view.at(names), *names[len(self.view.sizes) :])
        domain = dict(zip(names, extents(out), strict=True))
        to.assign(f"lookup{n}", domain, f"{element(out, names)} = {element(rows, places)}")


def embedding(x: Value, weight: Array | Value) -> Value:
    """Rows of a table, chosen by number. Statement lookup, tensors w, e.

    A call raises BadArgument for numbers that are not rows; negative numbers are not.

    Args:
        x: An input (…) of integers from 0 to N - 1, or a view of one, of which a call checks the numbers that it shows.
        weight: The table (N, …), an array or an input.

    Returns:
        `(…, *weight.shape[1:])`.

    Raises:
        BadArgument: if x is not integers of an input, or `weight` is not a floating-point array or input.
    """
    if x.dtype not in INTEGERS:
        raise BadArgument(
            f"embedding: {x!r} does not hold integers; expected an input such as nn.input(name, shape, 'int64')"
        )
    views: list[View] = []
    part: View | None = None
    while isinstance(x.source, View):
        if part is None and x.source.kind in WHOLE:
            views.append(x.source)
        else:
            part = x.source if part is None else part.of(x.source)
        (x,) = x.operands
    if not isinstance(x.source, Input):
        raise BadArgument(
            f"embedding: {x!r} is computed; row numbers must be an input, so that a call can check them"
        )
    table = weight if isinstance(weight, Value) else as_value(weight, "float32")
    if not isinstance(table.source, Input | Constant):
        raise BadArgument(
            f"embedding: the table {table!r} is computed; expected an array or an input, whose rows are read in place"
        )
    if table.rank == 0 or table.dtype in INTEGERS:
        raise BadArgument(f"embedding: the table {table!r} is not a floating-point table of rank >= 1")
    operation = Lookup(part)
    found = Value(operation, (x, table), operation.shape((x.shape, table.shape)), table.dtype)
    for view in reversed(views):
        found = _rows(found, view, table.shape[1:])
    return found


def _rows(found: Value, view: View, row: Shape) -> Value:
    """A view of row numbers as one of the rows, whose own axes stay."""
    axes = (f"{{{len(view.sizes) + d}}}" for d in range(len(row)))
    return viewed(found, view.kind, (*view.sizes, *row), (*view.subscripts, *axes), view.inside)
