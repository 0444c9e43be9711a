"""Derivatives of scalar bodies: the rule of each node of a SymPy tree, applied from the root to the leaves.

    pull(body, seed)  ->  { read: seed * d body / d read }

SymPy's own `diff` would simplify and reorder, which floats do not allow. Where the body chooses, the finished products
are chosen between, so that a branch that is not taken contributes 0 and not `0 * inf`:

    where(c, a, b)    where(c, d a, d b)
    max(a, 0)         where(a <= 0, 0, seed)           an integer: relu'(0) = 0, and NaN passes the seed on
    min(a, 6)         where(a < 6, seed, 0)            an integer: exclusive, as torch's hardtanh
    max(a, 0.5)       where(a >= 0.5, seed, 0)         another number: inclusive, as torch.clamp
    max(a, b)         where(a < b, 0, where(a == b, seed / 2, seed)), as torch.maximum; min likewise
    abs(a)            where(a > 0, seed, where(a < 0, -seed, 0)), so abs'(0) = 0
    a / b             a: seed / b                      b: -(seed * ((a / b) / b))
    a / (1 + exp(u))  u: -(seed * (y * (1 - 1 / (1 + exp(u))))), y the quotient: no overflow where exp(u) has one
    log(1 + exp(u))   u: seed / (1 + exp(-u))
    sqrt(a)           seed / (2 * sqrt(a));  a ** 0 has none
    float32(a)        seed; conversions to integers and bool have none
    a % b             a: seed;   b: -(seed * (a // b))
    floor, ceil, //, comparisons, operations of integers: none

Subgradients at kinks are those of torch. A node's value appears in its own derivative (tanh: 1 - y * y), and a
statement that stores it lets the derivative read it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import sympy
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean

from polyfuse.ir.number_types import is_real
from polyfuse.ir.scalar import (
    FUNCTIONS,
    And,
    AsType,
    Expm1,
    FloorDiv,
    Log1p,
    Log2,
    Log10,
    Maximum,
    Minimum,
    Modulo,
    OfIntegers,
    Read,
    Select,
    Tf32,
    add,
    div,
    greater,
    mul,
    neg,
    number,
    power,
    sub,
)

ONE, TWO, ZERO = number(1.0), number(2.0), number(0)

Contributions = dict[Read, sympy.Expr]


def pull(body: sympy.Basic, seed: sympy.Expr) -> Contributions:
    """Return `seed * d body / d read` for each read that the body's value depends on.

    Args:
        body: The body of a statement.
        seed: The factor, a body that is linear in the adjoint of the target.

    Returns:
        The products, by leaf; a read without a derivative is not among them.

    >>> from polyfuse.ir.scalar import read
    >>> pull(mul(read(0), read(1)), read(2))
    {read0: read1*read2, read1: read0*read2}
    """
    found: Contributions = {}
    _visit(body, seed, found)
    return found


def _visit(node: sympy.Basic, seed: sympy.Expr, found: Contributions) -> None:
    if isinstance(node, Read):
        _add(found, {node: seed})
        return
    if not node.atoms(Read) or isinstance(node, Boolean | Relational):
        return
    match node:
        case Modulo(args=(left, right)):
            _visit(left, seed, found)
            _visit(right, neg(mul(seed, FloorDiv(left, right, evaluate=False))), found)
        case OfIntegers():
            return
        case sympy.Add():
            for arg in node.args:
                _visit(arg, seed, found)
        case sympy.Mul():
            _of_product(node, seed, found)
        case sympy.Pow():
            _of_power(node, seed, found)
        case Select():
            test, taken, other = node.args
            _add(found, _chosen(test, pull(taken, seed), pull(other, seed)))
        case Maximum() | Minimum():
            _of_extreme(node, seed, found)
        case sympy.floor() | sympy.ceiling():
            return
        case AsType():
            if is_real(node.dtype):
                _visit(node.args[0], seed, found)
        case sympy.Abs():
            _of_absolute(node.args[0], seed, found)
        case _:
            (inner,) = node.args
            exponent = _softplus_of(node)
            if exponent is not None:
                _visit(exponent, div(seed, add(ONE, FUNCTIONS["exp"](neg(exponent)))), found)
            else:
                _visit(inner, FUNCTION_RULES[type(node)](node, inner, seed), found)


def _add(found: Contributions, more: Contributions) -> None:
    for leaf, product in more.items():
        found[leaf] = add(found[leaf], product) if leaf in found else product


def _chosen(test: sympy.Basic, taken: Contributions, other: Contributions) -> Contributions:
    leaves = dict.fromkeys([*taken, *other])
    return {leaf: Select(test, taken.get(leaf, ZERO), other.get(leaf, ZERO)) for leaf in leaves}


# -- products and powers ----------------------------------------------------------------------------------------------


def _of_product(node: sympy.Mul, seed: sympy.Expr, found: Contributions) -> None:
    """Each factor gets the seed times the others, in their order; a divisor, the seed times -(quotient / divisor)."""
    counts: dict[sympy.Basic, int] = {}
    for factor in node.args:
        counts[factor] = counts.get(factor, 0) + 1
    for factor, times in counts.items():
        if not factor.atoms(Read):
            continue
        if _inverts(factor) and times == 1:
            _of_divisor(factor.args[0], node, seed, found)
            continue
        others = list(node.args)
        others.remove(factor)
        if times > 1:
            others.insert(0, number(float(times)))
        _visit(factor, times_all(seed, others), found)


def times_all(seed: sympy.Expr, factors: Sequence[sympy.Basic]) -> sympy.Expr:
    """The seed times some factors, from left to right; 1 is left out, and -1 is a sign."""

    def by(product: sympy.Expr, factor: sympy.Basic) -> sympy.Expr:
        if is_literal(factor, 1):
            return product
        return neg(product) if is_literal(factor, -1) else mul(product, factor)

    return reduce(by, factors, seed)


def is_literal(body: sympy.Basic, value: int) -> bool:
    """True for this number, written as an integer or not (to SymPy, 1.0 is not 1).

    >>> is_literal(number(1.0), 1), is_literal(number(1), 1)
    (True, True)
    """
    return bool(body.is_Number) and float(body) == value


def _of_divisor(divisor: sympy.Expr, quotient: sympy.Expr, seed: sympy.Expr, found: Contributions) -> None:
    exponent = _logistic(divisor)
    if exponent is None:
        _visit(divisor, neg(mul(seed, div(quotient, divisor))), found)
    else:
        _visit(exponent, neg(mul(seed, mul(quotient, sub(ONE, div(ONE, divisor))))), found)


def _logistic(body: sympy.Basic) -> sympy.Expr | None:
    """The u of 1 + exp(u)."""
    match body:
        case sympy.Add(args=(first, second)):
            for one, other in ((first, second), (second, first)):
                if is_literal(one, 1) and isinstance(other, sympy.exp):
                    return other.args[0]
    return None


def _inverts(body: sympy.Basic) -> bool:
    return isinstance(body, sympy.Pow) and body.args[1] == -1


def _of_power(node: sympy.Pow, seed: sympy.Expr, found: Contributions) -> None:
    base, exponent = node.args
    if is_literal(exponent, -1):
        _of_divisor(base, node, seed, found)
    elif exponent == sympy.Rational(1, 2) or is_literal(exponent - sympy.Rational(1, 2), 0):
        _visit(base, div(seed, mul(TWO, node)), found)
    elif not exponent.atoms(Read) and not exponent.free_symbols:
        if is_literal(exponent, 0):
            return
        less = exponent - 1
        rest = ONE if is_literal(less, 0) else base if is_literal(less, 1) else power(base, _literal(less))
        _visit(base, times_all(seed, (_literal(exponent), rest)), found)
    else:
        grown = mul(exponent, power(base, sub(exponent, ONE)))
        _add(found, _chosen(_equal(exponent, ZERO), {}, pull(base, mul(seed, grown))))
        at_zero = And(_equal(base, ZERO), sympy.Ge(exponent, ZERO, evaluate=False), evaluate=False)
        logarithm = mul(node, FUNCTIONS["log"](base))
        _add(found, _chosen(at_zero, {}, pull(exponent, mul(seed, logarithm))))


def _literal(value: sympy.Expr) -> sympy.Expr:
    return value if value.is_Integer else number(float(value))


def _equal(a: sympy.Expr, b: sympy.Expr) -> Relational:
    return sympy.Eq(a, b, evaluate=False)


# -- kinks ------------------------------------------------------------------------------------------------------------


def _of_extreme(node: sympy.Basic, seed: sympy.Expr, found: Contributions) -> None:
    is_maximum = isinstance(node, Maximum)
    loses, wins = (sympy.Lt, sympy.Ge) if is_maximum else (sympy.Gt, sympy.Le)
    first, second = node.args
    for mine, other in ((first, second), (second, first)):
        own = pull(mine, seed)
        if other.is_Integer and is_maximum:
            _add(found, _chosen(sympy.Le(mine, other, evaluate=False), {}, own))
        elif other.is_Integer:
            _add(found, _chosen(sympy.Lt(mine, other, evaluate=False), own, {}))
        elif not other.free_symbols:
            _add(found, _chosen(wins(mine, other, evaluate=False), own, {}))
        else:
            tied = _chosen(_equal(mine, other), pull(mine, div(seed, TWO)), own)
            _add(found, _chosen(loses(mine, other, evaluate=False), {}, tied))


def _of_absolute(x: sympy.Expr, seed: sympy.Expr, found: Contributions) -> None:
    negative = _chosen(sympy.Lt(x, ZERO, evaluate=False), pull(x, neg(seed)), {})
    _add(found, _chosen(greater(x, ZERO), pull(x, seed), negative))


# -- functions of one number ------------------------------------------------------------------------------------------


def _softplus_of(node: sympy.Basic) -> sympy.Expr | None:
    """The u of log(1 + exp(u)) and log1p(exp(u))."""
    if isinstance(node, Log1p) and isinstance(node.args[0], sympy.exp):
        return node.args[0].args[0]
    return _logistic(node.args[0]) if isinstance(node, sympy.log) else None


def _sqrt(x: sympy.Expr) -> sympy.Expr:
    return FUNCTIONS["sqrt"](x)


Rule = Callable[[sympy.Expr, sympy.Expr, sympy.Expr], sympy.Expr]
"""(the node, its argument, the seed) -> the argument's seed."""

FUNCTION_RULES: Mapping[type[sympy.Basic], Rule] = {
    sympy.exp: lambda y, x, seed: mul(seed, y),
    sympy.log: lambda y, x, seed: div(seed, x),
    sympy.tanh: lambda y, x, seed: mul(seed, sub(ONE, mul(y, y))),
    sympy.sin: lambda y, x, seed: mul(seed, FUNCTIONS["cos"](x)),
    sympy.cos: lambda y, x, seed: neg(mul(seed, FUNCTIONS["sin"](x))),
    sympy.tan: lambda y, x, seed: mul(seed, add(ONE, mul(y, y))),
    sympy.asin: lambda y, x, seed: div(seed, _sqrt(sub(ONE, mul(x, x)))),
    sympy.acos: lambda y, x, seed: neg(div(seed, _sqrt(sub(ONE, mul(x, x))))),
    sympy.atan: lambda y, x, seed: div(seed, add(ONE, mul(x, x))),
    sympy.sinh: lambda y, x, seed: mul(seed, FUNCTIONS["cosh"](x)),
    sympy.cosh: lambda y, x, seed: mul(seed, FUNCTIONS["sinh"](x)),
    sympy.asinh: lambda y, x, seed: div(seed, _sqrt(add(mul(x, x), ONE))),
    sympy.acosh: lambda y, x, seed: div(seed, _sqrt(sub(mul(x, x), ONE))),
    sympy.atanh: lambda y, x, seed: div(seed, sub(ONE, mul(x, x))),
    sympy.erf: lambda y, x, seed: mul(
        seed, mul(number(2 / math.sqrt(math.pi)), FUNCTIONS["exp"](neg(mul(x, x))))
    ),
    Expm1: lambda y, x, seed: mul(seed, add(y, ONE)),
    Log1p: lambda y, x, seed: div(seed, add(x, ONE)),
    Log2: lambda y, x, seed: div(seed, mul(x, number(math.log(2)))),
    Log10: lambda y, x, seed: div(seed, mul(x, number(math.log(10)))),
    Tf32: lambda y, x, seed: seed,
}
"""What a function of one number multiplies the seed by."""
