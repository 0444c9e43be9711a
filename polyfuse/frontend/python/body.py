"""Translate Python's expressions on data to scalar bodies, operation by operation in source order.

    value ::= number | size | index | scalar | A[aff, …] | A[aff]…[aff]
            | value (+ - * / **) value | -value | +value | f(value, …) | value if test else value
    test  ::= value (< <= > >= == !=) value (chained too) | test and test | test or test | not test
    f     ::= sqrt exp log pow abs min max sin cos … (math, numpy, builtins; `FUNCTIONS`), numpy.where, float

Whatever else stands where a `value` is expected is refused, with its place in the source.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import NoReturn

import sympy

from polyfuse.errors import quantity
from polyfuse.frontend.python.affine import Affine
from polyfuse.frontend.python.conditions import Predicate
from polyfuse.frontend.python.gathers import gathered
from polyfuse.frontend.python.scope_names import FUNCTIONS, MISSING, outer_value
from polyfuse.ir import Access, scalar
from polyfuse.ir.expression import OPERATORS
from polyfuse.ir.nest_text import BINARY, COMPARE
from polyfuse.ir.number_types import ITEMSIZE, DType, element_type
from polyfuse.ir.scalar import Select
from polyfuse.ir.tree import date_map
from polyfuse.sets import OUT

_APART = ("where", "float", "range", "len", *ITEMSIZE)
ALLOWED = (
    "numbers, sizes, indices, scalars, A[i, j] or A[i][j], + - * / ** // %, << >> & | ^ of integers, "
    f"a if test else b, and {' '.join(name for name, _ in FUNCTIONS if name not in _APART)}, "
    "np.where, float, len, and types such as np.int8"
)
CALLABLE = (
    f"of numbers {' '.join(name for name, _ in FUNCTIONS if name not in _APART)}, np.where, float, len, np.int8 and "
    "other types; of arrays the functions that the guide's page From NumPy lists; your own functions, which are inlined"
)
TESTS = "comparisons (< <= > >= == !=) of values; and, or, not"

_DIVISIONS: Mapping[str, type[ast.operator]] = {"floor_divide": ast.FloorDiv, "remainder": ast.Mod}
"""The names of // and % as functions, of floats too."""

_ARITY = {"pow": 2, "where": 3, **dict.fromkeys(_DIVISIONS, 2)}


@dataclass
class Body:
    """Reads one statement's expressions. Collects its reads (equal ones once) and what decides its type."""

    affine: Affine
    reads: list[Access] = field(default_factory=list)
    leaves: set[str] = field(default_factory=set)
    fractional: bool = False
    integral: bool = False
    types: set[DType] = field(default_factory=set)

    def access(self, node: ast.expr) -> Access | None:
        """A scalar's name or a fully subscripted array as an access; None for another name."""
        subscripts: list[ast.expr] = []
        inner = node
        while isinstance(inner, ast.Subscript):
            parts = inner.slice.elts if isinstance(inner.slice, ast.Tuple) else [inner.slice]
            subscripts = [*parts, *subscripts]
            inner = inner.value
        names = self.affine.names
        if not isinstance(inner, ast.Name):
            return None
        name = inner.id
        rank = names.rank(name)
        if rank is None:
            return None
        if len(subscripts) != rank:
            self._refuse(
                node,
                f"{ast.unparse(node)} has {quantity(len(subscripts), 'subscript')}, {name} has rank {rank}",
                "single elements",
            )
        slices = [part for part in subscripts if isinstance(part, ast.Slice | ast.Starred)]
        if slices:
            self._refuse(
                slices[0], f"{ast.unparse(node)} is more than one element", "single elements, in loops"
            )
        rows = gathered(names, node, name, subscripts)
        if rows is not None:
            return self._element(*rows)
        return self._element(self.local_name(name), subscripts)

    def _element(self, tensor: str, subscripts: Sequence[ast.expr]) -> Access:
        element = date_map(self.affine.domain, [self.affine.value(part) for part in subscripts])
        return Access(tensor, element.set_tuple_name(OUT, tensor))

    def local_name(self, name: str) -> str:
        """The tensor of a name: a parameter that is assigned becomes a local variable of its own, as in Python."""
        names = self.affine.names
        return f"{name}_local" if name in names.locals and name in names.tensors else name

    def value(self, node: ast.expr) -> sympy.Expr:
        """A value; NotAffine if it is none."""
        match node:
            case ast.Constant(value=bool() as truth):
                return self._as_type("bool", lambda: scalar.number(int(truth)))
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                return self._as_type("bool", lambda: self.test(node))
            case ast.Constant(value=int() | float() as literal):
                return self._number(node, literal)
            case ast.Name() | ast.Subscript() | ast.Attribute():
                return self._leaf(node)
            case ast.UnaryOp(op=ast.USub()):
                return scalar.neg(self.value(node.operand))
            case ast.UnaryOp(op=ast.UAdd()):
                return self.value(node.operand)
            case ast.BinOp() if type(node.op) in BINARY:
                self.fractional |= isinstance(node.op, ast.Div)
                if type(node.op) in OPERATORS.values():
                    return self._of_integers(node)
                return BINARY[type(node.op)](self.value(node.left), self.value(node.right))
            case ast.IfExp():
                return Select(self.test(node.test), self.value(node.body), self.value(node.orelse))
            case ast.Call():
                return self._call(node)
        self._refuse(node, f"{ast.unparse(node)} is not a value that a nest can compute", ALLOWED)

    def test(self, node: ast.expr) -> sympy.Basic:
        """A condition on data."""
        match node:
            case ast.BoolOp():
                joined = scalar.And if isinstance(node.op, ast.And) else scalar.Or
                return joined(*(self.test(part) for part in node.values), evaluate=False)
            case ast.UnaryOp(op=ast.Not()):
                return sympy.Not(self.test(node.operand), evaluate=False)
            case ast.Compare() if all(type(op) in COMPARE for op in node.ops):
                with self._apart():
                    values = [self.value(part) for part in (node.left, *node.comparators)]
                tests = [
                    COMPARE[type(op)](a, b, evaluate=False)
                    for op, a, b in zip(node.ops, values, values[1:], strict=False)
                ]
                return reduce(lambda a, b: scalar.And(a, b, evaluate=False), tests)
            case ast.Constant(value=bool() as truth):
                # SymPy's own true and false would drop what they join
                one, zero = scalar.number(int(truth)), scalar.number(0)
                return sympy.Ne(one, zero, evaluate=False)
        with self._apart():
            return sympy.Ne(self.value(node), sympy.Integer(0), evaluate=False)

    @contextmanager
    def _apart(self) -> Iterator[None]:
        """Read operands of comparisons and conversions without letting their types decide the result's type."""
        kept = set(self.leaves), self.fractional, self.integral, set(self.types)
        yield
        self.leaves, self.fractional, self.integral, self.types = kept

    def _as_type(self, dtype: DType, value: Callable[[], sympy.Basic]) -> sympy.Expr:
        with self._apart():
            made = scalar.FUNCTIONS[dtype](value())
        self.types.add(dtype)
        return made

    def holds(self, predicate: Predicate) -> sympy.Basic:
        """Return the condition that an instance is in a branch of an `if` on data."""
        if isinstance(predicate.test, ast.expr):
            held = self.test(predicate.test)
            return held if predicate.taken else sympy.Not(held, evaluate=False)
        leaves = set(self.leaves)
        kept = self.leaf(scalar_access(self.affine, predicate.test))
        self.leaves = leaves
        compare = sympy.Ne if predicate.taken else sympy.Eq
        return compare(kept, sympy.Integer(0), evaluate=False)

    def leaf(self, access: Access) -> sympy.Expr:
        """The read leaf of an access."""
        self.leaves.add(access.tensor)
        for position, known in enumerate(self.reads):
            if known.tensor == access.tensor and known.map.is_equal(access.map):
                return scalar.read(position)
        self.reads.append(access)
        return scalar.read(len(self.reads) - 1)

    def _leaf(self, node: ast.expr) -> sympy.Expr:
        if isinstance(node, ast.Name) and self.affine.variable(node.id) is not None:
            self.integral = True
            return sympy.Symbol(node.id)
        access = self.access(node)
        if access is not None:
            return self.leaf(access)
        match node:
            case ast.Subscript(
                value=ast.Attribute(value=ast.Name(id=array), attr="shape"), slice=ast.Constant(int(d))
            ):
                return self._extent(node, array, d)
        names = self.affine.names
        number = names.number(node)
        if number is not None:
            return self._number(node, number)
        why = (
            names.describe(node.id)
            if isinstance(node, ast.Name)
            else f"{ast.unparse(node)} is not known here"
        )
        self._refuse(node, why, ALLOWED)

    def _number(self, node: ast.expr, value: float) -> sympy.Expr:
        if isinstance(value, int) and not -(2**63) < value < 2**64:
            self._refuse(
                node, f"the integer {value} does not fit 64 bits", "smaller integers, or floats: 1e20"
            )
        self.fractional |= isinstance(value, float)
        self.integral |= isinstance(value, int)
        return scalar.number(value)

    def _what_is_called(self, node: ast.expr) -> str:
        """Whether a function that is not read exists."""
        text = ast.unparse(node)
        first = (
            next(part.id for part in ast.walk(node) if isinstance(part, ast.Name)) if "(" not in text else ""
        )
        known = outer_value(self.affine.names.source, first) if first else None
        for attribute in text.split(".")[1:] if first else ():
            known = getattr(known, attribute, MISSING)
        return f"{text} is not defined" if known is MISSING else f"a call of {text}, which is not read"

    def _extent(self, node: ast.expr, array: str, d: int) -> sympy.Expr:
        shape = self.affine.names.shapes.get(array, ())
        if not 0 <= d < len(shape):
            self._refuse(node, f"{array} has no dimension {d}", ALLOWED)
        return self.value(shape[d])

    def _call(self, node: ast.Call) -> sympy.Expr:
        name = self.affine.names.function(node.func)
        if name in (None, "range") or node.keywords or any(isinstance(arg, ast.Starred) for arg in node.args):
            self._refuse(node, self._what_is_called(node.func), CALLABLE)
        if name == "len" and len(node.args) == 1 and isinstance(node.args[0], ast.Name):
            return self._extent(node, node.args[0].id, 0)
        if name == "where" and len(node.args) == 3:
            return Select(self.test(node.args[0]), self.value(node.args[1]), self.value(node.args[2]))
        if name in ITEMSIZE and len(node.args) == 1:
            truth = name == "bool" and isinstance(node.args[0], ast.Compare | ast.BoolOp | ast.UnaryOp)
            read = self.test if truth else self.value
            return self._as_type(element_type(name) or "float64", lambda: read(node.args[0]))
        args = [self.value(arg) for arg in node.args]
        if name in ("max", "min") and len(args) > 1:
            return reduce(scalar.FUNCTIONS[name], args)
        if name is None or name in ("max", "min", "len") or len(args) != _ARITY.get(name, 1):
            self._refuse(node, f"{ast.unparse(node)} with {quantity(len(args), 'argument')}", ALLOWED)
        self.fractional |= name not in ("abs", "pow", "floor", "ceil", *_DIVISIONS)
        if name in _DIVISIONS:
            return BINARY[_DIVISIONS[name]](*args)
        return args[0] if name == "float" else scalar.FUNCTIONS[name](*args)

    def _of_integers(self, node: ast.BinOp) -> sympy.Expr:
        """An operation on two integers. Indices and sizes, which else have the target's type, are int64 in it."""
        made = BINARY[type(node.op)](self.value(node.left), self.value(node.right))
        whole = {symbol: scalar.FUNCTIONS["int64"](symbol) for symbol in _whole_numbers(made)}
        return scalar.substitute(made, whole) if whole else made

    def _refuse(self, node: ast.expr, why: str, allowed: str) -> NoReturn:
        self.affine.names.source.refuse(node, why, allowed)


def _whole_numbers(body: sympy.Basic) -> set[sympy.Basic]:
    """The indices and sizes in a body that no conversion has a type for."""
    if isinstance(body, scalar.AsType):
        return set()
    if isinstance(body, sympy.Symbol):
        return set() if isinstance(body, scalar.Read) else {body}
    return {symbol for arg in body.args for symbol in _whole_numbers(arg)}


def scalar_access(affine: Affine, tensor: str) -> Access:
    """The access to a tensor without dimensions."""
    return Access(tensor, date_map(affine.domain, []).set_tuple_name(OUT, tensor))
