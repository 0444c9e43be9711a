"""PolyBench's 30 kernels under the default strategy: both targets agree with Python, at any size."""

from __future__ import annotations

import pytest

import polyfuse as pf
from papers.polybench import KERNELS
from tests.frontend.running import assert_close, by_python, called
from tests.frontend.test_polybench import NAMES, inputs_of, smaller


@pytest.mark.parametrize("name", NAMES)
def test_machine_code_agrees_with_python(name: str) -> None:
    kernel = KERNELS[name]
    net = pf.compile(kernel.nest, target="cpu", machine="zen5")
    for sizes in (kernel.mini, smaller(kernel)):
        arrays = inputs_of(kernel, sizes)
        assert_close(called(net, arrays), by_python(kernel.nest, arrays))


@pytest.mark.parametrize("name", NAMES)
def test_the_stand_in_for_a_gpu_agrees_with_python(name: str) -> None:
    kernel = KERNELS[name]
    net = pf.compile(kernel.nest, target="cuda", machine="h200", device="lockstep")
    arrays = inputs_of(kernel, smaller(kernel))
    assert_close(called(net, arrays), by_python(kernel.nest, arrays))
