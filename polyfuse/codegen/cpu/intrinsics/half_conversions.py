"""Conversions between halves and float32 for numba source on a CPU, which LLVM puts on vector lanes.

float16 is an instruction for a vector where the processor has F16C, and on ARM; elsewhere integer operations.
Where it has arithmetic of halves too, LLVM would compute round(a * b) in that, which is the same, and
round(round(a * b) + c) by one fused operation, which is not: kernels let it fuse products and sums. So between the
operation and the rounding a NaN is made quiet, which the rounding does anyway and LLVM does not see through: what is
rounded is a float32 number.

bfloat16 is the upper half of a float32 number, rounded by an addition: what does not fit carries into the upper half,

    bits + 0x7fff + (lowest bit that stays)        a tie goes to the even one; the largest numbers become infinite

and a NaN, which could carry into an infinity, becomes the quiet one of its sign.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

WORD, BITS, FLOAT = ir.IntType(32), ir.IntType(16), ir.FloatType()
Convert = Callable[[Any, Any], Any]
"""From a builder and a value to the value's conversion."""

QUIET, INFINITE = WORD(0x00400000), WORD(0x7F800000)


def bfloat16_bits(builder: Any, value: Any) -> Any:
    """The upper half of a float32 number, rounded to nearest even."""
    word = builder.bitcast(value, WORD)
    lowest = builder.and_(builder.lshr(word, WORD(16)), WORD(1))
    near = builder.add(word, builder.add(lowest, WORD(0x7FFF)))
    chosen = builder.select(_is_number(builder, value), near, builder.or_(word, QUIET))
    return builder.trunc(builder.lshr(chosen, WORD(16)), BITS)


def bfloat16_value(builder: Any, bits: Any) -> Any:
    """The float32 number whose upper half this is."""
    return builder.bitcast(builder.shl(builder.zext(bits, WORD), WORD(16)), FLOAT)


def float16_bits(builder: Any, value: Any) -> Any:
    """A float32 number as a half, by integer operations.

    The distance of the exponents' biases is 112. Below 2^-14 halves are multiples of 2^-24, as float32 numbers around a
    half are: adding one half rounds to such. From 2^16 on all is infinite; what is just below carries into that.
    """
    word = builder.bitcast(value, WORD)
    size = builder.and_(word, WORD(0x7FFFFFFF))
    odd = builder.and_(builder.lshr(size, WORD(13)), WORD(1))
    normal = builder.add(builder.add(size, WORD(0xFFF - (112 << 23) & 0xFFFFFFFF)), odd)
    normal = builder.lshr(normal, WORD(13))
    moved = builder.fadd(builder.bitcast(size, FLOAT), FLOAT(0.5))
    small = builder.sub(builder.bitcast(moved, WORD), WORD(0x3F000000))
    none = builder.icmp_unsigned(">", size, INFINITE)
    large = builder.select(none, WORD(0x7E00), WORD(0x7C00))
    found = builder.select(builder.icmp_unsigned("<", size, WORD(0x38800000)), small, normal)
    found = builder.select(builder.icmp_unsigned("<", size, WORD(0x47800000)), found, large)
    sign = builder.and_(builder.lshr(word, WORD(16)), WORD(0x8000))
    return builder.trunc(builder.or_(found, sign), BITS)


def float16_value(builder: Any, bits: Any) -> Any:
    """The float32 number that a half is, by integer operations and an exact product with 2^112, for the biases."""
    word = builder.zext(bits, WORD)
    size = builder.shl(builder.and_(word, WORD(0x7FFF)), WORD(13))
    scaled = builder.bitcast(builder.fmul(builder.bitcast(size, FLOAT), FLOAT(2.0**112)), WORD)
    ended = builder.icmp_unsigned(">=", size, WORD(0x7C00 << 13))
    found = builder.select(ended, builder.or_(size, INFINITE), scaled)
    sign = builder.shl(builder.and_(word, WORD(0x8000)), WORD(16))
    return builder.bitcast(builder.or_(found, sign), FLOAT)


def _native_bits(builder: Any, value: Any) -> Any:
    word = builder.bitcast(value, WORD)
    kept = builder.select(_is_number(builder, value), word, builder.or_(word, QUIET))
    return builder.bitcast(builder.fptrunc(builder.bitcast(kept, FLOAT), ir.HalfType()), BITS)


def _native_value(builder: Any, bits: Any) -> Any:
    return builder.fpext(builder.bitcast(bits, ir.HalfType()), FLOAT)


def _is_number(builder: Any, value: Any) -> Any:
    return builder.fcmp_ordered("ord", value, value)


def _has_conversions(context: Any) -> bool:
    """True if the processor that code is made for converts float16 itself; LLVM would call what is not there."""
    triple, _, features = context.codegen().magic_tuple()
    return triple.startswith(("aarch64", "arm64")) or "+f16c" in features.split(",")


def _to(convert: Convert, native: Convert) -> Any:
    @intrinsic
    def to_half(typingctx: Any, value: Any) -> Any:
        """A number's bits as a half; one of another type becomes a float32 number first."""

        def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
            number = context.cast(builder, args[0], signature.args[0], types.float32)
            return (native if _has_conversions(context) else convert)(builder, number)

        return types.uint16(value), code

    return to_half


def _from(convert: Convert, native: Convert) -> Any:
    @intrinsic
    def from_half(typingctx: Any, bits: Any) -> Any:
        """The float32 number that a half's bits stand for."""

        def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
            return (native if _has_conversions(context) else convert)(builder, args[0])

        return types.float32(types.uint16), code

    return from_half


BITS_OF = {"float16": float16_bits, "bfloat16": bfloat16_bits}
"""Conversions of float32 numbers to a half's bits on any processor, by the half type."""

to_float16, from_float16 = _to(float16_bits, _native_bits), _from(float16_value, _native_value)
to_bfloat16, from_bfloat16 = _to(bfloat16_bits, bfloat16_bits), _from(bfloat16_value, bfloat16_value)
