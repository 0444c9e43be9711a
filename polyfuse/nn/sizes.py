"""Sizes of values: integers, and affine expressions in symbolic sizes.

    size   ::= integer | affine
    affine ::= integer × atom + … + integer          with at least one atom
    atom   ::= name | floor(affine / integer)

Two sizes are the same if their normal forms are: (N + 1) // 2 and floor((N - 1)/2) + 1 are. A floor has what its
divisor divides outside of it, and no floor alone inside of it. The text is isl's notation and Python's.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NoReturn

from polyfuse.errors import BadArgument
from polyfuse.ir.whole import is_whole
from polyfuse.sets import WORDS


@dataclass(frozen=True)
class Affine:
    """An affine expression in symbolic sizes, in normal form: + - of sizes, * // % by integers.

    A comparison is decided by the difference where that is a number. What would need the size's value is refused.
    """

    terms: tuple[tuple[Atom, int], ...]
    constant: int

    def __add__(self, other: Size) -> Size:
        if isinstance(other, int):
            return Affine(self.terms, self.constant + other)
        found = dict(self.terms)
        for atom, factor in other.terms:
            found[atom] = found.get(atom, 0) + factor
        return _sum(found, self.constant + other.constant)

    __radd__ = __add__

    def __sub__(self, other: Size) -> Size:
        return self + -other

    def __rsub__(self, other: int) -> Size:
        return -self + other

    def __neg__(self) -> Affine:
        return Affine(tuple((atom, -factor) for atom, factor in self.terms), -self.constant)

    def __mul__(self, factor: int) -> Size:
        return _sum({atom: own * factor for atom, own in self.terms}, self.constant * factor)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> Size:
        whole = _sum({atom: f // divisor for atom, f in self.terms}, self.constant // divisor)
        rest = _sum({atom: f % divisor for atom, f in self.terms}, self.constant % divisor)
        if isinstance(rest, int):
            return whole
        common = math.gcd(divisor, *(factor for _, factor in rest.terms))
        inside = _sum({atom: f // common for atom, f in rest.terms}, rest.constant // common)
        assert isinstance(inside, Affine), "what divides the factors leaves them"
        return _floor(inside, divisor // common) + whole

    def __mod__(self, divisor: int) -> Size:
        return self - self // divisor * divisor

    def __lt__(self, other: Size) -> bool:
        return self._less(other, f"{self} < {other}") < 0

    def __le__(self, other: Size) -> bool:
        return self._less(other, f"{self} <= {other}") <= 0

    def __gt__(self, other: Size) -> bool:
        return self._less(other, f"{self} > {other}") > 0

    def __ge__(self, other: Size) -> bool:
        return self._less(other, f"{self} >= {other}") >= 0

    def _less(self, other: Size, asked: str) -> int:
        difference = self - other
        if not isinstance(difference, int):
            raise BadArgument(f"whether {asked} depends on a symbolic size, and a number is needed here")
        return difference

    def _value(self, *_: object) -> NoReturn:
        raise BadArgument(f"{self} is a symbolic size, and a number is needed here")

    __index__ = __float__ = __truediv__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __pow__ = __rpow__ = (
        _value
    )

    def __str__(self) -> str:
        text = ""
        for atom, factor in (*self.terms, *(((None, self.constant),) if self.constant else ())):
            number, sign = abs(factor), "-" if factor < 0 else "+" if text else ""
            part = str(number) if atom is None else str(atom) if number == 1 else f"{number} * {atom}"
            text += f" {sign} {part}" if text else f"{sign}{part}"
        return text

    __repr__ = __str__


@dataclass(frozen=True)
class Floor:
    """floor(numerator / divisor), which is not affine without its remainder."""

    numerator: Affine
    divisor: int

    def __str__(self) -> str:
        return f"floor(({self.numerator})/{self.divisor})"


Atom = str | Floor
Size = int | Affine
Shape = tuple[Size, ...]
GivenSize = int | str | Affine
"""A size as a user passes it."""


def _sum(terms: Mapping[Atom, int], constant: int) -> Size:
    kept = tuple(sorted(((atom, f) for atom, f in terms.items() if f), key=lambda term: str(term[0])))
    return Affine(kept, constant) if kept else constant


def _floor(numerator: Affine, divisor: int) -> Size:
    """floor((floor(e/a) + c)/b) is floor((e + a c)/(a b))."""
    if divisor == 1:
        return numerator
    match numerator.terms:
        case ((Floor(inner, first), 1),):
            return (inner + first * numerator.constant) // (first * divisor)
    return Affine(((Floor(numerator, divisor), 1),), 0)


# -- what users write --------------------------------------------------------------------------------------------------


def is_reserved(name: str) -> bool:
    """True for a name that a symbolic size cannot have: isl's words, and what reads of elements are called."""
    return name in WORDS or (name.startswith("read") and name[4:].isdigit())


def size_of(what: str, given: object) -> Size:
    """An integer, or an affine expression as text; BadArgument, with what it is for, for anything else.

    >>> size_of("batch", 4), size_of("batch", "2*N + 1"), size_of("batch", "(N - 1) // 2 + 1")
    (4, 2 * N + 1, floor((N + 1)/2))
    """
    if isinstance(given, Affine):
        return given
    if is_whole(given):
        return int(given)
    if isinstance(given, str):
        return _read(what, given)
    raise BadArgument(f'{what}: expected an integer, or a size such as "N", given {given!r}')


def all_sizes(what: str, given: object) -> Shape:
    """One size, or each of several; BadArgument for anything else.

    >>> all_sizes("reshape: shape", "N"), all_sizes("reshape: shape", ["N", -1])
    ((N,), (N, -1))
    """
    if isinstance(given, Iterable) and not isinstance(given, str):
        return tuple(size_of(what, one) for one in given)
    return (size_of(what, given),)


@cache
def _read(what: str, text: str) -> Affine:
    try:
        found = _value(ast.parse(text.strip(), mode="eval").body)
        if isinstance(found, int):
            raise _NotAffine
        return found
    except (SyntaxError, _NotAffine) as error:
        raise BadArgument(
            f"{what}: {text!r} is not affine in sizes; expected integers, names, + and -, * and // by an integer, "
            'such as "N" or "2*N + 1"'
        ) from error


class _NotAffine(Exception):
    """What is written is no affine expression."""


def _value(node: ast.expr) -> Size:
    match node:
        case ast.Constant(value=bool()):
            raise _NotAffine
        case ast.Constant(value=int() as number):
            return number
        case ast.Name(id=name) if name.isascii() and not is_reserved(name):
            return Affine(((name, 1),), 0)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _value(left) + _value(right)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _value(left) - _value(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            first, second = _value(left), _value(right)
            if isinstance(second, int):
                return first * second
            if isinstance(first, int):
                return second * first
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            return _divided(left, right)
        case ast.Call(func=ast.Name(id="floor"), args=[ast.BinOp(left=left, op=ast.Div(), right=right)]):
            return _divided(left, right)
    raise _NotAffine


def _divided(left: ast.expr, right: ast.expr) -> Size:
    divisor = _value(right)
    if not isinstance(divisor, int) or divisor < 1:
        raise _NotAffine
    return _value(left) // divisor


def names_in(size: Size) -> tuple[str, ...]:
    """The symbolic sizes in a size, in the order of its text."""
    if isinstance(size, int):
        return ()
    found: dict[str, None] = {}
    for atom, _ in size.terms:
        found.update(dict.fromkeys((atom,) if isinstance(atom, str) else names_in(atom.numerator)))
    return tuple(found)


# -- what operations ask -----------------------------------------------------------------------------------------------


def numbers(what: str, sizes: Iterable[Size]) -> tuple[int, ...]:
    """Sizes that have to be numbers; BadArgument where one is symbolic."""
    every = tuple(sizes)
    found = tuple(size for size in every if isinstance(size, int))
    if len(found) < len(every):
        shown = ", ".join(map(str, every))
        raise BadArgument(f"{what}: expected numbers, given ({shown}): a symbolic size cannot stand here")
    return found


def is_negative(size: Size) -> bool:
    """True for a negative number; of a symbolic size, each call decides."""
    return isinstance(size, int) and size < 0


def number(what: str, size: Size) -> int:
    """A size that has to be a number; BadArgument for a symbolic one."""
    return numbers(what, (size,))[0]


def broadcast(shapes: Sequence[Shape]) -> Shape | None:
    """The shape of an operation on elements of several shapes, as in NumPy; None if they do not broadcast.

    A symbolic size meets the same size, or 1.
    """
    rank = max(map(len, shapes), default=0)
    found: list[Size] = []
    for axis in range(-rank, 0):
        others = {shape[axis] for shape in shapes if len(shape) >= -axis} - {1}
        if len(others) > 1:
            return None
        found.append(others.pop() if others else 1)
    return tuple(found)


@dataclass(frozen=True)
class Product:
    """A product of sizes: a number, and symbolic factors without a common divisor, in the order of their text."""

    factor: int
    symbols: tuple[Affine, ...]

    @staticmethod
    def of(sizes: Iterable[Size]) -> Product:
        """The product of some sizes.

        >>> print(Product.of((size_of("rows", "2*N"), 3)))
        6 * N
        """
        factor, symbols = 1, list[Affine]()
        for size in sizes:
            if isinstance(size, int):
                factor *= size
                continue
            common = math.gcd(size.constant, *(own for _, own in size.terms))
            factor *= common
            own = _sum({atom: f // common for atom, f in size.terms}, size.constant // common)
            assert isinstance(own, Affine), "what divides the factors leaves them"
            symbols.append(own)
        return Product(factor, tuple(sorted(symbols, key=str)) if factor else ())

    def over(self, other: Product) -> Size | None:
        """The size that makes the other product this one; None if it is none, or not affine."""
        rest = list(self.symbols)
        for symbol in other.symbols:
            if symbol not in rest:
                return None
            rest.remove(symbol)
        if not other.factor or self.factor % other.factor or len(rest) > 1:
            return None
        first: Size = rest[0] if rest else 1
        return first * (self.factor // other.factor)

    def __str__(self) -> str:
        parts = [f"({one})" if len(one.terms) > 1 or one.constant else str(one) for one in self.symbols]
        return " * ".join([str(self.factor), *parts] if self.factor != 1 or not parts else parts)


def divisor_text(sizes: Iterable[Size]) -> str:
    """The number of elements, as a mean divides by it.

    >>> divisor_text((4, 2)), divisor_text((4, size_of("", "N")))
    ('8.0', '(4 * N)')
    """
    count = Product.of(sizes)
    return f"({count})" if count.symbols else str(float(count.factor))


def total(sizes: Iterable[Size]) -> Size:
    """The sum of sizes."""
    found: Size = 0
    for size in sizes:
        found = found + size
    return found
