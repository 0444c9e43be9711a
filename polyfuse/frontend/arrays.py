"""Local arrays: `T = np.empty((M, N - 2), np.float32)` at the top of a function is a temporary of that shape.

    array ::= name = np.empty(extent | (extent, …) [, dtype])       dtype: np.float32 float64 int32 int64

What an element holds before it is assigned is nothing: reading it is refused, with an instance, as for any temporary.
"""

from __future__ import annotations

import ast

import numpy as np

from polyfuse.frontend.names import Names
from polyfuse.ir.tensor import ITEMSIZE, DType

ALLOWED = "T = np.empty((M, N), np.float32), once, outside of loops and branches; then T[i, j] = …"


def is_array(names: Names, node: ast.stmt) -> bool:
    """Whether an assignment makes a local array."""
    match node:
        case ast.Assign(value=ast.Call(func=function)) | ast.AnnAssign(value=ast.Call(func=function)):
            return names.outside(function) is np.empty
    return False


def array_nodes(names: Names) -> dict[str, ast.Call]:
    """The calls that make local arrays, by name. NotAffine where one is made again, or inside a loop."""
    source = names.source
    found: dict[str, ast.Call] = {}
    for node in ast.walk(source.tree):
        if not (isinstance(node, ast.Assign) and is_array(names, node)):
            continue
        target = node.targets[0]
        if len(node.targets) != 1 or not isinstance(target, ast.Name) or node not in source.tree.body:
            source.refuse(node, f"{ast.unparse(node)} is no local array", ALLOWED)
        assert isinstance(node.value, ast.Call), "is_array asked for a call"
        found[target.id] = node.value
    for node in ast.walk(source.tree):
        for target in _targets(node):
            if isinstance(target, ast.Name) and target.id in found and node.value is not found[target.id]:  # type: ignore[attr-defined]
                source.refuse(target, f"the array {target.id} is assigned as a whole", ALLOWED)
    return found


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []


def extents_of(call: ast.Call) -> tuple[ast.expr, ...]:
    """The extents as they are written."""
    shape = call.args[0] if call.args else None
    if isinstance(shape, ast.Tuple | ast.List):
        return tuple(shape.elts)
    return (shape,) if shape is not None else ()


def dtype_of(names: Names, call: ast.Call) -> DType:
    """The type of the elements; float64 as in NumPy where none is given."""
    given = [*call.args[1:], *(keyword.value for keyword in call.keywords if keyword.arg == "dtype")]
    odd = [keyword for keyword in call.keywords if keyword.arg != "dtype"]
    if odd or len(given) > 1 or not call.args:
        names.source.refuse(call, f"{ast.unparse(call)} with these arguments", ALLOWED)
    if not given:
        return "float64"
    value = names.outside(given[0])
    for dtype in ITEMSIZE:
        if value is getattr(np, dtype):
            return dtype  # type: ignore[return-value]
    names.source.refuse(given[0], f"the type {ast.unparse(given[0])}", ", ".join(f"np.{d}" for d in ITEMSIZE))
