"""Running sums and products against NumPy's."""

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.interpret import interpret


@pytest.mark.parametrize("kind", ["cumsum", "cumprod"])
@pytest.mark.parametrize(
    ("shape", "axis"), [((4,), 0), ((3, 5), 1), ((3, 5), 0), ((2, 1, 3), 1), ((0, 3), 0), ((2, 3, 4), -2)]
)
def test_scans(kind: str, shape: tuple[int, ...], axis: int) -> None:
    x = np.random.default_rng(0).integers(-3, 4, shape).astype(np.float64)
    found = interpret(pf.lower(getattr(nn, kind)(nn.input("x", shape, "float64"), axis)), {"x": x})["out"]
    assert np.array_equal(found, getattr(np, kind)(x, axis))


def test_a_scan_compiles_with_its_neighbours() -> None:
    x = np.random.default_rng(1).integers(-3, 4, (6, 7)).astype(np.float32)
    net = pf.compile(pf.lower(nn.cumsum(nn.relu(nn.input("x", x.shape)), 1) * 2.0))
    assert np.array_equal(net(x), np.cumsum(np.maximum(x, 0), 1) * 2)


def test_sums_of_halves_are_rounded_once() -> None:
    x = np.full(3000, 1, np.float16)
    found = interpret(pf.lower(nn.cumsum(nn.input("x", x.shape, "float16"))), {"x": x})["out"]
    assert found[-1] == 3000  # in float16 they would stop at 2048
