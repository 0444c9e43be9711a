"""Stores of array expressions as loops that read every element before it is stored.

y[1:-1] = x[1:-1] + 1     ->   for i0 in range(N - 2): y[i0 + 1] = x[i0 + 1] + 1
y[1:] = y[:-1]            ->   the same loop backwards: nothing is stored before it is read
y[1:-1] = y[:-2] + y[2:]  ->   through a temporary: no order of the loop reads all before it stores
"""

from __future__ import annotations

import ast
from dataclasses import replace

from polyfuse.frontend.python.numpy.broadcasting import broadcast, mask_text
from polyfuse.frontend.python.numpy.complex_numbers import as_complex, chosen, parts, shared_terms
from polyfuse.frontend.python.numpy.digits import by_digits
from polyfuse.frontend.python.numpy.memory import new_array, new_variable
from polyfuse.frontend.python.numpy.program import Program
from polyfuse.frontend.python.numpy.syntax import constant, name, stored
from polyfuse.frontend.python.numpy.values import BOOL, Array, Scalar, as_number, as_test
from polyfuse.ir.number_types import is_complex


def materialize(program: Program, value: Array, stem: str) -> Array:
    """An array with the values of an expression now, in memory of its own."""
    if value.mask is not None:
        program.refuse(
            "how many elements a mask selects is not known", "the mask as a condition: np.where(m, a, b)"
        )
    made = new_array(program, value.shape, value.dtype, stem)
    store(program, made, value)
    return made


def store(program: Program, target: Array, value: Array | Scalar) -> None:
    """target[...] = value, for arrays that broadcast to the target's shape: all reads before all stores."""
    made = broadcast(program, value, target.shape)
    if made.mask is not None and mask_text(program, made) != mask_text(program, target):
        program.refuse(
            "the elements that a mask selects are assigned to others: how many there are is not known",
            "the same mask on both sides: x[m] = y[m]",
        )
    loops, index = program.loops("i", target.shape)
    left, right = target.element(index), made.element(index)
    right = as_stored(program, right, made.dtype, target.dtype)
    if target.mask is not None:
        test = as_test(target.mask.element(index), target.mask.dtype)
        right = chosen(test, right, left, [target.dtype, target.dtype])
    loops, (left, right) = by_digits(program, loops, (left, right))
    reads = reads_of(program, right, target.storage)
    place = _subscripts(left)
    if is_complex(target.dtype):  # both parts are stored at once: the last subscript chooses between them
        place, reads = _subscripts(parts(left)[0])[:-1], [one[:-1] for one in reads]
    order = program.geometry.order_of(loops, place, reads) if reads else (False,) * len(loops)
    if order is None:
        _store_through_temporary(program, target, value, made)
        return
    program.emit_nest(loops, assignments(program, left, right), order)


def as_stored(program: Program, value: ast.expr, dtype: str, target: str) -> ast.expr:
    """An element of one type as it is stored to an array of another."""
    if is_complex(target):
        return as_complex(value, dtype)
    if is_complex(dtype):
        program.refuse(
            f"complex numbers are stored to {target} numbers", "x.real, abs(x), or a complex array"
        )
    return value if target == BOOL else as_number(value, dtype)


def assignments(program: Program, target: ast.expr, value: ast.expr) -> list[ast.stmt]:
    """The assignments of an element or a variable: two of a complex number, which read all before they store.

    z = z * z    ->   real = …z_real, z_imag…;  z_imag = …;  z_real = real
    """
    if not isinstance(value, ast.Tuple):
        return [ast.Assign([stored(target)], value)]
    places, new = parts(target), parts(value)
    shared, (real, imaginary) = shared_terms(new, program.fresh)
    first, second = (
        ast.Assign([stored(place)], part) for place, part in zip(places, (real, imaginary), strict=True)
    )
    if ast.unparse(first.targets[0]) == ast.unparse(real):
        return [*shared, second]
    if not _reads_part(imaginary, places[0]):
        return [*shared, first, second]
    kept = program.fresh("real")
    first.targets = [ast.Name(kept, ast.Store())]
    return [*shared, first, second, ast.Assign([stored(places[0])], name(kept))]


def store_in_order(program: Program, target: Array, value: Array) -> None:
    """target[...] = value from the first element to the last, where an element may read those before it."""
    loops, index = program.loops("i", target.shape)
    program.emit_nest(loops, assignments(program, target.element(index), value.element(index)))


def _store_through_temporary(program: Program, target: Array, value: Array | Scalar, made: Array) -> None:
    text = ast.unparse(program.place).split("\n")[0]
    line = program.names.source.first + getattr(program.place, "lineno", 1) - 1
    if isinstance(value, Scalar):
        kept: Array | Scalar = new_variable(program, value, "value")
        program.notes.append(
            f"line {line}: {text}: the value is read once, before {target.storage} is changed"
        )
    else:
        kept = materialize(program, replace(made, mask=None), "copy")
        program.notes.append(
            f"line {line}: {text}: through a temporary array, since no order of the loops reads every element of "
            f"{target.storage} before it is stored"
        )
    store(program, target, kept)


def reads_of(program: Program, value: ast.expr, tensor: str | None) -> list[list[ast.expr]]:
    """The subscripts with which an expression reads a tensor."""
    parts = (part for part in ast.walk(value) if isinstance(part, ast.Subscript))
    found = [
        _subscripts(part) for part in parts if isinstance(part.value, ast.Name) and part.value.id == tensor
    ]
    return [[program.aliases.written_out(part) for part in one] for one in found]


def updates(program: Program, target: ast.expr, op: ast.operator, value: ast.expr) -> list[ast.stmt]:
    """target op= value, where the value reads nothing of the target; both parts of a complex sum."""
    if not isinstance(target, ast.Tuple):
        return [ast.AugAssign(stored(target), op, value)]
    shared, new = shared_terms(parts(value), program.fresh)
    return [*shared, *(ast.AugAssign(stored(t), op, v) for t, v in zip(parts(target), new, strict=True))]


def _reads_part(value: ast.expr, place: ast.expr) -> bool:
    """True if an expression may read the real part of a complex number that it is assigned to."""
    if isinstance(place, ast.Name):
        return any(isinstance(part, ast.Name) and part.id == place.id for part in ast.walk(value))
    found = (part for part in ast.walk(value) if isinstance(part, ast.Subscript))
    own = ast.unparse(place.value) if isinstance(place, ast.Subscript) else ""
    return any(ast.unparse(part.value) == own and constant(_subscripts(part)[-1]) != 1 for part in found)


def _subscripts(node: ast.expr) -> list[ast.expr]:
    if not isinstance(node, ast.Subscript):
        return []
    return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
