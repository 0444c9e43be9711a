"""Sliding windows over an image: where they start and end, and which elements lie inside the image.

    y[p] = sum over r of x[stride * p + dilation * r - before] * w[r]      where 0 <= stride * p + … < size

Padding is no tensor and no copy: an element outside the image is an instance that is not in the domain. So a sum leaves
it out, and a maximum does not see it.

    layout ::= channels first | channels last      (N, C, D, H, W) | (N, D, H, W, C), with one to three spatial axes
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from polyfuse.errors import BadArgument
from polyfuse.ir.whole import is_whole
from polyfuse.nn.sizes import Shape, Size, is_negative, numbers

Pairs = tuple[tuple[int, int], ...]
Padding = int | Sequence[int | tuple[int, int]] | Literal["same", "valid"]
"""Elements added on both sides of every axis, of each axis, or (before, after) of each; "same": as many outputs as
inputs / stride, rounded up; "valid": none."""

LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}
"""The names of the layouts for so many spatial axes: channels first, channels last."""


@dataclass(frozen=True)
class Layout:
    """The position of an image's channel axis."""

    last: bool

    def of(self, n: str, channel: str, spatial: Iterable[str]) -> tuple[str, ...]:
        """An element's subscripts.

        >>> Layout(last=True).of("n", "c", ("h", "w"))
        ('n', 'h', 'w', 'c')
        """
        return (n, *spatial, channel) if self.last else (n, channel, *spatial)

    def shape(self, n: Size, channels: Size, spatial: Shape) -> Shape:
        """An image's shape."""
        return (n, *spatial, channels) if self.last else (n, channels, *spatial)

    def parts(self, shape: Shape) -> tuple[Size, Size, Shape]:
        """(N, C, spatial sizes) of an image's shape.

        >>> Layout(last=False).parts((8, 3, 32, 48))
        (8, 3, (32, 48))
        """
        return (shape[0], shape[-1], shape[1:-1]) if self.last else (shape[0], shape[1], shape[2:])


def layout_named(operation: str, name: str | None, rank: int) -> Layout:
    """The layout of so many spatial axes by name, channels first if None; BadArgument for another name."""
    known = LAYOUTS[rank]
    if name is not None and name not in known:
        raise BadArgument(f"{operation}: layout is {name!r}, expected {known[0]!r} or {known[1]!r}")
    return Layout(last=name == known[1])


@dataclass(frozen=True)
class Axis:
    """One spatial axis of an image and the windows along it."""

    size: Size
    window: int
    stride: int
    dilation: int
    before: int
    after: int

    @property
    def count(self) -> Size:
        """The number of windows.

        >>> Axis(size=28, window=3, stride=2, dilation=1, before=1, after=1).count
        14
        """
        return self.room // self.stride + 1

    @property
    def room(self) -> Size:
        """The number of elements, with padding, behind the first window."""
        return self.size + self.before + self.after - self.span

    @property
    def span(self) -> int:
        """The distance from a window's first element to one past its last."""
        return self.dilation * (self.window - 1) + 1

    def subscript(self, p: str, r: str) -> str:
        """Element r of window p; a window of one element has no r.

        >>> Axis(28, 3, 2, 1, 1, 1).subscript("p", "r"), Axis(28, 3, 1, 1, 0, 0).subscript("p", "r")
        ('2*p + r - 1', 'p + r')
        """
        terms = [p if self.stride == 1 else f"{self.stride}*{p}"]
        if self.window > 1:
            terms.append(r if self.dilation == 1 else f"{self.dilation}*{r}")
        return " + ".join(terms) + (f" - {self.before}" if self.before else "")

    def conditions(self, p: str, r: str) -> tuple[str, ...]:
        """The conditions under which element r of window p lies inside the image; () if all do.

        >>> Axis(28, 3, 2, 1, 1, 1).conditions("p", "r"), Axis(28, 3, 2, 1, 0, 0).conditions("p", "r")
        (('2*p + r - 1 >= 0',), ())
        """
        where = self.subscript(p, r)
        beyond = self.stride * (self.count - 1) + self.span - self.before - self.size
        low = (f"{where} >= 0",) if self.before else ()
        inside = self.after == 0 or (isinstance(beyond, int) and beyond <= 0)
        return low if inside else (*low, f"{where} < {self.size}")

    def present(self) -> tuple[int, ...]:
        """The number of elements of each window that lie inside the image, whose size is a number.

        >>> Axis(4, 3, 1, 1, 1, 1).present()
        (2, 3, 3, 2)
        """
        size, count = numbers("windows", (self.size, self.count))
        starts = (self.stride * p - self.before for p in range(count))
        return tuple(
            sum(0 <= start + self.dilation * r < size for r in range(self.window)) for start in starts
        )

    def present_text(self, p: str) -> str:
        """The number of elements of window p that lie inside the image, where they are neighbours.

        >>> Axis(28, 3, 2, 1, 1, 1).present_text("p")
        '(min(2 * p - 1 + 3, 28) - max(2 * p - 1, 0))'
        """
        first = f"{self.stride} * {p} - {self.before}"
        return f"(min({first} + {self.window}, {self.size}) - max({first}, 0))"


@dataclass(frozen=True)
class Windows:
    """The windows along each spatial axis; `padding` is (before, after) for each, or "same"."""

    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: Pairs | Literal["same"]

    def axes(self, operation: str, sizes: Shape, windows: tuple[int, ...]) -> tuple[Axis, ...]:
        """The axes of an image of these sizes; BadArgument where a window does not fit into one."""
        found = []
        for d, (size, window, stride, dilation) in enumerate(
            zip(sizes, windows, self.stride, self.dilation, strict=True)
        ):
            span = dilation * (window - 1) + 1
            before, after = same(operation, size, span, stride) if self.padding == "same" else self.padding[d]
            axis = Axis(size, window, stride, dilation, before, after)
            if is_negative(axis.room):
                raise BadArgument(
                    f"{operation}: a window of {window} with dilation {dilation} spans {span} elements; spatial axis "
                    f"{d} has {size}, and padding {before} + {after}"
                )
            found.append(axis)
        return tuple(found)


def same(operation: str, size: Size, span: int, stride: int) -> tuple[int, int]:
    """Padding for ceil(size / stride) windows, the odd element after: ONNX's SAME_UPPER, TensorFlow's SAME.

    BadArgument where it depends on a symbolic size.

    >>> same("conv", 28, 3, 1), same("conv", 28, 3, 2)
    ((1, 1), (0, 1))
    """
    count = (size + stride - 1) // stride
    missing = (count - 1) * stride + span - size
    if not isinstance(missing, int):
        raise BadArgument(
            f'{operation}: padding "same" with stride {stride} depends on the remainder of the size {size}; give the '
            "padding as numbers"
        )
    total = max(0, missing)
    return total // 2, total - total // 2


def windows_of(
    operation: str, rank: int, stride: int | Sequence[int], padding: Padding, dilation: int | Sequence[int]
) -> Windows:
    """Read a user's window arguments for so many spatial axes; BadArgument if they are invalid."""
    strides, dilations = (
        per_axis(operation, name, rank, given) for name, given in (("stride", stride), ("dilation", dilation))
    )
    return Windows(strides, dilations, _padding(operation, rank, padding))


def per_axis(operation: str, what: str, rank: int, given: int | Sequence[int]) -> tuple[int, ...]:
    """One number for each spatial axis, at least 1; BadArgument for others."""
    numbers = _each(rank, given)
    if len(numbers) != rank or any(not is_whole(n) or n < 1 for n in numbers):
        raise BadArgument(f"{operation}: {what} is {given!r}, expected {rank} integers >= 1, or one for all")
    return tuple(int(n) for n in numbers)


def _each(count: int, given: Any) -> tuple[Any, ...]:
    """Repeat a single value for each of several axes."""
    return tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,) * count


def _padding(operation: str, rank: int, padding: Padding) -> Pairs | Literal["same"]:
    if padding == "same":
        return "same"
    if padding == "valid":
        return ((0, 0),) * rank
    pairs = [_each(2, one) for one in _each(rank, padding)]
    sides = [side for pair in pairs for side in pair]
    if (
        len(pairs) != rank
        or any(len(pair) != 2 for pair in pairs)
        or any(not is_whole(s) or s < 0 for s in sides)
    ):
        raise BadArgument(
            f"{operation}: padding is {padding!r}, expected 'same', 'valid', an integer >= 0, or for each of "
            f"{rank} spatial axes a number or (before, after)"
        )
    return tuple((int(pair[0]), int(pair[1])) for pair in pairs)
