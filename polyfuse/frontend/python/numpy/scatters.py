"""np.add.at(h, idx, w) and h[idx] = w: updates and stores of the places that an array of integers names, in order.

    np.add.at(h, idx, w)       ->   for i0 in range(N): h[idx[i0]] += w[i0]       places that occur twice twice
    np.add.at(d, idx, g)       ->   for i0 in range(N): for i1 in range(J): d[idx[i0], i1] += g[i0, i1]
    h[idx] = w                 ->   for i0 in range(N): h[idx[i0]] = w[i0]        the last of two values stays

h[idx] += w is another thing: NumPy reads all places before it stores any, so that of two updates of one one is lost.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

import numpy as np

from polyfuse.frontend.python.numpy.broadcasting import broadcast
from polyfuse.frontend.python.numpy.expressions.evaluator import Evaluator
from polyfuse.frontend.python.numpy.expressions.lists import number_or_array
from polyfuse.frontend.python.numpy.stores import as_stored, materialize
from polyfuse.frontend.python.numpy.syntax import stored
from polyfuse.frontend.python.numpy.values import Array, Scalar, Static, Value, common_type, stored_type
from polyfuse.ir.number_types import is_integer

UPDATES: Mapping[np.ufunc, ast.operator | str] = {
    np.add: ast.Add(),
    np.subtract: ast.Sub(),
    np.multiply: ast.Mult(),
    np.maximum: "max",
    np.minimum: "min",
}
"""The operation of an update: an operator, or a function of the old and the new value."""

FORM = "np.add.at(x, idx, w), also of subtract, multiply, maximum and minimum, with arrays of integers idx"

AT_PLACES = "np.add.at(x, idx, w), which adds to places that occur twice, too"
"""How messages write the update x[idx] += w."""


def updated_at(
    function: np.ufunc,
    e: Evaluator,
    node: ast.Call,
    args: list[Value],
    named: dict[str, Value],
    into: Array | None,
) -> Value:
    """The loops of np.add.at(target, places, value)."""
    if function not in UPDATES or len(args) != 3 or named:
        e.refuse(node, f"{ast.unparse(node)}: this function at places", FORM)
    target, places = args[0], args[1] if isinstance(args[1], tuple) else (args[1],)
    if not isinstance(target, Array) or target.storage is None or target.mask is not None:
        e.refuse(node, f"{ast.unparse(node.args[0])} is no array's memory", "a view of an array")
    index = [place for place in places if isinstance(place, Array) and is_integer(place.dtype) and place.rank]
    if len(index) < len(places) or len(index) > target.rank or len({place.rank for place in index}) > 1:
        e.refuse(node, f"{ast.unparse(node.args[1])}: these places", FORM)
    loops, element, new = _at_places(e, node, target, index, number_or_array(e, node.args[2], args[2]))
    what = UPDATES[function]
    if isinstance(what, str):
        update: ast.stmt = ast.Assign(
            [stored(element)], ast.Call(e.program.function(what), [element, new], [])
        )
    else:
        update = ast.AugAssign(stored(element), what, new)
    e.program.emit_nest(loops, [update])
    return Static(None)


def store_at(
    e: Evaluator, node: ast.Subscript, target: Array, places: Sequence[Array], value: Array | Scalar
) -> None:
    """target[places] = value, one element after the other."""
    loops, element, new = _at_places(e, node, target, places, value, cast=True)
    e.program.emit_nest(loops, [ast.Assign([stored(element)], new)])


def _at_places(
    e: Evaluator,
    node: ast.expr,
    target: Array,
    index: Sequence[Array],
    value: Array | Scalar,
    cast: bool = False,
) -> tuple[list[tuple[str, ast.expr]], ast.expr, ast.expr]:
    """(the loops over some places, the element at a place, its new value). All values are read before one is stored.

    Values are stored in another type only where NumPy does that: `cast` by an assignment, not by an update.
    """
    first, rank = index[0], index[0].rank
    same = (
        e.program.equal(a, b) for place in index[1:] for a, b in zip(first.shape, place.shape, strict=True)
    )
    if not all(same):
        e.refuse(node, f"{ast.unparse(node)}: places of several shapes", FORM)
    shape = (*first.shape, *target.shape[len(index) :])
    made = broadcast(e.program, value, shape)
    if not cast and not np.can_cast(
        stored_type(common_type([target.dtype, made.dtype])), target.dtype, "same_kind"
    ):
        e.refuse(
            node,
            f"{target.storage} is {target.dtype}, the values {stored_type(made.dtype)}: NumPy refuses it, too",
            "values of the array's type; .astype",
        )
    assert target.storage is not None, "what is stored to has memory"
    if isinstance(value, Array) and _reads(made, target.storage):
        made = materialize(e.program, made, "value")
    if any(_reads(place, target.storage) for place in index):
        e.refuse(node, f"{ast.unparse(node)}: places that the array itself holds", "a copy of them: .copy()")
    loops, at = e.program.loops("i", shape)
    element = target.element((*(place.element(at[:rank]) for place in index), *at[rank:]))
    return loops, element, as_stored(e.program, made.element(at), made.dtype, target.dtype)


def _reads(value: Array, storage: str) -> bool:
    index = tuple(ast.Name(f"d{k}", ast.Load()) for k in range(value.rank))
    return any(isinstance(part, ast.Name) and part.id == storage for part in ast.walk(value.element(index)))
