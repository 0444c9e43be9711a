"""One operation for numba source: a small buffer on the stack of the kernel, which costs no allocation.

    y = np.empty((64,), np.float32)   ->   y = on_stack((64,), np.float32)

The kernel of an 8-layer network of width 64 has 15 buffers: on numba's heap they cost it 15 allocations a call.
"""

from __future__ import annotations

from math import prod
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

ALIGNMENT = 64
"""Bytes; a cache line, and the widest vector."""

STACK_BYTES = 64 * 1024
"""What the buffers of one kernel may take of the stack together; a thread has 512 KiB at least (macOS)."""


@intrinsic(prefer_literal=True)
def on_stack(typingctx: Any, shape: Any, dtype: Any) -> Any:
    """An array of a constant shape that lives as long as the call of the kernel; what it holds is not said."""
    if not all(isinstance(extent, types.IntegerLiteral) for extent in shape):
        return None
    extents: tuple[int, ...] = tuple(extent.literal_value for extent in shape)
    kind = types.Array(dtype.dtype, len(extents), "C")

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        element = context.get_data_type(kind.dtype)
        memory = cgutils.alloca_once(builder, ir.ArrayType(element, prod(extents)))
        memory.align = ALIGNMENT
        itemsize = context.get_abi_sizeof(element)
        strides = [itemsize * prod(extents[axis + 1 :]) for axis in range(len(extents))]
        sizes = [
            [context.get_constant(types.intp, number) for number in every] for every in (extents, strides)
        ]
        array = make_array(kind)(context, builder)
        data = builder.bitcast(memory, element.as_pointer())
        populate_array(array, data, *sizes, itemsize, None)
        return array._getvalue()

    return kind(shape, dtype), code
