"""Complex numbers as pairs of real ones: an expression of one is the tuple of its real and its imaginary part.

a * b         ->   (ar * br - ai * bi, ar * bi + ai * br)          z[i]   ->   (z[i, 0], z[i, 1])
a * 2.0       ->   (ar * 2.0, ai * 2.0)                            a real number has the literal 0 as imaginary part
np.exp(a)     ->   (exp(ar) * cos(ai), exp(ar) * sin(ai))
a == b        ->   ar == br and ai == bi

No formula has a term with a literal 0 as factor: such a term is 0 where NumPy's may be NaN, of infinite numbers.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from polyfuse.frontend.python.numpy.syntax import constant, number
from polyfuse.frontend.python.numpy.values import as_number
from polyfuse.ir.number_types import is_complex

Call = Callable[..., ast.expr]
"""Makes the call of a function of numbers: call("exp", x)."""

LARGEST_POWER = 64

SHARED = 3
"""Operations of a term that both parts of a complex number have, from which on it is computed once, in a variable."""


def pair(real: ast.expr, imaginary: ast.expr) -> ast.Tuple:
    """The expression of a complex number."""
    return ast.Tuple([real, imaginary], ast.Load())


def parts(node: ast.expr) -> tuple[ast.expr, ast.expr]:
    """The real and the imaginary part of a complex number's expression."""
    assert isinstance(node, ast.Tuple), "a complex number is a pair"
    real, imaginary = node.elts
    return real, imaginary


def as_complex(node: ast.expr, dtype: str) -> ast.expr:
    """An expression as one of a complex number."""
    return node if is_complex(dtype) else pair(as_number(node, dtype), number(0))


def chosen(test: ast.expr, yes: ast.expr, no: ast.expr, types: Sequence[str]) -> ast.expr:
    """`yes if test else no`, of numbers with these two types."""
    if not any(map(is_complex, types)):
        return ast.IfExp(test, yes, no)
    left, right = (parts(as_complex(node, dtype)) for node, dtype in zip((yes, no), types, strict=True))
    return pair(*(a if a is b else ast.IfExp(test, a, b) for a, b in zip(left, right, strict=True)))


def applied(op: ast.operator, left: ast.expr, right: ast.expr, types: Sequence[str]) -> ast.expr:
    """`left op right` of numbers with these two types. ValueError if there is no formula of complex ones."""
    if not any(map(is_complex, types)):
        return ast.BinOp(as_number(left, types[0]), op, as_number(right, types[1]))
    if isinstance(op, ast.Pow):
        return _power(left, types[0], right)
    a, b = as_complex(left, types[0]), as_complex(right, types[1])
    formula = _FORMULAS.get(type(op))
    if formula is None:
        raise ValueError("this operator on complex numbers")
    return formula(parts(a), parts(b))


Parts = tuple[ast.expr, ast.expr]


def _add(a: Parts, b: Parts) -> ast.expr:
    return pair(plus(a[0], b[0]), plus(a[1], b[1]))


def _subtract(a: Parts, b: Parts) -> ast.expr:
    return pair(less(a[0], b[0]), less(a[1], b[1]))


def _multiply(a: Parts, b: Parts) -> ast.expr:
    return pair(less(times(a[0], b[0]), times(a[1], b[1])), plus(times(a[0], b[1]), times(a[1], b[0])))


def _divide(a: Parts, b: Parts) -> ast.expr:
    """Smith's quotient, as NumPy computes it: the smaller part of b is divided by the larger one. NaN where b is 0."""
    if _is_zero(b[1]):
        return pair(*(part if _is_zero(part) else ast.BinOp(part, ast.Div(), b[0]) for part in a))
    if _is_zero(b[0]):
        return pair(*(_over(part, b[1], turned) for part, turned in ((a[1], False), (a[0], True))))
    is_real = ast.Compare(_absolute(b[0]), [ast.GtE()], [_absolute(b[1])])
    turned = (b[1], b[0]), (a[1], a[0])
    (large, small), (first, second) = (
        [ast.IfExp(is_real, *both) for both in zip(own, other, strict=True)]
        for own, other in zip((b, a), turned, strict=True)
    )
    ratio = ast.BinOp(small, ast.Div(), large)
    scale = plus(large, times(small, ratio))
    if _is_zero(a[1]):
        other = times(a[0], ratio)
        shares = ast.IfExp(is_real, a[0], other), negated(ast.IfExp(is_real, other, a[0]))
        return pair(*(ast.BinOp(part, ast.Div(), scale) for part in shares))
    rest = less(second, times(first, ratio))
    real, imaginary = plus(first, times(second, ratio)), ast.IfExp(is_real, rest, negated(rest))
    return pair(ast.BinOp(real, ast.Div(), scale), ast.BinOp(imaginary, ast.Div(), scale))


def _over(part: ast.expr, by: ast.expr, turned: bool) -> ast.expr:
    if _is_zero(part):
        return part
    return ast.BinOp(negated(part) if turned else part, ast.Div(), by)


def _absolute(part: ast.expr) -> ast.expr:
    below = ast.Compare(part, [ast.Lt()], [number(0)])
    return ast.IfExp(below, negated(part), part)


_FORMULAS: Mapping[type[ast.operator], Callable[[Parts, Parts], ast.expr]] = {
    ast.Add: _add,
    ast.Sub: _subtract,
    ast.Mult: _multiply,
    ast.Div: _divide,
}


def _power(base: ast.expr, dtype: str, exponent: ast.expr) -> ast.expr:
    """z ** n for a literal n: products of squares."""
    count = None if isinstance(exponent, ast.Tuple) else constant(exponent)
    if count is None or not 1 <= count <= LARGEST_POWER:
        raise ValueError(f"a power of complex numbers other than the integers 1 to {LARGEST_POWER}")
    square, made = parts(as_complex(base, dtype)), None
    while count:
        if count % 2:
            made = square if made is None else parts(_multiply(made, square))
        count //= 2
        square = parts(_multiply(square, square)) if count else square
    assert made is not None, "the exponent is positive"
    return pair(*made)


def minus(node: ast.expr) -> ast.expr:
    """-z."""
    return pair(*map(negated, parts(node)))


def compared(op: ast.cmpop, left: ast.expr, right: ast.expr, types: Sequence[str]) -> ast.expr:
    """`left == right` or `!=`. ValueError for an order, which complex numbers do not have."""
    if not isinstance(op, ast.Eq | ast.NotEq):
        raise ValueError("an order of complex numbers")
    a, b = (parts(as_complex(node, dtype)) for node, dtype in zip((left, right), types, strict=True))
    join = ast.And() if isinstance(op, ast.Eq) else ast.Or()
    return ast.BoolOp(join, [ast.Compare(x, [op], [y]) for x, y in zip(a, b, strict=True)])


def conjugate(node: ast.expr) -> ast.expr:
    """The number with its imaginary part negated."""
    real, imaginary = parts(node)
    return pair(real, negated(imaginary))


def magnitude(call: Call, node: ast.expr) -> ast.expr:
    """abs(z), the root of the sum of squares."""
    real, imaginary = parts(node)
    if _is_zero(imaginary):
        return call("abs", real)
    return call("sqrt", plus(times(real, real), times(imaginary, imaginary)))


def exponential(call: Call, node: ast.expr) -> ast.expr:
    """exp(z)."""
    real, imaginary = parts(node)
    turn = [call(name, imaginary) for name in ("cos", "sin")]
    if _is_zero(real):
        return pair(*turn)
    size = call("exp", real)
    return pair(*(times(size, part) for part in turn))


def shared_terms(
    own: Sequence[ast.expr], fresh: Callable[[str], str]
) -> tuple[list[ast.stmt], list[ast.expr]]:
    """(variables for the terms that the parts of a number have in common, the parts with these in their place).

    Terms are in common where they are the same node, in one part, too. Of a choice, the test and what both alternatives
    have are computed before; what one alternative has need not exist where it is not taken, and stays there. Elements
    are read where they are used.

    a / b    ->   larger = abs(br) >= abs(bi);  large = br if larger else bi;  …;  rest = second - first * ratio
                  real = (first + second * ratio) / scale;  imaginary = (rest if larger else -rest) / scale
    """
    uses: dict[int, int] = {}

    def count(node: ast.AST) -> None:
        uses[id(node)] = uses.get(id(node), 0) + 1
        if uses[id(node)] == 1:
            for child in ast.iter_child_nodes(node):
                count(child)

    made: list[ast.stmt] = []
    kept: dict[int, ast.expr] = {}

    def visit(node: ast.expr, within: frozenset[int] | None = None) -> ast.expr:
        """The node with variables in it; outside of the nodes `within`, if they are given, it stays as it is."""
        if within is not None and id(node) not in within:
            inside = isinstance(node, ast.IfExp | ast.Subscript)
            return node if inside else _with_children(node, lambda child: visit(child, within))
        if id(node) not in kept:
            found = node
            if isinstance(node, ast.IfExp):
                both = _nodes(node.body) & _nodes(node.orelse)
                found = ast.IfExp(visit(node.test), visit(node.body, both), visit(node.orelse, both))
            elif not isinstance(node, ast.Subscript):
                found = _with_children(node, visit)
            if uses[id(node)] > 1 and _is_worth_a_variable(node):
                variable = fresh("part")
                made.append(ast.Assign([ast.Name(variable, ast.Store())], found))
                found = ast.Name(variable, ast.Load())
            kept[id(node)] = found
        return kept[id(node)]

    for part in own:
        count(part)
    return made, [visit(part) for part in own]


def _is_worth_a_variable(node: ast.expr) -> bool:
    """True for terms of some operations. A test of indices stays where it is, since it splits a loop's domain."""
    if isinstance(node, ast.Subscript) or _operations(node) < SHARED:
        return False
    reads = any(isinstance(part, ast.Subscript | ast.Call | ast.IfExp) for part in ast.walk(node))
    return reads or not isinstance(node, ast.Compare | ast.BoolOp)


def _nodes(node: ast.AST) -> frozenset[int]:
    """The identities of a node and all its parts."""
    return frozenset(map(id, ast.walk(node)))


def _with_children(node: ast.expr, visit: Callable[[ast.expr], ast.expr]) -> ast.expr:
    """The same operation on what `visit` makes of its operands."""

    def each(child: object) -> object:
        if isinstance(child, list):
            return [each(part) for part in child]
        return visit(child) if isinstance(child, ast.expr) else child

    fields: dict[str, Any] = {name: each(child) for name, child in ast.iter_fields(node)}
    made = type(node)(**fields)
    return ast.copy_location(made, node) if hasattr(node, "lineno") else made


def _operations(node: ast.AST) -> int:
    if isinstance(node, ast.Subscript):
        return 0
    own = isinstance(node, ast.BinOp | ast.Call | ast.IfExp | ast.Compare)
    return own + sum(map(_operations, ast.iter_child_nodes(node)))


# real parts, without terms that are literally 0


def plus(a: ast.expr, b: ast.expr) -> ast.expr:
    """a + b."""
    if _is_zero(a) or _is_zero(b):
        return b if _is_zero(a) else a
    return ast.BinOp(a, ast.Add(), b)


def less(a: ast.expr, b: ast.expr) -> ast.expr:
    """a - b."""
    if _is_zero(b):
        return a
    return negated(b) if _is_zero(a) else ast.BinOp(a, ast.Sub(), b)


def times(a: ast.expr, b: ast.expr) -> ast.expr:
    """a * b."""
    for one, other in ((a, b), (b, a)):
        if _is_zero(one):
            return number(0)
        if _is_one(one):
            return other
    return ast.BinOp(a, ast.Mult(), b)


def negated(a: ast.expr) -> ast.expr:
    """-a."""
    if isinstance(a, ast.UnaryOp) and isinstance(a.op, ast.USub):
        return a.operand
    return a if _is_zero(a) else ast.UnaryOp(ast.USub(), a)


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not isinstance(node.value, bool) and node.value == 0


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not isinstance(node.value, bool) and node.value == 1
