"""Functions on images: convolution, pooling, normalisation by channel; NCHW and NHWC, one to three spatial axes."""

from __future__ import annotations

from collections.abc import Sequence

from polyfuse.errors import BadArgument, quantity
from polyfuse.nn.conv.operations import Convolution
from polyfuse.nn.conv.pooling import AdaptivePooling, Kind, WindowPooling
from polyfuse.nn.conv.windows import Padding, layout_named, per_axis, windows_of
from polyfuse.nn.graph import Further, Value, apply, as_value, axis_of
from polyfuse.nn.nest_writer import Array
from polyfuse.nn.normalization.by_channel import MEAN, VARIANCE, BatchNormOfBatch
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
    """Cross-correlation along one axis; see `conv2d`.

    Args:
        x: (N, C, W), or (N, W, C) for layout "NWC".
        weight: (F, C / groups, S).
        bias: (F,) or None.
        stride: The step between windows.
        padding: Zeros on both sides, (before, after) in a tuple, "same" or "valid".
        dilation: The step between elements of a window.
        groups: The number of groups of channels.
        layout: "NCW" or "NWC".

    Returns:
        (N, F, Q), or (N, Q, F) for "NWC".

    Raises:
        BadArgument: if the sizes do not fit together.
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
    """Cross-correlation in two dimensions (the convolution of neural networks).

    Padding is not copied: each sum has only the terms that lie inside the image. Statements zero, mac, bias; tensors
    w, b, y (the sums), z (with bias).

    Args:
        x: (N, C, H, W), or (N, H, W, C) for layout "NHWC".
        weight: (F, C / groups, R, S).
        bias: (F,) or None.
        stride: The step between windows, for all axes or for each.
        padding: Zeros on both sides of all axes, a number or (before, after) for each axis, "same" (the result has
            H / stride rows, rounded up; the odd zero comes after) or "valid" (none).
        dilation: The step between elements of a window, for all axes or for each.
        groups: The number of groups of channels; as many as channels make a depthwise convolution.
        layout: "NCHW" or "NHWC".

    Returns:
        (N, F, P, Q), or (N, P, Q, F) for "NHWC"; P = (H + padding - dilation (R - 1) - 1) // stride + 1.

    Raises:
        BadArgument: if the sizes do not fit together.
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
    """Cross-correlation in three dimensions; see `conv2d`.

    Args:
        x: (N, C, D, H, W), or (N, D, H, W, C) for layout "NDHWC".
        weight: (F, C / groups, T, R, S).
        bias: (F,) or None.
        stride: The step between windows, for all axes or for each.
        padding: As for `conv2d`.
        dilation: The step between elements of a window, for all axes or for each.
        groups: The number of groups of channels.
        layout: "NCDHW" or "NDHWC".

    Returns:
        (N, F, O, P, Q), or (N, O, P, Q, F) for "NDHWC".

    Raises:
        BadArgument: if the sizes do not fit together.
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
    """The maximum of each window. Statements max_init, max; tensor m.

    Args:
        x: (N, C, W), (N, C, H, W) or (N, C, D, H, W); with channels last for a layout that says so.
        window: The window's size, for all axes or for each.
        stride: The step between windows; the window's size by default.
        padding: As for `conv2d`; padded elements never are the maximum.
        dilation: The step between elements of a window.
        layout: "NCW", "NCHW", "NCDHW" (the default by rank), "NWC", "NHWC" or "NDHWC".

    Returns:
        The maxima, in the layout of x.

    Raises:
        BadArgument: if the sizes do not fit together, or a window has no elements.
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
    """The average of each window. Statements meansum_init, meansum, mean; tensors s, mu.

    Args:
        x: As for `max_pool`.
        window: The window's size, for all axes or for each.
        stride: The step between windows; the window's size by default.
        padding: As for `conv2d`.
        dilation: The step between elements of a window.
        layout: As for `max_pool`.
        count_padding: True counts padding as zeros; False divides by the number of elements inside the image.

    Returns:
        The averages, in the layout of x.

    Raises:
        BadArgument: if the sizes do not fit together, or a window has no elements.
    """
    return _pool("mean", x, window, stride, padding, dilation, layout, count_padding)


def adaptive_max_pool(x: Value, size: Sizes, layout: str | None = None) -> Value:
    """The maximum of each of a given number of windows: window p of P is [floor(p H / P), ceil((p + 1) H / P)).

    Args:
        x: As for `max_pool`.
        size: The number of windows, for all axes or for each.
        layout: As for `max_pool`.

    Returns:
        The maxima, in the layout of x.

    Raises:
        BadArgument: if the sizes do not fit together.
    """
    return _adaptive("max", x, size, layout)


def adaptive_avg_pool(x: Value, size: Sizes, layout: str | None = None) -> Value:
    """The average of each of a given number of windows, cut as for `adaptive_max_pool`.

    Args:
        x: As for `max_pool`.
        size: The number of windows, for all axes or for each; 1 averages the whole image.
        layout: As for `max_pool`.

    Returns:
        The averages, in the layout of x.

    Raises:
        BadArgument: if the sizes do not fit together.
    """
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
    """Batch normalisation with given statistics: (x - mean) / sqrt(var + eps) * gamma + beta for each channel.

    Computed as x * scale + shift. Statements scale, shift, norm; tensors mean, var, gamma, beta, r, d, h. Ioffe and
    Szegedy, Batch Normalization (2015).

    Args:
        x: Any shape with channels along `axis`.
        mean: (channels,).
        var: (channels,).
        gamma: (channels,); given together with beta or not at all.
        beta: (channels,).
        eps: Added to the variance.
        axis: The channels' axis.

    Returns:
        The normalised value, of the shape of x.

    Raises:
        BadArgument: if a shape does not fit, or only one of gamma and beta is given.
    """
    every = _both("batch_norm", gamma, beta)
    operands = [as_value(array, x.dtype) for array in (mean, var, *every)]
    return apply(BatchNormOperation(axis_of("batch_norm", x, axis), eps, bool(every)), [x, *operands])


def batch_norm_of_batch(
    x: Value, gamma: Parameter | None = None, beta: Parameter | None = None, eps: float = 1e-5, axis: int = 1
) -> tuple[Value, Value, Value]:
    """Batch normalisation with the statistics of the batch, as in training.

    Ioffe and Szegedy, Batch Normalization (2015), algorithm 1.

    Args:
        x: Any shape with channels along `axis`.
        gamma: (channels,); given together with beta or not at all.
        beta: (channels,).
        eps: Added to the variance.
        axis: The channels' axis.

    Returns:
        The normalised value, of the shape of x; the mean, and the variance with Bessel's correction, both (channels,).

    Raises:
        BadArgument: if a shape does not fit, only one of gamma and beta is given, or channels have one element or a
            symbolic number of them.
    """
    every = [as_value(array, x.dtype) for array in _both("batch_norm_of_batch", gamma, beta)]
    own = axis_of("batch_norm_of_batch", x, axis)
    value = apply(BatchNormOfBatch(own, eps, bool(every)), [x, *every])
    mean, var = (Value(Further(name), (value,), (x.shape[own],), x.dtype) for name in (MEAN, VARIANCE))
    return value, mean, var


def group_norm(
    x: Value,
    groups: int,
    gamma: Parameter | None = None,
    beta: Parameter | None = None,
    eps: float = 1e-5,
    axis: int = 1,
) -> Value:
    """Group normalisation: each example's groups of channels have mean 0 and variance 1; then * gamma + beta.

    Statements and tensors as for `layer_norm`. Wu and He, Group Normalization (2018).

    Args:
        x: Any shape with examples along axis 0 and channels along `axis`.
        groups: The number of groups; it divides the number of channels.
        gamma: (channels,); given together with beta or not at all.
        beta: (channels,).
        eps: Added to the variance.
        axis: The channels' axis.

    Returns:
        The normalised value, of the shape of x.

    Raises:
        BadArgument: if a shape does not fit, or only one of gamma and beta is given.
    """
    channels = axis_of("group_norm", x, axis)
    if channels == 0 or groups < 1:
        raise BadArgument(
            f"group_norm: {quantity(groups, 'group')} along axis {axis} of {x!r}; the first axis counts examples"
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
            f"{name}: {x!r} has {quantity(x.rank, 'axis', 'axes')}, expected examples, channels and 1 to 3 spatial axes"
        )
    return x.rank - 2


def _both(name: str, gamma: Parameter | None, beta: Parameter | None) -> list[Parameter]:
    if (gamma is None) != (beta is None):
        raise BadArgument(f"{name}: give both gamma and beta, or neither")
    return [array for array in (gamma, beta) if array is not None]
