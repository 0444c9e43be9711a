"""Importers of operators that compute nothing: shapes, slices, concatenation, padding, and what is made of these."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from polyfuse import nn
from polyfuse.frontend.importers import Missing, Unsupported, converted, required
from polyfuse.frontend.torch.aten.registry import Result, aten, floating, of_known, value_type, view
from polyfuse.nn.graph import Value

BEHIND_ALL = 2**63 - 1
"""torch's end of a slice that has none."""

SLICES = 16
"""At most as many slices along an axis are put together for elements at known places."""

LONGEST = 256
"""The most elements along an axis by which others are chosen: all of them are read for each that is kept."""


@view("view.default", "_unsafe_view.default", "reshape.default", "flatten.using_ints", "unflatten.int")
def reshape(result: Result, x: Any, *_: Any) -> Value:
    """The same elements in the result's shape."""
    return nn.reshape(required(x, "the tensor"), result.shape)


@view("unsqueeze.default", "squeeze.default", "squeeze.dim", "squeeze.dims")
def squeeze(result: Result, x: Any, *_: Any) -> Value:
    """Axes of size 1, added or removed."""
    return nn.reshape(required(x, "the tensor"), result.shape)


@view("expand.default", "expand_as.default", "broadcast_to.default")
def expand(result: Result, x: Any, *_: Any, implicit: bool = False) -> Value:
    """Repeated along axes of size 1."""
    return nn.expand(required(x, "the tensor"), result.shape)


@view("permute.default")
def permute(_: Result, x: Any, dims: Sequence[int]) -> Value:
    """The axes in another order."""
    return nn.permute(x, dims)


@view("t.default", "numpy_T.default", "mT.default")
def turned(_: Result, x: Any) -> Value:
    """Rows as columns."""
    return nn.transpose(x) if x.rank > 1 else x


@view("transpose.int")
def transpose(_: Result, x: Any, first: int, second: int) -> Value:
    """Two axes exchanged."""
    return nn.transpose(x, first, second) if x.rank > 1 else x


@view("select.int")
def select(_: Result, x: Any, dim: int, index: int) -> Value:
    """One element along an axis."""
    return nn.select(x, dim, index)


@view("slice.Tensor")
def sliced(
    _: Result, x: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    """A range along an axis; its ends are cut to the axis."""
    key = [slice(None)] * x.rank
    end = None if end == BEHIND_ALL else end
    key[dim] = slice(start, end, step)
    whole = start in (None, 0) and step == 1 and (end is None or end >= x.shape[dim])
    cut: Value = x if whole else x[tuple(key)]
    return cut


@view("narrow.default")
def narrow(_: Result, x: Any, dim: int, start: int, length: int) -> Value:
    """A range along an axis."""
    return nn.narrow(x, dim, start + x.shape[dim] if start < 0 else start, length)


@view("split.Tensor", "split_with_sizes.default", "split.sizes")
def split(_: Result, x: Any, sizes: int | Sequence[int], dim: int = 0) -> tuple[Value, ...]:
    """Pieces along an axis."""
    return nn.split(x, sizes, dim)


@view("chunk.default")
def chunk(_: Result, x: Any, chunks: int, dim: int = 0) -> tuple[Value, ...]:
    """Equal pieces along an axis."""
    return nn.chunk(x, chunks, dim)


@view("unbind.int")
def unbind(_: Result, x: Any, dim: int = 0) -> tuple[Value, ...]:
    """Every element along an axis."""
    return tuple(nn.select(x, dim, index) for index in range(x.shape[dim]))


@aten("cat.default", "concat.default")
def concat(result: Result, parts: Sequence[Any], dim: int = 0) -> Value:
    """One after the other along an axis; torch passes over an empty part of shape (0,)."""
    dtype = floating(result)
    every = [converted(part, dtype) for part in parts if not (part.shape == (0,) and len(result.shape) > 1)]
    return every[0] if len(every) == 1 else nn.concat(every, dim)


@aten("stack.default")
def stack(result: Result, parts: Sequence[Any], dim: int = 0) -> Value:
    """Along a new axis."""
    return nn.stack([converted(part, floating(result)) for part in parts], dim)


@view("flip.default")
def flip(_: Result, x: Any, dims: Sequence[int]) -> Value:
    """Reversed along axes."""
    return nn.flip(x, list(dims)) if dims else x


@aten("roll.default")
def roll(_: Result, x: Any, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value:
    """Shifted around along axes: the last elements come first."""
    return nn.roll(x, shifts, dims or None)


@aten("copy.default")
def copy(result: Result, x: Any, source: Any, *_: Any) -> Value:
    """The source, repeated to the shape of what it replaces."""
    return nn.expand(required(converted(source, floating(result)), "the source"), result.shape)


@aten("repeat.default", "tile.default")
def repeat(_: Result, x: Any, repeats: Sequence[int]) -> Value:
    """Repeated as a whole along axes."""
    return nn.tile(x, repeats)


@aten("constant_pad_nd.default")
def pad(_: Result, x: Any, widths: Sequence[int], value: float = 0.0) -> Value:
    """A number before and after; negative widths cut off."""
    pairs = [(0, 0)] * (x.rank - len(widths) // 2) + list(zip(widths[-2::-2], widths[-1::-2], strict=True))
    for axis, (before, behind) in enumerate(pairs):
        if before < 0 or behind < 0:
            start = -min(before, 0)
            x = nn.narrow(x, axis, start, x.shape[axis] - start + min(behind, 0))
    return nn.pad(x, [(max(before, 0), max(behind, 0)) for before, behind in pairs], value)


def _pad_around(x: Value, widths: Sequence[int], mode: Literal["reflect", "replicate", "circular"]) -> Value:
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    if min(widths) < 0:
        raise Unsupported(f"{mode} padding by {list(widths)}: negative widths; cut with slices")
    return nn.pad(x, [(0, 0)] * (x.rank - len(pairs)) + pairs[::-1], mode=mode)


@aten("reflection_pad1d.default", "reflection_pad2d.default", "reflection_pad3d.default")
def reflection_pad(_: Result, x: Any, widths: Sequence[int]) -> Value:
    """Mirrored at the outermost elements."""
    return _pad_around(x, widths, "reflect")


@aten("replication_pad1d.default", "replication_pad2d.default", "replication_pad3d.default")
def replication_pad(_: Result, x: Any, widths: Sequence[int]) -> Value:
    """The outermost elements repeated."""
    return _pad_around(x, widths, "replicate")


@view("unfold.default")
def unfold(_: Result, x: Any, dim: int, size: int, step: int) -> Value:
    """Windows along an axis."""
    return nn.unfold(x, dim, size, step)


@aten("pixel_shuffle.default")
def pixel_shuffle(_: Result, x: Any, factor: int) -> Value:
    """(…, C r², H, W) -> (…, C, H r, W r)."""
    return nn.pixel_shuffle(x, factor)


@aten("pixel_unshuffle.default")
def pixel_unshuffle(_: Result, x: Any, factor: int) -> Value:
    """(…, C, H r, W r) -> (…, C r², H, W)."""
    return nn.pixel_unshuffle(x, factor)


@aten("slice_scatter.default")
def slice_scatter(
    result: Result,
    x: Any,
    part: Any,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Value:
    """A range along an axis replaced, as a cache of keys is: what is before it, the part, what is behind it."""
    dtype = floating(result)
    x, part = converted(x, dtype), converted(part, dtype)
    size = x.shape[dim]
    first, last, step = slice(start, end, step).indices(size)
    if step != 1 and part.shape[dim] > 1:
        raise Unsupported(f"replaces every {step}th element along an axis; of ranges it is computed")
    return _replaced(x, part, dim, first, max(first, last) if step == 1 else first + part.shape[dim])


@aten("select_scatter.default")
def select_scatter(result: Result, x: Any, part: Any, dim: int, index: int) -> Value:
    """One element along an axis replaced."""
    dtype = floating(result)
    x, part = converted(x, dtype), converted(part, dtype)
    axis = dim % x.rank
    row = nn.reshape(part, (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    first = index % x.shape[axis]
    return _replaced(x, row, axis, first, first + 1)


def _replaced(x: Value, part: Value, dim: int, first: int, last: int) -> Value:
    size = x.shape[dim]
    before = [nn.narrow(x, dim, 0, first)] if first else []
    behind = [nn.narrow(x, dim, last, size - last)] if last < size else []
    every = [*before, *([part] if last > first else []), *behind]
    return nn.concat(every, dim) if len(every) > 1 else every[0] if every else x


def _triangle(result: Result, x: Any, mask: np.ndarray[Any, Any]) -> Value:
    value = converted(x, floating(result))
    return nn.where(nn.constant(mask.astype(value.dtype)), value, 0.0)


@aten("tril.default")
def tril(result: Result, x: Any, diagonal: int = 0) -> Value:
    """0 above a diagonal."""
    return _triangle(result, x, np.tri(x.shape[-2], x.shape[-1], diagonal))


@aten("triu.default")
def triu(result: Result, x: Any, diagonal: int = 0) -> Value:
    """0 below a diagonal."""
    return _triangle(result, x, 1 - np.tri(x.shape[-2], x.shape[-1], diagonal - 1))


# -- made of nothing ---------------------------------------------------------------------------------------------------


def _full(result: Result, number: float) -> Value:
    floating(result)
    value = nn.constant(np.array(number, value_type(result.dtype)))
    return nn.expand(value, result.shape)


@aten("full.default", "full_like.default", "new_full.default")
def full(result: Result, first: Any, *rest: Any, **_: Any) -> Value:
    """A number everywhere; the last argument is the number."""
    return _full(result, float(rest[-1]))


@aten("zeros.default", "zeros_like.default", "new_zeros.default")
def zeros(result: Result, *_: Any, **__: Any) -> Value:
    """Zeros."""
    return _full(result, 0.0)


@aten("ones.default", "ones_like.default", "new_ones.default")
def ones(result: Result, *_: Any, **__: Any) -> Value:
    """Ones."""
    return _full(result, 1.0)


@aten("scalar_tensor.default")
def scalar_tensor(result: Result, number: float, **_: Any) -> Value:
    """One number."""
    return _full(result, float(number))


# -- chosen by numbers -------------------------------------------------------------------------------------------------


@aten("embedding.default")
def embedding(_: Result, table: Any, rows: Any, *__: Any) -> Value:
    """Rows of a table; numbers that are known are slices of it, or choose from a table of few rows."""
    known = known_integers(rows)
    if known is None:
        return nn.embedding(rows, table)
    size = table.shape[0]
    if known.size and not (isinstance(size, int) and 0 <= known.min() <= known.max() < size):
        raise Unsupported(f"rows chosen by known numbers that a table of {size} rows does not have")
    return nn.reshape(taken(table, known, 0), (*known.shape, *table.shape[1:]))


def taken(x: Value, known: np.ndarray[Any, Any], axis: int) -> Value:
    """The elements along an axis with known numbers, of any shape, as a list: in slices, or chosen from few of them."""
    flat = known.reshape(-1)
    turns = int(np.count_nonzero(np.diff(flat, 2)))
    if turns < SLICES:
        return nn.take(x, flat.tolist(), axis)
    size = x.shape[axis]
    if not isinstance(size, int) or size > LONGEST:
        raise Unsupported(
            f"chooses elements at {turns + 1} slices along an axis of {size}; at most {SLICES}, or any along an axis "
            f"of {LONGEST}: pass the numbers as an input"
        )
    return nn.take(x, nn.constant(flat.astype(np.int64)), axis)


@of_known("_embedding_bag.default", "_embedding_bag_forward_only.default")
def embedding_bag(
    result: Result,
    table: Any,
    rows: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Value | Missing, ...]:
    """Sums, means or maxima of rows of a table: of equally many for each result, at places that are known."""
    count = result.shape[0]
    if not isinstance(offsets, np.ndarray):
        raise Unsupported(
            "sums rows from places on that are numbers of a call; of rows (N, count) it is computed"
        )
    if not isinstance(rows, Value) or not isinstance(count, int) or not isinstance(rows.shape[0], int):
        raise Unsupported(
            "row numbers that are known, or a symbolic number of them; of fixed sizes it is computed"
        )
    each = rows.shape[0] // count if count else 0
    if not each or offsets.tolist() != list(range(0, rows.shape[0] + include_last_offset, each)):
        raise Unsupported("bags of unequal size; of rows (N, count) it is computed")
    if padding_idx >= 0:
        raise Unsupported(f"leaves row {padding_idx} out of the sums (padding_idx)")
    found = nn.reshape(nn.embedding(rows, table), (count, each, *table.shape[1:]))
    if weights is not None:
        found = found * nn.reshape(converted(weights, found.dtype), (count, each, 1))
    reduced = (nn.sum, nn.mean, nn.max)[mode](found, 1)
    unread = Missing("which bag each row is of, for the gradient")
    return reduced, unread, unread, unread


@of_known("index.Tensor")
def index(result: Result, x: Any, places: Sequence[Any]) -> Value:
    """Elements at known places: x[:, [0, 2]], and x[:, rows[:, None], columns], where each axis has its own places."""
    floating(result)
    value = required(x, "the tensor")
    given = [(axis, one) for axis, one in enumerate(places) if one is not None]
    if any(not isinstance(one, np.ndarray) for _, one in given):
        raise Unsupported("chooses elements by tensors of a call; by known integers it is computed")
    if any(one.dtype == bool for _, one in given):
        raise Unsupported("chooses elements by truth values; torch.where(mask, x, 0) is computed")
    axes, arrays = [axis for axis, _ in given], [one for _, one in given]
    if len(arrays) > 1 and not _one_each(axes, arrays):
        value, axes, arrays = _as_one_axis(value, axes, arrays)
    for axis, numbers in zip(axes, arrays, strict=True):
        value = taken(value, numbers, axis)
    return value if value.shape == result.shape else nn.reshape(value, result.shape)


def _as_one_axis(
    x: Value, axes: Sequence[int], arrays: Sequence[np.ndarray[Any, Any]]
) -> tuple[Value, list[int], list[np.ndarray[Any, Any]]]:
    """Axes that follow one another as one axis, and the numbers along it: x[:, [1, 2], [0, 1]] of 9 x 9 at 9 and 19."""
    first, behind = axes[0], axes[0] + len(axes)
    sizes = x.shape[first:behind]
    if list(axes) != list(range(first, behind)) or not all(isinstance(size, int) for size in sizes):
        raise Unsupported(
            "chooses elements by several tensors together along axes that do not follow one another or are symbolic"
        )
    known = [int(size) for size in sizes if isinstance(size, int)]
    inside = [np.where(one < 0, one + size, one) for one, size in zip(arrays, known, strict=True)]
    if any(
        one.size and not 0 <= one.min() <= one.max() < size for one, size in zip(inside, known, strict=True)
    ):
        raise Unsupported(f"chooses elements that axes of {known} do not have")
    places = np.ravel_multi_index(np.broadcast_arrays(*inside), known)
    return nn.reshape(x, (*x.shape[:first], math.prod(known), *x.shape[behind:])), [first], [places]


def _one_each(axes: Sequence[int], arrays: Sequence[np.ndarray[Any, Any]]) -> bool:
    """Whether axes follow one another, and their numbers vary along an axis each, in order: (3, 1, 1), (4, 1), (5,)."""
    rank = max(one.ndim for one in arrays)
    varying = [[rank - one.ndim + at for at, size in enumerate(one.shape) if size != 1] for one in arrays]
    order = [at for every in varying for at in every]
    follow = list(axes) == list(range(axes[0], axes[0] + len(axes)))
    return follow and all(len(every) < 2 for every in varying) and order == sorted(set(order))


def known_integers(x: Any) -> np.ndarray[Any, Any] | None:
    """The numbers of a tensor of integers that is known before the graph runs; None for another."""
    return x if isinstance(x, np.ndarray) else None
