"""Prefetch operations for numba source: request lines of an array before they are needed.

    for j in range(0, 1024, 128):
        fetch(x, (i + 1, j), 8)                    eight lines of 64 bytes, from x[i + 1, j] on
        for j_in in range(j, j + 128): e[j_in] = vector_exp(x[i, j_in] - m)

They load nothing and never fault, so that an element may lie beyond the array: what is there is not looked at.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac import (
    LINE,
    NEAREST_CACHE,
    READ,
    WRITE,
    Operand,
    ask_for,
)

PIECE = 512
"""Bytes of a row that are asked for at once: fewer lines than a core can wait for. Softmax of 4096 × 1024 took 1.43 ms
in pieces of 512 or 1024 bytes, 1.99 where a row was asked for at once, and 1.92 without (one core of a Xeon)."""


@intrinsic(prefer_literal=True)
def fetch(typingctx: Any, array: Any, index: Any, lines: Any) -> Any:
    """Ask for lines that will be read, from an element on."""
    return _typed(array, index, lines, READ)


@intrinsic(prefer_literal=True)
def fetch_to_write(typingctx: Any, array: Any, index: Any, lines: Any) -> Any:
    """Ask for lines that will be written, from an element on."""
    return _typed(array, index, lines, WRITE)


def _typed(array: Any, index: Any, lines: Any, purpose: int) -> Any:
    """A signature, and the code: what an intrinsic returns."""
    if not (isinstance(array, types.Array) and isinstance(lines, types.IntegerLiteral)):
        return None

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        first = Operand(context, builder, signature.args[0], args[0]).at(signature.args[1], args[1])
        ask_for(builder, first, lines.literal_value * LINE, purpose, NEAREST_CACHE)
        return context.get_dummy_value()

    return types.void(array, index, lines), code
