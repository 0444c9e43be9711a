"""Values of subscripts: an element, a view, the elements that a mask or an array of integers selects."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from polyfuse.errors import quantity
from polyfuse.frontend.python.gathers import is_from_data
from polyfuse.frontend.python.numpy.broadcasting import broadcast, common_shape
from polyfuse.frontend.python.numpy.expressions.constants import known_integer
from polyfuse.frontend.python.numpy.expressions.evaluator import Evaluator, copied
from polyfuse.frontend.python.numpy.expressions.lists import stacked
from polyfuse.frontend.python.numpy.subscripts import Cut, Part, from_start, subscripted
from polyfuse.frontend.python.numpy.syntax import constant, minus, number, placed, plus
from polyfuse.frontend.python.numpy.values import BOOL, Array, Scalar, Static, Value
from polyfuse.ir.number_types import is_integer


def subscript(e: Evaluator, node: ast.Subscript) -> Value:
    """An element, a view, the elements that a mask selects, or an element of a tuple."""
    base = e.value(node.value)
    if isinstance(base, tuple) and isinstance(node.slice, ast.Slice):
        bounds = [
            None if bound is None else known_integer(e, e.integer(bound))
            for bound in (node.slice.lower, node.slice.upper, node.slice.step)
        ]
        return tuple(base[slice(*bounds)])
    if isinstance(base, tuple):
        position = e.value(node.slice)
        at = constant(position.node) if isinstance(position, Scalar) else None
        if at is None:
            e.refuse(
                node, f"{ast.unparse(node)} is not an element that is known here", "a constant subscript"
            )
        if not -len(base) <= at < len(base):
            has = quantity(len(base), "element")
            e.refuse(
                node,
                f"{ast.unparse(node.value)} has {has}, and none at {at}",
                f"{-len(base)} to {len(base) - 1}" if base else "a tuple with elements",
            )
        found: Value = base[at]
        return found
    if isinstance(base, Static) and base.value is np.mgrid:
        return _grid(e, node)
    if not isinstance(base, Array):
        return e.unread(node)
    return selected(e, node, base)


def _grid(e: Evaluator, node: ast.Subscript) -> Value:
    """np.mgrid[a:b, c:d]: an array for each subscript, one after the other."""
    parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    cuts = [_written_out(e, _part(e, part)) if isinstance(part, ast.Slice) else None for part in parts]
    bounds = [
        (cut.start or number(0), cut.stop)
        for cut in cuts
        if isinstance(cut, Cut) and cut.stop is not None and cut.step == 1
    ]
    if len(bounds) < len(parts) or len(parts) < 2:
        e.refuse(node, f"{ast.unparse(node)}: these subscripts", "np.mgrid[a:b, c:d] of integers")
    shape = tuple(minus(stop, start) for start, stop in bounds)
    rows = tuple(Array(shape, "int64", _counted(k, start)) for k, (start, _) in enumerate(bounds))
    return stacked(e, node, rows)


def selected(e: Evaluator, node: ast.Subscript, base: Array) -> Value:
    """base[…]."""
    parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    if len(parts) == 1 and not isinstance(parts[0], ast.Slice):
        only = e.value(parts[0])
        if isinstance(only, Array) and only.dtype == BOOL and only.rank == base.rank:
            return replace(base, mask=broadcast(e.program, only, base.shape))
    masked = _masked(e, node, base, parts)
    if masked is not None:
        return masked
    if base.rank and base.mask is None:
        places = _places(e, parts)
        if places and isinstance(node.ctx, ast.Load):
            return _gathered(e, node, base, places, parts[len(places) :])
        view = None if isinstance(node.ctx, ast.Load) else _view_of_counted(e, node, base, places, parts)
        if view is not None:
            return view
    count = sum(not (_is_ellipsis(part) or _is_none(e, part)) for part in parts)
    if count > base.rank:
        e.refuse(
            node,
            f"{ast.unparse(node)} has {count} subscripts, {ast.unparse(node.value)} has rank {base.rank}",
            "one subscript a dimension",
        )
    read: list[Part] = []
    for part in parts:
        if _is_ellipsis(part):
            read += [Cut(None, None)] * (base.rank - count)
        else:
            read.append(_part(e, part))
    if base.mask is not None:
        e.refuse(node, "a subscript of the elements that a mask selects", "x[i] of an array")
    if count == base.rank and all(isinstance(part, ast.expr) for part in read):
        return _single(e, node, base, [part for part in read if isinstance(part, ast.expr)])
    written = [_written_out(e, part) for part in read]
    return subscripted(e.program.geometry, base, written)


def _masked(e: Evaluator, node: ast.Subscript, base: Array, parts: Sequence[ast.expr]) -> Array | None:
    """A[m], A[:, m], A[m, 0] of a mask of some axes, as the whole of these axes with a mask; None without one."""
    plain: list[ast.expr] = []
    found: list[Array] = []
    for part in parts:
        value = None if isinstance(part, ast.Slice) or _is_ellipsis(part) else e.value(part)
        if isinstance(value, Array) and value.dtype == BOOL and value.rank:
            found.append(value)
            plain += [ast.copy_location(ast.Slice(), part)] * value.rank
        else:
            plain.append(part)
    if len(found) != 1 or any(map(_is_ellipsis, parts)):
        return None
    (mask,) = found
    at = next(k for k, (a, b) in enumerate(zip(parts, plain, strict=False)) if a is not b)
    where = ast.copy_location(ast.Subscript(node.value, ast.Tuple(plain, ast.Load()), ast.Load()), node)
    view = selected(e, where, base)
    before = [e.value(part) for part in plain[:at] if not isinstance(part, ast.Slice)]
    axis = at - sum(isinstance(value, Scalar) for value in before)
    assert isinstance(view, Array), "a subscript with a slice is a view"
    own = view.shape[axis : axis + mask.rank]
    if not all(map(e.program.geometry.same, own, mask.shape)):
        e.refuse(node, f"{ast.unparse(node)}: the mask has another extent", "a mask of the axis' extent")
    return replace(
        view,
        mask=Array(view.shape, BOOL, lambda index: mask.element(index[axis : axis + mask.rank])),
    )


def _places(e: Evaluator, parts: Sequence[ast.expr]) -> list[Array]:
    """The arrays of integers, and lists of numbers, with which a subscript begins."""
    if len(parts) == 1 and not isinstance(parts[0], ast.Slice):
        value = e.value(parts[0])
        if isinstance(value, tuple) and not isinstance(parts[0], ast.List):  # x[np.diag_indices(n)]
            parts_of = [part for part in value if isinstance(part, Array) and is_integer(part.dtype)]
            return parts_of if len(parts_of) == len(value) else []
    found = []
    for part in parts:
        if isinstance(part, ast.Slice) or _is_ellipsis(part):
            break
        value = e.value(part)
        if isinstance(value, tuple) and value and isinstance(part, ast.List):
            value = stacked(e, part, value)
        if not isinstance(value, Array) or not value.rank or not is_integer(value.dtype):
            break
        found.append(value)
    return found


def _gathered(
    e: Evaluator, node: ast.Subscript, base: Array, places: Sequence[Array], rest: Sequence[ast.expr]
) -> Array:
    """base[index, …]: the elements, or rows, that arrays of integers choose; no view, as in NumPy."""
    if len(places) > base.rank:
        e.refuse(
            node,
            f"{ast.unparse(node)} has {len(places)} subscripts, {ast.unparse(node.value)} has rank {base.rank}",
            "one subscript a dimension",
        )
    shape = common_shape(e.program, places)
    rank, count_of_places = len(shape), len(places)
    seen = [broadcast(e.program, place, shape) for place in places]
    made = Array(
        (*shape, *base.shape[count_of_places:]),
        base.dtype,
        lambda i: base.element((*(place.element(i[:rank]) for place in seen), *i[rank:])),
    )
    count = sum(not (_is_ellipsis(part) or _is_none(e, part)) for part in rest)
    if count > base.rank - count_of_places or any(_is_ellipsis(part) for part in rest):
        e.refuse(
            node,
            f"{ast.unparse(node)}: these subscripts behind an array",
            "x[idx], x[idx, i], x[idx, 1:]",
        )
    read = [_written_out(e, _part(e, part)) for part in rest]
    return subscripted(e.program.geometry, made, [*[Cut(None, None)] * rank, *read])


def view_of_places(e: Evaluator, node: ast.Subscript, base: Array) -> Array | None:
    """base[np.diag_indices(n)] as what is stored to; None for places that are not counted one by one."""
    parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    return _view_of_counted(e, node, base, _places(e, parts), parts)


def places_by_data(e: Evaluator, node: ast.Subscript) -> list[Array]:
    """The arrays of integers that a subscript is made of, all of one rank; none where it is something else."""
    parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    # a call would be inlined here, and again where the subscript is read otherwise
    other = any(isinstance(part, ast.Call) for part in ast.walk(node.slice)) or any(
        isinstance(part, ast.Slice) or _is_ellipsis(part) for part in parts
    )
    places = [] if other else _places(e, parts)
    whole = len(places) == len(parts) and len({place.rank for place in places}) == 1
    whole = whole and all(place.mask is None for place in places)
    return places if whole and not all(_is_counted(e, place) for place in places) else []


def _view_of_counted(
    e: Evaluator, node: ast.Subscript, base: Array, places: Sequence[Array], parts: Sequence[ast.expr]
) -> Array | None:
    if not places or not all(_is_counted(e, place) for place in places):
        return None
    return replace(_gathered(e, node, base, places, parts[len(places) :]), storage=base.storage)


def _is_counted(e: Evaluator, place: Array) -> bool:
    """True for a vector of k, k + 1, k + 2, …, as np.arange makes it: it names each place once, in order."""
    geometry = e.program.geometry
    if place.rank != 1:
        return False
    first, second = (place.element((number(k),)) for k in (0, 1))
    if any(isinstance(part, ast.Subscript | ast.Call | ast.IfExp) for part in ast.walk(first)):
        return False
    return geometry.is_affine(first) and geometry.same(second, plus(first, number(1)))


def _is_none(e: Evaluator, node: ast.expr) -> bool:
    """True for None by any name: np.newaxis."""
    if isinstance(node, ast.Slice):
        return False
    value = e.value(node)
    return isinstance(value, Static) and value.value is None


def _single(e: Evaluator, node: ast.Subscript, base: Array, parts: list[ast.expr]) -> Scalar:
    """One element. It keeps its syntax where that names the element already."""
    geometry = e.program.geometry
    index = []
    for part, extent in zip(parts, base.shape, strict=True):
        written = e.program.aliases.written_out(part)
        counted = geometry.is_affine(written) and geometry.is_negative(written)
        index.append(from_start(geometry, written, extent) if counted else part)
    if base.dtype == BOOL:
        return Scalar(placed(base.element(tuple(index)), node), BOOL)
    made = base.element(tuple(index))
    same = e.frame.is_first and ast.unparse(made) == ast.unparse(node)
    return Scalar(node if same else placed(copied(made), node), base.dtype)


def _part(e: Evaluator, node: ast.expr) -> Part:
    """One subscript."""
    if isinstance(node, ast.Slice):
        step = 1
        if node.step is not None:
            found = constant(e.program.aliases.written_out(e.integer(node.step)))
            if not found:
                e.refuse(node.step, f"the step {ast.unparse(node.step)}", "an integer constant other than 0")
            step = found
        bounds = [
            None if bound is None or _is_none(e, bound) else e.integer(bound)
            for bound in (node.lower, node.upper)
        ]
        return Cut(bounds[0], bounds[1], step)
    value = e.value(node)
    if isinstance(value, Static) and (value.value is None or isinstance(value.value, Cut)):
        return value.value
    if isinstance(value, Array) and value.mask is not None:
        e.refuse(
            node,
            f"{ast.unparse(node)}: how many elements a mask selects is not known",
            "the mask as a condition: np.where(m, a, b)",
        )
    if not isinstance(value, Scalar):
        allowed = "integers, slices, None, ... and masks"
        if isinstance(value, Array) and is_integer(value.dtype):
            allowed += (
                "; x[idx] where it is read, np.add.at(x, idx, y), a loop with x[idx[i]], np.diag_indices(n)"
            )
        e.refuse(node, f"{ast.unparse(node)} as a subscript", allowed)
    return value.node


def _written_out(e: Evaluator, part: Part) -> Part:
    """A subscript without variables that stand for an integer. NotAffine if it is not affine then."""
    aliases, geometry = e.program.aliases, e.program.geometry
    if part is None:
        return None
    if isinstance(part, Cut):
        bounds = [None if b is None else aliases.written_out(b) for b in (part.start, part.stop)]
        if part.step == 1 and any(bound is not None and is_from_data(bound) for bound in bounds):
            return Cut(bounds[0], bounds[1])
        for bound in bounds:
            if bound is not None:
                e.affine(bound)
        return Cut(bounds[0], bounds[1], part.step)
    written = aliases.written_out(part)
    if is_from_data(written):
        return written
    if not geometry.is_affine(written):
        e.affine(written)
    return written


def _counted(axis: int, start: ast.expr) -> Callable[[tuple[ast.expr, ...]], ast.expr]:
    return lambda index: plus(index[axis], start)


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...
