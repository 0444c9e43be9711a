"""Gathered rows: subscripts that are loads, hoisted out of inner loops.

    for i: for j: y[i, j] = w[int64(x[i]), j]
    ->  for i: { row = int64(x[i]); for j: y[i, j] = w[row, j] }

LLVM does not move the load itself: y might lie where x does. Without it the inner loop is not in vectors.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from polyfuse.codegen.looptree.index import mentions
from polyfuse.codegen.looptree.nodes import (
    Block,
    Element,
    For,
    Guard,
    Let,
    Node,
    Store,
    block,
    nodes_in,
    stores_in,
    surely_runs,
    variables,
    with_below,
)
from polyfuse.ir.expression import call
from polyfuse.ir.fresh_names import fresh


def chosen(index: str, subscripts: tuple[ast.expr, ...]) -> ast.expr:
    """The row that an element of an index chooses: int64(x[i, t])."""
    return call("int64", [ast.Subscript(ast.Name(index), ast.Tuple(list(subscripts)))])


def is_chosen(element: Element) -> bool:
    """True if an array of integers says where an element lies."""
    return any(isinstance(part, ast.Subscript) for value in element.subscripts for part in ast.walk(value))


def with_places(value: ast.expr, place: Callable[[Element], ast.expr]) -> ast.expr:
    """A subscript with the loads in it as a target writes them: int64(x[(i, t)])  ->  int64(x[i * 50 + t])."""
    match value:
        case ast.Subscript(value=ast.Name(id=array), slice=ast.Tuple(elts=subscripts)):
            return place(Element(array, tuple(subscripts), "int64"))
        case ast.BinOp(left=left, op=op, right=right):
            return ast.BinOp(with_places(left, place), op, with_places(right, place))
        case ast.Call(func=func, args=args):
            return ast.Call(func, [with_places(part, place) for part in args], [])
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return ast.IfExp(test, with_places(body, place), orelse)
    return value


def rows_named(node: Node, taken: set[str]) -> Node:
    """A kernel's body with a name for each row that a loop below does not change."""
    return _Naming({*taken, *variables(node)}).scope(node)


def names_of_rows(node: Node) -> frozenset[str]:
    """The variables that hold rows which data name, as `rows_named` made them."""
    lets = (each for each in nodes_in(node) if isinstance(each, Let))
    return frozenset(
        let.variable for let in lets if any(isinstance(part, ast.Subscript) for part in ast.walk(let.value))
    )


def reads_rows(node: Node, rows: frozenset[str]) -> bool:
    """True if a store inside reads an element of a row that one of these variables names."""
    subscripts = (value for store in stores_in(node) for read in store.reads for value in read.subscripts)
    return any(mentions(value, row) for value in subscripts for row in rows)


class _Naming:
    """Walks through scopes: the kernel, each loop's body, each side of a condition."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = taken

    def scope(self, node: Node) -> Node:
        """Rows that are the same in all of a scope come first in it; no load goes past a condition around it."""
        found: dict[str, Let] = {}
        body = self._inside(self._lifted(node, (), found))
        return block((*found.values(), body)) if found else body

    def _inside(self, node: Node) -> Node:
        match node:
            case Block(parts):
                return block(tuple(map(self._inside, parts)))
            case For() | Guard():
                return with_below(node, self.scope)
        return node

    def _lifted(self, node: Node, around: tuple[For, ...], found: dict[str, Let]) -> Node:
        match node:
            case Block(parts):
                return block(tuple(self._lifted(part, around, found) for part in parts))
            case For():
                return replace(node, body=self._lifted(node.body, (*around, node), found))
            case Store() if around:
                return replace(node, reads=tuple(self._named(read, around, found) for read in node.reads))
        return node

    def _named(self, element: Element, around: tuple[For, ...], found: dict[str, Let]) -> Element:
        return replace(
            element, subscripts=tuple(self._name(value, around, found) for value in element.subscripts)
        )

    def _name(self, value: ast.expr, around: tuple[For, ...], found: dict[str, Let]) -> ast.expr:
        """A name for a load that no loop around it changes, down from the scope; the load itself otherwise."""
        if not any(isinstance(part, ast.Subscript) for part in ast.walk(value)):
            return value
        bounds = [part for loop in around if not surely_runs(loop) for part in (loop.low, loop.high)]
        if any(mentions(part, loop.variable) for part in (value, *bounds) for loop in around):
            return value
        runs: list[ast.expr] = [
            ast.Compare(x.low, [ast.Lt()], [x.high]) for x in around if not surely_runs(x)
        ]
        if runs:  # where nothing below runs, there may be no such index
            value = ast.IfExp(
                runs[0] if len(runs) == 1 else ast.BoolOp(ast.And(), runs), value, ast.Constant(0)
            )
        key = ast.dump(value)
        if key not in found:
            found[key] = Let(fresh("row", self.taken), value)
            self.taken.add(found[key].variable)
        return ast.Name(found[key].variable)
