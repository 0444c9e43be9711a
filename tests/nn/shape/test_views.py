"""Views as values: every function against NumPy's own, and what does not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import BadArgument
from polyfuse.nn.shape.operations import reshaped
from tests.support.examples import examples

Array = np.ndarray[Any, Any]

X = np.arange(4 * 6 * 5, dtype=np.float32).reshape(4, 6, 5)
Y = -X


def seen(view: Callable[..., nn.Value], *arrays: Array) -> Array:
    inputs = [nn.input(f"x{k}", array.shape) for k, array in enumerate(arrays)]
    nest = nn.lower(view(*inputs))
    return pf.interpret(nest, {f"x{k}": array for k, array in enumerate(arrays)})["out"]


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (lambda x: nn.narrow(x, -1, 1, 3), X[:, :, 1:4]),
        (lambda x: nn.select(x, 1, -2), X[:, -2]),
        (lambda x: nn.permute(x, (2, 0, 1)), X.transpose(2, 0, 1)),
        (lambda x: nn.transpose(x), X.swapaxes(-2, -1)),
        (lambda x: nn.reshape(x, (8, -1)), X.reshape(8, -1)),
        (lambda x: nn.reshape(x, (3, 5, 4, 2)), X.reshape(3, 5, 4, 2)),
        (lambda x: nn.expand(x[:, :1], (2, 4, 6, 5)), np.broadcast_to(X[:, :1], (2, 4, 6, 5))),
        (lambda x: nn.flip(x, (0, 2)), X[::-1, :, ::-1]),
        (lambda x: nn.pad(x, (1, (0, 2), 0), 3.5), np.pad(X, ((1, 1), (0, 2), (0, 0)), constant_values=3.5)),
        (lambda x: nn.pad(x, (0, 1, 0), -2), np.pad(X, ((0, 0), (1, 1), (0, 0)), constant_values=-2)),
        (lambda x: x[1], X[1]),
        (lambda x: x[..., ::2, None], X[..., ::2, None]),
        (lambda x: x[-1:0:-2, 1, 3:], X[-1:0:-2, 1, 3:]),
        (lambda x: x[0, 0, 0], X[0, 0, 0]),
        (
            lambda x: nn.unfold(x, 1, 3, step=2),
            np.lib.stride_tricks.sliding_window_view(X, 3, 1)[:, ::2],
        ),
        (
            lambda x: nn.unfold(x, 2, 2, dilation=3),
            np.lib.stride_tricks.sliding_window_view(X, 4, 2)[..., ::3],
        ),
    ],
)
def test_a_view_is_what_numpy_says(view: Callable[[nn.Value], nn.Value], expected: Array) -> None:
    assert np.array_equal(seen(view, X), expected)


def test_several_values_make_one() -> None:
    assert np.array_equal(seen(lambda x, y: nn.concat([x, y, x], -1), X, Y), np.concatenate([X, Y, X], -1))
    assert np.array_equal(seen(lambda x, y: nn.stack([x, y], -1), X, Y), np.stack([X, Y], -1))
    assert np.array_equal(seen(lambda x, y: nn.stack([x, y]), X, Y), np.stack([X, Y]))


def test_one_value_makes_several() -> None:
    x = nn.input("x", (4, 7))
    assert [piece.shape for piece in nn.split(x, 3, 1)] == [(4, 3), (4, 3), (4, 1)]
    assert [piece.shape for piece in nn.split(x, (1, 3), 0)] == [(1, 7), (3, 7)]
    assert [piece.shape for piece in nn.chunk(x, 4, 1)] == [(4, 2), (4, 2), (4, 2), (4, 1)]


@settings(max_examples=examples(60), deadline=None)
@given(st.permutations([2, 3, 4, 1]), st.permutations([4, 1, 3, 2]), st.integers(0, 3), st.integers(0, 3))
def test_any_two_shapes_of_one_size(old: list[int], new: list[int], merged: int, also: int) -> None:
    before, after = list(old), list(new)
    before[merged : merged + 2] = [int(np.prod(before[merged : merged + 2]))]
    after[also : also + 2] = [int(np.prod(after[also : also + 2]))]
    data = np.arange(24, dtype=np.float32).reshape(before)
    assert np.array_equal(seen(lambda x: nn.reshape(x, after), data), data.reshape(after))


def test_axes_that_stay_take_part_in_no_division() -> None:
    assert reshaped((8, 4, 6), (8, 24)) == ("{0}", "({1}) // 6", "({1}) % 6")
    assert reshaped((24, 5), (4, 6, 5)) == ("6 * {0} + {1}", "{2}")


def test_a_view_that_changes_nothing_is_the_value() -> None:
    x = nn.input("x", (4, 7))
    same = (nn.reshape(x, (4, 7)), nn.expand(x, (4, 7)), nn.narrow(x, 0, 0, 4), nn.pad(x, (0, 0)))
    assert all(view is x for view in same)


@pytest.mark.parametrize(
    ("view", "why"),
    [
        (lambda x: nn.narrow(x, 1, 5, 3), "narrow: 3 elements from 5 on along axis 1"),
        (lambda x: nn.select(x, 0, 4), "select: index 4 along axis 0"),
        (lambda x: nn.split(x, (2, 3), 1), r"split: sizes \(2, 3\) do not add up to 7"),
        (lambda x: nn.split(x, 0, 1), "split: pieces of 0"),
        (lambda x: nn.chunk(x, 0), "chunk: 0 chunks"),
        (lambda x: nn.permute(x, (0, 0)), "permute: axes"),
        (lambda x: nn.reshape(x, (5, 6)), "reshape: .* has 28 elements"),
        (lambda x: nn.reshape(x, (-1, 5)), "no size in place of -1"),
        (lambda x: nn.expand(x, (4, 8)), "does not broadcast"),
        (lambda x: nn.flip(x, 2), "axis 2 of"),
        (lambda x: nn.pad(x, (1,)), "pad: widths"),
        (lambda x: nn.unfold(x, 1, 4, dilation=3), "one window fits"),
        (lambda x: nn.concat([x, nn.input("y", (3, 6))], 1), "differ in more than axis 1"),
        (lambda x: nn.stack([x, nn.input("y", (3, 6))]), "stack: the shapes"),
        (lambda x: nn.concat([]), "no values"),
        (lambda x: x[0, 0, 0], "too many axes"),
        (lambda x: x[9], "index 9 along axis 0"),
        (lambda x: x[[1, 2]], "an index that is a value is not supported"),
    ],
)
def test_what_does_not_fit(view: Callable[[nn.Value], nn.Value], why: str) -> None:
    with pytest.raises(BadArgument, match=why):
        view(nn.input("x", (4, 7)))
