"""Make the members of a batch that a kernel works on arguments, so that one function serves all of them.

    relu:   for j in range(0, 64): a[0, j] = max(z[0, j], 0)
    relu_1: for j in range(0, 64): a[1, j] = max(z[1, j], 0)
    ->  relu(z, a, member):  for j in range(0, 64): a[member, j] = max(z[member, j], 0)

Ten networks that are trained at once have ten kernels for each layer: the sums of all ten stand in one array, each in
its own place. A first subscript becomes an argument where an array has the same known one in all of a kernel. It is
constant in every loop, so that LLVM moves its product with a row's distance out of them.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace

from polyfuse.codegen.looptree.index import mentions
from polyfuse.codegen.looptree.nodes import (
    Allocate,
    Block,
    Element,
    For,
    Guard,
    Kernel,
    Let,
    Node,
    Store,
    nodes_in,
    variables,
    with_below,
)
from polyfuse.ir.fresh_names import fresh


@dataclass(frozen=True)
class Members:
    """A kernel in which members of batches have names, and the numbers that stood there."""

    kernel: Kernel
    values: tuple[int, ...]


def with_members_as_arguments(kernel: Kernel) -> Members:
    """Return a kernel with an argument for each member of a batch, or as it is where it has none."""
    members = _members(kernel)
    taken = {*kernel.arrays, *kernel.sizes, *variables(kernel.body)}
    names: dict[int, str] = {}
    for value in dict.fromkeys(members.values()):
        names[value] = fresh("member", taken)
        taken.add(names[value])
    named = {array: ast.Name(names[value]) for array, value in members.items()}
    sizes = *kernel.sizes, *names.values()
    return Members(replace(kernel, body=_with(kernel.body, named), sizes=sizes), tuple(names))


def _members(kernel: Kernel) -> dict[str, int]:
    """The first subscript of each array that has one alone, in order of appearance."""
    nodes = list(nodes_in(kernel.body))
    if any(_is_opaque(node) for node in nodes):
        return {}
    firsts: dict[str, set[str]] = {}
    for element in (element for node in nodes for element in _elements(node)):
        if element.subscripts:
            firsts.setdefault(element.array, set()).add(ast.unparse(element.subscripts[0]))
    expressions = [expression for node in nodes for expression in _expressions(node)]
    return {
        array: int(first)
        for array, (first, *others) in firsts.items()
        if not others
        and first.isdigit()
        and array in kernel.arrays
        and kernel.arrays[array].shape[0] != 1
        and not any(mentions(expression, array) for expression in expressions)
    }


def _is_opaque(node: Node) -> bool:
    """True if a node names arrays in its own way, as those of GPUs do."""
    return not isinstance(node, Allocate | Block | For | Guard | Let | Store) or (
        isinstance(node, Store) and node.operation is not None
    )


def _elements(node: Node) -> list[Element]:
    match node:
        case Store():
            return [node.target, *node.reads]
        case For():
            return [element for element, _ in node.ahead]
    return []


def _expressions(node: Node) -> list[ast.expr]:
    """The index expressions of a node itself."""
    subscripts = [index for element in _elements(node) for index in element.subscripts]
    match node:
        case Store():
            return [*subscripts, *node.indices.values()]
        case For():
            return [*subscripts, node.low, node.high]
        case Guard():
            return [node.condition]
        case Let():
            return [node.value]
    return subscripts


def _with(node: Node, named: Mapping[str, ast.expr]) -> Node:
    """A node in which the first subscripts of some arrays are others."""

    def of(element: Element) -> Element:
        first = named.get(element.array)
        return element if first is None else replace(element, subscripts=(first, *element.subscripts[1:]))

    inside = with_below(node, lambda each: _with(each, named))
    match inside:
        case Store():
            return replace(inside, target=of(inside.target), reads=tuple(map(of, inside.reads)))
        case For():
            return replace(inside, ahead=tuple((of(element), kept) for element, kept in inside.ahead))
    return inside
