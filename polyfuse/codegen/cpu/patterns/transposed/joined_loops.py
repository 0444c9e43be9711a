"""Merge loops of a copy that go along memory one inside the other: whole windows of weights on their way to panels.

    for m < 512: for n < 3: for p < 3: for c < 16: b[m, n, p, c] = w[16*j + c, m, n, p]
    ->  b_2d = joined(joined(b, 1), 0)
        w_2d = joined(joined(w, 2), 1)
        for m < 4608: for c < 16: b_2d[m, c] = w_2d[16*j + c, m]

The three elements of a window's row are too few for whole vectors of memory; all that a filter has are enough, and the
copy is one in blocks (copies.py).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from polyfuse.codegen.cpu.patterns.transposed.copies import copy_in_blocks
from polyfuse.codegen.looptree.index import binary, is_number, mentions, substituted
from polyfuse.codegen.looptree.nodes import Element, For, Store
from polyfuse.codegen.looptree.product import growth

Shapes = Mapping[str, tuple[int | str, ...]]


@dataclass(frozen=True)
class OneLoop:
    """The loops of a copy with several as one, and the lines before them: arrays with as many axes as one."""

    before: tuple[str, ...]
    loops: For


@dataclass(frozen=True)
class _Copy:
    """A copy's loops, outermost first, the last on vector lanes; and of each array which axes became one, in order."""

    loops: tuple[For, ...]
    store: Store
    shapes: Shapes
    joined: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def one_loop_along_memory(top: For, shapes: Shapes, unused: Callable[[str], str]) -> OneLoop | None:
    """The loops of a copy with those that go along memory as one; None if that makes no copy in blocks of them."""
    copy = _copy_of(top, shapes)
    if copy is None:
        return None
    for at in reversed(range(len(copy.loops) - 2)):
        copy = _merged(copy, at) or copy
    if not copy.joined:
        return None
    names, lines = {}, []
    for array, axes in copy.joined.items():
        names[array] = unused(f"{array}_{len(copy.shapes[array])}d")
        value = array
        for axis in axes:
            value = f"joined({value}, {axis})"
        lines.append(f"{names[array]} = {value}")
    body: For | Store = _with(copy.store, lambda e: replace(e, array=names.get(e.array, e.array)))
    for loop in reversed(copy.loops):
        body = replace(loop, body=body)
    assert isinstance(body, For)
    return OneLoop(tuple(lines), body) if copy_in_blocks(body, unused) is not None else None


def _copy_of(top: For, shapes: Shapes) -> _Copy | None:
    """The loops of a copy of one array to another, which have numbers as bounds; None for others."""
    loops: list[For] = []
    node: object = top
    while isinstance(node, For):
        loops.append(node)
        node = node.body
    if not isinstance(node, Store) or node.op != "=" or len(loops) < 3 or loops[-1].bind != "vector":
        return None
    if any(loop.bind is not None for loop in loops[:-1]) or any(loop.ahead or loop.streams for loop in loops):
        return None
    bounds = [bound for loop in loops[:-1] for bound in (loop.low, loop.high)]
    elements = (node.target, *node.reads)
    arrays = {element.array for element in elements}
    known = all(len(shapes.get(element.array, ())) == len(element.subscripts) for element in elements)
    if (
        not all(isinstance(bound, ast.Constant) for bound in bounds)
        or not known
        or len(arrays) < len(elements)
    ):
        return None
    return _Copy(tuple(loops), node, {array: shapes[array] for array in arrays})


def _merged(copy: _Copy, at: int) -> _Copy | None:
    """The copy with a loop and the next one as one; None if not all that either moves goes on along memory so."""
    outer, inner = copy.loops[at : at + 2]
    size = inner.high.value if isinstance(inner.high, ast.Constant) else None
    others = [value for loop in copy.loops[at + 2 :] for value in (loop.low, loop.high)]
    others += copy.store.indices.values()
    moved = any(mentions(value, loop.variable) for value in others for loop in (outer, inner))
    if (
        not isinstance(size, int)
        or not is_number(inner.low, 0)
        or moved
        or (outer.step, inner.step) != (1, 1)
    ):
        return None
    elements: dict[str, Element] = {}
    joined, shapes = dict(copy.joined), dict(copy.shapes)
    for element in (copy.store.target, *copy.store.reads):
        axes = _axes(element, inner)
        if not axes and not _axes(element, outer):
            continue
        axis = axes[0] if len(axes) == 1 else 0
        shape = shapes[element.array]
        one = _one_subscript(element, axis, outer, inner, size) if axis else None
        if one is None or shape[axis] != size:
            return None
        subscripts = (*element.subscripts[: axis - 1], one, *element.subscripts[axis + 1 :])
        elements[element.array] = replace(element, subscripts=subscripts)
        joined[element.array] = (*joined.get(element.array, ()), axis - 1)
        before = shape[axis - 1]
        both = before * size if isinstance(before, int) else before
        shapes[element.array] = (*shape[: axis - 1], both, *shape[axis + 1 :])
    low, high = (binary(ast.Mult(), bound, ast.Constant(size)) for bound in (outer.low, outer.high))
    loops = (*copy.loops[:at], replace(outer, low=low, high=high), *copy.loops[at + 2 :])
    return _Copy(loops, _with(copy.store, lambda e: elements.get(e.array, e)), shapes, joined)


def _one_subscript(element: Element, axis: int, outer: For, inner: For, size: int) -> ast.expr | None:
    """x[…, 5 + m, n, …]  ->  5 * 3 + m for loops over m and n < 3; None if they do not go along the axes so."""
    before, here = element.subscripts[axis - 1 : axis + 1]
    is_inner = isinstance(here, ast.Name) and here.id == inner.variable
    if not is_inner or _axes(element, outer) != [axis - 1] or growth(before, outer) != 1:
        return None
    first = substituted(before, {outer.variable: ast.Constant(0)})
    return binary(ast.Add(), binary(ast.Mult(), first, ast.Constant(size)), ast.Name(outer.variable))


def _axes(element: Element, loop: For) -> list[int]:
    """The axes whose subscripts mention a loop's variable."""
    return [axis for axis, value in enumerate(element.subscripts) if mentions(value, loop.variable)]


def _with(store: Store, change: Callable[[Element], Element]) -> Store:
    reads: Sequence[Element] = [change(read) for read in store.reads]
    return replace(store, target=change(store.target), reads=tuple(reads))
