"""Treat two neighbouring axes of an array as one, along which a loop over both moves.

    for c in range(784): s += x[i, c // 28, c % 28]
    ->  x_rows = joined(x, 1)
        for c in range(784): s += x_rows[i, c]             x has the shape (32, 28, 28), x_rows (32, 784)

In C order the element (a, b) of axes of m and n lies where the element n * a + b of one axis of m * n does. A quotient
and a remainder by n of one number are such a pair, and that number is the place.
"""

from __future__ import annotations

import ast
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from polyfuse.codegen.looptree.nodes import Element
from polyfuse.ir.tensor import Tensor

Place = tuple[int, tuple[ast.expr, ...]]
"""The first of two axes that become one, and the subscripts then."""


def along_two_axes(element: Element, tensor: Tensor) -> Place | None:
    """x[i, c // 28, c % 28]  ->  (1, [i, c]) where x has 28 elements along its last axis; None if nothing is so."""
    for axis in range(len(element.subscripts) - 1):
        outer, inner = element.subscripts[axis : axis + 2]
        match outer, inner:
            case (
                ast.BinOp(left=a, op=ast.FloorDiv(), right=ast.Constant(value=int(m))),
                ast.BinOp(left=b, op=ast.Mod(), right=ast.Constant(value=int(n))),
            ) if m == n == tensor.shape[axis + 1] and ast.dump(a) == ast.dump(b):
                return axis, (*element.subscripts[:axis], a, *element.subscripts[axis + 2 :])
    return None


@intrinsic(prefer_literal=True)
def joined(typingctx: Any, array: Any, axis: Any) -> Any:
    """A C-contiguous array with an axis and the next one as one; the same memory."""
    if not (
        isinstance(array, types.Array) and array.layout == "C" and isinstance(axis, types.IntegerLiteral)
    ):
        return None
    first = axis.literal_value
    kind = types.Array(array.dtype, array.ndim - 1, "C", readonly=not array.mutable)

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        held = make_array(array)(context, builder, args[0])
        shape = cgutils.unpack_tuple(builder, held.shape)
        strides = cgutils.unpack_tuple(builder, held.strides)
        shape[first : first + 2] = [builder.mul(shape[first], shape[first + 1])]
        del strides[first]
        new = make_array(kind)(context, builder)
        populate_array(new, held.data, shape, strides, held.itemsize, None)
        return new._getvalue()

    return kind(array, axis), code
