"""What is computed: the kinds of the comparison with peers, and some more. NumPy and polyfuse alone, no torch.

| kind | arrays | result |
|---|---|---|
| gemm | x [m, k], w [k, n], both new in every call | x w |
| gemm_tf32, gemm_bf16 | the same | x w, of factors rounded to these formats |
| gemm_halves | the same, in bfloat16 | x w, summed in float32 and rounded |
| normalised | x [n] | x / sum(x) |
| pointwise | x [n] | max(1.1 x + 0.3, 0) x / (1 + abs(x)) |
| turned | x [m, n] | x's rows as columns |
| mlp_gradients, … | those of the kind and out_bar, as its result, all new in every call | gradients by weights |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import polyfuse as pf
from benchmarks.peers import references
from benchmarks.peers.workloads import Arrays
from benchmarks.sides import by_polyfuse
from polyfuse import nn


@pf.nest
def gemm(x: "f32[M, K]", w: "f32[K, N]"):
    y = np.empty((M, N), np.float32)
    for i in range(M):
        for j in range(N):
            y[i, j] = 0.0
            for k in range(K):
                y[i, j] += x[i, k] * w[k, j]
    return y


@pf.nest
def pointwise(x: "f32[N]"):
    y = np.empty(N, np.float32)
    for i in range(N):
        y[i] = max(x[i] * 1.1 + 0.3, 0.0) * x[i] / (1.0 + abs(x[i]))
    return y


def gemm_halves(arrays: Arrays) -> pf.Nest:
    return nn.lower(nn.matmul(*(nn.input(name, arrays[name].shape, "bfloat16") for name in "xw")))


def normalised(arrays: Arrays) -> pf.Nest:
    x = nn.input("x", arrays["x"].shape)
    return pf.lower(x / nn.sum(x))


def turned(arrays: Arrays) -> pf.Nest:
    return pf.lower(nn.transpose(nn.input("x", arrays["x"].shape)))


LAYERS = {"turned": turned, "normalised": normalised, "gemm_halves": gemm_halves}

LOOPS = {"gemm": gemm, "gemm_tf32": gemm, "gemm_bf16": gemm, "pointwise": pointwise}

FORMULAS: Mapping[str, Callable[[Arrays], Any]] = {
    **dict.fromkeys(("gemm", "gemm_tf32", "gemm_bf16", "gemm_halves"), lambda a: a["x"] @ a["w"]),
    "normalised": lambda a: a["x"] / a["x"].sum(),
    "turned": lambda a: a["x"].T,
    "pointwise": lambda a: np.maximum(a["x"] * 1.1 + 0.3, 0) * a["x"] / (1 + np.abs(a["x"])),
}


GRADIENTS = {f"{kind}_gradients": kind for kind in ("mlp", "conv", "ensemble", "layer_norm")}
"""The forward and the backward pass of a kind, whose weights are no constants, as they change in training."""


def gradients(kind: str, arrays: Arrays) -> pf.Nest:
    """The gradients by all weights of a kind, in the order of its arrays."""
    weights = {name: nn.input(name, array.shape) for name, array in arrays.items() if name not in PASSED}
    return pf.vjp(pf.lower(by_polyfuse.NETWORKS[kind]({"x": arrays["x"], **weights})), tuple(weights))


PASSED = ("x", "out_bar")
"""The arrays that are no weights."""


def nest_of(kind: str, arrays: Arrays) -> tuple[pf.Nest, dict[str, int] | None]:
    """(the nest, its sizes where they are symbols)."""
    if kind in LOOPS:
        return LOOPS[kind], by_polyfuse.sizes_of(LOOPS[kind], arrays)
    if kind in LAYERS:
        return LAYERS[kind](arrays), None
    if kind in GRADIENTS:
        return gradients(GRADIENTS[kind], arrays), None
    nest, sizes, _ = by_polyfuse.nest_of(kind, arrays)
    return nest, sizes


def reference(kind: str, arrays: Arrays) -> references.Results:
    """The results in float64, by NumPy; gradients by the oracle, which runs the nest in its original order."""
    if kind in GRADIENTS:
        return tuple(pf.interpret(gradients(GRADIENTS[kind], arrays), arrays).values())
    if kind in FORMULAS:
        return (FORMULAS[kind]({name: array.astype(np.float64) for name, array in arrays.items()}),)
    return references.reference(kind, arrays)
