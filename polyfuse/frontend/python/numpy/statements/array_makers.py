"""Assignments of np.zeros(…) and its kin that the reader of elements knows, which are left as they stand."""

from __future__ import annotations

import ast
from copy import deepcopy
from dataclasses import replace

from polyfuse.errors import NotAffine
from polyfuse.frontend.python.numpy.memory import stored_array
from polyfuse.frontend.python.numpy.statements.lowerer import Lowerer
from polyfuse.frontend.python.numpy.values import Array, stored_type
from polyfuse.ir.number_types import is_complex


def stays_as_written(lowerer: Lowerer, node: ast.Assign) -> bool:
    """True for `name = np.zeros(…)` with a shape that the reader of elements knows; it is left as it stands."""
    match node:
        case ast.Assign(targets=[ast.Name(id=variable)], value=ast.Call(args=[shape, *_]) as call):
            pass
        case _:
            return False
    names = lowerer.program.names
    maker = names.array_maker(call)
    known = lowerer.frame.variables.get(variable)
    if maker is None or variable in lowerer.frame.carried:
        return False
    if known is not None and not (isinstance(known, Array) and known.storage == variable):
        return False
    if maker.endswith("_like"):
        model = lowerer.frame.found(shape.id) if isinstance(shape, ast.Name) else None
        if isinstance(model, Array) and not (isinstance(shape, ast.Name) and model.storage == shape.id):
            return False
    types = [*call.args[1:2], *(word.value for word in call.keywords if word.arg == "dtype")]
    if any(isinstance(dtype, ast.Attribute) and dtype.attr == "dtype" for dtype in types):
        return False
    parts = shape.elts if isinstance(shape, ast.Tuple | ast.List) else [shape]
    if not maker.endswith("_like") and any(
        isinstance(part, ast.Attribute | ast.Starred)
        or any(isinstance(inner, ast.Attribute) and inner.attr == "size" for inner in ast.walk(part))
        or (isinstance(part, ast.Name) and isinstance(lowerer.frame.found(part.id), tuple))
        for part in parts
    ):
        return False
    if isinstance(known, Array):
        lowerer.program.emit(node)
        return True
    keep = deepcopy(call)
    try:
        value = _of_maker(lowerer, keep, maker)
    except NotAffine:
        value = None
    if value is not None and is_complex(value.dtype):
        return False
    lowerer.program.emit(node)
    if value is not None:
        lowerer.program.storages.add(variable)
        lowerer.frame.variables[variable] = stored_array(variable, value.shape, value.dtype)
    return True


def _of_maker(lowerer: Lowerer, call: ast.Call, maker: str) -> Array | None:
    """The array that a call makes, without statements."""
    outside, lowerer.program.block = lowerer.program.block, []
    taken = set(lowerer.program.taken)
    try:
        value = lowerer.evaluator.value(call)
    finally:
        lowerer.program.block, lowerer.program.taken = outside, taken
    return replace(value, dtype=stored_type(value.dtype)) if isinstance(value, Array) else None
