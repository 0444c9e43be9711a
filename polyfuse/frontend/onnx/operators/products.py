"""Importers of products: matrices, batches of them, linear layers, einsum."""

from __future__ import annotations

from polyfuse import nn
from polyfuse.frontend.onnx.operators.registry import Node, Operand, onnx_op, value_of, values_of
from polyfuse.nn.graph import Value


@onnx_op("MatMul")
def matmul(_: Node, x: Operand, y: Operand) -> Value:
    """`x @ y` as in NumPy; a vector is a matrix of one row or column for the time being."""
    left, right = values_of(x, y)
    rows = nn.reshape(left, (1, *left.shape)) if left.rank == 1 else left
    columns = nn.reshape(right, (*right.shape, 1)) if right.rank == 1 else right
    found = nn.matmul(rows, columns)
    batch = list(found.shape[:-2])
    shape = [
        *batch,
        *([rows.shape[-2]] if left.rank > 1 else []),
        *([columns.shape[-1]] if right.rank > 1 else []),
    ]
    return found if len(shape) == found.rank else nn.reshape(found, shape)


@onnx_op("Gemm")
def gemm(
    _: Node,
    a: Operand,
    b: Operand,
    c: Operand = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Value:
    """`alpha * A @ B + beta * C`."""
    left, right = values_of(a, b)
    left = nn.transpose(left) if transA else left
    right = nn.transpose(right) if transB else right
    bias = None if c is None else value_of(c, left.dtype)
    if bias is not None and alpha == beta == 1 and bias.shape == right.shape[1:]:
        return nn.linear(left, right, bias)
    found = nn.matmul(left, right)
    found = found if alpha == 1 else found * alpha
    if bias is None or beta == 0:
        return found
    return found + (bias if beta == 1 else bias * beta)


@onnx_op("Einsum")
def einsum(_: Node, *operands: Operand, equation: str = "") -> Value:
    """A sum of products in Einstein's notation."""
    return nn.einsum(equation, *values_of(*operands))
