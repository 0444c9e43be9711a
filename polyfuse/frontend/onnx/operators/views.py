"""Importers of what computes nothing: shapes, slices, concatenation, padding, choices of elements by known numbers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Literal, cast

import numpy as np

from polyfuse import nn
from polyfuse.frontend.onnx.operators.registry import (
    FOLDED_ELEMENTS,
    Array,
    Node,
    Operand,
    Unsupported,
    axes_within,
    common_type,
    onnx_op,
    sizes_array,
    value_of,
)
from polyfuse.ir.number_types import element_type
from polyfuse.nn.graph import INTEGERS, Constant, Input, Value
from polyfuse.nn.sizes import Product, broadcast, number, numbers


@onnx_op("Shape")
def shape_of(_: Node, x: Operand, start: int = 0, end: int | None = None) -> Array:
    """The sizes, which are known: numbers, and symbolic ones."""
    if x is None:
        raise Unsupported("has no operand")
    return sizes_array(x.shape[slice(start, end)])


@onnx_op("Size")
def size_of(_: Node, x: Operand) -> Array:
    """The number of elements, which is known."""
    if x is None:
        raise Unsupported("has no operand")
    return np.array(prod(numbers("Size", x.shape)), np.int64)


@onnx_op("Constant")
def constant(_: Node, **given: Any) -> Array:
    """A tensor that the node holds."""
    kinds: dict[str, Any] = {
        "value": None,
        "value_float": np.float32,
        "value_floats": np.float32,
        "value_int": np.int64,
        "value_ints": np.int64,
    }
    ((name, found),) = given.items()
    if name not in kinds:
        raise Unsupported(f"a constant by {name}: sparse tensors and texts are not read")
    return np.asarray(found, kinds[name])


@onnx_op("ConstantOfShape")
def constant_of_shape(node: Node, shape: Operand, value: Array | None = None) -> Value:
    """One number everywhere; small ones are computed beforehand."""
    return nn.expand(
        value_of(np.zeros((), np.float32) if value is None else value.reshape(())),
        node.sizes(shape, "sizes"),
    )


@onnx_op("EyeLike")
def eye_like(_: Node, x: Operand, dtype: str | None = None, k: int = 0) -> Array:
    """Ones on a diagonal, which is known."""
    if x is None or len(x.shape) != 2:
        raise Unsupported("expects a matrix")
    own = x.dtype if isinstance(x, Value) else x.dtype.name
    rows, columns = numbers("EyeLike", x.shape)
    found: Array = np.eye(rows, columns, k).astype(dtype or own)
    return found


@onnx_op("Reshape")
def reshape(node: Node, x: Operand, shape: Operand, allowzero: int = 0) -> Value:
    """The same elements in another shape; 0 keeps a size."""
    value, sizes = value_of(x), node.sizes(shape, "sizes")
    if not allowzero:
        if any(size == 0 and axis >= value.rank for axis, size in enumerate(sizes)):
            raise Unsupported(f"keeps an axis that {value!r} does not have: {sizes}")
        return nn.reshape(
            value, [value.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
        )
    return nn.reshape(value, sizes)


@onnx_op("Flatten")
def flatten(_: Node, x: Operand, axis: int = 1) -> Value:
    """A matrix of the axes before one, and those from it on."""
    value = value_of(x)
    if not -value.rank <= axis <= value.rank:
        raise Unsupported(f"axis {axis} of an operand with {value.rank} axes")
    first = axis + value.rank if axis < 0 else axis
    rows, columns = (
        Product.of(part).over(Product.of(())) for part in (value.shape[:first], value.shape[first:])
    )
    if rows is None or columns is None:
        raise Unsupported(f"makes one axis of several symbolic ones of {value!r}")
    return nn.reshape(value, (rows, columns))


@onnx_op("Squeeze")
def squeeze(node: Node, x: Operand, axes: Operand = None) -> Value:
    """Without axes of size 1."""
    value = value_of(x)
    if axes is None:
        return nn.reshape(value, [size for size in value.shape if size != 1])
    removed = axes_within(node.integers(axes, "axes"), value.rank)
    if any(value.shape[axis] != 1 for axis in removed):
        raise Unsupported(f"removes axes {removed} of {value!r}, which are not all of size 1")
    return nn.reshape(value, [size for axis, size in enumerate(value.shape) if axis not in removed])


@onnx_op("Unsqueeze")
def unsqueeze(node: Node, x: Operand, axes: Operand) -> Value:
    """With further axes of size 1."""
    value, given = value_of(x), node.integers(axes, "axes")
    rank = value.rank + len(given)
    added = axes_within(given, rank)
    if len(set(added)) != len(given):
        raise Unsupported(f"adds an axis twice: {given}")
    sizes = iter(value.shape)
    return nn.reshape(value, [1 if axis in added else next(sizes) for axis in range(rank)])


@onnx_op("Transpose")
def transpose(_: Node, x: Operand, perm: Sequence[int] | None = None) -> Value:
    """The axes in another order, reversed by default."""
    value = value_of(x)
    return nn.permute(value, tuple(range(value.rank))[::-1] if perm is None else tuple(perm))


@onnx_op("Expand")
def expand(node: Node, x: Operand, shape: Operand) -> Value:
    """Broadcast with a shape, in both directions."""
    value = value_of(x)
    sizes = node.sizes(shape, "sizes")
    together = broadcast((value.shape, sizes))
    if together is None:
        raise Unsupported(f"broadcasts {value!r} with {sizes}: from the right, sizes must be equal or 1")
    return nn.expand(value, together)


@onnx_op("Tile")
def tile(node: Node, x: Operand, repeats: Operand) -> Value:
    """Repeated as a whole along axes."""
    return nn.tile(value_of(x), node.integers(repeats, "repeats"))


@onnx_op("Concat")
def concat(_: Node, *parts: Operand, axis: int = 0) -> Value:
    """One after the other along an axis."""
    dtype = common_type(parts)
    values = [value_of(part, dtype) for part in parts]
    return nn.concat(values, axis) if len(values) > 1 else values[0]


@onnx_op("Split")
def split(
    node: Node, x: Operand, sizes: Operand = None, axis: int = 0, num_outputs: int | None = None
) -> tuple[Value, ...]:
    """Pieces along an axis."""
    value, count = value_of(x), num_outputs or node.results
    if sizes is not None:
        return nn.split(value, node.integers(sizes, "sizes"), axis)
    (along,) = axes_within((axis,), value.rank)
    return nn.chunk(value, count, along)


BEYOND = 2**31 - 1
"""An end that exporters write for the end of an axis."""


@onnx_op("Slice")
def sliced(
    node: Node, x: Operand, starts: Operand, ends: Operand, axes: Operand = None, steps: Operand = None
) -> Value:
    """Ranges along axes; their ends are cut to the axes."""
    value = value_of(x)
    first, last = node.sizes(starts, "starts"), node.sizes(ends, "ends")
    along = tuple(range(len(first))) if axes is None else node.integers(axes, "axes")
    every = (1,) * len(first) if steps is None else node.integers(steps, "steps")
    key = [slice(None)] * value.rank
    for axis, start, end, step in zip(axes_within(along, value.rank), first, last, every, strict=True):
        size = value.shape[axis]
        if not all(isinstance(one, int) for one in (size, start, end)):
            key[axis] = slice(start, None if isinstance(end, int) and end >= BEYOND else end, step)
            continue
        below = -1 if step < 0 else 0
        begin = max(start + size, below) if start < 0 else start
        stop = max(end + size, below) if end < 0 else end
        key[axis] = slice(begin if begin >= 0 else -size - 1, stop if stop >= 0 else None, step)
    return value[tuple(key)]


@onnx_op("Pad")
def pad(
    node: Node,
    x: Operand,
    pads: Operand,
    number: Operand = None,
    axes: Operand = None,
    mode: str = "constant",
) -> Value:
    """A number before and behind, or elements of the operand; negative widths cut off."""
    value, widths = value_of(x), node.integers(pads, "pads")
    along = range(value.rank) if axes is None else axes_within(node.integers(axes, "axes"), value.rank)
    pairs = [(0, 0)] * value.rank
    half = len(widths) // 2
    for place, axis in enumerate(along):
        before, behind = widths[place], widths[half + place]
        if min(before, behind) < 0:
            start = -min(before, 0)
            value = nn.narrow(value, axis, start, value.shape[axis] - start + min(behind, 0))
        pairs[axis] = (max(before, 0), max(behind, 0))
    if mode == "constant":
        between = 0.0 if number is None else float(node.numbers(number, "constant").reshape(-1)[0])
        return nn.pad(value, pairs, between)
    named = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}.get(mode)
    if named is None:
        raise Unsupported(f"pads by the mode {mode!r}")
    return nn.pad(value, pairs, mode=cast('Literal["reflect", "replicate", "circular"]', named))


@onnx_op("Gather")
def gather(node: Node, x: Operand, indices: Operand, axis: int = 0) -> Value:
    """Elements along an axis: by known numbers slices, rows of a table as they lie, else a sum over the axis."""
    value = value_of(x)
    (along,) = axes_within((axis,), value.rank)
    if isinstance(indices, Value) and not isinstance(indices.source, Constant):
        rows = along == 0 and isinstance(indices.source, Input) and isinstance(value.source, Input | Constant)
        if rows and value.dtype not in INTEGERS:
            return nn.embedding(indices, value)
        return nn.take(value, indices, along)
    numbers = node.numbers(indices, "indices")
    shape = (*value.shape[:along], *numbers.shape, *value.shape[along + 1 :])
    return nn.reshape(nn.take(value, [int(number) for number in numbers.reshape(-1)], along), shape)


@onnx_op("GatherElements")
def gather_elements(_: Node, x: Operand, indices: Operand, axis: int = 0) -> Value:
    """The element that an index of the result's shape chooses along an axis."""
    return nn.gather(value_of(x), axis, value_of(indices))


@onnx_op("ScatterElements")
def scatter_elements(
    _: Node, x: Operand, indices: Operand, updates: Operand, axis: int = 0, reduction: str = "none"
) -> Value:
    """Elements written or combined where an index says."""
    value = value_of(x)
    at, source = value_of(indices), value_of(updates, value.dtype)
    if reduction == "none":
        return nn.scatter(value, axis, at, source)
    named: dict[str, Literal["add", "multiply", "max", "min"]] = {"add": "add", "mul": "multiply"}
    named |= {"max": "max", "min": "min"}
    if reduction not in named:
        raise Unsupported(f"the reduction {reduction!r}")
    return nn.scatter_add(value, axis, at, source, named[reduction])


@onnx_op("DepthToSpace")
def depth_to_space(_: Node, x: Operand, blocksize: int = 1, mode: str = "DCR") -> Value:
    """Channels as pixels: those of one pixel lie apart ("DCR"), or beside each other ("CRD")."""
    value = value_of(x)
    if mode == "CRD":
        return nn.pixel_shuffle(value, blocksize)
    n, channels, rows, columns = value.shape
    kept = channels // blocksize**2
    apart = nn.reshape(value, (n, blocksize, blocksize, kept, rows, columns))
    turned = nn.permute(apart, (0, 3, 4, 1, 5, 2))
    return nn.reshape(turned, (n, kept, rows * blocksize, columns * blocksize))


@onnx_op("SpaceToDepth")
def space_to_depth(_: Node, x: Operand, blocksize: int = 1, mode: Literal["DCR", "CRD"] = "DCR") -> Value:
    """Pixels as channels; those of one channel lie apart ("DCR") or beside each other ("CRD")."""
    value = value_of(x)
    n, channels, rows, columns = value.shape
    apart = nn.reshape(value, (n, channels, rows // blocksize, blocksize, columns // blocksize, blocksize))
    turned = nn.permute(apart, (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4))
    return nn.reshape(turned, (n, channels * blocksize**2, rows // blocksize, columns // blocksize))


@onnx_op("Trilu")
def trilu(node: Node, x: Operand, k: Operand = None, upper: int = 1) -> Value:
    """0 on one side of a diagonal."""
    value = value_of(x)
    diagonal = 0 if k is None else node.integers(k, "diagonal")[0]
    rows, columns = numbers("Trilu", value.shape[-2:])
    kept = 1 - np.tri(rows, columns, diagonal - 1) if upper else np.tri(rows, columns, diagonal)
    return nn.where(nn.constant(kept.astype(value.dtype)), value, 0)


@onnx_op("ReverseSequence")
def reverse_sequence(
    node: Node, x: Operand, lengths: Operand, batch_axis: int = 1, time_axis: int = 0
) -> Value:
    """The first elements of each sequence in the other order, as many as a known length says."""
    value, parts = value_of(x), []
    for row, length in enumerate(node.integers(lengths, "sequence lengths")):
        one = nn.narrow(value, batch_axis, row, 1)
        size = value.shape[time_axis]
        turned = nn.flip(nn.narrow(one, time_axis, 0, length), time_axis)
        rest = nn.narrow(one, time_axis, length, size - length)
        parts.append(nn.concat([turned, rest], time_axis) if length < size else turned)
    return nn.concat(parts, batch_axis) if len(parts) > 1 else parts[0]


@onnx_op("CenterCropPad")
def center_crop_pad(node: Node, x: Operand, shape: Operand, axes: Sequence[int] | None = None) -> Value:
    """Cut or padded with 0 around the middle of axes."""
    value, sizes = value_of(x), node.integers(shape, "sizes")
    along = tuple(range(value.rank)) if axes is None else axes_within(axes, value.rank)
    for axis, wanted in zip(along, sizes, strict=True):
        size = number("CenterCropPad", value.shape[axis])
        if wanted <= size:
            value = nn.narrow(value, axis, (size - wanted) // 2, wanted)
        else:
            before = (wanted - size) // 2
            widths = [(before, wanted - size - before) if d == axis else (0, 0) for d in range(value.rank)]
            value = nn.pad(value, widths)
    return value


@onnx_op("Range")
def numbers_apart(node: Node, start: Operand, limit: Operand, delta: Operand, stash_type: int = 1) -> Operand:
    """Numbers from a first one on, `delta` apart, before a limit; how many there are has to be known."""
    first, end, step = (
        node.numbers(x, name).reshape(())
        for x, name in ((start, "start"), (limit, "limit"), (delta, "delta"))
    )
    wide = np.dtype("float32") if first.dtype in ("float16", "bfloat16") else first.dtype
    a, b, by = (np.asarray(x, wide) for x in (first, end, step))
    if not by or not np.isfinite((b - a) / by):
        raise Unsupported(f"numbers from {first} to {end} by {step} have no end")
    count = max(0, int(np.ceil((b - a) / by)))
    if count > FOLDED_ELEMENTS:
        raise Unsupported(f"{count} numbers; at most {FOLDED_ELEMENTS} are computed when the model is read")
    numbers: np.ndarray[Any, Any] = a + by * np.arange(count, dtype=wide)
    return numbers.astype(first.dtype)


@onnx_op("OneHot")
def one_hot(node: Node, indices: Operand, depth: Operand, values: Operand, axis: int = -1) -> Value:
    """One of two numbers, where an index is the place along a new axis; indices count from the end if negative."""
    off, on = (float(number) for number in node.numbers(values, "values").reshape(-1))
    count = int(node.numbers(depth, "depth").reshape(-1)[0])
    places = value_of(indices)
    at = axes_within((axis,), places.rank + 1)[0]
    numbers = np.arange(count).reshape([count if d == at else 1 for d in range(places.rank + 1)])
    wide = nn.reshape(places, (*places.shape[:at], 1, *places.shape[at:]))
    here = nn.constant(numbers.astype(places.dtype))
    turned = nn.where(nn.less(wide, 0), wide + count, wide)
    found = value_of(nn.equal(turned, here), element_type(node.numbers(values, "values").dtype))
    return nn.where(found, on, off)
