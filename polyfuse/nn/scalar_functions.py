"""Functions of one number that users define: `pf.scalar("softplus", "log1p(exp(x))")`.

    scalar(name, text)    text in the notation of statements, of one variable
    scalar(name, expr)    a SymPy expression of one symbol, converted node by node:

        a + b + c         (a + b) + c, with a - b for a sum with -b
        a * b**-1         a / b                       a ** (1/2)      sqrt(a)
        Max(a, b, c)      max(max(a, b), c)           sign(a)         where(a > 0, 1, where(a < 0, -1, 0))
        Piecewise         where, one in another       pi, log(2)      numbers

A function is its body: calls copy it into statements, and gradients differentiate what they find there.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import reduce
from typing import NoReturn, overload

import sympy
from sympy.core.relational import Relational

from polyfuse.errors import BadArgument, InvalidNest
from polyfuse.ir import statement
from polyfuse.ir.nest_text import value_text
from polyfuse.ir.scalar import (
    FUNCTIONS,
    Maximum,
    Minimum,
    Select,
    add,
    div,
    greater,
    mul,
    neg,
    number,
    power,
    read,
    sub,
)
from polyfuse.ir.statement import Statement
from polyfuse.nn.graph import Value, check_name, pointwise


@dataclass(frozen=True, eq=False)
class ScalarFunction:
    """A function of one number, as `scalar` makes it.

    Attributes:
        name: The name of its statements, without their number.
        body: A statement `out = body` whose one read, of the tensor `x`, is the argument.
    """

    name: str
    body: Statement

    @overload
    def __call__(self, x: Value) -> Value: ...

    @overload
    def __call__(self, x: str) -> str: ...

    def __call__(self, x: Value | str) -> Value | str:
        """Apply the function to each element of a value, or put text in the place of its argument.

        Args:
            x: A value of `polyfuse.nn`, or an operand of a statement as text: "x[i, j]".

        Returns:
            A value of the shape of x, or text for a statement.

        Raises:
            BadArgument: if x is neither, or its text is no expression.
        """
        if isinstance(x, Value):
            return pointwise(self.name, self._of(ast.Name("{0}")), x)
        if not isinstance(x, str):
            raise BadArgument(
                f"{self.name}: {type(x).__name__} is neither a value of polyfuse.nn nor text such as 'x[i, j]'"
            )
        try:
            operand = ast.parse(x.strip(), mode="eval").body
        except SyntaxError as error:
            raise BadArgument(f"{self.name}: {x!r} is no operand of a statement: {error.msg}") from error
        return f"({self._of(operand)})"

    def _of(self, operand: ast.expr) -> str:
        """The body's text with an operand for its argument."""

        class Put(ast.NodeTransformer):
            def visit_Name(self, node: ast.Name) -> ast.expr:
                return operand if node.id == ARGUMENT else node

        return ast.unparse(Put().visit(ast.parse(value_text(self.body, self.body.body), mode="eval")))

    def __str__(self) -> str:
        return f"{self.name}({ARGUMENT}) = {value_text(self.body, self.body.body)}"


ARGUMENT = "x"
"""The argument in a function's body."""


def scalar(name: str, expr: str | sympy.Expr) -> ScalarFunction:
    """Define a function of one number for layers and statements.

    Called with a value of `polyfuse.nn`, the function makes one statement, named after it. Called with text, it returns
    text: `pf.statement("{ S[i] : 0 <= i < 8 }", f"y[i] = {softplus('x[i]')}")`. `pf.vjp` and `pf.jvp` differentiate the
    body by the rules of SymPy's functions; at kinks they take torch's subgradients.

    Args:
        name: The function's name, an identifier.
        expr: Its value: text of one variable in the notation of statements, computed in the order in which it stands,
            or a SymPy expression of one symbol, in the order in which SymPy keeps it.

    Returns:
        The function.

    Raises:
        BadArgument: if the name is no identifier, the expression is not one of one variable, or has a function that
            statements do not have.

    >>> print(scalar("softplus", "log1p(exp(u))"))
    softplus(x) = log1p(exp(x))
    >>> print(scalar("swish", sympy.Symbol("u") / (1 + sympy.exp(-sympy.Symbol("u")))))
    swish(x) = x / (1 + exp(-x))
    """
    check_name("scalar function", name)
    if isinstance(expr, str):
        return ScalarFunction(name, _read(name, expr))
    if not isinstance(expr, sympy.Expr):
        raise BadArgument(f"scalar {name}: expected text or a SymPy expression, given {expr!r}")
    _check_variables(name, sorted(map(str, expr.free_symbols)))
    (symbol,) = expr.free_symbols
    body = _Conversion(name, symbol).of(expr)
    shell = _assigned(ARGUMENT)
    return ScalarFunction(name, Statement(shell.name, shell.domain, shell.write, shell.op, shell.reads, body))


def _assigned(text: str) -> Statement:
    return statement("{ scalar[] }", f"out = {text}")


def _read(name: str, text: str) -> Statement:
    """The statement of a function's text."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
        nodes = list(ast.walk(tree))
        called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
        names = (node for node in nodes if isinstance(node, ast.Name) and id(node) not in called)
        variables = {node.id for node in names if node.id != "inf"}
        _check_variables(name, sorted(variables))
        if any(isinstance(node, ast.Subscript) for node in nodes):
            raise BadArgument(f"scalar {name}: {text!r} has subscripts; its variable is one number")
        (own,) = variables

        class Rename(ast.NodeTransformer):
            def visit_Name(self, node: ast.Name) -> ast.expr:
                return ast.Name(ARGUMENT) if node.id == own and id(node) not in called else node

        return _assigned(ast.unparse(Rename().visit(tree)))
    except SyntaxError as error:
        raise BadArgument(f"scalar {name}: cannot read {text!r}: {error.msg}") from error
    except InvalidNest as error:
        raise BadArgument(f"scalar {name}: {error}") from error


def _check_variables(name: str, variables: list[str]) -> None:
    if len(variables) != 1:
        given = ", ".join(variables) or "none"
        raise BadArgument(
            f"scalar {name}: expected an expression of one variable, such as 'log1p(exp(x))'; its variables: {given}"
        )


@dataclass(frozen=True)
class _Conversion:
    """Makes a body of a SymPy expression of one symbol."""

    name: str
    symbol: sympy.Basic

    def of(self, expr: sympy.Basic) -> sympy.Expr:
        """The body of an expression."""
        if expr == self.symbol:
            return read(0)
        if not expr.free_symbols:
            return self._number(expr)
        match expr:
            case sympy.Add():
                return reduce(self._plus, expr.args[1:], self.of(expr.args[0]))
            case sympy.Mul():
                return self._product(expr)
            case sympy.Pow():
                return self._power(*expr.args)
            case sympy.Max():
                return reduce(Maximum, map(self.of, expr.args))
            case sympy.Min():
                return reduce(Minimum, map(self.of, expr.args))
            case sympy.Piecewise():
                return self._pieces(expr)
            case sympy.sign():
                x = self.of(expr.args[0])
                negative = Select(sympy.Lt(x, number(0), evaluate=False), neg(number(1)), number(0))
                return Select(greater(x, number(0)), number(1), negative)
        called = {"ceiling": "ceil"}.get(type(expr).__name__, type(expr).__name__.lower())
        if called not in FUNCTIONS or len(expr.args) != 1:
            self._refuse(expr)
        return FUNCTIONS[called](self.of(expr.args[0]))

    def _refuse(self, expr: sympy.Basic) -> NoReturn:
        raise BadArgument(
            f"scalar {self.name}: {expr} is not among + - * / **, Max, Min, Piecewise, comparisons, sign and "
            f"{', '.join(FUNCTIONS)}"
        )

    def _number(self, expr: sympy.Basic) -> sympy.Expr:
        if expr.is_Integer:
            whole = int(expr)
            return number(whole) if whole >= 0 else neg(number(-whole))
        value = sympy.N(expr, 30)
        if not (value.is_Float or value in (sympy.oo, -sympy.oo)):
            self._refuse(expr)
        return number(float(value)) if value >= 0 else neg(number(-float(value)))

    def _plus(self, total: sympy.Expr, term: sympy.Basic) -> sympy.Expr:
        factor, _ = term.as_coeff_Mul()
        return sub(total, self.of(-term)) if factor.is_negative else add(total, self.of(term))

    def _product(self, expr: sympy.Mul) -> sympy.Expr:
        """A product of factors over a product of divisors; its sign in front, then one number."""
        factor, rest = expr.as_independent(self.symbol, as_Add=False)
        if factor.is_negative:
            return neg(self.of(-expr))
        above: list[sympy.Expr] = [] if factor == 1 else [self._number(factor)]
        below: list[sympy.Expr] = []
        for one in sympy.Mul.make_args(rest):
            if isinstance(one, sympy.Pow) and one.exp.is_number and one.exp.is_negative:
                below.append(self._power(one.base, -one.exp))
            else:
                above.append(self.of(one))
        product = reduce(mul, above) if above else number(1)
        return div(product, reduce(mul, below)) if below else product

    def _power(self, base: sympy.Basic, exponent: sympy.Basic) -> sympy.Expr:
        if exponent.is_number and exponent.is_negative:
            return div(number(1.0), self._power(base, -exponent))
        if exponent == 1:
            return self.of(base)
        if exponent == sympy.Rational(1, 2):
            return FUNCTIONS["sqrt"](self.of(base))
        return power(self.of(base), self.of(exponent))

    def _pieces(self, expr: sympy.Piecewise) -> sympy.Expr:
        *pieces, (last, otherwise) = expr.args
        if otherwise != True:  # noqa: E712  # SymPy's own true, which is not Python's
            raise BadArgument(
                f"scalar {self.name}: {expr} has no value elsewhere; its last piece needs the condition True"
            )
        found = self.of(last)
        for value, condition in reversed(pieces):
            found = self._chosen(condition, self.of(value), found)
        return found

    def _chosen(self, condition: sympy.Basic, taken: sympy.Expr, other: sympy.Expr) -> sympy.Expr:
        """`taken` where a condition holds: comparisons, one after the other."""
        match condition:
            case sympy.And():
                return reduce(lambda rest, one: self._chosen(one, rest, other), condition.args, taken)
            case sympy.Or():
                return reduce(lambda rest, one: self._chosen(one, taken, rest), condition.args, other)
            case sympy.Not():
                return self._chosen(condition.args[0], other, taken)
            case Relational():
                test = condition.func(*map(self.of, condition.args), evaluate=False)
                return Select(test, taken, other)
        self._refuse(condition)


__all__ = ["ScalarFunction", "scalar"]
