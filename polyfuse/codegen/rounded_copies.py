"""Copies into shared memory that round, or that leave neighbours in shorter runs: what emitted source calls.

    copy_rounded_tf32   four float32 numbers in one load, rounded (cvt.rna.tf32.f32), stored as float32
    copy_rounded_bf16   the same, stored as bfloat16 (cvt.rn.bf16x2.f32: two at a time)
    copy_rounded_f16    the same, stored as float16
    pad_rounded_tf32    the same of as many, or of one, where a condition holds, and else zeros; pad_rounded_bf16, _f16

    target[to + step * (l // run) + l % run] = rounded(source[at + l])      each run in one store

Needs the extra `polyfuse[cuda]`, and a GPU from sm_80 on.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic

from polyfuse.codegen.device_operations import INT, vector_at
from polyfuse.ir.precision import PRECISIONS, Math

WORD = ir.IntType(32)

GLOBAL = 1
"""LLVM's number for the address space of global memory."""


def _operation(math: Math) -> Any:
    """The intrinsic for a format of factors."""

    @intrinsic
    def copy_rounded(
        typingctx: Any, count: Any, target: Any, to: Any, run: Any, step: Any, source: Any, at: Any
    ) -> Any:
        """See the top of this file; `count`, `run` and `step` are literals, `source` + `at` is at a multiple of it."""
        if not all(isinstance(value, types.IntegerLiteral) for value in (count, run, step)):
            return None
        lanes, together, apart = (value.literal_value for value in (count, run, step))

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            to, at = (context.cast(builder, args[p], sig.args[p], types.int64) for p in (2, 6))
            loaded = vector_at(builder, builder.gep(args[5], [at]), ir.FloatType(), lanes)
            numbers = [builder.extract_element(loaded, WORD(lane)) for lane in range(lanes)]
            data = context.make_array(sig.args[1])(context, builder, args[1]).data
            _in_runs(builder, _rounded(builder, math, numbers), builder.gep(data, [to]), together, apart)
            return context.get_dummy_value()

        return types.void(count, target, types.int64, run, step, source, types.int64), codegen

    return copy_rounded


copy_rounded_tf32, copy_rounded_bf16, copy_rounded_f16 = map(_operation, PRECISIONS)


def _padding(math: Math) -> Any:
    """The intrinsic for a format of factors."""

    @intrinsic
    def pad_rounded(
        typingctx: Any, count: Any, target: Any, to: Any, run: Any, step: Any, source: Any, at: Any, here: Any
    ) -> Any:
        """As `copy_rounded` if here, else zeros, without a branch: later loads need not wait for this one.

        No element of `source` is touched where `here` does not hold.
        """
        if not all(isinstance(value, types.IntegerLiteral) for value in (count, run, step)):
            return None
        lanes, together, apart = (value.literal_value for value in (count, run, step))

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            to, at = (context.cast(builder, args[p], sig.args[p], types.int64) for p in (2, 6))
            inside = context.cast(builder, args[7], sig.args[7], types.boolean)
            numbers = _where(builder, inside, builder.gep(args[5], [at]), lanes)
            data = context.make_array(sig.args[1])(context, builder, args[1]).data
            _in_runs(builder, _rounded(builder, math, numbers), builder.gep(data, [to]), together, apart)
            return context.get_dummy_value()

        return types.void(count, target, types.int64, run, step, source, types.int64, here), codegen

    return pad_rounded


pad_rounded_tf32, pad_rounded_bf16, pad_rounded_f16 = map(_padding, PRECISIONS)


def _where(builder: Any, inside: Any, place: Any, count: int) -> list[Any]:
    """So many float32 numbers in global memory if a condition holds, else zeros: one load under a predicate."""
    address = builder.addrspacecast(place, ir.PointerType(place.type.pointee, addrspace=GLOBAL))
    operands = [builder.ptrtoint(address, INT), builder.zext(inside, WORD)]
    zeros = " ".join(f"mov.f32 ${n}, 0f00000000;" for n in range(count))
    wide = f".v{count}" if count > 1 else ""
    loaded = f"{{{','.join(f'${n}' for n in range(count))}}}" if count > 1 else "$0"
    text = f"{{ .reg .pred p; setp.ne.u32 p, ${count + 1}, 0; {zeros} @p ld.global{wide}.f32 {loaded}, [${count}]; }}"
    kinds = [ir.FloatType()] * count
    function = ir.FunctionType(
        ir.LiteralStructType(kinds) if count > 1 else kinds[0], [value.type for value in operands]
    )
    operators = ",".join([*["=f"] * count, "l,r,~{memory}"])
    found = builder.asm(function, text, operators, operands, side_effect=True)
    return [builder.extract_value(found, n) for n in range(count)] if count > 1 else [found]


def _rounded(builder: Any, math: Math, numbers: list[Any]) -> list[Any]:
    """The numbers as the target holds them: integers of 32 bits, or of 16."""
    if math == "tf32":
        return [_assembly(builder, "cvt.rna.tf32.f32 $0, $1;", [number]) for number in numbers]
    held = []
    zero = ir.Constant(ir.FloatType(), 0.0)
    for low, high in zip_longest(numbers[::2], numbers[1::2], fillvalue=zero):
        both = _assembly(builder, f"cvt.rn.{math}x2.f32 $0, $1, $2;", [high, low])  # the first one goes above
        pair = builder.bitcast(both, ir.VectorType(ir.IntType(16), 2))
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
