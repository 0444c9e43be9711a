"""Transposed convolution of any rank: the transpose of a convolution's matrix, as a gather over the input.

    y[n, f, s*q + e] += x[n, c, q + base - slope*t] * w[c, f, first + step*t]      for each phase e = 0, …, s - 1

Dumoulin and Visin, A Guide to Convolution Arithmetic for Deep Learning (2016), section 4. Nothing is inserted between
the elements of the input: the elements s*q + e of the result meet every step-th element of the window, the same ones
for all q. So each phase is a convolution of stride 1, with a statement of its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from polyfuse.errors import BadArgument, quantity
from polyfuse.ir import Tensor
from polyfuse.nn.conv.operations import joined
from polyfuse.nn.conv.windows import LAYOUTS, Padding, windows_of
from polyfuse.nn.graph import Value, apply, as_value
from polyfuse.nn.nest_writer import Array, Emitter, element, extents
from polyfuse.nn.operations import WithBias, initial
from polyfuse.nn.sizes import Shape, Size, is_negative, numbers


@dataclass(frozen=True)
class Phase:
    """The elements stride * q + e of one axis of the result, and what they sum over."""

    e: int
    count: Size
    taps: int
    first: int
    step: int
    base: int
    slope: int

    def result(self, q: str, stride: int) -> str:
        """The element of the result.

        >>> Phase(1, 4, 2, 0, 2, 1, 1).result("q", 2), Phase(0, 4, 2, 0, 1, 0, 1).result("q", 1)
        ('2*q + 1', 'q')
        """
        return _affine(q if stride == 1 else f"{stride}*{q}", self.e)

    def image(self, q: str, t: str) -> str:
        """The element of the input.

        >>> Phase(1, 4, 2, 0, 2, 1, 1).image("q", "t"), Phase(1, 4, 1, 0, 2, -1, 1).image("q", "0")
        ('q - t + 1', 'q - 1')
        """
        tap = "" if self.taps == 1 else f" - {t}" if self.slope == 1 else f" - {self.slope}*{t}"
        return _affine(q + tap, self.base)

    def window(self, t: str) -> str:
        """The element of the window.

        >>> Phase(1, 4, 2, 1, 2, 1, 1).window("t"), Phase(1, 4, 1, 1, 2, 1, 1).window("0")
        ('2*t + 1', '1')
        """
        if self.taps == 1:
            return str(self.first)
        return _affine(t if self.step == 1 else f"{self.step}*{t}", self.first)

    def conditions(self, q: str, t: str, size: Size) -> tuple[str, ...]:
        """The conditions under which the element of the input exists; () if it always does.

        >>> Phase(0, 4, 2, 0, 2, 0, 1).conditions("q", "t", 4)
        ('q - t >= 0',)
        """
        where = self.image(q, t)
        low = self.base - self.slope * (self.taps - 1)
        first = (f"{where} >= 0",) if low < 0 else ()
        beyond = self.count + self.base - size
        return first if isinstance(beyond, int) and beyond <= 0 else (*first, f"{where} < {size}")


def _affine(text: str, number: int) -> str:
    return f"{text} + {number}" if number > 0 else f"{text} - {-number}" if number else text


def phases(out: Size, window: int, stride: int, dilation: int, before: int) -> tuple[Phase, ...]:
    """The phases of one axis; those that no element of the window meets, or that have no elements, are left out.

    >>> [(p.first, p.step, p.base) for p in phases(out=8, window=3, stride=2, dilation=1, before=1)]
    [(1, 2, 0), (0, 2, 1)]
    """
    step = stride // math.gcd(dilation, stride)
    found = []
    for e in range(min(stride, out) if isinstance(out, int) else stride):
        firsts = (r for r in range(min(step, window)) if (e + before - dilation * r) % stride == 0)
        for first in itertools.islice(firsts, 1):
            taps, base = (window - first - 1) // step + 1, (e + before - dilation * first) // stride
            found.append(
                Phase(e, (out - e - 1) // stride + 1, taps, first, step, base, dilation * step // stride)
            )
    return tuple(found)


@dataclass(frozen=True)
class TransposedConvolution(WithBias):
    """The gradient of a convolution by its input: x is (N, C, …), w (C, F / groups, *window), b (F,).

    `before` is cut off in front of each axis, and the sizes of the result say what is cut off behind.
    """

    sizes: Shape
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    groups: int
    bias: bool

    @property
    def stems(self) -> tuple[str, ...]:
        """zero, bias, and a product for each combination of phases: mac0_n, mac1_n, …"""
        return ("zero", *(f"mac{part}_" for part in range(math.prod(self.stride))), "bias")

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """(N, C, H, W), (C, F / groups, R, S) -> (N, F, P, Q)."""
        x, w = shapes[0], self._weight(shapes[1])
        if x[1] != w[0] or w[0] % self.groups:
            channels = quantity(x[1], "channel")
            raise BadArgument(
                f"conv_transpose: the input {x} has {channels}, the weight {w} takes {w[0]} to share "
                f"out among {quantity(self.groups, 'group')}"
            )
        filters = w[1] * self.groups
        if self.bias and shapes[2] != (filters,):
            raise BadArgument(
                f"conv_transpose: the bias {shapes[2]} does not fit the weight {w}: expected {(filters,)}"
            )
        return (x[0], filters, *self.sizes)

    def _weight(self, w: Shape) -> tuple[int, ...]:
        return numbers("conv_transpose: the weight's shape", w)

    def emit(self, to: Emitter, n: int, operands: Sequence[Tensor], out: Tensor) -> None:
        """`zero`: y = 0; `mac0_`, …: y += x * w, phase by phase; `bias`: z = y + b."""
        x, w = operands[:2]
        y = to.temporary("y", n, extents(out), out.dtype) if self.bias else out
        every = to.dims(out.rank)
        domain = dict(zip(every, extents(out), strict=True))
        to.assign(f"zero{n}", domain, f"{element(y, every)} = {initial('+=', y.dtype)}")
        along = [phases(*axis) for axis in self._axes(self._weight(extents(w))[2:])]
        for part, chosen in enumerate(itertools.product(*along)):
            self._mac(to, f"mac{part}_{n}", x, w, y, chosen)
        if self.bias:
            value = f"{element(y, every)} + {element(operands[2], [every[1]])}"
            to.assign(f"bias{n}", domain, f"{element(out, every)} = {value}")

    def _axes(self, window: tuple[int, ...]) -> list[tuple[Size, int, int, int, int]]:
        return list(zip(self.sizes, window, self.stride, self.dilation, self.before, strict=True))

    def _mac(
        self, to: Emitter, name: str, x: Tensor, w: Tensor, y: Tensor, chosen: tuple[Phase, ...]
    ) -> None:
        every, filters = self._weight(extents(w))[:2]
        channels = every // self.groups
        sizes: dict[str, Size] = {"n": extents(y)[0], "g": self.groups, "f": filters}
        sizes |= {f"q{d}": phase.count for d, phase in enumerate(chosen)}
        sizes |= {"c": channels} | {f"t{d}": phase.taps for d, phase in enumerate(chosen)}
        loops = [role for role in sizes if role == "n" or role[0] == "q" or sizes[role] != 1]
        dim = dict(zip(loops, to.dims(len(loops)), strict=True))
        q = [dim[f"q{d}"] for d in range(len(chosen))]
        t = [dim.get(f"t{d}", "0") for d in range(len(chosen))]
        result = [phase.result(q[d], self.stride[d]) for d, phase in enumerate(chosen)]
        image = [phase.image(q[d], t[d]) for d, phase in enumerate(chosen)]
        window = [phase.window(t[d]) for d, phase in enumerate(chosen)]
        channel, filter_ = joined(dim, "g", "c", channels), joined(dim, "g", "f", filters)
        to.assign(
            name,
            {dim[role]: sizes[role] for role in loops},
            f"{element(y, (dim['n'], filter_, *result))} += {element(x, (dim['n'], channel, *image))} * "
            f"{element(w, (channel, dim.get('f', '0'), *window))}",
            [
                one
                for d, phase in enumerate(chosen)
                for one in phase.conditions(q[d], t[d], extents(x)[2 + d])
            ],
        )


def conv_transpose(
    x: Value,
    weight: Array | Value,
    bias: Array | Value | None = None,
    stride: int | Sequence[int] = 1,
    padding: Padding = 0,
    output_padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Value:
    """Transposed convolution in one to three dimensions, channels first: the gradient of a convolution by its input.

    Statements zero, a product for each phase of the stride (mac0_, mac1_, …), bias; tensors w, b, y, z.

    Args:
        x: (N, C, W), (N, C, H, W) or (N, C, D, H, W).
        weight: (C, F / groups, *window).
        bias: (F,) or None.
        stride: The step between the places of two input elements in the result, for all axes or for each.
        padding: What is cut off the result on both sides of all axes, a number or (before, after) for each axis.
        output_padding: Elements that are added behind, for all axes or for each: of the several sizes whose convolution
            has the size of x, which one is wanted.
        dilation: The step between elements of a window, for all axes or for each.
        groups: The number of groups of channels.

    Returns:
        (N, F, …), with (H - 1) stride - padding + dilation (R - 1) + 1 + output_padding rows.

    Raises:
        BadArgument: if the sizes do not fit together, or padding is "same".
    """
    rank = x.rank - 2
    w = as_value(weight, x.dtype)
    if rank not in LAYOUTS or w.rank != x.rank or 0 in w.shape:
        raise BadArgument(
            f"conv_transpose: {x!r} and the weight {w.shape}: expected (N, C, …) with 1 to 3 spatial axes, and "
            "(C, filters / groups, …) with as many and without a 0"
        )
    if groups < 1:
        raise BadArgument(f"conv_transpose: {groups} groups, expected at least 1")
    windows = windows_of("conv_transpose", rank, stride, padding, dilation)
    if windows.padding == "same":
        raise BadArgument('conv_transpose: padding "same" does not say how many rows there are; give numbers')
    more = (output_padding,) * rank if isinstance(output_padding, int) else tuple(output_padding)
    if len(more) != rank or any(n < 0 for n in more):
        raise BadArgument(
            f"conv_transpose: output_padding is {output_padding!r}, expected numbers >= 0, one for each of {rank} axes"
        )
    sizes = tuple(
        (size - 1) * s - before - after + d * (window - 1) + 1 + extra
        for size, window, s, d, (before, after), extra in zip(
            x.shape[2:],
            numbers("conv_transpose: the weight's shape", w.shape)[2:],
            windows.stride,
            windows.dilation,
            windows.padding,
            more,
            strict=True,
        )
    )
    if any(map(is_negative, sizes)):
        raise BadArgument(f"conv_transpose: padding {padding!r} cuts {x!r} to the sizes {sizes}")
    operation = TransposedConvolution(
        sizes,
        windows.stride,
        windows.dilation,
        tuple(before for before, _ in windows.padding),
        groups,
        bias is not None,
    )
    return apply(operation, [x, w, *([] if bias is None else [as_value(bias, x.dtype)])])
