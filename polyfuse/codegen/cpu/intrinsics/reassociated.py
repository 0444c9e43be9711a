"""Operations for numba source that LLVM may reorder: a sum, a product, a maximum, a minimum over a loop.

Kernels are compiled without `reassoc`: a body's arithmetic stays as it was written. A loop that carries a reduction may
combine in any order, and LLVM puts it on vector lanes only if the operation itself says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from polyfuse.codegen.cpu.intrinsics.extrema import extremum
from polyfuse.codegen.cpu.intrinsics.vector_width import in_whole_registers

IN_ANY_ORDER = {
    "+=": "add_any_order",
    "*=": "multiply_any_order",
    "max=": "max_any_order",
    "min=": "min_any_order",
}
"""The functions that combine floating-point numbers in any order, by the reduction's operator."""


OPAQUE = "opaque"
"""A number that LLVM does not know (`opaque`)."""


@intrinsic
def opaque(typingctx: Any, number: Any) -> Any:
    """The number, which LLVM does not know: a loop up to it is not written out in full."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        same = ir.FunctionType(args[0].type, [args[0].type])
        return builder.asm(same, "", "=r,0", args, side_effect=False)

    return types.int64(types.int64), code


def _typed(total: Any, value: Any, emit: Callable[[ir.IRBuilder, Any], Any]) -> Any:
    """A signature in the total's type, and the code: what an intrinsic returns."""
    if not (isinstance(total, types.Float) and isinstance(value, types.Number)):
        return None

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        in_whole_registers(builder.function)
        return emit(builder, args)

    return total(total, total), code


@intrinsic
def add_any_order(typingctx: Any, total: Any, value: Any) -> Any:
    """total + value, in whatever order is fastest over the iterations of a loop."""
    return _typed(total, value, lambda builder, args: builder.fadd(*args, flags=("reassoc", "contract")))


@intrinsic
def multiply_any_order(typingctx: Any, total: Any, value: Any) -> Any:
    """total * value, in whatever order is fastest over the iterations of a loop."""
    return _typed(total, value, lambda builder, args: builder.fmul(*args, flags=("reassoc", "contract")))


@intrinsic
def max_any_order(typingctx: Any, total: Any, value: Any) -> Any:
    """The larger one, NaN if either is; of two zeros any, as in NumPy."""
    return _typed(total, value, lambda builder, args: extremum(builder, "larger", *args))


@intrinsic
def min_any_order(typingctx: Any, total: Any, value: Any) -> Any:
    """The smaller one, NaN if either is; of two zeros any, as in NumPy."""
    return _typed(total, value, lambda builder, args: extremum(builder, "smaller", *args))
