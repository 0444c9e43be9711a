"""Layers of exp, log, tanh and row reductions against NumPy, in turns, with one thread; float32, 4096 × 1024."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

import polyfuse as pf
from benchmarks.fresh import fresh
from polyfuse import nn

Array = npt.NDArray[Any]

ROWS, WIDTH = 4096, 1024


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def log_softmax(x: Array) -> Array:
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def layer_norm(x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(1e-5))


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def chain(x: Array) -> Array:
    return gelu(sigmoid(np.tanh(x)))


LAYERS: dict[str, tuple[nn.Module, Callable[[Array], Array]]] = {
    "softmax": (nn.Softmax(), softmax),
    "log-softmax": (nn.LogSoftmax(), log_softmax),
    "layer norm": (nn.LayerNorm(WIDTH), layer_norm),
    "GELU (tanh)": (nn.GELU("tanh"), gelu),
    "tanh": (nn.Tanh(), np.tanh),
    "sigmoid": (nn.Sigmoid(), sigmoid),
    "tanh, sigmoid, GELU (tanh)": (nn.Sequential(nn.Tanh(), nn.Sigmoid(), nn.GELU("tanh")), chain),
}


def measure(turns: int) -> list[dict[str, Any]]:
    """A row for each layer: milliseconds of both sides, and how many times as long NumPy takes."""
    rows: list[dict[str, Any]] = fresh("benchmarks.functions", str(turns), threads=1)
    for row in rows:
        print(f"{row['layer']}: {row['polyfuse_ms']} ms, NumPy {row['numpy_ms']} ms, {row['ratio']:.2f} ×")
    return rows


def in_this_process(turns: int) -> list[dict[str, Any]]:
    x = np.random.default_rng(0).standard_normal((ROWS, WIDTH), np.float32)
    return [measured(name, x, turns) for name in LAYERS]


def measured(name: str, x: Array, turns: int) -> dict[str, Any]:
    module, by_numpy = LAYERS[name]
    net = pf.compile(pf.lower(module, batch=ROWS, features=WIDTH), target="cpu")
    out = net(x)
    times = pf.measure.in_turns({"polyfuse": partial(net, x), "numpy": partial(by_numpy, x)}, turns)
    return {
        "layer": name,
        "polyfuse_ms": round(1e3 * times["polyfuse"].median, 3),
        "polyfuse_best_ms": round(1e3 * times["polyfuse"].best, 3),
        "numpy_ms": round(1e3 * times["numpy"].median, 3),
        "numpy_best_ms": round(1e3 * times["numpy"].best, 3),
        "ratio": round(times["numpy"].median / times["polyfuse"].median, 3),
        "worst_error": float(np.abs(out - by_numpy(x.astype(np.float64))).max()),
        "turns": times["polyfuse"].turns,
    }


if __name__ == "__main__":
    print(json.dumps(in_this_process(int(sys.argv[1]))))
