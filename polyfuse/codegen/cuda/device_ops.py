"""The device operations: functions that emitted CUDA source may call besides Python's and numba's, one record each.

    operation  ::= name  kind  parameter*  emission  requires
    kind       ::= "product" | "copy" | "wait" | "signal" | "barrier"     a statement
                 | "value"                                                part of an expression
    parameter  ::= name  role  whether a long call has it on a new line
    role       ::= "literal"                                              an integer, written out
                 | "value"                                                a number
                 | "result" | "array"                                     an array that is written, or another one

Everything else about an operation follows from its record or is attached to it by name:

    its call in emitted source     DeviceOp.call, by_position             the loop tree's printer
    what the grammar accepts       DeviceOp.parameters                    kernel_grammar.py
    what it compiles to            DeviceOp.emission                      a module of intrinsics/, numba-cuda's
    what it does                   polyfuse.simulator.device_ops          in lock-step, all threads at once

tests/codegen/cuda/test_device_ops.py holds these together.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

from polyfuse.codegen.looptree.half_types import CONVERSIONS, CONVERTED
from polyfuse.ir.precision import STEPS
from polyfuse.layouts.core_matrix import FORMATS

Kind = Literal["product", "copy", "wait", "signal", "barrier", "value"]
Role = Literal["literal", "value", "result", "array"]
Argument = ast.expr | int | str
"""A syntax tree, an integer, or an expression as source."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of an operation: what it is called, and what may be given for it.

    In calls of an operation with parameters that begin lines, arguments are named.
    """

    name: str
    role: Role
    begins_line: bool = False

    @property
    def is_array(self) -> bool:
        """True if it is the name of an array."""
        return self.role in ("result", "array")


@dataclass(frozen=True)
class DeviceOp:
    """A device operation.

    `emission` is the module that has its intrinsic. `requires`: the first GPUs that have it, "sm_80"; the only ones,
    "sm_90a".
    """

    name: str
    kind: Kind
    parameters: tuple[Parameter, ...]
    emission: str
    requires: str

    def is_on(self, capability: tuple[int, int]) -> bool:
        """True if GPUs of a compute capability have the operation.

        >>> DEVICE_OPS["copy_bulk"].is_on((10, 0)), DEVICE_OPS["await_wgmma"].is_on((10, 0))
        (True, False)
        """
        number = 10 * capability[0] + capability[1]
        first = int(self.requires.strip("sm_a"))
        return number == first if self.requires.endswith("a") else number >= first

    def named(self, arguments: Sequence[ast.expr]) -> dict[str, ast.expr]:
        """The arguments of a call by their parameters' names. Raises ValueError if they are too many or too few."""
        return {p.name: given for p, given in zip(self.parameters, arguments, strict=True)}

    def call(self, **arguments: Argument) -> str:
        """A call of the operation, as source.

        >>> DEVICE_OPS["copy_ahead"].call(count=4, target="xs", to="4 * tx", step=1, source="x", at=0)
        'copy_ahead(4, xs, 4 * tx, 1, x, 0)'

        Of an operation with many parameters in lines, with names:

        >>> corner = {"c0": "k", "c1": "i", "c2": 0, "c3": 0, "c4": 0}
        >>> box = {"axes": 2, "nbytes": 8192, "target": "xs", "to": 0, "boxes": "x_boxes", **corner}
        >>> print(DEVICE_OPS["copy_bulk"].call(**box, arrivals="arrived", count=4, group="group"))
        copy_bulk(
            axes=2, nbytes=8192,
            target=xs, to=0,
            boxes=x_boxes, c0=k, c1=i, c2=0, c3=0, c4=0,
            arrivals=arrived, count=4, group=group,
        )
        """
        names = [p.name for p in self.parameters]
        if arguments.keys() != set(names):
            raise TypeError(f"{self.name} takes {', '.join(names) or 'nothing'}, not {', '.join(arguments)}")
        if not any(p.begins_line for p in self.parameters):
            every = [_expression(arguments[name]) for name in names]
            return ast.unparse(ast.Call(ast.Name(self.name), every, []))
        lines = list[str]()
        for p in self.parameters:
            text = f"{p.name}={ast.unparse(_expression(arguments[p.name]))}"
            lines = [*lines[:-1], f"{lines[-1]}, {text}"] if lines and not p.begins_line else [*lines, text]
        return "\n".join((f"{self.name}(", *(f"    {line}," for line in lines), ")"))

    def in_order(self, call: ast.Call) -> list[ast.expr] | None:
        """The arguments of a call in the parameters' order; None where they are not these parameters'."""
        names = [p.name for p in self.parameters]
        given = {**dict(zip(names, call.args, strict=False)), **{str(k.arg): k.value for k in call.keywords}}
        if len(call.args) + len(call.keywords) != len(names) or given.keys() != set(names):
            return None
        return [given[name] for name in names]


def _expression(given: Argument) -> ast.expr:
    if isinstance(given, ast.expr):
        return given
    return ast.Constant(given) if isinstance(given, int) else ast.parse(given, mode="eval").body


def _signature(text: str) -> tuple[Parameter, ...]:
    """Parameters from their names, each with a mark: `#` for a literal, `=` for a result, `*` for another array.

    A bar stands before a parameter that begins a line.

    >>> [p.role for p in _signature("count# target= to source*")]
    ['literal', 'result', 'value', 'array']
    >>> [p.begins_line for p in _signature("rows# | y= | a* a_at")]
    [False, True, True, False]
    """
    roles: Mapping[str, Role] = {"#": "literal", "=": "result", "*": "array"}
    words = text.split()
    return tuple(
        Parameter(name.rstrip("#=*"), roles.get(name[-1], "value"), before == "|")
        for before, name in zip(["", *words], words, strict=False)
        if name != "|"
    )


_INTRINSICS = "polyfuse.codegen.cuda.intrinsics"
_LINES = "line every skip part vector"
_CORES = "line core far form"
_HOW = "how 1 2 3 4 5"


def _factor(side: str, numbers: str) -> str:
    """A factor's parameters: its array, where its elements begin there, and numbers that say how they lie."""
    return f"{side}* {side}_at {' '.join(f'{side}_{name}#' for name in numbers.split())}"


_TILE_FMA = f"rows# columns# most# | y= | {_factor('a', _LINES)} | {_factor('b', _LINES)} | count"
_TILE_MMA = f"rows# columns# most# | y= | {_factor('a', _HOW)} | {_factor('b', _HOW)} | count lane_x lane_y"
_TILE_WGMMA = f"rows# columns# steps# | y= | {_factor('a', _CORES)} | {_factor('b', _CORES)}"
_COPY = "count# target= to step# source* at"
_CONVERTED_COPY = "count# target= to run# step# source* at"
_BOX = "axes# nbytes# | target= to | boxes* c0 c1 c2 c3 c4 | arrivals* count# group"
_SLOT = "slots# arrivals= number"

_TABLE: tuple[tuple[str, str, tuple[tuple[str, Kind, str], ...]], ...] = (
    ("tile_fma", "sm_75", (
        ("tile_fma", "product", _TILE_FMA),
        ("copy_vector", "copy", _COPY),
        ("copy_padded", "copy", "target= to source* at here"),
    )),
    ("tile_fma", "sm_80", (
        ("copy_ahead", "copy", _COPY),
        ("pad_ahead", "copy", f"{_COPY} here"),
        ("await_copies", "wait", "still_open#"),
    )),
    ("converting_copies", "sm_80", (
        *((f"copy_{conversion}", "copy", _CONVERTED_COPY) for conversion in CONVERTED),
        *((f"pad_{conversion}", "copy", f"{_CONVERTED_COPY} here") for conversion in CONVERTED),
    )),
    ("mma_tile", "sm_80", tuple((f"tile_mma_{math}", "product", _TILE_MMA) for math in STEPS)),
    ("wgmma_tile", "sm_90a", (
        *((f"tile_wgmma_{math}", "product", _TILE_WGMMA) for math in FORMATS),
        *((f"begin_wgmma_{math}", "product", _TILE_WGMMA) for math in FORMATS),
        ("await_wgmma", "barrier", "rows# columns# y="),
        ("await_wgmma_before", "barrier", ""),
        ("show_tensor_cores", "barrier", ""),
    )),
    ("tma", "sm_90", (
        ("begin_bulk", "signal", "count# arrivals="),
        ("copy_bulk", "copy", _BOX),
        ("await_bulk", "wait", "still_open# arrivals= count# group"),
    )),
    ("mbarrier_pipeline", "sm_90", (
        ("begin_handover", "signal", "slots# warps# arrivals="),
        ("await_free", "wait", _SLOT),
        ("await_full", "wait", _SLOT),
        ("hand_over", "signal", _SLOT),
        ("hand_back", "signal", _SLOT),
    )),
    ("cluster_tma", "sm_90", (
        ("copy_multicast", "copy", f"{_BOX} | parts# ranks# first"),
        ("hand_back_cluster", "signal", "slots# blocks# arrivals= number"),
        ("cluster_barrier", "barrier", ""),
    )),
    ("grid_barrier", "sm_75", (("grid_barrier", "barrier", "arrivals="),)),
    ("half_rounding", "sm_80", tuple((name, "value", "value") for name in CONVERSIONS)),
    ("lane_groups", "sm_75", (("lanes_of", "value", "count#"),)),
)  # fmt: skip
"""Operations by the module of their intrinsics and the GPUs that have them: name, kind, parameters."""

DEVICE_OPS: Mapping[str, DeviceOp] = {
    name: DeviceOp(name, kind, _signature(parameters), f"{_INTRINSICS}.{module}", requires)
    for module, requires, operations in _TABLE
    for name, kind, parameters in operations
}
"""Every device operation, by name."""

STATEMENTS: Mapping[str, DeviceOp] = {name: op for name, op in DEVICE_OPS.items() if op.kind != "value"}
"""The operations that are statements of a kernel."""

WAITS = frozenset(name for name, op in DEVICE_OPS.items() if op.kind == "wait")
"""The operations at which threads wait for asynchronous copies."""


def called_in(source: str) -> tuple[DeviceOp, ...]:
    """The operations that emitted source calls, by name in alphabetical order."""
    names = {
        node.func.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    return tuple(DEVICE_OPS[name] for name in sorted(names & DEVICE_OPS.keys()))


def by_position(function: ast.FunctionDef) -> ast.FunctionDef:
    """A kernel whose calls of operations have all arguments by position, as it is checked and compiled.

    tile_fma(rows=8, columns=8, …)   ->   tile_fma(8, 8, …)
    """
    made = _ByPosition().visit(deepcopy(function))
    assert isinstance(made, ast.FunctionDef)
    return made


class _ByPosition(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if not (node.keywords and isinstance(node.func, ast.Name) and node.func.id in DEVICE_OPS):
            return node
        arguments = DEVICE_OPS[node.func.id].in_order(node)
        return node if arguments is None else ast.copy_location(ast.Call(node.func, arguments, []), node)
