"""A compiled schedule as values: the launches in order, and the source of the kernels that they share."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from polyfuse.codegen.cuda.cluster_axes import ALONE
from polyfuse.codegen.cuda.tensor_maps import BoxMap

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
    statements in a GPU's microkernels that run as plain loops: no tile in registers holds their sums. `bounds` are the
    code's last arguments, where kernels share it that differ in bounds of loops.
    """

    code: Code
    statements: tuple[str, ...]
    tensors: tuple[str, ...]
    grid: tuple[ast.expr, ast.expr, ast.expr]
    block: tuple[ast.expr, ast.expr, ast.expr]
    once: bool = False
    untiled: tuple[str, ...] = ()
    bounds: tuple[int, ...] = ()

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
    """Launches in order. Equal kernels are one Code. `header` is what their sources import."""

    target: Target
    launches: tuple[Launch, ...]
    sizes: tuple[str, ...]
    header: str

    @property
    def codes(self) -> tuple[Code, ...]:
        """The different kernels, in order of first launch."""
        return tuple(dict.fromkeys(launch.code for launch in self.launches))

    @property
    def source(self) -> str:
        """All the source, as one file would hold it."""
        return "\n\n".join([self.header, *(code.source for code in self.codes)])


def value(expression: ast.expr, sizes: Mapping[str, int]) -> int:
    """The number an expression in sizes stands for."""
    if isinstance(expression, ast.Constant) and isinstance(expression.value, int):
        return expression.value
    return int(eval(ast.unparse(expression), {"__builtins__": {}, "min": min, "max": max}, dict(sizes)))
