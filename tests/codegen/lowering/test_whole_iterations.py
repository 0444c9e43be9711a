"""A core's value of a loop is run in one piece, with the buffers that the core has for it."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.ir import Nest, Tensor, statement
from tests.support.execution import memory, run_plain


def chain(size: int) -> Nest:
    """t = 2 a, then o = t + 1."""
    roles = {"a": "input", "t": "temporary", "o": "output"}
    tensors = [Tensor(name, (size,), "float64", role) for name, role in roles.items()]  # type: ignore[arg-type]
    box = f"0 <= i < {size}"
    first = statement(f"{{ S[i] : {box} }}", "t[i] = 2 * a[i]")
    return Nest.of(tensors, [first, statement(f"{{ R[i] : {box} }}", "o[i] = t[i] + 1")])


def on_cores(nest: Nest, apart: tuple[str, ...], place: str = "cores") -> pf.Schedule:
    """Tiles of four on the cores, t in a buffer of each, full tiles of some statements apart."""
    s = pf.Schedule(nest).split("S", "i", 4).split("R", "i", 4).fuse("S", "R", at="i")
    for name in apart:
        s = s.separate(name, "i_in")
    return s.bind("S", i=place).promote("t", "S", at="i", memory="local")


@pytest.mark.parametrize("place", ["cores", "dynamic"])
@pytest.mark.parametrize("apart", [(), ("S",), ("R",), ("S", "R")])
@pytest.mark.parametrize("size", [3, 4, 5, 7, 8, 13])
def test_buffers_hold_what_a_value_put_there(size: int, apart: tuple[str, ...], place: str) -> None:
    """The first value's full tile is over before all else begins: isl would run it before the loop over cores."""
    nest = chain(size)
    try:
        s = on_cores(nest, apart, place)
    except pf.InvalidSchedule:  # all tiles are full, or none
        assert size % 4 == 0 or size < 4
        return
    inputs = {"a": np.arange(size, dtype=np.float64)}
    arrays = memory(nest, s.nest, s.tree, inputs, {})
    run_plain(s.nest, s.tree, arrays, {}, 0)
    np.testing.assert_array_equal(arrays["o"], 2 * inputs["a"] + 1)
    net = pf.compile(nest, target="cpu", schedule=s)
    np.testing.assert_array_equal(net(inputs["a"]), 2 * inputs["a"] + 1)


@pytest.mark.parametrize("place", ["cores", "dynamic"])
def test_a_value_that_isl_makes_no_loop_of_has_one_buffer(place: str) -> None:
    """isl takes the copy and the sum apart under two loops of one value, of which the inner one is on cores."""
    shapes = {"x": (9,), "w": (2, 4), "v": (7, 4)}
    tensors = [Tensor(name, shape, "float64", "input") for name, shape in shapes.items()]
    tensors[-1] = Tensor("v", (7, 4), "float64", "inout")
    window = statement(
        "{ S[i, j, l] : 0 <= i < 7 and 0 <= j < 4 and 0 <= l < 2 }", "v[i, j] += x[i + 2*l] * w[l, j]"
    )
    nest = Nest.of(tensors, [window])
    s = pf.Schedule(nest).tile("S", i=8, j=48).promote("x", "S", at="j").bind("S", j=place)
    inputs = {name: np.arange(float(np.prod(shape))).reshape(shape) for name, shape in shapes.items()}
    expected = pf.interpret(nest, {name: array.copy() for name, array in inputs.items()})["v"]
    pf.compile(nest, target="cpu", schedule=s)(*inputs.values())
    np.testing.assert_array_equal(inputs["v"], expected)
