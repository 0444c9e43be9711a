"""Count a loop over the elements of a reshaped array by the digits of their position, where it is read by these.

for p in range(1024): y[p] = x[p // 256, p // 32 % 8, p % 32]
->  for a in range(4): for b in range(8): for c in range(32): y[256 * a + 32 * b + c] = x[a, b, c]

The theorem. For l | h | n the numbers p of range(n) are the sums of l * (p // l % (h // l)) over the pairs l, h of
neighbours in a chain 1 | … | n, one for each combination of digits, and in the order of these combinations. So the
statement runs for the same positions in the same order, and a quotient or a remainder is a sum of digits.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import chain, pairwise

from polyfuse.frontend.python.numpy.program import Program
from polyfuse.frontend.python.numpy.syntax import constant, name, number, plus, times

Digits = tuple[int, int]
"""The digits from l to h of a position p: p // l % (h // l)."""


Loops = Sequence[tuple[str, ast.expr]]
"""The index and the extent of each loop, outermost first."""


def by_digits(
    program: Program, loops: Loops, read: Sequence[ast.expr]
) -> tuple[list[tuple[str, ast.expr]], list[ast.expr]]:
    """Return loops over the digits of positions that expressions read by these alone, and the expressions so.

    Args:
        program: The program under construction, which names the loops.
        loops: The loops over positions.
        read: What reads their indices.
    """
    known = {index: size for index, extent in loops if (size := constant(extent)) is not None}
    steps = {index: found for index, size in known.items() if (found := _steps(index, size, read))}
    if not steps:
        return list(loops), list(read)
    made: list[tuple[str, ast.expr]] = []
    digits: dict[str, list[tuple[ast.expr, int]]] = {}
    for index, extent in loops:
        size = known.get(index, 0)
        own = digits[index] = []
        for high, step in pairwise((size, *steps.get(index, (1,)))):
            made.append((program.index(f"i{len(made)}"), number(high // step) if index in steps else extent))
            own.append((name(made[-1][0]), step))
    summed = _Summed(known, digits)
    return made, [summed.expression(deepcopy(node)) for node in read]


def _steps(index: str, size: int, read: Sequence[ast.expr]) -> tuple[int, ...]:
    """The positions from one value of each digit to the next, the last 1; none where an index is read otherwise."""
    found = {1, size}
    for part in chain.from_iterable(map(ast.walk, read)):
        match part:
            case ast.BinOp(op=ast.FloorDiv() | ast.Mod()) if _reads(part, index):
                digits = _digits(part, index, size)
                if digits is None:
                    return ()
                found.update(digits)
    ends = sorted(found)
    if len(ends) == 2 or any(high % low for low, high in pairwise(ends)):
        return ()
    return tuple(reversed(ends[:-1]))


class _Summed(ast.NodeTransformer):
    """Writes indices as sums of digits, each of which is the index of a loop of its own."""

    def __init__(
        self, sizes: Mapping[str, int], digits: Mapping[str, Sequence[tuple[ast.expr, int]]]
    ) -> None:
        self.sizes, self.digits = sizes, digits
        self.made: dict[int, tuple[ast.AST, ast.AST]] = {}

    def expression(self, node: ast.expr) -> ast.expr:
        """The expression with sums."""
        made = self.visit(node)
        assert isinstance(made, ast.expr), "an expression stays one"
        return made

    def visit(self, node: ast.AST) -> ast.AST:
        # an expression stands in several places as one node, whose indices are written once
        if id(node) not in self.made:
            found: ast.AST = super().visit(node)
            self.made[id(node)] = node, found
        return self.made[id(node)][1]

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        for index, size in self.sizes.items():
            found = _digits(node, index, size)
            if found is not None:
                return self._sum(index, *found)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._sum(node.id, 1, None) if node.id in self.digits else node

    def _sum(self, index: str, low: int, high: int | None) -> ast.expr:
        made: ast.expr = number(0)
        for digit, step in self.digits[index]:
            if low <= step and (high is None or step < high):
                made = plus(made, times(number(step // low), digit))
        return made


def _digits(node: ast.expr, index: str, size: int) -> Digits | None:
    """Which digits of an index below `size` an expression is; None for others."""
    match node:
        case ast.Name(id=variable) if variable == index:
            return 1, size
        case ast.BinOp(left=left, op=ast.FloorDiv() | ast.Mod(), right=right):
            inner, by = _digits(left, index, size), constant(right)
            if inner is None or by is None or by < 1:
                return None
            low, high = inner
            if isinstance(node.op, ast.FloorDiv):
                return (low * by, high) if high % (low * by) == 0 else None
            return (low, low * by) if high % (low * by) == 0 else None
    return None


def _reads(node: ast.expr, index: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == index for part in ast.walk(node))
