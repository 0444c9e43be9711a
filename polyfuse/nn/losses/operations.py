"""The operation that takes each row's own class: no subscript is a value, so that it is a sum in which one term counts.

for i, j: l[i] += where(t[i] == j, -w[t[i]] * p[i, j], 0)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from polyfuse.errors import BadArgument
from polyfuse.ir import Tensor
from polyfuse.nn.nest_writer import Emitter, element, extents
from polyfuse.nn.operations import Operation, kept
from polyfuse.nn.sizes import Shape


@dataclass(frozen=True)
class OwnClass(Operation):
    """-w[t] * p[t]: p is (N, C, …) with the classes along `axis`, t holds class numbers (N, …), w is (C,)."""

    axis: int

    @property
    def stems(self) -> tuple[str, ...]:
        """own_init: l = 0; own: the sum."""
        return ("own_init", "own")

    @property
    def result(self) -> str:
        """Losses are an l."""
        return "l"

    @property
    def operand_stems(self) -> tuple[str, ...]:
        """The classes' weights are a constant of their own."""
        return ("p", "t", "classes")

    @property
    def reduces(self) -> bool:
        """True: the sum is the result."""
        return True

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """(N, C, …), (N, …), (C,) -> (N, …)."""
        p, t, w = shapes
        without = (*p[: self.axis], *p[self.axis + 1 :])
        if t != without:
            raise BadArgument(
                f"nll_loss: the classes {t} do not fit the scores {p}: expected {without}, "
                f"all axes but {self.axis}"
            )
        if w != (p[self.axis],):
            raise BadArgument(f"nll_loss: the classes' weights are {w}, expected {(p[self.axis],)}")
        return without

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """Zeros, then the sum over all classes."""
        p, t, w = operands
        weights = to.gathered(w, t)
        every = to.dims(p.rank)
        outside, row = kept(every, extents(p), (self.axis,), keepdims=False)
        to.assign(f"own_init{n}", outside, f"{element(out, row)} = 0.0")
        value = f"-{element(weights, row)} * {element(p, every)}"
        text = f"where({element(t, row)} == {every[self.axis]}, {value}, 0.0)"
        to.assign(f"own{n}", dict(zip(every, extents(p), strict=True)), f"{element(out, row)} += {text}")
