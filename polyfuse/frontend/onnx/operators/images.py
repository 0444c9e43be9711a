"""Importers of what acts on images: convolutions, pooling, resizing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from polyfuse import nn
from polyfuse.frontend.onnx.operators.registry import (
    ONNX,
    Array,
    Missing,
    Node,
    Operand,
    Unsupported,
    axes_within,
    onnx_op,
    value_of,
    values_of,
)
from polyfuse.nn.conv.places import max_pool_with_places
from polyfuse.nn.graph import Value, pointwise
from polyfuse.nn.interpolation import along, cubic, linear, matrix, nearest
from polyfuse.nn.sizes import numbers

Pairs = list[tuple[int, int]]

CONVOLUTIONS: dict[int, Callable[..., Value]] = {1: nn.conv1d, 2: nn.conv2d, 3: nn.conv3d}


def _paired(pads: Sequence[int] | None, rank: int) -> Pairs:
    """ONNX's padding, all before and then all behind, as pairs."""
    every = tuple(pads or (0,) * (2 * rank))
    if len(every) != 2 * rank:
        raise Unsupported(f"pads {every} for {rank} axes; expected {2 * rank} numbers")
    return list(zip(every[:rank], every[rank:], strict=True))


def _padding(
    auto_pad: str,
    pads: Sequence[int] | None,
    sizes: Sequence[int],
    spans: Sequence[int],
    steps: Sequence[int],
) -> Pairs:
    """The padding of each axis; spans are the windows' with their dilation."""
    if auto_pad in ("NOTSET", ""):
        return _paired(pads, len(sizes))
    if auto_pad == "VALID":
        return [(0, 0)] * len(sizes)
    found = []
    for size, span, step in zip(sizes, spans, steps, strict=True):
        total = max(0, (-(-size // step) - 1) * step + span - size)
        less, more = total // 2, total - total // 2
        found.append((less, more) if auto_pad == "SAME_UPPER" else (more, less))
    return found


def _spans(window: Sequence[int], dilation: Sequence[int]) -> list[int]:
    return [(size - 1) * apart + 1 for size, apart in zip(window, dilation, strict=True)]


@onnx_op("Conv")
def conv(
    _: Node,
    x: Operand,
    w: Operand,
    b: Operand = None,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    """A convolution in one to three dimensions."""
    image, weight = values_of(x, w)
    rank = weight.rank - 2
    if rank not in CONVOLUTIONS:
        raise Unsupported(f"a convolution over {rank} axes; 1, 2 and 3 are computed")
    steps, apart = tuple(strides or (1,) * rank), tuple(dilations or (1,) * rank)
    window = numbers("Conv", weight.shape[2:])
    pairs = _padding(auto_pad, pads, numbers("Conv", image.shape[2:]), _spans(window, apart), steps)
    bias = None if b is None else value_of(b, image.dtype)
    return CONVOLUTIONS[rank](image, weight, bias, steps, pairs, apart, group)


@onnx_op("ConvTranspose")
def conv_transpose(
    _: Node,
    x: Operand,
    w: Operand,
    b: Operand = None,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    """A transposed convolution in one to three dimensions."""
    image, weight = values_of(x, w)
    rank = weight.rank - 2
    steps, apart = tuple(strides or (1,) * rank), tuple(dilations or (1,) * rank)
    more = list(output_padding or (0,) * rank)
    sizes, spans = (
        numbers("ConvTranspose", image.shape[2:]),
        _spans(numbers("ConvTranspose", weight.shape[2:]), apart),
    )
    whole = [
        (size - 1) * step + extra + span
        for size, step, extra, span in zip(sizes, steps, more, spans, strict=True)
    ]
    pairs = _paired(pads, rank)
    if output_shape is not None or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = list(output_shape or [size * step for size, step in zip(sizes, steps, strict=True)])
        pairs = []
        for axis, (full, size) in enumerate(zip(whole, wanted[-rank:], strict=True)):
            more[axis] += max(0, size - full)
            total = max(0, full - size)
            less, rest = total // 2, total - total // 2
            pairs.append((less, rest) if auto_pad == "SAME_UPPER" else (rest, less))
    bias = None if b is None else value_of(b, image.dtype)
    return nn.conv_transpose(image, weight, bias, steps, pairs, more, apart, group)


# -- pooling -----------------------------------------------------------------------------------------------------------


def _pooling(
    x: Value,
    window: Sequence[int],
    auto_pad: str,
    pads: Sequence[int] | None,
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    ceil_mode: int,
) -> tuple[tuple[int, ...], Pairs, tuple[int, ...], list[int]]:
    """Steps, padding and dilation of a pooling, and by how much ceil_mode lengthens the last windows' padding."""
    rank = x.rank - 2
    steps, apart = tuple(strides or (1,) * rank), tuple(dilations or (1,) * rank)
    spans = _spans(window, apart)
    sizes = numbers("pooling", x.shape[2:])
    pairs = _padding(auto_pad, pads, sizes, spans, steps)
    more = [0] * rank
    if ceil_mode:
        for axis, (size, span, step, (before, behind)) in enumerate(
            zip(sizes, spans, steps, pairs, strict=True)
        ):
            rest = (size + before + behind - span) % step
            last = (size + before + behind - span) // step + 1
            if rest and last * step < size + before:  # a window that would begin in the padding is none
                more[axis] = step - rest
    return steps, pairs, apart, more


@onnx_op("MaxPool")
def max_pool(
    node: Node,
    x: Operand,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int] = (),
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
) -> Value | tuple[Value, Any]:
    """The maximum of each window, and its place."""
    value = value_of(x)
    steps, pairs, apart, more = _pooling(value, kernel_shape, auto_pad, pads, strides, dilations, ceil_mode)
    longer = [(before, behind + extra) for (before, behind), extra in zip(pairs, more, strict=True)]
    if node.results == 1:
        return nn.max_pool(value, tuple(kernel_shape), steps, longer, apart)
    if storage_order or value.shape[:2] != (1, 1):
        return nn.max_pool(value, tuple(kernel_shape), steps, longer, apart), Missing(
            "places count from the start of the whole tensor; they are computed for one channel of one example"
        )
    return max_pool_with_places(value, tuple(kernel_shape), steps, longer, apart)


@onnx_op("AveragePool")
def average_pool(
    _: Node,
    x: Operand,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int] = (),
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    """The average of each window."""
    value = value_of(x)
    steps, pairs, apart, more = _pooling(value, kernel_shape, auto_pad, pads, strides, dilations, ceil_mode)
    longer = [(before, behind + extra) for (before, behind), extra in zip(pairs, more, strict=True)]
    if count_include_pad and any(more):
        # padding that was asked for counts, what ceil_mode adds does not: zeros now, and windows cut short
        value = nn.pad(value, [(0, 0), (0, 0), *pairs])
        longer = [(0, extra) for extra in more]
        return nn.avg_pool(value, tuple(kernel_shape), steps, longer, apart, count_padding=False)
    return nn.avg_pool(
        value, tuple(kernel_shape), steps, longer, apart, count_padding=bool(count_include_pad)
    )


@onnx_op("LpPool")
def lp_pool(
    _: Node,
    x: Operand,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    kernel_shape: Sequence[int] = (),
    p: int = 2,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Value:
    """The p-norm of each window: the average of powers, times the window's size."""
    value = value_of(x)
    steps, pairs, apart, more = _pooling(value, kernel_shape, auto_pad, pads, strides, dilations, ceil_mode)
    longer = [(before, behind + extra) for (before, behind), extra in zip(pairs, more, strict=True)]
    powers = pointwise("powers", f"abs({{0}}) ** {float(p)!r}", value)
    sums = nn.avg_pool(powers, tuple(kernel_shape), steps, longer, apart) * float(np.prod(kernel_shape))
    return pointwise("root", f"{{0}} ** {1 / p!r}", sums)


def _global(pool: Callable[..., Value]) -> Callable[[Node, Operand], Value]:
    return lambda _, x: pool(value_of(x), tuple(range(2, value_of(x).rank)), True)


ONNX["GlobalAveragePool"], ONNX["GlobalMaxPool"] = _global(nn.mean), _global(nn.max)


@onnx_op("GlobalLpPool")
def global_lp_pool(_: Node, x: Operand, p: int = 2) -> Value:
    """The p-norm of each channel."""
    value = value_of(x)
    powers = pointwise("powers", f"abs({{0}}) ** {float(p)!r}", value)
    return pointwise("root", f"{{0}} ** {1 / p!r}", nn.sum(powers, tuple(range(2, value.rank)), True))


# -- resizing ----------------------------------------------------------------------------------------------------------


@onnx_op("Resize")
def resize(
    node: Node,
    x: Operand,
    roi: Operand = None,
    scales: Operand = None,
    sizes: Operand = None,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Value:
    """Interpolated to other sizes, axis by axis."""
    value = value_of(x)
    every = tuple(range(value.rank)) if axes is None else axes_within(axes, value.rank)
    old = list(numbers("Resize", (value.shape[axis] for axis in every)))
    factors, wanted = _wanted(node, old, scales, sizes, keep_aspect_ratio_policy)
    rule = coordinate_transformation_mode
    if rule == "tf_crop_and_resize":
        box = node.numbers(roi, "region")
        bounds = list(zip(box[: len(every)], box[len(every) :], strict=True))
    else:
        bounds = [(0.0, 1.0)] * len(every)
    outside: list[tuple[int, Array]] = []
    for place, axis in enumerate(every):
        size, factor, count = old[place], factors[place], wanted[place]
        at = _coordinates(rule, size, factor, count, bounds[place])
        if rule == "tf_crop_and_resize":
            outside.append((axis, (at < 0) | (at > size - 1)))
        if size == count and np.array_equal(at, np.arange(size)):
            continue
        if mode == "nearest":
            value = nearest(value, axis, _nearest(nearest_mode, at, size))
            continue
        kernel, taps = (linear, 2) if mode == "linear" else (partial(cubic, a=cubic_coeff_a), 4)
        if antialias and factor < 1:
            weights = _antialiased(at, size, kernel, taps, factor, bool(exclude_outside))
        else:
            weights = matrix(at, size, kernel, taps, bool(exclude_outside) and mode == "cubic")
        value = along(value, axis, weights)
    for axis, mask in outside:
        if mask.any():
            shape = [len(mask) if d == axis else 1 for d in range(value.rank)]
            here = nn.constant(mask.astype(value.dtype).reshape(shape))
            value = nn.where(here, float(extrapolation_value), value)
    return value


def _wanted(
    node: Node, old: list[int], scales: Operand, sizes: Operand, policy: str
) -> tuple[list[float], list[int]]:
    """The factor and the new size of each axis."""
    given = None if scales is None else node.numbers(scales, "scales")
    if given is not None and given.size:
        factors = [float(factor) for factor in given.reshape(-1)]
        return factors, [int(np.floor(factor * size)) for factor, size in zip(factors, old, strict=True)]
    wanted = list(node.integers(sizes, "sizes"))
    factors = [new / size for new, size in zip(wanted, old, strict=True)]
    if policy != "stretch":
        one = min(factors) if policy == "not_larger" else max(factors)
        factors = [one] * len(factors)
        wanted = [int(np.floor(one * size + 0.5)) for size in old]
    return factors, wanted


def _coordinates(rule: str, size: int, factor: float, count: int, bounds: tuple[float, float]) -> Array:
    """Where each new element lies among the old ones."""
    places = np.arange(count)
    length = factor * size
    if rule == "align_corners":
        found: Array = places * ((size - 1) / (length - 1) if length > 1 else 0.0)
        return found
    if rule == "asymmetric":
        return places / factor
    if rule == "half_pixel":
        return (places + 0.5) / factor - 0.5
    if rule == "half_pixel_symmetric":
        moved = (1 - count / length) * size / 2 if length else 0.0
        return moved + (places + 0.5) / factor - 0.5
    if rule == "pytorch_half_pixel":
        return (places + 0.5) / factor - 0.5 if count > 1 else np.zeros(count)
    if rule == "tf_crop_and_resize":
        start, end = bounds
        if count > 1:
            return start * (size - 1) + places * (end - start) * (size - 1) / (count - 1)
        return np.full(count, 0.5 * (start + end) * (size - 1))
    raise Unsupported(f"the coordinate transformation {rule!r}")


def _nearest(mode: str, at: Array, size: int) -> list[int]:
    rounded = {
        "round_prefer_floor": lambda: np.ceil(at - 0.5),
        "round_prefer_ceil": lambda: np.floor(at + 0.5),
        "floor": lambda: np.floor(at),
        "ceil": lambda: np.ceil(at),
    }
    if mode not in rounded:
        raise Unsupported(f"the nearest mode {mode!r}")
    return [int(number) for number in np.clip(rounded[mode](), 0, size - 1)]


def _antialiased(
    at: Array, size: int, kernel: Callable[[Array], Array], taps: int, factor: float, inside: bool
) -> Array:
    """The matrix of a kernel that is stretched over all elements that a new one covers."""
    reach = int(np.ceil(taps / factor)) + 2
    found, rows = np.zeros((len(at), size)), np.arange(len(at))
    first = np.floor(at).astype(int) - reach // 2
    for tap in range(reach + 1):
        column = first + tap
        weight = kernel((column - at) * factor)
        if inside:
            weight = np.where((column >= 0) & (column < size), weight, 0.0)
        np.add.at(found, (rows, np.clip(column, 0, size - 1)), weight)
    scaled: Array = found / found.sum(1, keepdims=True)
    return scaled
