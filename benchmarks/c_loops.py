"""The loops of a `@pf.nest` function as C, printed from its own syntax tree: the same loops by construction.

    for i in range(N - 1, 0, -1):                      for (int64_t i = (4 - 1); i > 0; i += -1) {
        x[i] += A[i, j] / 2 if i < j else s      ->        x[i] += ((i < j) ? ((double)(A[i][j]) / 2) : s);
                                                       }

Arrays are pointers to arrays of known extents with `restrict`, as in PolyBench's C; sizes are numbers, so gcc knows
as much as numba and polyfuse do. What is translated is what PolyBench needs: float64 and int64, no `//` and no `%`.
"""

from __future__ import annotations

import ast
import ctypes
import inspect
import subprocess
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import polyfuse as pf
from polyfuse.frontend import PythonNest
from polyfuse.ir.sizes import extent

PRELUDE = """#include <math.h>
#include <stdint.h>
#define min(x, y) ((x) < (y) ? (x) : (y))
#define max(x, y) ((x) > (y) ? (x) : (y))
"""
TYPES: Mapping[str, tuple[str, Any]] = {
    "float64": ("double", ctypes.c_double),
    "int64": ("int64_t", ctypes.c_int64),
}
OPERATORS: Mapping[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.USub: "-", ast.UAdd: "+", ast.Not: "!",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.And: "&&", ast.Or: "||",
}  # fmt: skip
FUNCTIONS: Mapping[str, str] = {
    **{name: name for name in ("sqrt", "exp", "log", "pow", "sin", "cos", "tanh", "min", "max")},
    "float": "(double)",
}


def c_source(nest: PythonNest, sizes: Mapping[str, int]) -> str:
    """The nest's Python function as the C function `kernel`, for these sizes.

    Raises ValueError, with the Python text, for what is not translated.
    """
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(python_of(nest)))))
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef))
    numbers = {name: size for name, size in sizes.items() if name not in {t.name for t in nest.tensors}}
    printer = _Printer(numbers)
    parameters = ", ".join(_parameter(tensor, sizes) for tensor in nest.inputs)
    variables = [f"    {_type(t)} {t.name};" for t in nest.with_role("temporary")]
    body = printer.block(function.body, 1)
    return "\n".join([PRELUDE, f"void kernel({parameters}) {{", *variables, *body, "}", ""])


def python_of(nest: PythonNest) -> Callable[..., Any]:
    """The Python function of a nest that was read from one."""
    assert nest.python is not None, f"{nest.name} was not read from a Python function"
    return nest.python


def _type(tensor: pf.Tensor) -> str:
    if tensor.dtype not in TYPES:
        raise ValueError(f"{tensor.name} is {tensor.dtype}, which is not translated to C")
    return TYPES[tensor.dtype][0]


def _parameter(tensor: pf.Tensor, sizes: Mapping[str, int]) -> str:
    if tensor.rank == 0:
        return f"{_type(tensor)} {tensor.name}"
    first, *others = (extent(size, sizes) for size in tensor.shape)
    return f"{_type(tensor)} {tensor.name}[restrict {first}]{''.join(f'[{size}]' for size in others)}"


@dataclass(frozen=True)
class _Printer:
    """Python's statements and expressions as C; `numbers` are the sizes that are no parameters."""

    numbers: Mapping[str, int]

    def block(self, body: Iterable[ast.stmt], depth: int) -> list[str]:
        return [line for node in body for line in self.statement(node, depth)]

    def statement(self, node: ast.stmt, depth: int) -> list[str]:
        indent = "    " * depth
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                return []
            case ast.For(target=ast.Name(i), iter=ast.Call(func=ast.Name("range"), args=args), orelse=[]):
                return [
                    f"{indent}for ({self.head(i, args)}) {{",
                    *self.block(node.body, depth + 1),
                    f"{indent}}}",
                ]
            case ast.If(test, body, orelse):
                lines = [f"{indent}if ({self.value(test)}) {{", *self.block(body, depth + 1)]
                other = [f"{indent}}} else {{", *self.block(orelse, depth + 1)] if orelse else []
                return [*lines, *other, f"{indent}}}"]
            case ast.Assign(targets=[target], value=value):
                return [f"{indent}{self.value(target)} = {self.value(value)};"]
            case ast.AugAssign(target, op, value) if type(op) in OPERATORS:
                return [f"{indent}{self.value(target)} {OPERATORS[type(op)]}= {self.value(value)};"]
        raise _untranslated(node)

    def head(self, variable: str, args: list[ast.expr]) -> str:
        """The three parts of a C loop over a range, whose step is a constant."""
        start: ast.expr = ast.Constant(0)
        match args:
            case [stop]:
                step = 1
            case [start, stop]:
                step = 1
            case _:
                start, stop, step = *args[:2], ast.literal_eval(args[2])
        test = "<" if step > 0 else ">"
        return f"int64_t {variable} = {self.value(start)}; {variable} {test} {self.value(stop)}; {variable} += {step}"

    def value(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(int() | float() as number):
                return repr(number)
            case ast.Name(name):
                return str(self.numbers.get(name, name))
            case ast.Subscript(array, ast.Tuple(parts)):
                return self.value(array) + "".join(f"[{self.value(part)}]" for part in parts)
            case ast.Subscript(array, part):
                return f"{self.value(array)}[{self.value(part)}]"
            case ast.BinOp(left, ast.Div(), right):  # Python divides integers as numbers
                return f"((double)({self.value(left)}) / {self.value(right)})"
            case ast.BinOp(left, op, right) if type(op) in OPERATORS:
                return f"({self.value(left)} {OPERATORS[type(op)]} {self.value(right)})"
            case ast.UnaryOp(op, operand) if type(op) in OPERATORS:
                return f"({OPERATORS[type(op)]}{self.value(operand)})"
            case ast.BoolOp(op, values):
                return f"({f' {OPERATORS[type(op)]} '.join(self.value(value) for value in values)})"
            case ast.Compare(left, ops, others) if all(type(op) in OPERATORS for op in ops):
                sides = [self.value(side) for side in (left, *others)]
                pairs = zip(sides, ops, sides[1:], strict=False)
                return f"({' && '.join(f'{a} {OPERATORS[type(op)]} {b}' for a, op, b in pairs)})"
            case ast.IfExp(test, body, orelse):
                return f"({self.value(test)} ? {self.value(body)} : {self.value(orelse)})"
            case ast.Call(func=ast.Name(name), args=args, keywords=[]) if name in FUNCTIONS:
                return f"{FUNCTIONS[name]}({', '.join(self.value(arg) for arg in args)})"
        raise _untranslated(node)


def _untranslated(node: ast.stmt | ast.expr) -> ValueError:
    return ValueError(f"line {node.lineno} of the function is not translated to C: {ast.unparse(node)}")


def compiled(
    nest: PythonNest, sizes: Mapping[str, int], flags: Iterable[str], folder: Path, compiler: str = "gcc"
) -> Callable[..., None]:
    """The loops by a C compiler with these flags, called with NumPy arrays as the Python function is.

    Raises CalledProcessError if the compiler refuses its input, FileNotFoundError without it or gcc, the linker.
    """
    source, library = folder / "kernel.c", folder / "kernel.so"
    source.write_text(c_source(nest, sizes), encoding="utf-8")
    unlinked = source.with_suffix(".o")
    # linked with -ffast-math, a library flushes subnormal numbers to zero in the whole process that loads it
    for command in (
        [compiler, *flags, "-fPIC", "-c", "-o", str(unlinked), str(source)],
        ["gcc", "-shared", "-fopenmp", "-o", str(library), str(unlinked), "-lm"],
    ):
        subprocess.run(command, check=True, capture_output=True, text=True)
    kernel = ctypes.CDLL(str(library)).kernel
    kernel.restype = None
    kernel.argtypes = [_argument(tensor) for tensor in nest.inputs]
    names = [tensor.name for tensor in nest.inputs]

    def call(**arguments: Any) -> None:
        kernel(*(arguments[name] for name in names))

    return call


def _argument(tensor: pf.Tensor) -> Any:
    if tensor.rank == 0:
        return TYPES[tensor.dtype][1]
    return np.ctypeslib.ndpointer(np.dtype(tensor.dtype), tensor.rank, flags="C_CONTIGUOUS")
