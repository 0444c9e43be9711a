"""What the workloads compute, said by NumPy in the type of the arrays that it gets: float64 for a reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import numpy as np

from benchmarks.peers.workloads import (
    ALPHA,
    BETA,
    EPSILON,
    NORM_GROUPS,
    STEPS,
    THRESHOLD,
    WEIGHT,
    Arrays,
    Workload,
)
from papers.pipelines import closed

Results = tuple[Any, ...]


class WrongResult(Exception):
    """A side does not compute what the reference computes."""


def reference(kind: str, arrays: Arrays) -> Results:
    """The results in float64."""
    return REFERENCES[kind]({name: np.asarray(array, np.float64) for name, array in arrays.items()})


def error(workload: Workload, found: list[Any], expected: Results) -> float:
    """The largest difference relative to the largest element, over all results. WrongResult where it is too large."""
    if len(found) != len(expected):
        raise WrongResult(f"{len(found)} results, expected {len(expected)}")
    worst = 0.0
    for mine, right in zip(found, expected, strict=True):
        if mine.size != right.size:
            raise WrongResult(f"a result of shape {mine.shape}, expected {right.shape}")
        off = np.nan_to_num(np.abs(mine.reshape(right.shape) - right), nan=np.inf).ravel()
        last = off.size - 1 - int(workload.flipped * off.size)
        worst = max(worst, float(np.partition(off, last)[last] / np.abs(right).max()))
    if worst > workload.bound:
        raise WrongResult(f"off by {worst:.2g} of the largest element, {workload.bound:g} is allowed")
    return worst


def layers(arrays: Arrays, first: str) -> int:
    """How many layers there are: first0, first1, …"""
    return next(n for n in count() if f"{first}{n}" not in arrays)


def mlp(a: Arrays) -> Results:
    h = a["x"]
    for n in range(layers(a, "w")):
        h = np.maximum(h @ a[f"w{n}"] + a[f"b{n}"], 0)
    return (h,)


def windows(x: Any, size: int, border: int, step: int = 1, beyond: float = 0.0) -> Any:
    """[n, c, h, w, size, size]: the window at each place of an image, whose border has one value."""
    sides = ((0, 0), (0, 0), (border, border), (border, border))
    padded = np.pad(x, sides, constant_values=beyond)
    every = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (2, 3))
    return every[:, :, ::step, ::step]


def convolved(x: Any, weight: Any, border: int, step: int = 1) -> Any:
    """The sums of a convolution, in as many groups as its weight says."""
    filters, deep, size, _ = weight.shape
    groups = x.shape[1] // deep
    every = windows(x, size, border, step)
    apart = every.reshape(x.shape[0], groups, deep, *every.shape[2:])
    sums = np.einsum(
        "ngchwij,gkcij->ngkhw", apart, weight.reshape(groups, -1, deep, size, size), optimize=True
    )
    return sums.reshape(x.shape[0], filters, *every.shape[2:4])


def grouped(a: Arrays) -> Results:
    return (np.maximum(convolved(a["x"], a["weight"], 1) + a["bias"][:, None, None], 0),)


def conv(a: Arrays) -> Results:
    return grouped(a)


def first_layers(a: Arrays) -> Results:
    sums = np.maximum(convolved(a["x"], a["weight"], 3, 2) + a["bias"][:, None, None], 0)
    return (windows(sums, 3, 1, 2, -np.inf).max((4, 5)),)


def separable(a: Arrays) -> Results:
    inside = np.maximum(convolved(a["x"], a["deep"], 1), 0)
    return (np.maximum(convolved(inside, a["wide"], 0), 0),)


def normed(a: Arrays) -> Results:
    x = a["x"]
    apart = x.reshape(x.shape[0], NORM_GROUPS, -1)
    mean, variance = apart.mean(2, keepdims=True), apart.var(2, keepdims=True)
    norm = ((apart - mean) / np.sqrt(variance + np.float32(EPSILON))).reshape(x.shape)
    norm = norm * a["gamma"][:, None, None] + a["beta"][:, None, None]
    return (x + convolved(norm * sigmoid(norm), a["weight"], 1) + a["bias"][:, None, None],)


def upsampled(a: Arrays) -> Results:
    return conv({**a, "x": a["x"].repeat(2, axis=2).repeat(2, axis=3)})


def lstm(a: Arrays) -> Results:
    x = a["x"]
    for n in range(layers(a, "wx")):
        h = c = np.zeros_like(x[0])
        steps = []
        for step in x:
            i, f, g, o = np.split(step @ a[f"wx{n}"] + h @ a[f"wh{n}"] + a[f"b{n}"], 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            steps.append(h)
        x = np.stack(steps)
    return (x,)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def bias_gradient(a: Arrays) -> Results:
    return (a["gradient"].sum((0, 2, 3)),)


def softmax(a: Arrays) -> Results:
    e = np.exp(a["x"] - a["x"].max(1, keepdims=True))
    return (e / e.sum(1, keepdims=True),)


def layer_norm(a: Arrays) -> Results:
    x = a["x"]
    centred = x - x.mean(1, keepdims=True)
    variance = (centred**2).mean(1, keepdims=True)
    return (centred / np.sqrt(variance + EPSILON) * a["gamma"] + a["beta"],)


def chain(a: Arrays) -> Results:
    x = a["x"]
    t = np.maximum(x * np.float32(1.1) + np.float32(0.3), 0) * x
    t = np.exp(1 / np.sqrt(np.abs(t) + 1)) - np.float32(0.5)
    return (np.sum(t, keepdims=True),)


def jacobi(a: Arrays) -> Results:
    one, two = a["a"].copy(), a["b"].copy()
    for _ in range(STEPS):
        for x, y in ((one, two), (two, one)):
            mean = x[1:-1, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] + x[2:, 1:-1] + x[:-2, 1:-1]
            y[1:-1, 1:-1] = np.float32(0.2) * mean
    return one, two


def two_mm(a: Arrays) -> Results:
    return (ALPHA * a["a"] @ a["b"] @ a["c"] + np.float32(BETA) * a["d"],)


def three_mm(a: Arrays) -> Results:
    return ((a["a"] @ a["b"]) @ (a["c"] @ a["d"]),)


def atax(a: Arrays) -> Results:
    return ((a["a"] @ a["x"]) @ a["a"],)


def gemver(a: Arrays) -> Results:
    matrix = a["a"] + np.outer(a["u1"], a["v1"]) + np.outer(a["u2"], a["v2"])
    x = a["x"] + np.float32(BETA) * (a["y"] @ matrix) + a["z"]
    return x, ALPHA * (matrix @ x)


def harris(a: Arrays) -> Results:
    return tuple(closed.harris(a).values())


def unsharp(a: Arrays) -> Results:
    return tuple(
        closed.unsharp({**a, "weight": np.float32(WEIGHT), "threshold": np.float32(THRESHOLD)}).values()
    )


FORMULAS = (
    mlp, conv, grouped, first_layers, separable, normed, upsampled, bias_gradient, lstm, softmax, layer_norm, chain,
    jacobi, two_mm, three_mm, atax, gemver, harris, unsharp,
)  # fmt: skip

REFERENCES: Mapping[str, Callable[[Arrays], Results]] = {
    **{formula.__name__: formula for formula in FORMULAS},
    "ensemble": mlp,  # the same, with a dimension of members in front
}
