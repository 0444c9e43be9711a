"""Programs on arrays leave and return what NumPy does: values, shapes and types."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from tests.frontend.python.numpy import array_programs
from tests.frontend.python.running import called, copies

HELPERS = ("relu", "dense", "match")
PROGRAMS = {
    name: value
    for name, value in vars(array_programs).items()
    if isinstance(value, FunctionType) and value.__module__ == array_programs.__name__ and name not in HELPERS
}


def arguments(nest: pf.Nest, sizes: dict[str, int]) -> dict[str, Any]:
    """Random arrays; every integer parameter is 3."""
    rng = np.random.default_rng(5)
    found: dict[str, Any] = {}
    for tensor in nest.inputs:
        shape = tuple(sizes[extent] if isinstance(extent, str) else extent for extent in tensor.shape)
        if tensor.dtype.startswith("float"):
            found[tensor.name] = rng.normal(size=shape).astype(tensor.dtype)
        else:
            found[tensor.name] = rng.integers(-3, 4, shape).astype(tensor.dtype) if shape else 3
    return found


def results(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple) else [] if value is None else [value]


def assert_same(found: Any, expected: Any, single: bool) -> None:
    """The same shape, and the same values up to the order of sums."""
    assert np.shape(found) == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=2e-5 if single else 1e-9, atol=1e-5 if single else 1e-9)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_means_what_numpy_means(name: str) -> None:
    nest = pf.nest(PROGRAMS[name])
    single = any(t.dtype == "float32" for t in nest.tensors)
    for sizes in ({"N": 5, "M": 3}, {"N": 4, "M": 6}):
        given = arguments(nest, sizes)
        expected = copies(given)
        with np.errstate(all="ignore"):
            returned = results(nest.python(**expected))
        left = pf.interpret(nest, given, {k: 3 for k in nest.params if k not in {*sizes, *given}})
        for tensor in nest.with_role("inout"):
            assert_same(left[tensor.name], expected[tensor.name], single)
        outputs = nest.with_role("output")
        assert len(outputs) == len(returned)
        for tensor, value in zip(outputs, returned, strict=True):
            assert_same(left[tensor.name], value, single)
            if tensor.rank:
                assert tensor.dtype == value.dtype.name, tensor


@pytest.mark.parametrize("name", ["products", "rebound", "network", "functions", "integers"])
def test_a_program_in_machine_code(name: str) -> None:
    nest = pf.nest(PROGRAMS[name])
    given = arguments(nest, {"N": 5, "M": 3})
    net = pf.compile(nest, target="cpu")
    found = called(net, given)
    expected = copies(given)
    with np.errstate(all="ignore"):
        returned = results(nest.python(**expected))
    for tensor in nest.with_role("inout"):
        assert_same(found[tensor.name], expected[tensor.name], False)
    for tensor, value in zip(nest.with_role("output"), returned, strict=True):
        assert_same(found[tensor.name], value, False)
