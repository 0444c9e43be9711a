"""Importers of quantised operators: numbers q of 8 or 16 bits that stand for scale * (q - zero point).

A scale is one number, one for each element of an axis, or one for each block of an axis. Products are sums of int32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polyfuse import nn
from polyfuse.frontend.onnx.operators.images import conv
from polyfuse.frontend.onnx.operators.products import matmul
from polyfuse.frontend.onnx.operators.registry import (
    Array,
    Node,
    Operand,
    Unsupported,
    axes_within,
    onnx_op,
    value_of,
)
from polyfuse.ir import DType
from polyfuse.ir.number_types import NUMBER_TYPES
from polyfuse.nn.graph import FLOATS, INTEGERS, Value
from polyfuse.nn.sizes import number

QUANTISED: tuple[DType, ...] = ("int8", "uint8", "int16", "uint16")
"""The element types of quantised tensors."""


@onnx_op("QuantizeLinear")
def quantize(
    _: Node,
    x: Operand,
    scale: Operand,
    zero: Operand = None,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Value:
    """`x / scale`, rounded to even, plus the zero point; what the type cannot hold is its nearest number."""
    if precision:
        raise Unsupported("divides in another precision than that of its scale: leave the attribute out")
    value = value_of(x)
    to = _type_of(zero) or {2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 0: "uint8"}.get(output_dtype, "")
    shaped = _along(scale, value, axis, block_size)
    if value.dtype not in FLOATS:
        value = nn.cast(value, shaped.dtype)
    point = None if zero is None else _along(zero, value, axis, block_size)
    return _saturated(value / nn.cast(shaped, value.dtype), point, to)


@onnx_op("DequantizeLinear")
def dequantize(
    _: Node,
    x: Operand,
    scale: Operand,
    zero: Operand = None,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Value:
    """`(x - zero point) * scale`, computed in float32."""
    value = value_of(x)
    if value.dtype not in INTEGERS:
        raise Unsupported(f"x is {value.dtype}, expected integers of at least 8 bits")
    shaped = _along(scale, value, axis, block_size)
    to = {1: "float32", 10: "float16", 16: "bfloat16", 0: shaped.dtype}.get(output_dtype, "")
    if not to:
        raise Unsupported(f"gives the element type {output_dtype}; expected float32, float16 or bfloat16")
    found = nn.cast(value, "float32")
    if zero is not None:
        found = found - nn.cast(_along(zero, value, axis, block_size), "float32")
    return _as(found * _as(shaped, "float32"), to)


@onnx_op("MatMulInteger")
def matmul_integer(
    node: Node, a: Operand, b: Operand, a_zero: Operand = None, b_zero: Operand = None
) -> Value:
    """`(a - its zero point) @ (b - its zero point)`, in int32."""
    return matmul(node, _centred(a, _as_rows(a_zero)), _centred(b, b_zero))


@onnx_op("QLinearMatMul")
def qlinear_matmul(
    node: Node,
    a: Operand,
    a_scale: Operand,
    a_zero: Operand,
    b: Operand,
    b_scale: Operand,
    b_zero: Operand,
    y_scale: Operand,
    y_zero: Operand,
) -> Value:
    """A product of quantised matrices, quantised again."""
    found = matmul_integer(node, a, b, a_zero, b_zero)
    factor = value_of(_as_rows(a_scale)) * value_of(b_scale) / value_of(y_scale)
    return _requantised(found, factor, y_zero)


@onnx_op("ConvInteger")
def conv_integer(
    node: Node, x: Operand, w: Operand, x_zero: Operand = None, w_zero: Operand = None, **attributes: Any
) -> Value:
    """A convolution of `x - its zero point` with `w - its zero point`, in int32; padding is the zero point."""
    rank = 0 if w is None else len(w.shape)
    return conv(node, _centred(x, x_zero), _centred(w, _by_channel(w_zero, rank)), **attributes)


@onnx_op("QLinearConv")
def qlinear_conv(
    node: Node,
    x: Operand,
    x_scale: Operand,
    x_zero: Operand,
    w: Operand,
    w_scale: Operand,
    w_zero: Operand,
    y_scale: Operand,
    y_zero: Operand,
    b: Operand = None,
    **attributes: Any,
) -> Value:
    """A convolution of quantised images, quantised again; its bias is int32, by the scales of x and w."""
    rank = 0 if w is None else len(w.shape)
    filters = _centred(w, _by_channel(w_zero, rank))
    found = conv(node, _centred(x, x_zero), filters, b, **attributes)
    factor = value_of(x_scale) * value_of(_by_channel(w_scale, rank - 1)) / value_of(y_scale)
    return _requantised(found, factor, y_zero)


def _type_of(zero: Operand) -> str:
    return "" if zero is None else zero.dtype if isinstance(zero, Value) else zero.dtype.name


def _as(x: Value, dtype: str) -> Value:
    return x if x.dtype == dtype else nn.cast(x, dtype)


def _centred(x: Operand, zero: Operand) -> Operand:
    """`x - zero` in int32; of what is known, as an array."""
    if isinstance(x, np.ndarray) and (zero is None or isinstance(zero, np.ndarray)):
        found: Array = x.astype(np.int32)
        return found if zero is None else found - zero.astype(np.int32)
    value = _as(value_of(x), "int32")
    return value if zero is None else value - _as(value_of(zero), "int32")


def _requantised(sums: Value, factor: Value, zero: Operand) -> Value:
    """Sums of int32 by a factor, in the type of a zero point."""
    scaled = _as(sums, "float32") * _as(factor, "float32")
    return _saturated(scaled, value_of(zero), _type_of(zero))


def _saturated(x: Value, zero: Value | None, to: str) -> Value:
    """`round(x) + zero` as an integer type has it."""
    if to not in QUANTISED:
        raise Unsupported(f"quantises to {to or 'a type of its own'}; expected {', '.join(QUANTISED)}")
    rounded, known = _as(nn.round(x), "float32"), NUMBER_TYPES[to]
    moved = rounded if zero is None else rounded + _as(zero, "float32")
    return nn.cast(nn.clamp(moved, float(known.least), float(known.largest)), to)


def _along(scale: Operand, x: Value, axis: int, block: int) -> Value:
    """A scale or a zero point in a shape that broadcasts to that of x."""
    value = value_of(scale)
    if value.rank == 0 or value.shape == (1,):
        return nn.reshape(value, ())
    (at,) = axes_within([axis], x.rank)
    if value.rank == 1:
        return nn.reshape(value, [value.shape[0] if d == at else 1 for d in range(x.rank)])
    if not block:
        raise Unsupported(
            f"its scale has the shape {value.shape}; expected one number, or one for each of axis {at}"
        )
    wide = nn.repeat_interleave(value, block, at)
    return nn.narrow(wide, at, 0, number("a quantised axis", x.shape[at]))


def _as_rows(x: Operand) -> Operand:
    """One number for each row of a matrix, as a column."""
    if x is None or len(x.shape) != 1 or x.shape == (1,):
        return x
    return _reshaped(x, (-1, 1))


def _by_channel(x: Operand, rank: int) -> Operand:
    """One number for each filter, as an operand of `rank` axes whose first is that of the filters."""
    if x is None or len(x.shape) != 1 or x.shape == (1,):
        return x
    return _reshaped(x, (-1, *(1,) * (rank - 1)))


def _reshaped(x: Value | Array, shape: Sequence[int]) -> Value | Array:
    return nn.reshape(x, shape) if isinstance(x, Value) else x.reshape(shape)
