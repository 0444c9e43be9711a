"""A whole schedule as source: the launches in order, and the kernels they share."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from polyfuse.codegen.cpu import intrinsic_table as operations
from polyfuse.codegen.cpu import printer as cpu
from polyfuse.codegen.cuda import printer as cuda
from polyfuse.codegen.cuda.cluster_axes import ALONE
from polyfuse.codegen.cuda.tensor_maps import BoxMap
from polyfuse.codegen.generate import TARGETS, kernels
from polyfuse.codegen.looptree.alpha_equal import canonical
from polyfuse.codegen.looptree.naming import base
from polyfuse.codegen.looptree.nodes import Kernel
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Tree, loops, statements

Target = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class Code:
    """One compiled function: its name, its source, and its argument types as the target's compiler wants them.

    `registers` limits what a GPU's thread gets, where the schedule plans for it; `shared_bytes` are those of a block.
    `wide` are the positions of the arguments that a GPU reads 16 bytes at a time, `maps` are further arguments,
    `grid_barriers` the places at which all blocks of a launch meet: they have to be on the GPU at once. So have those
    of a `cluster`, of which there are so many along each axis.
    """

    name: str
    source: str
    signature: str | tuple[str, ...]
    parallel: bool = False
    registers: int | None = None
    shared_bytes: int = 0
    wide: tuple[int, ...] = ()
    grid_barriers: int = 0
    maps: tuple[BoxMap, ...] = ()
    cluster: tuple[int, int, int] = ALONE


@dataclass(frozen=True)
class Launch:
    """One entry of `net.kernels`: which code runs, for which statements, on which tensors, on what grid.

    One that runs `once` does so when constants get their values, the others in every call. `untiled` are those of the
    statements in a GPU's microkernels that run as plain loops: no tile in registers holds their sums.
    """

    code: Code
    statements: tuple[str, ...]
    tensors: tuple[str, ...]
    grid: tuple[ast.expr, ast.expr, ast.expr]
    block: tuple[ast.expr, ast.expr, ast.expr]
    once: bool = False
    untiled: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.code.name

    @property
    def source(self) -> str:
        """The kernel's source."""
        return self.code.source

    def extents(self, sizes: Mapping[str, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The grid and the block for given sizes, x first; a negative extent is 0, as in `range`."""
        return (
            tuple(max(0, value(e, sizes)) for e in self.grid),
            tuple(max(0, value(e, sizes)) for e in self.block),
        )

    def __str__(self) -> str:
        where = ""
        if not isinstance(self.code.signature, str):  # on a GPU
            grid, block = (" × ".join(map(ast.unparse, extents)) for extents in (self.grid, self.block))
            where = f"  grid {grid}, block {block}"
        when = ", once for all calls" if self.once else ""
        return f"{self.name}({', '.join(self.tensors)}){where}  runs {', '.join(self.statements)}{when}"


@dataclass(frozen=True)
class Program:
    """Launches in order. Equal kernels are one Code."""

    target: Target
    launches: tuple[Launch, ...]
    sizes: tuple[str, ...]

    @property
    def codes(self) -> tuple[Code, ...]:
        """The different kernels, in order of first launch."""
        return tuple(dict.fromkeys(launch.code for launch in self.launches))

    @property
    def source(self) -> str:
        """All the source, as one file would hold it."""
        sources = [code.source for code in self.codes]
        header = (operations if self.target == "cpu" else cuda).header("\n".join(sources))
        return "\n\n".join([header, *sources])


def value(expression: ast.expr, sizes: Mapping[str, int]) -> int:
    """The number an expression in sizes stands for."""
    if isinstance(expression, ast.Constant) and isinstance(expression.value, int):
        return expression.value
    return int(eval(ast.unparse(expression), {"__builtins__": {}, "min": min, "max": max}, dict(sizes)))


def program(nest: Nest, tree: Tree, target: Target, early: tuple[bool, ...] | None = None) -> Program:
    """Print every kernel of a tree; equal ones once. Names are unique: a second, different `mac` is `mac_2`.

    `early` says of each kernel whether it runs once for all calls (polyfuse.analysis.once); without it none does.
    """
    codes: dict[tuple[object, ...], Code] = {}
    launches = []
    printed = kernels(nest, tree)
    products = {name for loop in loops(tree) if loop.bind == "microkernel" for name in statements(loop)}
    for kernel, is_early in zip(printed, early or (False,) * len(printed), strict=True):
        code, grid, block, untiled = _printed(kernel, target)
        key = canonical(code.source), code.signature, code.parallel, code.maps, code.cluster
        if key not in codes:
            taken = {*TARGETS.called, *(known.name for known in codes.values())}
            codes[key] = _renamed(code, fresh(code.name, taken))
        tensors = tuple(tensor.name for tensor in kernel.arrays.values())
        plain = tuple(name for name in kernel.statements if name in products and base(name) in untiled)
        launches.append(Launch(codes[key], kernel.statements, tensors, grid, block, is_early, plain))
    return Program(target, tuple(launches), nest.params)


Extents = tuple[ast.expr, ast.expr, ast.expr]
_ONE: Extents = (ast.Constant(1), ast.Constant(1), ast.Constant(1))


def _printed(kernel: Kernel, target: Target) -> tuple[Code, Extents, Extents, tuple[str, ...]]:
    """The code, the grid and the block, and what microkernels are plain loops on a GPU, by names in the code."""
    if target == "cpu":
        on_cpu = cpu.cpu_kernel(kernel)
        return Code(on_cpu.name, on_cpu.source, on_cpu.signature, on_cpu.parallel), _ONE, _ONE, ()
    on_gpu = cuda.cuda_kernel(kernel)
    code = Code(
        on_gpu.name,
        on_gpu.source,
        on_gpu.signature,
        registers=on_gpu.registers,
        shared_bytes=on_gpu.shared_bytes,
        wide=on_gpu.wide,
        grid_barriers=on_gpu.grid_barriers,
        maps=on_gpu.maps,
        cluster=on_gpu.cluster,
    )
    return code, on_gpu.grid, on_gpu.block, on_gpu.untiled


def _renamed(code: Code, name: str) -> Code:
    if name == code.name:
        return code
    names = rf"^def {code.name}(?=\()|(?<![\w.]){code.name}(?=_(part|cores)(_\d+)?\b)"  # not math.exp
    source = re.sub(names, lambda found: found[0].replace(code.name, name), code.source, flags=re.M)
    return replace(code, name=name, source=source)
