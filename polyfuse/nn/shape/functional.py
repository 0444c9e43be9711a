"""Functions that return views: narrow, split, concat, transpose, reshape, pad, unfold, …

Each is written as statements that copy (`nn.views`), and none of these is left after `polyfuse.rewrite.compose_views`,
which `compile` calls. Axes count from the left, or from the right if negative; BadArgument says what does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from polyfuse.errors import BadArgument, quantity
from polyfuse.ir.whole import all_whole, is_whole, whole
from polyfuse.nn.graph import Operand, Value, apply, as_value, axes_of, axis_of, check_value, viewed
from polyfuse.nn.shape.operations import Join, Pad, stepped
from polyfuse.nn.sizes import GivenSize, Shape, Size, all_sizes, is_negative, number, size_of, total


def narrow(x: Value, axis: int, start: GivenSize, length: GivenSize) -> Value:
    """A range of elements along an axis: (…, N, …) -> (…, length, …).

    Whether it lies inside of a symbolic axis, each call checks.

    Args:
        x: The value.
        axis: The axis.
        start: The first element's index.
        length: The number of elements.

    Returns:
        A view of x.

    Raises:
        BadArgument: if the range does not lie inside the axis.
    """
    axis = axis_of("narrow", x, axis)
    first, count = all_sizes("narrow: (start, length)", (start, length))
    needed = first, count, x.shape[axis] - first - count
    if any(map(is_negative, needed)):
        raise BadArgument(
            f"narrow: {quantity(count, 'element')} from {first} on along "
            f"axis {axis} of {x!r}, which has {x.shape[axis]}"
        )
    return _along(x, "narrow", axis, count, first, 1, needed)


def select(x: Value, axis: int, index: GivenSize) -> Value:
    """One element along an axis, which is removed: (…, N, …) -> (…, …).

    Args:
        x: The value.
        axis: The axis.
        index: The element's index; a negative one counts from the end.

    Returns:
        A view of x.

    Raises:
        BadArgument: if the index is out of bounds.
    """
    axis = axis_of("select", x, axis)
    size = x.shape[axis]
    place = size_of("select: index", index)
    at = place + size if is_negative(place) else place
    needed = at, size - 1 - at
    if any(map(is_negative, needed)):
        raise BadArgument(f"select: index {index} along axis {axis} of {x!r}, which has {size}")
    dims = iter(range(x.rank - 1))
    subscripts = tuple(str(at) if d == axis else f"{{{next(dims)}}}" for d in range(x.rank))
    return viewed(x, "select", (*x.shape[:axis], *x.shape[axis + 1 :]), subscripts, needed)


def split(x: Value, sizes: int | Sequence[GivenSize], axis: int = 0) -> tuple[Value, ...]:
    """Split into pieces along an axis.

    Args:
        x: The value.
        sizes: The size of each piece, or one size for all, where the last piece may be smaller.
        axis: The axis.

    Returns:
        Views of x.

    Raises:
        BadArgument: if a size is below 1, or the sizes do not add up to the axis's.
    """
    axis = axis_of("split", x, axis)
    whole_axis = x.shape[axis]
    pieces = all_sizes("split: sizes", sizes)
    if is_whole(sizes):
        if sizes < 1:
            raise BadArgument(f"split: pieces of {sizes} elements; expected at least 1")
        end = number(f"split: pieces of {sizes} elements, of a size", whole_axis)
        pieces = tuple(min(sizes, end - start) for start in range(0, end, sizes))
    if any(map(is_negative, pieces)) or total(pieces) != whole_axis:
        raise BadArgument(
            f"split: sizes {pieces} do not add up to {whole_axis}, the size of axis {axis} of {x!r}"
        )
    starts = [total(pieces[:k]) for k in range(len(pieces))]
    return tuple(narrow(x, axis, start, size) for start, size in zip(starts, pieces, strict=True))


def chunk(x: Value, chunks: int, axis: int = 0) -> tuple[Value, ...]:
    """Split into at most `chunks` pieces along an axis, equal but for the last.

    Args:
        x: The value.
        chunks: The number of pieces.
        axis: The axis.

    Returns:
        Views of x.

    Raises:
        BadArgument: if `chunks` is below 1.
    """
    axis, chunks = axis_of("chunk", x, axis), whole("chunk: number of chunks", chunks)
    if chunks < 1:
        raise BadArgument(f"chunk: {chunks} chunks; expected at least 1")
    size = number(f"chunk: {chunks} pieces, of a size", x.shape[axis])
    return split(x, max(1, -(-size // chunks)), axis)


def concat(values: Sequence[Operand], axis: int = 0) -> Value:
    """Concatenate along an axis.

    Args:
        values: Values and arrays, equal in all other sizes.
        axis: The axis.

    Returns:
        The concatenated value.

    Raises:
        BadArgument: if there are no values, or other sizes differ.
    """
    parts = _several("concat", values)
    return apply(Join("concat", axis_of("concat", parts[0], axis), len(parts)), parts)


def stack(values: Sequence[Operand], axis: int = 0) -> Value:
    """Stack along a new axis.

    Args:
        values: Values and arrays of one shape.
        axis: The new axis.

    Returns:
        The stacked value.

    Raises:
        BadArgument: if there are no values, or the shapes differ.
    """
    parts = _several("stack", values)
    rank, at = parts[0].rank + 1, whole("stack: axis", axis)
    if not -rank <= at < rank:
        raise BadArgument(f"stack: axis {at} of a result with {quantity(rank, 'axis', 'axes')}")
    return apply(Join("stack", at % rank, len(parts)), parts)


def permute(x: Value, axes: Sequence[int]) -> Value:
    """Permute the axes: axis k of the result is axes[k] of x, as in NumPy's transpose.

    Args:
        x: The value.
        axes: Each axis of x once.

    Returns:
        A view of x.

    Raises:
        BadArgument: if `axes` is not a permutation.
    """
    check_value("permute", x)
    return x.permute(axes)


def transpose(x: Value, first: int = -2, second: int = -1) -> Value:
    """Exchange two axes.

    Args:
        x: The value.
        first: An axis.
        second: An axis.

    Returns:
        A view of x.

    Raises:
        BadArgument: if an axis does not exist.
    """
    check_value("transpose", x)
    return x.transpose(first, second)


def reshape(x: Value, shape: Sequence[GivenSize]) -> Value:
    """The same elements, in row-major order, in another shape.

    (N, 3, 4, 4) is (N, 48) as well. Two symbolic axes cannot be one: N * T is not affine.

    Args:
        x: The value.
        shape: The new sizes; one may be -1 and is then inferred.

    Returns:
        A view of x.

    Raises:
        BadArgument: if the number of elements differs, or an element's place is not affine in sizes.
    """
    check_value("reshape", x)
    return x.reshape(shape)


def expand(x: Value, shape: Sequence[GivenSize]) -> Value:
    """Repeat x along new axes on the left and along axes of size 1, as NumPy's broadcast_to.

    Args:
        x: The value.
        shape: The new sizes.

    Returns:
        A view of x.

    Raises:
        BadArgument: if x does not broadcast to the shape.
    """
    check_value("expand", x)
    sizes = all_sizes("expand: shape", shape)
    new = len(sizes) - x.rank
    if new < 0 or any(a not in (1, b) for a, b in zip(x.shape, sizes[max(new, 0) :], strict=True)):
        raise BadArgument(f"expand: {x!r} does not broadcast to {sizes}: sizes must be equal, or 1 in x")
    subscripts = tuple("0" if size == 1 else f"{{{new + d}}}" for d, size in enumerate(x.shape))
    return viewed(x, "expand", sizes, subscripts)


def flip(x: Value, axes: int | Sequence[int]) -> Value:
    """Reverse the elements along some axes.

    Args:
        x: The value.
        axes: An axis, or several.

    Returns:
        A view of x.

    Raises:
        BadArgument: if an axis does not exist, or is named twice.
    """
    given = axes_of("flip", x, axes)
    subscripts = tuple(
        stepped(d, size - 1, -1) if d in given else f"{{{d}}}" for d, size in enumerate(x.shape)
    )
    return viewed(x, "flip", x.shape, subscripts)


def pad(
    x: Value,
    widths: Sequence[int | tuple[int, int]],
    value: float = 0.0,
    mode: Literal["constant", "reflect", "replicate", "circular"] = "constant",
) -> Value:
    """Pad before and after x: with a number, or with elements of x.

    Args:
        x: The value.
        widths: For each axis one width for both sides, or (before, after).
        value: The number, for mode "constant".
        mode: "constant"; "reflect" mirrors at the outermost elements, which are not repeated (NumPy's "reflect");
            "replicate" repeats them ("edge"); "circular" goes on at the other end ("wrap").

    Returns:
        The padded value.

    Raises:
        BadArgument: if the widths do not fit x: "reflect" needs more elements than a width, "circular" as many.
    """
    check_value("pad", x)
    every = [all_whole("pad: width", width) for width in (() if is_whole(widths) else widths)]
    if len(every) != x.rank or any(len(sides) > 2 or min(sides, default=-1) < 0 for sides in every):
        raise BadArgument(
            f"pad: widths {widths} of {x!r}; expected one or two non-negative numbers for each axis"
        )
    pairs = tuple((sides[0], sides[-1]) for sides in every)
    if mode != "constant":
        for axis, (before, behind) in enumerate(pairs):
            x = _around(x, axis, before, behind, mode)
        return x
    try:
        between = float(value)
    except (TypeError, ValueError) as error:
        raise BadArgument(f"pad: value={value!r}, expected a number") from error
    return apply(Pad(pairs, between), [x]) if any(map(any, pairs)) else x


def _around(x: Value, axis: int, before: int, behind: int, mode: str) -> Value:
    """The axis with elements of its own before and behind it."""
    size = number("pad", x.shape[axis]) if before or behind else 0
    limits = {"reflect": size - 1, "replicate": None if size else 0, "circular": size}
    if mode not in limits:
        raise BadArgument(f"pad: mode is {mode!r}, expected 'constant', 'reflect', 'replicate' or 'circular'")
    limit = limits[mode]
    if limit is not None and max(before, behind) > max(limit, 0):
        raise BadArgument(
            f"pad: {before} before and {behind} behind axis {axis} of {x!r} by mode {mode!r}: at most {max(limit, 0)}"
        )

    def edge(at: int, width: int) -> Value:
        return expand(narrow(x, axis, at, 1), (*x.shape[:axis], width, *x.shape[axis + 1 :]))

    if mode == "reflect":
        front = flip(narrow(x, axis, 1, before), axis) if before else x
        back = flip(narrow(x, axis, size - 1 - behind, behind), axis) if behind else x
    elif mode == "replicate":
        front = edge(0, before) if before else x
        back = edge(size - 1, behind) if behind else x
    else:
        front, back = narrow(x, axis, size - before, before), narrow(x, axis, 0, behind)
    parts = [*([front] if before else []), x, *([back] if behind else [])]
    return concat(parts, axis) if len(parts) > 1 else x


def unfold(x: Value, axis: int, size: int, step: int = 1, dilation: int = 1) -> Value:
    """All windows along an axis: (…, N, …) -> (…, windows, …, size).

    A convolution is a product with windows; `compose_views` makes it read x directly, so nothing is copied (no im2col).

    Args:
        x: The value.
        axis: The axis.
        size: Elements of a window.
        step: The step between windows.
        dilation: The step between elements of a window.

    Returns:
        A view of x.

    Raises:
        BadArgument: if a number is below 1, or no window fits.
    """
    axis = axis_of("unfold", x, axis)
    size, step, dilation = all_whole("unfold: (size, step, dilation)", (size, step, dilation))
    room = x.shape[axis] - (dilation * (size - 1) + 1)
    if size < 1 or step < 1 or dilation < 1 or is_negative(room):
        raise BadArgument(
            f"unfold: {quantity(size, 'element')}, {dilation} apart, every {step} along axis {axis} of {x!r}: "
            "expected numbers >= 1 for which at least one window fits"
        )
    count = room // step + 1
    at = f"{stepped(axis, 0, step)} + {stepped(x.rank, 0, dilation)}"
    subscripts = tuple(at if d == axis else f"{{{d}}}" for d in range(x.rank))
    return viewed(x, "unfold", (*x.shape[:axis], count, *x.shape[axis + 1 :], size), subscripts, (room,))


def _along(x: Value, kind: str, axis: int, size: Size, start: Size, step: int, needed: Shape = ()) -> Value:
    subscripts = tuple(stepped(d, start, step) if d == axis else f"{{{d}}}" for d in range(x.rank))
    return viewed(x, kind, (*x.shape[:axis], size, *x.shape[axis + 1 :]), subscripts, needed)


def _several(operation: str, values: object) -> tuple[Value, ...]:
    """The values, and arrays beside them as constants; BadArgument without any value."""
    parts = tuple(values) if isinstance(values, Iterable) else ()
    first = next((part for part in parts if isinstance(part, Value)), None)
    if first is None:
        raise BadArgument(f"{operation}: no values; expected a list of at least one")
    return tuple(as_value(part, first.dtype) for part in parts)
