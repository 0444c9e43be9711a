"""The mask of the lanes that exchange values with the caller if a warp has several rows.

    cuda.shfl_xor_sync(lanes_of(16), partial, 8)      lanes 0 … 15 among themselves, lanes 16 … 31 among themselves

A row's guard may send one group elsewhere: a mask of all lanes would then wait for lanes that never come. Needs the
extra `polyfuse[cuda]`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic

WORD = ir.IntType(32)


@intrinsic
def lanes_of(typingctx: Any, count: Any) -> Any:
    """The mask of the caller's group of `count` neighbouring lanes, a power of two below 32: a literal."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    lanes = count.literal_value

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        own = builder.module.declare_intrinsic(
            "llvm.nvvm.read.ptx.sreg.laneid", (), ir.FunctionType(WORD, [])
        )
        first = builder.and_(builder.call(own, []), WORD(32 - lanes))
        return builder.shl(WORD((1 << lanes) - 1), first)

    return types.int32(count), codegen
