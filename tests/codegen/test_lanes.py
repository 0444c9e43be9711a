"""How wide the vectors of emitted loops are."""

from __future__ import annotations

import numba
import numpy as np
from llvmlite import ir

from polyfuse.codegen.lanes import in_whole_registers
from polyfuse.codegen.sums import add_any_order
from polyfuse.machine import Machine


def test_a_loop_fills_whole_registers() -> None:
    @numba.njit
    def total(x):  # type: ignore[no-untyped-def]
        s = np.float32(0.0)
        for i in range(x.size):
            s = add_any_order(s, x[i])
        return s

    assert total(np.ones(100, np.float32)) == 100
    (code,) = total.inspect_llvm().values()
    assert f"<{Machine.detect().vector_bytes // 4} x float>" in code


def test_what_else_a_function_is_stays() -> None:
    function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), []), "kernel")
    function.attributes.add("noinline")
    in_whole_registers(function)
    assert {"noinline", '"prefer-vector-width"="512"'} <= set(str(function).split())
