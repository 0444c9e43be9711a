"""Bodies as Python source for numba: typed literals, NaN-keeping max and min, shared subexpressions named once."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping

import sympy

from polyfuse.codegen.halves import FROM, ROUND_TF32, TO
from polyfuse.codegen.looptree import Element, Store
from polyfuse.codegen.sums import IN_ANY_ORDER
from polyfuse.ir.expression import Dialect, call, to_ast
from polyfuse.ir.scalar import Read
from polyfuse.ir.tensor import computed_in

Place = Callable[[Element], ast.expr]
"""How a target writes an element of an array."""


class Values:
    """The lines of source for one store. `prelude` collects `value0 = …` lines that must come before it.

    `functions` says what a body's functions are called; those it does not name are Python's `math`.
    """

    def __init__(self, store: Store, place: Place, functions: Mapping[str, str] | None = None) -> None:
        self.store, self.place, self.functions = store, place, functions or {}
        self.dtype = computed_in(store.target.dtype)
        self.prelude: list[str] = []

    def lines(self) -> list[str]:
        """The assignment, with the temporaries it needs."""
        bits = self._bits()
        if bits is not None:
            return [f"{ast.unparse(self.place(self.store.target))} = {ast.unparse(bits)}"]
        target, value, op = self.place(self.store.target), self._value(), self.store.op
        if self.store.target.dtype in TO:
            value = call(TO[self.store.target.dtype], [value])
        if op in ("max=", "min="):
            value, op = self._call(op.removesuffix("="), [target, value]), "="
        return [*self.prelude, f"{ast.unparse(target)} {op} {ast.unparse(value)}"]

    def _bits(self) -> ast.expr | None:
        """The element that is copied to another half of its type, bit for bit; None where a number is computed."""
        if self.store.op != "=" or not isinstance(self.store.body, Read):
            return None
        element = self.store.reads[self.store.body.position]
        dtype = self.store.target.dtype
        return self.place(element) if dtype in TO and element.dtype == dtype else None

    def in_any_order(self) -> list[str]:
        """A reduction's assignment, with an operation that may be reordered: `m = max_any_order(m, x)`."""
        if not self.dtype.startswith("float"):
            return self.lines()  # integers may be reordered as they are
        target = self.place(self.store.target)
        combined = call(IN_ANY_ORDER[self.store.op], [target, self._value()])
        return [*self.prelude, f"{ast.unparse(target)} = {ast.unparse(combined)}"]

    def _value(self) -> ast.expr:
        return to_ast(self.store.body, Dialect(self._leaf, self._number, self._call))

    def _leaf(self, symbol: sympy.Symbol) -> ast.expr:
        if isinstance(symbol, Read):
            element = self.store.reads[symbol.position]
            place = self.place(element)
            return call(FROM[element.dtype], [place]) if element.dtype in FROM else place
        index = self.store.indices.get(symbol.name, ast.Name(symbol.name))
        return call(self.dtype, [index]) if self.dtype.startswith("float") else index

    def _number(self, value: float) -> ast.expr:
        if not self.dtype.startswith("float"):
            return ast.Constant(value)
        literal: ast.expr = ast.Constant(float(value))
        if math.isinf(value):
            inf = ast.Attribute(ast.Name("math"), "inf")
            literal = inf if value > 0 else ast.UnaryOp(ast.USub(), inf)
        return call(self.dtype, [literal])

    def _call(self, name: str, args: list[ast.expr]) -> ast.expr:
        match name:
            case "max" | "min":
                return self._extremum(name, *(self._simple(arg) for arg in args))
            case "where":
                return ast.IfExp(*args)
            case "tf32":
                return call(ROUND_TF32, args)
            case "abs":
                return call("abs" if not self.dtype.startswith("float") else "math.fabs", args)
            case "pow" if _literal(args[1]) == 2:
                base = self._simple(args[0])
                return ast.BinOp(base, ast.Mult(), base)
        return call(self.functions.get(name, f"math.{name}"), args)

    def _extremum(self, name: str, a: ast.expr, b: ast.expr) -> ast.expr:
        """max(a, b): `b if a <= b else a`. A NaN in a falls through; one in b is asked for unless b is a number."""
        if _literal(a) is not None and _literal(b) is None:
            a, b = b, a
        order: ast.cmpop = ast.LtE() if name == "max" else ast.GtE()
        takes_b: ast.expr = ast.Compare(a, [order], [b])
        if _literal(b) is None:
            takes_b = ast.BoolOp(ast.Or(), [takes_b, ast.Compare(b, [ast.NotEq()], [b])])
        return ast.IfExp(takes_b, b, a)

    def _simple(self, node: ast.expr) -> ast.expr:
        """A node that may be written twice: names, elements and numbers stand as they are, the rest gets a name."""
        if isinstance(node, ast.Name | ast.Subscript) or _literal(node) is not None:
            return node
        name = f"value{len(self.prelude)}"
        self.prelude.append(f"{name} = {ast.unparse(node)}")
        return ast.Name(name)


def _literal(node: ast.expr) -> float | None:
    """The number in `float32(0.5)` or `3`; None if the node is not one."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id.startswith(("float", "int"))
    ):
        return _literal(node.args[0])
    if isinstance(node, ast.Attribute) and node.attr == "inf":
        return math.inf
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _literal(node.operand)
        return None if inner is None else -inner
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int | float) else None
