"""Conversions between halves and float32 for numba.cuda source, and rounding to tf32: one instruction, from sm_80 on.

Needs the extra `polyfuse[cuda]`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic

BITS, FLOAT = ir.IntType(16), ir.FloatType()


def _conversion(text: str, constraints: str, given_as: Any, gives: Any) -> Any:
    result = BITS if gives is types.uint16 else FLOAT

    @intrinsic
    def conversion(typingctx: Any, value: Any) -> Any:
        """The PTX instruction, on a number that was made float32, or on a half's bits."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            given = context.cast(builder, args[0], sig.args[0], given_as)
            kind = ir.FunctionType(result, [given.type])
            return builder.asm(kind, text, constraints, [given], side_effect=False)

        return gives(value), codegen

    return conversion


to_float16 = _conversion("cvt.rn.f16.f32 $0, $1;", "=h,f", types.float32, types.uint16)
from_float16 = _conversion("cvt.f32.f16 $0, $1;", "=f,h", types.uint16, types.float32)
to_bfloat16 = _conversion("cvt.rn.bf16.f32 $0, $1;", "=h,f", types.float32, types.uint16)
from_bfloat16 = _conversion("mov.b32 $0, {0, $1};", "=f,h", types.uint16, types.float32)
to_tf32 = _conversion(
    "{ .reg .b32 bits; cvt.rna.tf32.f32 bits, $1; mov.b32 $0, bits; }", "=f,f", types.float32, types.float32
)
