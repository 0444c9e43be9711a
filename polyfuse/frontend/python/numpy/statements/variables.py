"""Bind names to values: numbers become variables, new arrays memory, views nothing.

    t = x + 1                    ->   t = np.empty(N), and the loop that stores it: a new array
    row = A[i]                   ->   nothing: a view, whose elements are A[i, …]

A name that a loop or a branch assigns keeps its array's memory: it is the same array in every iteration.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from polyfuse.frontend.python.numpy.complex_numbers import as_complex, pair
from polyfuse.frontend.python.numpy.memory import set_variable, stored_array
from polyfuse.frontend.python.numpy.statements.lowerer import Lowerer
from polyfuse.frontend.python.numpy.statements.targets import assignment_of
from polyfuse.frontend.python.numpy.stores import assignments, materialize, store
from polyfuse.frontend.python.numpy.syntax import name
from polyfuse.frontend.python.numpy.values import (
    BOOL,
    Array,
    Scalar,
    Static,
    Value,
    as_number,
    common_type,
    shape_text,
)
from polyfuse.ir.number_types import is_complex, is_integer


def bind(lowerer: Lowerer, node: ast.stmt, target: ast.Name, value: Value) -> None:
    """name = value."""
    frame, variable = lowerer.frame, target.id
    if isinstance(value, Static | tuple):
        _bind_known(lowerer, node, target, value)
    elif isinstance(value, Scalar):
        _bind_scalar(lowerer, node, target, value)
    elif variable in frame.carried:
        _rebind(lowerer, target, value)
    elif value.mask is not None or value.storage is not None:
        frame.variables[variable] = value
    else:
        lowerer.program.hint = variable if is_free(lowerer, variable) else None
        frame.variables[variable] = materialize(lowerer.program, value, variable)


def is_free(lowerer: Lowerer, variable: str) -> bool:
    """True if an array that is made now may have a variable's own name."""
    return lowerer.frame.is_first and not isinstance(lowerer.frame.variables.get(variable), Scalar)


def _bind_known(
    lowerer: Lowerer, node: ast.stmt, target: ast.Name, value: Static | tuple[Value, ...]
) -> None:
    if target.id in lowerer.frame.carried:
        lowerer.evaluator.refuse(node, f"{target.id} is an array, and assigned something else", "arrays")
    lowerer.frame.variables[target.id] = value


def _rebind(lowerer: Lowerer, target: ast.Name, value: Array) -> None:
    """name = array, where a loop or branch around has the name's array already: into the same memory."""
    known = lowerer.frame.variables[target.id]
    assert isinstance(known, Array), "carried names are arrays"
    same = len(known.shape) == len(value.shape) and all(
        map(lowerer.program.geometry.same, known.shape, value.shape)
    )
    if not same or (value.dtype not in ("integer", "fraction") and value.dtype != known.dtype):
        lowerer.evaluator.refuse(
            target,
            f"{target.id} has shape {shape_text(known.shape)} and type {known.dtype} before this loop or "
            f"branch, and {shape_text(value.shape)} and {value.dtype} in it",
            "arrays of one shape and type, or another name",
        )
    for frame in lowerer.frames:
        for other, alias in list(frame.variables.items()):
            is_this = frame is lowerer.frame and other == target.id
            if not is_this and isinstance(alias, Array) and alias.storage == known.storage:
                frame.variables[other] = materialize(lowerer.program, alias, other)
    store(lowerer.program, known, value)
    lowerer.changed(known.storage)


def _bind_scalar(lowerer: Lowerer, node: ast.stmt, target: ast.Name, value: Scalar) -> None:
    """name = number."""
    frame, program = lowerer.frame, lowerer.program
    known = frame.variables.get(target.id)
    dtype = value.dtype
    if isinstance(known, Scalar) and is_complex(known.dtype) is not is_complex(dtype):
        if is_complex(dtype) and (program.scope or lowerer.around):
            lowerer.evaluator.refuse(
                target,
                f"{target.id} is a real number before this loop or branch, and a complex one in it",
                f"{target.id} = 0j before",
            )
        dtype = common_type([known.dtype, dtype])
    if isinstance(known, Array) and frame.is_first:
        lowerer.evaluator.refuse(
            target,
            f"the array {target.id} is assigned as a whole, to a number",
            "another name for the number",
        )
    if isinstance(known, Scalar) and known.dtype != dtype:
        dtype = common_type([known.dtype, dtype])
    if is_complex(dtype):
        bind_complex(lowerer, target.id, as_complex(value.node, value.dtype), dtype)
        return
    variable = variable_of(lowerer, target.id)
    plain = value.node if dtype == BOOL else as_number(value.node, value.dtype)
    if frame.is_first:
        program.emit(assignment_of(node, target, plain))
    else:
        set_variable(program, variable, plain, dtype)
    frame.variables[target.id] = Scalar(name(variable), dtype)
    alias(lowerer, variable, value.node, dtype)


def bind_complex(lowerer: Lowerer, own: str, value: ast.expr, dtype: str) -> None:
    """name = a complex number: two variables, which the name keeps."""
    variables = pair(*(name(_part(lowerer, own, part)) for part in ("real", "imag")))
    for statement in assignments(lowerer.program, variables, value):
        lowerer.program.emit(statement)
    lowerer.frame.variables[own] = Scalar(variables, dtype)


def _part(lowerer: Lowerer, own: str, part: str) -> str:
    """The variable of a complex variable's real or imaginary part."""
    names = lowerer.frame.names
    key = f"{own}.{part}"
    if key not in names:
        names[key] = lowerer.program.fresh(f"{own}_{part}")
    return names[key]


def own_numbers(lowerer: Lowerer, parameters: Sequence[str]) -> list[ast.stmt]:
    """Variables for complex parameters that the function assigns, whose caller never sees that."""
    outside, lowerer.program.block = lowerer.program.block, []
    for parameter in parameters:
        given = lowerer.frame.variables[parameter]
        assert isinstance(given, Scalar), "a number is given"
        bind_complex(lowerer, parameter, given.node, given.dtype)
    made, lowerer.program.block = lowerer.program.block, outside
    return made


def alias(lowerer: Lowerer, variable: str, value: ast.expr, dtype: str) -> None:
    """Know an integer variable's value where it is affine."""
    program = lowerer.program
    written = program.aliases.written_out(value)
    program.aliases = program.aliases.without([variable])
    if is_integer(dtype) and program.geometry.is_affine(written):
        program.aliases = program.aliases.having(variable, written)


def variable_of(lowerer: Lowerer, own: str) -> str:
    """The name that a variable has in the lowered function."""
    frame = lowerer.frame
    if frame.is_first:
        return own
    if own not in frame.names:
        frame.names[own] = lowerer.program.fresh(own)
    return frame.names[own]


def carry(lowerer: Lowerer, body: Sequence[ast.stmt]) -> None:
    """Give arrays that the body of a loop or branch assigns memory of their own, unless they have it."""
    frame = lowerer.frame
    for variable in _rebound(body):
        known = frame.variables.get(variable)
        if not isinstance(known, Array):
            continue
        if not owns(lowerer, variable, known):
            frame.variables[variable] = materialize(lowerer.program, replace(known, storage=None), variable)
        frame.carried.add(variable)


def owns(lowerer: Lowerer, variable: str, known: Array) -> bool:
    """True if a variable is the only name of the memory that a function has made for it."""
    storage = known.storage
    if storage is None or storage in lowerer.program.parameters or known.mask is not None:
        return False
    index = tuple(name(f"d{k}") for k in range(known.rank))
    if ast.unparse(known.element(index)) != ast.unparse(
        stored_array(storage, known.shape, known.dtype).element(index)
    ):
        return False
    return not any(
        isinstance(value, Array) and value.storage == storage
        for frame in lowerer.frames
        for other, value in frame.variables.items()
        if not (frame is lowerer.frame and other == variable)
    )


def own_variables(lowerer: Lowerer, names: Sequence[str]) -> None:
    """Give a variable to each number that a loop or branch of an inlined function assigns."""
    frame = lowerer.frame
    if frame.is_first:
        return
    for own in names:
        known = frame.variables.get(own)
        if not isinstance(known, Scalar) or is_complex(known.dtype):
            continue
        variable = variable_of(lowerer, own)
        if isinstance(known.node, ast.Name) and known.node.id == variable:
            continue
        set_variable(lowerer.program, variable, as_number(known.node, known.dtype), known.dtype)
        frame.variables[own] = Scalar(name(variable), known.dtype)
        alias(lowerer, variable, known.node, known.dtype)


def _rebound(body: Sequence[ast.stmt]) -> tuple[str, ...]:
    """The names that statements give another array: x += e changes the one that x has."""
    updated = {id(n.target) for part in body for n in ast.walk(part) if isinstance(n, ast.AugAssign)}
    return tuple(
        dict.fromkeys(
            n.id
            for part in body
            for n in ast.walk(part)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and id(n) not in updated
        )
    )
