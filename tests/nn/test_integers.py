"""Values of integers and truth values: arithmetic, bits, comparisons, reductions, views, conversions, against NumPy."""

from collections.abc import Callable

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn

X = np.array([[-7, -6, -1, 0], [1, 5, 6, 2**31 - 1]])
Y = np.array([[3, -3, 2, 5], [-2, 5, -1, 7]])


def _towards_zero(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.trunc(x / y).astype(int)


CASES: dict[str, tuple[Callable, Callable]] = {
    "add": (lambda x, y: x + y, np.add),
    "sub": (lambda x, y: 3 - x - y, lambda x, y: 3 - x - y),
    "mul": (lambda x, y: x * y * 2, lambda x, y: x * y * 2),
    "neg": (lambda x, y: -x, lambda x, y: -x),
    "abs": (lambda x, y: abs(x) + nn.abs(y), lambda x, y: abs(x) + abs(y)),
    "divided down": (lambda x, y: nn.divide(x, y, "floor"), np.floor_divide),
    "divided to 0": (lambda x, y: nn.divide(x, y, "trunc"), _towards_zero),
    "remainder": (nn.remainder, np.mod),
    "fmod": (nn.fmod, np.fmod),
    "and": (nn.bitwise_and, np.bitwise_and),
    "or": (nn.bitwise_or, np.bitwise_or),
    "xor": (nn.bitwise_xor, np.bitwise_xor),
    "not": (lambda x, y: nn.bitwise_not(x), lambda x, y: ~x),
    "shift": (lambda x, y: nn.left_shift(nn.right_shift(x, 1), 2), lambda x, y: (x >> 1) << 2),
    "max": (nn.maximum, np.maximum),
    "clamp": (lambda x, y: nn.clamp(x, -2, y), lambda x, y: np.minimum(np.maximum(x, -2), y)),
    "less": (nn.less, np.less),
    "equal": (lambda x, y: nn.equal(x, 5), lambda x, y: x == 5),
    "logical": (
        lambda x, y: nn.logical_xor(nn.logical_not(x), nn.logical_and(x, y)),
        lambda x, y: np.logical_xor(np.logical_not(x), np.logical_and(x, y)),
    ),
    "where": (lambda x, y: nn.where(nn.greater(x, y), x, y), np.maximum),
    "sign": (lambda x, y: nn.sign(x), lambda x, y: np.sign(x)),
    "sum": (lambda x, y: nn.sum(x, 0), lambda x, y: x.sum(0)),
    "largest": (lambda x, y: nn.max(x, 1), lambda x, y: x.max(1)),
    "smallest": (lambda x, y: nn.min(x, 1, keepdims=True), lambda x, y: x.min(1, keepdims=True)),
    "product": (lambda x, y: nn.prod(y, 1), lambda x, y: y.prod(1)),
    "place": (lambda x, y: nn.argmax(y, 1), lambda x, y: y.argmax(1)),
    "running": (lambda x, y: nn.cumsum(y, 1), lambda x, y: y.cumsum(1)),
    "views": (
        lambda x, y: nn.concat([nn.pad(nn.transpose(x), [1, 0], 9), y[:, :2]], 0)[::-1],
        lambda x, y: np.concatenate([np.pad(x.T, ((1, 1), (0, 0)), constant_values=9), y[:, :2]], 0)[::-1],
    ),
    "to float": (lambda x, y: nn.cast(x, "float64") / 2.0, lambda x, y: x / 2),
    "to int": (lambda x, y: nn.cast(nn.cast(x, "float64") / 2.0, "int64"), lambda x, y: np.trunc(x / 2)),
    "constant": (lambda x, y: x + nn.constant(np.array([1, 2, 3, 4])), lambda x, y: np.add(x, [1, 2, 3, 4])),
}


@pytest.fixture(scope="module")
def nest() -> pf.Nest:
    x, y = nn.input("x", X.shape, "int64"), nn.input("y", Y.shape, "int64")
    return pf.lower([ours(x, y) for ours, _ in CASES.values()])


def test_are_what_numpy_computes(nest: pf.Nest) -> None:
    for results in (pf.interpret(nest, {"x": X, "y": Y}).values(), pf.compile(nest)(X, Y)):
        for (name, (_, theirs)), found in zip(CASES.items(), results, strict=True):
            np.testing.assert_array_equal(found, theirs(X, Y), name)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda x: nn.exp(x), "exp computes in float32 or float64"),
        (lambda x: x / 2, "div computes in float32 or float64"),
        (lambda x: nn.mean(x), "mean computes in float32 or float64"),
        (lambda x: x + 0.5, r"add: 0\.5 beside values of int64; nn\.cast"),
        (lambda x: nn.bitwise_and(nn.cast(x, "float32"), 3), "has no bits; expected int32, int64, int8"),
        (lambda x: nn.cast(x, "int7"), "cast: element type 'int7'; expected one of float32"),
        (lambda x: nn.cast(x, "uint8") * -1, r"mul: -1 beside values of uint8, which are 0 to 255; nn\.cast"),
        (
            lambda x: nn.cast(x, "bool") + 1,
            "add computes in float32 or float64 or float16 or bfloat16 or integers",
        ),
        (lambda x: nn.where(nn.cast(x, "bool"), 1, 2), "where: one of the two has to be a value"),
        (lambda x: nn.divide(x, 2, "up"), "rounding is 'up', expected None, 'floor' or 'trunc'"),
    ],
)
def test_what_is_refused(made: Callable, why: str) -> None:
    with pytest.raises(pf.BadArgument, match=why):
        made(nn.input("x", (3,), "int64"))


SMALL: dict[str, tuple[Callable, Callable]] = {
    "add": (lambda x, y: x + y, np.add),
    "mul": (lambda x, y: x * y * 3, lambda x, y: x * y * 3),
    "sub": (lambda x, y: x - y, np.subtract),
    "divided to 0": (
        lambda x, y: nn.divide(x, y, "trunc"),
        lambda x, y: np.array([int(a / b) for a, b in zip(x, y, strict=True)]),
    ),
    "fmod": (nn.fmod, np.fmod),
    "remainder": (nn.remainder, np.remainder),
    "not": (lambda x, y: nn.bitwise_not(x), lambda x, y: ~x),
    "shift": (lambda x, y: nn.left_shift(x, 3), lambda x, y: x << 3),
    "less": (nn.less, np.less),
    "largest": (lambda x, y: nn.max(x), lambda x, y: x.max()),
    "product": (lambda x, y: x @ nn.reshape(y, (-1, 1)), lambda x, y: (x @ y).reshape(1)),
    "to int64": (lambda x, y: nn.cast(x, "int64") * 1000, lambda x, y: x.astype("int64") * 1000),
    "rows": (lambda x, y: nn.take(x, nn.minimum(y, 2)), lambda x, y: x[np.minimum(y, 2).astype("int64")]),
}


def test_small_ones_keep_their_last_bits() -> None:
    """Among them the smallest number, whose opposite its type does not have."""
    x, y = np.array([-128, -7, 100, 127]), np.array([3, -3, 2, 1])
    for dtype in ("int8", "uint16"):
        here = [x.astype(dtype), (y if dtype == "int8" else abs(y)).astype(dtype)]
        names = {"x": (4,), "y": (4,)}
        values = [nn.input(name, shape, dtype) for name, shape in names.items()]
        nest = pf.lower([ours(*values) for ours, _ in SMALL.values()])
        results = (
            pf.compile(nest)(*here)
            if dtype == "int8"
            else pf.interpret(nest, dict(zip("xy", here, strict=True))).values()
        )
        for (name, (_, theirs)), found in zip(SMALL.items(), results, strict=True):
            wanted = theirs(*here)
            assert found.dtype == ("int64" if name == "to int64" else dtype)
            np.testing.assert_array_equal(found, np.asarray(wanted).astype(found.dtype), f"{name} of {dtype}")


def test_truth_values() -> None:
    a, b, x = np.array([1, 1, 0], bool), np.array([1, 0, 0], bool), np.array([0.5, np.nan, 2.0], np.float32)
    p, q, v = nn.input("p", (3,), "bool"), nn.input("q", (3,), "bool"), nn.input("x", (3,))
    both = nn.logical_and(p, nn.logical_not(q))
    nest = pf.lower(
        [
            both,
            nn.logical_xor(p, q),
            nn.equal(p, q),
            nn.where(p, v, 0.0),
            nn.cast(v > 1, "bool"),
            nn.cast(q, "int8"),
            nn.max(nn.concat([p[::-1], q], 0), 0, keepdims=True),
            nn.where(both, p, nn.constant(b)),
        ]
    )
    wanted = (
        a & ~b,
        a ^ b,
        a == b,
        np.where(a, x, 0),
        x > 1,
        b.astype("int8"),
        np.array([True]),
        np.where(a & ~b, a, b),
    )
    for results in (pf.interpret(nest, {"p": a, "q": b, "x": x}).values(), pf.compile(nest)(a, b, x)):
        for one, expected in zip(results, wanted, strict=True):
            assert one.dtype == expected.dtype
            np.testing.assert_array_equal(one, expected)
