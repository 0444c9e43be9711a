"""Statements that both branches of an `if` begin or end with are written once, before or behind it.

    if N == M:                                      v = empty((N, N + M))
        u = empty((N, N + N))                       for i in range(N): v[i, 0] = x[i]
        for i in range(N): u[i, 0] = x[i]           if N == M:
        for i in range(N): u[i, 1] = 1.0                for i in range(N): v[i, 1] = 1.0
        for i in range(N): y[i] = u[i, 1]   ->      else:
    else:                                               for i in range(M): v[i, 1] = z[i]
        v = empty((N, N + M))                       for i in range(M): y[i] = v[i, 1]
        for j in range(N): v[j, 0] = x[j]
        for j in range(M): v[j, 1] = z[j]
        for j in range(M): y[j] = v[j, 1]

Compilers know it as hoisting and cross-jumping. Two statements are the same but for the names that a branch makes for
itself, such as those of an inlined function, and for sizes that are equal where the test holds.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from polyfuse.frontend.python.numpy.syntax import linear, minus

Arrays = Mapping[str, ast.expr]
"""The call that makes each array: its shape and its type."""


@dataclass(frozen=True)
class Merged:
    """The statements before both branches, the branches, those behind them, and the names that were given up."""

    before: list[ast.stmt]
    bodies: list[list[ast.stmt]]
    behind: list[ast.stmt]
    renamed: Mapping[str, str]


def merged(
    test: ast.expr,
    bodies: Sequence[list[ast.stmt]],
    own: frozenset[str],
    sizes: frozenset[str],
    arrays: Arrays,
) -> Merged | None:
    """Write what two branches have in common once, in the names and sizes of the second; None if they have nothing.

    Args:
        test: the test, which no statement of the branches changes.
        bodies: the statements where the test holds, and where it does not.
        own: the names that one of the branches makes for itself, and nobody reads behind them.
        sizes: the names of sizes, which are integers.
        arrays: how the arrays of both branches are made.
    """
    then, other = bodies
    same = _Same(own, sizes | _indices_of([*then, *other]), _zero_where(test), arrays)
    shorter = min(map(len, bodies))
    first = last = 0
    while first < shorter and same.nodes(then[first], other[first]):
        first += 1
    while first + last < shorter and same.nodes(then[-1 - last], other[-1 - last]):
        last += 1
    if not first + last or not same.makes_alike():
        return None
    rest, ends = then[first : len(then) - last], len(other) - last
    kept = {part.id for node in rest for part in ast.walk(node) if isinstance(part, ast.Name)} - {*same.names}
    if not kept.isdisjoint(same.names.values()):
        return None
    renaming = _Renaming(same.names)
    rest = [renaming.visit(part) for part in rest]
    return Merged(other[:first], [rest, other[first:ends]], other[ends:], same.names)


def _zero_where(test: ast.expr) -> Mapping[str, int] | None:
    """Coefficients of a sum of sizes that is zero where a test holds; None if none is known."""
    match test:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            return _without_zeros(linear(minus(left, right)))
    return None


def _indices_of(body: Sequence[ast.stmt]) -> frozenset[str]:
    """The variables of the loops in some statements."""
    targets = (loop.target for part in body for loop in ast.walk(part) if isinstance(loop, ast.For))
    return frozenset(target.id for target in targets if isinstance(target, ast.Name))


def _without_zeros(found: Mapping[str, int] | None) -> dict[str, int] | None:
    return None if found is None else {key: value for key, value in found.items() if value}


@dataclass
class _Same:
    """A comparison of two branches; `names` are those of the first branch with those that the second has for them."""

    own: frozenset[str]
    integers: frozenset[str]
    zero: Mapping[str, int] | None
    arrays: Arrays
    names: dict[str, str] = field(default_factory=dict)

    def makes_alike(self) -> bool:
        """True if arrays of one name are made alike."""
        kinds = [(self.arrays.get(old), self.arrays.get(new)) for old, new in self.names.items()]
        return all(
            (one is None and two is None) or (one is not None and two is not None and self.nodes(one, two))
            for one, two in kinds
        )

    def nodes(self, left: object, right: object) -> bool:
        """True if two statements, or parts, are the same under the names so far and perhaps more; else these stay."""
        if isinstance(left, list) and isinstance(right, list):
            return len(left) == len(right) and all(map(self.nodes, left, right))
        if not isinstance(left, ast.AST) or not isinstance(right, ast.AST):
            return type(left) is type(right) and left == right
        before = dict(self.names)
        if isinstance(left, ast.Name) and isinstance(right, ast.Name) and self._name(left.id, right.id):
            return True
        same_kind = type(left) is type(right) and not isinstance(left, ast.Name)
        if same_kind and all(
            self.nodes(getattr(left, f, None), getattr(right, f, None)) for f in left._fields
        ):
            return True
        self.names = before
        return isinstance(left, ast.expr) and isinstance(right, ast.expr) and self._equal(left, right)

    def _name(self, left: str, right: str) -> bool:
        if left not in self.own or right not in self.own:
            return left == right
        if left not in self.names and right not in self.names.values():
            self.names[left] = right
        return self.names.get(left) == right

    def _equal(self, left: ast.expr, right: ast.expr) -> bool:
        """True if two sums of sizes and indices are equal where the test holds."""
        one, two = linear(left), linear(right)
        if one is None or two is None or not self.zero:
            return False
        if not {*one, *two} <= self.integers | {""}:
            return False  # sums of fractions depend on their order
        apart: dict[str, int] = dict(two)
        for key, value in one.items():
            known = self.names.get(key, key)
            apart[known] = apart.get(known, 0) - value
        left_over = _without_zeros(apart)
        assert left_over is not None
        if not left_over:
            return True
        key = next(iter(self.zero))
        times, rest = divmod(left_over.get(key, 0), self.zero[key])
        return not rest and left_over == {name: times * value for name, value in self.zero.items() if times}


class _Renaming(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        """The name that is kept."""
        return ast.copy_location(ast.Name(self.names.get(node.id, node.id), node.ctx), node)
