"""Inputs for the kernels: random, where a kernel needs no more; else matrices that its algorithm can take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import polyfuse as pf
from polyfuse.ir.sizes import extent

Array = np.ndarray[Any, Any]
Sizes = Mapping[str, int]
Inputs = dict[str, Any]
Make = Callable[[pf.Nest, Sizes, np.random.Generator], Inputs]


def uniform(nest: pf.Nest, sizes: Sizes, rng: np.random.Generator) -> Inputs:
    """Every array uniform in [-1, 1), every scalar in [0.5, 1.5); integer scalars are sizes."""
    made: Inputs = {}
    for tensor in nest.inputs:
        shape = tuple(extent(size, sizes) for size in tensor.shape)
        if tensor.name in sizes:
            made[tensor.name] = sizes[tensor.name]
        elif tensor.rank == 0:
            made[tensor.name] = float(rng.uniform(0.5, 1.5))
        else:
            made[tensor.name] = rng.uniform(-1, 1, shape)
    return made


def definite(nest: pf.Nest, sizes: Sizes, rng: np.random.Generator) -> Inputs:
    """A is symmetric and positive definite."""
    made = uniform(nest, sizes, rng)
    made["A"] = made["A"] @ made["A"].T + np.eye(sizes["N"])
    return made


def dominant(nest: pf.Nest, sizes: Sizes, rng: np.random.Generator) -> Inputs:
    """A (or L) has a large diagonal: no pivots are needed."""
    made = uniform(nest, sizes, rng)
    made["A" if "A" in made else "L"] += sizes["N"] * np.eye(sizes["N"])
    return made


def decaying(nest: pf.Nest, sizes: Sizes, rng: np.random.Generator) -> Inputs:
    """r is the autocorrelation of something: its Toeplitz matrix is positive definite.

    The spectrum of powers of 1/2 is at least 1/3, and what is added to N of them changes it by less than 0.3.
    """
    made = uniform(nest, sizes, rng)
    made["r"] = 0.5 ** np.arange(1, sizes["N"] + 1) + 0.15 / sizes["N"] * made["r"]
    return made


def graph(nest: pf.Nest, sizes: Sizes, rng: np.random.Generator) -> Inputs:
    """Lengths of edges, some of them so long that they are none."""
    n = sizes["N"]
    lengths = rng.integers(1, 100, (n, n))
    return {"path": np.where(rng.random((n, n)) < 0.3, lengths, 999)}


def sequence(nest: pf.Nest, sizes: Sizes, rng: np.random.Generator) -> Inputs:
    """A random sequence, and an empty table."""
    n = sizes["N"]
    return {"seq": rng.integers(0, 4, n), "table": np.zeros((n, n), np.int64)}
