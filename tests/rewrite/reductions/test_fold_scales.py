"""Constant scales in weights: the same values, nothing left of the scale in a call, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.analysis.once import constant_tensors, once
from polyfuse.errors import IllegalRewrite
from polyfuse.ir import Nest
from polyfuse.ir.scalar import operations
from polyfuse.ir.tree import parts, statements
from polyfuse.rewrite import fold, why_not_fold
from polyfuse.rewrite.reductions.fold_scales import Folded, folded, still_fixed
from polyfuse.strategy.rewrites.fold_scales import with_scales_folded

RNG = np.random.default_rng(0)


def whole(*shape: int) -> np.ndarray[Any, Any]:
    """Whole numbers: sums of products of few of them are exact in any order."""
    return RNG.integers(-3, 4, shape).astype("float64")


def conv(layout: str, groups: int = 1, scaled: int = 4) -> Nest:
    """A convolution with bias, a scale by channel, an offset, a view, and a number."""
    axis = 1 if layout == "NCHW" else -1
    image = (2, 4, 5, 6) if axis == 1 else (2, 5, 6, 4)
    column = (scaled, 1, 1) if axis == 1 else (scaled,)
    y = nn.conv2d(
        nn.input("x", image, "float64"),
        whole(4, 4 // groups, 3, 3),
        whole(4),
        padding=1,
        groups=groups,
        layout=layout,
    )
    return nn.lower(nn.relu(nn.transpose(y * whole(*column) + whole(*column), 2, 3) * 2.0 - 1.0))


def dense() -> Nest:
    return nn.lower(nn.linear(nn.input("x", (3, 5), "float64"), whole(5, 4), whole(4)) * whole(4))


@pytest.mark.parametrize(
    "make",
    [
        lambda: conv("NCHW"),
        lambda: conv("NHWC"),
        lambda: conv("NCHW", groups=4),
        lambda: conv("NHWC", scaled=1),
        dense,
    ],
)
def test_nothing_of_a_scale_is_left_in_a_call(make: Callable[[], Nest]) -> None:
    nest = make()
    x = whole(*nest.tensor("x").shape)
    net = pf.compile(nest, target="cpu")
    expected = pf.interpret(nest, {"x": x})["out"]
    np.testing.assert_array_equal(net(x), expected)
    tree, every = net.schedule.tree, net.schedule.nest
    calls = [part for part, early in zip(parts(tree), once(every, tree), strict=True) if not early]
    each = [every.statement(name) for part in calls for name in statements(part)]
    sums = [s for s in each if s.op == "+="]
    assert [operations(s.body) for s in sums] == [1]
    assert all("folded" in s.tensors[-1] or "pack" in s.tensors[-1] for s in sums), [s.tensors for s in sums]
    assert sum(operations(s.body) for s in each) <= 1 + 1 + 1  # the product, the offset, ReLU
    assert "for all calls" in net.explain()
    kept = pf.compile(nest, target="cpu", fold=False)
    np.testing.assert_array_equal(kept(x), expected)
    assert not any("folded" in t.name for t in kept.schedule.nest.tensors)


def test_a_batch_norm_is_as_exact_as_the_page_says() -> None:
    net, n = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm(8)), 27
    norm = net.layers[1]
    for name, low, high in (("mean", -1, 1), ("var", 0.1, 2), ("gamma", -2, 2), ("beta", -1, 1)):
        setattr(norm, name, RNG.uniform(low, high, 8).astype(np.float32))
    nest = pf.lower(net, batch=4, features=(3, 9, 9))
    x = RNG.standard_normal((4, 3, 9, 9)).astype(np.float32)

    def exact(x: Any, weight: Any, bias: Any, mean: Any, beta: Any) -> Any:
        wide = [np.asarray(v, np.float64) for v in (weight, bias, mean, norm.var, norm.gamma, beta)]
        w, b, mean, var, gamma, beta = wide
        value = nn.batch_norm(nn.conv2d(nn.input("x", x.shape, "float64"), w, b), mean, var, gamma, beta)
        return pf.interpret(nn.lower(value), {"x": x.astype(np.float64)})["out"]

    layer = net.layers[0]
    expected = exact(x, layer.weight, layer.bias, norm.mean, norm.beta)
    scale = np.abs(norm.gamma / np.sqrt(norm.var + 1e-5))[:, None, None]
    nothing = np.zeros(8)
    sums = exact(abs(x), abs(layer.weight), abs(layer.bias), nothing, nothing)
    largest = np.abs(sums) + np.abs(norm.beta)[:, None, None] + scale * np.abs(norm.mean)[:, None, None]
    for fold_it in (True, False):
        error = np.abs(pf.compile(nest, target="cpu", fold=fold_it)(x) - expected)
        assert np.all(error <= (n + 5) * 2.0**-24 * largest)


def over(make: Callable[[Any], Any], *shape: int) -> Nest:
    """A nest of a function of x."""
    return nn.lower(make(nn.input("x", shape, "float64")))


W = whole(4, 4)


@pytest.mark.parametrize(
    ("nest", "statement", "why"),
    [
        (
            over(lambda x: (x @ W) * whole(3, 1), 3, 4),
            "mul0",
            r"not a function of the element w0\[m, l\]|not a function of",
        ),
        (over(lambda x: (x @ W) * x, 3, 4), "mul0", "does not compute p \\* u \\+ q"),
        (over(lambda x: (x @ W) + whole(4), 3, 4), "add0", "multiplies by no scale"),
        (over(lambda x: nn.exp(x @ W) * 2.0, 3, 4), "mul0", "exp0 does not compute"),
        (over(lambda x: (x @ nn.transpose(x)) * 2.0, 3, 4), "mul0", "no factor of mac0 is a constant"),
        (over(lambda x: nn.sum(x, axis=1) * 2.0, 3, 4), "mul0", "no factor of sum0 is a constant"),
        (over(lambda x: nn.max(x, axis=1) * 2.0, 3, 4), "mul0", "is neither a sum"),
        (over(lambda x: x * 2.0, 3, 4), "mul0", "the caller sees it"),
        (over(lambda x: (lambda y: (y * 2.0) + nn.exp(y))(x @ W), 3, 4), "mul0", "exp0 reads y0 too"),
        (over(lambda x: x @ W, 3, 4), "mac0", "not a function of one earlier value"),
    ],
)
def test_what_is_refused(nest: Nest, statement: str, why: str) -> None:
    with pytest.raises(IllegalRewrite, match=why):
        fold(nest, statement)
    assert why_not_fold(nest, statement) is not None


def test_a_sum_that_grows_after_it_was_read_is_left_alone() -> None:
    @pf.nest
    def prefix(a: f64[4], out: f64[4]):  # type: ignore[no-untyped-def]  # noqa: F821
        s = np.empty(1)
        s[0] = 0.0
        for i in range(4):
            s[0] += a[i] * 3.0
            out[i] = s[0] * 2.0

    refusal = why_not_fold(prefix, prefix.statements[-1].name)
    assert refusal is not None
    assert refusal.instances


def test_scales_join_the_weights_on_a_gpu_too() -> None:
    net = pf.compile(dense(), machine="h200", device="none")
    assert any("folded" in t.name for t in net.schedule.nest.tensors)
    assert any(launch.once for launch in net.kernels)


@pytest.mark.parametrize("make", [lambda: conv("NCHW"), lambda: conv("NHWC", scaled=1), dense])
def test_dependences_taken_over_are_those_of_the_new_nest(make: Callable[[], Nest]) -> None:
    nest = make()
    after, said = with_scales_folded(nest)
    assert said
    taken_over, anew = after.dependences(), replace(after).dependences()
    assert all(old.is_equal(new) for (_, old), (_, new) in zip(taken_over.kinds(), anew.kinds(), strict=True))


@pytest.mark.parametrize("make", [lambda: conv("NCHW"), lambda: conv("NHWC", scaled=1), dense])
def test_constant_tensors_behind_a_fold_are_those_of_the_new_nest(make: Callable[[], Nest]) -> None:
    nest = make()
    fixed = constant_tensors(nest, nest.order)
    done = [folded(nest, s.name, fixed) for s in nest.statements]
    made = [each for each in done if isinstance(each, Folded)]
    assert made
    for each in made:
        assert still_fixed(nest, fixed, each) == constant_tensors(each.nest, each.nest.order)
