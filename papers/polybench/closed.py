"""What the kernels compute, said by NumPy: an independent check of those that have a natural form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.linalg import cholesky as cholesky_of
from numpy.linalg import qr, solve

Array = np.ndarray[Any, Any]
Form = Callable[[Mapping[str, Any]], dict[str, Array]]
"""From the inputs of a kernel to some of the arrays that it leaves."""


def gemm(a: Mapping[str, Any]) -> dict[str, Array]:
    return {"C": a["alpha"] * a["A"] @ a["B"] + a["beta"] * a["C"]}


def gemver(a: Mapping[str, Any]) -> dict[str, Array]:
    A = a["A"] + np.outer(a["u1"], a["v1"]) + np.outer(a["u2"], a["v2"])
    x = a["x"] + a["beta"] * A.T @ a["y"] + a["z"]
    return {"A": A, "x": x, "w": a["w"] + a["alpha"] * A @ x}


def gesummv(a: Mapping[str, Any]) -> dict[str, Array]:
    return {"y": a["alpha"] * a["A"] @ a["x"] + a["beta"] * a["B"] @ a["x"]}


def symm(a: Mapping[str, Any]) -> dict[str, Array]:
    A = np.tril(a["A"]) + np.tril(a["A"], -1).T
    return {"C": a["alpha"] * A @ a["B"] + a["beta"] * a["C"]}


def lower(of: Array, kept: Array) -> Array:
    """A lower triangle, with what was above it."""
    return np.tril(of) + np.triu(kept, 1)


def syrk(a: Mapping[str, Any]) -> dict[str, Array]:
    return {"C": lower(a["alpha"] * a["A"] @ a["A"].T + a["beta"] * a["C"], a["C"])}


def syr2k(a: Mapping[str, Any]) -> dict[str, Array]:
    both = a["A"] @ a["B"].T + a["B"] @ a["A"].T
    return {"C": lower(a["alpha"] * both + a["beta"] * a["C"], a["C"])}


def trmm(a: Mapping[str, Any]) -> dict[str, Array]:
    return {"B": a["alpha"] * (np.tril(a["A"], -1) + np.eye(len(a["A"]))).T @ a["B"]}


def two_mm(a: Mapping[str, Any]) -> dict[str, Array]:
    return {"D": a["alpha"] * a["A"] @ a["B"] @ a["C"] + a["beta"] * a["D"]}


def three_mm(a: Mapping[str, Any]) -> dict[str, Array]:
    return {"G": (a["A"] @ a["B"]) @ (a["C"] @ a["D"])}


def atax(a: Mapping[str, Any]) -> dict[str, Array]:
    return {"y": a["A"].T @ (a["A"] @ a["x"])}


def bicg(a: Mapping[str, Any]) -> dict[str, Array]:
    return {"s": a["A"].T @ a["r"], "q": a["A"] @ a["p"]}


def mvt(a: Mapping[str, Any]) -> dict[str, Array]:
    return {"x1": a["x1"] + a["A"] @ a["y1"], "x2": a["x2"] + a["A"].T @ a["y2"]}


def doitgen(a: Mapping[str, Any]) -> dict[str, Array]:
    return {"A": a["A"] @ a["C4"]}


def cholesky(a: Mapping[str, Any]) -> dict[str, Array]:
    return {"A": lower(cholesky_of(a["A"]), a["A"])}


def durbin(a: Mapping[str, Any]) -> dict[str, Array]:
    row = np.concatenate([[1.0], a["r"][:-1]])
    toeplitz = row[abs(np.subtract.outer(np.arange(len(row)), np.arange(len(row))))]
    return {"y": solve(toeplitz, -a["r"])}


def gramschmidt(a: Mapping[str, Any]) -> dict[str, Array]:
    Q, R = qr(a["A"])
    signs = np.sign(np.diag(R))
    return {"Q": Q * signs, "R": np.triu(R * signs[:, None]) + np.tril(a["R"], -1)}


def lu(a: Mapping[str, Any]) -> dict[str, Array]:
    A = a["A"].copy()
    for k in range(len(A)):
        A[k + 1 :, k] /= A[k, k]
        A[k + 1 :, k + 1 :] -= np.outer(A[k + 1 :, k], A[k, k + 1 :])
    return {"A": A}


def ludcmp(a: Mapping[str, Any]) -> dict[str, Array]:
    return {**lu(a), "x": solve(a["A"], a["b"])}


def trisolv(a: Mapping[str, Any]) -> dict[str, Array]:
    return {"x": solve(np.tril(a["L"]), a["b"])}


def covariance(a: Mapping[str, Any]) -> dict[str, Array]:
    return {"cov": np.cov(a["data"], rowvar=False), "mean": a["data"].mean(0)}


def correlation(a: Mapping[str, Any]) -> dict[str, Array]:
    return {"corr": np.corrcoef(a["data"], rowvar=False), "stddev": a["data"].std(0)}


def jacobi_1d(a: Mapping[str, Any]) -> dict[str, Array]:
    A, B = a["A"].copy(), a["B"].copy()
    for _ in range(a["T"]):
        B[1:-1] = 0.33333 * (A[:-2] + A[1:-1] + A[2:])
        A[1:-1] = 0.33333 * (B[:-2] + B[1:-1] + B[2:])
    return {"A": A, "B": B}


def jacobi_2d(a: Mapping[str, Any]) -> dict[str, Array]:
    def step(x: Array) -> Array:
        return 0.2 * (x[1:-1, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] + x[2:, 1:-1] + x[:-2, 1:-1])

    A, B = a["A"].copy(), a["B"].copy()
    for _ in range(a["T"]):
        B[1:-1, 1:-1] = step(A)
        A[1:-1, 1:-1] = step(B)
    return {"A": A, "B": B}


def heat_3d(a: Mapping[str, Any]) -> dict[str, Array]:
    def step(x: Array) -> Array:
        inner = x[1:-1, 1:-1, 1:-1]
        second = [np.diff(x, 2, axis)[tuple(slice(None) if d == axis else slice(1, -1) for d in range(3))]
                  for axis in range(3)]  # fmt: skip
        return 0.125 * sum(second) + inner

    A, B = a["A"].copy(), a["B"].copy()
    for _ in range(a["T"]):
        B[1:-1, 1:-1, 1:-1] = step(A)
        A[1:-1, 1:-1, 1:-1] = step(B)
    return {"A": A, "B": B}


def fdtd_2d(a: Mapping[str, Any]) -> dict[str, Array]:
    ex, ey, hz = (a[name].copy() for name in ("ex", "ey", "hz"))
    for source in a["source"]:
        ey[0] = source
        ey[1:] -= 0.5 * np.diff(hz, axis=0)
        ex[:, 1:] -= 0.5 * np.diff(hz, axis=1)
        hz[:-1, :-1] -= 0.7 * (np.diff(ex, axis=1)[:-1] + np.diff(ey, axis=0)[:, :-1])
    return {"ex": ex, "ey": ey, "hz": hz}


def floyd_warshall(a: Mapping[str, Any]) -> dict[str, Array]:
    path = a["path"].copy()
    for k in range(len(path)):
        path = np.minimum(path, path[:, k, None] + path[k])
    return {"path": path}
