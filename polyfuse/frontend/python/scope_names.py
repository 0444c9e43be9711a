"""Resolve the names in a function: sizes, parameters, local variables, loop indices, and outer names."""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from polyfuse.frontend.python.source import Source
from polyfuse.ir import Tensor
from polyfuse.ir.number_types import ITEMSIZE

MISSING = object()

FUNCTIONS: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("sqrt", (math.sqrt, np.sqrt)),
    ("exp", (math.exp, np.exp)),
    ("log", (math.log, np.log)),
    ("sin", (math.sin, np.sin)),
    ("cos", (math.cos, np.cos)),
    ("tanh", (math.tanh, np.tanh)),
    ("erf", (math.erf,)),
    ("tan", (math.tan, np.tan)),
    ("asin", (math.asin, np.arcsin)),
    ("acos", (math.acos, np.arccos)),
    ("atan", (math.atan,)),
    ("sinh", (math.sinh, np.sinh)),
    ("cosh", (math.cosh, np.cosh)),
    ("asinh", (math.asinh, np.arcsinh)),
    ("acosh", (math.acosh, np.arccosh)),
    ("atanh", (math.atanh, np.arctanh)),
    ("log2", (math.log2, np.log2)),
    ("log10", (math.log10, np.log10)),
    ("log1p", (math.log1p, np.log1p)),
    ("expm1", (math.expm1, np.expm1)),
    ("floor", (np.floor,)),
    ("ceil", (np.ceil,)),
    ("pow", (math.pow, np.power, builtins.pow)),
    ("abs", (math.fabs, np.abs, np.fabs, builtins.abs)),
    ("max", (builtins.max, np.maximum)),
    ("min", (builtins.min, np.minimum)),
    ("floor_divide", (np.floor_divide,)),
    ("remainder", (np.remainder, np.mod)),
    ("where", (np.where,)),
    ("float", (builtins.float,)),
    ("range", (builtins.range,)),
    ("len", (builtins.len,)),
    *((dtype, (np.dtype(dtype).type,)) for dtype in ITEMSIZE),
    ("bool", (builtins.bool,)),
)
"""The functions a loop may call: the name they have here, and the Python objects that are this function."""

ARRAY_MAKERS: tuple[tuple[str, object], ...] = tuple(
    (name, getattr(np, name))
    for kind in ("zeros", "ones", "empty", "full")
    for name in (kind, f"{kind}_like")
)
"""The functions that make local arrays."""


@dataclass(frozen=True)
class Names:
    """The names of one function: `indices` are loop variables, `locals` variables, `made` local arrays.

    `arrays` are the local arrays made so far; `shapes` the extents of these and of parameters as they are written.
    `gathered` collects the tensors of rows, by table and index. `placed` are the local arrays whose numbers are places
    by the formula that makes them: no call has to check them.
    """

    source: Source
    sizes: tuple[str, ...]
    tensors: Mapping[str, Tensor]
    shapes: Mapping[str, tuple[ast.expr, ...]]
    locals: frozenset[str]
    indices: frozenset[str]
    made: frozenset[str] = frozenset()
    arrays: Mapping[str, Tensor] = field(default_factory=dict)
    gathered: dict[tuple[str, str], Tensor] = field(default_factory=dict)
    placed: frozenset[str] = frozenset()

    def rank(self, name: str) -> int | None:
        """The number of subscripts of a parameter, a local array or a variable; None for another name."""
        if name in self.locals:
            return 0
        known = self.tensors.get(name) or self.arrays.get(name)
        return known.rank if known is not None else None

    def outside(self, node: ast.expr) -> Any:
        """The value of a name, or of a dotted name of modules, that the function does not define; else MISSING."""
        match node:
            case ast.Name(id=name):
                if self.rank(name) is not None or any(
                    name in own for own in (self.sizes, self.indices, self.made)
                ):
                    return MISSING
                return outer_value(self.source, name)
            case ast.Attribute(value=inner, attr=attribute):
                owner = self.outside(inner)
                return getattr(owner, attribute, MISSING) if isinstance(owner, ModuleType) else MISSING
        return MISSING

    def number(self, node: ast.expr) -> int | float | None:
        """A number that the function finds outside of itself: a global, or math.pi."""
        value = self.outside(node)
        if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
            return None
        return value.item() if isinstance(value, np.generic) else value

    def function(self, node: ast.expr) -> str | None:
        """The name in FUNCTIONS of what is called."""
        value = self.outside(node)
        return next((name for name, objects in FUNCTIONS if any(value is known for known in objects)), None)

    def array_maker(self, node: ast.expr | None) -> str | None:
        """The name in ARRAY_MAKERS of what is called."""
        value = self.outside(node.func) if isinstance(node, ast.Call) else MISSING
        return next((name for name, maker in ARRAY_MAKERS if maker is value), None)

    def describe(self, name: str) -> str:
        """Describe a name for an error message."""
        if name in self.indices:
            return f"{name} is the variable of a loop that is over, or not yet begun"
        if name in self.locals:
            return f"{name} is a local variable that is not known here to be an affine function of sizes and indices"
        if name in self.arrays:
            return f"{name} is a local array ({self.arrays[name]})"
        if name in self.made:
            return f"{name} is a local array that is not made yet"
        if name in self.tensors:
            return f"{name} is a parameter ({self.tensors[name]})"
        return f"{name} is not a known size, loop index, parameter or number"


def outer_value(source: Source, name: str) -> Any:
    """Return the value of a name in a function's closure, module or builtins; MISSING if there is none."""
    if name in source.added:
        return source.added[name]
    function = source.function
    for free, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if free == name:
            try:
                return cell.cell_contents
            except ValueError:  # not yet assigned
                return MISSING
    if name in function.__globals__:
        return function.__globals__[name]
    return getattr(builtins, name, MISSING)
