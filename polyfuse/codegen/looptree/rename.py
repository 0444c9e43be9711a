"""Loop trees by other names: for k: y[k] += x[k]  ->  for k: y_2[k] += a[k]  with {"y": "y_2", "x": "a"}."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping
from dataclasses import replace

from polyfuse.codegen.looptree.nodes import (
    Allocate,
    Element,
    For,
    Guard,
    Lanes,
    Let,
    Node,
    PaddedCopy,
    Store,
    with_below,
)

Names = Mapping[str, str]


def renamed(node: Node, names: Names, statements: Names) -> Node:
    """The node with other names for its arrays, buffers and variables, and for its statements; the others are kept."""

    def one(node: Node) -> Node:
        node = with_below(node, one)
        match node:
            case For():
                return replace(
                    node,
                    variable=names.get(node.variable, node.variable),
                    low=_value(node.low, names),
                    high=_value(node.high, names),
                    ahead=tuple((_element(each, names), written) for each, written in node.ahead),
                    streams=tuple(names.get(each, each) for each in node.streams),
                )
            case Guard():
                return replace(node, condition=_value(node.condition, names))
            case Allocate():
                return replace(node, buffer=names.get(node.buffer, node.buffer))
            case Let(variable, value):
                return Let(names.get(variable, variable), _value(value, names))
            case Lanes():
                total = _store(node.total, names, statements)
                when = tuple(_value(each, names) for each in node.when)
                return replace(node, partial=_element(node.partial, names), total=total, when=when)
            case Store():
                return _store(node, names, statements)
        return node

    return one(node)


def _store(store: Store, names: Names, statements: Names) -> Store:
    operation = store.operation
    if isinstance(operation, PaddedCopy):
        operation = replace(operation, here=_value(operation.here, names))
    return replace(
        store,
        statement=statements.get(store.statement, store.statement),
        target=_element(store.target, names),
        reads=tuple(_element(read, names) for read in store.reads),
        indices={name: _value(value, names) for name, value in store.indices.items()},
        operation=operation,
    )


def _element(element: Element, names: Names) -> Element:
    subscripts = tuple(_value(each, names) for each in element.subscripts)
    return replace(element, array=names.get(element.array, element.array), subscripts=subscripts)


def _value(value: ast.expr, names: Names) -> ast.expr:
    found = copy.deepcopy(value)
    for node in ast.walk(found):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
    return found
