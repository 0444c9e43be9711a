"""Pooling: the maximum or the average of each window, over its elements inside the image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from polyfuse.errors import BadArgument
from polyfuse.ir import Tensor
from polyfuse.ir.tensor import computed_in
from polyfuse.nn.conv.windows import Layout, Windows
from polyfuse.nn.nest_writer import Emitter, Shape, element, extents
from polyfuse.nn.operations import INITIAL, Operation

Kind = Literal["max", "mean"]


@dataclass(frozen=True)
class Pooled:
    """One spatial axis that is pooled: for window p, over r, the element `subscript` where `conditions` hold."""

    count: int
    values: int
    subscript: str
    conditions: tuple[str, ...]
    divisors: tuple[int, ...]


@dataclass(frozen=True)
class Pooling(Operation):
    """The maximum or the mean over windows of each channel of an image."""

    rank: int
    kind: Kind
    layout: Layout

    @property
    def name(self) -> str:
        """The function's name, for messages."""
        raise NotImplementedError

    def pooled(self, sizes: Shape, p: Sequence[str], r: Sequence[str]) -> tuple[Pooled, ...]:
        """The spatial axes, with names for a window and an element of it."""
        raise NotImplementedError

    @property
    def stems(self) -> tuple[str, ...]:
        """max: max_init, max; mean: meansum_init, meansum, mean."""
        return ("meansum_init", "meansum", "mean") if self.kind == "mean" else ("max_init", "max")

    @property
    def result(self) -> str:
        """A maximum is m, a mean mu."""
        return "mu" if self.kind == "mean" else "m"

    @property
    def reduces(self) -> bool:
        """A maximum is the result itself."""
        return self.kind == "max"

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """(N, C, H, W) -> (N, C, P, Q), and for channels last accordingly."""
        (x,) = shapes
        if len(x) != self.rank + 2:
            raise BadArgument(f"{self.name}: the input {x} has rank {len(x)}, expected {self.rank + 2}")
        n, channels, sizes = self.layout.parts(x)
        names = [""] * self.rank
        return self.layout.shape(n, channels, tuple(one.count for one in self.pooled(sizes, names, names)))

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """An initial value, the reduction over the window, and for a mean the division by what was added."""
        (x,) = operands
        names = to.dims(2 + 2 * self.rank)
        every, inner = names[: 2 + self.rank], names[2 + self.rank :]
        batch, channel, spatial = every[0], every[-1 if self.layout.last else 1], self._spatial(every)
        axes = self.pooled(self.layout.parts(extents(x))[2], spatial, inner)
        domain = dict(zip(every, extents(out), strict=True))
        target = to.temporary("s", n, extents(out), out.dtype) if self.kind == "mean" else out
        op, first = ("+=", "meansum") if self.kind == "mean" else ("max=", "max")
        image = self.layout.of(batch, channel, [axis.subscript for axis in axes])
        to.assign(f"{first}_init{n}", domain, f"{element(target, every)} = {INITIAL[op]}")
        to.assign(
            f"{first}{n}",
            domain | {dim: axis.values for dim, axis in zip(inner, axes, strict=True)},
            f"{element(target, every)} {op} {element(x, image)}",
            [condition for axis in axes for condition in axis.conditions],
        )
        if self.kind == "mean":
            factors = [_divisor(to, n, axis, p, x) for axis, p in zip(axes, spatial, strict=True)]
            value = f"{element(target, every)} / ({' * '.join(factors)})"
            to.assign(f"mean{n}", domain, f"{element(out, every)} = {value}")

    def _spatial(self, every: Sequence[str]) -> Sequence[str]:
        return every[1:-1] if self.layout.last else every[2:]


def _divisor(to: Emitter, n: int, axis: Pooled, p: str, like: Tensor) -> str:
    """Return the divisor of window p along one axis: a number, or a small constant array if windows differ."""
    if len(set(axis.divisors)) == 1:
        return f"{axis.divisors[0]}.0"
    computed = computed_in(like.dtype)
    array = np.array(axis.divisors, computed)
    return element(to.constant(array, computed, "count", n), [p])


@dataclass(frozen=True)
class WindowPooling(Pooling):
    """Pooling over windows that slide. A mean divides by the window's size, or only by what the image has of it."""

    window: Shape
    windows: Windows
    count_padding: bool = True

    @property
    def name(self) -> str:
        """max_pool2d, avg_pool2d."""
        return f"{'max' if self.kind == 'max' else 'avg'}_pool{self.rank}d"

    def pooled(self, sizes: Shape, p: Sequence[str], r: Sequence[str]) -> tuple[Pooled, ...]:
        """Each axis as its windows have it. Every window has at least one element of the image."""
        found = []
        for d, axis in enumerate(self.windows.axes(self.name, sizes, self.window)):
            present = axis.present()
            if 0 in present:
                raise BadArgument(
                    f"{self.name}: window {present.index(0)} along spatial axis {d} contains only padding "
                    f"(size {axis.size}, window {axis.window}, padding {axis.before} and {axis.after})"
                )
            divisors = (axis.window,) * axis.count if self.count_padding else present
            found.append(
                Pooled(
                    axis.count, axis.window, axis.subscript(p[d], r[d]), axis.conditions(p[d], r[d]), divisors
                )
            )
        return tuple(found)


@dataclass(frozen=True)
class AdaptivePooling(Pooling):
    """Pooling into P windows: window p begins at floor(p H / P) and ends before ceil((p + 1) H / P).

    As inequalities: p H < (h + 1) P and h P < (p + 1) H, so the windows are a domain like any other.
    """

    size: Shape

    @property
    def name(self) -> str:
        """adaptive_max_pool2d, adaptive_avg_pool2d."""
        return f"adaptive_{'max' if self.kind == 'max' else 'avg'}_pool{self.rank}d"

    def pooled(self, sizes: Shape, p: Sequence[str], r: Sequence[str]) -> tuple[Pooled, ...]:
        """Each axis in this many windows."""
        if 0 in sizes:
            raise BadArgument(f"{self.name}: an image of sizes {sizes} has no elements")
        found = []
        for d, (size, count) in enumerate(zip(sizes, self.size, strict=True)):
            conditions = (
                f"{size}*{p[d]} < {count}*{r[d]} + {count}",
                f"{count}*{r[d]} < {size}*{p[d]} + {size}",
            )
            lengths = tuple(-(-(i + 1) * size // count) - i * size // count for i in range(count))
            found.append(Pooled(count, size, r[d], conditions if count > 1 else (), lengths))
        return tuple(found)
