"""Layers for images against sums written down directly: every stride, padding, dilation, group and layout."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import BadArgument
from polyfuse.interpret import interpret
from tests.support.examples import examples

Array = np.ndarray[Any, Any]
Pairs = tuple[tuple[int, int], ...]
FIRST = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
LAST = {1: "NWC", 2: "NHWC", 3: "NDHWC"}
CONV: dict[int, Callable[..., nn.Value]] = {1: nn.conv1d, 2: nn.conv2d, 3: nn.conv3d}


def padded(x: Array, padding: Pairs, value: float) -> Array:
    """A copy of (N, C, …) with this value around it."""
    return np.pad(x, [(0, 0), (0, 0), *padding], constant_values=value)


def windows(x: Array, window: Any, stride: Any, dilation: Any) -> Array:
    """(N, C, P…, R…): every element of every window, gathered one by one."""
    counts = [
        (size - d * (w - 1) - 1) // s + 1
        for size, w, s, d in zip(x.shape[2:], window, stride, dilation, strict=True)
    ]
    found = np.empty((*x.shape[:2], *counts, *window), x.dtype)
    for at in np.ndindex(*counts):
        for inside in np.ndindex(*window):
            where = tuple(s * p + d * r for s, p, d, r in zip(stride, at, dilation, inside, strict=True))
            found[(slice(None), slice(None), *at, *inside)] = x[(slice(None), slice(None), *where)]
    return found


def convolved(x: Array, w: Array, padding: Pairs, stride: Any, dilation: Any, groups: int) -> Array:
    """The convolution of (N, C, …), group by group."""
    rank, filters, channels = x.ndim - 2, w.shape[0] // groups, w.shape[1]
    parts = []
    for g in range(groups):
        image = padded(x[:, g * channels : (g + 1) * channels], padding, 0)
        every = windows(image, w.shape[2:], stride, dilation)
        own = w[g * filters : (g + 1) * filters]
        axes = [1, *range(2 + rank, 2 + 2 * rank)]
        parts.append(np.moveaxis(np.tensordot(every, own, (axes, range(1, 2 + rank))), -1, 1))
    return np.concatenate(parts, 1)


def whole(rng: np.random.Generator, *shape: int) -> Array:
    """Whole numbers, whose sums are exact."""
    return rng.integers(-4, 5, shape).astype(np.float32)


def to_last(x: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def results(nest: pf.Nest, x: Array, *, stand_in: bool = True) -> list[Array]:
    """The oracle's result, the CPU's, and that of CUDA in lock-step."""
    nets = [pf.compile(nest, target="cpu")]
    if stand_in:
        nets.append(pf.compile(nest, target="cuda", machine="h200", device="lockstep"))
    return [interpret(nest, {"x": x})["out"], *(net(x) for net in nets)]


@st.composite
def geometries(draw: Any, rank: int) -> dict[str, Any]:
    """Sizes of an image and of windows that fit into it."""

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    window, stride, dilation = each(1, 3), each(1, 3), each(1, 2)
    padding = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(rank))
    span = [d * (w - 1) + 1 for w, d in zip(window, dilation, strict=True)]
    sizes = tuple(
        draw(st.integers(max(1, s - sum(p)), 5 if rank == 3 else 8))
        for s, p in zip(span, padding, strict=True)
    )
    return {
        "sizes": sizes, "window": window, "stride": stride, "dilation": dilation, "padding": padding,
        "last": draw(st.booleans()), "batch": draw(st.integers(1, 2)),
    }  # fmt: skip


def sampled(count: int) -> Callable[[Any], Any]:
    return settings(max_examples=examples(count), deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("rank", [1, 2, 3])
@sampled(8)
@given(data=st.data())
def test_a_convolution_is_its_definition(rank: int, data: Any) -> None:
    g = data.draw(geometries(rank))
    groups, per_group, filters = (data.draw(st.integers(1, 3)) for _ in range(3))
    rng = np.random.default_rng(0)
    x = whole(rng, g["batch"], groups * per_group, *g["sizes"])
    w, b = whole(rng, groups * filters, per_group, *g["window"]), whole(rng, groups * filters)
    expected = convolved(x, w, g["padding"], g["stride"], g["dilation"], groups)
    expected = np.maximum(expected + b.reshape(-1, *(1,) * rank), 0)
    layout = (LAST if g["last"] else FIRST)[rank]
    image = to_last(x) if g["last"] else x
    value = CONV[rank](
        nn.input("x", image.shape), w, b, g["stride"], g["padding"], g["dilation"], groups, layout
    )
    for found in results(nn.lower(nn.relu(value)), image):
        np.testing.assert_array_equal(found, to_last(expected) if g["last"] else expected)


@pytest.mark.parametrize("kind", ["max", "mean", "mean without padding"])
@pytest.mark.parametrize("rank", [1, 2, 3])
@sampled(6)
@given(data=st.data())
def test_pooling_is_its_definition(rank: int, kind: str, data: Any) -> None:
    g = data.draw(geometries(rank))
    x = whole(np.random.default_rng(0), g["batch"], 3, *g["sizes"])
    axes = tuple(range(-rank, 0))
    layout = (LAST if g["last"] else FIRST)[rank]
    image = to_last(x) if g["last"] else x
    geometry = g["window"], g["stride"], g["dilation"] if kind == "max" else (1,) * rank
    value = nn.input("x", image.shape)
    with np.errstate(all="ignore"):
        inside = windows(padded(np.ones_like(x), g["padding"], 0), *geometry).sum(axes)
        if kind == "max":
            expected = windows(padded(x, g["padding"], -np.inf), *geometry).max(axes)
        else:
            counted = inside if "without" in kind else np.float32(np.prod(g["window"]))
            expected = windows(padded(x, g["padding"], 0), *geometry).sum(axes) / counted

    def pooled() -> nn.Value:
        if kind == "max":
            return nn.max_pool(value, g["window"], g["stride"], g["padding"], g["dilation"], layout)
        return nn.avg_pool(
            value, g["window"], g["stride"], g["padding"], layout=layout, count_padding=kind == "mean"
        )

    if (inside == 0).any():
        with pytest.raises(BadArgument, match="contains only padding"):
            pooled()
        return
    for found in results(nn.lower(pooled()), image):
        np.testing.assert_array_equal(found, to_last(expected) if g["last"] else expected)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("kind", ["max", "mean"])
@pytest.mark.parametrize(
    ("sizes", "out"), [((7,), 3), ((6, 5), (2, 4)), ((5, 4), 1), ((3, 4), (5, 4)), ((3, 2, 4), 2)]
)
def test_adaptive_pooling_is_its_definition(sizes: Any, out: Any, kind: str, last: bool) -> None:
    rank = len(sizes)
    counts = (out,) * rank if isinstance(out, int) else out
    x = whole(np.random.default_rng(0), 2, 3, *sizes)
    expected = np.empty((2, 3, *counts), np.float32)
    for at in np.ndindex(*counts):
        window = tuple(
            slice(int(np.floor(p * n / c)), int(np.ceil((p + 1) * n / c)))
            for p, n, c in zip(at, sizes, counts, strict=True)
        )
        part = x[(slice(None), slice(None), *window)].reshape(2, 3, -1)
        expected[(slice(None), slice(None), *at)] = part.max(-1) if kind == "max" else part.mean(-1)
    image = to_last(x) if last else x
    pool = nn.adaptive_max_pool if kind == "max" else nn.adaptive_avg_pool
    nest = nn.lower(pool(nn.input("x", image.shape), out, (LAST if last else FIRST)[rank]))
    for found in results(nest, image):
        np.testing.assert_allclose(found, to_last(expected) if last else expected, rtol=1e-6)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("window", [1, 2, 3, 5])
@pytest.mark.parametrize("size", [5, 6, 7])
def test_same_padding_gives_as_many_windows_as_strides(size: int, window: int, stride: int) -> None:
    count = -(-size // stride)
    total = max(0, (count - 1) * stride + window - size)
    before = total // 2
    x, w = (
        whole(np.random.default_rng(0), 1, 2, size, size),
        whole(np.random.default_rng(1), 3, 2, window, window),
    )
    value = nn.conv2d(nn.input("x", x.shape), w, stride=stride, padding="same")
    assert value.shape == (1, 3, count, count)
    pairs = ((before, total - before),) * 2
    explicit = nn.conv2d(nn.input("x", x.shape), w, stride=stride, padding=pairs)
    found = interpret(nn.lower(value), {"x": x})["out"]
    np.testing.assert_array_equal(found, interpret(nn.lower(explicit), {"x": x})["out"])
    np.testing.assert_array_equal(found, convolved(x, w, pairs, (stride,) * 2, (1, 1), 1))


def test_padding_is_not_multiplied() -> None:
    x, w = np.ones((1, 1, 3, 3), np.float32), np.ones((1, 1, 3, 3), np.float32)
    w[0, 0, 0, 0] = np.inf
    nest = nn.lower(nn.conv2d(nn.input("x", x.shape), w, padding=1))
    for found in results(nest, x):
        assert np.isinf(found[0, 0]).tolist() == [[False] * 3, [False, True, True], [False, True, True]]
        assert not np.isnan(found).any()


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(4, 6), (2, 6, 5, 6)])
def test_batch_norm(shape: tuple[int, ...], affine: bool, axis: int) -> None:
    rng = np.random.default_rng(0)
    layer = nn.BatchNorm(6, eps=1e-3, affine=affine, axis=axis, dtype="float64")
    layer.mean[...], layer.var[...] = rng.standard_normal(6), rng.random(6)
    if layer.gamma is not None and layer.beta is not None:
        layer.gamma[...], layer.beta[...] = rng.random(6), rng.random(6)
    x = rng.standard_normal(shape)
    last = np.moveaxis(x, axis, -1)
    expected = (last - layer.mean) / np.sqrt(layer.var + 1e-3)
    if affine:
        expected = expected * layer.gamma + layer.beta
    nest = nn.lower(layer, batch=shape[0], features=shape[1:], dtype="float64")
    for found in results(nest, x):
        np.testing.assert_allclose(np.moveaxis(found, axis, -1), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize(
    ("shape", "groups"), [((2, 6, 5, 6), 3), ((3, 6, 4, 6), 6), ((2, 6, 6), 1), ((4, 6), 2)]
)
def test_group_norm(shape: tuple[int, ...], groups: int, affine: bool, axis: int) -> None:
    rng = np.random.default_rng(0)
    layer = nn.GroupNorm(groups, 6, eps=1e-3, affine=affine, axis=axis, dtype="float64")
    if layer.gamma is not None and layer.beta is not None:
        layer.gamma[...], layer.beta[...] = rng.random(6), rng.random(6)
    x = 3 + rng.standard_normal(shape)
    first = np.moveaxis(x, axis, 1)
    parts = first.reshape(shape[0], groups, -1)
    parts = (parts - parts.mean(-1, keepdims=True)) / np.sqrt(parts.var(-1, keepdims=True) + 1e-3)
    expected = np.moveaxis(parts.reshape(first.shape), 1, -1)
    if affine:
        expected = expected * layer.gamma + layer.beta
    nest = nn.lower(layer, batch=shape[0], features=shape[1:], dtype="float64")
    for found in results(nest, x):
        np.testing.assert_allclose(np.moveaxis(found, axis, -1), expected, rtol=1e-11, atol=1e-11)


def test_a_network_for_images() -> None:
    rng = np.random.default_rng(0)
    first, second = (
        nn.Conv2d(2, 4, 3, padding="same", seed=1),
        nn.Conv2d(4, 8, 3, stride=2, padding=1, seed=2),
    )
    norm, dense = nn.BatchNorm(4), nn.Conv2d(8, 3, 1, seed=3)
    norm.mean[...], norm.var[...] = rng.standard_normal(4), 0.5 + rng.random(4)
    model = nn.Sequential(
        first, norm, nn.ReLU(), nn.MaxPool(2), second, nn.ReLU(), nn.AdaptiveAvgPool(1), dense
    )
    x = rng.standard_normal((2, 2, 9, 8)).astype(np.float32)
    one = ((1, 1), (1, 1))
    h = convolved(x, first.weight, one, (1, 1), (1, 1), 1) + first.bias.reshape(-1, 1, 1)
    h = (h - norm.mean.reshape(-1, 1, 1)) / np.sqrt(norm.var.reshape(-1, 1, 1) + 1e-5)
    h = windows(np.maximum(h, 0), (2, 2), (2, 2), (1, 1)).max((-2, -1))
    h = convolved(h, second.weight, one, (2, 2), (1, 1), 1) + second.bias.reshape(-1, 1, 1)
    h = np.maximum(h, 0).mean((2, 3), keepdims=True)
    expected = convolved(h, dense.weight, ((0, 0), (0, 0)), (1, 1), (1, 1), 1) + dense.bias.reshape(-1, 1, 1)
    nest = nn.lower(model, batch=2, features=(2, 9, 8))
    for found in results(nest, x):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_layers_print_as_they_are_made() -> None:
    assert repr(nn.Conv2d(4, 6, 3, padding="same", groups=2)) == (
        "Conv2d(4, 6, (3, 3), stride=1, padding='same', dilation=1, groups=2, bias=True, layout='NCHW', "
        "dtype='float32')"
    )
    assert repr(nn.BatchNorm(4)) == "BatchNorm(4, eps=1e-05, affine=True, axis=1)"
    assert repr(nn.GroupNorm(2, 4)) == "GroupNorm(2, 4, eps=1e-05, affine=True, axis=1)"


def test_statements_of_a_convolution() -> None:
    nest = nn.lower(nn.Conv2d(2, 4, (3, 1), padding=(1, 0)), batch=1, features=(2, 5, 6))
    assert [s.name for s in nest.statements] == ["zero0", "mac0", "bias0"]
    assert nest.statement("mac0").dims == tuple("ijklmn")
    depthwise = nn.lower(nn.Conv2d(4, 4, 3, groups=4), batch=1, features=(4, 5, 6))
    assert depthwise.statement("mac0").dims == tuple("ijklmn")


X = nn.input("x", (1, 4, 6, 6))
W = np.ones((4, 4, 3, 3), np.float32)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.conv2d(X, W[:, :3]), r"has 4 channels, the weight \(4, 3, 3, 3\) takes 3 in each of 1 group,"),
        (lambda: nn.conv2d(X, W, groups=3), "takes 4 in each of 3 groups"),
        (lambda: nn.conv2d(X, W, groups=0), "conv2d: 0 groups"),
        (lambda: nn.conv1d(X, W), "conv1d: the input .* has rank 4, expected 3"),
        (lambda: nn.conv2d(X, W[0]), r"expected \(filters, channels / groups, window, window\)"),
        (lambda: nn.conv2d(X, W, W[0, 0, 0]), r"the bias \(3,\) does not fit the weight"),
        (lambda: nn.conv2d(X, W, dilation=3), "a window of 3 with dilation 3 spans 7 elements; spatial axis 0 has 6"),
        (lambda: nn.conv2d(X, W, stride=0), "stride is 0, expected 2 integers >= 1"),
        (lambda: nn.conv2d(X, W, padding="full"), "padding is 'full', expected 'same', 'valid'"),
        (lambda: nn.conv2d(X, W, padding=(1, 2, 3)), r"padding is \(1, 2, 3\), expected"),
        (lambda: nn.conv2d(X, W, padding=-1), "padding is -1"),
        (lambda: nn.conv2d(X, W, layout="NWHC"), "layout is 'NWHC', expected 'NCHW' or 'NHWC'"),
        (lambda: nn.max_pool(nn.input("y", (2, 3)), 2), "has 2 axes, expected examples, channels and 1 to 3"),
        (lambda: nn.adaptive_avg_pool(X, (1, 2, 3)), r"size is \(1, 2, 3\), expected 2 integers"),
        (lambda: nn.batch_norm(X, W[0, 0, 0], W[0, 0, 0]), r"mean has shape \(3,\), expected \(4,\)"),
        (lambda: nn.group_norm(X, 3), "4 channels in 3 groups"),
        (lambda: nn.group_norm(X, 2, W[:, 0, 0, 0]), "give both gamma and beta"),
        (lambda: nn.Conv2d(3, 4, 3, groups=2), r"Conv2d\(3, 4, groups=2\): all at least 1, and the groups divide"),
        (lambda: nn.GroupNorm(3, 4), "the groups do not divide the channels"),
        (lambda: nn.BatchNorm(0), "0 channels, expected at least 1"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_said(make: Callable[[], object], message: str) -> None:
    with pytest.raises(BadArgument, match=message):
        make()


def test_windows_that_are_empty_of_batches() -> None:
    nest = nn.lower(nn.Conv2d(2, 3, 3), batch=0, features=(2, 4, 4))
    assert interpret(nest, [np.empty((0, 2, 4, 4), np.float32)])["out"].shape == (0, 3, 2, 2)


def test_every_size_of_a_strided_window() -> None:
    for size, window, stride, dilation in itertools.product(range(3, 7), (1, 2, 3), (1, 2), (1, 2)):
        if dilation * (window - 1) >= size:
            continue
        x, w = np.arange(size, dtype=np.float32)[None, None], np.ones((1, 1, window), np.float32)
        nest = nn.lower(nn.conv1d(nn.input("x", x.shape), w, stride=stride, dilation=dilation))
        expected = [
            sum(p + dilation * r for r in range(window))
            for p in range(0, size - dilation * (window - 1), stride)
        ]
        assert interpret(nest, {"x": x})["out"][0, 0].tolist() == expected
