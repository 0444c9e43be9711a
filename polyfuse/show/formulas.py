r"""Nests and statements as LaTeX: bodies by SymPy's printer, domains by isl's.

statement  ->  Y_{i, j} \mathrel{+}= X_{i, k} \, W_{k, j} \qquad \{\, \mathrm{mac}(i, j, k) \mid … \,\}
"""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl
import sympy
from sympy.printing.latex import LatexPrinter
from sympy.printing.precedence import PRECEDENCE

from polyfuse.errors.proving import proving
from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.gather import parts_of
from polyfuse.ir.given import nest_given
from polyfuse.ir.scalar import (
    NAMES,
    AsType,
    BitAnd,
    BitOr,
    BitXor,
    FloorDiv,
    LeftShift,
    Modulo,
    Named,
    OfIntegers,
    Read,
    RightShift,
)
from polyfuse.sets import IN, OUT, PARAM, SET, dim_names, expression_text, param_names

OPERATORS = {
    "=": "=",
    "+=": r"\mathrel{+}=",
    "*=": r"\mathrel{\times}=",
    "max=": r"\mathrel{\max}=",
    "min=": r"\mathrel{\min}=",
}
"""The LaTeX of each operator of a statement."""

OF_INTEGERS = {
    Modulo: r"\bmod",
    LeftShift: r"\ll",
    RightShift: r"\gg",
    BitAnd: r"\mathbin{\&}",
    BitOr: r"\mathbin{|}",
    BitXor: r"\oplus",
}
"""The LaTeX of each operation on integers."""


@proving("the view latex")
def latex(what: Nest | Statement) -> str:
    r"""Return a statement, or all statements of a nest, as LaTeX for math mode.

    Args:
        what: The nest or statement.

    Returns:
        The LaTeX source.

    >>> from polyfuse.ir import statement
    >>> print(latex(statement("{ S[i] : 0 <= i < 8 }", "y[i] = 2*x[i + 1]")))
    y_{i} = 2 \, x_{i + 1} \qquad \{\, \mathrm{S}(i) \mid 0 \le i \le 7 \,\}
    """
    if isinstance(what, Statement):
        return rf"{assignment(what)} \qquad {domain(what.domain)}"
    nest = nest_given("latex", what, "a nest or a statement")
    rows = [f"  {assignment(s, nest)} & {domain(s.domain)}" for s in nest.statements]
    return "\n".join([r"\begin{array}{ll}", " \\\\\n".join(rows), r"\end{array}"])


def assignment(statement: Statement, nest: Nest | None = None) -> str:
    """Return one instance's assignment: target, operator, body; with its nest also the source of gathered rows."""
    reads = {leaf: element(statement.reads[leaf.position], nest) for leaf in statement.body.atoms(Read)}
    others = {symbol: name(symbol.name) for symbol in statement.body.free_symbols if symbol not in reads}
    body = BodyPrinter({"symbol_names": reads | others}).doprint(statement.body)
    return f"{element(statement.write)} {OPERATORS[statement.op]} {body}"


def domain(set_: isl.Set) -> str:
    """A set in isl's LaTeX, its names made safe for math mode."""
    safe = set_.set_tuple_name(set_.get_tuple_name().replace("_", r"\_"))
    for kind, names in ((SET, dim_names(set_)), (PARAM, param_names(set_))):
        for position, given in enumerate(names):
            safe = safe.set_dim_name(kind, position, name(given))
    printer = isl.Printer.to_str(safe.get_ctx()).set_output_format(isl.format.LATEX)
    return str(printer.print_set(safe).get_str())


def element(access: Access, nest: Nest | None = None) -> str:
    """The element an access accesses: X_{i, k + 1}; of rows that x chooses from w, w_{x_{i}, k}."""
    parts, inside = access.subscripts(), access.map.domain()
    indices = [subscript(parts.get_pw_aff(d).gist(inside)) for d in range(access.map.dim(OUT))]
    tensor = nest.tensor(access.tensor) if nest is not None else None
    if nest is None or tensor is None or tensor.gather is None:
        return indexed(access.tensor, indices)
    table, index = parts_of(nest, tensor)
    return indexed(table.name, [indexed(index.name, indices[: index.rank]), *indices[index.rank :]])


def indexed(tensor: str, indices: Sequence[str]) -> str:
    """A tensor with its subscripts, if it has any."""
    return f"{name(tensor)}_{{{', '.join(indices)}}}" if indices else name(tensor)


def subscript(value: isl.PwAff) -> str:
    """A quasi-affine function of the indices; isl's text where it has several pieces."""
    pieces = value.get_pieces()
    if len(pieces) != 1:
        return rf"\mathtt{{{expression_text(value).replace('_', chr(92) + '_')}}}"
    formula = quasi_affine(pieces[0][1])
    return str(sympy.latex(formula, symbol_names={s: name(s.name) for s in formula.free_symbols}))


def quasi_affine(value: isl.Aff) -> sympy.Expr:
    """An isl function as a SymPy expression.

    >>> quasi_affine(isl.Aff("[N] -> { S[i] -> [(N + 2*floor((i + 1)/4) - 3)] }"))
    N + 2*floor(i/4 + 1/4) - 3
    """
    total = _number(value.get_constant_val())
    for kind in (PARAM, IN):
        for position in range(value.dim(kind)):
            symbol = sympy.Symbol(value.get_dim_name(kind, position) or f"d{position}", integer=True)
            total += _number(value.get_coefficient_val(kind, position)) * symbol
    for position in range(value.dim(isl.dim_type.div)):
        factor = _number(value.get_coefficient_val(isl.dim_type.div, position))
        if factor:
            total += factor * sympy.floor(quasi_affine(value.get_div(position)))
    return total


def _number(value: isl.Val) -> sympy.Rational:
    return sympy.Rational(str(value))


def name(given: str) -> str:
    r"""A name in math mode: one letter as it is, a longer one as a word.

    >>> print(name("i"), name("w_0"))
    i \mathit{w\_0}
    """
    if len(given) == 1:
        return given
    return rf"\mathit{{{given}}}".replace("_", r"\_")


class BodyPrinter(LatexPrinter):
    """SymPy's printer, but sums and products keep the order and the brackets in which they are computed."""

    def _print_Add(self, expr: sympy.Add, order: str | None = None) -> str:
        first, *rest = expr.args
        text = self._print(first)
        for term in rest:
            negated = isinstance(term, sympy.Mul) and len(term.args) == 2 and term.args[0] == -1
            sign, operand = ("-", term.args[1]) if negated else ("+", term)
            text += f" {sign} {self.parenthesize(operand, PRECEDENCE['Add'])}"
        return str(text)

    def _print_Mul(self, expr: sympy.Mul) -> str:
        first, *rest = expr.args
        if first == -1 and len(rest) == 1:
            return f"-{self.parenthesize(rest[0], PRECEDENCE['Mul'], strict=True)}"
        text, bare = self._print(first), self.parenthesize(first, PRECEDENCE["Mul"], strict=True)
        for factor in rest:
            if is_inverse(factor):
                text = rf"\frac{{{text}}}{{{self._print(factor.args[0])}}}"
            else:
                text = self._times(bare, factor)
            bare = text
        return str(text)

    def _times(self, left: str, factor: sympy.Expr) -> str:
        quotient = isinstance(factor, sympy.Mul) and is_inverse(factor.args[-1])
        right = self._print(factor) if quotient else self.parenthesize(factor, PRECEDENCE["Mul"])
        return rf"{left} {chr(92)}{'cdot' if right[:1].isdigit() else ','} {right}"

    def _print_Pow(self, expr: sympy.Pow) -> str:
        base, exponent = expr.args
        if exponent == -1:
            return rf"\frac{{1}}{{{self._print(base)}}}"
        if exponent.is_Rational and exponent.is_negative:  # SymPy's own would go through a product
            return rf"{self.parenthesize(base, PRECEDENCE['Pow'])}^{{{self._print(exponent)}}}"
        return str(super()._print_Pow(expr))

    def _print_Float(self, expr: sympy.Float) -> str:
        return str(super()._print_Float(sympy.Float(repr(float(expr)))))  # 0.1, not its 17 digits

    def _print_Maximum(self, expr: sympy.Function) -> str:
        return self._call(r"\max", expr.args)

    def _print_Minimum(self, expr: sympy.Function) -> str:
        return self._call(r"\min", expr.args)

    def _print_FloorDiv(self, expr: FloorDiv) -> str:
        return rf"\left\lfloor{{\frac{{{self._print(expr.args[0])}}}{{{self._print(expr.args[1])}}}}}\right\rfloor"

    def _print_Function(self, expr: sympy.Function, exp: str | None = None) -> str:
        if isinstance(expr, OfIntegers):
            left, right = map(self._print, expr.args)
            return rf"\left({left} {OF_INTEGERS[type(expr)]} {right}\right)"
        if isinstance(expr, AsType):
            return self._call(rf"\operatorname{{{expr.dtype}}}", expr.args)
        if isinstance(expr, Named):
            return self._call(rf"\operatorname{{{NAMES[type(expr)]}}}", expr.args)
        return str(super()._print_Function(expr, exp))

    def _print_Select(self, expr: sympy.Function) -> str:
        condition, yes, no = (self._print(arg) for arg in expr.args)
        return rf"\begin{{cases}} {yes} & \text{{if }} {condition} \\ {no} & \text{{otherwise}} \end{{cases}}"

    def _call(self, function: str, args: Sequence[sympy.Expr]) -> str:
        return rf"{function}\left({', '.join(map(self._print, args))}\right)"


def is_inverse(body: sympy.Basic) -> bool:
    """True if a factor divides: x ** -1."""
    return isinstance(body, sympy.Pow) and body.args[1] == -1
