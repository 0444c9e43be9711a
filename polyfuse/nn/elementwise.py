"""Functions of single elements beyond the common activations: comparisons, choices, powers, and what is made of them.

A truth value is a number, 1 or 0, of the element type of what was compared; anything but 0 is true. Values of bool are
truth values too: `nn.cast(nn.less(a, b), "bool")` makes one. Where a formula
loses digits near 0 (expm1, log1p), another is used there.
"""

from __future__ import annotations

import math

from polyfuse.errors import BadArgument
from polyfuse.nn.graph import INTEGERS, REMAINDER, Operand, Value, chosen, compared, pointwise


def abs(x: Value) -> Value:
    """The absolute value. Statement abs, tensor a.

    Args:
        x: A value of floats or integers.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats or integers.
    """
    return pointwise("abs", "abs({0})", x, integers=True)


def power(x: Operand, y: Operand) -> Value:
    """`x ** y`, broadcast as in NumPy. Statement pow, tensor a.

    Args:
        x: The base: a value, an array or a number.
        y: The exponent, as x; one of the two is a value.

    Returns:
        A value of the broadcast shape and the operands' type.

    Raises:
        BadArgument: if neither is a value, their types differ, or their shapes do not broadcast.
    """
    return pointwise("pow", "{0} ** {1}", x, y, integers=True)


def square(x: Value) -> Value:
    """`x * x`. Statement square, tensor a.

    Args:
        x: A value of floats or integers.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats or integers.
    """
    return pointwise("square", "{0} * {0}", x, integers=True)


def reciprocal(x: Value) -> Value:
    """`1 / x`. Statement reciprocal, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("reciprocal", "1.0 / {0}", x)


def rsqrt(x: Value) -> Value:
    """`1 / sqrt(x)`. Statement rsqrt, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("rsqrt", "1.0 / sqrt({0})", x)


def sin(x: Value) -> Value:
    """The sine. Statement sin, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("sin", "sin({0})", x)


def cos(x: Value) -> Value:
    """The cosine. Statement cos, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("cos", "cos({0})", x)


def tan(x: Value) -> Value:
    """The tangent. Statement tan, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("tan", "tan({0})", x)


def asin(x: Value) -> Value:
    """The angle whose sine is x; NaN outside of [-1, 1]. Statement asin, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("asin", "asin({0})", x)


def acos(x: Value) -> Value:
    """The angle whose cosine is x; NaN outside of [-1, 1]. Statement acos, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("acos", "acos({0})", x)


def atan(x: Value) -> Value:
    """The angle whose tangent is x. Statement atan, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("atan", "atan({0})", x)


def sinh(x: Value) -> Value:
    """The hyperbolic sine. Statement sinh, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("sinh", "sinh({0})", x)


def cosh(x: Value) -> Value:
    """The hyperbolic cosine. Statement cosh, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("cosh", "cosh({0})", x)


def asinh(x: Value) -> Value:
    """The inverse of the hyperbolic sine. Statement asinh, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("asinh", "asinh({0})", x)


def acosh(x: Value) -> Value:
    """The inverse of the hyperbolic cosine; NaN below 1. Statement acosh, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("acosh", "acosh({0})", x)


def atanh(x: Value) -> Value:
    """The inverse of the hyperbolic tangent; NaN outside of [-1, 1]. Statement atanh, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("atanh", "atanh({0})", x)


def erf(x: Value) -> Value:
    """The error function. Statement erf, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("erf", "erf({0})", x)


def exp2(x: Value) -> Value:
    """`2 ** x`. Statement exp2, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("exp2", f"exp({math.log(2)!r} * {{0}})", x)


def log2(x: Value) -> Value:
    """The logarithm to base 2. Statement log2, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("log2", f"log({{0}}) / {math.log(2)!r}", x)


def log10(x: Value) -> Value:
    """The logarithm to base 10. Statement log10, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("log10", f"log({{0}}) / {math.log(10)!r}", x)


def log1p(x: Value) -> Value:
    """`log(1 + x)` without loss of digits near 0. Statement log1p, tensor a.

    With u = 1 + x rounded, log(u) * (x / (u - 1)) makes up for the rounding (Goldberg, What Every Computer Scientist
    Should Know About Floating-Point Arithmetic, 1991, theorem 4). From 1 on the rounding costs 1.5 units in
    the last place at most, and up to -1 there is none.

    Args:
        x: The value.

    Returns:
        A value of the shape of x.
    """
    u = "(1.0 + {0})"
    near = f"where({u} == 1.0, {{0}}, log({u}) * ({{0}} / ({u} - 1.0)))"
    return pointwise("log1p", f"where(abs({{0}}) < 1.0, {near}, log({u}))", x)


def expm1(x: Value) -> Value:
    """`exp(x) - 1` without loss of digits near 0. Statement expm1, tensor a.

    Between -1 and 1 it is 2 t / (1 - t) with t = tanh(x / 2).

    Args:
        x: The value.

    Returns:
        A value of the shape of x.
    """
    return pointwise("expm1", _EXPM1, x)


_EXPM1 = "where(abs({0}) < 1.0, 2.0 * tanh(0.5 * {0}) / (1.0 - tanh(0.5 * {0})), exp({0}) - 1.0)"


def sign(x: Value) -> Value:
    """-1, 0 or 1; 0 of NaN, as in torch. Statement sign, tensor a.

    Args:
        x: A value of floats or integers.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats or integers.
    """
    text = "where({0} > 0.0, 1.0, where({0} < 0.0, -1.0, 0.0))"
    return pointwise("sign", text, x, integers=text.replace(".0", ""))


def floor(x: Value) -> Value:
    """The largest whole number that is not larger. Statement floor, tensor a.

    Args:
        x: A value of floats or integers.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats or integers.
    """
    return pointwise("floor", "floor({0})", x, integers="{0}")


def ceil(x: Value) -> Value:
    """The smallest whole number that is not smaller. Statement ceil, tensor a.

    Args:
        x: A value of floats or integers.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats or integers.
    """
    return pointwise("ceil", "ceil({0})", x, integers="{0}")


def trunc(x: Value) -> Value:
    """The whole number next to x on the side of 0. Statement trunc, tensor a.

    Args:
        x: A value of floats or integers.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats or integers.
    """
    return pointwise("trunc", "where({0} < 0.0, ceil({0}), floor({0}))", x, integers="{0}")


def round(x: Value) -> Value:
    """The nearest whole number, the even one of two that are equally near. Statement rint, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    below, part = "floor({0})", "({0} - floor({0}))"
    even = f"2.0 * ceil(0.5 * {below})"
    return pointwise("rint", f"where({part} < 0.5, {below}, where({part} > 0.5, {below} + 1.0, {even}))", x)


def fmod(x: Operand, y: Operand) -> Value:
    """`x - y * trunc(x / y)`, of the sign of x, as C's and NumPy's fmod. Statement fmod, tensor a.

    The quotient is rounded: where |x / y| exceeds the largest number with all digits before the point, the result is
    not exact.

    Args:
        x: The dividend.
        y: The divisor.

    Returns:
        The remainders, of the broadcast shape.
    """
    rest = "{0} - {1} * where({0} / {1} < 0.0, ceil({0} / {1}), floor({0} / {1}))"
    text = f"where(abs({{0}}) < abs({{1}}), {{0}}, {rest})"
    whole = "{0} % {1} - where({0} % {1} == 0, 0, where(({0} ^ {1}) < 0, {1}, 0))"
    return pointwise("fmod", text, x, y, integers=whole)


def remainder(x: Operand, y: Operand) -> Value:
    """`x - y * floor(x / y)`, of the sign of y, as Python's % and torch.remainder. Statement remainder, tensor a.

    Args:
        x: The dividend.
        y: The divisor; the quotient is rounded as for `fmod`.

    Returns:
        The remainders, of the broadcast shape.
    """
    return pointwise("remainder", REMAINDER, x, y, integers="{0} % {1}")


# -- bits of integers --------------------------------------------------------------------------------------------------


def bitwise_and(x: Operand, y: Operand) -> Value:
    """The bits that both integers have. Statement bitwise_and, tensor a.

    Args:
        x: A value or array of integers, or a whole number.
        y: As x; one of the two is a value.

    Returns:
        A value of the broadcast shape and the operands' type.

    Raises:
        BadArgument: if neither is a value, types differ or are no integers, or shapes do not broadcast.
    """
    return _of_bits("bitwise_and", "{0} & {1}", x, y)


def bitwise_or(x: Operand, y: Operand) -> Value:
    """The bits that one integer or both have. Statement bitwise_or, tensor a.

    Args:
        x: A value or array of integers, or a whole number.
        y: As x; one of the two is a value.

    Returns:
        A value of the broadcast shape and the operands' type.

    Raises:
        BadArgument: if neither is a value, types differ or are no integers, or shapes do not broadcast.
    """
    return _of_bits("bitwise_or", "{0} | {1}", x, y)


def bitwise_xor(x: Operand, y: Operand) -> Value:
    """The bits that one integer has and the other has not. Statement bitwise_xor, tensor a.

    Args:
        x: A value or array of integers, or a whole number.
        y: As x; one of the two is a value.

    Returns:
        A value of the broadcast shape and the operands' type.

    Raises:
        BadArgument: if neither is a value, types differ or are no integers, or shapes do not broadcast.
    """
    return _of_bits("bitwise_xor", "{0} ^ {1}", x, y)


def bitwise_not(x: Value) -> Value:
    """The bits that an integer has not: `-x - 1`. Statement bitwise_not, tensor a.

    Args:
        x: A value of integers.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of integers.
    """
    return _of_bits("bitwise_not", "-{0} - 1", x)


def left_shift(x: Operand, y: Operand) -> Value:
    """Integers with their bits moved up by y places: `x << y`. Statement left_shift, tensor a.

    Args:
        x: The numbers: a value or array of integers, or a whole number.
        y: The numbers of places, as x; one of the two is a value.

    Returns:
        A value of the broadcast shape and the operands' type.

    Raises:
        BadArgument: if neither is a value, types differ or are no integers, or shapes do not broadcast.
    """
    return _of_bits("left_shift", "{0} << {1}", x, y)


def right_shift(x: Operand, y: Operand) -> Value:
    """Integers with their bits moved down by y places: `x >> y`. Statement right_shift, tensor a.

    Args:
        x: The numbers: a value or array of integers, or a whole number.
        y: The numbers of places, as x; one of the two is a value.

    Returns:
        A value of the broadcast shape and the operands' type.

    Raises:
        BadArgument: if neither is a value, types differ or are no integers, or shapes do not broadcast.
    """
    return _of_bits("right_shift", "{0} >> {1}", x, y)


def _of_bits(kind: str, text: str, *operands: Operand) -> Value:
    for x in operands:
        if isinstance(x, Value) and x.dtype not in INTEGERS:
            raise BadArgument(f"{kind}: {x!r} has no bits; expected {', '.join(INTEGERS)}")
    return pointwise(kind, text, *operands, integers=True)


def clamp(x: Operand, low: Operand | None = None, high: Operand | None = None) -> Value:
    """`min(max(x, low), high)`; NaN stays NaN. Statement clamp, tensor a.

    Args:
        x: The value.
        low: The smallest result, or None.
        high: The largest result, or None.

    Returns:
        The clamped value; `high` where low > high.

    Raises:
        BadArgument: if both bounds are None.
    """
    if low is not None and high is not None:
        return pointwise("clamp", "min(max({0}, {1}), {2})", x, low, high, integers=True)
    if low is not None:
        return pointwise("clamp", "max({0}, {1})", x, low, integers=True)
    if high is not None:
        return pointwise("clamp", "min({0}, {1})", x, high, integers=True)
    raise BadArgument("clamp: give a lower bound, an upper bound, or both")


# -- truth values ------------------------------------------------------------------------------------------------------


def less(x: Operand, y: Operand) -> Value:
    """1 where x < y, else 0. Statement less, tensor a.

    Args:
        x: A value, an array or a number.
        y: As x; one of the two is a value.

    Returns:
        A value of the broadcast shape and the operands' type.

    Raises:
        BadArgument: if neither is a value, their types differ, or their shapes do not broadcast.
    """
    return compared("less", "<", x, y)


def less_equal(x: Operand, y: Operand) -> Value:
    """1 where x <= y, else 0. Statement less_equal, tensor a.

    Args:
        x: A value, an array or a number.
        y: As x; one of the two is a value.

    Returns:
        A value of the broadcast shape and the operands' type.

    Raises:
        BadArgument: if neither is a value, their types differ, or their shapes do not broadcast.
    """
    return compared("less_equal", "<=", x, y)


def greater(x: Operand, y: Operand) -> Value:
    """1 where x > y, else 0. Statement greater, tensor a.

    Args:
        x: A value, an array or a number.
        y: As x; one of the two is a value.

    Returns:
        A value of the broadcast shape and the operands' type.

    Raises:
        BadArgument: if neither is a value, their types differ, or their shapes do not broadcast.
    """
    return compared("greater", ">", x, y)


def greater_equal(x: Operand, y: Operand) -> Value:
    """1 where x >= y, else 0. Statement greater_equal, tensor a.

    Args:
        x: A value, an array or a number.
        y: As x; one of the two is a value.

    Returns:
        A value of the broadcast shape and the operands' type.

    Raises:
        BadArgument: if neither is a value, their types differ, or their shapes do not broadcast.
    """
    return compared("greater_equal", ">=", x, y)


def equal(x: Operand, y: Operand) -> Value:
    """1 where x == y, else 0. Statement equal, tensor a.

    Args:
        x: A value, an array or a number.
        y: As x; one of the two is a value.

    Returns:
        A value of the broadcast shape and the operands' type.

    Raises:
        BadArgument: if neither is a value, their types differ, or their shapes do not broadcast.
    """
    return compared("equal", "==", x, y)


def not_equal(x: Operand, y: Operand) -> Value:
    """1 where x != y, else 0: also where one is NaN. Statement not_equal, tensor a.

    Args:
        x: A value, an array or a number.
        y: As x; one of the two is a value.

    Returns:
        A value of the broadcast shape and the operands' type.

    Raises:
        BadArgument: if neither is a value, their types differ, or their shapes do not broadcast.
    """
    text = "where({0} == {1}, 0.0, 1.0)"
    return pointwise("not_equal", text, x, y, integers=text.replace(".0", ""), truths=True)


def isnan(x: Value) -> Value:
    """1 where x is NaN, else 0. Statement isnan, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("isnan", "where(abs({0}) >= 0.0, 0.0, 1.0)", x)


def isinf(x: Value) -> Value:
    """1 where x is inf or -inf, else 0. Statement isinf, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("isinf", "where(abs({0}) == inf, 1.0, 0.0)", x)


def logical_and(x: Operand, y: Operand) -> Value:
    """1 where neither x nor y is 0, else 0. Statement logical_and, tensor a.

    Args:
        x: A value, an array or a number.
        y: As x; one of the two is a value.

    Returns:
        A value of the broadcast shape and the operands' type.

    Raises:
        BadArgument: if neither is a value, their types differ, or their shapes do not broadcast.
    """
    text = "where({0} == 0.0, 0.0, where({1} == 0.0, 0.0, 1.0))"
    return pointwise("logical_and", text, x, y, integers=text.replace(".0", ""), truths=True)


def logical_or(x: Operand, y: Operand) -> Value:
    """1 where x or y is not 0, else 0. Statement logical_or, tensor a.

    Args:
        x: A value, an array or a number.
        y: As x; one of the two is a value.

    Returns:
        A value of the broadcast shape and the operands' type.

    Raises:
        BadArgument: if neither is a value, their types differ, or their shapes do not broadcast.
    """
    text = "where({0} == 0.0, where({1} == 0.0, 0.0, 1.0), 1.0)"
    return pointwise("logical_or", text, x, y, integers=text.replace(".0", ""), truths=True)


def logical_xor(x: Operand, y: Operand) -> Value:
    """1 where one of x and y is 0 and the other is not, else 0. Statement logical_xor, tensor a.

    Args:
        x: A value, an array or a number.
        y: As x; one of the two is a value.

    Returns:
        A value of the broadcast shape and the operands' type.

    Raises:
        BadArgument: if neither is a value, their types differ, or their shapes do not broadcast.
    """
    text = "where({0} == 0.0, where({1} == 0.0, 0.0, 1.0), where({1} == 0.0, 1.0, 0.0))"
    return pointwise("logical_xor", text, x, y, integers=text.replace(".0", ""), truths=True)


def logical_not(x: Value) -> Value:
    """1 where x is 0, else 0. Statement logical_not, tensor a.

    Args:
        x: A value of numbers or truth values.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value.
    """
    text = "where({0} == 0.0, 1.0, 0.0)"
    return pointwise("logical_not", text, x, integers=text.replace(".0", ""), truths=True)


def where(condition: Operand, x: Operand, y: Operand) -> Value:
    """X where the condition is not 0, else y; all three broadcast as in NumPy. Statement where, tensor a.

    Args:
        condition: Truth values: bool, or such as `nn.less(a, b)`, of the element type of x and y.
        x: What is taken where the condition holds.
        y: What is taken elsewhere.

    Returns:
        A value of the broadcast shape.
    """
    if isinstance(condition, Value) and condition.dtype == "bool":
        return chosen(condition, x, y)
    return pointwise(
        "where", "where({0} == 0.0, {2}, {1})", condition, x, y, integers="where({0} == 0, {2}, {1})"
    )


# -- activations -------------------------------------------------------------------------------------------------------


def relu6(x: Value) -> Value:
    """`min(max(x, 0), 6)`. Statement relu6, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("relu6", "min(max({0}, 0), 6)", x)


def hardsigmoid(x: Value) -> Value:
    """`min(max(x + 3, 0), 6) / 6`. Statement hardsigmoid, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("hardsigmoid", "min(max({0} + 3.0, 0), 6) / 6.0", x)


def hardswish(x: Value) -> Value:
    """`x * hardsigmoid(x)`. Howard et al., Searching for MobileNetV3 (2019). Statement hardswish, tensor a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    return pointwise("hardswish", "{0} * min(max({0} + 3.0, 0), 6) / 6.0", x)


def elu(x: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Value:
    """`scale * x where x > 0, else scale * alpha * (exp(input_scale * x) - 1)`. Statement elu, tensor a.

    Args:
        x: The value.
        alpha: The limit towards -inf.
        scale: The factor of all elements: selu has one.
        input_scale: The factor of what is exponentiated: celu has 1 / alpha.

    Returns:
        A value of the shape of x.
    """
    inner = _EXPM1.format(f"({float(input_scale)!r} * {{0}})" if input_scale != 1 else "{0}")
    text = f"where({{0}} <= 0.0, ({float(alpha)!r}) * {inner}, {{0}})"
    return pointwise("elu", text if scale == 1 else f"{float(scale)!r} * {text}", x)


def softplus(x: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    """`log(1 + exp(beta * x)) / beta`; x itself where beta * x > threshold. Statements exp, log1p, softplus; tensors a.

    Args:
        x: The value.
        beta: How sharply it bends.
        threshold: Beyond it, the result is x.

    Returns:
        A value of the shape of x.
    """
    steep = x * beta if beta != 1 else x
    bent = log1p(
        pointwise("exp", f"exp(where({{0}} > {float(threshold)!r}, {float(threshold)!r}, {{0}}))", steep)
    )
    text = f"where({float(beta)!r} * {{0}} > {float(threshold)!r}, {{0}}, {{1}} / {float(beta)!r})"
    return pointwise("softplus", text, x, bent)


def log_sigmoid(x: Value) -> Value:
    """`-log(1 + exp(-x))`, without overflow. Statements decay, log1p, log_sigmoid; tensors a.

    Args:
        x: A value of floats.

    Returns:
        A value of the shape and type of x.

    Raises:
        BadArgument: if x is no value of floats.
    """
    decay = pointwise("decay", "exp(where({0} < 0.0, {0}, -{0}))", x)  # -abs(x), with one slope at 0
    return pointwise("log_sigmoid", "min({0}, 0) - {1}", x, log1p(decay))


def mish(x: Value) -> Value:
    """`x * tanh(softplus(x))`. Misra, Mish (2019). Statements exp, mish; tensors a.

    tanh(log(1 + w)) = n / (n + 2) with w = exp(x) and n = w (w + 2); from x = 20 on it is 1 to 17 digits.

    Args:
        x: The value.

    Returns:
        A value of the shape of x.
    """
    n = "({1} * ({1} + 2.0))"
    return pointwise("mish", f"{{0}} * ({n} / ({n} + 2.0))", x, pointwise("exp", "exp(min({0}, 20.0))", x))
