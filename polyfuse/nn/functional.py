"""Functions on values: each makes one node of the graph, and checks shapes and element types."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np

from polyfuse.errors import BadArgument
from polyfuse.nn.graph import (
    Axes,
    Operand,
    Value,
    apply,
    as_value,
    axes_of,
    axis_of,
    element_type,
    pointwise,
    product,
)
from polyfuse.nn.nest_writer import Array
from polyfuse.nn.normalization.along_axes import LayerNorm as LayerNormOperation
from polyfuse.nn.normalization.along_axes import LogSoftmax as LogSoftmaxOperation
from polyfuse.nn.normalization.along_axes import RMSNorm as RMSNormOperation
from polyfuse.nn.normalization.along_axes import Softmax as SoftmaxOperation
from polyfuse.nn.operations import EVERY, Cast, Reduce
from polyfuse.nn.operations import Linear as LinearOperation
from polyfuse.nn.sizes import GivenSize, all_sizes
from polyfuse.nn.torch_names import torch_names


class Layer(Protocol):
    """A layer, as far as functions on values know one: `nn.Linear`, or any `nn.Module`."""

    def forward(self, x: Value) -> Value:
        """Return the layer's value for this input."""


def add(x: Operand, y: Operand) -> Value:
    """`x + y`, broadcast as in NumPy. Statement add, tensor a.

    Args:
        x: A value, an array or a number.
        y: As x; one of the two is a value.

    Returns:
        A value of the broadcast shape and the operands' type.

    Raises:
        BadArgument: if neither is a value, their types differ, or their shapes do not broadcast.
    """
    return pointwise("add", "{0} + {1}", x, y, integers=True)


def subtract(x: Operand, y: Operand) -> Value:
    """`x - y`, broadcast as in NumPy. Statement sub, tensor a.

    Args:
        x: What is subtracted from: a value, an array or a number.
        y: What is subtracted, as x; one of the two is a value.

    Returns:
        A value of the broadcast shape and the operands' type.

    Raises:
        BadArgument: if neither is a value, their types differ, or their shapes do not broadcast.
    """
    return pointwise("sub", "{0} - {1}", x, y, integers=True)


def multiply(x: Operand, y: Operand) -> Value:
    """`x * y`, broadcast as in NumPy. Statement mul, tensor a.

    Args:
        x: A value, an array or a number.
        y: As x; one of the two is a value.

    Returns:
        A value of the broadcast shape and the operands' type.

    Raises:
        BadArgument: if neither is a value, their types differ, or their shapes do not broadcast.
    """
    return pointwise("mul", "{0} * {1}", x, y, integers=True)


def divide(x: Operand, y: Operand, rounding: Literal["floor", "trunc"] | None = None) -> Value:
    """`x / y`, broadcast as in NumPy. Statement div, tensor a.

    Args:
        x: The dividend.
        y: The divisor.
        rounding: "floor" rounds the quotient down, "trunc" towards 0, after it was rounded to its type; integers have
            to be rounded.

    Returns:
        The quotients, of the type of the operands.

    Raises:
        BadArgument: if `rounding` is neither, or is missing for integers.
    """
    further = "where({0} % {1} == 0, 0, where(({0} ^ {1}) < 0, 1, 0))"  # from down to 0, if the signs differ
    known: dict[str | None, tuple[str, bool | str]] = {
        None: ("{0} / {1}", False),
        "floor": ("floor({0} / {1})", "{0} // {1}"),
        "trunc": (
            "where({0} / {1} < 0.0, ceil({0} / {1}), floor({0} / {1}))",
            f"{{0}} // {{1}} + {further}",
        ),
    }
    if rounding not in known:
        raise BadArgument(f"divide: rounding is {rounding!r}, expected None, 'floor' or 'trunc'")
    text, integers = known[rounding]
    return pointwise("div", text, x, y, integers=integers)


def maximum(x: Operand, y: Operand) -> Value:
    """The larger element, NaN if either is. Statement maximum, tensor a.

    Args:
        x: A value, an array or a number.
        y: As x; one of the two is a value.

    Returns:
        A value of the broadcast shape and the operands' type.

    Raises:
        BadArgument: if neither is a value, their types differ, or their shapes do not broadcast.
    """
    return pointwise("maximum", "max({0}, {1})", x, y, integers=True)


def minimum(x: Operand, y: Operand) -> Value:
    """The smaller element, NaN if either is. Statement minimum, tensor a.

    Args:
        x: A value, an array or a number.
        y: As x; one of the two is a value.

    Returns:
        A value of the broadcast shape and the operands' type.

    Raises:
        BadArgument: if neither is a value, their types differ, or their shapes do not broadcast.
    """
    return pointwise("minimum", "min({0}, {1})", x, y, integers=True)


def exp(x: Value) -> Value:
    """`e ** x`. Statement exp, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("exp", "exp({0})", x)


def log(x: Value) -> Value:
    """The natural logarithm. Statement log, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("log", "log({0})", x)


def sqrt(x: Value) -> Value:
    """The square root. Statement sqrt, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("sqrt", "sqrt({0})", x)


def cast(x: Value, dtype: str) -> Value:
    """Convert to another type: round to nearest even among floating types, cut off towards 0 to an integer.

    Statement cast, tensor a.

    Args:
        x: The value.
        dtype: "float32", "float64", "float16", "bfloat16", "bool", or a type of integers such as "int8".

    Returns:
        The converted value. An integer keeps its last bits; a float that an integer type cannot hold, and NaN, gives
        any number of it. A truth value is 1 or 0, and anything but 0 is true.

    Raises:
        BadArgument: if `dtype` is none of these.
    """
    return apply(Cast("cast", "{0}", element_type("cast", dtype), of=EVERY), (x,))


def relu(x: Value) -> Value:
    """max(x, 0); NaN stays NaN. Statement relu, tensor a.

    Args:
        x: A value of floats or integers.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats or integers.
    """
    return pointwise("relu", "max({0}, 0)", x, integers=True)


@torch_names(negative_slope="slope")
def leaky_relu(x: Value, slope: float = 0.01) -> Value:
    """`x where x > 0, else slope * x`. Statement leaky_relu, tensor a.

    Args:
        x: The value.
        slope: The factor of negative elements.

    Returns:
        A value of the shape of x.
    """
    return pointwise("leaky_relu", f"where({{0}} > 0, {{0}}, {float(slope)!r} * {{0}})", x)


def tanh(x: Value) -> Value:
    """The hyperbolic tangent. Statement tanh, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("tanh", "tanh({0})", x)


def sigmoid(x: Value) -> Value:
    """1 / (1 + exp(-x)). Statement sigmoid, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("sigmoid", "1.0 / (1.0 + exp(-{0}))", x)


def silu(x: Value) -> Value:
    """`x / (1 + exp(-x))`, also called swish. Statement silu, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("silu", "{0} / (1.0 + exp(-{0}))", x)


def gelu(x: Value, approximate: Literal["none", "tanh"] = "none") -> Value:
    """`x * P(standard normal <= x)`. Statement gelu, tensor a.

    Hendrycks and Gimpel, Gaussian Error Linear Units (2016), section 2.

    Args:
        x: The value.
        approximate: "none" computes it exactly by erf, "tanh" by the paper's tanh formula.

    Returns:
        A value of the shape of x.

    Raises:
        BadArgument: if `approximate` is neither.
    """
    if approximate == "none":
        return pointwise("gelu", f"0.5 * {{0}} * (1.0 + erf({{0}} * {math.sqrt(0.5)!r}))", x)
    if approximate == "tanh":
        inner = f"{math.sqrt(2 / math.pi)!r} * ({{0}} + 0.044715 * {{0}} * {{0}} * {{0}})"
        return pointwise("gelu", f"0.5 * {{0}} * (1.0 + tanh({inner}))", x)
    raise BadArgument(f"gelu: approximate is {approximate!r}, expected 'none' or 'tanh'")


def linear(x: Value, weight: Layer | Array | Value, bias: Array | Value | None = None) -> Value:
    """`x @ weight + bias`.

    Statements zero, mac, bias; tensors w, b, y (the product), z (with bias).

    Args:
        x: (…, K).
        weight: (K, N), or a Linear layer, which brings its bias.
        bias: (N,) or None.

    Returns:
        (…, N).

    Raises:
        BadArgument: if the shapes do not fit.
    """
    if not isinstance(weight, np.ndarray | Value):
        if bias is not None:
            raise BadArgument(
                "linear: a layer has its own bias; give only the layer, or weight and bias arrays"
            )
        if not callable(getattr(weight, "forward", None)):
            raise BadArgument(
                f"linear: {weight!r} is not a weight; expected an array, a value or a Linear layer"
            )
        return weight.forward(x)
    operands = [x, as_value(weight, x.dtype)]
    if bias is not None:
        operands.append(as_value(bias, x.dtype))
    return apply(LinearOperation(bias is not None), operands)


def matmul(x: Value, y: Array | Value) -> Value:
    """`x @ y`; batches broadcast as in NumPy. Statements zero, mac; tensor y.

    Args:
        x: (…, M, K).
        y: (…, K, N).

    Returns:
        (…, M, N).

    Raises:
        BadArgument: if the shapes do not fit.
    """
    return product(x, as_value(y, x.dtype))


@torch_names(dim="axis")
def softmax(x: Value, axis: int = -1) -> Value:
    """exp(x) / sum exp(x) along an axis, with the maximum subtracted first. Tensors m, e, s, p.

    Args:
        x: The value.
        axis: The axis.

    Returns:
        A value of the shape of x.

    Raises:
        BadArgument: if x has no such axis.
    """
    return apply(SoftmaxOperation(axis_of("softmax", x, axis)), [x])


@torch_names(dim="axis")
def log_softmax(x: Value, axis: int = -1) -> Value:
    """`x - log sum exp(x)` along an axis, with the maximum subtracted first. Tensors m, s, l, p.

    Args:
        x: The value.
        axis: The axis.

    Returns:
        A value of the shape of x.

    Raises:
        BadArgument: if x has no such axis.
    """
    return apply(LogSoftmaxOperation(axis_of("log_softmax", x, axis)), [x])


def layer_norm(
    x: Value,
    normalized_shape: GivenSize | Sequence[GivenSize],
    gamma: Array | Value | None = None,
    beta: Array | Value | None = None,
    eps: float = 1e-5,
) -> Value:
    """Layer normalisation: (x - mean) / sqrt(var + eps) over the last axes; then * gamma + beta.

    A mean much larger than the deviation costs no digits until a sum of the values is off by as much as the deviation
    (`normalization.along_axes.LayerNorm` has the bound). Ba, Kiros and Hinton, Layer Normalization (2016). Tensors s,
    mu, y, t, q, r, c, h and, if affine, gamma, beta, o.

    Args:
        x: (…, *normalized_shape).
        normalized_shape: The sizes of the last axes.
        gamma: Of shape `normalized_shape`; given together with beta or not at all.
        beta: Of shape `normalized_shape`.
        eps: Added to the variance.

    Returns:
        A value of the shape of x.

    Raises:
        BadArgument: if a shape does not fit, or only one of gamma and beta is given.
    """
    shape = all_sizes("layer_norm: normalized shape", normalized_shape)
    if (gamma is None) != (beta is None):
        raise BadArgument("layer_norm: give both gamma and beta, or neither")
    parameters = [as_value(array, x.dtype) for array in (gamma, beta) if array is not None]
    return apply(LayerNormOperation(shape, eps, bool(parameters)), [x, *parameters])


def rms_norm(
    x: Value,
    normalized_shape: GivenSize | Sequence[GivenSize],
    gamma: Array | Value | None = None,
    eps: float = 1e-5,
) -> Value:
    """x / sqrt(mean of x * x + eps) over the last axes; then * gamma.

    Tensors q, r and h; with gamma also o. Zhang and Sennrich, Root Mean Square Layer Normalization (2019).

    Args:
        x: (…, *normalized_shape).
        normalized_shape: The sizes of the last axes.
        gamma: Of shape `normalized_shape`, or None.
        eps: Added to the mean of squares.

    Returns:
        A value of the shape of x.

    Raises:
        BadArgument: if a shape does not fit.
    """
    shape = all_sizes("rms_norm: normalized shape", normalized_shape)
    parameters = [] if gamma is None else [as_value(gamma, x.dtype)]
    return apply(RMSNormOperation(shape, eps, bool(parameters)), [x, *parameters])


@torch_names(dim="axis", keepdim="keepdims")
def sum(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """The sum over some axes. Statements sum_init, sum; tensor s.

    Args:
        x: The value.
        axis: An axis, several, or None for all.
        keepdims: True keeps the reduced axes with size 1.

    Returns:
        The sums.

    Raises:
        BadArgument: if an axis does not exist, or is named twice.
    """
    return apply(Reduce("sum", axes_of("sum", x, axis), keepdims), [x])


@torch_names(dim="axis", keepdim="keepdims")
def mean(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """The mean over some axes. Statements meansum_init, meansum, mean; tensors s, mu.

    Args:
        x: The value.
        axis: An axis, several, or None for all.
        keepdims: True keeps the reduced axes with size 1.

    Returns:
        The means.

    Raises:
        BadArgument: if an axis does not exist, or is named twice.
    """
    return apply(Reduce("mean", axes_of("mean", x, axis), keepdims), [x])


@torch_names(dim="axis", keepdim="keepdims")
def prod(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """The product over some axes; 1 of none. Statements prod_init, prod; tensor q.

    Args:
        x: The value.
        axis: An axis, several, or None for all.
        keepdims: True keeps the reduced axes with size 1.

    Returns:
        The products.

    Raises:
        BadArgument: if an axis does not exist, or is named twice.
    """
    return apply(Reduce("prod", axes_of("prod", x, axis), keepdims), [x])


@torch_names(dim="axis", keepdim="keepdims")
def max(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """The maximum over some axes. Statements max_init, max; tensor m.

    Args:
        x: The value.
        axis: An axis, several, or None for all.
        keepdims: True keeps the reduced axes with size 1.

    Returns:
        The maxima.

    Raises:
        BadArgument: if an axis does not exist, or is named twice.
    """
    return apply(Reduce("max", axes_of("max", x, axis), keepdims), [x])


@torch_names(dim="axis", keepdim="keepdims")
def min(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """The minimum over some axes. Statements min_init, min; tensor m.

    Args:
        x: The value.
        axis: An axis, several, or None for all.
        keepdims: True keeps the reduced axes with size 1.

    Returns:
        The minima.

    Raises:
        BadArgument: if an axis does not exist, or is named twice.
    """
    return apply(Reduce("min", axes_of("min", x, axis), keepdims), [x])
