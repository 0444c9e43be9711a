"""Device operations that copy into shared memory and change the type, or keep neighbours in shorter runs.

    copy_rounded_tf32   four float32 numbers in one load, rounded (cvt.rna.tf32.f32), stored as float32
    copy_rounded_bf16   the same, stored as bfloat16 (cvt.rn.bf16x2.f32: two at a time); of bfloat16 numbers bit for bit
    copy_rounded_f16    the same, stored as float16; of float16 numbers bit for bit
    copy_widened_bf16   bfloat16 numbers stored as float32; copy_widened_f16 float16 numbers
    pad_…               each of these of as many, or of one, where a condition holds, and else zeros

    target[to + step * (l // run) + l % run] = converted(source[at + l])    each run in one store

Needs the extra `polyfuse[cuda]`, and a GPU from sm_80 on.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic

from polyfuse.codegen.cuda.intrinsics.tile_fma import INT, vector_at
from polyfuse.codegen.looptree.half_types import CONVERTED

WORD, BITS = ir.IntType(32), ir.IntType(16)

_HELD = {BITS: ("b16", "h", "0"), WORD: ("b32", "r", "0"), ir.FloatType(): ("f32", "f", "0f00000000")}
"""PTX's type, its kind of register and its zero for what may be loaded under a predicate."""

GLOBAL = 1
"""LLVM's number for the address space of global memory."""


def _copying(conversion: str) -> Any:
    """The intrinsic for a conversion."""

    @intrinsic
    def copying(
        typingctx: Any, count: Any, target: Any, to: Any, run: Any, step: Any, source: Any, at: Any
    ) -> Any:
        """See the top of this file; `count`, `run` and `step` are literals, `source` + `at` is at a multiple of it."""
        if not all(isinstance(value, types.IntegerLiteral) for value in (count, run, step)):
            return None
        lanes, together, apart = (value.literal_value for value in (count, run, step))

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            to, at = (context.cast(builder, args[p], sig.args[p], types.int64) for p in (2, 6))
            place, parts = _in_parts(builder, conversion, builder.gep(args[5], [at]), lanes)
            loaded = vector_at(builder, place, place.type.pointee, parts)
            numbers = [builder.extract_element(loaded, WORD(part)) for part in range(parts)]
            data = context.make_array(sig.args[1])(context, builder, args[1]).data
            _in_runs(
                builder, _converted(builder, conversion, numbers), builder.gep(data, [to]), together, apart
            )
            return context.get_dummy_value()

        return types.void(count, target, types.int64, run, step, source, types.int64), codegen

    return copying


copy_rounded_tf32, copy_rounded_bf16, copy_rounded_f16, copy_widened_bf16, copy_widened_f16 = map(
    _copying, CONVERTED
)


def _padding(conversion: str) -> Any:
    """The intrinsic for a conversion."""

    @intrinsic
    def padding(
        typingctx: Any, count: Any, target: Any, to: Any, run: Any, step: Any, source: Any, at: Any, here: Any
    ) -> Any:
        """As `copying` if here, else zeros, without a branch: later loads need not wait for this one.

        No element of `source` is touched where `here` does not hold.
        """
        if not all(isinstance(value, types.IntegerLiteral) for value in (count, run, step)):
            return None
        lanes, together, apart = (value.literal_value for value in (count, run, step))

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            to, at = (context.cast(builder, args[p], sig.args[p], types.int64) for p in (2, 6))
            inside = context.cast(builder, args[7], sig.args[7], types.boolean)
            place, parts = _in_parts(builder, conversion, builder.gep(args[5], [at]), lanes)
            numbers = _where(builder, inside, place, parts)
            data = context.make_array(sig.args[1])(context, builder, args[1]).data
            _in_runs(
                builder, _converted(builder, conversion, numbers), builder.gep(data, [to]), together, apart
            )
            return context.get_dummy_value()

        return types.void(count, target, types.int64, run, step, source, types.int64, here), codegen

    return padding


pad_rounded_tf32, pad_rounded_bf16, pad_rounded_f16, pad_widened_bf16, pad_widened_f16 = map(
    _padding, CONVERTED
)


def _in_parts(builder: Any, conversion: str, place: Any, lanes: int) -> tuple[Any, int]:
    """The address and the number of loads: bfloat16 numbers that are widened two at a time are integers of 32 bits."""
    if conversion != "widened_bf16" or lanes % 2:
        return place, lanes
    return builder.bitcast(place, WORD.as_pointer()), lanes // 2


def _where(builder: Any, inside: Any, place: Any, count: int) -> list[Any]:
    """So many neighbours in global memory if a condition holds, else zeros: one load under a predicate."""
    kind = place.type.pointee
    address = builder.addrspacecast(place, ir.PointerType(kind, addrspace=GLOBAL))
    operands = [builder.ptrtoint(address, INT), builder.zext(inside, WORD)]
    held, register, zero = _HELD[kind]
    zeros = " ".join(f"mov.{held} ${n}, {zero};" for n in range(count))
    wide = f".v{count}" if count > 1 else ""
    loaded = f"{{{','.join(f'${n}' for n in range(count))}}}" if count > 1 else "$0"
    load = f"@p ld.global{wide}.{held} {loaded}, [${count}];"
    text = f"{{ .reg .pred p; setp.ne.u32 p, ${count + 1}, 0; {zeros} {load} }}"
    kinds = [kind] * count
    function = ir.FunctionType(
        ir.LiteralStructType(kinds) if count > 1 else kind, [value.type for value in operands]
    )
    operators = ",".join([*[f"={register}"] * count, "l,r,~{memory}"])
    found = builder.asm(function, text, operators, operands, side_effect=True)
    return [builder.extract_value(found, n) for n in range(count)] if count > 1 else [found]


def _converted(builder: Any, conversion: str, numbers: list[Any]) -> list[Any]:
    """The numbers as the target holds them: of 32 bits, or of 16."""
    what, math = conversion.split("_")
    if what == "widened":
        return [wide for number in numbers for wide in _widened(builder, math, number)]
    return numbers if numbers[0].type == BITS else _rounded(builder, math, numbers)


def _widened(builder: Any, math: str, bits: Any) -> list[Any]:
    """The bits of a half, or of two, as float32 numbers': a bfloat16 number is the upper half of one."""
    if math == "bf16":
        both = bits.type == WORD
        low = builder.shl(bits if both else builder.zext(bits, WORD), WORD(16))
        return [low, builder.and_(bits, WORD(0xFFFF0000))] if both else [low]
    function = ir.FunctionType(ir.FloatType(), [BITS])
    number = builder.asm(function, "cvt.f32.f16 $0, $1;", "=f,h", [bits], side_effect=False)
    return [builder.bitcast(number, WORD)]


def _rounded(builder: Any, math: str, numbers: list[Any]) -> list[Any]:
    """Float32 numbers rounded: integers of 32 bits, or of 16."""
    if math == "tf32":
        return [_assembly(builder, "cvt.rna.tf32.f32 $0, $1;", [number]) for number in numbers]
    held = []
    zero = ir.Constant(ir.FloatType(), 0.0)
    for low, high in zip_longest(numbers[::2], numbers[1::2], fillvalue=zero):
        both = _assembly(builder, f"cvt.rn.{math}x2.f32 $0, $1, $2;", [high, low])  # the first one goes above
        pair = builder.bitcast(both, ir.VectorType(BITS, 2))
        held += [builder.extract_element(pair, WORD(n)) for n in (0, 1)]
    return held[: len(numbers)]


def _assembly(builder: Any, text: str, values: list[Any]) -> Any:
    """PTX that touches no memory."""
    function = ir.FunctionType(WORD, [value.type for value in values])
    return builder.asm(function, text, ",".join(["=r", *["f"] * len(values)]), values, side_effect=False)


def _in_runs(builder: Any, values: list[Any], first: Any, together: int, apart: int) -> None:
    """So many neighbours in one store, the next ones further on."""
    for start in range(0, len(values), together):
        place = builder.gep(first, [INT(start // together * apart)])
        _stored(builder, values[start : start + together], place)


def _stored(builder: Any, values: list[Any], place: Any) -> None:
    """Neighbours in one store."""
    kind = ir.VectorType(values[0].type, len(values))
    vector = ir.Constant(kind, ir.Undefined)
    for n, value in enumerate(values):
        vector = builder.insert_element(vector, value, WORD(n))
    builder.store(vector, builder.bitcast(place, kind.as_pointer())).align = (
        len(values) * kind.element.width // 8
    )
