"""Transposed convolutions against the sums they stand for, written down as a scatter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import BadArgument
from polyfuse.interpret import interpret

Array = np.ndarray[Any, Any]


def whole(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(np.float64)


def scattered(x: Array, w: Array, stride: Any, before: Any, dilation: Any, sizes: Any, groups: int) -> Array:
    """Every element of x, times the window, added where it belongs."""
    filters, channels = w.shape[1], w.shape[0] // groups
    y = np.zeros((x.shape[0], filters * groups, *sizes))
    for at in np.ndindex(*x.shape[2:]):
        for inside in np.ndindex(*w.shape[2:]):
            place = [
                s * p + d * r - b for s, p, d, r, b in zip(stride, at, dilation, inside, before, strict=True)
            ]
            if all(0 <= p < size for p, size in zip(place, sizes, strict=True)):
                for g in range(groups):
                    mine = slice(g * channels, (g + 1) * channels)
                    y[(slice(None), slice(g * filters, (g + 1) * filters), *place)] += (
                        x[(slice(None), mine, *at)] @ w[(mine, slice(None), *inside)]
                    )
    return y


CASES = {
    "stride 1": ((2, 3, 5), (3, 4, 3), {"padding": 1}),
    "stride 2": ((2, 3, 4, 3), (3, 2, 3, 4), {"stride": 2, "padding": 1, "output_padding": (1, 0)}),
    "dcgan": ((1, 2, 4, 4), (2, 3, 4, 4), {"stride": 2, "padding": 1}),
    "gaps": ((1, 2, 3), (2, 2, 2), {"stride": 3}),
    "dilated": ((1, 2, 4, 4), (2, 2, 3, 2), {"stride": (2, 3), "dilation": (2, 2), "output_padding": 1}),
    "groups": ((2, 4, 4), (4, 2, 3), {"stride": 2, "groups": 2}),
    "depthwise": ((1, 3, 3, 3), (3, 1, 2, 2), {"stride": 2, "groups": 3}),
    "uneven": ((1, 2, 5), (2, 2, 4), {"stride": 2, "padding": [(0, 3)]}),
    "3-D": ((1, 2, 2, 3, 2), (2, 2, 2, 2, 3), {"stride": (1, 2, 2), "padding": (0, 1, 0)}),
}


@pytest.mark.parametrize("name", CASES)
def test_conv_transpose(name: str) -> None:
    shape, window, how = CASES[name]
    x, w = whole(*shape), whole(*window)
    rank, groups = len(shape) - 2, how.get("groups", 1)
    b = whole(window[1] * groups)

    def each(key: str, default: int) -> list[Any]:
        given = how.get(key, default)
        return [given] * rank if isinstance(given, int) else list(given)

    stride, dilation, more = each("stride", 1), each("dilation", 1), each("output_padding", 0)
    pairs = [(p, p) if isinstance(p, int) else p for p in each("padding", 0)]
    sizes = [
        (n - 1) * s - sum(pair) + d * (r - 1) + 1 + extra
        for n, s, pair, d, r, extra in zip(shape[2:], stride, pairs, dilation, window[2:], more, strict=True)
    ]
    want = scattered(x, w, stride, [pair[0] for pair in pairs], dilation, sizes, groups)
    value = nn.input("x", shape, "float64")
    plain = interpret(pf.lower(nn.conv_transpose(value, w, **how)), {"x": x})["out"]
    assert np.array_equal(plain, want)
    biased = interpret(pf.lower(nn.conv_transpose(value, w, b, **how)), {"x": x})["out"]
    assert np.array_equal(biased, want + b.reshape(-1, *[1] * rank))


def test_it_compiles() -> None:
    x, w, b = (a.astype(np.float32) for a in (whole(2, 8, 6, 6), whole(8, 4, 4, 4), whole(4)))
    net = pf.compile(pf.lower(nn.relu(nn.conv_transpose(nn.input("x", x.shape), w, b, stride=2, padding=1))))
    want = scattered(x, w, (2, 2), (1, 1), (1, 1), (12, 12), 1) + b.reshape(-1, 1, 1)
    assert np.array_equal(net(x), np.maximum(want, 0))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"padding": "same"}, 'padding "same" does not say'),
        ({"groups": 2}, r"has 3 channels, the weight \(3, 2, 3\) takes 3 to share out among 2 groups"),
        ({"groups": 0}, "0 groups"),
        ({"output_padding": -1}, "output_padding is -1"),
        ({"padding": 9}, "cuts .* to the sizes"),
        ({"bias": np.zeros(3, "float32")}, r"the bias \(3,\) does not fit"),
    ],
)
def test_what_does_not_fit(how: dict[str, Any], message: str) -> None:
    with pytest.raises(BadArgument, match=message):
        nn.conv_transpose(nn.input("x", (1, 3, 4)), np.zeros((3, 2, 3), "float32"), **how)
