"""Running sums and products along an axis.

    s[0] = x[0];  s[i + 1] = s[i] + x[i + 1]

One axis is a recurrence; all others are free, so the loops over them can be parallel and vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from polyfuse.ir import Tensor
from polyfuse.nn.graph import Value, apply, axis_of
from polyfuse.nn.nest_writer import Emitter, element, extents
from polyfuse.nn.operations import NUMBERS, Kinds, Operation
from polyfuse.nn.sizes import Shape
from polyfuse.nn.torch_names import torch_names


@dataclass(frozen=True)
class Scan(Operation):
    """What the elements up to each one add up to, or multiply to, along one axis."""

    kind: Literal["cumsum", "cumprod"]
    axis: int

    @property
    def stems(self) -> tuple[str, ...]:
        """The first element, and the step to the next."""
        return (f"{self.kind}_start", self.kind)

    @property
    def result(self) -> str:
        """A sum is an s, a product a q."""
        return "s" if self.kind == "cumsum" else "q"

    @property
    def reduces(self) -> bool:
        """Its steps go on from the results, which stay in float32 between them."""
        return True

    @property
    def kinds(self) -> Kinds:
        """True: it adds or multiplies."""
        return NUMBERS

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """The operand's."""
        return shapes[0]

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """`s[0] = x[0]`, then `s[i + 1] = s[i] + x[i + 1]` in the order of i."""
        (x,) = operands
        names = to.dims(x.rank)
        sizes, i = dict(zip(names, extents(x), strict=True)), names[self.axis]
        first = ["0" if name == i else name for name in names]
        others = {name: size for name, size in sizes.items() if name != i}
        if sizes[i] != 0:
            exists = [] if isinstance(sizes[i], int) else [f"{sizes[i]} >= 1"]
            to.assign(f"{self.kind}_start{n}", others, f"{element(out, first)} = {element(x, first)}", exists)
        if sizes[i] not in (0, 1):
            after = [f"{name} + 1" if name == i else name for name in names]
            sign = "+" if self.kind == "cumsum" else "*"
            text = f"{element(out, after)} = {element(out, names)} {sign} {element(x, after)}"
            to.assign(f"{self.kind}{n}", {**sizes, i: sizes[i] - 1}, text)


@torch_names(dim="axis")
def cumsum(x: Value, axis: int = -1) -> Value:
    """The running sums along an axis. Statements cumsum_start, cumsum; tensor s.

    Args:
        x: The value.
        axis: The axis.

    Returns:
        The sums, of the shape of x: each of its element and all before it.

    Raises:
        BadArgument: if x has no such axis.
    """
    return apply(Scan("cumsum", axis_of("cumsum", x, axis)), [x])


@torch_names(dim="axis")
def cumprod(x: Value, axis: int = -1) -> Value:
    """The running products along an axis. Statements cumprod_start, cumprod; tensor q.

    Args:
        x: The value.
        axis: The axis.

    Returns:
        The products, of the shape of x: each of its element and all before it.

    Raises:
        BadArgument: if x has no such axis.
    """
    return apply(Scan("cumprod", axis_of("cumprod", x, axis)), [x])
