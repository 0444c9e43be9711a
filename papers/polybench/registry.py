"""The 30 kernels by the name PolyBench gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from papers.polybench import blas, closed, solvers, stencils
from papers.polybench.inputs import (
    Inputs,
    Make,
    Sizes,
    decaying,
    definite,
    dominant,
    graph,
    sequence,
    uniform,
)
from polyfuse.frontend import PythonNest


@dataclass(frozen=True)
class Kernel:
    """A kernel: its nest, MINI and LARGE sizes, what makes its inputs, and a NumPy form if there is a natural one."""

    nest: PythonNest
    mini: Sizes
    large: Sizes
    make: Make = uniform
    closed: closed.Form | None = None

    def inputs(self, sizes: Sizes, rng: np.random.Generator) -> Inputs:
        """Fresh arguments for these sizes, by name in the order of the function's parameters."""
        return self.make(self.nest, sizes, rng)


def _n(n: int, t: int | None = None) -> Sizes:
    return {"N": n} if t is None else {"T": t, "N": n}


def _mn(m: int, n: int) -> Sizes:
    return {"M": m, "N": n}


def _mm(*extents: int) -> Sizes:
    return dict(zip(("NI", "NJ", "NK", "NL", "NM"), extents, strict=False))


KERNELS: Mapping[str, Kernel] = {
    "2mm": Kernel(blas.two_mm, _mm(16, 18, 22, 24), _mm(800, 900, 1100, 1200), closed=closed.two_mm),
    "3mm": Kernel(
        blas.three_mm, _mm(16, 18, 20, 22, 24), _mm(800, 900, 1000, 1100, 1200), closed=closed.three_mm
    ),
    "adi": Kernel(stencils.adi, _n(20, 20), _n(1000, 500)),
    "atax": Kernel(blas.atax, _mn(38, 42), _mn(1900, 2100), closed=closed.atax),
    "bicg": Kernel(blas.bicg, _mn(38, 42), _mn(1900, 2100), closed=closed.bicg),
    "cholesky": Kernel(solvers.cholesky, _n(40), _n(2000), definite, closed.cholesky),
    "correlation": Kernel(solvers.correlation, _mn(28, 32), _mn(1200, 1400), closed=closed.correlation),
    "covariance": Kernel(solvers.covariance, _mn(28, 32), _mn(1200, 1400), closed=closed.covariance),
    "deriche": Kernel(stencils.deriche, {"W": 64, "H": 64}, {"W": 4096, "H": 2160}),
    "doitgen": Kernel(
        blas.doitgen, {"NQ": 8, "NR": 10, "NP": 12}, {"NQ": 140, "NR": 150, "NP": 160}, closed=closed.doitgen
    ),
    "durbin": Kernel(solvers.durbin, _n(40), _n(2000), decaying, closed.durbin),
    "fdtd-2d": Kernel(
        stencils.fdtd_2d,
        {"T": 20, "NX": 20, "NY": 30},
        {"T": 500, "NX": 1000, "NY": 1200},
        closed=closed.fdtd_2d,
    ),
    "floyd-warshall": Kernel(stencils.floyd_warshall, _n(60), _n(2800), graph, closed.floyd_warshall),
    "gemm": Kernel(blas.gemm, _mm(20, 25, 30), _mm(1000, 1100, 1200), closed=closed.gemm),
    "gemver": Kernel(blas.gemver, _n(40), _n(2000), closed=closed.gemver),
    "gesummv": Kernel(blas.gesummv, _n(30), _n(1300), closed=closed.gesummv),
    "gramschmidt": Kernel(solvers.gramschmidt, _mn(30, 20), _mn(1200, 1000), closed=closed.gramschmidt),
    "heat-3d": Kernel(stencils.heat_3d, _n(10, 20), _n(120, 500), closed=closed.heat_3d),
    "jacobi-1d": Kernel(stencils.jacobi_1d, _n(30, 20), _n(2000, 500), closed=closed.jacobi_1d),
    "jacobi-2d": Kernel(stencils.jacobi_2d, _n(30, 20), _n(1300, 500), closed=closed.jacobi_2d),
    "lu": Kernel(solvers.lu, _n(40), _n(2000), dominant, closed.lu),
    "ludcmp": Kernel(solvers.ludcmp, _n(40), _n(2000), dominant, closed.ludcmp),
    "mvt": Kernel(blas.mvt, _n(40), _n(2000), closed=closed.mvt),
    "nussinov": Kernel(stencils.nussinov, _n(60), _n(2500), sequence),
    "seidel-2d": Kernel(stencils.seidel_2d, _n(40, 20), _n(2000, 500)),
    "symm": Kernel(blas.symm, _mn(20, 30), _mn(1000, 1200), closed=closed.symm),
    "syr2k": Kernel(blas.syr2k, _mn(20, 30), _mn(1000, 1200), closed=closed.syr2k),
    "syrk": Kernel(blas.syrk, _mn(20, 30), _mn(1000, 1200), closed=closed.syrk),
    "trisolv": Kernel(solvers.trisolv, _n(40), _n(2000), dominant, closed.trisolv),
    "trmm": Kernel(blas.trmm, _mn(20, 30), _mn(1000, 1200), closed=closed.trmm),
}
"""MINI and LARGE sizes are PolyBench's; gramschmidt's are swapped, so that its columns are independent (M >= N).
Lengths of paths and base pairs are i64 here, where PolyBench has C's int."""
