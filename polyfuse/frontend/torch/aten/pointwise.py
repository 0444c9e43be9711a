"""Importers of what acts element by element: arithmetic, comparisons, choices, activations, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from polyfuse import nn
from polyfuse.frontend.importers import Unsupported, converted, required
from polyfuse.frontend.torch.aten.registry import ATEN, Result, aten, floating
from polyfuse.nn.graph import INTEGERS, Value, pointwise

UNARY: dict[str, Callable[[Value], Value]] = {
    "abs": nn.abs,
    "acos": nn.acos,
    "acosh": nn.acosh,
    "asin": nn.asin,
    "asinh": nn.asinh,
    "atan": nn.atan,
    "atanh": nn.atanh,
    "ceil": nn.ceil,
    "cos": nn.cos,
    "cosh": nn.cosh,
    "erf": nn.erf,
    "exp": nn.exp,
    "floor": nn.floor,
    "exp2": nn.exp2,
    "expm1": nn.expm1,
    "log": nn.log,
    "log10": nn.log10,
    "log1p": nn.log1p,
    "log2": nn.log2,
    "log_sigmoid": nn.log_sigmoid,
    "hardsigmoid": nn.hardsigmoid,
    "hardswish": nn.hardswish,
    "mish": nn.mish,
    "neg": lambda x: -x,
    "reciprocal": nn.reciprocal,
    "relu": nn.relu,
    "relu6": nn.relu6,
    "round": nn.round,
    "rsqrt": nn.rsqrt,
    "sigmoid": nn.sigmoid,
    "sign": nn.sign,
    "silu": nn.silu,
    "sin": nn.sin,
    "sinh": nn.sinh,
    "sqrt": nn.sqrt,
    "square": nn.square,
    "tan": nn.tan,
    "tanh": nn.tanh,
    "trunc": nn.trunc,
}
"""Operators of one operand, by their names; each is also the function's name in `polyfuse.nn`."""

COMPARISONS: dict[str, Callable[[Any, Any], Value]] = {
    "eq": nn.equal,
    "ge": nn.greater_equal,
    "gt": nn.greater,
    "le": nn.less_equal,
    "lt": nn.less,
    "ne": nn.not_equal,
}


def _unary(function: Callable[[Value], Value]) -> Callable[[Result, Any], Value]:
    return lambda result, x: function(_float(result, x))


def _comparison(function: Callable[[Any, Any], Value]) -> Callable[[Result, Any, Any], Value]:
    def compare(_: Result, x: Any, y: Any) -> Value:
        integers = {one.dtype for one in (x, y) if isinstance(one, Value)} & set(INTEGERS)
        if integers and all(
            isinstance(one, int) or getattr(one, "dtype", None) in integers for one in (x, y)
        ):
            return nn.cast(function(x, y), "float32")
        return function(*_of_one_type(x, y))

    return compare


def _float(result: Result, x: Any) -> Any:
    """The operand in the result's type."""
    return converted(x, floating(result))


def _floats(result: Result, *operands: Any) -> list[Any]:
    """The operands in the result's type."""
    dtype = floating(result)
    return [converted(x, dtype) for x in operands]


def _of_one_type(*operands: Any) -> list[Any]:
    """Operands of which no result says a type: in the first's if there are halves alone, else in the widest."""
    types = [x.dtype for x in operands if isinstance(x, Value)]
    if any(dtype in INTEGERS for dtype in types):
        raise Unsupported("compares integers with other numbers: cast them to a floating type first")
    wide = max(types, key=("float16", "bfloat16", "float32", "float64").index)
    return [converted(x, wide) for x in operands]


for _name, _function in UNARY.items():
    ATEN[f"aten.{_name}.default"] = _unary(_function)
for _name, _compare in COMPARISONS.items():
    ATEN[f"aten.{_name}.Tensor"] = ATEN[f"aten.{_name}.Scalar"] = _comparison(_compare)


@aten("log_sigmoid_forward.default")
def log_sigmoid_forward(result: Result, x: Any) -> tuple[Value, Value]:
    """The second result is a buffer of the gradient, of which the decomposed gradient reads nothing."""
    (value,) = _floats(result, x)
    return nn.log_sigmoid(value), value


@aten("add.Tensor", "add.Scalar")
def add(result: Result, x: Any, y: Any, alpha: float = 1) -> Value:
    """`x + alpha * y`."""
    x, y = _floats(result, x, y)
    if alpha == 1:
        return nn.add(x, y)
    return nn.add(x, y * alpha)


@aten("sub.Tensor", "sub.Scalar")
def subtract(result: Result, x: Any, y: Any, alpha: float = 1) -> Value:
    """`x - alpha * y`."""
    x, y = _floats(result, x, y)
    return nn.subtract(x, y if alpha == 1 else y * alpha)


@aten("rsub.Scalar", "rsub.Tensor")
def reversed_subtract(result: Result, x: Any, y: Any, alpha: float = 1) -> Value:
    """`y - alpha * x`."""
    x, y = _floats(result, x, y)
    return nn.subtract(y, x if alpha == 1 else x * alpha)


@aten("mul.Tensor", "mul.Scalar")
def multiply(result: Result, x: Any, y: Any) -> Value:
    """`x * y`."""
    return nn.multiply(*_floats(result, x, y))


@aten("div.Tensor", "div.Scalar")
def divide(result: Result, x: Any, y: Any) -> Value:
    """`x / y`."""
    return nn.divide(*_floats(result, x, y))


@aten("div.Tensor_mode", "div.Scalar_mode")
def divide_rounded(
    result: Result, x: Any, y: Any, *, rounding_mode: Literal["floor", "trunc"] | None = None
) -> Value:
    """`x / y`, rounded down or towards 0."""
    left, right = _floats(result, x, y)
    return nn.divide(left, right, rounding_mode)


@aten("fmod.Tensor", "fmod.Scalar")
def fmod(result: Result, x: Any, y: Any) -> Value:
    """The remainder of the sign of x."""
    return nn.fmod(*_floats(result, x, y))


@aten("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def remainder(result: Result, x: Any, y: Any) -> Value:
    """The remainder of the sign of y."""
    return nn.remainder(*_floats(result, x, y))


@aten("logical_xor.default", "bitwise_xor.Tensor")
def logical_xor(result: Result, x: Any, y: Any) -> Value:
    """One, and not both."""
    return nn.logical_xor(*_truth(result, x, y))


@aten("maximum.default")
def maximum(result: Result, x: Any, y: Any) -> Value:
    """The larger."""
    return nn.maximum(*_floats(result, x, y))


@aten("minimum.default")
def minimum(result: Result, x: Any, y: Any) -> Value:
    """The smaller."""
    return nn.minimum(*_floats(result, x, y))


@aten("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def power(result: Result, x: Any, y: Any) -> Value:
    """`x ** y`; squares, roots and reciprocals as what they are."""
    x, y = _floats(result, x, y)
    special: dict[float, Callable[[Any], Value]] = {
        1: lambda v: v * 1.0,
        2: nn.square,
        0.5: nn.sqrt,
        -0.5: nn.rsqrt,
        -1: nn.reciprocal,
    }
    if isinstance(y, int | float) and y in special:
        return special[y](x)
    if isinstance(y, int | float) and y == 3:
        return pointwise("cube", "{0} * {0} * {0}", x)
    return nn.power(x, y)


@aten("addcmul.default")
def addcmul(result: Result, x: Any, y: Any, z: Any, value: float = 1) -> Value:
    """`x + value * y * z`."""
    x, y, z = _floats(result, x, y, z)
    return pointwise("addcmul", f"{{0}} + ({float(value)!r}) * {{1}} * {{2}}", x, y, z)


@aten("addcdiv.default")
def addcdiv(result: Result, x: Any, y: Any, z: Any, value: float = 1) -> Value:
    """`x + value * y / z`."""
    x, y, z = _floats(result, x, y, z)
    return pointwise("addcdiv", f"{{0}} + ({float(value)!r}) * {{1}} / {{2}}", x, y, z)


@aten("lerp.Scalar", "lerp.Tensor")
def lerp(result: Result, x: Any, y: Any, weight: Any) -> Value:
    """`x + weight * (y - x)`."""
    return pointwise("lerp", "{0} + {2} * ({1} - {0})", *_floats(result, x, y, weight))


@aten("clamp.default", "clamp.Tensor", "hardtanh.default", "clip.default")
def clamp(result: Result, x: Any, low: Any = None, high: Any = None) -> Value:
    """`min(max(x, low), high)`."""
    return nn.clamp(*_floats(result, x, low, high))


@aten("clamp_min.default", "clamp_min.Tensor")
def clamp_min(result: Result, x: Any, low: Any) -> Value:
    """`max(x, low)`."""
    return nn.clamp(*_floats(result, x, low))


@aten("clamp_max.default", "clamp_max.Tensor")
def clamp_max(result: Result, x: Any, high: Any) -> Value:
    """`min(x, high)`."""
    x, high = _floats(result, x, high)
    return nn.clamp(x, None, high)


@aten("where.self", "where.ScalarOther", "where.ScalarSelf")
def where(result: Result, condition: Any, x: Any, y: Any) -> Value:
    """`x` where the condition holds."""
    return nn.where(*_floats(result, condition, x, y))


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(result: Result, x: Any, mask: Any, value: Any) -> Value:
    """`value` where the mask holds."""
    x, mask, value = _floats(result, x, mask, value)
    return nn.where(mask, value, x)


@aten("logical_and.default", "bitwise_and.Tensor")
def logical_and(result: Result, x: Any, y: Any) -> Value:
    """Both."""
    return nn.logical_and(*_truth(result, x, y))


@aten("logical_or.default", "bitwise_or.Tensor")
def logical_or(result: Result, x: Any, y: Any) -> Value:
    """One or both."""
    return nn.logical_or(*_truth(result, x, y))


@aten("logical_not.default", "bitwise_not.default")
def logical_not(result: Result, x: Any) -> Value:
    """Not."""
    return nn.logical_not(*_truth(result, x))


@aten("isnan.default")
def isnan(_: Result, x: Any) -> Value:
    """Not a number."""
    return nn.isnan(*_of_one_type(x))


@aten("isinf.default")
def isinf(_: Result, x: Any) -> Value:
    """inf or -inf."""
    return nn.isinf(*_of_one_type(x))


def _truth(result: Result, *operands: Any) -> list[Any]:
    if result.dtype != "bool":
        raise Unsupported(f"works on the bits of {result.dtype}; of bool it is computed")
    return _of_one_type(*operands)


@aten("gelu.default")
def gelu(result: Result, x: Any, approximate: str = "none") -> Value:
    """Exact, or by tanh."""
    return nn.gelu(_float(result, x), approximate)  # type: ignore[arg-type]  # gelu checks the name


@aten("leaky_relu.default")
def leaky_relu(result: Result, x: Any, slope: float = 0.01) -> Value:
    """`slope * x` below 0."""
    return nn.leaky_relu(_float(result, x), slope)


@aten("elu.default")
def elu(result: Result, x: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    """ELU; SELU and CELU by their scales."""
    return nn.elu(_float(result, x), alpha, scale, input_scale)


@aten("selu.default")
def selu(result: Result, x: Any) -> Value:
    """ELU with the constants of Klambauer et al., Self-Normalizing Neural Networks (2017)."""
    return nn.elu(_float(result, x), 1.6732632423543772, 1.0507009873554805)


@aten("celu.default")
def celu(result: Result, x: Any, alpha: float = 1.0) -> Value:
    """ELU of x / alpha, times alpha."""
    return nn.elu(_float(result, x), alpha, 1.0, 1.0 / alpha)


@aten("softplus.default")
def softplus(result: Result, x: Any, beta: float = 1, threshold: float = 20) -> Value:
    """`log(1 + exp(beta * x)) / beta`."""
    return nn.softplus(_float(result, x), beta, threshold)


@aten("prelu.default", "_prelu_kernel.default")
def prelu(result: Result, x: Any, weight: Any) -> Value:
    """Leaky by a weight for each channel, which lies along axis 1."""
    x, weight = _floats(result, x, weight)
    shape = [1] * x.rank
    if weight.rank == 1 and x.rank > 1:
        shape[1] = weight.shape[0]
        weight = nn.reshape(weight, shape)
    return pointwise("prelu", "where({0} > 0.0, {0}, {1} * {0})", x, weight)


@aten("glu.default")
def glu(result: Result, x: Any, dim: int = -1) -> Value:
    """One half times the sigmoid of the other."""
    first, second = nn.chunk(_float(result, x), 2, dim)
    return first * nn.sigmoid(second)


@aten("threshold.default")
def threshold(result: Result, x: Any, bound: float, value: float) -> Value:
    """`value` where x <= bound; NaN stays NaN."""
    return pointwise("threshold", "where({0} <= {1}, {2}, {0})", _float(result, x), bound, value)


@aten("threshold_backward.default")
def threshold_backward(result: Result, gradient: Any, x: Any, bound: float) -> Value:
    """The gradient of ReLU: 0 where x <= bound."""
    gradient, x = _floats(result, gradient, x)
    return pointwise("threshold_backward", "where({1} <= {2}, 0.0, {0})", gradient, x, bound)


@aten("sigmoid_backward.default")
def sigmoid_backward(result: Result, gradient: Any, y: Any) -> Value:
    """`gradient * y * (1 - y)`."""
    return pointwise("sigmoid_backward", "{0} * {1} * (1.0 - {1})", *_floats(result, gradient, y))


@aten("tanh_backward.default")
def tanh_backward(result: Result, gradient: Any, y: Any) -> Value:
    """`gradient * (1 - y²)`."""
    return pointwise("tanh_backward", "{0} * (1.0 - {1} * {1})", *_floats(result, gradient, y))


@aten("_to_copy.default", "to.dtype")
def to_copy(result: Result, x: Any, *_: Any, device: Any = None, **__: Any) -> Value:
    """Another floating type, of integers too, on the same device."""
    value = required(x, "the tensor")
    if device is not None and str(device) != "cpu":
        raise Unsupported(f"moves a tensor to {device}: move it before the call")
    if value.dtype in INTEGERS and result.element not in INTEGERS:
        return nn.cast(nn.not_equal(value, 0) if result.dtype == "bool" else value, result.element)
    if result.dtype == "bool":
        return nn.not_equal(_of_one_type(value)[0], 0.0)
    return nn.cast(converted(value, floating(result)), floating(result))


@aten("clone.default", "alias.default", "detach.default", "lift_fresh_copy.default", "contiguous.default")
def clone(_: Result, x: Any, **__: Any) -> Value:
    """The value itself: values have no memory that could be shared."""
    return required(x, "the tensor")


@aten("dropout.default")
def dropout(_: Result, x: Any, p: float, train: bool) -> Value:
    """The identity outside of training."""
    if train and p > 0:
        raise Unsupported("draws random numbers; call model.eval(), or let the node run in eager")
    return required(x, "the tensor")
