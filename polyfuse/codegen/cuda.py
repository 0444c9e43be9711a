"""Loop trees as numba.cuda source: raw pointers, blocks and threads, shared memory, barriers."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from polyfuse.codegen.build import axis_name
from polyfuse.codegen.emit import Emitter, subscripted
from polyfuse.codegen.index import binary
from polyfuse.codegen.looptree import Allocate, Axis, Element, Kernel
from polyfuse.ir.tensor import Tensor

HEADER = """\
import math

from numba import cuda, float32, float64, int32, int64
"""

AXIS_OF = {"block": "blockIdx", "thread": "threadIdx"}


@dataclass(frozen=True)
class CudaKernel:
    """A kernel's source, its argument types, and the grid and block it wants (expressions in sizes)."""

    name: str
    source: str
    signature: tuple[str, ...]
    grid: tuple[ast.expr, ast.expr, ast.expr]
    block: tuple[ast.expr, ast.expr, ast.expr]


def cuda_kernel(kernel: Kernel) -> CudaKernel:
    """The numba.cuda source of one kernel: every tensor is a pointer to its elements in row-major order."""
    signature = tuple(f"{tensor.dtype}*" for tensor in kernel.arrays.values()) + ("int64",) * len(
        kernel.sizes
    )
    return CudaKernel(
        kernel.name,
        _Cuda(kernel).source(),
        signature,
        _extents(kernel.axes, "block"),
        _extents(kernel.axes, "thread"),
    )


def _extents(axes: tuple[Axis, ...], unit: str) -> tuple[ast.expr, ast.expr, ast.expr]:
    found = {axis.name: axis.extent for axis in axes}
    x, y, z = (found.get(f"{unit}.{d}", ast.Constant(1)) for d in "xyz")
    return x, y, z


def flat_index(tensor: Tensor, subscripts: tuple[ast.expr, ...]) -> ast.expr:
    """The row-major position of an element: i * 512 + j."""
    if not subscripts:
        return ast.Constant(0)
    position = subscripts[0]
    for size, index in zip(tensor.shape[1:], subscripts[1:], strict=True):
        extent: ast.expr = ast.Constant(size) if isinstance(size, int) else size_expression(size)
        position = binary(ast.Add(), binary(ast.Mult(), position, extent), index)
    return position


def size_expression(text: str) -> ast.expr:
    """An extent in a kernel's own words: floor((N)/2) is N // 2."""
    for node in ast.walk(tree := ast.parse(text, mode="eval")):
        if isinstance(node, ast.Call) and isinstance(node.args[0], ast.BinOp):
            node.args[0].op = ast.FloorDiv()

    class Plain(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            return self.generic_visit(node).args[0]  # type: ignore[attr-defined, no-any-return]

    return Plain().visit(tree).body  # type: ignore[no-any-return]


class _Cuda(Emitter):
    def opening(self) -> list[str]:
        lines = []
        for axis in self.kernel.axes:
            unit, d = axis.name.split(".")
            lines.append(f"{axis_name(axis.name)} = cuda.{AXIS_OF[unit]}.{d}")
        return lines

    def allocation(self, node: Allocate) -> str:
        if not node.shape:
            return (
                f"{node.buffer} = {node.dtype}(0.0)"
                if node.dtype[0] == "f"
                else f"{node.buffer} = {node.dtype}(0)"
            )
        memory = "shared" if node.memory == "shared" else "local"
        return f"{node.buffer} = cuda.{memory}.array({node.shape}, {node.dtype})"

    def place(self, element: Element) -> ast.expr:
        tensor = self.kernel.arrays.get(element.array)
        if tensor is None:
            return subscripted(element.array, element.subscripts)
        return subscripted(element.array, (flat_index(tensor, element.subscripts),))

    def barrier(self) -> str:
        return "cuda.syncthreads()"
