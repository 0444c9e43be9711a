"""Pooling: the maximum or the average of each window, over its elements inside the image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from polyfuse.errors import BadArgument
from polyfuse.ir import Tensor
from polyfuse.ir.number_types import computed_in
from polyfuse.nn.conv.windows import Axis, Layout, Windows
from polyfuse.nn.nest_writer import Emitter, element, extents
from polyfuse.nn.operations import FLOAT, NUMBERS, Kinds, Operation, initial
from polyfuse.nn.sizes import Shape, Size

Kind = Literal["max", "mean"]


@dataclass(frozen=True)
class Pooled:
    """One spatial axis that is pooled: for window p, over r, the element `subscript` where `conditions` hold.

    A mean divides by one of the `divisors` for each window, or by a text in p. Each window has an element of the image
    if nothing in `needed` is negative.
    """

    count: Size
    values: Size
    subscript: str
    conditions: tuple[str, ...]
    divisors: tuple[int, ...] | str
    needed: Shape = ()


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

    @property
    def kinds(self) -> Kinds:
        """A maximum, which divides nothing."""
        return NUMBERS if self.kind == "max" else FLOAT

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """(N, C, H, W) -> (N, C, P, Q), and for channels last accordingly."""
        (x,) = shapes
        if len(x) != self.rank + 2:
            raise BadArgument(f"{self.name}: the input {x} has rank {len(x)}, expected {self.rank + 2}")
        n, channels, sizes = self.layout.parts(x)
        names = [""] * self.rank
        return self.layout.shape(n, channels, tuple(one.count for one in self.pooled(sizes, names, names)))

    def needed(self, shapes: Sequence[Shape]) -> Shape:
        """Every window has an element."""
        names = [""] * self.rank
        axes = self.pooled(self.layout.parts(shapes[0])[2], names, names)
        return tuple(size for axis in axes for size in axis.needed)

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
        to.assign(f"{first}_init{n}", domain, f"{element(target, every)} = {initial(op, target.dtype)}")
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
    if isinstance(axis.divisors, str):
        return axis.divisors
    if len(set(axis.divisors)) == 1:
        return f"{axis.divisors[0]}.0"
    computed = computed_in(like.dtype)
    array = np.array(axis.divisors, computed)
    return element(to.constant(array, computed, "count", n), [p])


@dataclass(frozen=True)
class WindowPooling(Pooling):
    """Pooling over windows that slide. A mean divides by the window's size, or only by what the image has of it."""

    window: tuple[int, ...]
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
            place, conditions = axis.subscript(p[d], r[d]), axis.conditions(p[d], r[d])
            divisors, needed = self._divisors(d, axis, p[d])
            found.append(Pooled(axis.count, axis.window, place, conditions, divisors, needed))
        return tuple(found)

    def _divisors(self, d: int, axis: Axis, p: str) -> tuple[tuple[int, ...] | str, Shape]:
        """What a mean divides by, and what may not be negative, or a window would consist of padding."""
        if isinstance(axis.size, int):
            present = axis.present()
            if 0 in present:
                raise BadArgument(
                    f"{self.name}: window {present.index(0)} along spatial axis {d} contains only padding "
                    f"(size {axis.size}, window {axis.window}, padding {axis.before} and {axis.after})"
                )
            return (axis.window,) * len(present) if self.count_padding else present, ()
        if max(axis.before, axis.after) >= axis.span:
            raise BadArgument(
                f"{self.name}: a window along spatial axis {d} contains only padding (size {axis.size}, window "
                f"{axis.window}, padding {axis.before} and {axis.after})"
            )
        counted = self.count_padding or self.kind == "max" or not (axis.before or axis.after)
        if not counted and axis.dilation > 1:
            raise BadArgument(
                f"{self.name}: count_padding=False with dilation {axis.dilation} over the symbolic size {axis.size} is "
                "not supported; count the padding, or leave it out"
            )
        # a window that begins inside has its first element, one that begins before one of the first `dilation` elements
        return (axis.window,) if counted else axis.present_text(p), (axis.room, axis.size - axis.dilation)


@dataclass(frozen=True)
class AdaptivePooling(Pooling):
    """Pooling into P windows: window p begins at floor(p H / P) and ends before ceil((p + 1) H / P).

    As inequalities: p H < (h + 1) P and h P < (p + 1) H, so the windows are a domain like any other.
    """

    size: tuple[int, ...]

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
            if not isinstance(size, int):
                if count > 1:
                    raise BadArgument(
                        f"{self.name}: {count} windows over the symbolic size {size} do not begin at affine places; "
                        "expected 1 window, or a size in numbers"
                    )
                found.append(Pooled(1, size, r[d], (), f"({size})", (size - 1,)))
                continue
            conditions = (
                f"{size}*{p[d]} < {count}*{r[d]} + {count}",
                f"{count}*{r[d]} < {size}*{p[d]} + {size}",
            )
            lengths = tuple(-(-(i + 1) * size // count) - i * size // count for i in range(count))
            found.append(Pooled(count, size, r[d], conditions if count > 1 else (), lengths))
        return tuple(found)
