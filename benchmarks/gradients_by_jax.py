"""Ten of PolyBench's kernels as functions of arrays, whose gradients JAX computes beside the kernels' results.

Each returns what the kernel leaves, by the names of its arrays. A loop over time is a scan, the rest whole arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Arrays = Mapping[str, Any]
Program = Callable[[Arrays, int], dict[str, Any]]
"""(the kernel's arrays and numbers, steps in time) -> what it leaves."""


def gemm(a: Arrays, steps: int) -> dict[str, Any]:
    return {"C": a["alpha"] * (a["A"] @ a["B"]) + a["beta"] * a["C"]}


def two_mm(a: Arrays, steps: int) -> dict[str, Any]:
    tmp = a["alpha"] * (a["A"] @ a["B"])
    return {"tmp": tmp, "D": a["beta"] * a["D"] + tmp @ a["C"]}


def three_mm(a: Arrays, steps: int) -> dict[str, Any]:
    e, f = a["A"] @ a["B"], a["C"] @ a["D"]
    return {"E": e, "F": f, "G": e @ f}


def atax(a: Arrays, steps: int) -> dict[str, Any]:
    tmp = a["A"] @ a["x"]
    return {"y": a["A"].T @ tmp, "tmp": tmp}


def bicg(a: Arrays, steps: int) -> dict[str, Any]:
    return {"s": a["A"].T @ a["r"], "q": a["A"] @ a["p"]}


def mvt(a: Arrays, steps: int) -> dict[str, Any]:
    return {"x1": a["x1"] + a["A"] @ a["y1"], "x2": a["x2"] + a["A"].T @ a["y2"]}


def gemver(a: Arrays, steps: int) -> dict[str, Any]:
    matrix = a["A"] + jnp.outer(a["u1"], a["v1"]) + jnp.outer(a["u2"], a["v2"])
    x = a["x"] + a["beta"] * (matrix.T @ a["y"]) + a["z"]
    return {"A": matrix, "x": x, "w": a["w"] + a["alpha"] * (matrix @ x)}


def gesummv(a: Arrays, steps: int) -> dict[str, Any]:
    tmp = a["A"] @ a["x"]
    return {"tmp": tmp, "y": a["alpha"] * tmp + a["beta"] * (a["B"] @ a["x"])}


def doitgen(a: Arrays, steps: int) -> dict[str, Any]:
    product = a["A"] @ a["C4"]
    return {"A": product, "total": product[-1, -1]}


def jacobi_2d(a: Arrays, steps: int) -> dict[str, Any]:
    def mean(x: Any) -> Any:
        return 0.2 * (x[1:-1, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] + x[2:, 1:-1] + x[:-2, 1:-1])

    def step(state: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], None]:
        first, second = state
        second = second.at[1:-1, 1:-1].set(mean(first))
        return (first.at[1:-1, 1:-1].set(mean(second)), second), None

    (first, second), _ = jax.lax.scan(step, (a["A"], a["B"]), length=steps)
    return {"A": first, "B": second}


PROGRAMS: Mapping[str, Program] = {
    "2mm": two_mm,
    "3mm": three_mm,
    "atax": atax,
    "bicg": bicg,
    "doitgen": doitgen,
    "gemm": gemm,
    "gemver": gemver,
    "gesummv": gesummv,
    "jacobi-2d": jacobi_2d,
    "mvt": mvt,
}
"""By the kernels' names."""


def gradient(
    name: str, given: Mapping[str, Any], seeds: Mapping[str, Any], steps: int
) -> Callable[[], tuple[Any, Any]]:
    """A call that returns a kernel's results and the gradients by its inputs, in one jitted function of float64.

    Args:
        name: The kernel.
        given: Its arrays and numbers, without sizes.
        seeds: The cotangents of its results, by the names of arrays.
        steps: The steps in time, if it has any.
    """
    jax.config.update("jax_enable_x64", True)

    def both(values: Any, cotangents: Any) -> Any:
        results, back = jax.vjp(lambda inputs: PROGRAMS[name](inputs, steps), values)
        return results, back({key: cotangents[key] for key in results})[0]

    compiled = jax.jit(both)
    here = jax.device_put({key: np.asarray(value, np.float64) for key, value in given.items()})
    there = jax.device_put({key: np.asarray(seed) for key, seed in seeds.items()})

    def call() -> tuple[Any, Any]:
        found: tuple[Any, Any] = jax.block_until_ready(compiled(here, there))
        return found

    return call
