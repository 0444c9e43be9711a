"""Products of batches of matrices against NumPy's, attention over heads, and what does not fit."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import BadArgument

DRAW = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("left", "right"),
    [((3, 4, 5), (3, 5, 6)), ((2, 1, 4, 5), (3, 5, 6)), ((4, 5), (2, 3, 5, 6)), ((2, 3, 4, 5), (5, 6))],
)
def test_batches_broadcast(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    x, y = DRAW.standard_normal(left), DRAW.standard_normal(right)
    nest = pf.lower(nn.input("x", left, "float64") @ nn.input("y", right, "float64"))
    assert [s.name for s in nest.statements] == ["zero0", "mac0"]
    np.testing.assert_allclose(pf.interpret(nest, [x, y])["out"], x @ y, rtol=1e-12)


@pytest.mark.parametrize("target", ["cpu", "lockstep"])
def test_attention_over_heads(target: str) -> None:
    shape = (2, 3, 12, 8)
    q, k, v = (nn.input(name, shape) for name in "qkv")
    scores = nn.softmax(nn.matmul(q, nn.transpose(k)) * shape[-1] ** -0.5)
    options = {} if target == "cpu" else {"machine": "h200", "device": "lockstep"}
    net = pf.compile(pf.lower(scores @ v), target="cpu" if target == "cpu" else "cuda", **options)
    arrays = [DRAW.standard_normal(shape, np.float32) for _ in "qkv"]
    e = np.exp(arrays[0] @ arrays[1].swapaxes(-1, -2) * shape[-1] ** -0.5)
    np.testing.assert_allclose(net(*arrays), e / e.sum(-1, keepdims=True) @ arrays[2], atol=1e-5)


def test_heads_run_in_one_pass_outside_of_the_loop_over_keys() -> None:
    shape = (2, 3, 1024, 16)
    q, k, v = (nn.input(name, shape) for name in "qkv")
    machine = pf.Machine.preset("zen5")
    net = pf.compile(pf.lower(nn.softmax(q @ nn.transpose(k)) @ v), target="cpu", machine=machine)
    assert "sums under a maximum run in one pass" in net.explain()
    loops = [loop.name for loop in net.schedule.loops("mac0")]
    assert loops.index("i") < loops.index("j") < loops.index("m_block")
    assert net.schedule.loops("mac0")[0].bind == "cores"
    arrays = [DRAW.standard_normal(shape, np.float32) for _ in "qkv"]
    e = np.exp(arrays[0] @ arrays[1].swapaxes(-1, -2))
    np.testing.assert_allclose(net(*arrays), e / e.sum(-1, keepdims=True) @ arrays[2], atol=1e-4)


def test_what_does_not_fit() -> None:
    x = nn.input("x", (2, 4, 5))
    with pytest.raises(BadArgument, match=r"matmul: \(2, 4, 5\) and \(2, 4, 5\) do not fit: expected"):
        x @ x
    with pytest.raises(BadArgument, match=r"the batches \(2,\) and \(3,\) do not broadcast"):
        x @ nn.input("y", (3, 5, 6))
