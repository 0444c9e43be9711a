"""Two operations for numba source: lines of an array asked for before they are needed.

    for j in range(0, 1024, 128):
        fetch(x, (i + 1, j), 8)                    eight lines of 64 bytes, from x[i + 1, j] on
        for j_in in range(j, j + 128): e[j_in] = vector_exp(x[i, j_in] - m)

They load nothing and never fault, so that an element may lie beyond the array: what is there is not looked at.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

LINE = 64
"""Bytes of a cache line."""

PIECE = 512
"""Bytes of a row that are asked for at once: fewer lines than a core can wait for. Softmax of 4096 × 1024 took 1.43 ms
in pieces of 512 or 1024 bytes, 1.99 where a row was asked for at once, and 1.92 without (one core of a Xeon)."""

INT32 = ir.IntType(32)


@intrinsic(prefer_literal=True)
def fetch(typingctx: Any, array: Any, index: Any, lines: Any) -> Any:
    """Ask for lines that will be read, from an element on."""
    return _typed(array, index, lines, 0)


@intrinsic(prefer_literal=True)
def fetch_to_write(typingctx: Any, array: Any, index: Any, lines: Any) -> Any:
    """Ask for lines that will be written, from an element on."""
    return _typed(array, index, lines, 1)


def _typed(array: Any, index: Any, lines: Any, write: int) -> Any:
    """A signature, and the code: what an intrinsic returns."""
    if not (isinstance(array, types.Array) and isinstance(lines, types.IntegerLiteral)):
        return None

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        kind, place = signature.args[0], signature.args[1]
        held = make_array(kind)(context, builder, args[0])
        numbers = cgutils.unpack_tuple(builder, args[1])
        element = [context.cast(builder, n, t, types.intp) for n, t in zip(numbers, place, strict=True)]
        first = cgutils.get_item_pointer(context, builder, kind, held, element, wraparound=False)
        byte = cgutils.voidptr_t
        first = builder.bitcast(first, byte)
        options = [ir.Constant(INT32, number) for number in (write, 3, 1)]  # into L1, data
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, *[INT32] * 3])
        )
        for line in range(lines.literal_value):
            offset = ir.Constant(ir.IntType(64), line * LINE)
            builder.call(function, [builder.gep(first, [offset]), *options])
        return context.get_dummy_value()

    return types.void(array, index, lines), code
