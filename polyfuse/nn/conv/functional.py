"""Functions on images: convolution, pooling, normalisation by channel; NCHW and NHWC, one to three spatial axes."""

from __future__ import annotations

from collections.abc import Sequence

from polyfuse.errors import BadArgument
from polyfuse.nn.conv.operations import Convolution
from polyfuse.nn.conv.pooling import AdaptivePooling, Kind, WindowPooling
from polyfuse.nn.conv.windows import Padding, layout_named, per_axis, windows_of
from polyfuse.nn.functional import axis_of
from polyfuse.nn.graph import Value, apply, as_value
from polyfuse.nn.nest_writer import Array
from polyfuse.nn.normalization.by_channel import BatchNorm as BatchNormOperation
from polyfuse.nn.normalization.by_channel import GroupNorm as GroupNormOperation

Sizes = int | Sequence[int]
Parameter = Array | Value


def conv1d(
    x: Value,
    weight: Parameter,
    bias: Parameter | None = None,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: str = "NCW",
) -> Value:
    """Cross-correlation along one axis: x (N, C, W) or, for NWC, (N, W, C); weight (F, C / groups, S); bias (F,).

    The result is (N, F, Q) or (N, Q, F). See `conv2d`.
    """
    return _conv(1, x, weight, bias, stride, padding, dilation, groups, layout)


def conv2d(
    x: Value,
    weight: Parameter,
    bias: Parameter | None = None,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: str = "NCHW",
) -> Value:
    """Cross-correlation: x (N, C, H, W) or, for NHWC, (N, H, W, C); weight (F, C / groups, R, S); bias (F,).

    The result is (N, F, P, Q) or (N, P, Q, F), with P = (H + padding - dilation (R - 1) - 1) // stride + 1. `padding`
    is a number for both sides of all axes, a number or (before, after) for each axis, "same" (P = H / stride rounded
    up, the odd element after) or "valid". As many groups as channels make it depthwise. Padding is not copied: each sum
    has only the elements that the image has.

    Statements zero, mac, bias; tensors w, b, y (the sums), z (with bias). BadArgument where sizes do not go together.
    """
    return _conv(2, x, weight, bias, stride, padding, dilation, groups, layout)


def conv3d(
    x: Value,
    weight: Parameter,
    bias: Parameter | None = None,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    layout: str = "NCDHW",
) -> Value:
    """Cross-correlation in space: x (N, C, D, H, W) or, for NDHWC, (N, D, H, W, C); weight (F, C / groups, T, R, S).

    See `conv2d`.
    """
    return _conv(3, x, weight, bias, stride, padding, dilation, groups, layout)


def max_pool(
    x: Value,
    window: Sizes,
    stride: Sizes | None = None,
    padding: Padding = 0,
    dilation: Sizes = 1,
    layout: str | None = None,
) -> Value:
    """The maximum of each window; the windows lie side by side if no stride is given.

    Statements max_init, max; tensor m. x is (N, C, W), (N, C, H, W), (N, C, D, H, W), or channels last: layout "NWC",
    "NHWC", "NDHWC".
    """
    return _pool("max", x, window, stride, padding, dilation, layout, True)


def avg_pool(
    x: Value,
    window: Sizes,
    stride: Sizes | None = None,
    padding: Padding = 0,
    dilation: Sizes = 1,
    layout: str | None = None,
    count_padding: bool = True,
) -> Value:
    """The average of each window, with padding counted as zeros or, if not `count_padding`, left out.

    Shapes as for `max_pool`. Statements meansum_init, meansum, mean; tensors s, mu.
    """
    return _pool("mean", x, window, stride, padding, dilation, layout, count_padding)


def adaptive_max_pool(x: Value, size: Sizes, layout: str | None = None) -> Value:
    """The maximum of each of `size` windows an axis: window p of P is [floor(p H / P), ceil((p + 1) H / P))."""
    return _adaptive("max", x, size, layout)


def adaptive_avg_pool(x: Value, size: Sizes, layout: str | None = None) -> Value:
    """The average of each of `size` windows an axis; size 1 averages the whole image."""
    return _adaptive("mean", x, size, layout)


def batch_norm(
    x: Value,
    mean: Parameter,
    var: Parameter,
    gamma: Parameter | None = None,
    beta: Parameter | None = None,
    eps: float = 1e-5,
    axis: int = 1,
) -> Value:
    """(x - mean) / sqrt(var + eps) * gamma + beta for each channel, with given statistics; channels lie along `axis`.

    Computed as x * scale + shift. Statements scale, shift, norm; tensors mean, var, gamma, beta, r, d, h.
    """
    every = _both("batch_norm", gamma, beta)
    operands = [as_value(array, x.dtype) for array in (mean, var, *every)]
    return apply(BatchNormOperation(axis_of("batch_norm", x, axis), eps, bool(every)), [x, *operands])


def group_norm(
    x: Value,
    groups: int,
    gamma: Parameter | None = None,
    beta: Parameter | None = None,
    eps: float = 1e-5,
    axis: int = 1,
) -> Value:
    """Each example's groups of channels normalised to mean 0 and variance 1; then * gamma + beta, both or neither.

    Statements and tensors as those of `layer_norm`.
    """
    channels = axis_of("group_norm", x, axis)
    if channels == 0 or groups < 1:
        raise BadArgument(
            f"group_norm: {groups} groups along axis {axis} of {x!r}; the first axis counts examples"
        )
    every = [as_value(array, x.dtype) for array in _both("group_norm", gamma, beta)]
    return apply(GroupNormOperation(groups, channels, eps, bool(every)), [x, *every])


def _conv(
    rank: int,
    x: Value,
    weight: Parameter,
    bias: Parameter | None,
    stride: Sizes,
    padding: Padding,
    dilation: Sizes,
    groups: int,
    layout: str,
) -> Value:
    name = f"conv{rank}d"
    if groups < 1:
        raise BadArgument(f"{name}: {groups} groups, expected at least 1")
    windows = windows_of(name, rank, stride, padding, dilation)
    operands = [x, *(as_value(array, x.dtype) for array in (weight, bias) if array is not None)]
    order = layout_named(name, layout, rank)
    return apply(Convolution(rank, windows, groups, order, bias is not None), operands)


def _pool(
    kind: Kind,
    x: Value,
    window: Sizes,
    stride: Sizes | None,
    padding: Padding,
    dilation: Sizes,
    layout: str | None,
    count_padding: bool,
) -> Value:
    name = "max_pool" if kind == "max" else "avg_pool"
    rank = _spatial_rank(name, x)
    size = per_axis(name, "window", rank, window)
    windows = windows_of(name, rank, size if stride is None else stride, padding, dilation)
    order = layout_named(name, layout, rank)
    return apply(WindowPooling(rank, kind, order, size, windows, count_padding), [x])


def _adaptive(kind: Kind, x: Value, size: Sizes, layout: str | None) -> Value:
    name = f"adaptive_{'max' if kind == 'max' else 'avg'}_pool"
    rank = _spatial_rank(name, x)
    return apply(
        AdaptivePooling(rank, kind, layout_named(name, layout, rank), per_axis(name, "size", rank, size)), [x]
    )


def _spatial_rank(name: str, x: Value) -> int:
    if not 3 <= x.rank <= 5:
        raise BadArgument(
            f"{name}: {x!r} has {x.rank} axes, expected examples, channels and 1 to 3 spatial axes"
        )
    return x.rank - 2


def _both(name: str, gamma: Parameter | None, beta: Parameter | None) -> list[Parameter]:
    if (gamma is None) != (beta is None):
        raise BadArgument(f"{name}: gamma and beta come together; give both or neither")
    return [array for array in (gamma, beta) if array is not None]
