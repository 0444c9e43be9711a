"""Products of one row: when they run in registers, with which pieces, and that a network of them is right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.machine import Machine
from polyfuse.strategy.cpu.gemv import RowProduct

ZEN5 = replace(Machine.preset("zen5"), units=1)


def network(width: int, batch: int = 1) -> nn.Sequential:
    return nn.Sequential(*(m for n in range(3) for m in (nn.Linear(width, width, seed=n), nn.Tanh())))


@pytest.mark.parametrize(("width", "taken"), [(64, True), (16, False), (96, True), (33, False), (10, False)])
def test_a_network_at_batch_1(width: int, taken: bool) -> None:
    nest = pf.lower(network(width), batch=1)
    net = pf.compile(nest, target="cpu", machine=ZEN5)
    assert (net.source.count("row_mac(") > 0) == taken
    x = np.random.default_rng(0).standard_normal((1, width), np.float32)
    np.testing.assert_allclose(net(x), pf.interpret(nest, {"x": x})["out"], rtol=2e-5, atol=2e-6)


def test_weights_are_packed_once_and_may_be_replaced() -> None:
    """Of three layers in one kernel, which launches that take longer ask for."""
    nest = pf.lower(network(64), batch=1)
    machine = replace(Machine.preset("zen5"), launch_seconds=1e-6)
    net = pf.compile(nest, target="cpu", machine=machine)
    x = np.ones((1, 64), np.float32)
    assert [launch.once for launch in net.kernels] == [True, True, True, False]
    before = net(x)
    net.replace_constants({"w0": 0 * nest.constants["w0"], "b0": 0 * nest.constants["b0"]})
    after = net(x)
    assert not np.array_equal(before, after)
    by_hand = np.zeros((1, 64), np.float32)
    for n in (1, 2):
        by_hand = np.tanh(by_hand @ nest.constants[f"w{n}"] + nest.constants[f"b{n}"])
    np.testing.assert_allclose(after, by_hand, rtol=2e-5, atol=2e-6)


def test_several_rows_are_a_tile() -> None:
    assert "row_mac(" not in pf.compile(pf.lower(network(64), batch=8), target="cpu", machine=ZEN5).source


@pytest.mark.parametrize(
    ("product", "width"),
    [
        (RowProduct(64, 64, 4, True, ZEN5), 64),
        (RowProduct(512, 512, 4, True, ZEN5), 128),
        (RowProduct(64, 40, 4, True, ZEN5), None),  # no piece is whole vectors
        (
            RowProduct(4096, 4096, 4, False, ZEN5),
            None,
        ),  # pieces of rows in DRAM, of a matrix that is not packed
    ],
)
def test_pieces_by_the_model(product: RowProduct, width: int | None) -> None:
    assert product.width() == width
