"""Scalar bodies: SymPy expressions that keep the user's order of floating-point operations.

    body ::= Read(k)                        the k-th read access of the statement
           | Symbol(d)                      an index of the domain, or a symbolic size, as a number
           | number
           | body + body | body * body | body ** body       built unevaluated, never reordered
           | exp log sqrt tanh sin cos erf abs … (body)      FUNCTIONS has all
           | FloorDiv(body, body) | Modulo(body, body)      NumPy's // and %
           | LeftShift(body, body) | BitAnd(body, body) | …  of integers, as NumPy's << >> & | ^
           | Maximum(body, body) | Minimum(body, body)      NaN wins, as in numpy.maximum
           | Select(condition, body, body)                  numpy.where
           | AsInt8(body) | AsFloat32(body) | …             numpy.astype; AsBool also of a condition
           | Tf32(body)                                      rounded to 11 digits; made by `promote` and `narrow` alone

SymPy simplifies on construction ((x + y) - x becomes y), which is wrong for floats: everything here is built
with evaluate=False, and `a - b` is Add(a, Mul(-1, b)), `a / b` is Mul(a, Pow(b, -1)).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import sympy
from sympy.core.operations import LatticeOp
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean

from polyfuse.ir.number_types import (
    ITEMSIZE,
    NUMBER_TYPES,
    DType,
    Type,
    computed_in,
    computed_real,
    is_real,
    joined,
    quotient_type,
)


class Read(sympy.Symbol):
    """A leaf that stands for one of a statement's read accesses, by position: Read("read0") is the first."""

    __slots__ = ()

    @property
    def position(self) -> int:
        """The index of the read among the statement's reads."""
        return int(self.name.removeprefix("read"))


class Maximum(sympy.Function):
    """The larger of two numbers; NaN if either is."""

    nargs = 2

    @classmethod
    def eval(cls, *_: Any) -> None:
        """Keep the expression unevaluated."""

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        """1 if this argument is the larger, else 0 (the subgradient torch uses for ReLU at 0 is 0)."""
        mine, other = self.args if argindex == 1 else reversed(self.args)
        return Select(greater(mine, other), sympy.Integer(1), sympy.Integer(0))


class Minimum(sympy.Function):
    """The smaller of two numbers; NaN if either is."""

    nargs = 2

    @classmethod
    def eval(cls, *_: Any) -> None:
        """Keep the expression unevaluated."""


class Select(sympy.Function):
    """Select(condition, a, b): a where the condition holds, else b."""

    nargs = 3

    @classmethod
    def eval(cls, *_: Any) -> None:
        """Keep the expression unevaluated."""


class _Joined(LatticeOp):
    """Tests of which each other's opposites stay, as both a < b and a >= b are false where one is NaN.

    SymPy's own And is false of them, and its Or true, even unevaluated.
    """

    @classmethod
    def _new_args_filter(cls, args: Iterable[sympy.Basic]) -> Iterator[sympy.Basic]:
        found: Iterator[sympy.Basic] = LatticeOp._new_args_filter.__func__(cls, args)
        return found


class And(_Joined, sympy.And):
    """All of some tests."""


class Or(_Joined, sympy.Or):
    """One of some tests at least."""


class Tf32(sympy.Function):
    """A float32 number rounded to tf32, as `polyfuse.ir.precision.rounded` says; no text has it."""

    nargs = 1

    @classmethod
    def eval(cls, *_: Any) -> None:
        """Keep the expression unevaluated."""


class Named(sympy.Function):
    """A function of one number that SymPy has under no name of its own."""

    nargs = 1

    @classmethod
    def eval(cls, *_: Any) -> None:
        """Keep the expression unevaluated."""


class Expm1(Named):
    """exp(x) - 1, exact near 0."""


class Log1p(Named):
    """log(1 + x), exact near 0."""


class Log2(Named):
    """The logarithm to base 2."""


class Log10(Named):
    """The logarithm to base 10."""


class OfIntegers(sympy.Function):
    """An operation on two integers; bodies have `DIVIDES` of floats, too, and the others of no other numbers."""

    nargs = 2

    @classmethod
    def eval(cls, *_: Any) -> None:
        """Keep the expression unevaluated."""


class FloorDiv(OfIntegers):
    """a // b, rounded down; where b is 0, 0 of integers and a / b of floats, as in NumPy."""


class Modulo(OfIntegers):
    """a % b with b's sign; where b is 0, 0 of integers and NaN of floats, as in NumPy."""


DIVIDES = (FloorDiv, Modulo)


class LeftShift(OfIntegers):
    """a << b; 0 where b is negative or as large as a's bits."""


class RightShift(OfIntegers):
    """a >> b, a's sign moved in; the sign alone where b is negative or as large as a's bits."""


class BitAnd(OfIntegers):
    """a & b."""


class BitOr(OfIntegers):
    """a | b."""


class BitXor(OfIntegers):
    """a ^ b."""


class AsType(sympy.Function):
    """A value converted to a type, as NumPy's astype does: integers keep their last bits, floats lose their fraction.

    As the operand of the conversion to bool, a condition will do.
    """

    nargs = 1
    dtype: DType

    @classmethod
    def eval(cls, *_: Any) -> None:
        """Keep the expression unevaluated."""


CONVERSIONS: Mapping[str, type[AsType]] = {
    dtype: type(f"As{dtype.capitalize()}", (AsType,), {"dtype": dtype}) for dtype in ITEMSIZE
}
"""The conversions by the type that they give, which is what text calls them: int8(x)."""


def read(position: int) -> Read:
    """The leaf for a statement's read number `position`."""
    return Read(f"read{position}")


def number(value: float) -> sympy.Expr:
    """A literal: integers stay exact, floats keep their 53 bits."""
    return sympy.Integer(value) if isinstance(value, int) else sympy.Float(value, 17)


def whole_number(body: sympy.Basic) -> int | None:
    """The value of an integer literal, with its sign; None for any other body.

    >>> whole_number(neg(number(3))), whole_number(number(0.5))
    (-3, None)
    """
    if isinstance(body, sympy.Mul) and len(body.args) == 2 and body.args[0] == -1:
        value = whole_number(body.args[1])
        return None if value is None else -value
    return int(body) if body.is_Integer else None


def add(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr:
    """`a + b`, in this order."""
    return sympy.Add(a, b, evaluate=False)


def neg(a: sympy.Expr) -> sympy.Expr:
    """`-a`."""
    return sympy.Mul(sympy.Integer(-1), a, evaluate=False)


def turned(a: sympy.Expr) -> sympy.Expr:
    """`-a`; of a product of reads with the sign at its last factor, so that it is a product still.

    -(a * b)  ->  a * -b        no number is rounded otherwise
    """
    if not isinstance(a, sympy.Mul) or len(a.args) != 2:
        return neg(a)
    first, last = a.args
    if not all(f.atoms(Read) and not isinstance(f, sympy.Pow) for f in (first, last)):
        return neg(a)
    return mul(first, neg(last))


def sub(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr:
    """`a - b`."""
    return add(a, neg(b))


def mul(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr:
    """`a * b`, in this order."""
    return sympy.Mul(a, b, evaluate=False)


def div(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr:
    """`a / b`, one division."""
    return mul(a, sympy.Pow(b, sympy.Integer(-1), evaluate=False))


def power(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr:
    """`a ** b`."""
    return sympy.Pow(a, b, evaluate=False)


def greater(a: sympy.Expr, b: sympy.Expr) -> Relational:
    """`a > b`."""
    return sympy.Gt(a, b, evaluate=False)


OF_REAL: Mapping[str, type[sympy.Function]] = {
    **{name: getattr(sympy, name) for name in ("exp", "log", "tanh", "sin", "cos", "erf")},
    **{name: getattr(sympy, name) for name in ("tan", "asin", "acos", "atan", "sinh", "cosh")},
    **{name: getattr(sympy, name) for name in ("asinh", "acosh", "atanh")},
    **{"floor": sympy.floor, "ceil": sympy.ceiling},
    **{node.__name__.lower(): node for node in (Expm1, Log1p, Log2, Log10)},
}
"""The functions of one number, by the name they have in text."""

NAMES: Mapping[type[sympy.Basic], str] = {node: name for name, node in OF_REAL.items()}
"""The inverse."""


def _function(node: type[sympy.Function]) -> Callable[..., sympy.Expr]:
    return lambda arg: node(arg, evaluate=False)


FUNCTIONS: Mapping[str, Callable[..., sympy.Expr]] = {
    **{name: _function(node) for name, node in OF_REAL.items()},
    "sqrt": lambda x: sympy.Pow(x, sympy.Rational(1, 2), evaluate=False),
    "abs": lambda x: sympy.Abs(x, evaluate=False),
    "pow": power,
    "max": Maximum,
    "min": Minimum,
    "where": Select,
    **{dtype: _function(node) for dtype, node in CONVERSIONS.items()},
}
"""The functions a body may call, by the name they have in text."""

REDUCTIONS: Mapping[str, tuple[Callable[[sympy.Expr, sympy.Expr], sympy.Expr], float]] = {
    "+=": (add, 0.0),
    "*=": (mul, 1.0),
    "max=": (Maximum, float("-inf")),
    "min=": (Minimum, float("inf")),
}
"""Reduction operators: how one combines, and its neutral value in floating point (`neutral` has that of other types).

All are associative and commutative as declared.
"""


def neutral(op: str, dtype: DType) -> sympy.Expr:
    """The value of a type that changes nothing: for integers, the largest or the smallest one in place of an infinity.

    >>> neutral("min=", "int32"), neutral("max=", "float32"), neutral("max=", "uint8")
    (2147483647, -1*oo, 0)
    """
    value, known = REDUCTIONS[op][1], NUMBER_TYPES[dtype]
    if known.kind == "float" or abs(value) <= 1:
        return number(value) if value >= 0 else neg(number(-value))
    if value > 0:
        return number(known.largest)
    return sub(neg(number(-known.least - 1)), number(1)) if known.signed else number(0)  # 2**63 is no literal


def combine(op: str, old: sympy.Expr, new: sympy.Expr) -> sympy.Expr:
    """Return the value that `target op new` stores: `new` for "=", else the combination of old and new."""
    return new if op == "=" else REDUCTIONS[op][0](old, new)


def reads_in(body: sympy.Basic) -> list[Read]:
    """The read leaves of a body, by position, each once."""
    return sorted(body.atoms(Read), key=lambda leaf: leaf.position)


def rebuild(node: sympy.Basic, args: Sequence[sympy.Basic]) -> sympy.Basic:
    """The same operation on other arguments, unevaluated (SymPy's own xreplace and pickle would evaluate)."""
    if not args or tuple(args) == node.args:
        return node
    return node.func(*args, evaluate=False)


def substitute(body: sympy.Basic, leaves: Mapping[sympy.Basic, sympy.Basic]) -> sympy.Basic:
    """The body with leaves replaced, everything else kept as it stands."""
    if body in leaves:
        return leaves[body]
    return rebuild(body, [substitute(arg, leaves) for arg in body.args])


def renumber(body: sympy.Basic, positions: Sequence[int]) -> sympy.Basic:
    """The body with Read(k) replaced by Read(positions[k])."""
    return substitute(body, {read(old): read(new) for old, new in enumerate(positions)})


Encoded = str | int | float | list["Encoded"]
"""A body as JSON: ["Add", a, b, …], a leaf's name, or a number."""

_NODES: Mapping[str, Any] = {
    **{
        node.__name__: node
        for node in (Maximum, Minimum, Select, Tf32, sympy.Add, sympy.Mul, sympy.Pow, sympy.Abs)
    },
    **{node.__name__: node for node in OF_REAL.values()},
    **{node.__name__: node for node in OfIntegers.__subclasses__()},
    **{node.__name__: node for node in CONVERSIONS.values()},
    **{node.__name__: node for node in (sympy.Gt, sympy.Ge, sympy.Lt, sympy.Le, sympy.Eq, sympy.Ne)},
    **{node.__name__: node for node in (And, Or, sympy.Not)},
}


def encode(body: sympy.Basic) -> Encoded:
    """A body as JSON, exactly.

    >>> encode(div(read(0), number(0.5)))
    ['Mul', 'read0', ['Pow', 0.5, -1]]
    """
    if isinstance(body, sympy.Symbol):
        return str(body.name)
    if isinstance(body, sympy.Integer):
        return int(body)
    if isinstance(body, sympy.Float):
        return float(body)
    if isinstance(body, sympy.Rational):
        return ["Rational", int(body.p), int(body.q)]
    if isinstance(body, sympy.core.numbers.Infinity | sympy.core.numbers.NegativeInfinity):
        return float(body)
    return [type(body).__name__, *(encode(arg) for arg in body.args)]


def decode(text: Encoded) -> sympy.Basic:
    """The inverse of `encode`."""
    if isinstance(text, str):
        return Read(text) if text.startswith("read") and text[4:].isdigit() else sympy.Symbol(text)
    if isinstance(text, int | float):
        return number(text)
    head, *args = text
    if head == "Rational":
        return sympy.Rational(*args)
    return _NODES[str(head)](*(decode(arg) for arg in args), evaluate=False)


def operations(body: sympy.Basic) -> int:
    """Arithmetic operations in a body: one per +, *, / and comparison, one per function call."""
    return own_operations(body) + sum(operations(arg) for arg in body.args)


def own_operations(node: sympy.Basic) -> int:
    """The operations of a body's outermost node alone; a sign, and the reciprocal in a quotient, are none."""
    if not node.args:
        return 0
    if isinstance(node, sympy.Add):
        return len(node.args) - 1
    if isinstance(node, sympy.Mul):
        return len(node.args) - 1 - [arg == -1 for arg in node.args].count(True)
    return 0 if isinstance(node, sympy.Pow) and node.args[1] == -1 else 1


def leaf_types(target: DType, reads: Sequence[DType]) -> Callable[[sympy.Symbol], Type]:
    """The types of a statement's leaves, by those of what it writes and reads.

    Dimensions and sizes have the target's type if that is a float, or uint64, and else int64.
    """
    elements = [computed_in(dtype) for dtype in reads]
    own = computed_in(target)
    index: DType = own if is_real(own) or own == "uint64" else "int64"
    return lambda symbol: elements[symbol.position] if isinstance(symbol, Read) else index


def type_of(body: sympy.Basic, leaf: Callable[[sympy.Symbol], Type]) -> Type:
    """The type of a part of a body whose leaves have these types. What is chosen between numbers is a number too."""
    match body:
        case sympy.Symbol():
            return leaf(body)
        case Boolean():
            return "bool"
        case AsType():
            return computed_in(body.dtype)
        case sympy.Mul():
            dtype = joined(type_of(arg.args[0] if _inverts(arg) else arg, leaf) for arg in body.args)
            return quotient_type(dtype) if any(map(_inverts, body.args)) else dtype
        case sympy.Pow(args=(base, sympy.Rational(p=1, q=2))):
            return computed_real(type_of(base, leaf))
        case sympy.Pow():
            base, exponent = body.args
            return joined([type_of(base, leaf), "fraction" if exponent == -1 else type_of(exponent, leaf)])
        case Select():
            return joined(type_of(arg, leaf) for arg in body.args[1:])
        case (
            sympy.Add() | Maximum() | Minimum() | sympy.Abs() | sympy.floor() | sympy.ceiling() | OfIntegers()
        ):
            return joined(type_of(arg, leaf) for arg in body.args)
        case sympy.Function():
            return computed_real(joined(type_of(arg, leaf) for arg in body.args))
    return "integer" if body.is_Integer else "fraction"


def _inverts(body: sympy.Basic) -> bool:
    return isinstance(body, sympy.Pow) and body.args[1] == -1
