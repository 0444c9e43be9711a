"""Vector accesses: loops over contiguous elements load 16 bytes before the loop and store 16 bytes after it.

    for l (vector, of 4): z[4*j + l] = max(x[4*j + l] + b[j], 0)
    ->  x_lanes[0:4] = x[4*j : 4*j + 4]                                  copy_vector(4, x_lanes, 0, 1, x, 4*j)
        for l: z_lanes[l] = max(x_lanes[l] + b[j], 0)
        z[4*j : 4*j + 4] = z_lanes[0:4]                                  copy_vector(4, z, 4*j, 1, z_lanes, 0)

A thread's own arrays of four, which the compiler keeps in registers. Which accesses these are isl has proven
(polyfuse.analysis.vector_access). A loop that may be cut short, at the end of a row, asks first, and runs element by
element then.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from polyfuse.codegen.looptree.hardware_axes import AXES, axis_name
from polyfuse.codegen.looptree.index import beside, is_number, mentions
from polyfuse.codegen.looptree.nodes import (
    Allocate,
    Block,
    Element,
    For,
    Guard,
    Kernel,
    Node,
    Store,
    block,
    variables,
    with_below,
)
from polyfuse.codegen.looptree.operations import Neighbours, VectorCopy
from polyfuse.ir.scalar import Read

READ = Read("read0")


def with_wide_accesses(kernel: Kernel) -> Kernel:
    """The kernel with such loops taken apart, its own arrays declared before everything else."""
    taken = {*kernel.arrays, *kernel.sizes, *variables(kernel.body), *map(axis_name, AXES)}
    lanes = _OwnArrays(taken)
    body = _wide(kernel.body, lanes)
    return replace(kernel, body=block((*lanes.declared.values(), body)))


@dataclass
class _OwnArrays:
    """A thread's arrays, each for what is loaded or stored of one array of the kernel in one loop at a time."""

    taken: set[str]
    declared: dict[tuple[str, str, int, int], Allocate] = field(default_factory=dict)

    def of(self, purpose: str, element: Element, count: int, number: int) -> str:
        """The name of such an array: the `number`-th one of its kind."""
        key = (purpose + element.array, element.dtype, count, number)
        if key not in self.declared:
            stem, n = f"{element.array}_{purpose}", 2
            name = stem
            while name in self.taken:
                name, n = f"{stem}_{n}", n + 1
            self.taken.add(name)
            self.declared[key] = Allocate(name, (count,), element.dtype, "local")
        return self.declared[key].buffer


def _wide(node: Node, lanes: _OwnArrays) -> Node:
    match node:
        case Block(parts):
            return block(tuple(_wide(part, lanes) for part in parts))
        case For(bind="vector"):
            return _loop(node, lanes)
    return with_below(node, lambda part: _wide(part, lanes))


def _loop(loop: For, lanes: _OwnArrays) -> Node:
    """A vector loop; under the condition around all of its statements where there is one."""
    match loop.body:
        case Guard(condition, body, None) if not mentions(condition, loop.variable):
            return replace(loop.body, body=_loop(replace(loop, body=body), lanes))
    stores = loop.body.parts if isinstance(loop.body, Block) else (loop.body,)
    counts = set(_counts(stores))
    if len(counts) != 1 or not is_number(loop.low, 0) or loop.step != 1:
        return loop
    (count,) = counts
    if is_number(loop.high, count):
        return _apart(loop, stores, count, lanes)
    rest = beside(loop.high, "min", count)
    if ast.dump(rest) == ast.dump(loop.high):
        return loop  # nothing says that there are `count` values at most
    whole = _apart(replace(loop, high=ast.Constant(count)), stores, count, lanes)
    return Guard(ast.Compare(ast.Constant(count), [ast.LtE()], [rest]), whole, replace(loop, bind="unroll"))


def _counts(stores: tuple[Node, ...]) -> Iterator[int]:
    """The neighbours of an access of each store that has such."""
    for store in stores:
        match store:
            case Store(operation=Neighbours(count)):
                yield count


def _apart(loop: For, stores: tuple[Node, ...], count: int, lanes: _OwnArrays) -> Node:
    """Loads, the loop on a thread's own arrays, stores."""
    variable = loop.variable
    index = ast.Name(variable)
    held: dict[str, Element] = {}
    loads, inside, results = list[Node](), list[Node](), list[Node]()

    def copy(target: Element, source: Element) -> For:
        store = Store("", target, "=", READ, (source,), {}, VectorCopy(count, 1))
        return For(variable, ast.Constant(0), ast.Constant(count), 1, "vector", store)

    for node in stores:
        if not isinstance(node, Store) or not isinstance(node.operation, Neighbours):
            inside.append(node)
            continue
        reads = list(node.reads)
        for position in node.operation.reads:
            element = reads[position]
            key = _text(element)
            if key not in held:
                number = sum(known.startswith(f"{element.array}[") for known in held)
                own = Element(lanes.of("lanes", element, count, number), (index,), element.dtype)
                held[key] = own
                loads.append(copy(own, element))
            reads[position] = held[key]
        target = node.target
        if node.operation.written:
            target = Element(lanes.of("results", target, count, 0), (index,), target.dtype)
            if node.op != "=":  # what is added to comes first
                loads.append(copy(target, node.target))
            results.append(copy(node.target, target))
        inside.append(replace(node, target=target, reads=tuple(reads), operation=None))
    return block((*loads, replace(loop, bind="unroll", body=block(tuple(inside))), *results))


def _text(element: Element) -> str:
    return f"{element.array}[{', '.join(map(ast.unparse, element.subscripts))}]"
