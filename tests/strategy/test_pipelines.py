"""Image pipelines: Python, NumPy, the oracle and the default strategy on both targets agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from papers.pipelines import PIPELINES, Pipeline
from tests.frontend.python.running import assert_close, by_python, by_source, called

ROUNDED = 4e-6
"""float32 with and without fused multiply-adds, as a part of the largest element."""

# more than one tile both ways, the last ones not full
LARGER = {
    "harris": {"M": 75, "N": 601},
    "unsharp": {"C": 2, "M": 23, "N": 305},
    "blurs": {"M": 77, "N": 610},
    "pyramid": {"M": 43, "N": 300},
}


def inputs_of(pipeline: Pipeline, sizes: Any) -> dict[str, Any]:
    return pipeline.inputs(sizes, np.random.default_rng(4))


def by_numpy(pipeline: Pipeline, arrays: dict[str, Any]) -> dict[str, Any]:
    """What NumPy computes in float64."""
    return pipeline.closed({name: np.asarray(value, np.float64) for name, value in arrays.items()})


@pytest.mark.parametrize("name", PIPELINES)
def test_python_the_oracle_and_the_source_agree(name: str) -> None:
    pipeline = PIPELINES[name]
    arrays = inputs_of(pipeline, pipeline.mini)
    expected = by_python(pipeline.nest, arrays)
    assert_close(expected, by_numpy(pipeline, arrays), ROUNDED)
    assert_close(pf.interpret(pipeline.nest, arrays), expected, 0.0)
    assert_close(by_source(pipeline.nest, arrays, pipeline.mini), expected, 0.0)


@pytest.mark.parametrize("name", PIPELINES)
def test_machine_code_agrees_with_numpy_at_any_size_and_at_one(name: str) -> None:
    pipeline = PIPELINES[name]
    net = pf.compile(pipeline.nest, target="cpu", machine="zen5")
    fixed = pf.compile(pipeline.nest, target="cpu", machine="zen5", sizes=LARGER[name])
    for sizes, executables in ((pipeline.mini, [net]), (LARGER[name], [net, fixed])):
        arrays = inputs_of(pipeline, sizes)
        for executable in executables:
            assert_close(called(executable, arrays), by_numpy(pipeline, arrays), ROUNDED)


@pytest.mark.parametrize("name", PIPELINES)
def test_the_stand_in_for_a_gpu_agrees_with_python(name: str) -> None:
    pipeline = PIPELINES[name]
    sizes = {size: 5 + value % 5 for size, value in pipeline.mini.items()} | (
        {"C": 2} if "C" in pipeline.mini else {"M": 9} if name == "blurs" else {}
    )
    net = pf.compile(pipeline.nest, target="cuda", machine="h200", device="lockstep")
    arrays = inputs_of(pipeline, sizes)
    assert_close(called(net, arrays), by_python(pipeline.nest, arrays), ROUNDED)
