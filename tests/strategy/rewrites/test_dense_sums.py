"""Products whose results lie apart, and pooling behind a convolution, in temporaries of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import polyfuse as pf
from polyfuse import nn
from polyfuse.strategy.pipeline import plan_for
from polyfuse.strategy.rewrites.reductions.dense_sums import (
    PASS,
    begun_by_others,
    pooled,
    read_again,
    summed_over_batches,
    with_dense_sums,
)
from tests.support.models import CPU

ONE = replace(CPU, units=1)


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def upsampled() -> pf.Nest:
    x = nn.input("x", (1, 8, 6, 7))
    return pf.lower(nn.relu(nn.conv_transpose(x, weights(8, 16, 4, 4), stride=2, padding=1)))


def test_phases_are_summed_side_by_side_in_tiles() -> None:
    nest = upsampled()
    plan = plan_for(nest, ONE)
    assert [remark.taken for remark in plan.log if remark.pass_ == PASS] == [True] * 4
    net = pf.compile(nest, target="cpu", machine=ONE)
    assert net.source.count("tile_mac_windows(") >= 4
    assert not any(
        s.name.startswith("zero") for s in plan.schedule.nest.statements
    )  # sums begin with it themselves
    x = weights(1, 8, 6, 7)
    np.testing.assert_allclose(net(x), pf.interpret(nest, [x])["out"], rtol=1e-4, atol=1e-5)


def test_what_lies_side_by_side_stays() -> None:
    nest = pf.lower(nn.conv2d(nn.input("x", (1, 8, 9, 9)), weights(16, 8, 3, 3)))
    assert with_dense_sums(nest, ONE) == (nest, ())


def test_pooling_behind_a_convolution_is_stored_once() -> None:
    x = nn.relu(nn.conv2d(nn.input("x", (1, 4, 10, 10)), weights(16, 4, 3, 3)))
    nest = pf.lower(nn.max_pool(x, 2) * 2.0)
    assert pooled(nest) == ("max0",)
    made, (remark,) = with_dense_sums(nest, ONE)
    assert remark.taken
    data = weights(1, 4, 10, 10)
    assert (pf.interpret(made, [data])["out"] == pf.interpret(nest, [data])["out"]).all()
    assert pooled(pf.lower(nn.mean(x, (2, 3)) * 2.0)) == ()  # neighbours are columns there


def test_a_convolution_that_a_sum_over_all_images_reads_is_in_tiles() -> None:
    """Batch norm in training: the results have to be in memory, the sums of a tile not."""
    y = nn.conv2d(nn.input("x", (3, 8, 10, 10)), weights(32, 8, 3, 3))
    nest = pf.lower(nn.relu(y - nn.reshape(nn.mean(y, (0, 2, 3)), (32, 1, 1))))
    assert summed_over_batches(nest) == ("mac0",)
    plan = plan_for(nest, ONE)
    assert "microkernel" in {loop.bind for loop in plan.schedule.loops("mac0")}
    made, _ = with_dense_sums(nest, ONE)
    data = weights(3, 8, 10, 10)
    expected = pf.interpret(nest, [data])["out"]
    np.testing.assert_allclose(pf.interpret(made, [data])["out"], expected, rtol=1e-4, atol=1e-5)
    of_an_image = pf.lower(nn.relu(y - nn.reshape(nn.mean(y, (2, 3)), (3, 32, 1, 1))))
    assert summed_over_batches(of_an_image) == ()


def test_a_convolution_that_is_read_again_behind_another_is_in_tiles() -> None:
    """A step of training: the mask of the ReLU is read again in the backward pass."""
    x, first, second = nn.input("x", (2, 16, 6, 6)), weights(16, 16, 3, 3), weights(16, 16, 3, 3)
    y = nn.conv2d(x, first, padding=1)
    model = nn.conv2d(nn.relu(y), second, padding=1)
    assert read_again(pf.lower(model)) == ()
    nest = pf.vjp(pf.lower(nn.mean(model * model)), wrt=("w0",))
    assert read_again(nest) == ("mac0",)
    plan = plan_for(nest, ONE)
    assert "microkernel" in {loop.bind for loop in plan.schedule.loops("mac0")}
    assert any("for a reader behind a further product" in str(remark) for remark in plan.log)
    made, _ = with_dense_sums(nest, ONE)
    data = weights(2, 16, 6, 6), np.float32(1.0).reshape(())
    (expected,) = pf.interpret(nest, [*data]).values()
    np.testing.assert_allclose(
        next(iter(pf.interpret(made, [*data]).values())), expected, rtol=1e-4, atol=1e-6
    )


def test_a_convolution_that_adds_to_what_others_began_is_in_tiles() -> None:
    """The gradient of what both branches of a residual block read: one branch's, to which the convolution adds its."""
    x = nn.relu(nn.input("x", (2, 16, 6, 6)))
    w = weights(16, 16, 3, 3)
    nest = pf.vjp(pf.lower(nn.relu(x + nn.conv2d(x, w, padding=1))), wrt=("x",))
    (name,) = begun_by_others(nest)
    assert begun_by_others(pf.lower(nn.relu(nn.conv2d(x, w, padding=1)))) == ()
    plan = plan_for(nest, ONE)
    assert "microkernel" in {loop.bind for loop in plan.schedule.loops(name)}
    assert any("begins as others left it" in str(remark) for remark in plan.log)
    net = pf.compile(nest, target="cpu", machine=ONE)
    data = weights(2, 16, 6, 6), weights(2, 16, 6, 6) + 1
    (expected,) = pf.interpret(nest, [*data]).values()
    np.testing.assert_allclose(net(*data), expected, rtol=1e-4, atol=1e-4)
