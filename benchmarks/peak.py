"""The peak of one core, measured: a loop of independent multiply-adds on vector registers, nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from polyfuse.machine import Machine

VECTOR_BYTES = Machine.detect().vector_bytes
"""A register's bytes. LLVM splits wider vectors, and 12 chains of 64 bytes are more than AVX2's 16 registers hold: on a
Zen 3 core they reached 56 GFLOP/s of float32, where chains of 32 bytes reach 103."""

CHAINS = 12
"""Sums that do not wait for each other; with the operand they take 13 registers."""

STEPS = 8
"""Multiply-adds of each chain in one pass through the loop."""


@intrinsic
def chains(typingctx: Any, start: Any, passes: Any) -> Any:
    """The sum over all lanes of CHAINS vectors after `passes` times STEPS multiply-adds each."""
    if not isinstance(start, types.Float):
        return None
    width = VECTOR_BYTES * 8 // start.bitwidth

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        element = ir.FloatType() if start == types.float32 else ir.DoubleType()
        vector = ir.VectorType(element, width)
        name = f"llvm.fma.v{width}f{start.bitwidth}"
        fma = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector] * 3), name)
        undefined, lane = ir.Constant(vector, ir.Undefined), ir.IntType(32)
        one = builder.insert_element(undefined, args[0], lane(0))
        mask = ir.Constant(ir.VectorType(lane, width), [0] * width)
        spread = builder.shuffle_vector(one, undefined, mask)
        held = [cgutils.alloca_once_value(builder, spread) for _ in range(CHAINS)]
        with cgutils.for_range(builder, args[1]):
            for _ in range(STEPS):
                for slot in held:
                    builder.store(builder.call(fma, [builder.load(slot), spread, spread]), slot)
        total = builder.load(held[0])
        for slot in held[1:]:
            total = builder.fadd(total, builder.load(slot))
        return builder.extract_element(total, lane(0))

    return start(start, types.int64), code


@njit
def run(start: Any, passes: int) -> Any:
    """What `chains` computes; every call does the same work."""
    return chains(start, passes)


def peak_of(dtype: Any, passes: int = 20_000) -> tuple[Callable[[], object], int]:
    """(something to time, the floating-point operations that it does)."""
    start = dtype(0.5)
    run(start, 1)
    operations = 2 * passes * STEPS * CHAINS * VECTOR_BYTES // start.itemsize
    return lambda: run(start, passes), operations
