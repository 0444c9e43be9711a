"""Buffers on the stack and the heap: what they hold, where they lie, when they are not used, who frees them."""

from __future__ import annotations

from dataclasses import replace

import numba
import numpy as np
import pytest
from numba.core.runtime import _nrt_python, rtsys

import polyfuse as pf
from polyfuse import nn
from polyfuse.codegen.cpu import printer as cpu
from polyfuse.codegen.cpu.intrinsics.stack_arrays import ALIGNMENT, on_heap, on_stack


@numba.njit
def sums(x: np.ndarray) -> tuple[float, int]:  # type: ignore[type-arg]
    total, remainder = 0.0, 0
    for turn in range(3):
        y = on_stack((4, 2), np.float32)
        z = on_stack((4,), np.int64)
        remainder += y.ctypes.data % ALIGNMENT + z.ctypes.data % ALIGNMENT
        for i in range(4):
            z[i] = turn
            for j in range(2):
                y[i, j] = x[i, j] + z[i]
        total += y.sum()
    return total, remainder


def test_buffers_hold_what_was_stored_and_are_aligned() -> None:
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    assert sums(x) == (3 * x.sum() + 8 * (0 + 1 + 2), 0)


@numba.njit
def remainders(turns: int) -> int:
    found = 0
    for turn in range(turns):
        y = on_heap((4, 3), np.float32)
        y[3, 2] = turn
        found += y.ctypes.data % ALIGNMENT + int(y[3, 2]) - turn
    return found


def test_buffers_on_the_heap_begin_cache_lines_and_are_freed() -> None:
    assert remainders(1) == 0
    _nrt_python.memsys_enable_stats()
    try:
        before = rtsys.get_allocation_stats()
        assert remainders(50) == 0
        after = rtsys.get_allocation_stats()
    finally:
        _nrt_python.memsys_disable_stats()
    assert (after.mi_alloc - before.mi_alloc, after.mi_free - before.mi_free) == (50, 50)


def test_memory_on_the_stack_is_not_filled_with_zeros_beforehand() -> None:
    @numba.njit("float32(float32[::1], int64, int64)")
    def one_of(x: np.ndarray, i: int, j: int) -> float:  # type: ignore[type-arg]
        y = on_stack((64,), np.float32)
        for k in range(i, 64):
            y[k] = x[k]
        return y[j]

    assert one_of(np.arange(64, dtype=np.float32), 3, 5) == 5
    (text,) = one_of.inspect_llvm().values()
    own = text[text.index("define") :].split("\n}\n")[0]
    assert "alloca [64 x float]" in own
    assert "memset" not in own


def test_a_shape_that_is_not_constant_is_refused() -> None:
    @numba.njit
    def grow(n: int) -> float:
        return on_stack((n,), np.float32)[0]

    with pytest.raises(numba.TypingError, match="on_stack"):
        grow(3)


@pytest.fixture
def narrow() -> pf.Nest:
    layers = [m for n in range(3) for m in (nn.Linear(64, 64, seed=n), nn.ReLU())]
    return pf.lower(nn.Sequential(*layers), batch=1)


def test_what_is_too_much_for_the_stack_lies_on_the_heap(
    narrow: pf.Nest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "STACK_BYTES", 2 * 64 * 4)
    machine = replace(pf.Machine.preset("zen5"), launch_seconds=1e-6)  # so that all layers are one kernel
    net = pf.compile(narrow, target="cpu", machine=machine)
    assert (net.source.count("= on_stack("), net.source.count("= on_heap(")) == (2, 3)
    x = np.ones((1, 64), np.float32)
    np.testing.assert_allclose(net(x), pf.interpret(narrow, [x])["out"], rtol=1e-5, atol=1e-6)
