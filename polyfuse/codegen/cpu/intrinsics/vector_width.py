"""The lanes that LLVM gives the vectors of a loop: all that a register of the machine has.

    define void @kernel(…) "prefer-vector-width"="512" { for j: … }

LLVM takes half a register where it knows a processor's model as one that whole ones slow down: softmax of 4096 × 1024
took 2.0 ms in the vectors of AVX2 and 1.6 in those of AVX-512 (one core of a Xeon that has both). The width is an upper
bound: shorter registers are whole before.

Not every loop gains: a vector of a whole register that lies in memory straddles two lines wherever it is not aligned.
PolyBench's trmm and deriche took 1.1 and 1.05 times as long in them as in halves, fdtd-2d 0.96 times (the same core).
Elements that lie apart are gathered one by one, straddle nothing, and need half as many gathers for the same results:
seidel-2d's rows, side by side, took 3.3 s for 4.0. Rows of which several elements are read for each result come from
a cache, where arithmetic decides. Loops of both kinds ask for whole registers in their source:

    for j: { whole_registers(); for i (vector): A[i, j - 2 * i] = … }
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from polyfuse.codegen.vector_math.register_width import in_whole_registers

__all__ = ["in_whole_registers", "whole_registers"]


@intrinsic
def whole_registers(typingctx: Any) -> Any:
    """Fill whole registers in the function around; runs nothing."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        in_whole_registers(builder.function)
        return context.get_dummy_value()

    return types.void(), code
