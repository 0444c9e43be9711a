"""Lower augmented assignments: x += e of numbers, elements and whole arrays."""

from __future__ import annotations

import ast
from dataclasses import replace

import numpy as np

from polyfuse.frontend.python.numpy.broadcasting import mask_text
from polyfuse.frontend.python.numpy.complex_numbers import as_complex
from polyfuse.frontend.python.numpy.expressions.indexing import view_of_places
from polyfuse.frontend.python.numpy.expressions.lists import number_or_array
from polyfuse.frontend.python.numpy.expressions.operators import operation, refuse_fractions
from polyfuse.frontend.python.numpy.scatters import AT_PLACES
from polyfuse.frontend.python.numpy.statements.assignments import assign_one
from polyfuse.frontend.python.numpy.statements.lowerer import Lowerer
from polyfuse.frontend.python.numpy.statements.targets import base_of, loaded
from polyfuse.frontend.python.numpy.statements.variables import alias, bind, variable_of
from polyfuse.frontend.python.numpy.stores import store, updates
from polyfuse.frontend.python.numpy.syntax import name, stored
from polyfuse.frontend.python.numpy.values import Array, Scalar, Value, common_type, stored_type
from polyfuse.ir.expression import OPERATORS
from polyfuse.ir.number_types import is_complex, is_real


def update(lowerer: Lowerer, node: ast.AugAssign) -> None:
    """target op= value."""
    target = node.target
    current = lowerer.evaluator.value(loaded(target))
    if isinstance(current, Array) and current.storage is None and isinstance(target, ast.Subscript):
        base = lowerer.evaluator.value(target.value)
        view = view_of_places(lowerer.evaluator, target, base) if isinstance(base, Array) else None
        current = current if view is None else view
    into = None
    if isinstance(current, Array) and current.storage is not None and isinstance(node.op, ast.Add):
        into = replace(current, adds=True)
    value = lowerer.evaluator.value(node.value, into)
    if isinstance(node.op, ast.MatMult):
        product = ast.copy_location(ast.BinOp(loaded(target), ast.MatMult(), node.value), node)
        made = lowerer.evaluator.value(product)
        if not isinstance(current, Array) or current.storage is None:
            lowerer.evaluator.refuse(target, f"{ast.unparse(target)} is no array's memory", "an array")
        store(lowerer.program, current, number_or_array(lowerer.evaluator, product, made))
        lowerer.changed(current.storage)
        return
    if isinstance(current, Array):
        if current.storage is None:
            lowerer.evaluator.refuse(
                target, f"{ast.unparse(target)} is no array's memory", f"a view of an array; {AT_PLACES}"
            )
        operand = number_or_array(lowerer.evaluator, node.value, value)
        if isinstance(operand, Array) and operand.adds:
            lowerer.changed(current.storage)
            return
        plain = replace(current, mask=None)
        if isinstance(operand, Array) and operand.mask is not None:
            if mask_text(lowerer.program, operand) != mask_text(lowerer.program, current):
                lowerer.evaluator.refuse(
                    node.value, "the elements that another mask selects", "the same mask on both sides"
                )
            operand = replace(operand, mask=None)
        made = operation(lowerer.evaluator, _whole(node), node.op, [plain, operand])
        if not np.can_cast(stored_type(made.dtype), current.dtype, "same_kind"):
            lowerer.evaluator.refuse(
                node,
                f"{ast.unparse(target)} is {current.dtype}, the result {made.dtype}: NumPy refuses that too",
                "values of the array's type; .astype",
            )
        store(lowerer.program, current, made)
        lowerer.changed(current.storage)
        return
    if not isinstance(value, Scalar):
        if isinstance(value, Array) and isinstance(current, Scalar) and isinstance(target, ast.Name):
            made = operation(lowerer.evaluator, node.value, node.op, [current, value])
            bind(lowerer, node, target, made)
            return
        lowerer.evaluator.refuse(node, f"{ast.unparse(node)}: an array for one number", "a number")
    _update_scalar(lowerer, node, current, value)


def _update_scalar(lowerer: Lowerer, node: ast.AugAssign, current: Value, value: Scalar) -> None:
    """One number op= a number: it stays as it is written."""
    if not isinstance(current, Scalar):
        lowerer.evaluator.refuse(node, f"{ast.unparse(node.target)} is no number", "numbers and arrays")
    dtype = common_type([current.dtype, value.dtype], divides=isinstance(node.op, ast.Div))
    if is_complex(dtype):
        _update_complex(lowerer, node, current, value)
        return
    if isinstance(node.op, ast.FloorDiv | ast.Mod) and is_real(dtype):
        new = operation(lowerer.evaluator, _whole(node), node.op, [current, value])
        assign_one(lowerer, ast.copy_location(ast.Assign([node.target], node.value), node), node.target, new)
        return
    if type(node.op) in OPERATORS.values():
        refuse_fractions(lowerer.evaluator, _whole(node), [current.dtype, value.dtype])
    whole = ast.copy_location(ast.BinOp(current.node, node.op, value.node), node)
    if isinstance(node.target, ast.Name):
        frame, own = lowerer.frame, node.target.id
        variable = variable_of(lowerer, own)
        target: ast.expr = node.target if frame.is_first else ast.Name(variable, ast.Store())
        lowerer.program.emit(_updated(node, target, value.node))
        frame.variables[own] = Scalar(name(variable), dtype)
        alias(lowerer, variable, whole, dtype)
        return
    first = lowerer.frame.is_first
    same = current.node is not None and ast.unparse(current.node) == ast.unparse(node.target)
    target = node.target if first and same else stored(current.node)
    lowerer.program.emit(_updated(node, target, value.node))
    base = lowerer.evaluator.value(base_of(node.target))
    lowerer.changed(base.storage if isinstance(base, Array) else None)


def _update_complex(lowerer: Lowerer, node: ast.AugAssign, current: Scalar, value: Scalar) -> None:
    """One complex number op= a number. A sum is one of each part."""
    program = lowerer.program
    plain = isinstance(node.op, ast.Add | ast.Sub) and is_complex(current.dtype)
    own = {part.id for part in ast.walk(current.node) if isinstance(part, ast.Name)}
    if plain and not own & {part.id for part in ast.walk(value.node) if isinstance(part, ast.Name)}:
        for statement in updates(program, current.node, node.op, as_complex(value.node, value.dtype)):
            program.emit(statement)
    else:
        whole = _whole(node)
        made = operation(lowerer.evaluator, whole, node.op, [current, value])
        assign_one(lowerer, ast.copy_location(ast.Assign([node.target], whole), node), node.target, made)
    base = lowerer.evaluator.value(base_of(node.target))
    lowerer.changed(base.storage if isinstance(base, Array) else None)


def _whole(node: ast.AugAssign) -> ast.BinOp:
    """target op value, of target op= value."""
    return ast.copy_location(ast.BinOp(loaded(node.target), node.op, node.value), node)


def _updated(node: ast.AugAssign, target: ast.expr, value: ast.expr) -> ast.stmt:
    if target is node.target and value is node.value:
        return node
    return ast.copy_location(ast.AugAssign(stored(target), node.op, value), node)
