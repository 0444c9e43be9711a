"""Importers of what acts element by element: arithmetic, comparisons, choices, rounding, activations, casts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from polyfuse import nn
from polyfuse.frontend.onnx.operators.registry import (
    ONNX,
    TYPES,
    Node,
    Operand,
    Unsupported,
    onnx_op,
    scalar_of,
    truth_of,
    value_of,
    values_of,
)
from polyfuse.ir.number_types import ITEMSIZE, element_type
from polyfuse.nn.graph import FLOATS, INTEGERS, Value, pointwise

UNARY: dict[str, Callable[[Value], Value]] = {
    "Abs": nn.abs,
    "Acos": nn.acos,
    "Acosh": nn.acosh,
    "Asin": nn.asin,
    "Asinh": nn.asinh,
    "Atan": nn.atan,
    "Atanh": nn.atanh,
    "BitwiseNot": nn.bitwise_not,
    "Ceil": nn.ceil,
    "Cos": nn.cos,
    "Cosh": nn.cosh,
    "Erf": nn.erf,
    "Exp": nn.exp,
    "Floor": nn.floor,
    "HardSwish": nn.hardswish,
    "IsNaN": lambda x: nn.cast(nn.isnan(x), "bool"),
    "Log": nn.log,
    "Mish": nn.mish,
    "Neg": lambda x: -x,
    "Reciprocal": nn.reciprocal,
    "Relu": nn.relu,
    "Round": nn.round,
    "Sigmoid": nn.sigmoid,
    "Sign": nn.sign,
    "Sin": nn.sin,
    "Sinh": nn.sinh,
    "Softplus": nn.softplus,
    "Sqrt": nn.sqrt,
    "Tan": nn.tan,
    "Tanh": nn.tanh,
}
"""Operators of one operand without attributes."""

BINARY: dict[str, Callable[[Value, Value], Value]] = {
    "Add": nn.add,
    "BitwiseAnd": nn.bitwise_and,
    "BitwiseOr": nn.bitwise_or,
    "BitwiseXor": nn.bitwise_xor,
    "Mul": nn.multiply,
    "Sub": nn.subtract,
}
"""Operators of two operands without attributes."""

COMPARISONS: dict[str, Callable[[Value, Value], Value]] = {
    "Equal": nn.equal,
    "Greater": nn.greater,
    "GreaterOrEqual": nn.greater_equal,
    "Less": nn.less,
    "LessOrEqual": nn.less_equal,
}

CONNECTIVES: dict[str, Callable[[Value, Value], Value]] = {
    "And": nn.logical_and,
    "Or": nn.logical_or,
    "Xor": nn.logical_xor,
}

VARIADIC: dict[str, Callable[[Value, Value], Value]] = {
    "Max": nn.maximum,
    "Min": nn.minimum,
    "Sum": nn.add,
    "Mean": nn.add,
}
"""Operators of any number of operands, which are combined from left to right."""


def _unary(function: Callable[[Value], Value]) -> Callable[[Node, Operand], Value]:
    return lambda _, x: function(value_of(x))


def _binary(function: Callable[[Any, Any], Value]) -> Callable[[Node, Operand, Operand], Value]:
    return lambda _, x, y: function(*values_of(x, y))


def _compared(function: Callable[[Any, Any], Value]) -> Callable[[Node, Operand, Operand], Value]:
    return lambda _, x, y: truth_of(function(*values_of(x, y)))


def _connected(function: Callable[[Any, Any], Value]) -> Callable[[Node, Operand, Operand], Value]:
    return lambda _, x, y: function(truth_of(x), truth_of(y))


def _variadic(function: Callable[[Value, Value], Value], mean: bool) -> Callable[..., Value]:
    def combine(_: Node, *operands: Operand) -> Value:
        found = functools.reduce(function, values_of(*operands))
        return found * (1 / len(operands)) if mean else found

    return combine


ONNX.update({name: _unary(function) for name, function in UNARY.items()})
ONNX.update({name: _binary(function) for name, function in BINARY.items()})
ONNX.update({name: _compared(function) for name, function in COMPARISONS.items()})
ONNX.update({name: _connected(function) for name, function in CONNECTIVES.items()})
ONNX.update({name: _variadic(function, name == "Mean") for name, function in VARIADIC.items()})


@onnx_op("Not")
def logical_not(_: Node, x: Operand) -> Value:
    """Not."""
    return nn.logical_not(truth_of(x))


@onnx_op("Div")
def divide(_: Node, x: Operand, y: Operand) -> Value:
    """`x / y`; integers are cut off towards 0."""
    left, right = values_of(x, y)
    return nn.divide(left, right, "trunc" if left.dtype in INTEGERS else None)


@onnx_op("BitShift")
def bit_shift(_: Node, x: Operand, y: Operand, direction: str = "") -> Value:
    """Bits moved up ("LEFT") or down."""
    function = nn.left_shift if direction == "LEFT" else nn.right_shift
    return function(*values_of(x, y))


@onnx_op("Pow")
def power(_: Node, x: Operand, y: Operand) -> Value:
    """`x ** y` in the type of x; squares, roots and reciprocals as what they are."""
    value, exponent = value_of(x), scalar_of(y)
    if isinstance(y, np.ndarray) and y.ndim <= value.rank:
        if exponent == 2:
            return nn.square(value)
        if exponent in (0.5, -1) and value.dtype not in INTEGERS:
            return nn.sqrt(value) if exponent == 0.5 else nn.reciprocal(value)
    kind = y.dtype if isinstance(y, Value) else y.dtype.name if y is not None else ""
    if value.dtype in INTEGERS and kind in FLOATS:
        return nn.cast(nn.power(nn.cast(value, kind), value_of(y)), value.dtype)
    return nn.power(value, value_of(y, value.dtype))


@onnx_op("Mod")
def modulo(_: Node, x: Operand, y: Operand, fmod: int = 0) -> Value:
    """The remainder, of the sign of x; that of the sign of y is of integers."""
    left, right = values_of(x, y)
    return nn.fmod(left, right) if fmod else nn.remainder(left, right)


@onnx_op("Clip")
def clip(_: Node, x: Operand, low: Operand = None, high: Operand = None) -> Value:
    """`min(max(x, low), high)`; a bound that is known is a part of the expression."""
    value = value_of(x)
    bounds = [_bound(bound, value) for bound in (low, high)]
    return value * 1.0 if bounds == [None, None] else nn.clamp(value, *bounds)


def _bound(bound: Operand, like: Value) -> Value | float | None:
    if bound is None:
        return None
    number = scalar_of(bound)
    return value_of(bound, like.dtype) if number is None else number


@onnx_op("Where")
def where(_: Node, condition: Operand, x: Operand, y: Operand) -> Value:
    """`x` where the condition holds."""
    left, right = values_of(x, y)
    return nn.where(truth_of(condition), left, right)


@onnx_op("IsInf")
def isinf(_: Node, x: Operand, detect_negative: int = 1, detect_positive: int = 1) -> Value:
    """inf, -inf, or both."""
    value = value_of(x)
    if detect_negative and detect_positive:
        return truth_of(nn.isinf(value))
    if not (detect_negative or detect_positive):
        return truth_of(value * 0.0)
    sign = "-" if detect_negative else ""
    return truth_of(pointwise("isinf", f"where({{0}} == {sign}inf, 1.0, 0.0)", value))


# -- activations -------------------------------------------------------------------------------------------------------


@onnx_op("LeakyRelu")
def leaky_relu(_: Node, x: Operand, alpha: float = 0.01) -> Value:
    """`alpha * x` below 0."""
    return nn.leaky_relu(value_of(x), alpha)


@onnx_op("PRelu")
def prelu(_: Node, x: Operand, slope: Operand) -> Value:
    """`slope * x` below 0, by a slope that broadcasts."""
    return pointwise("prelu", "where({0} < 0.0, {1} * {0}, {0})", *values_of(x, slope))


@onnx_op("Elu")
def elu(_: Node, x: Operand, alpha: float = 1.0) -> Value:
    """`alpha * (exp(x) - 1)` below 0."""
    return nn.elu(value_of(x), alpha)


@onnx_op("Celu")
def celu(_: Node, x: Operand, alpha: float = 1.0) -> Value:
    """`alpha * (exp(x / alpha) - 1)` below 0."""
    return nn.elu(value_of(x), alpha, 1.0, 1 / alpha)


@onnx_op("Selu")
def selu(
    _: Node, x: Operand, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875
) -> Value:
    """`gamma * elu(x, alpha)`."""
    return nn.elu(value_of(x), alpha, gamma)


@onnx_op("HardSigmoid")
def hard_sigmoid(_: Node, x: Operand, alpha: float = 0.2, beta: float = 0.5) -> Value:
    """`min(max(alpha * x + beta, 0), 1)`."""
    line = f"({float(alpha)!r}) * {{0}} + ({float(beta)!r})"
    return pointwise("hardsigmoid", f"min(max({line}, 0.0), 1.0)", value_of(x))


@onnx_op("ThresholdedRelu")
def thresholded_relu(_: Node, x: Operand, alpha: float = 1.0) -> Value:
    """0 up to a threshold."""
    return pointwise("thresholded_relu", f"where({{0}} > ({float(alpha)!r}), {{0}}, 0.0)", value_of(x))


@onnx_op("Shrink")
def shrink(_: Node, x: Operand, bias: float = 0.0, lambd: float = 0.5) -> Value:
    """0 between -lambd and lambd, else moved towards 0 by a bias."""
    limit, moved = f"({float(lambd)!r})", f"({float(bias)!r})"
    text = f"where({{0}} < -{limit}, {{0}} + {moved}, where({{0}} > {limit}, {{0}} - {moved}, 0.0))"
    return pointwise("shrink", text, value_of(x))


@onnx_op("Softsign")
def softsign(_: Node, x: Operand) -> Value:
    """`x / (1 + |x|)`."""
    return pointwise("softsign", "{0} / (1.0 + abs({0}))", value_of(x))


@onnx_op("Swish")
def swish(_: Node, x: Operand, alpha: float = 1.0) -> Value:
    """`x * sigmoid(alpha * x)`."""
    if alpha == 1:
        return nn.silu(value_of(x))
    return pointwise("swish", f"{{0}} / (1.0 + exp(-({float(alpha)!r}) * {{0}}))", value_of(x))


@onnx_op("Gelu")
def gelu(_: Node, x: Operand, approximate: Literal["none", "tanh"] = "none") -> Value:
    """Exact, or by tanh."""
    return nn.gelu(value_of(x), approximate)


# -- types and copies --------------------------------------------------------------------------------------------------


@onnx_op("Identity")
def identity(_: Node, x: Operand) -> Operand:
    """The value itself."""
    return x


@onnx_op("Cast")
def cast(_: Node, x: Operand, to: str = "", saturate: int = 1, round_mode: str = "up") -> Value:
    """Another type; truth values are true where the value is not 0."""
    value = value_of(x)
    if to not in TYPES:
        raise Unsupported(f"casts to {to}; values are {', '.join(TYPES)}")
    return value if value.dtype == to else nn.cast(value, to)


@onnx_op("BitCast")
def bit_cast(_: Node, x: Operand, to: str = "") -> Value:
    """The same bits as another type: integers of the same size, with and without sign, and bool as such."""
    value, wanted = value_of(x), element_type(to)
    if wanted is None or {value.dtype, wanted} & {*FLOATS} or ITEMSIZE[value.dtype] != ITEMSIZE[wanted]:
        raise Unsupported(
            f"reads the bits of {value.dtype} as {to}; between integers of the same size it is computed"
        )
    return value if value.dtype == wanted else nn.cast(value, wanted)


@onnx_op("CastLike")
def cast_like(node: Node, x: Operand, like: Operand, saturate: int = 1, round_mode: str = "up") -> Value:
    """The type of another operand."""
    if like is None:
        raise Unsupported("has no operand whose type it takes")
    return cast(node, x, like.dtype if isinstance(like, Value) else like.dtype.name)


@onnx_op("Dropout")
def dropout(
    node: Node, x: Operand, ratio: Operand = None, training: Operand = None, seed: int = 0
) -> tuple[Value, Value] | Value:
    """The identity outside of training, and a mask of ones."""
    wanted = training is not None and bool(node.numbers(training, "training_mode").any())
    if wanted and (ratio is None or scalar_of(ratio) != 0):
        raise Unsupported("draws random numbers: export the model for inference")
    value = value_of(x)
    if node.results == 1:
        return value
    return value, nn.expand(nn.constant(np.array(True)), value.shape)
