"""Replace integer variables that are affine in sizes and indices by their value.

    ip = i + 1                                 ->   A[i + 1] = A[i + 1] + i      (no statement is left of ip)
    A[ip] = A[ip] + i

    if i == 0: left = N - 1                    ->   A[N - 1 if i == 0 else i - 1]
    else:      left = i - 1
    A[left]

A variable has a value from its assignment to the end of the body it is assigned in. A loop that assigns it takes the
value away, in the loop and behind it: there it is another one in every iteration.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)


@dataclass(frozen=True)
class Aliases:
    """The variables whose value is known here, as expressions in sizes and the indices of the loops around."""

    known: Mapping[str, ast.expr] = field(default_factory=dict)

    def written_out(self, node: Node) -> Node:
        """The same syntax with values in the place of the variables that it reads."""
        if not self.known:
            return node
        done: Node = _Substitute(self.known).visit(deepcopy(node))
        return done

    def having(self, name: str, value: ast.expr) -> Aliases:
        """Return the aliases with the value of one more variable; `value` is already expanded."""
        return Aliases({**self.known, name: value})

    def without(self, names: Iterable[str]) -> Aliases:
        """Return the aliases without the variables that may have changed."""
        gone = frozenset(names)
        return Aliases({name: value for name, value in self.known.items() if name not in gone})

    def after_branches(
        self, test: ast.expr, then: Aliases, other: Aliases, changed: Iterable[str]
    ) -> Aliases:
        """Behind `if test: … else: …`, of which `then` and `other` are the ends: what both know is known."""
        joined = self.without(changed)
        for name in changed:
            if name in then.known and name in other.known:
                value = ast.IfExp(test, then.known[name], other.known[name])
                joined = joined.having(name, ast.copy_location(value, test))
        return joined


class _Substitute(ast.NodeTransformer):
    def __init__(self, known: Mapping[str, ast.expr]) -> None:
        self.known = known

    def visit_Name(self, node: ast.Name) -> ast.expr:
        known = self.known.get(node.id) if isinstance(node.ctx, ast.Load) else None
        return node if known is None else known


def assigned_in(body: Iterable[ast.AST]) -> tuple[str, ...]:
    """The variables that some statements assign, in order.

    >>> assigned_in(ast.parse("x[i] = 1; b = 2; a += b").body)
    ('b', 'a')
    """
    found: dict[str, None] = {}
    for part in body:
        for node in ast.walk(part):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.setdefault(node.id)
    return tuple(found)


def stored_arrays(tree: ast.AST) -> set[str]:
    """The arrays to whose elements a tree stores.

    >>> sorted(stored_arrays(ast.parse("x[i] = a[i]; y[i][j] += 1; b = 2")))
    ['x', 'y']
    """
    found = set()
    for part in ast.walk(tree):
        if isinstance(part, ast.Subscript) and isinstance(part.ctx, ast.Store):
            inner: ast.expr = part
            while isinstance(inner, ast.Subscript):
                inner = inner.value
            if isinstance(inner, ast.Name):
                found.add(inner.id)
    return found


def occurrences(body: Iterable[ast.AST], name: str) -> int:
    """Count the occurrences of a name in some statements."""
    return sum(isinstance(node, ast.Name) and node.id == name for part in body for node in ast.walk(part))


def used_as_sizes(tree: ast.AST, direct: frozenset[str]) -> frozenset[str]:
    """The names in `direct`, and those that variables of these names are computed from.

    >>> sorted(used_as_sizes(ast.parse("m = n - 1; k = m; x = y"), frozenset({"k"})))
    ['k', 'm', 'n']
    """
    found = direct
    while True:
        more = frozenset(
            inner.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value is not None
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name) and target.id in found
            for inner in ast.walk(node.value)
            if isinstance(inner, ast.Name)
        )
        if more <= found:
            return found
        found |= more
