"""Functions that put elements in other places: take, roll, tile, pixel shuffle. All are made of views and concat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from polyfuse.errors import BadArgument, quantity
from polyfuse.ir.whole import all_whole, whole
from polyfuse.nn.graph import Value, axes_of, axis_of, check_value
from polyfuse.nn.shape.chosen import take_by
from polyfuse.nn.shape.functional import concat, expand, narrow, permute, reshape
from polyfuse.nn.sizes import Shape, number

RUNS = 256
"""The most statements that a choice of elements may become."""


def take(x: Value, numbers: Sequence[int] | Value, axis: int = 0) -> Value:
    """The elements with these numbers along an axis: (…, N, …) -> (…, len(numbers), …).

    Known numbers that lie equally far apart are one slice; one number again and again is one that is expanded. Numbers
    of a call are compared with all numbers of the axis (see `gather`).

    Args:
        x: The value.
        numbers: The numbers, negative ones count from the end; or a value of integers, of any shape, which takes the
            axis's place.
        axis: The axis.

    Returns:
        A view of x, or several after each other.

    Raises:
        BadArgument: if a number is not of the axis, or the numbers are of more than 256 slices.
    """
    if isinstance(numbers, Value):
        return take_by(x, numbers, axis)
    axis = axis_of("take", x, axis)
    size, given = number("take", x.shape[axis]), all_whole("take: numbers", numbers)
    wrong = next((one for one in given if not -size <= one < size), None)
    if wrong is not None:
        raise BadArgument(f"take: number {wrong} along axis {axis} of {x!r}, which has {size}")
    runs = list(_runs([one % size for one in given])) if size else []
    if len(runs) > RUNS:
        raise BadArgument(
            f"take: {quantity(len(given), 'number')} along axis {axis} are {len(runs)} slices; at most {RUNS}. "
            "nn.embedding takes rows of a table by an input of numbers"
        )
    parts = [_run(x, axis, *run) for run in runs]
    if not parts:
        return narrow(x, axis, 0, 0)
    return concat(parts, axis) if len(parts) > 1 else parts[0]


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Numbers as progressions (start, step, count), each as long as it can be from left to right.

    >>> list(_runs([0, 1, 2, 2, 2, 7, 5, 3]))
    [(0, 1, 3), (2, 0, 2), (7, -2, 3)]
    """
    at = 0
    while at < len(numbers):
        end = at + 1
        step = numbers[end] - numbers[at] if end < len(numbers) else 0
        while end < len(numbers) and numbers[end] - numbers[end - 1] == step:
            end += 1
        yield numbers[at], step, end - at
        at = end


def _run(x: Value, axis: int, start: int, step: int, count: int) -> Value:
    if step == 0:
        one = narrow(x, axis, start, 1)
        return expand(one, (*x.shape[:axis], count, *x.shape[axis + 1 :])) if count > 1 else one
    if step == 1:
        return narrow(x, axis, start, count)
    stop = start + step * count
    return x[(*[slice(None)] * axis, slice(start, None if stop < 0 else stop, step))]


def roll(x: Value, shifts: int | Sequence[int], axes: int | Sequence[int] | None = None) -> Value:
    """Shift the elements along axes; those that leave at the end come in at the start.

    Args:
        x: The value.
        shifts: By how many elements, for each axis.
        axes: The axes; None rolls all elements in row-major order, as NumPy and torch do.

    Returns:
        A value of the shape of x.

    Raises:
        BadArgument: if an axis does not exist, or there are not as many shifts as axes.
    """
    check_value("roll", x)
    by = all_whole("roll: shifts", shifts)
    if axes is None:
        return x if 0 in x.shape else reshape(roll(reshape(x, (-1,)), by, [0] * len(by)), x.shape)
    along = all_whole("roll: axes", axes)
    if len(by) != len(along):
        raise BadArgument(f"roll: {quantity(len(by), 'shift')} for {quantity(len(along), 'axis', 'axes')}")
    for shift, named in zip(by, along, strict=True):
        axis = axis_of("roll", x, named)
        size = number("roll", x.shape[axis])
        if size and shift % size:
            at = size - shift % size
            x = concat([narrow(x, axis, at, size - at), narrow(x, axis, 0, at)], axis)
    return x


def tile(x: Value, repeats: Sequence[int]) -> Value:
    """Repeat x as a whole along axes, as NumPy's tile.

    Args:
        x: The value.
        repeats: How often along each axis, aligned right; missing ones are 1, and further ones add axes on the left.

    Returns:
        The repeated value.

    Raises:
        BadArgument: if a number is negative.
    """
    check_value("tile", x)
    given = all_whole("tile: repeats", repeats)
    if any(count < 0 for count in given):
        raise BadArgument(f"tile: repeats {given}; expected numbers >= 0")
    counts = [1] * (x.rank - len(given)) + list(given)
    sizes = [1] * (len(counts) - x.rank) + list(x.shape)
    if all(count == 1 for count in counts):
        return reshape(x, sizes)
    apart = reshape(x, [part for size in sizes for part in (1, size)])
    pairs = [part for count, size in zip(counts, sizes, strict=True) for part in (count, size)]
    return reshape(expand(apart, pairs), [count * size for count, size in zip(counts, sizes, strict=True)])


def pixel_shuffle(x: Value, factor: int) -> Value:
    """Channels as pixels: (…, C r², H, W) -> (…, C, H r, W r). Shi et al., Real-Time Single Image … (2016).

    Args:
        x: The value; channel c r² + i r + j is pixel (i, j) of each r × r square.
        factor: r.

    Returns:
        A view of x.

    Raises:
        BadArgument: if x has fewer than three axes, or r² does not divide its channels.
    """
    *batch, channels, rows, columns = _image("pixel_shuffle", x)
    r, n = whole("pixel_shuffle: factor", factor), x.rank - 3
    if r < 1 or channels % r**2:
        raise BadArgument(
            f"pixel_shuffle: {quantity(channels, 'channel')} by a factor of {r}; {r}² has to divide them"
        )
    apart = reshape(x, (*batch, channels // r**2, r, r, rows, columns))
    turned = permute(apart, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return reshape(turned, (*batch, channels // r**2, rows * r, columns * r))


def pixel_unshuffle(x: Value, factor: int) -> Value:
    """Pixels as channels, the inverse of `pixel_shuffle`: (…, C, H r, W r) -> (…, C r², H, W).

    Args:
        x: The value.
        factor: r.

    Returns:
        A view of x.

    Raises:
        BadArgument: if x has fewer than three axes, or r does not divide its rows and columns.
    """
    *batch, channels, rows, columns = _image("pixel_unshuffle", x)
    r, n = whole("pixel_unshuffle: factor", factor), x.rank - 3
    if r < 1 or rows % r or columns % r:
        raise BadArgument(
            f"pixel_unshuffle: {rows} × {columns} pixels by a factor of {r}, which has to divide both"
        )
    apart = reshape(x, (*batch, channels, rows // r, r, columns // r, r))
    turned = permute(apart, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return reshape(turned, (*batch, channels * r * r, rows // r, columns // r))


def _image(operation: str, x: Value) -> Shape:
    check_value(operation, x)
    if x.rank < 3:
        raise BadArgument(f"{operation}: {x!r} has {quantity(x.rank, 'axis', 'axes')}; expected (…, C, H, W)")
    return x.shape


def repeat_interleave(x: Value, repeats: int, axis: int) -> Value:
    """Repeat each element along an axis: (…, N, …) -> (…, N * repeats, …), as NumPy's repeat.

    Args:
        x: The value.
        repeats: How often.
        axis: The axis.

    Returns:
        A view of x.

    Raises:
        BadArgument: if x has no such axis, or `repeats` is below 1.
    """
    (axis,) = axes_of("repeat_interleave", x, axis)
    times = whole("repeat_interleave: repeats", repeats)
    if times < 1:
        raise BadArgument(f"repeat_interleave: {times} times; expected at least 1")
    before, size, behind = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    apart = reshape(x, (*before, size, 1, *behind))
    return reshape(expand(apart, (*before, size, times, *behind)), (*before, size * times, *behind))
