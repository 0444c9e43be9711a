"""The Python subset that CUDA kernels are written in, and the check that a source keeps to it.

    kernel      ::= def name(param, ...): [docstring] statement*
    statement   ::= target = expr | target (+= | -= | *= | /=) expr | for | if | cuda.syncthreads() | pass
                  | name = cuda.(shared | local).array(shape, dtype)      (outside loops and branches only)
                  | operation(expr, ..., name=expr, ...)        (a statement of device_ops.py, its arguments)
    target      ::= name | name[expr, ...]
    for         ::= for name in range(expr [, expr [, expr]]): statement*
    if          ::= if expr: statement* [else: statement*]
    expr        ::= int | float | name | name[expr, ...] | expr (+ | - | * | / | // | % | >> | & | "|") expr | -expr
                  | expr (and | or) expr | not expr | expr (< | <= | > | >= | == | !=) expr
                  | expr if expr else expr
                  | cuda.(threadIdx | blockIdx | blockDim | gridDim).(x | y | z)
                  | (min | max)(expr, expr, ...) | abs(expr) | dtype(expr) | math.f(expr, ...)
                  | math.(inf | nan | pi) | cuda.shfl_xor_sync(-1 | lanes_of(int), expr, int)
                  | operation(expr, ...)                        (a value of device_ops.py, its arguments)
    dtype       ::= float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64

Parameters are raw pointers to flat C-contiguous elements, or scalars. A loop's variable lives only inside it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from math import prod
from typing import NoReturn

from polyfuse.codegen.cuda.compile.narrow_indices import in_short
from polyfuse.codegen.cuda.device_ops import DEVICE_OPS, STATEMENTS, WAITS, DeviceOp, Parameter, by_position
from polyfuse.errors import PolyfuseError, quantity
from polyfuse.ir.number_types import HELD_TYPES

DTYPES = HELD_TYPES
"""The types of elements and conversions: floats that GPUs compute in, and integers."""
COORDINATES = ("threadIdx", "blockIdx", "blockDim", "gridDim")
EXPONENTIAL = (
    "exp",
    "expm1",
    "log",
    "log1p",
    "log2",
    "log10",
    "sqrt",
    "fabs",
    "erf",
    "erfc",
    "sinh",
    "cosh",
    "tanh",
)
ANGLES = ("sin", "cos", "tan", "asin", "acos", "atan", "asinh", "acosh", "atanh")
UNARY_MATH = (*EXPONENTIAL, *ANGLES, "floor", "ceil")
BINARY_MATH = ("pow", "fmod")
CONSTANTS = ("inf", "nan", "pi")

SHUFFLE = "cuda.shfl_xor_sync"
"""Each lane of a warp gets the value of another one; the first argument says that all take part, or a row's lanes."""

_OPERATORS = (
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.FloorDiv,
    ast.Mod,
    ast.LShift,
    ast.RShift,
    ast.BitAnd,
    ast.BitOr,
    ast.BitXor,
    ast.Pow,
)
_AUGMENTED = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)


class UnsupportedKernel(PolyfuseError):
    """The source leaves the subset; the message names the line and the construct."""


@dataclass(frozen=True)
class Declaration:
    """`name = cuda.<space>.array(shape, dtype)`; space is "shared" or "local"."""

    name: str
    space: str
    shape: tuple[int, ...]
    dtype: str
    line: int

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)


@dataclass(frozen=True)
class KernelSource:
    """A kernel that is known to be inside the subset."""

    name: str
    params: tuple[str, ...]
    body: tuple[ast.stmt, ...]  # without docstring and declarations
    arrays: tuple[Declaration, ...]
    stored: frozenset[str]  # arrays and pointers that some statement writes
    lines: tuple[str, ...] = field(repr=False)

    def line(self, number: int) -> str:
        """`line 7: xs[ty, tx] = x[k]`, for messages."""
        return f"line {number}: {self.lines[number - 1].strip()}"


def parse(source: str, name: str) -> KernelSource:
    """The kernel `name` of a module's text, with the index arithmetic that it is compiled with.

    Raises UnsupportedKernel if the text leaves the subset.
    """
    lines = tuple(source.splitlines())
    tree = ast.parse(source)
    found = [f for f in tree.body if isinstance(f, ast.FunctionDef) and f.name == name]
    if len(found) != 1:
        raise UnsupportedKernel(f"the source defines {len(found)} functions named {name!r}, one is needed")
    check = _Check(lines, {a.arg for a in found[0].args.args})
    return check.kernel(in_short(by_position(found[0])))


class _Check:
    """Walks one function; keeps what is declared, what is stored and which loops are open."""

    def __init__(self, lines: tuple[str, ...], params: set[str]) -> None:
        self.lines = lines
        self.params = params
        self.arrays: list[Declaration] = []
        self.stored: set[str] = set()
        self.scalars: set[str] = set()
        self.loops: list[str] = []

    def refuse(self, node: ast.AST, what: str) -> NoReturn:
        number = getattr(node, "lineno", 1)
        raise UnsupportedKernel(
            f"line {number}: {what} is outside the kernel subset: {self.lines[number - 1].strip()}"
        )

    def kernel(self, function: ast.FunctionDef) -> KernelSource:
        given = function.args
        if given.vararg or given.kwarg or given.kwonlyargs or given.posonlyargs or given.defaults:
            self.refuse(function, "anything but plain parameters")
        if function.decorator_list:
            self.refuse(function, "a decorator")
        body: list[ast.stmt] = []
        for position, statement in enumerate(function.body):
            if (
                position == 0
                and isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
            ):
                continue  # the docstring
            declared = self.declaration(statement)
            if declared is not None:
                self.arrays.append(declared)
            else:
                self.statement(statement)
                body.append(statement)
        params = tuple(a.arg for a in given.args)
        return KernelSource(
            function.name, params, tuple(body), tuple(self.arrays), frozenset(self.stored), self.lines
        )

    # -- statements

    def declaration(self, node: ast.stmt) -> Declaration | None:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(
                    func=ast.Attribute(
                        value=ast.Attribute(value=ast.Name(id="cuda"), attr=space), attr="array"
                    ),
                    args=[shape, ast.Name(id=dtype)],
                    keywords=[] | [ast.keyword(arg="alignment", value=ast.Constant())],
                ),
            ) if space in ("shared", "local") and dtype in DTYPES:
                return Declaration(name, space, self.shape(shape), dtype, node.lineno)
        return None

    def shape(self, node: ast.expr) -> tuple[int, ...]:
        parts = node.elts if isinstance(node, ast.Tuple) else [node]
        sizes: list[int] = []
        for part in parts:
            if not (isinstance(part, ast.Constant) and isinstance(part.value, int) and part.value > 0):
                self.refuse(node, "an array shape that is not made of positive integer literals")
            sizes.append(part.value)
        return tuple(sizes)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[target], value=value):
                self.expression(value)
                self.target(target)
            case ast.AugAssign(target=target, op=op, value=value):
                if not isinstance(op, _AUGMENTED):
                    self.refuse(node, f"augmented {type(op).__name__}")
                self.expression(value)
                self.target(target)
            case ast.For(target=ast.Name(id=name), orelse=[]):
                self.loop(node, name)
            case ast.If(test=test):
                self.expression(test)
                self.block(node.body)
                self.block(node.orelse)
            case ast.Expr(value=call) if is_barrier(call):
                pass
            case ast.Expr(value=ast.Call(func=ast.Name(id=name)) as call) if name in STATEMENTS:
                self.operation(call, STATEMENTS[name])
            case ast.Pass():
                pass
            case _:
                self.refuse(node, type(node).__name__)

    def block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.statement(statement)

    def loop(self, node: ast.For, name: str) -> None:
        match node.iter:
            case ast.Call(func=ast.Name(id="range"), args=[_, *rest] as bounds, keywords=[]) if (
                len(rest) <= 2
            ):
                for bound in bounds:
                    self.expression(bound)
            case _:
                self.refuse(node, "a loop over anything but range(...) of 1 to 3 arguments")
        if name in self.loops or name in self.scalars or name in self.params:
            self.refuse(node, f"reuse of {name!r} as a loop variable")
        self.loops.append(name)
        self.block(node.body)
        self.loops.pop()

    def target(self, node: ast.expr) -> None:
        match node:
            case ast.Name(id=name):
                if name in self.loops or name in self.params or any(a.name == name for a in self.arrays):
                    self.refuse(node, f"assignment to {name!r}, a loop variable, parameter or array,")
                self.scalars.add(name)
            case ast.Subscript(value=ast.Name(id=name)):
                self.subscript(node)
                self.stored.add(name)
            case _:
                self.refuse(node, f"assignment to {type(node).__name__}")

    def operation(self, call: ast.Call, op: DeviceOp) -> None:
        """A device operation: its arguments are what its parameters ask for."""
        if call.keywords:  # those that are its parameters' are by position already
            names = ", ".join(parameter.name for parameter in op.parameters)
            self.refuse(call, f"{op.name} with other arguments than {names or 'none'}")
        if len(call.args) != len(op.parameters):
            self.refuse(
                call,
                f"{op.name} with {quantity(len(call.args), 'argument')}, of which it has {len(op.parameters)},",
            )
        for parameter, argument in zip(op.parameters, call.args, strict=True):
            self.argument(argument, parameter, op)

    def argument(self, given: ast.expr, parameter: Parameter, op: DeviceOp) -> None:
        match parameter.role, given:
            case "value", _:
                self.expression(given)
            case "literal", ast.Constant(value=int()) | ast.UnaryOp(ast.USub(), ast.Constant(value=int())):
                pass
            case "literal", _:
                self.refuse(given, f"argument {parameter.name} of {op.name}, which is no integer literal,")
            case role, ast.Name(id=name) if name in self.params | {a.name for a in self.arrays}:
                self.stored |= {name} if role == "result" else set()
            case _:
                self.refuse(given, f"argument {parameter.name} of {op.name}, which is no array,")

    # -- expressions

    def subscript(self, node: ast.Subscript) -> None:
        known = self.params | {a.name for a in self.arrays}
        if not (isinstance(node.value, ast.Name) and node.value.id in known):
            self.refuse(node, "a subscript of something that is not a parameter or a declared array")
        for index in subscripts(node):
            self.expression(index)

    def name(self, node: ast.Name) -> None:
        if node.id not in self.params and node.id not in self.scalars and node.id not in self.loops:
            self.refuse(node, f"the name {node.id!r}, which nothing above defines,")

    def expression(self, node: ast.expr) -> None:
        match node:
            case ast.Constant(value=bool() | int() | float()):
                return
            case ast.Name():
                self.name(node)
            case ast.Subscript():
                self.subscript(node)
            case ast.BinOp(op=op) if isinstance(op, _OPERATORS):
                self.expression(node.left)
                self.expression(node.right)
            case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
                self.expression(operand)
            case ast.BoolOp(values=values):
                for value in values:
                    self.expression(value)
            case ast.Compare(ops=[op], comparators=[right]) if isinstance(op, _COMPARISONS):
                self.expression(node.left)
                self.expression(right)
            case ast.IfExp():
                self.expression(node.test)
                self.expression(node.body)
                self.expression(node.orelse)
            case ast.Attribute() if coordinate(node) is not None or constant(node) is not None:
                return
            case ast.Call(func=func, args=arguments, keywords=[]) if callee(func, len(arguments)) is not None:
                for argument in arguments:
                    self.expression(argument)
            case ast.Call(func=func):
                self.refuse(node, f"the call {ast.unparse(func)} with {len(node.args)} argument(s)")
            case ast.BinOp(op=op) | ast.UnaryOp(op=op):
                self.refuse(node, f"the operator {type(op).__name__}")
            case _:
                self.refuse(node, type(node).__name__)


def meets_all(kernel: KernelSource) -> bool:
    """True if blocks wait for each other."""
    return "grid_barrier" in calls_of(kernel)


def waits_by_block(kernel: KernelSource) -> bool:
    """True if a loop or a condition around what waits for copies depends on the block."""
    by_block = {ast.unparse(target) for s in kernel.body if isinstance(s, ast.Assign)
                for target in s.targets if "cuda.blockIdx" in ast.unparse(s.value)}  # fmt: skip
    return any(_waits_under(s, by_block) for s in kernel.body)


def _waits_under(node: ast.stmt, names: set[str]) -> bool:
    condition = node.iter if isinstance(node, ast.For) else node.test if isinstance(node, ast.If) else None
    if condition is None:
        return False
    if any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(condition)):
        calls = (n.func for n in ast.walk(node) if isinstance(n, ast.Call))
        return any(isinstance(func, ast.Name) and func.id in WAITS for func in calls)
    inner = [*node.body, *node.orelse] if isinstance(node, ast.For | ast.If) else []
    return any(_waits_under(each, names) for each in inner)


def calls_of(kernel: KernelSource) -> frozenset[str]:
    """The names of what a kernel calls."""
    calls = (n.func for s in kernel.body for n in ast.walk(s) if isinstance(n, ast.Call))
    return frozenset(func.id for func in calls if isinstance(func, ast.Name))


def is_barrier(node: ast.expr) -> bool:
    """Is this `cuda.syncthreads()`?"""
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="cuda"), attr="syncthreads"), args=[], keywords=[]
        ):
            return True
    return False


def subscripts(node: ast.Subscript) -> list[ast.expr]:
    """The index expressions of `a[i]` or `a[i, j]`."""
    return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]


def coordinate(node: ast.Attribute) -> tuple[str, str] | None:
    """`cuda.threadIdx.x` -> ("threadIdx", "x")."""
    match node:
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id="cuda"), attr=which), attr="x" | "y" | "z"):
            return (which, node.attr) if which in COORDINATES else None
    return None


def constant(node: ast.Attribute) -> str | None:
    """`math.inf` -> "inf"."""
    match node:
        case ast.Attribute(value=ast.Name(id="math"), attr=name) if name in CONSTANTS:
            return name
    return None


def callee(func: ast.expr, arguments: int) -> str | None:
    """The function a call names, if the subset has it with this many arguments: "math.exp", "min",
    "float32".
    """
    match func:
        case ast.Attribute(value=ast.Name(id="cuda"), attr="shfl_xor_sync"):
            return SHUFFLE if arguments == 3 else None
        case ast.Attribute(value=ast.Name(id="math"), attr=name):
            if (name in UNARY_MATH and arguments == 1) or (name in BINARY_MATH and arguments == 2):
                return f"math.{name}"
        case ast.Name(id=name) if name in DEVICE_OPS:
            op = DEVICE_OPS[name]
            return name if op.kind == "value" and arguments == len(op.parameters) else None
        case ast.Name(id=name):
            if (name in (*DTYPES, "abs") and arguments == 1) or (name in ("min", "max") and arguments > 1):
                return name
    return None
