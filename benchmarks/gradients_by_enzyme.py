"""Ten of PolyBench's kernels as loops of C++, whose gradients Enzyme computes beside the kernels' results.

    pip install enzyme-ad       Enzyme with a clang of its own, called by JAX

A kernel's inputs are tensors by their names, its results have the names of arrays and `_out`. Loops are those of
PolyBench's C, along memory; clang optimises them for this processor before and behind Enzyme.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from enzyme_ad.jax import cpp_call
from llvmlite import binding as llvm

from papers.polybench import KERNELS

PRODUCT = """
  for (int i = 0; i < {rows}; i++) {{
    for (int j = 0; j < {columns}; j++) {to}[i][j] = {first};
    for (int k = 0; k < {steps}; k++)
      for (int j = 0; j < {columns}; j++) {to}[i][j] += {by}{a}[i][k] * {b}[k][j];
  }}"""
"""The loops of a product; the first value may be of the element itself."""


def product(
    rows: str, columns: str, steps: str, to: str, a: str, b: str, first: str = "0", by: str = ""
) -> str:
    return PRODUCT.format(rows=rows, columns=columns, steps=steps, to=to, a=a, b=b, first=first, by=by)


STENCIL = "0.2 * ({0}[i][j] + {0}[i][j - 1] + {0}[i][j + 1] + {0}[i + 1][j] + {0}[i - 1][j])"
INSIDE = "for (int i = 1; i < N - 1; i++) for (int j = 1; j < N - 1; j++) "


def local(name: str, *extents: str) -> str:
    """An array of the function's own: what it reads again may not be a result, of which Enzyme has the shadow."""
    return f"\n  double {name}{''.join(f'[{extent}]' for extent in extents)};"


def stored(to: str, name: str, rows: str, columns: str = "") -> str:
    """The copy of such an array into a result."""
    if not columns:
        return f"\n  for (int i = 0; i < {rows}; i++) {to}[i] = {name}[i];"
    return (
        f"\n  for (int i = 0; i < {rows}; i++) for (int j = 0; j < {columns}; j++) {to}[i][j] = {name}[i][j];"
    )


PROGRAMS: Mapping[str, str] = {
    "gemm": product("NI", "NJ", "NK", "C_out", "A", "B", "beta[0] * C[i][j]", "alpha[0] * "),
    "2mm": local("t", "NI", "NJ")
    + product("NI", "NJ", "NK", "t", "A", "B", by="alpha[0] * ")
    + product("NI", "NL", "NJ", "D_out", "t", "C", "beta[0] * D[i][j]")
    + stored("tmp_out", "t", "NI", "NJ"),
    "3mm": local("e", "NI", "NJ")
    + local("f", "NJ", "NL")
    + product("NI", "NJ", "NK", "e", "A", "B")
    + product("NJ", "NL", "NM", "f", "C", "D")
    + product("NI", "NL", "NJ", "G_out", "e", "f")
    + stored("E_out", "e", "NI", "NJ")
    + stored("F_out", "f", "NJ", "NL"),
    "atax": """
  for (int j = 0; j < N; j++) y_out[j] = 0;
  for (int i = 0; i < M; i++) {
    double t = 0;
    for (int j = 0; j < N; j++) t += A[i][j] * x[j];
    for (int j = 0; j < N; j++) y_out[j] += A[i][j] * t;
    tmp_out[i] = t;
  }""",
    "bicg": """
  for (int j = 0; j < M; j++) s_out[j] = 0;
  for (int i = 0; i < N; i++) {
    double t = 0;
    for (int j = 0; j < M; j++) { s_out[j] += r[i] * A[i][j]; t += A[i][j] * p[j]; }
    q_out[i] = t;
  }""",
    "mvt": """
  for (int i = 0; i < N; i++) {
    double t = x1[i];
    for (int j = 0; j < N; j++) t += A[i][j] * y1[j];
    x1_out[i] = t;
  }
  for (int i = 0; i < N; i++) x2_out[i] = x2[i];
  for (int j = 0; j < N; j++) for (int i = 0; i < N; i++) x2_out[i] += A[j][i] * y2[j];""",
    "gemver": local("a", "N", "N")
    + local("h", "N")
    + """
  for (int i = 0; i < N; i++) for (int j = 0; j < N; j++) a[i][j] = A[i][j] + u1[i] * v1[j] + u2[i] * v2[j];
  for (int i = 0; i < N; i++) h[i] = x[i] + z[i];
  for (int j = 0; j < N; j++) for (int i = 0; i < N; i++) h[i] += beta[0] * a[j][i] * y[j];
  for (int i = 0; i < N; i++) {
    double t = w[i];
    for (int j = 0; j < N; j++) t += alpha[0] * a[i][j] * h[j];
    w_out[i] = t;
  }"""
    + stored("A_out", "a", "N", "N")
    + stored("x_out", "h", "N"),
    "gesummv": """
  for (int i = 0; i < N; i++) {
    double t = 0, s = 0;
    for (int j = 0; j < N; j++) { t += A[i][j] * x[j]; s += B[i][j] * x[j]; }
    tmp_out[i] = t;
    y_out[i] = alpha[0] * t + beta[0] * s;
  }""",
    "doitgen": local("t", "NP")
    + """
  for (int r = 0; r < NR; r++) for (int q = 0; q < NQ; q++) {
    for (int p = 0; p < NP; p++) t[p] = 0;
    for (int s = 0; s < NP; s++) for (int p = 0; p < NP; p++) t[p] += A[r][q][s] * C4[s][p];
    for (int p = 0; p < NP; p++) A_out[r][q][p] = t[p];
  }"""
    + stored("total_out", "t", "NP"),
    "jacobi-2d": local("a", "N", "N")
    + local("b", "N", "N")
    + f"""
  for (int i = 0; i < N; i++) for (int j = 0; j < N; j++) {{ a[i][j] = A[i][j]; b[i][j] = B[i][j]; }}
  for (int t = 0; t < T; t++) {{
    {INSIDE}b[i][j] = {STENCIL.format("a")};
    {INSIDE}a[i][j] = {STENCIL.format("b")};
  }}"""
    + stored("A_out", "a", "N", "N")
    + stored("B_out", "b", "N", "N"),
}
"""Bodies by the kernels' names."""


def source(
    name: str, shapes: Mapping[str, tuple[int, ...]], results: Mapping[str, tuple[int, ...]], steps: int
) -> str:
    """The function f of a kernel: its results, then its inputs; sizes are numbers."""
    sizes = {"T": steps} if steps else {}
    for tensor in KERNELS[name].nest.inputs:
        sizes |= dict(zip(map(str, tensor.shape), shapes.get(tensor.name, ()), strict=False))
    numbers = "".join(
        f"  constexpr int {size} = {extent};\n" for size, extent in sizes.items() if size.isidentifier()
    )
    given = [
        f"enzyme::tensor<double, {', '.join(map(str, shape))}>& {to}_out" for to, shape in results.items()
    ]
    given += [
        f"const enzyme::tensor<double, {', '.join(map(str, s or (1,)))}>& {of}" for of, s in shapes.items()
    ]
    return f"void f({', '.join(given)}) {{\n{numbers}{PROGRAMS[name]}\n}}"


def gradient(
    name: str, given: Mapping[str, Any], seeds: Mapping[str, Any], steps: int
) -> Callable[[], tuple[Any, Any]]:
    """A call that returns a kernel's results and the gradients by its inputs, in float64; arguments as for JAX."""
    jax.config.update("jax_enable_x64", True)
    values = {key: np.asarray(value, np.float64) for key, value in given.items() if key != "T"}
    shapes = {key: value.shape for key, value in values.items()}
    results = {key: np.asarray(seed).shape for key, seed in seeds.items()}
    text = source(name, shapes, results, steps)
    options = ("-O3", "-ffast-math", "-target-cpu", llvm.get_host_cpu_name())

    def program(inputs: Mapping[str, Any]) -> dict[str, Any]:
        made = [jax.core.ShapedArray(shape, np.float64) for shape in results.values()]
        flat = [inputs[key].reshape(shape or (1,)) for key, shape in shapes.items()]
        found = cpp_call(*flat, out_shapes=made, source=text, fn="f", argv=options)
        return dict(zip(results, found, strict=True))

    def both(inputs: Any, cotangents: Any) -> Any:
        found, back = jax.vjp(program, inputs)
        return found, back(cotangents)[0]

    compiled = jax.jit(both)
    here = jax.device_put(values)
    there = jax.device_put({key: np.asarray(seed) for key, seed in seeds.items()})

    def call() -> tuple[Any, Any]:
        found: tuple[Any, Any] = jax.block_until_ready(compiled(here, there))
        return found

    return call
