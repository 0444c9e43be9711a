"""PolyBench's 30 kernels in their original order: the oracle, the emitted source and NumPy agree with Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from papers.polybench import KERNELS, Kernel
from tests.frontend.python.running import assert_close, by_python, by_source, called, copies

NAMES = [
    "2mm",
    "3mm",
    "adi",
    "atax",
    "bicg",
    "cholesky",
    "correlation",
    "covariance",
    "deriche",
    "doitgen",
    "durbin",
    "fdtd-2d",
    "floyd-warshall",
    "gemm",
    "gemver",
    "gesummv",
    "gramschmidt",
    "heat-3d",
    "jacobi-1d",
    "jacobi-2d",
    "lu",
    "ludcmp",
    "mvt",
    "nussinov",
    "seidel-2d",
    "symm",
    "syr2k",
    "syrk",
    "trisolv",
    "trmm",
]


def inputs_of(kernel: Kernel, sizes: Any) -> dict[str, Any]:
    return kernel.inputs(sizes, np.random.default_rng(4))


def smaller(kernel: Kernel) -> dict[str, int]:
    """Sizes that the stand-in, which needs a millisecond an instance, can do."""
    return {name: 3 + size % 5 + (2 if name == "M" else 0) for name, size in kernel.mini.items()}


def test_all_thirty_are_there() -> None:
    assert sorted(KERNELS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_oracle_agrees_with_python(name: str) -> None:
    kernel = KERNELS[name]
    arrays = inputs_of(kernel, kernel.mini)
    assert_close(pf.interpret(kernel.nest, arrays), by_python(kernel.nest, arrays))


@pytest.mark.parametrize("name", [name for name in NAMES if KERNELS[name].closed is not None])
def test_python_agrees_with_numpy(name: str) -> None:
    kernel = KERNELS[name]
    assert kernel.closed is not None
    arrays = inputs_of(kernel, kernel.mini)
    expected = kernel.closed(copies(arrays))
    found = by_python(kernel.nest, arrays)
    assert set(expected) <= set(found)
    assert_close(found, expected)
    assert any(not np.array_equal(found[n], arrays[n]) for n in expected)


@pytest.mark.parametrize("name", NAMES)
def test_the_source_agrees_with_python_at_any_size_and_at_one(name: str) -> None:
    kernel = KERNELS[name]
    arrays = inputs_of(kernel, kernel.mini)
    expected = by_python(kernel.nest, arrays)
    assert_close(by_source(kernel.nest, arrays, kernel.mini), expected)
    fixed = kernel.nest.with_sizes(kernel.mini)
    assert all(isinstance(size, int) for tensor in fixed.tensors for size in tensor.shape)
    assert_close(by_source(fixed, arrays, kernel.mini), expected)


@pytest.mark.parametrize(
    "name", ["2mm", "adi", "cholesky", "deriche", "heat-3d", "nussinov", "seidel-2d", "trmm"]
)
@pytest.mark.parametrize("sizes", [1, 2, 3])
def test_the_smallest_sizes(name: str, sizes: int) -> None:
    kernel = KERNELS[name]
    tiny = dict.fromkeys(kernel.mini, sizes)
    arrays = inputs_of(kernel, tiny)
    expected = by_python(kernel.nest, arrays)
    assert_close(pf.interpret(kernel.nest, arrays), expected)
    assert_close(by_source(kernel.nest, arrays, tiny), expected)


@pytest.mark.parametrize("name", NAMES)
def test_machine_code_agrees_with_python_at_any_size_and_at_one(name: str) -> None:
    kernel = KERNELS[name]
    net = pf.compile(kernel.nest, target="cpu", schedule=pf.Schedule(kernel.nest))
    for sizes in (kernel.mini, smaller(kernel)):
        arrays = inputs_of(kernel, sizes)
        assert_close(called(net, arrays), by_python(kernel.nest, arrays))
    schedule = pf.Schedule(kernel.nest.with_sizes(kernel.mini))
    net = pf.compile(kernel.nest, target="cpu", sizes=kernel.mini, schedule=schedule)
    arrays = inputs_of(kernel, kernel.mini)
    assert_close(called(net, arrays), by_python(kernel.nest, arrays))


def test_a_call_of_what_was_compiled_for_other_sizes() -> None:
    kernel = KERNELS["jacobi-1d"]
    fixed = kernel.nest.with_sizes(kernel.mini)
    net = pf.compile(kernel.nest, target="cpu", sizes=kernel.mini, schedule=pf.Schedule(fixed))
    arrays = inputs_of(kernel, kernel.mini)
    with pytest.raises(pf.BadArgument, match="outside of what the nest allows"):
        net(**{**arrays, "T": 3})
    with pytest.raises(pf.BadArgument, match=r"A: expected shape \[30\] .*given \[9\]"):
        net(20, np.ones(9), np.ones(9))


@pytest.mark.parametrize("name", NAMES)
def test_the_stand_in_for_a_gpu_agrees_with_python(name: str) -> None:
    kernel = KERNELS[name]
    schedule = pf.Schedule(kernel.nest)
    net = pf.compile(kernel.nest, target="cuda", machine="h200", device="lockstep", schedule=schedule)
    arrays = inputs_of(kernel, smaller(kernel))
    assert_close(called(net, arrays), by_python(kernel.nest, arrays))
