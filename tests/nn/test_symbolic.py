"""Layers of symbolic sizes: the same nest as for numbers, at every size; one compile for all sizes; refusals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import BadArgument
from polyfuse.nn.conv.places import max_pool_with_places

Array = np.ndarray[Any, Any]
Made = nn.Value | tuple[nn.Value, ...]
Shape = tuple[int | str, ...]

TARGETS: Mapping[str, Mapping[str, Any]] = {
    "cpu": {"target": "cpu"},
    "cuda": {"target": "cuda", "machine": "h200", "device": "lockstep"},
}


def weights(*shape: int) -> Array:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32) / 2


def numbers(shape: Shape, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(int(eval(str(size), {}, dict(sizes))) for size in shape)


def inputs(shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


IMAGE: Shape = ("N", 4, "H", 5)
OPERATIONS: Mapping[str, tuple[Shape, Callable[[nn.Value], Made]]] = {
    "linear": (("N", "T", 4), lambda x: nn.linear(x, weights(4, 3), weights(3))),
    "broadcasting": (("N", "T", 4), lambda x: x * x[:, :1] + weights(4) - nn.max(x, 2, keepdims=True)),
    "matmul": (("N", "T", 4), lambda x: (x @ nn.transpose(x)) @ x),
    "conv1d": (("N", 4, "H"), lambda x: nn.conv1d(x, weights(6, 2, 3), weights(6), 2, 1, groups=2)),
    "conv2d": (IMAGE, lambda x: nn.conv2d(x, weights(3, 4, 3, 2), None, (2, 1), ((2, 1), 0), (2, 1))),
    "conv2d same": (IMAGE, lambda x: nn.conv2d(x, weights(3, 4, 3, 3), padding="same")),
    "conv2d last": (
        ("N", "H", 5, 4),
        lambda x: nn.conv2d(x, weights(3, 4, 2, 2), stride=2, layout="NHWC"),
    ),
    "conv3d": (("N", 2, 3, "H", "H + 1"), lambda x: nn.conv3d(x, weights(3, 2, 2, 2, 2), padding=1)),
    "conv transpose": (
        ("N", 4, "H", 3),
        lambda x: nn.conv_transpose(x, weights(4, 3, 3, 3), weights(3), 2, 1, 1),
    ),
    "max pool": (IMAGE, lambda x: nn.max_pool(x, 3, 2, 1)),
    "max pool dilated": (IMAGE, lambda x: nn.max_pool(x, 2, 1, 1, 2)),
    "average pool": (IMAGE, lambda x: nn.avg_pool(x, 3, 2, 1, count_padding=False)),
    "average with padding": (IMAGE, lambda x: nn.avg_pool(x, 2, 2, 1)),
    "global average": (IMAGE, lambda x: nn.adaptive_avg_pool(x, 1)),
    "adaptive": (("N", 4, 6, 5), lambda x: nn.adaptive_max_pool(x, (4, 3))),
    "places": (IMAGE, lambda x: max_pool_with_places(x, 2)),
    "batch norm": (IMAGE, lambda x: nn.batch_norm(x, weights(4), abs(weights(4)) + 1)),
    "group norm": (IMAGE, lambda x: nn.group_norm(x, 2, weights(4), weights(4))),
    "layer norm": (("N", "T", 4), lambda x: nn.layer_norm(x, 4, weights(4), weights(4))),
    "layer norm of all": (("N", "T", 4), lambda x: nn.layer_norm(x, x.shape[1:])),
    "rms norm": (("N", 4), lambda x: nn.rms_norm(x, 4, weights(4))),
    "softmax": (("N", "T"), lambda x: (nn.softmax(x), nn.log_softmax(x, 0))),
    "mean": (("N", "T", 4), lambda x: (nn.mean(x, (0, 2)), nn.mean(x), nn.mean(x[:, ::2], 1, keepdims=True))),
    "reductions": (("N", "T"), lambda x: (nn.sum(x, 0), nn.max(x, 1), nn.prod(x), nn.min(x, 0))),
    "variance": (("N", "T"), lambda x: (nn.var(x, 1), nn.std(x, (0, 1), 1), nn.norm(x, 0), nn.logsumexp(x))),
    "argmax": (("N", "T"), lambda x: (nn.argmax(x), nn.argmin(x, 0))),
    "scans": (("N", "T"), lambda x: (nn.cumsum(x), nn.cumprod(x, 0))),
    "concat": (("N", "T"), lambda x: nn.concat([x, 2 * x[1:], x])),
    "stack": (("N", "T"), lambda x: nn.stack([x, -x], 1)),
    "slices": (
        ("N", "T"),
        lambda x: (x[1:], x[:-2], x[::2], x[::-1], x[2], x[-1, None], x[-3:-1], x[7:2:-2]),
    ),
    "narrow": (
        ("N", "T"),
        lambda x: (nn.narrow(x, 1, 1, x.shape[1] - 2), nn.select(x, 0, x.shape[0] - 2), nn.flip(x, 1)),
    ),
    "split": (("N", "T"), lambda x: nn.split(x, [2, x.shape[0] - 2])),
    "pad": (("N", "T"), lambda x: nn.pad(x, ((1, 2), (0, 1)), -1.0)),
    "unfold": (("N", "T"), lambda x: nn.unfold(x, 1, 3, 2)),
    "expand": (("N", 1, 4), lambda x: nn.expand(x, (x.shape[0], 3, 4)) * weights(3, 4)),
    "flatten": (("N", 3, 4, 4), lambda x: nn.reshape(x, (x.shape[0], 48))),
    "reshape": (
        ("N", "T", 8),
        lambda x: (nn.reshape(x, (*x.shape[:2], 2, -1)), nn.reshape(x, (-1, x.shape[1], 4, 2))),
    ),
    "reshape rows": (
        ("2*N", 6),
        lambda x: (nn.reshape(x, (-1, 12)), nn.reshape(x, (2 * x.shape[0], 3)), nn.reshape(x, (-1,))),
    ),
    "heads": (
        ("N", "T", 8),
        lambda x: nn.transpose(nn.reshape(x, (*x.shape[:2], 2, 4)), 1, 2) @ weights(4, 4),
    ),
    "lstm": (("T", "N", 4), lambda x: nn.LSTM(4, 3, layers=2).unrolled(x)),
    "gru": (("T", "N", 4), lambda x: nn.GRU(4, 3)(x)),
    "cells": (("N", 4), lambda x: (nn.LSTMCell(4, 3)(x), nn.GRUCell(4, 3)(x), nn.RNNCell(4, 3)(x))),
    "halves of halves": (("N", 4, "H", "H"), lambda x: nn.max_pool(nn.max_pool(x, 2), 2, padding=1)),
}
SIZES = ({"N": 8, "T": 9, "H": 7}, {"N": 11, "T": 8, "H": 8})


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_computes_what_it_does_for_numbers(name: str) -> None:
    shape, make = OPERATIONS[name]
    general = nn.lower(make(nn.input("x", shape)))
    for sizes in SIZES:
        x = inputs(numbers(shape, sizes))
        found = pf.interpret(general, {"x": x})
        wanted = pf.interpret(nn.lower(make(nn.input("x", x.shape))), {"x": x})
        assert found.keys() == wanted.keys()
        for out in found:
            np.testing.assert_allclose(found[out], wanted[out], rtol=1e-5, atol=1e-6)
            assert found[out].shape == wanted[out].shape


def attention(x: nn.Value) -> nn.Value:
    """Attention of two heads over (B, T, 8), its residual and norm."""
    batch, length, size = x.shape
    every = nn.split(nn.linear(x, weights(8, 24), weights(24)), 8, axis=2)
    q, k, v = (nn.transpose(nn.reshape(part, (batch, length, 2, 4)), 1, 2) for part in every)
    mixed = nn.reshape(nn.transpose(nn.softmax(q @ nn.transpose(k) * 0.5) @ v, 1, 2), (batch, length, size))
    return nn.layer_norm(x + nn.linear(mixed, weights(8, 8)), 8)


def images(x: nn.Value) -> nn.Value:
    """A small classifier of images of any height."""
    h = nn.relu(nn.batch_norm(nn.conv2d(x, weights(4, 2, 3, 3), None, 2, 1), weights(4), abs(weights(4)) + 1))
    h = nn.adaptive_avg_pool(nn.max_pool(h, 3, 2, 1), 1)
    return nn.linear(nn.reshape(h, (x.shape[0], 4)), weights(4, 3))


MLP = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
NETS: Mapping[str, tuple[Shape, Callable[[nn.Value], Made], tuple[Mapping[str, int], ...]]] = {
    "mlp": (("N", 8), MLP, ({"N": 0}, {"N": 1}, {"N": 33})),
    "attention": (
        ("N", "T", 8),
        attention,
        ({"N": 0, "T": 3}, {"N": 2, "T": 0}, {"N": 1, "T": 1}, {"N": 2, "T": 17}),
    ),
    "images": (
        ("N", 2, "H", 7),
        images,
        ({"N": 0, "H": 9}, {"N": 1, "H": 1}, {"N": 2, "H": 16}),
    ),
    "lstm": (
        ("T", "N", 4),
        nn.LSTM(4, 3),
        ({"T": 0, "N": 2}, {"T": 1, "N": 1}, {"T": 5, "N": 3}, {"T": 2, "N": 0}),
    ),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NETS)
def test_one_compile_is_for_all_sizes(name: str, target: str) -> None:
    shape, make, every = NETS[name]
    nest = nn.lower(make(nn.input("x", shape)))
    net = pf.compile(nest, **TARGETS[target])
    for sizes in every:
        x = inputs(numbers(shape, sizes))
        wanted = pf.interpret(nest, {"x": x})["out"]
        np.testing.assert_allclose(net(x), wanted, rtol=1e-4, atol=1e-5)
    assert net.report().sizes == dict.fromkeys(nest.params, 256)


def test_a_model_takes_a_symbolic_batch() -> None:
    nest = pf.lower(MLP, batch="N")
    assert str(nest.tensor("x")) == "input x: float32[N, 8]"
    assert nest.params == ("N",)
    several = pf.lower(MLP, batch=("N", "2*T + 1"), dtype="float32")
    assert several.tensor("out").shape == ("N", "2 * T + 1", 3)


def test_text_stands_for_a_size_in_shapes() -> None:
    x = nn.input("x", ("N", 8))
    made = nn.concat([nn.narrow(x, 0, 1, "N - 1"), nn.select(x, 0, "N - 1")[None]])
    value = inputs((5, 8))
    np.testing.assert_array_equal(
        pf.interpret(nn.lower(nn.reshape(made, ("N", 2, 4))), {"x": value})["out"],
        np.concatenate([value[1:], value[-1:]]).reshape(5, 2, 4),
    )


def test_names_of_tensors_and_loops_leave_those_of_sizes_alone() -> None:
    nest = nn.lower(nn.linear(nn.input("x", ("i", "w0", 4)), weights(4, 3), weights(3)))
    x = inputs((2, 3, 4))
    np.testing.assert_allclose(
        pf.interpret(nest, {"x": x})["out"], x @ weights(4, 3) + weights(3), rtol=1e-5, atol=1e-6
    )
    assert nest.params == ("i", "w0")
    assert "w0" not in [t.name for t in nest.tensors]


def test_what_an_operation_needs_is_checked_by_the_call() -> None:
    net = pf.compile(nn.lower(nn.max(nn.input("x", ("N", "T"))[2:], 1)), target="cpu")
    x = inputs((3, 2))
    np.testing.assert_array_equal(net(x), x[2:].max(1))
    with pytest.raises(BadArgument, match="N >= 2 does not hold"):
        net(inputs((1, 2)))
    with pytest.raises(BadArgument, match="T > 0 does not hold"):
        net(inputs((3, 0)))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda x: x + nn.input("y", ("M", "T", 4)), "add: shapes .* do not broadcast"),
        (lambda x: nn.reshape(x, (-1, 4)), "no size in place of -1 in .* two symbolic axes cannot be one"),
        (lambda x: nn.reshape(x, ("T", "N", 4)), "divides by a symbolic size"),
        (lambda x: nn.reshape(x, ("N", 12)), r"has 4 \* N \* T elements, the shape \(N, 12\) 12 \* N"),
        (lambda x: nn.chunk(x, 2), "chunk: 2 pieces, of a size: expected numbers, given .N."),
        (lambda x: nn.split(x, 2, 1), "split: pieces of 2 elements, of a size: expected numbers"),
        (lambda x: nn.split(x, [2, "N"]), "do not add up to N"),
        (lambda x: nn.adaptive_avg_pool(nn.transpose(x), 2), "2 windows over the symbolic size T"),
        (lambda x: nn.group_norm(x, 2), "group_norm: channels: expected numbers, given .T."),
        (
            lambda x: nn.conv1d(x, nn.input("w", ("F", "T", 3))),
            "conv1d: the weight's shape: expected numbers",
        ),
        (
            lambda x: nn.max_pool(nn.transpose(x), 3, 2, "same"),
            "same. with stride 2 depends on the remainder",
        ),
        (lambda x: nn.select(x, 0, "N"), "select: index N along axis 0"),
        (lambda x: nn.narrow(x, 0, 1, "N"), "narrow: N elements from 1"),
        (lambda x: nn.lower(nn.narrow(x, 0, 0, "-N - 1")), "no sizes N, T are such that"),
        (
            lambda x: nn.lower(x + nn.input("N", ("N", "T", 4))),
            "a tensor and a symbolic size would both be named 'N'",
        ),
        (lambda x: nn.input("y", ("N*T",)), "input y: shape: 'N\\*T' is not affine"),
    ],
)
def test_what_is_not_affine_or_not_known_to_fit_is_refused(make: Any, why: str) -> None:
    with pytest.raises(BadArgument, match=why):
        make(nn.input("x", ("N", "T", 4)))
