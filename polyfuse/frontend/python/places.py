"""Places that data name, as loops over all places with a test on data in them.

    h[idx[i], j] += w[i]                ->   for place in range(h.shape[0]):
                                                 if place == idx[i]: h[place, j] += w[i]
    for k in range(p[i], p[i + 1]):     ->   for k in range(a.shape[0]):
        y[i] += a[k]                             if p[i] <= k < p[i + 1]: y[i] += a[k]
    y[i] = t[j, idx[i]]                 ->   at_place = 0
                                             for place in range(t.shape[1]):
                                                 if place == idx[i]: at_place += t[j, place]
                                             y[i] = at_place

All mean the same, provided that a call checks the numbers in idx and p, before it writes anything (`Tensor.below`).
Numbers that the function makes, and that are places by their formula, need no check: those of np.histogram.
The tests are `polyfuse.ir.masks`; no kernel runs the iterations in which they fail.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass

from polyfuse.frontend.python.aliases import stored_arrays
from polyfuse.frontend.python.conditions import Predicate
from polyfuse.frontend.python.gathers import is_row
from polyfuse.frontend.python.scope import Range
from polyfuse.frontend.python.scope_names import Names
from polyfuse.ir.number_types import is_integer

ALLOWED = "x[idx[i]] with idx an argument of integers that the function does not write"
BOUNDS = (
    "bounds affine in sizes and indices, or elements of an argument of integers that is not written, where the loop's "
    "index is a subscript of an array; else the indices of rows in an array, y[row[k]] += a[k] for k in range(len(a))"
)


@dataclass(frozen=True)
class Named:
    """A subscript that data name: the array that holds it, its limit, the loop over all places, the test in it."""

    chooser: str
    below: int | str
    loop: Range
    test: Predicate


def chooser_of(names: Names, node: ast.expr) -> str | None:
    """The array of integers of which an expression is an element; None for any other expression."""
    inner = node
    while isinstance(inner, ast.Subscript):
        inner = inner.value
    if not isinstance(node, ast.Subscript) or not isinstance(inner, ast.Name):
        return None
    known = names.tensors.get(inner.id) or names.arrays.get(inner.id)
    is_array = known is not None and known.rank > 0 and is_integer(known.dtype)
    return inner.id if is_array and inner.id not in names.locals else None


def is_given_place(names: Names, node: ast.expr) -> bool:
    """True for an element of an argument of integers that the function does not write."""
    chooser = chooser_of(names, node)
    return chooser in names.tensors and chooser not in stored_arrays(names.source.tree)


def checked_argument(names: Names, node: ast.expr, chooser: str, allowed: str) -> None:
    """NotAffine for an element of an array whose numbers a call cannot check before it writes anything."""
    if not is_given_place(names, node) and chooser not in names.placed:
        why = "is written here" if chooser in names.tensors else "is made here"
        names.source.refuse(
            node, f"{ast.unparse(node)} names a place, and {chooser} {why}: no call can check it", allowed
        )


def named_places(
    names: Names, target: ast.expr, fresh: Callable[[], str]
) -> tuple[ast.Subscript, tuple[Named, ...]] | None:
    """(an element by the indices of new loops, these loops) for a target with subscripts that data name; else None."""
    subscripts: list[ast.expr] = []
    inner: ast.expr = target
    while isinstance(inner, ast.Subscript):
        parts = inner.slice.elts if isinstance(inner.slice, ast.Tuple) else [inner.slice]
        subscripts = [*parts, *subscripts]
        inner = inner.value
    if not isinstance(inner, ast.Name) or names.rank(inner.id) != len(subscripts):
        return None
    found: list[Named] = []
    for d, part in enumerate(subscripts):
        chooser = chooser_of(names, part)
        if chooser is None:
            continue
        checked_argument(names, part, chooser, ALLOWED)
        index = ast.copy_location(ast.Name(fresh(), ast.Load()), part)
        test = ast.copy_location(ast.Compare(index, [ast.Eq()], [part]), part)
        extent = names.shapes[inner.id][d]
        zero = ast.copy_location(ast.Constant(0), part)
        loop = Range(index.id, zero, extent, 1)
        found.append(Named(chooser, _limit(names, inner.id, d), loop, Predicate(test, True, frozenset())))
        subscripts[d] = index
    if not found:
        return None
    where = subscripts[0] if len(subscripts) == 1 else ast.Tuple(subscripts, ast.Load())
    element = ast.Subscript(inner, where, ast.Store())
    return ast.copy_location(ast.fix_missing_locations(element), target), tuple(found)


def placed_reads(
    names: Names, node: ast.Assign | ast.AugAssign | ast.AnnAssign, target: ast.expr
) -> list[ast.Subscript]:
    """The elements that an assignment reads at places in data, other than its target and rows of a table, each once."""
    found: dict[str, ast.Subscript] = {}
    for part in ast.walk(node.value) if node.value is not None else ():
        if not isinstance(part, ast.Subscript) or not isinstance(part.value, ast.Name):
            continue
        table = part.value.id
        subscripts = part.slice.elts if isinstance(part.slice, ast.Tuple) else [part.slice]
        known = names.tensors.get(table) or names.arrays.get(table)
        if known is None or known.rank != len(subscripts) or table in names.locals:
            continue
        if any(is_given_place(names, one) for one in subscripts) and not is_row(names, table, subscripts):
            found.setdefault(ast.unparse(part), part)
    found.pop(ast.unparse(target), None)
    return list(found.values())


def at_places(
    node: ast.Assign | ast.AugAssign | ast.AnnAssign, target: ast.expr, element: ast.Subscript
) -> ast.Assign | ast.AugAssign | ast.AnnAssign:
    """An assignment to an element instead of the target that names it, where its value reads that, too."""
    made = _Replaced(
        ast.unparse(target),
        lambda part: ast.copy_location(ast.Subscript(element.value, element.slice, part.ctx), part),
    ).visit(deepcopy(node))
    assert isinstance(made, ast.Assign | ast.AugAssign | ast.AnnAssign), "an assignment stays one"
    return made


def with_read(
    node: ast.Assign | ast.AugAssign | ast.AnnAssign, part: ast.Subscript, variable: str
) -> ast.Assign | ast.AugAssign | ast.AnnAssign:
    """The assignment with a variable in its value in the place of an element."""
    made = deepcopy(node)
    assert made.value is not None, "the element is in the value"
    found = _Replaced(
        ast.unparse(part), lambda read: ast.copy_location(ast.Name(variable, ast.Load()), read)
    ).visit(made.value)
    assert isinstance(found, ast.expr), "an expression stays one"
    made.value = found
    return made


class _Replaced(ast.NodeTransformer):
    """Replaces the elements that are written as a text."""

    def __init__(self, text: str, make: Callable[[ast.Subscript], ast.expr]) -> None:
        self.text, self.make = text, make

    def visit_Subscript(self, part: ast.Subscript) -> ast.expr:
        if ast.unparse(part) == self.text:
            return self.make(part)
        self.generic_visit(part)
        return part


@dataclass(frozen=True)
class Bounded:
    """A loop whose bounds are data, over all that its index may be; the tests in it; the arrays that hold bounds."""

    loop: Range
    tests: tuple[ast.expr, ...]
    choosers: tuple[str, ...]
    below: int | str


def data_bounded(names: Names, node: ast.For) -> Bounded | None:
    """The loop of `for k in range(p[i], p[i + 1])`; None where no bound is data."""
    call = node.iter
    if not (isinstance(call, ast.Call) and names.function(call.func) == "range" and 1 <= len(call.args) <= 2):
        return None
    zero = ast.copy_location(ast.Constant(0), call)
    start, stop = (zero, call.args[0]) if len(call.args) == 1 else call.args
    choosers = [chooser_of(names, bound) for bound in (start, stop)]
    if not any(choosers) or not isinstance(node.target, ast.Name):
        return None
    for bound, chooser in zip((start, stop), choosers, strict=True):
        if chooser is not None:
            checked_argument(names, bound, chooser, BOUNDS)
    found = _subscripted(names, node.body, node.target.id)
    if found is None:
        names.source.refuse(
            call,
            f"{ast.unparse(call)} depends on data, and no array with the subscript {node.target.id} bounds it",
            BOUNDS,
        )
    array, d = found
    extent, last = names.shapes[array][d], _limit(names, array, d)
    index = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
    tests = []
    if choosers[0] is not None:
        tests.append(ast.copy_location(ast.Compare(start, [ast.LtE()], [index]), start))
    if choosers[1] is not None:
        tests.append(ast.copy_location(ast.Compare(index, [ast.Lt()], [stop]), stop))
    below = last + 1 if isinstance(last, int) else f"{last} + 1"
    loop = Range(node.target.id, zero if choosers[0] else start, extent if choosers[1] else stop, 1)
    return Bounded(loop, tuple(tests), tuple(c for c in choosers if c is not None), below)


def _limit(names: Names, array: str, d: int) -> int | str:
    """An extent of an array, as in its shape."""
    return (names.tensors.get(array) or names.arrays[array]).shape[d]


def _subscripted(names: Names, body: Sequence[ast.stmt], index: str) -> tuple[str, int] | None:
    """The first array, and its dimension, that has an index as a subscript: data must not name a place beyond it."""
    for part in (inner for one in body for inner in ast.walk(one)):
        if not isinstance(part, ast.Subscript) or not isinstance(part.value, ast.Name):
            continue
        shape = names.shapes.get(part.value.id)
        subscripts = part.slice.elts if isinstance(part.slice, ast.Tuple) else [part.slice]
        for d, subscript in enumerate(subscripts):
            if (
                shape is not None
                and d < len(shape)
                and isinstance(subscript, ast.Name)
                and subscript.id == index
            ):
                return part.value.id, d
    return None
