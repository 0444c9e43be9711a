"""How wide the vectors of emitted loops are."""

from __future__ import annotations

import numba
import numpy as np
from llvmlite import ir

import polyfuse as pf
from polyfuse.codegen.cpu.intrinsics.reassociated import add_any_order
from polyfuse.codegen.cpu.intrinsics.vector_width import in_whole_registers, whole_registers
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


@pf.nest
def down(A: f64[N, M]):  # type: ignore[no-untyped-def]  # noqa: F821
    for j in range(1, M):  # type: ignore[name-defined]  # noqa: F821
        for i in range(N):  # type: ignore[name-defined]  # noqa: F821
            A[i, j] = A[i, j - 1] + 1


def test_a_loop_over_elements_that_lie_apart_asks_for_whole_registers() -> None:
    made = pf.Schedule(down).vectorize("S0", "i")
    net = pf.compile(down, schedule=made, target="cpu")
    before, _, after = net.source.partition("for i in")
    assert before.rstrip().endswith("whole_registers()")
    assert "whole_registers" not in after
    given = np.arange(36.0).reshape(4, 9)
    expected = given[:, :1] + np.arange(9)
    net(given)
    np.testing.assert_array_equal(given, expected)


@pf.nest
def sharper(a: f64[N, M], b: f64[N, M], c: f64[N, M]):  # type: ignore[no-untyped-def]  # noqa: F821
    for i in range(N):  # type: ignore[name-defined]  # noqa: F821
        for j in range(1, M - 1):  # type: ignore[name-defined]  # noqa: F821
            b[i, j] = a[i, j - 1] + a[i, j + 1]
            c[i, j] = a[i, j] - b[i, j]


def test_a_loop_around_statements_that_read_several_elements_of_a_row_asks_for_whole_registers() -> None:
    net = pf.compile(sharper, schedule=pf.Schedule(sharper).vectorize("S0", "j"), target="cpu")
    assert net.source.partition("for j in")[0].rstrip().endswith("whole_registers()")
    a, b, c = np.arange(36.0).reshape(4, 9) ** 2, np.zeros((4, 9)), np.zeros((4, 9))
    net(a, b, c)
    np.testing.assert_array_equal(b[:, 1:-1], a[:, :-2] + a[:, 2:])
    np.testing.assert_array_equal(c[:, 1:-1], a[:, 1:-1] - b[:, 1:-1])


def test_asking_for_whole_registers_is_an_attribute_of_the_function() -> None:
    @numba.njit
    def nothing() -> None:
        whole_registers()

    nothing()
    (code,) = nothing.inspect_llvm().values()
    assert '"prefer-vector-width"="512"' in code
