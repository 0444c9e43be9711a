"""Batches of size 0: every layer compiles, returns the shape NumPy has, and leaves what is not empty right."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn, rewrite
from polyfuse.bilinear import strassen
from polyfuse.errors import IllegalRewrite

Array = np.ndarray[Any, Any]
TARGETS: Mapping[str, Mapping[str, Any]] = {
    "cpu": {"target": "cpu"},
    "cuda": {"target": "cuda", "machine": "h200", "device": "lockstep"},
}


def weights(*shape: int) -> Array:
    return (np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 7 - 3) / 8


def heads(x: nn.Value) -> nn.Value:
    """Attention of two heads over (B, T, 8)."""
    batch, length, _ = x.shape
    q, k, v = (
        nn.transpose(nn.reshape(nn.linear(x, weights(8, 8)), (batch, length, 2, 4)), 1, 2) for _ in range(3)
    )
    mixed = nn.softmax(q @ nn.transpose(k) * 0.5) @ v
    return x + nn.reshape(nn.transpose(mixed, 1, 2), (batch, length, 8))


def ensemble(x: nn.Value) -> nn.Value:
    """The average of three classifiers."""
    size = x.shape[-1]
    members = [
        nn.softmax(nn.linear(nn.relu(nn.linear(x, weights(size, 5))), weights(5, 4))) for _ in range(3)
    ]
    return nn.mean(nn.stack(members), 0)


def gates(x: nn.Value) -> nn.Value:
    """Sequences of rows: a recurrence over (T, B, D), whose batch is in the middle."""
    return nn.LSTM(x.shape[-1], 3)(nn.transpose(x, 0, 1))


def flattened(x: nn.Value) -> nn.Value:
    """(B, …) -> (B, all)."""
    return nn.reshape(x, (x.shape[0], math.prod(x.shape[1:])))


VECTORS: Mapping[str, Callable[[nn.Value], nn.Value]] = {
    "relu": nn.relu,
    "gelu": nn.gelu,
    "square": lambda x: x * x + 1.0,
    "linear": lambda x: nn.linear(x, weights(x.shape[-1], 6), weights(6)),
    "softmax": nn.softmax,
    "log_softmax": nn.log_softmax,
    "layer_norm": lambda x: nn.layer_norm(x, x.shape[-1]),
    "rms_norm": lambda x: nn.rms_norm(x, x.shape[-1]),
    "over its sum": lambda x: x / (nn.sum(x * x) + 1.0),
    "over its norm": lambda x: x / (nn.norm(x, -1, keepdims=True) + 1.0),
    "concat": lambda x: nn.concat([nn.tanh(x), x], -1),
    "stack": lambda x: nn.reshape(nn.stack([nn.exp(x), nn.relu(x)], -1), (*x.shape[:-1], 2 * x.shape[-1])),
    "batches joined": lambda x: nn.concat([nn.tanh(x), x], 0),
    "flip": lambda x: nn.flip(x, -1),
    "pad": lambda x: nn.pad(x, [0] * (x.rank - 1) + [(1, 2)], 0.5),
    "narrow": lambda x: nn.narrow(x, x.rank - 1, 1, x.shape[-1] - 1) if x.shape[-1] > 1 else x,
    "flatten": lambda x: flattened(x) @ weights(flattened(x).shape[1], 3),
    "deviation": lambda x: x - nn.mean(x, -1, keepdims=True) + nn.var(x, -1, keepdims=True),
    "two passes": lambda x: x + nn.logsumexp(nn.expand(x[..., :1], (*x.shape[:-1], 5000)), -1, keepdims=True),
}  # fmt: skip
"""Layers that keep the batch in front, and take and give any rank from 2."""

SEQUENCES = {
    "attention": lambda x: nn.softmax(x @ nn.transpose(x)) @ x,
    "heads": lambda x: heads(nn.linear(x, weights(x.shape[-1], 8))),
    "conv1d": lambda x: nn.relu(nn.conv1d(x, weights(4, x.shape[1], 3), padding=1)),
    "pool": lambda x: nn.max_pool(x, 1),
    "turned": lambda x: nn.permute(x, (0, 2, 1)),
    "lstm": lambda x: nn.transpose(gates(x), 0, 1),
}
"""Layers of (B, C, W)."""

LAST: Mapping[str, Callable[[nn.Value], nn.Value]] = {
    "sum": nn.sum,
    "columns": lambda x: nn.sum(x, 0),
    "rows": lambda x: nn.max(x, -1),
    "argmax": lambda x: nn.argmax(x, -1),
    "ensemble": ensemble,
    "identity": lambda x: x,
}


def network(draw: random.Random, batch: int) -> tuple[list[nn.Value], list[str]]:
    """One or two results of a random network, and the names of its layers."""
    x = nn.input("x", (batch, *(draw.choice((1, 2, 5, 8)) for _ in range(draw.choice((1, 2))))))
    names, values = [], [x]
    for _ in range(draw.randint(1, 5)):
        every = {**VECTORS, **SEQUENCES} if values[-1].rank == 3 else VECTORS
        name = draw.choice(sorted(every))
        names.append(name)
        values.append(every[name](values[-1]))
    name = draw.choice(sorted(LAST))
    result = LAST[name](values[-1])
    also = draw.choice(values[1:])
    if draw.random() < 0.2:
        return [result, also], [*names, name, "and a value on the way"]
    return [result], [*names, name]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(12))
def test_random_networks_of_empty_batches(seed: int, target: str) -> None:
    draw = random.Random(seed)
    results, names = network(draw, 0)
    nest = nn.lower(results)
    x = np.zeros(nest.tensor("x").shape, np.float32)
    compiled = pf.compile(nest, fuse=draw.random() < 0.8, **TARGETS[target])
    found = compiled(x)
    expected = pf.interpret(nest, {"x": x})
    for array, tensor in zip(found if len(results) > 1 else [found], nest.results, strict=True):
        np.testing.assert_array_equal(array, expected[tensor.name], err_msg=", ".join(names))
        assert array.shape == tensor.shape
    assert compiled.report()
    assert str(compiled.explain())


EMPTY: Mapping[str, tuple[Callable[[nn.Value], nn.Value], tuple[int, ...]]] = {
    "no elements of a row": (lambda x: nn.relu(x[0:0]), (4,)),
    "no rows of a matrix": (lambda x: nn.linear(x[:0], weights(4, 5)), (3, 4)),
    "no rows to normalise": (lambda x: nn.softmax(x[:0]), (3, 4)),
    "a sum of no products": (lambda x: x[:, :0] @ weights(0, 5), (3, 4)),
    "a sum of no products, used": (lambda x: nn.relu(x) @ weights(4, 5) + x[:, :0] @ weights(0, 5), (3, 4)),
    "two passes over nothing": (lambda x: nn.sum(x[:0]) + nn.sum(x), (3, 70_000)),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", EMPTY)
def test_parts_that_are_empty(case: str, target: str) -> None:
    layer, shape = EMPTY[case]
    nest = nn.lower(layer(nn.input("x", shape)))
    x = weights(*shape)
    expected = pf.interpret(nest, {"x": x})["out"]
    found = pf.compile(nest, **TARGETS[target])(x)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-3)


@pytest.mark.parametrize("target", TARGETS)
def test_an_embedding_of_no_numbers(target: str) -> None:
    x = nn.input("x", (0, 6), "int64")
    compiled = pf.compile(nn.lower(nn.relu(nn.embedding(x, weights(10, 3)))), **TARGETS[target])
    assert compiled(np.zeros((0, 6), np.int64)).shape == (0, 6, 3)


@pytest.mark.parametrize("options", [{"fast_matmul": "strassen"}, {"fast_matmul": "auto"}, {"fold": False}])
def test_an_empty_batch_under_every_option(options: dict[str, Any]) -> None:
    x = nn.input("x", (0, 64))
    compiled = pf.compile(nn.lower(nn.relu(x @ weights(64, 64)) @ weights(64, 64)), target="cpu", **options)
    assert compiled(np.zeros((0, 64), np.float32)).shape == (0, 64)


def rewritten(nest: pf.Nest) -> Iterator[pf.Nest]:
    """What each rewrite makes of a nest, wherever it may."""
    for whole in ("compose_views", "expand", "in_place", "needed", "pieces", "batch"):
        yield from attempted(getattr(rewrite, whole), nest)
    for s in nest.statements:
        for single in ("inline", "place", "factor", "fold", "terms", "own_sums"):
            yield from attempted(getattr(rewrite, single), nest, s.name)
        yield from attempted(rewrite.online, nest, s.name, 2)
        yield from attempted(rewrite.follow, nest, s.name, nest.statements[0].name)
        if s.is_reduction:
            yield from attempted(rewrite.bilinear, nest, s.name, strassen)
            for dim in s.dims:
                yield from attempted(rewrite.split_reduction, nest, s.name, dim, size=2)
    for tensor in nest.tensors:
        for single in ("read_through", "scratch", "widen", "unround", "accumulate"):
            yield from attempted(getattr(rewrite, single), nest, tensor.name)


def attempted(function: Callable[..., Any], *given: Any, **options: Any) -> Iterator[pf.Nest]:
    try:
        made = function(*given, **options)
    except IllegalRewrite:
        return
    if made is not None:
        yield made if isinstance(made, pf.Nest) else made.nest


@pytest.mark.parametrize("seed", range(4))
def test_rewrites_of_statements_that_never_run(seed: int) -> None:
    results, _ = network(random.Random(seed), 0)
    nest = nn.lower(results)
    x = {"x": np.zeros(nest.tensor("x").shape, np.float32)}
    expected = pf.interpret(nest, x)
    count = 0
    for made in rewritten(nest):
        made.check()
        found = pf.interpret(made, x)
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array)
        count += 1
    assert count
