"""Kernels are lowered to few instructions, which compute what Python does."""

# ruff: noqa: F821

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from numba import uint64

import polyfuse as pf
from polyfuse import intrinsics
from polyfuse.codegen.cpu.intrinsics.lowering.kernel_passes import KernelCompiler
from polyfuse.codegen.cpu.intrinsics.parallel_parts import OWNED
from polyfuse.runtime.cpu import native

Array = np.ndarray[Any, Any]


def up_and_down(x: Array, y: Array) -> None:
    """Loops with one, two and three numbers, forwards, backwards, in steps, and one that never runs."""
    for i in range(4):
        for j in range(i, 5):
            y[i, j] += x[i, j]
        for j in range(4, -1, -1):
            y[i, j] = y[i, j] * x[3 - i, j] + 1.0
        for j in range(1, 5, 3):
            y[i, j] -= x[i, j - 1]
        for j in range(i, i - 2):
            y[i, j] = 0.0


def chosen(x: Array, y: Array) -> None:
    """Indices that several elements share, of other types, and constant ones."""
    for i in range(4):
        for j in range(5):
            y[uint64(i), j] = x[i, j] if (i + j) % 3 else x[3 - i, uint64(4 - j)]
            place = (i, j)
            y[place] += x[place] + y[0, 0]


def counted(x: Array, y: Array) -> None:
    """A number that outlives its loop, and a loop that is left early."""
    last = 0
    for i in range(4):
        for j in range(5):
            if x[i, j] > 0.5:
                break
            last = 5 * i + j
        y[i, 0] = last


@pytest.mark.parametrize("function", [up_and_down, chosen, counted])
@pytest.mark.parametrize("counts", [False, True])
def test_a_kernel_computes_what_python_does(function: Callable[..., None], counts: bool) -> None:
    x = np.random.default_rng(0).random((4, 5))
    expected, found = np.ones((4, 5)), np.ones((4, 5))
    function(x, expected)
    numba.njit(pipeline_class=KernelCompiler, _nrt=counts)(function)(x, found)
    np.testing.assert_array_equal(found, expected)


def _llvm(nest: pf.Nest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The LLVM that LLVM is given for a nest's kernels."""
    texts: list[str] = []
    made = native._ObjectFile.add_ir_module

    def kept(library: native._ObjectFile, module: Any) -> None:
        if module.name != native.ENTRY:
            texts.append(str(module))
        made(library, module)

    monkeypatch.setenv("POLYFUSE_CACHE", "off")
    monkeypatch.setattr(native._ObjectFile, "add_ir_module", kept)
    pf.compile(nest, target="cpu", machine="zen5")
    return "\n".join(texts)


@pf.nest
def scaled(x: f64[6, 7], y: f64[6, 7]):
    for i in range(6):
        for j in range(7):
            y[i, j] = 2.0 * x[i, j]


def test_an_element_is_an_address_and_a_load(monkeypatch: pytest.MonkeyPatch) -> None:
    text = _llvm(scaled, monkeypatch)
    assert "getelementptr" in text
    assert "NRT_" not in text, "no array is counted"
    assert not re.search("store [^\n]* zeroinitializer", text), "no variable is filled first"


def test_all_that_makes_arrays_is_known() -> None:
    made = {"empty", "full", "zeros", "ones"}
    functions = {name: one for name, one in vars(intrinsics).items() if inspect.isfunction(one)}
    assert {name for name, one in functions.items() if made & set(one.__code__.co_names)} == OWNED - {
        "on_heap"
    }
