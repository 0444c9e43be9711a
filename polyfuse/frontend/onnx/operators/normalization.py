"""Importers of normalisations: by channel, over the last axes, over groups, by neighbouring channels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polyfuse import nn
from polyfuse.frontend.onnx.operators.registry import (
    Node,
    Operand,
    axes_within,
    onnx_op,
    value_of,
)
from polyfuse.ir import DType
from polyfuse.nn.graph import Value, pointwise
from polyfuse.nn.sizes import Shape, number


def _computed_in(x: Value) -> DType:
    """float32 for a half: sums and statistics are not rounded to one."""
    return "float32" if x.dtype in ("float16", "bfloat16") else x.dtype


@onnx_op("BatchNormalization")
def batch_norm(
    node: Node,
    x: Operand,
    scale: Operand,
    shift: Operand,
    mean: Operand,
    var: Operand,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> Value | tuple[Value, ...]:
    """By running statistics, or by those of the batch, towards which the running ones move."""
    value = value_of(x)
    wide = _computed_in(value)
    image = value_of(value, wide)
    gamma, beta, centre, spread = (value_of(one, wide) for one in (scale, shift, mean, var))
    if not training_mode:
        return value_of(nn.batch_norm(image, centre, spread, gamma, beta, epsilon), value.dtype)
    axes = [axis for axis in range(image.rank) if axis != 1]
    own_mean, own_var = nn.mean(image, axes), nn.var(image, axes)
    found = value_of(nn.batch_norm(image, own_mean, own_var, gamma, beta, epsilon), value.dtype)
    keep, take = float(momentum), float(1 - momentum)
    text = f"{keep!r} * {{0}} + {take!r} * {{1}}"
    return found, pointwise("moved", text, centre, own_mean), pointwise("moved", text, spread, own_var)


@onnx_op("InstanceNormalization")
def instance_norm(_: Node, x: Operand, scale: Operand, shift: Operand, epsilon: float = 1e-5) -> Value:
    """Each channel of each example by its own statistics."""
    value = value_of(x)
    gamma, beta = value_of(scale, value.dtype), value_of(shift, value.dtype)
    return nn.group_norm(value, number("InstanceNormalization", value.shape[1]), gamma, beta, epsilon)


@onnx_op("GroupNormalization")
def group_norm(
    node: Node,
    x: Operand,
    scale: Operand,
    shift: Operand,
    num_groups: int = 1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Value:
    """Groups of channels; before opset 21 scale and shift are of groups."""
    value = value_of(x)
    gamma, beta = value_of(scale, value.dtype), value_of(shift, value.dtype)
    if node.opset < 21:
        each = number("GroupNormalization", value.shape[1]) // num_groups
        gamma, beta = (nn.repeat_interleave(one, each, 0) for one in (gamma, beta))
    return nn.group_norm(value, num_groups, gamma, beta, epsilon)


@onnx_op("LayerNormalization")
def layer_norm(
    node: Node,
    x: Operand,
    scale: Operand,
    shift: Operand = None,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Value | tuple[Value, Value, Value]:
    """Over the axes from one on; also the mean and the inverse deviation."""
    value = value_of(x)
    (first,) = axes_within((axis,), value.rank)
    shape, axes = value.shape[first:], tuple(range(first, value.rank))
    gamma = _full(value_of(scale, value.dtype), shape)
    beta = _full(
        nn.constant(np.zeros((), value.dtype)) if shift is None else value_of(shift, value.dtype), shape
    )
    found = nn.layer_norm(value, shape, gamma, beta, epsilon)
    if node.results == 1:
        return found
    wide = value_of(value, _computed_in(value))
    spread = pointwise("rstd", f"1.0 / sqrt({{0}} + {float(epsilon)!r})", nn.var(wide, axes, keepdims=True))
    return found, nn.mean(wide, axes, keepdims=True), spread


@onnx_op("RMSNormalization")
def rms_norm(
    _: Node, x: Operand, scale: Operand, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Value:
    """Over the axes from one on, by the root of the mean of squares."""
    value = value_of(x)
    (first,) = axes_within((axis,), value.rank)
    shape = value.shape[first:]
    return nn.rms_norm(value, shape, _full(value_of(scale, value.dtype), shape), epsilon)


def _full(x: Value, shape: Shape) -> Value:
    return x if x.shape == shape else nn.expand(x, shape)


@onnx_op("MeanVarianceNormalization")
def mean_variance(_: Node, x: Operand, axes: Sequence[int] = (0, 2, 3)) -> Value:
    """Mean 0 and variance 1 over some axes."""
    value = value_of(x)
    along = axes_within(axes, value.rank)
    mean, var = nn.mean(value, along, True), nn.var(value, along, keepdims=True)
    return pointwise("norm", "({0} - {1}) / (sqrt({2}) + 1e-09)", value, mean, var)


@onnx_op("LRN")
def local_response(
    _: Node, x: Operand, size: int = 1, alpha: float = 0.0001, beta: float = 0.75, bias: float = 1.0
) -> Value:
    """Each channel divided by a power of the squares of its neighbours."""
    value = value_of(x)
    before, behind = (size - 1) // 2, size // 2
    widths = [(before, behind) if axis == 1 else (0, 0) for axis in range(value.rank)]
    squares = nn.sum(nn.unfold(nn.pad(nn.square(value), widths), 1, size), -1)
    factor = float(alpha) / size
    return pointwise(
        "lrn", f"{{0}} / (({float(bias)!r}) + ({factor!r}) * {{1}}) ** ({float(beta)!r})", value, squares
    )
