"""Read and write numba's record of an array field by field, without a copy in memory.

    make_array(kind)(context, builder, value).data    ->    builder.extract_value(value, ADDRESS)

numba's own way stores the whole record in memory, which it fills with zeros first, and loads the field from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import types

OWNER, ITEMSIZE, ADDRESS, SHAPE, STRIDES = 0, 3, 4, 5, 6
"""Between them are Python's object and the number of elements, which no kernel reads."""

WORD = ir.IntType(64)


def parts_of(builder: ir.IRBuilder, array: Any, field: int, rank: int) -> list[Any]:
    """Return the extents (`SHAPE`) or the strides (`STRIDES`) of an array.

    Args:
        builder: stands where they are read.
        array: the record.
        field: one of the two.
        rank: the number of axes.
    """
    return [builder.extract_value(array, [field, axis]) for axis in range(rank)]


def array_of(
    context: Any,
    builder: ir.IRBuilder,
    kind: types.Array,
    data: Any,
    shape: Sequence[Any],
    strides: Sequence[Any],
    owner: Any = None,
) -> Any:
    """Return the record of an array.

    Args:
        context: numba's, of the target.
        builder: stands where the array is made.
        kind: its type.
        data: the address of the first element.
        shape: the extents.
        strides: the bytes from an element to the next along each axis.
        owner: the memory that lives as long as the array; None if nothing has to be let go.
    """
    itemsize = WORD(context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    made = ir.Constant(context.get_value_type(kind), None)
    for field, value in ((ADDRESS, data), (ITEMSIZE, itemsize), (OWNER, owner)):
        if value is not None:
            made = builder.insert_value(made, value, field)
    for field, values in ((SHAPE, shape), (STRIDES, strides)):
        for axis, value in enumerate(values):
            made = builder.insert_value(made, value, [field, axis])
    return made
