"""One operation for numba source: an addition that LLVM may reorder.

Kernels are compiled without `reassoc`: a body's arithmetic stays as it was written. A loop that carries a reduction may
sum in any order, and LLVM puts such a sum on vector lanes only if the addition itself says so.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic


@intrinsic
def add_any_order(typingctx: Any, total: Any, value: Any) -> Any:
    """total + value, in whatever order is fastest over the iterations of a loop."""
    if not (isinstance(total, types.Float) and total == value):
        return None

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Instruction:
        return builder.fadd(*args, flags=("reassoc", "contract"))

    return total(total, value), code
