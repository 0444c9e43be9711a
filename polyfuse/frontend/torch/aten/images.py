"""Importers of what acts on images and channels: convolutions, pooling, normalisations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from polyfuse import nn
from polyfuse.frontend.importers import Missing, Unsupported, converted
from polyfuse.frontend.torch.aten.registry import ATEN, Result, aten, floating
from polyfuse.ir import DType
from polyfuse.nn.conv.places import max_pool_gradient, max_pool_with_places
from polyfuse.nn.graph import Value, pointwise
from polyfuse.nn.sizes import numbers

Sizes = int | Sequence[int]

CONVOLUTIONS: dict[int, Callable[..., Value]] = {1: nn.conv1d, 2: nn.conv2d, 3: nn.conv3d}

PLACES = Missing(
    "the places of maxima are computed for batches in max_pool1d to max_pool3d alone; use the maxima alone"
)


def _each(sizes: Sizes, rank: int) -> tuple[int, ...]:
    """One number for each of `rank` axes."""
    every = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    return every * rank if len(every) == 1 else every


def _filled(value: Any, like: Value, channels: int, number: float) -> Value:
    """Weights of a normalisation, or a number for each channel where the model has none."""
    if value is None:
        return nn.expand(nn.constant(np.array(number, like.dtype)), (channels,))
    given: Value = converted(value, like.dtype)
    return given


@aten("convolution.default")
def convolution(
    result: Result,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> Value:
    """A convolution in one to three dimensions."""
    dtype, rank = floating(result), len(weight.shape) - 2
    x, weight, bias = (converted(value, dtype) for value in (x, weight, bias))
    if rank not in CONVOLUTIONS:
        raise Unsupported(f"a convolution over {rank} axes; polyfuse.nn has 1, 2 and 3")
    batched = x if x.rank == rank + 2 else nn.reshape(x, (1, *x.shape))
    pairs, steps, spread = (
        [(width, width) for width in _each(padding, rank)],
        _each(stride, rank),
        _each(dilation, rank),
    )
    if transposed:
        more = _each(output_padding, rank)
        found = nn.conv_transpose(batched, weight, bias, steps, pairs, more, spread, groups)
    else:
        found = CONVOLUTIONS[rank](batched, weight, bias, steps, pairs, spread, groups)
    return found if batched is x else nn.reshape(found, found.shape[1:])


@aten("conv1d.default", "conv2d.default", "conv3d.default")
def conv(
    result: Result,
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Value:
    """The same, before it is decomposed."""
    return convolution(result, x, weight, bias, stride, padding, dilation, False, 0, groups)


@aten("conv1d.padding", "conv2d.padding", "conv3d.padding")
def conv_padded(
    result: Result,
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Sizes = 1,
    padding: str = "valid",
    dilation: Sizes = 1,
    groups: int = 1,
) -> Value:
    """With padding "same" or "valid"."""
    dtype, rank = floating(result), len(weight.shape) - 2
    x, weight, bias = (converted(value, dtype) for value in (x, weight, bias))
    return CONVOLUTIONS[rank](x, weight, bias, _each(stride, rank), padding, _each(dilation, rank), groups)


@aten("conv_transpose1d.default", "conv_transpose2d.input", "conv_transpose3d.input")
def conv_transpose(
    result: Result,
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Value:
    """A transposed convolution, before it is decomposed."""
    return convolution(result, x, weight, bias, stride, padding, dilation, True, output_padding, groups)


@aten("col2im.default")
def fold(
    result: Result, x: Any, size: Sequence[int], window: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes
) -> Value:
    """Windows (N, C r s, places) added up to images (N, C, H, W): a transposed convolution of ones, one for each place.

    A filter of channel c r s + k is 1 at k, and 0 elsewhere in its window.
    """
    dtype = floating(result)
    windows, steps, widths, spread = (_each(sizes, 2) for sizes in (window, stride, padding, dilation))
    reached = [apart * (count - 1) + 1 for apart, count in zip(spread, windows, strict=True)]
    places = [
        (extent + 2 * width - reach) // step + 1
        for extent, width, reach, step in zip(size, widths, reached, steps, strict=True)
    ]
    more = [
        extent - ((count - 1) * step - 2 * width + reach)
        for extent, count, step, width, reach in zip(size, places, steps, widths, reached, strict=True)
    ]
    batch, channels = x.shape[:-2], x.shape[-2] // prod(windows)
    each = nn.reshape(converted(x, dtype), (*(batch or (1,)), x.shape[-2], *places))
    ones = np.tile(np.eye(prod(windows), dtype=dtype), (channels, 1)).reshape(-1, 1, *windows)
    pairs = [(width, width) for width in widths]
    made = nn.conv_transpose(each, nn.constant(ones), None, steps, pairs, more, spread, channels)
    return made if batch else nn.reshape(made, made.shape[1:])


@aten("convolution_backward.default")
def convolution_backward(
    result: Result,
    gradient: Any,
    x: Any,
    weight: Any,
    bias_sizes: Sequence[int] | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
    wanted: Sequence[bool],
) -> tuple[Value | Missing, ...]:
    """The gradients by the input, the weight and the bias, as far as they are wanted."""
    dtype, rank = floating(result), len(weight.shape) - 2
    if transposed:
        raise Unsupported("the gradient of a transposed convolution")
    gradient, x, weight = (converted(value, dtype) for value in (gradient, x, weight))
    steps, widths, spread = (_each(sizes, rank) for sizes in (stride, padding, dilation))
    found: list[Value | Missing] = [Missing("it was not asked for")] * 3
    if wanted[0]:
        pairs = [(width, width) for width in widths]
        reached = [
            (size - 1) * step - 2 * width + apart * (window - 1) + 1
            for size, step, width, apart, window in zip(
                gradient.shape[2:], steps, widths, spread, weight.shape[2:], strict=True
            )
        ]
        more = [size - end for size, end in zip(x.shape[2:], reached, strict=True)]
        found[0] = nn.conv_transpose(gradient, weight, None, steps, pairs, more, spread, groups)
    if wanted[1]:
        found[1] = _by_weight(gradient, x, weight.shape, steps, widths, spread, groups)
    if wanted[2]:
        found[2] = nn.sum(gradient, [axis for axis in range(gradient.rank) if axis != 1])
    return tuple(found)


def _by_weight(
    gradient: Value,
    x: Value,
    shape: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Value:
    """The gradient by the weight: a convolution of x with the result's gradient as window, over the batch.

        w[f, c, r] = sum over n, p of x[n, c, stride * p + dilation * r - padding] * gradient[n, f, p]

    Stride and dilation change places, channels count as examples, and examples as channels. Padding behind is what the
    windows reach: a stride that does not divide leaves elements of x out.
    """
    (n, channels, *sizes), rank = x.shape, x.rank - 2
    parts = channels // groups
    image = nn.reshape(x, (n, groups, parts, *sizes))
    image = nn.permute(image, (2, 1, 0, *range(3, 3 + rank)))
    image = nn.reshape(image, (parts, groups * n, *sizes))
    window = nn.permute(gradient, (1, 0, *range(2, 2 + rank)))
    pairs = []
    for axis in range(rank):
        count, taps = gradient.shape[2 + axis], shape[2 + axis]
        reach = stride[axis] * (count - 1) + dilation[axis] * (taps - 1) + 1
        behind = reach - sizes[axis] - padding[axis]
        if behind < 0:
            image = nn.narrow(image, 2 + axis, 0, sizes[axis] + behind)
        pairs.append((padding[axis], max(behind, 0)))
    found = CONVOLUTIONS[rank](image, window, None, tuple(dilation), pairs, tuple(stride), groups)
    return nn.permute(found, (1, 0, *range(2, 2 + rank)))


# -- pooling -----------------------------------------------------------------------------------------------------------


def _pooled(result: Result, x: Value, rank: int, pool: Callable[[Value], Value]) -> Value:
    """Pool a batch, or one image without one; Unsupported where the result has other sizes than torch's."""
    batched = x if x.rank == rank + 2 else nn.reshape(x, (1, *x.shape))
    found = pool(batched)
    found = found if batched is x else nn.reshape(found, found.shape[1:])
    if found.shape != result.shape:
        raise Unsupported(f"pools to {found.shape}, and torch to {result.shape}")
    return found


Pairs = list[tuple[int, int]]


def _lengthened(result: Result, x: Value, spans: Sequence[int], steps: Sequence[int], pairs: Pairs) -> Pairs:
    """The padding with what ceil_mode adds behind: as much as the last window of the result needs to be whole."""
    rank = len(pairs)
    sizes, counts = (numbers("ceil_mode", shape[-rank:]) for shape in (x.shape, result.shape))
    every = zip(sizes, counts, spans, steps, pairs, strict=True)
    return [
        (before, max(behind, (count - 1) * step + span - size - before))
        for size, count, span, step, (before, behind) in every
    ]


def _spans(window: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """How far windows reach."""
    return [apart * (size - 1) + 1 for size, apart in zip(window, dilation, strict=True)]


def _max_pool(rank: int) -> Callable[..., Value]:
    def pool(
        result: Result,
        x: Any,
        window: Sizes,
        stride: Sizes = (),
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
    ) -> Value:
        size = _each(window, rank)
        steps = _each(stride, rank) if stride else size
        pairs = [(width, width) for width in _each(padding, rank)]
        spread = _each(dilation, rank)
        value = converted(x, floating(result))
        if ceil_mode:
            pairs = _lengthened(result, value, _spans(size, spread), steps, pairs)
        return _pooled(result, value, rank, lambda v: nn.max_pool(v, size, steps, pairs, spread))

    return pool


def _avg_pool(rank: int) -> Callable[..., Value]:
    def pool(
        result: Result,
        x: Any,
        window: Sizes,
        stride: Sizes = (),
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Value:
        size = _each(window, rank)
        steps = _each(stride, rank) if stride else size
        pairs = [(width, width) for width in _each(padding, rank)]
        every = count_include_pad or divisor_override is not None
        value = converted(x, floating(result))
        longer = _lengthened(result, value, size, steps, pairs) if ceil_mode else pairs
        if longer != pairs and count_include_pad and divisor_override is None:
            # padding that was asked for counts, what ceil_mode adds does not: zeros now, and windows cut short
            value = nn.pad(value, [(0, 0)] * (value.rank - rank) + pairs)
            longer = [(0, long - asked) for (_, long), (_, asked) in zip(longer, pairs, strict=True)]
            every = False
        found = _pooled(
            result, value, rank, lambda v: nn.avg_pool(v, size, steps, longer, count_padding=every)
        )
        return found if divisor_override is None else found * (prod(size) / divisor_override)

    return pool


def _with_places(pool: Callable[..., Value]) -> Callable[..., tuple[Value, Missing]]:
    return lambda *args, **named: (pool(*args, **named), PLACES)


def _max_pool_with_places(rank: int) -> Callable[..., tuple[Value, Value | Missing]]:
    def pool(
        result: Result,
        x: Any,
        window: Sizes,
        stride: Sizes = (),
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
    ) -> tuple[Value, Value | Missing]:
        value = converted(x, floating(result))
        if value.rank != rank + 2:
            return _max_pool(rank)(result, value, window, stride, padding, dilation, ceil_mode), PLACES
        pairs = [(width, width) for width in _each(padding, rank)]
        size, spread = _each(window, rank), _each(dilation, rank)
        steps = _each(stride, rank) if stride else size
        if ceil_mode:
            pairs = _lengthened(result, value, _spans(size, spread), steps, pairs)
        found, places = max_pool_with_places(value, size, steps, pairs, spread)
        return _pooled(result, value, rank, lambda _: found), places

    return pool


@aten("max_pool2d_with_indices_backward.default", "max_pool3d_with_indices_backward.default")
def max_pool_backward(
    result: Result,
    gradient: Any,
    x: Any,
    window: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
    places: Any,
) -> Value:
    """Each element gets the gradients of the windows whose maximum it is."""
    rank = x.rank - 2
    if rank not in (2, 3) or ceil_mode or len(_each(window, rank)) != rank:
        raise Unsupported("the gradient of a max pooling with ceil_mode, or of one image without a batch")
    pairs = [(width, width) for width in _each(padding, rank)]
    steps = _each(stride, rank) if stride else None
    value = converted(gradient, floating(result))
    return max_pool_gradient(
        value, places, x.shape[2:], _each(window, rank), steps, pairs, _each(dilation, rank)
    )


def _adaptive(rank: int, pool: Callable[..., Value]) -> Callable[..., Value]:
    def adaptive(result: Result, x: Any, size: Sizes) -> Value:
        wanted = result.shape[-rank:]
        return _pooled(result, converted(x, floating(result)), rank, lambda v: pool(v, wanted))

    return adaptive


for _rank in (1, 2, 3):
    ATEN[f"aten.max_pool{_rank}d.default"] = _max_pool(_rank)
    ATEN[f"aten.max_pool{_rank}d_with_indices.default"] = _max_pool_with_places(_rank)
    ATEN[f"aten.avg_pool{_rank}d.default"] = _avg_pool(_rank)
    ATEN[f"aten.adaptive_avg_pool{_rank}d.default"] = _adaptive(_rank, nn.adaptive_avg_pool)
    ATEN[f"aten._adaptive_avg_pool{_rank}d.default"] = _adaptive(_rank, nn.adaptive_avg_pool)
    ATEN[f"aten.adaptive_max_pool{_rank}d.default"] = _with_places(_adaptive(_rank, nn.adaptive_max_pool))


@aten("avg_pool2d_backward.default", "avg_pool3d_backward.default")
def avg_pool_backward(
    result: Result,
    gradient: Any,
    x: Any,
    window: Sizes,
    stride: Sizes,
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Value:
    """Each element gets the gradients of its windows, over their size: a transposed convolution of each channel."""
    rank = 3 if isinstance(window, int) or len(window) == 3 else 2
    rank = min(rank, len(x.shape) - 1)
    size = _each(window, rank)
    steps, widths = _each(stride, rank) if stride else size, _each(padding, rank)
    if len(x.shape) != rank + 2 or ceil_mode or (any(widths) and not count_include_pad and divisor is None):
        raise Unsupported(
            "the gradient of an average pooling with ceil_mode, of one image, or whose windows at the border count less"
        )
    value = converted(gradient, floating(result))
    channels = value.shape[1]
    weight = np.full((channels, 1, *size), 1 / (divisor or prod(size)), value.dtype)
    more = [
        total - ((count - 1) * step - 2 * width + taps)
        for total, count, step, width, taps in zip(
            x.shape[2:], value.shape[2:], steps, widths, size, strict=True
        )
    ]
    pairs = [(width, width) for width in widths]
    return nn.conv_transpose(value, weight, None, steps, pairs, more, 1, channels)


@aten("_adaptive_avg_pool2d_backward.default", "_adaptive_avg_pool3d_backward.default")
def adaptive_avg_pool_backward(result: Result, gradient: Any, x: Any) -> Value:
    """Each element gets its window's gradient, over the window's size, where windows do not overlap."""
    value: Value = converted(gradient, floating(result))
    rank = 2 if x.rank == 4 else 3
    sizes, counts = x.shape[-rank:], value.shape[-rank:]
    if x.rank != rank + 2 or any(size % count for size, count in zip(sizes, counts, strict=True)):
        raise Unsupported(f"the gradient of an adaptive average pooling of {sizes} to {counts}")
    each = [size // count for size, count in zip(sizes, counts, strict=True)]
    apart = nn.reshape(value, (*value.shape[:2], *(part for count in counts for part in (count, 1))))
    copies = [part for count, width in zip(counts, each, strict=True) for part in (count, width)]
    spread = nn.reshape(nn.expand(apart, (*value.shape[:2], *copies)), x.shape)
    return nn.multiply(spread, 1 / prod(each))


# -- normalisation -----------------------------------------------------------------------------------------------------


def _by_statistics(result: Result, x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float) -> Value:
    value = converted(x, floating(result))
    wide: DType = "float32" if value.dtype in ("float16", "bfloat16") else value.dtype
    value = converted(value, wide)
    channels = value.shape[1]
    gamma = beta = None
    if weight is not None or bias is not None:
        gamma, beta = _filled(weight, value, channels, 1.0), _filled(bias, value, channels, 0.0)
    found = nn.batch_norm(value, converted(mean, wide), converted(var, wide), gamma, beta, eps)
    rounded: Value = converted(found, floating(result))
    return rounded


@aten("_native_batch_norm_legit_no_training.default")
def batch_norm_inference(
    result: Result, x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> tuple[Value | Missing, ...]:
    """By running statistics; the statistics of the batch are not computed."""
    unused = Missing("the statistics of a batch are empty outside of training")
    return _by_statistics(result, x, weight, bias, mean, var, eps), unused, unused


@aten("batch_norm.default")
def batch_norm(
    result: Result,
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool,
    momentum: float,
    eps: float,
    *_: Any,
) -> Value:
    """By running statistics, or by those of the batch."""
    if not training:
        return _by_statistics(result, x, weight, bias, mean, var, eps)
    return _by_batch(result, x, weight, bias, eps)[0]


def _by_batch(result: Result, x: Any, weight: Any, bias: Any, eps: float) -> tuple[Value, Value, Value]:
    """The normalised value, the mean and the variance of each channel."""
    value = converted(x, floating(result))
    axes = [axis for axis in range(value.rank) if axis != 1]
    mean, var = nn.mean(value, axes), nn.var(value, axes)
    return _by_statistics(result, value, weight, bias, mean, var, eps), mean, var


@aten("_native_batch_norm_legit.no_stats")
def batch_norm_unmoved(
    result: Result, x: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> tuple[Value, ...]:
    """By the batch's statistics, where there are no running ones: instance norm."""
    found, centre, spread = _by_batch(result, x, weight, bias, eps)
    return found, centre, pointwise("invstd", f"1.0 / sqrt({{0}} + {float(eps)!r})", spread)


@aten("_native_batch_norm_legit_functional.default")
def batch_norm_training(
    result: Result,
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value, ...]:
    """By the batch's statistics; also their mean and inverse deviation, and the running ones moved towards them."""
    if not training:
        raise Unsupported("batch norm by running statistics, as a part of training; call model.eval()")
    found, centre, spread = _by_batch(result, x, weight, bias, eps)
    count = prod(numbers("batch norm in training", (*found.shape[:1], *found.shape[2:])))
    inverse = pointwise("invstd", f"1.0 / sqrt({{0}} + {float(eps)!r})", spread)
    keep, take = float(1 - momentum), float(momentum)
    unbiased = take * count / max(count - 1, 1)
    moved_mean = pointwise("moved", f"{keep!r} * {{0}} + {take!r} * {{1}}", mean, centre)
    moved_var = pointwise("moved", f"{keep!r} * {{0}} + {unbiased!r} * {{1}}", var, spread)
    return found, centre, inverse, moved_mean, moved_var


def _over_last(result: Result, x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Value:
    value = converted(x, floating(result))
    if weight is None and bias is None:
        return nn.layer_norm(value, tuple(shape), eps=eps)
    ones = nn.expand(nn.constant(np.array(1, value.dtype)), tuple(shape))
    zeros = nn.expand(nn.constant(np.array(0, value.dtype)), tuple(shape))
    gamma = ones if weight is None else converted(weight, value.dtype)
    beta = zeros if bias is None else converted(bias, value.dtype)
    return nn.layer_norm(value, tuple(shape), gamma, beta, eps)


@aten("layer_norm.default")
def layer_norm(
    result: Result,
    x: Any,
    shape: Sequence[int],
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *_: Any,
) -> Value:
    """Over the last axes."""
    return _over_last(result, x, shape, weight, bias, eps)


@aten("native_layer_norm.default")
def native_layer_norm(
    result: Result, x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float
) -> tuple[Value, Value, Value]:
    """Also the mean and the inverse deviation, which the gradient reads."""
    value = converted(x, floating(result))
    axes = list(range(value.rank - len(shape), value.rank))
    wide = converted(value, "float32") if value.dtype in ("float16", "bfloat16") else value
    spread = pointwise("rstd", f"1.0 / sqrt({{0}} + {float(eps)!r})", nn.var(wide, axes, keepdims=True))
    return _over_last(result, x, shape, weight, bias, eps), nn.mean(wide, axes, keepdims=True), spread


@aten("rms_norm.default")
def rms_norm(
    result: Result, x: Any, shape: Sequence[int], weight: Any = None, eps: float | None = None
) -> Value:
    """Over the last axes, by the root of the mean of squares."""
    value = converted(x, floating(result))
    gamma = None if weight is None else converted(weight, value.dtype)
    small = (
        float(np.finfo(np.float64 if value.dtype == "float64" else np.float32).eps) if eps is None else eps
    )
    return nn.rms_norm(value, tuple(shape), gamma, small)


@aten("group_norm.default")
def group_norm(
    result: Result, x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Value:
    """Over groups of channels."""
    value = converted(x, floating(result))
    if weight is None and bias is None:
        return nn.group_norm(value, groups, eps=eps)
    channels = value.shape[1]
    return nn.group_norm(
        value, groups, _filled(weight, value, channels, 1.0), _filled(bias, value, channels, 0.0), eps
    )


@aten("native_group_norm.default")
def native_group_norm(
    result: Result, x: Any, weight: Any, bias: Any, n: int, channels: int, size: int, groups: int, eps: float
) -> tuple[Value, Value, Value]:
    """Also the mean and the inverse deviation of each group."""
    value = converted(x, floating(result))
    apart = nn.reshape(value, (n, groups, channels // groups * size))
    spread = pointwise("rstd", f"1.0 / sqrt({{0}} + {float(eps)!r})", nn.var(apart, 2))
    return group_norm(result, x, groups, weight, bias, eps), nn.mean(apart, 2), spread
