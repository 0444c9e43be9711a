"""Treat two neighbouring axes of an array as one, along which a loop over both moves.

    for c in range(784): s += x[i, c // 28, c % 28]
    ->  x_rows = joined(x, 1)
        for c in range(784): s += x_rows[i, c]             x has the shape (32, 28, 28), x_rows (32, 784)

In C order the element (a, b) of axes of m and n lies where the element n * a + b of one axis of m * n does. Where a and
b are quotient and remainder by n of one number, that number is the place, in vectors along the loop.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from polyfuse.codegen.array_fields import ADDRESS, SHAPE, STRIDES, array_of, parts_of
from polyfuse.codegen.looptree.gather_rows import is_chosen
from polyfuse.codegen.looptree.index import flat
from polyfuse.codegen.looptree.nodes import (
    Allocate,
    Element,
    For,
    Guard,
    Kernel,
    Let,
    Node,
    Store,
    nodes_in,
    stores_in,
    variables,
    with_below,
)
from polyfuse.ir.fresh_names import fresh


@dataclass(frozen=True)
class Joined:
    """An array with an axis and the next one as one, by a name of its own."""

    name: str
    array: str
    axis: int


def with_joined_axes(kernel: Kernel) -> tuple[Kernel, tuple[Joined, ...]]:
    """The kernel with elements of arrays with fewer axes, where these need fewer quotients; and those arrays.

    An array that the kernel writes is one or the other for all of its elements: by two names, a store would not be seen
    to meet a load. A buffer of the kernel's own has fewer axes from the beginning.
    """
    found: list[Joined] = []
    body = _with_fewer_axes(kernel.body)
    taken = {*kernel.arrays, *kernel.sizes, *variables(body)}
    shapes = {name: tensor.shape for name, tensor in kernel.arrays.items()}
    choosing = _choosing(body)
    elements = _elements(body)
    moved: dict[str, Moved] = {}
    asked = [name for name in shapes if name in elements and name not in choosing]
    for array in asked:
        for axis in range(len(shapes[array]) - 1):
            inner = shapes[array][axis + 1]
            if not isinstance(inner, int):
                continue
            places = _changed(elements[array], axis, inner)
            if places is None:
                continue
            one = Joined(fresh(f"{array}_rows", taken), array, axis)
            taken.add(one.name)
            found.append(one)
            moved[array] = Moved(one.name, places)
            elements[one.name] = elements[array].moved(moved[array])
            outer = shapes[array][axis]
            both = outer * inner if isinstance(outer, int) else outer  # not known, as it was
            shapes[one.name] = (*shapes[array][:axis], both, *shapes[array][axis + 2 :])
            asked.append(one.name)
            break
    return replace(kernel, body=_with(body, moved) if moved else body), tuple(found)


def _with_fewer_axes(body: Node) -> Node:
    """The node with neighbouring axes of its buffers as one, where their elements need fewer quotients then."""
    made = {(node.buffer, node.shape) for node in nodes_in(body) if isinstance(node, Allocate)}
    if not made:
        return body
    shapes = dict(sorted(made))
    several = Counter(name for name, _ in made)
    elements, choosing = _elements(body), _choosing(body)
    asked = [name for name in shapes if name in elements and name not in choosing and several[name] == 1]
    less: dict[str, tuple[int, ...]] = {}
    for name in asked:
        shape = less.get(name, shapes[name])
        for axis, inner in enumerate(shape[1:]):
            places = _changed(elements[name], axis, inner)
            if places is None:
                continue
            moved = Moved(name, places)
            elements[name] = elements[name].moved(moved)
            less[name] = (*shape[:axis], shape[axis] * inner, *shape[axis + 2 :])
            body = _with(body, {name: moved})
            asked.append(name)
            break
    return _in_shapes(body, less) if less else body


def _in_shapes(node: Node, shapes: Mapping[str, tuple[int, ...]]) -> Node:
    """The node with some of its buffers in these shapes."""
    if isinstance(node, Allocate):
        return replace(node, shape=shapes.get(node.buffer, node.shape))
    return with_below(node, lambda part: _in_shapes(part, shapes))


Places = dict[tuple[str, ...], tuple[ast.expr, ...]]
"""Subscripts, as text, and what they become."""


@dataclass(frozen=True)
class Moved:
    """An array's elements with two axes as one: the array's new name, and the subscripts of those that have it."""

    name: str
    places: Places

    def of(self, element: Element) -> Element | None:
        """The element by the new name; None if it keeps the old one."""
        here = self.places.get(_text(element))
        return None if here is None else replace(element, array=self.name, subscripts=here)


@dataclass(frozen=True)
class Elements:
    """All elements of an array that a kernel reads, writes or prefetches, and whether it writes the array."""

    every: tuple[Element, ...]
    written: bool

    def moved(self, by: Moved) -> Elements:
        """Return the elements that the new name has, by their new subscripts."""
        return Elements(tuple(one for each in self.every if (one := by.of(each)) is not None), self.written)


def _elements(body: Node) -> dict[str, Elements]:
    """The elements of each array, found in one walk: a region of 400 kernels has as many arrays."""
    stores = list(stores_in(body))
    found: dict[str, list[Element]] = {}
    ahead = (element for loop in _loops(body) for element, _ in loop.ahead)
    for element in chain((e for store in stores for e in (store.target, *store.reads)), ahead):
        found.setdefault(element.array, []).append(element)
    written = {store.target.array for store in stores}
    return {array: Elements(tuple(every), array in written) for array, every in found.items()}


def _changed(elements: Elements, axis: int, size: int) -> Places | None:
    """The subscripts of an array's elements with two axes as one, where that is better; None if it is so nowhere."""
    if not any(_quotients(value) for e in elements.every for value in e.subscripts[axis : axis + 2]):
        return None
    if any(is_chosen(element) for element in elements.every):
        return None
    better: Places = {}
    improved = False
    for element in elements.every:
        outer, inner = element.subscripts[axis : axis + 2]
        one = flat(outer, inner, size)
        fewer = _quotients(one) < _quotients(outer) + _quotients(inner)
        if fewer or elements.written:
            better[_text(element)] = (*element.subscripts[:axis], one, *element.subscripts[axis + 2 :])
        improved |= fewer
    return better if improved else None


def _with(node: Node, moved: Mapping[str, Moved]) -> Node:
    """The node with arrays' elements by their last names."""

    def one(element: Element) -> Element:
        other = moved[element.array].of(element) if element.array in moved else None
        return element if other is None else one(other)

    def called(array: str) -> str:
        while array in moved and moved[array].name != array:  # a buffer keeps its name
            array = moved[array].name
        return array

    node = with_below(node, lambda part: _with(part, moved))
    match node:
        case For():
            streams = tuple(map(called, node.streams))
            return replace(node, ahead=tuple((one(e), written) for e, written in node.ahead), streams=streams)
        case Store():
            return replace(node, target=one(node.target), reads=tuple(map(one, node.reads)))
    return node


def _loops(node: Node) -> Iterator[For]:
    return (each for each in nodes_in(node) if isinstance(each, For))


def _choosing(node: Node) -> set[str]:
    """The arrays whose elements say where others lie, or how far a loop goes."""
    values = [value for loop in _loops(node) for value in (loop.low, loop.high)]
    values += [each.value for each in nodes_in(node) if isinstance(each, Let)]
    values += [each.condition for each in nodes_in(node) if isinstance(each, Guard)]
    values += [
        value for store in stores_in(node) for e in (store.target, *store.reads) for value in e.subscripts
    ]
    parts = (part for value in values for part in ast.walk(value) if isinstance(part, ast.Subscript))
    return {part.value.id for part in parts if isinstance(part.value, ast.Name)}


def _text(element: Element) -> tuple[str, ...]:
    return tuple(map(ast.unparse, element.subscripts))


def _quotients(value: ast.expr) -> int:
    """How many quotients and remainders an index has."""
    return sum(isinstance(part, ast.FloorDiv | ast.Mod) for part in ast.walk(value))


@intrinsic(prefer_literal=True)
def joined(typingctx: Any, array: Any, axis: Any) -> Any:
    """A C-contiguous array with an axis and the next one as one; the same memory."""
    if not (
        isinstance(array, types.Array) and array.layout == "C" and isinstance(axis, types.IntegerLiteral)
    ):
        return None
    first = axis.literal_value
    kind = types.Array(array.dtype, array.ndim - 1, "C", readonly=not array.mutable)

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        shape, strides = (parts_of(builder, args[0], field, array.ndim) for field in (SHAPE, STRIDES))
        shape[first : first + 2] = [builder.mul(shape[first], shape[first + 1])]
        del strides[first]
        return array_of(context, builder, kind, builder.extract_value(args[0], ADDRESS), shape, strides)

    return kind(array, axis), code
