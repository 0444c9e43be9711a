"""Bodies as Python source for numba: NumPy's types, NaN-keeping max and min, shared subexpressions named once."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Mapping

import sympy

from polyfuse.codegen.looptree.half_types import FROM, ROUND_TF32, TO
from polyfuse.codegen.looptree.nodes import Element, Store
from polyfuse.ir.expression import Dialect, call, to_ast
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.number_types import NUMBER_TYPES, Type, computed_in, is_integer, is_number, is_real, joined
from polyfuse.ir.scalar import AsType, Read, leaf_types, type_of

IN_PLACE: Mapping[str, ast.operator] = {"+=": ast.Add(), "*=": ast.Mult()}
"""The operation that an assignment in place stands for."""

BITS = 64
"""The bits in which numba computes integers."""

_SIGNED: Mapping[type[ast.operator], str] = {
    ast.FloorDiv: "0 if {b} == 0 else -int64({a}) if {b} == -1 else int64({a}) // (1 if {b} == 0 else {b})",
    ast.Mod: "0 if {b} == 0 or {b} == -1 else {a} % (1 if {b} == 0 or {b} == -1 else {b})",
    ast.LShift: "{a} << {b} if 0 <= {b} and {b} < 64 else 0",
    ast.RShift: "{a} >> ({b} if 0 <= {b} and {b} < 64 else 63)",
    ast.Pow: "{a} ** ({b} if {b} >= 0 else 0) if {b} >= 0 or {a} == 1 else "
    "((1 if {b} % 2 == 0 else -1) if {a} == -1 else 0)",
}
_UNSIGNED: Mapping[type[ast.operator], str] = {
    ast.FloorDiv: "uint64(0) if {b} == 0 else {a} // (uint64(1) if {b} == 0 else uint64({b}))",
    ast.Mod: "uint64(0) if {b} == 0 else {a} % (uint64(1) if {b} == 0 else uint64({b}))",
    ast.LShift: "{a} << {b} if {b} < 64 else uint64(0)",
    ast.RShift: "{a} >> {b} if {b} < 64 else uint64(0)",
}
"""Operations on integers whose second operand could be any; in lock-step both sides of a choice are computed."""

_TURNED = "({m} < {zero} and {b} > {zero} or {m} > {zero} and {b} < {zero})"
_FLOAT_MOD = (
    f"{{m}} + {{b}} if {_TURNED} else "
    "({zero} if {b} > {zero} else -{zero}) if {m} == {zero} else {m}"
)
_FLOAT_QUOTIENT = f"({{a}} - {{m}}) / {{b}} - {{one}} if {_TURNED} else ({{a}} - {{m}}) / {{b}}"
_FLOAT_FLOOR = (
    "{a} / {b} if {b} == {zero} else {a} / {b} * {zero} if {q} == {zero} else "
    "{f} + {one} if {q} - {f} > {half} else {f}"
)
"""// and % of floats after NumPy's npy_divmod: m is C's remainder, which is exact, q the quotient without it, turned to
the side of b's sign, and f is q rounded down. A remainder of 0 has b's sign, a quotient of 0 that of a / b.
"""

PRELUDE = re.compile(r"value\d+")
"""The names that `Values` gives to parts of a body that are used twice: per statement, of any type."""


def own_name(element: Element, taken: Iterable[str]) -> str:
    """A name for an element: its array's, if that is neither taken nor what a part of a body is called."""
    name = f"{element.array}_row" if PRELUDE.fullmatch(element.array) else element.array
    return fresh(name, set(taken))


Place = Callable[[Element], ast.expr]
"""A function that prints an array's element for a target."""


class Values:
    """The lines of source for one store. `prelude` collects `value0 = …` lines that must come before it.

    Elements that a choice is between are read before it where many are stored `at_once`: on vector lanes there are no
    branches, and for one with a load in it LLVM has a mask at best. a[i] if x[i] > 0 else b[i] of 160,000 numbers took
    56 µs and takes 21, a longest common subsequence on diagonals 450 and 191 (one Zen 5 core).

    `functions` says what a body's functions of floating-point numbers are called; those it does not name are Python's
    `math`, and comparisons are a maximum.
    """

    def __init__(
        self, store: Store, place: Place, functions: Mapping[str, str] | None = None, at_once: bool = False
    ) -> None:
        self.store, self.place, self.functions, self.at_once = store, place, functions or {}, at_once
        self.dtype = computed_in(store.target.dtype)
        reads = [read.dtype for read in store.reads]
        alike = {self.dtype, *map(computed_in, reads)} in ({"float32"}, {"float64"})
        self.alike = alike and not store.body.has(AsType)
        self.leaf_type = leaf_types(store.target.dtype, reads)
        self.types: dict[sympy.Basic, Type] = {}
        self.prelude: dict[str, str] = {}

    def lines(self) -> list[str]:
        """The assignment, with the temporaries it needs."""
        bits = self._bits()
        if bits is not None:
            return [f"{ast.unparse(self.place(self.store.target))} = {ast.unparse(bits)}"]
        target, value, op = self.place(self.store.target), self._value(), self.store.op
        dtype = self._type_of(self.store.body)
        if op in ("max=", "min="):
            held = _value_of(target, self.store.target.dtype)
            both = joined([self.dtype, dtype])
            operands = [_converted(held, self.dtype, both), _converted(value, dtype, both)]
            value, op, dtype = self._call(op.removesuffix("="), operands, both), "=", both
        elif op in IN_PLACE:
            value = _operand(value, dtype, joined([self.dtype, dtype]))
        if self.dtype == "bool":
            value = call("uint8", [_cast(value, dtype, "bool")])
        elif self.store.target.dtype in TO:
            value = call(TO[self.store.target.dtype], [value])
        elif not self.store.target.subscripts:
            op, value = self._for_variable(target, op, value, dtype)
        return [*self._before(), f"{ast.unparse(target)} {op} {ast.unparse(value)}"]

    def _for_variable(self, target: ast.expr, op: str, value: ast.expr, dtype: Type) -> tuple[str, ast.expr]:
        """An assignment to a name, which takes whatever type it is given where an array keeps its own."""
        if op in IN_PLACE:
            changed = _wraps(self.dtype) or joined([self.dtype, dtype]) != self.dtype
            return (
                ("=", call(self.dtype, [ast.BinOp(target, IN_PLACE[op], value)])) if changed else (op, value)
            )
        return op, _converted(value, dtype, self.dtype)

    def _before(self) -> list[str]:
        return [f"{name} = {text}" for text, name in self.prelude.items()]

    def _bits(self) -> ast.expr | None:
        """The element that is copied to another half of its type, bit for bit; None if a number is computed."""
        if self.store.op != "=" or not isinstance(self.store.body, Read):
            return None
        element = self.store.reads[self.store.body.position]
        dtype = self.store.target.dtype
        return (
            self.place(element) if NUMBER_TYPES[dtype].held_as != dtype and element.dtype == dtype else None
        )

    def in_any_order(self, combining: Mapping[str, str]) -> list[str]:
        """A reduction's assignment, with an operation that may be reordered: `m = max_any_order(m, x)`.

        `combining`: the function for floating-point numbers by the reduction's operator, "max=" and the like.
        """
        if not is_real(self.dtype):
            return self.lines()  # integers may be reordered as they are
        target = self.place(self.store.target)
        combined = call(combining[self.store.op], [target, self._value()])
        return [*self._before(), f"{ast.unparse(target)} = {ast.unparse(combined)}"]

    def _value(self) -> ast.expr:
        dialect = Dialect(
            self._leaf,
            self._number,
            self._call,
            self._type_of,
            _kept,
            _converted,
            self._integers,
            _operand,
            _cast,
            self._index,
        )
        return to_ast(self.store.body, dialect, self.dtype)

    def _type_of(self, body: sympy.Basic) -> Type:
        if self.alike:
            return self.dtype
        if body not in self.types:
            self.types[body] = type_of(body, self.leaf_type)
        return self.types[body]

    def _leaf(self, symbol: sympy.Symbol) -> ast.expr:
        if isinstance(symbol, Read):
            element = self.store.reads[symbol.position]
            return _value_of(self.place(element), element.dtype)
        own, index = self.leaf_type(symbol), self._index(symbol)
        return index if own == "int64" else call(own, [index])

    def _index(self, symbol: sympy.Symbol) -> ast.expr:
        return self.store.indices.get(symbol.name, ast.Name(symbol.name))

    def _number(self, value: float, dtype: Type) -> ast.expr:
        if dtype in ("int64", "bool") or is_number(dtype):
            return ast.Constant(value)
        if is_integer(dtype):
            return call(dtype, [ast.Constant(value)])
        literal: ast.expr = ast.Constant(float(value))
        if math.isinf(value):
            inf = ast.Attribute(ast.Name("math"), "inf")
            literal = inf if value > 0 else ast.UnaryOp(ast.USub(), inf)
        return call(dtype, [literal])

    def _call(self, name: str, args: list[ast.expr], dtype: Type) -> ast.expr:
        is_float = is_real(dtype) and not is_number(dtype)
        match name:
            case "max" | "min" if is_float and name in self.functions:
                return call(self.functions[name], args)
            case "max" | "min":
                return _extremum(name, *(self._simple(arg) for arg in args), asks=is_float)
            case "where":
                test, *chosen = args
                return ast.IfExp(test, *(map(self._read, chosen) if self.at_once else chosen))
            case "tf32":
                return call(ROUND_TF32, args)
            case "floor" | "ceil" if not is_float:
                return args[0]
            case "abs":
                return call("math.fabs" if is_float else "abs", args)
            case "pow" if literal(args[1]) == 2:
                base = self._simple(args[0])
                return ast.BinOp(base, ast.Mult(), base)
            case "pow" if is_integer(dtype):
                return self._integers(ast.Pow(), args[0], args[1], dtype)
            case "pow" if not is_float:
                return ast.BinOp(args[0], ast.Pow(), args[1])
        return call(self.functions.get(name, f"math.{name}"), args)

    def _integers(self, operator: ast.operator, left: ast.expr, right: ast.expr, dtype: Type) -> ast.expr:
        """An operation on integers in NumPy's meaning: what is divided by 0 is 0, and all bits may be shifted out.

        A quotient by -1 is a sign: LLVM leaves that of the smallest integer undefined. An unsigned number gets its sign
        as int64. A negative power, which NumPy refuses, is the whole part of the number, as in torch: 1 or -1 of these
        two, else 0.
        """
        if dtype == "bool":
            return _of_truths(operator, left, right)
        if is_real(dtype):
            return self._of_floats(operator, left, right, dtype)
        if is_number(dtype) or dtype == "int64":
            left, right = _widened(left), _widened(right)
        known = literal(right)
        divides = isinstance(operator, ast.FloorDiv | ast.Mod)
        guarded = _SIGNED if is_number(dtype) or NUMBER_TYPES[dtype].signed else _UNSIGNED
        is_safe = known is not None and (known > 0 if divides else 0 <= known < BITS)
        if type(operator) in guarded and not is_safe:
            a, b = (ast.unparse(self._simple(part)) for part in (left, right))
            text = guarded[type(operator)].format(a=a, b=b)
            return _kept(ast.parse(text, mode="eval").body, dtype, chosen=True)
        return _kept(ast.BinOp(left, operator, right), dtype)

    def _of_floats(self, operator: ast.operator, left: ast.expr, right: ast.expr, dtype: Type) -> ast.expr:
        """// or % of floats in NumPy's meaning, which is Python's where b is not 0."""
        numbers = {"zero": 0.0, "half": 0.5, "one": 1.0}
        words = {name: ast.unparse(self._number(value, dtype)) for name, value in numbers.items()}
        words |= {"a": ast.unparse(self._simple(left)), "b": ast.unparse(self._simple(right))}

        def of(text: str) -> ast.expr:
            return ast.parse(text.format(**words), mode="eval").body

        words["m"] = ast.unparse(self._named(self._call("fmod", [of("{a}"), of("{b}")], dtype)))
        if isinstance(operator, ast.Mod):
            return of(_FLOAT_MOD)
        words["q"] = ast.unparse(self._named(of(_FLOAT_QUOTIENT)))
        words["f"] = ast.unparse(self._named(self._call("floor", [of("{q}")], dtype)))
        return of(_FLOAT_FLOOR)

    def _read(self, node: ast.expr) -> ast.expr:
        """The expression with names for the elements in it."""
        named = self._named

        class Reading(ast.NodeTransformer):
            def visit_Subscript(self, element: ast.Subscript) -> ast.expr:
                return named(element)

        found: ast.expr = Reading().visit(node)
        return found

    def _simple(self, node: ast.expr) -> ast.expr:
        """A node that may be written twice: names, elements and numbers stand as they are, the rest gets a name."""
        if isinstance(node, ast.Name | ast.Subscript) or literal(node) is not None:
            return node
        return self._named(node)

    def _named(self, node: ast.expr) -> ast.expr:
        text = ast.unparse(node)
        if text not in self.prelude:
            self.prelude[text] = f"value{len(self.prelude)}"
        return ast.Name(self.prelude[text])


def _value_of(place: ast.expr, dtype: str) -> ast.expr:
    """The value of an element that is held as bits of another type."""
    if dtype == "bool":
        return ast.Compare(place, [ast.NotEq()], [ast.Constant(0)])
    return call(FROM[dtype], [place]) if dtype in FROM else place


def _extremum(name: str, a: ast.expr, b: ast.expr, *, asks: bool) -> ast.expr:
    """max(a, b): `b if a <= b else a`. A NaN in a falls through; one in b is asked for unless there can be none."""
    if literal(a) is not None and literal(b) is None:
        a, b = b, a
    order: ast.cmpop = ast.LtE() if name == "max" else ast.GtE()
    takes_b: ast.expr = ast.Compare(a, [order], [b])
    if asks and literal(b) is None:
        takes_b = ast.BoolOp(ast.Or(), [takes_b, ast.Compare(b, [ast.NotEq()], [b])])
    return ast.IfExp(takes_b, b, a)


def _of_truths(operator: ast.operator, left: ast.expr, right: ast.expr) -> ast.expr:
    """& | ^ of truth values."""
    if isinstance(operator, ast.BitXor):
        return ast.Compare(left, [ast.NotEq()], [right])
    return ast.BoolOp(ast.And() if isinstance(operator, ast.BitAnd) else ast.Or(), [left, right])


def _kept(computed: ast.expr, dtype: Type, chosen: bool = False) -> ast.expr:
    """A computed value, cast to its type: numba computes integers in 64 bits.

    A choice is between values that have been cast, unless they are computed where it is `chosen`.
    """
    done = isinstance(computed, ast.IfExp) and not chosen
    return call(dtype, [computed]) if _wraps(dtype) and not done else computed


def _widened(value: ast.expr) -> ast.expr:
    """uint8(a & b) as int64(a & b), which are the same: bits of numbers of a type are a number of this type.

    Cut to 8 bits and made longer again, LLVM compared the bits of a checksum's step and jumped, instead of selecting:
    128,000 steps took 0.49 ms and take 0.22 (one Zen 4 core).
    """
    match value:
        case ast.Call(ast.Name(name), [ast.BinOp(op=ast.BitAnd() | ast.BitOr() | ast.BitXor()) as bits]):
            return call("int64", [bits]) if name in NUMBER_TYPES and name != "uint64" else value
    return value


def _wraps(dtype: Type) -> bool:
    """True for the integers of which numba makes others when it computes with them."""
    return is_integer(dtype) and not is_number(dtype) and dtype != "int64"


def _converted(value: ast.expr, dtype: Type, wanted: Type) -> ast.expr:
    return value if dtype == wanted or is_number(dtype) or is_number(wanted) else call(wanted, [value])


def _operand(value: ast.expr, dtype: Type, wanted: Type) -> ast.expr:
    """A value as an operator's operand, converted where numba would compute in another type than NumPy.

    It has float64 for float32 with an integer, and integers for uint64 with int64.
    """
    mixed = is_real(wanted) and not is_real(dtype) and (wanted == "float32" or dtype == "uint64")
    return _converted(value, dtype, wanted) if dtype == "bool" or mixed else value


def _cast(value: ast.expr, dtype: Type, wanted: Type) -> ast.expr:
    """A conversion that the body asks for. A half's digits are those of its bits; numba's own types have no bool."""
    if wanted == dtype:
        return value
    if wanted == "bool":
        return value if dtype == "bool" else ast.Compare(value, [ast.NotEq()], [ast.Constant(0)])
    if wanted in TO:
        return call(FROM[wanted], [call(TO[wanted], [value])])
    return call(wanted, [value])


def literal(node: ast.expr) -> float | None:
    """The number in `float32(0.5)`, `-math.inf` or `3`; None if the node is not one."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NUMBER_TYPES:
        return literal(node.args[0])
    if isinstance(node, ast.Attribute) and node.attr == "inf":
        return math.inf
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = literal(node.operand)
        return None if inner is None else -inner
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int | float) else None
