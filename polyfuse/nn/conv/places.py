"""The places of a max pooling's maxima, and its gradient, which they determine. Channels first.

at[n, c, p] min= the number of element r of window p in its image, where x there is at least m[n, c, p]
d[n, c, h] += g[n, c, p]      for each window p that h is in, where at[n, c, p] is the number of h
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from polyfuse.ir import DType, Tensor
from polyfuse.nn.conv.functional import Sizes, max_pool
from polyfuse.nn.conv.transposed import phases
from polyfuse.nn.conv.windows import Padding, Windows, per_axis, windows_of
from polyfuse.nn.graph import Value
from polyfuse.nn.nest_writer import Emitter, element, extents
from polyfuse.nn.operations import Operation
from polyfuse.nn.sizes import Product, Shape, Size


def number_of(sizes: Shape, subscripts: Sequence[str]) -> str:
    """The number of an element of one image.

    >>> number_of((4, 6), ("2*i + j", "k"))
    '6*(2*i + j) + k'
    """
    steps = [str(Product.of(sizes[axis + 1 :])) for axis in range(len(sizes))]
    return " + ".join(
        f"{step}*({text})" if step != "1" else text for step, text in zip(steps, subscripts, strict=True)
    )


@dataclass(frozen=True)
class MaxPlaces(Operation):
    """Where the maximum of each window is: the first of equal ones, or the first that is not a number."""

    window: tuple[int, ...]
    windows: Windows

    @property
    def stems(self) -> tuple[str, ...]:
        """An initial value, and the reduction."""
        return ("place_init", "place")

    @property
    def result(self) -> str:
        """A place is an `at`."""
        return "at"

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """That of the maxima."""
        return shapes[1]

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """`at min= where(x >= m, …)`."""
        x, m = operands
        sizes, rank = extents(x)[2:], len(self.window)
        every = to.dims(2 + 2 * rank)
        of, p, r = every[: 2 + rank], every[2 : 2 + rank], every[2 + rank :]
        domain = dict(zip(of, extents(out), strict=True))
        none = Product.of(sizes)
        to.assign(f"place_init{n}", domain, f"{element(out, of)} = {none}")
        axes = self.windows.axes("max_pool", sizes, self.window)
        places = [axis.subscript(p[d], r[d]) for d, axis in enumerate(axes)]
        value, number = element(x, (*every[:2], *places)), number_of(sizes, places)
        missed = f"where(abs({value}) >= 0, {none}, {number})"  # no comparison holds for NaN
        to.assign(
            f"place{n}",
            {**domain, **dict(zip(r, self.window, strict=True))},
            f"{element(out, of)} min= where({value} >= {element(m, of)}, {number}, {missed})",
            [one for d, axis in enumerate(axes) for one in axis.conditions(p[d], r[d])],
        )


@dataclass(frozen=True)
class MaxPoolGradient(Operation):
    """What each element of an image gets from the windows whose maximum it is; a gather, phase by phase."""

    sizes: Shape
    window: tuple[int, ...]
    windows: Windows

    @property
    def stems(self) -> tuple[str, ...]:
        """zero, and a statement for each combination of phases."""
        return ("zero", *(f"take{part}_" for part in range(prod(self.windows.stride))))

    @property
    def result(self) -> str:
        """A sum."""
        return "s"

    @property
    def reduces(self) -> bool:
        """The sum is the result."""
        return True

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """That of the image."""
        return (*shapes[0][:2], *self.sizes)

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """`zero`: d = 0; `take0_`, …: d += where(at is here, g, 0)."""
        g, at = operands
        rank, (batch, channels, *counts) = len(self.sizes), extents(g)
        every = to.dims(2 + 2 * rank)
        of, q, t = every[: 2 + rank], every[2 : 2 + rank], every[2 + rank :]
        to.assign(f"zero{n}", dict(zip(of, extents(out), strict=True)), f"{element(out, of)} = 0.0")
        axes = self.windows.axes("max_pool", self.sizes, self.window)
        along = [phases(axis.size, axis.window, axis.stride, axis.dilation, axis.before) for axis in axes]
        for part, chosen in enumerate(itertools.product(*along)):
            here = [phase.result(q[d], axes[d].stride) for d, phase in enumerate(chosen)]
            from_ = [phase.image(q[d], t[d]) for d, phase in enumerate(chosen)]
            domain: dict[str, Size] = {every[0]: batch, every[1]: channels}
            domain |= {q[d]: phase.count for d, phase in enumerate(chosen)}
            domain |= {t[d]: phase.taps for d, phase in enumerate(chosen) if phase.taps > 1}
            window = (*every[:2], *from_)
            taken = (
                f"where({element(at, window)} == {number_of(self.sizes, here)}, {element(g, window)}, 0.0)"
            )
            to.assign(
                f"take{part}_{n}",
                domain,
                f"{element(out, (*every[:2], *here))} += {taken}",
                [one for d, phase in enumerate(chosen) for one in phase.conditions(q[d], t[d], counts[d])],
            )


PLACES: DType = "int64"
"""The element type of places, as in torch."""


def max_pool_with_places(
    x: Value, window: Sizes, stride: Sizes | None = None, padding: Padding = 0, dilation: Sizes = 1
) -> tuple[Value, Value]:
    """The maximum of each window, and where it is. Statements place_init, place; tensor at.

    Args:
        x: (N, C, W), (N, C, H, W) or (N, C, D, H, W).
        window: As for `max_pool`.
        stride: As for `max_pool`.
        padding: As for `max_pool`.
        dilation: As for `max_pool`.

    Returns:
        The maxima, and the number of each maximum's element in its channel's image, int64.

    Raises:
        BadArgument: as for `max_pool`.
    """
    found = max_pool(x, window, stride, padding, dilation)
    size, windows = _windows(x.rank - 2, window, stride, padding, dilation)
    return found, Value(MaxPlaces(size, windows), (x, found), found.shape, PLACES)


def max_pool_gradient(
    gradient: Value,
    places: Value,
    sizes: Sequence[Size],
    window: Sizes,
    stride: Sizes | None = None,
    padding: Padding = 0,
    dilation: Sizes = 1,
) -> Value:
    """The gradient of a max pooling by its operand. Statements zero, take0_, take1_, …; tensor s.

    Args:
        gradient: That by the maxima.
        places: What `max_pool_with_places` returned.
        sizes: The image's spatial sizes.
        window: As for the pooling.
        stride: As for the pooling.
        padding: As for the pooling.
        dilation: As for the pooling.

    Returns:
        The gradient (N, C, *sizes).

    Raises:
        BadArgument: if the sizes do not fit together.
    """
    size, windows = _windows(gradient.rank - 2, window, stride, padding, dilation)
    operation = MaxPoolGradient(tuple(sizes), size, windows)
    return Value(operation, (gradient, places), operation.shape([gradient.shape]), gradient.dtype)


def _windows(
    rank: int, window: Sizes, stride: Sizes | None, padding: Padding, dilation: Sizes
) -> tuple[tuple[int, ...], Windows]:
    size = per_axis("max_pool", "window", rank, window)
    return size, windows_of("max_pool", rank, size if stride is None else stride, padding, dilation)
