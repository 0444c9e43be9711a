"""Operations for numba source that allocate a kernel's buffers, aligned to cache lines.

    y = np.empty((64,), np.float32)   ->   y = on_stack((64,), np.float32)
    w = np.empty((16, 512, 32), …)    ->   w = on_heap((16, 512, 32), …)

The kernel of an 8-layer network of width 64 has 15 buffers: on numba's heap they cost it 15 allocations a call. Large
ones are on that heap, but not as np.empty would have them, whose first number is at a multiple of 32 bytes: every
vector of 64 bytes then lies in two cache lines where that is no multiple of 64, and loads count double. That took 7 to
12 points off the 75 to 87 % of the peak at which tiles of 8 x 32 and 6 x 64 floats go through packed panels (512 and
1024, one core of a Xeon); of seven buffers of one process three began so.
"""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.imputils import impl_ret_new_ref
from numba.extending import intrinsic

from polyfuse.codegen.array_fields import array_of

ALIGNMENT = 64
"""Bytes; a cache line, and the widest vector."""

STACK_BYTES = 64 * 1024
"""Bytes of the stack that the buffers of one kernel may take together; a thread has 512 KiB at least (macOS)."""


@intrinsic(prefer_literal=True)
def on_stack(typingctx: Any, shape: Any, dtype: Any) -> Any:
    """An array of a constant shape that lives as long as the call of the kernel; uninitialised."""
    if not all(isinstance(extent, types.IntegerLiteral) for extent in shape):
        return None
    extents: tuple[int, ...] = tuple(extent.literal_value for extent in shape)
    kind = types.Array(dtype.dtype, len(extents), "C")

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        return array_on_stack(context, builder, kind, extents)

    return kind(shape, dtype), code


@intrinsic
def on_heap(typingctx: Any, shape: Any, dtype: Any) -> Any:
    """An array in memory of numba's runtime; uninitialised. Raises MemoryError.

    In a parallel loop numba knows no constants, so that the shape may be any.
    """
    kind = types.Array(dtype.dtype, len(shape), "C")

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        extents = [
            context.cast(builder, extent, given, types.intp)
            for extent, given in zip(cgutils.unpack_tuple(builder, args[0]), shape, strict=True)
        ]
        itemsize = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
        align = context.get_constant(types.uint32, ALIGNMENT)
        held = context.nrt.meminfo_alloc_aligned(builder, reduce(builder.mul, extents, itemsize), align)
        memory = context.nrt.meminfo_data(builder, held)
        array = _array(context, builder, kind, extents, memory, held)
        return impl_ret_new_ref(context, builder, kind, array)

    return kind(shape, dtype), code


def array_on_stack(context: Any, builder: ir.IRBuilder, kind: types.Array, extents: tuple[int, ...]) -> Any:
    """An array that lives as long as the call of the function; uninitialised.

    Not by numba's `cgutils.alloca_once`, which stores a zero of the array's type: LLVM takes that apart into elements,
    which took 12 of the 13 s that a product with 64 KiB of panels compiled in.
    """
    with builder.goto_entry_block():
        memory = builder.alloca(ir.ArrayType(context.get_data_type(kind.dtype), prod(extents)))
    memory.align = ALIGNMENT
    sizes = [context.get_constant(types.intp, extent) for extent in extents]
    return _array(context, builder, kind, sizes, memory, None)


def _array(
    context: Any, builder: ir.IRBuilder, kind: types.Array, extents: list[Any], memory: Any, held: Any
) -> Any:
    """An array in some memory, which `held` owns; nothing does on the stack."""
    element = context.get_data_type(kind.dtype)
    strides = [context.get_constant(types.intp, context.get_abi_sizeof(element))]
    for extent in reversed(extents[1:]):
        strides.insert(0, _times(builder, strides[0], extent))
    data = builder.bitcast(memory, element.as_pointer())
    return array_of(context, builder, kind, data, extents, strides, held)


def _times(builder: ir.IRBuilder, one: Any, other: Any) -> Any:
    """A product, at once where both are known."""
    if isinstance(one, ir.Constant) and isinstance(other, ir.Constant):
        return ir.Constant(one.type, one.constant * other.constant)
    return builder.mul(one, other)
