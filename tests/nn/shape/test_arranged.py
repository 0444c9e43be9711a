"""take, roll, tile, pixel shuffle, padding by elements, gather and scatter against NumPy."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import polyfuse as pf
from polyfuse import nn

RNG = np.random.default_rng(5)
X = RNG.standard_normal((4, 6)).astype("float32")
I = RNG.integers(-4, 4, (3, 6))  # noqa: E741  # an index
S = RNG.standard_normal((3, 6)).astype("float32")


def _scattered(combine: Callable | None) -> np.ndarray:
    found = X.copy()
    for i, k in np.ndindex(I.shape):
        at = (I[i, k], k)
        found[at] = S[i, k] if combine is None else combine(found[at], S[i, k])
    return found


CASES: dict[str, tuple[Callable, Callable]] = {
    "take": (lambda x, i, s: nn.take(x, [0, 2, 4, -1, 3, 3, 3], 1), lambda: X[:, [0, 2, 4, -1, 3, 3, 3]]),
    "take one by one": (lambda x, i, s: nn.take(x, [3, 0, 2]), lambda: X[[3, 0, 2]]),
    "take down": (lambda x, i, s: nn.take(x, [3, 2, 1, 0]), lambda: X[::-1]),
    "take none": (lambda x, i, s: nn.take(x, []), lambda: X[:0]),
    "take by data": (lambda x, i, s: nn.take(x, i, 1), lambda: X[:, I]),
    "roll": (lambda x, i, s: nn.roll(x, (1, -2), (0, 1)), lambda: np.roll(X, (1, -2), (0, 1))),
    "roll all": (lambda x, i, s: nn.roll(x, 5), lambda: np.roll(X, 5)),
    "tile": (lambda x, i, s: nn.tile(x, (2, 1, 3)), lambda: np.tile(X, (2, 1, 3))),
    "repeat": (lambda x, i, s: nn.repeat_interleave(x, 2, 1), lambda: np.repeat(X, 2, 1)),
    "reflect": (
        lambda x, i, s: nn.pad(x, [(3, 1), 2], mode="reflect"),
        lambda: np.pad(X, ((3, 1), (2, 2)), "reflect"),
    ),
    "replicate": (
        lambda x, i, s: nn.pad(x, [(0, 7), 2], mode="replicate"),
        lambda: np.pad(X, ((0, 7), (2, 2)), "edge"),
    ),
    "circular": (
        lambda x, i, s: nn.pad(x, [4, (0, 3)], mode="circular"),
        lambda: np.pad(X, ((4, 4), (0, 3)), "wrap"),
    ),
    "gather": (lambda x, i, s: nn.gather(x, 0, i), lambda: np.take_along_axis(X, I, 0)),
    "scatter": (lambda x, i, s: nn.scatter(x, 0, i, s), lambda: _scattered(None)),
    "scatter_add": (lambda x, i, s: nn.scatter_add(x, 0, i, s), lambda: _scattered(np.add)),
    "scatter_max": (lambda x, i, s: nn.scatter_add(x, 0, i, s, "max"), lambda: _scattered(np.maximum)),
    "scatter into less": (
        lambda x, i, s: nn.scatter(x, 1, nn.remainder(i[:, :2], 4), s),
        lambda: _narrow_scatter(),
    ),
}


def _narrow_scatter() -> np.ndarray:
    found = X.copy()
    for i, k in np.ndindex(3, 2):
        found[i, I[i, k] % 4] = S[i, k]
    return found


def test_are_what_numpy_computes() -> None:
    x, i, s = nn.input("x", X.shape), nn.input("i", I.shape, "int64"), nn.input("s", S.shape)
    nest = pf.lower([ours(x, i, s) for ours, _ in CASES.values()])
    arrays = {"x": X, "i": I, "s": S}
    passed = [arrays[tensor.name] for tensor in nest.inputs]
    for results in (pf.interpret(nest, arrays).values(), pf.compile(nest)(*passed)):
        for (name, (_, theirs)), found in zip(CASES.items(), results, strict=True):
            assert_allclose(found, theirs(), rtol=1e-6, atol=1e-6, err_msg=name)


def test_pixels_and_channels() -> None:
    given = RNG.standard_normal((2, 8, 3, 5)).astype("float32")
    x = nn.input("x", given.shape)
    shuffled = nn.pixel_shuffle(x, 2)
    back = nn.pixel_unshuffle(shuffled, 2)
    found, again = pf.interpret(pf.lower([shuffled, back]), {"x": given}).values()
    want = given.reshape(2, 2, 2, 2, 3, 5).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 6, 10)
    assert_array_equal(found, want)
    assert_array_equal(again, given)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda x: nn.take(x, [4]), "take: number 4 along axis 0 of .*, which has 4"),
        (
            lambda x: nn.take(nn.input("z", (999,)), [k * k % 991 for k in range(600)]),
            "are .* slices; at most 256",
        ),
        (lambda x: nn.roll(x, (1, 2), 0), "roll: 2 shifts for 1 axis"),
        (lambda x: nn.tile(x, (-1,)), "tile: repeats .*; expected numbers >= 0"),
        (lambda x: nn.repeat_interleave(x, 0, 0), "0 times; expected at least 1"),
        (lambda x: nn.pad(x, [4, 0], mode="reflect"), "by mode 'reflect': at most 3"),
        (lambda x: nn.pad(x, [1, 0], mode="mirror"), "mode is 'mirror', expected 'constant'"),
        (lambda x: nn.pixel_shuffle(nn.input("z", (1, 3, 2, 2)), 2), "2² has to divide them"),
        (lambda x: nn.pixel_unshuffle(nn.input("z", (1, 3, 3, 2)), 2), "which has to divide both"),
        (lambda x: nn.pixel_shuffle(x, 2), r"expected \(…, C, H, W\)"),
        (lambda x: nn.gather(x, 0, x), "gather: the index .* holds no integers"),
        (
            lambda x: nn.gather(x, 0, nn.input("i", (3, 7), "int64")),
            r"gather: the index \(3, 7\) does not fit",
        ),
        (lambda x: nn.scatter(x, 0, nn.input("i", (3, 6), "int64"), x[:2]), r"scatter: index .* and source"),
        (lambda x: nn.scatter_add(x, 0, nn.input("i", (3, 6), "int64"), x, "mean"), "reduction is 'mean'"),
    ],
)
def test_what_is_refused(made: Callable, why: str) -> None:
    with pytest.raises(pf.BadArgument, match=why):
        made(nn.input("x", X.shape))
