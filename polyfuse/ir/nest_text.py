"""The text form of nests and statements, both ways: printing, and reading "Y[i, j] += X[i, k] * W[k, j]"."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import partial

import islpy as isl
import sympy

from polyfuse.errors import InvalidNest
from polyfuse.errors.proving import proving
from polyfuse.ir import scalar
from polyfuse.ir.access import Access
from polyfuse.ir.expression import OPERATORS, Dialect, call, to_ast
from polyfuse.ir.number_types import Type
from polyfuse.ir.statement import Statement
from polyfuse.sets import dim_names, param_names

_ASSIGNMENT = re.compile(
    r"^\s*(?P<target>\w+\s*(?:\[.*?\])?)\s*(?P<op>max=|min=|\+=|\*=|=)(?!=)\s*(?P<value>.+)$", re.S
)

COMPARE = {
    ast.Gt: sympy.Gt,
    ast.GtE: sympy.Ge,
    ast.Lt: sympy.Lt,
    ast.LtE: sympy.Le,
    ast.Eq: sympy.Eq,
    ast.NotEq: sympy.Ne,
}
BINARY: dict[type[ast.operator], Callable[[sympy.Expr, sympy.Expr], sympy.Expr]] = {
    ast.Add: scalar.add,
    ast.Sub: scalar.sub,
    ast.Mult: scalar.mul,
    ast.Div: scalar.div,
    ast.Pow: scalar.power,
    **{operator: partial(node, evaluate=False) for node, operator in OPERATORS.items()},
}
"""Python's operators and comparisons as bodies, for everyone who reads Python."""


def body_text(statement: Statement) -> str:
    """The assignment as a program would write it: "Y[i, j] += X[i, k] * W[k, j]"."""
    return f"{statement.write} {statement.op} {value_text(statement, statement.body)}"


def value_text(statement: Statement, value: sympy.Basic) -> str:
    """A part of a statement's body as a program would write it: "X[i, k] * W[k, j]"."""

    def leaf(symbol: sympy.Symbol) -> ast.expr:
        text = str(statement.reads[symbol.position]) if isinstance(symbol, scalar.Read) else symbol.name
        return ast.Name(text)

    return ast.unparse(to_ast(value, Dialect(leaf, _number, lambda name, args, _: call(name, args))))


def _number(value: float, _: Type) -> ast.expr:
    return ast.Name("inf") if value == float("inf") else ast.Constant(value)


def statement_text(statement: Statement) -> str:
    """The statement in isl's notation: assignment, domain, access relations."""
    lines = [f"{statement.name}: {body_text(statement)}", f"  domain {statement.domain}"]
    lines.append(f"  write  {statement.write.map}")
    lines += [f"  read   {access.map}" for access in statement.reads]
    return "\n".join(lines)


def set_of(given: str | isl.Set) -> isl.Set:
    """A set, or what isl reads in its text; InvalidNest for anything else."""
    if not isinstance(given, str | isl.Set):
        raise InvalidNest(f"{given!r} is neither an isl set nor the text of one")
    try:
        return isl.Set(given) if isinstance(given, str) else given
    except isl.Error as error:
        raise InvalidNest(
            f"{given!r} is not an isl set, such as '[N] -> {{ [i, j] : 0 <= i <= j < N }}'"
        ) from error


@proving("reading a statement")
def statement(domain: str | isl.Set, text: str) -> Statement:
    """Parse a statement from its domain and its assignment.

    Args:
        domain: An isl set whose tuple has the statement's name.
        text: The assignment. Subscripts are isl quasi-affine expressions in the domain's dimensions and parameters; a
            bare name is an index, a size, or a scalar tensor. Functions: those of
            `polyfuse.ir.scalar.FUNCTIONS`.

    Returns:
        The statement.

    Raises:
        InvalidNest: if the domain or the text cannot be read.

    >>> s = statement("{ mac[i, j, k] : 0 <= i, j, k < 8 }", "Y[i, j] += X[i, k] * W[k, j]")
    >>> s.op, [a.tensor for a in s.reads]
    ('+=', ['X', 'W'])
    """
    set_ = set_of(domain)
    name = set_.get_tuple_name()
    found = _ASSIGNMENT.match(text) if isinstance(text, str) else None
    if name is None or found is None:
        raise InvalidNest(
            f"cannot read {text!r} over {set_}: expected NAME[dims] and TARGET[subscripts] op VALUE"
        )
    target = ast.parse(found["target"].strip(), mode="eval").body
    reader = _Reader(set_)
    write = reader.access(target)
    try:
        value = ast.parse(found["value"].strip(), mode="eval").body
    except SyntaxError as error:
        raise InvalidNest(f"statement {name}: cannot read {found['value']!r}: {error.msg}") from error
    body = reader.expression(value)
    return Statement(name, set_, write, found["op"], tuple(reader.reads), body)


class _Reader:
    """Turns Python expressions into a body, collecting read accesses on the way (equal accesses once)."""

    def __init__(self, domain: isl.Set) -> None:
        self.domain = domain
        self.known = {*dim_names(domain), *param_names(domain)}
        self.reads: list[Access] = []

    def access(self, node: ast.expr) -> Access:
        """`A[i, k]` or a scalar's name, as an access from the domain's instances."""
        if isinstance(node, ast.Name):
            return self._access(node.id, "")
        if not (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)):
            raise InvalidNest(f"expected TENSOR[subscripts], not {ast.unparse(node)!r}")
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return self._access(node.value.id, ", ".join(_isl_text(index) for index in inner))

    def _access(self, tensor: str, subscripts: str) -> Access:
        params, dims = ", ".join(param_names(self.domain)), ", ".join(dim_names(self.domain))
        name = self.domain.get_tuple_name()
        try:
            relation = isl.Map(f"[{params}] -> {{ {name}[{dims}] -> {tensor}[{subscripts}] }}")
        except isl.Error as error:
            hint = (
                "; rows that integers choose are a tensor of their own (Tensor.gathered)"
                if "[" in subscripts
                else ""
            )
            raise InvalidNest(
                f"statement {name}: {tensor}[{subscripts}] is not affine in {dims}{hint}"
            ) from error
        return Access(tensor, relation)

    def leaf(self, access: Access) -> sympy.Expr:
        """The read leaf for an access."""
        for position, known in enumerate(self.reads):
            if known.tensor == access.tensor and known.map.is_equal(access.map):
                return scalar.read(position)
        self.reads.append(access)
        return scalar.read(len(self.reads) - 1)

    def expression(self, node: ast.expr) -> sympy.Basic:
        """A Python expression as an unevaluated body."""
        match node:
            case ast.Constant(value=int() | float() as literal):
                return scalar.number(literal)
            case ast.Name() if node.id in self.known:
                return sympy.Symbol(node.id)
            case ast.Name(id="inf"):
                return scalar.number(float("inf"))
            case ast.Name() | ast.Subscript():
                return self.leaf(self.access(node))
            case ast.UnaryOp(op=ast.USub()):
                return scalar.neg(self.expression(node.operand))
            case ast.BinOp() if type(node.op) in BINARY:
                return BINARY[type(node.op)](self.expression(node.left), self.expression(node.right))
            case ast.Compare(ops=[op]) if type(op) in COMPARE:
                right = self.expression(node.comparators[0])
                return COMPARE[type(op)](self.expression(node.left), right, evaluate=False)
            case ast.Call(func=ast.Name(id=name)) if name in scalar.FUNCTIONS:
                return scalar.FUNCTIONS[name](*(self.expression(arg) for arg in node.args))
        known = ", ".join(scalar.FUNCTIONS)
        raise InvalidNest(
            f"statement {self.domain.get_tuple_name()}: cannot read {ast.unparse(node)!r}; "
            f"allowed are numbers, subscripted tensors, + - * / ** // %, << >> & | ^ of integers, one "
            f"comparison, and {known}"
        )


def _isl_text(node: ast.expr) -> str:
    """A subscript in isl's notation: `i // 2` is floor((i)/2), `i % 3` is (i) mod 3."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
        return f"floor(({_isl_text(node.left)})/{_isl_text(node.right)})"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return f"(({_isl_text(node.left)}) mod {_isl_text(node.right)})"
    if isinstance(node, ast.BinOp):
        symbol = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}.get(type(node.op))
        if symbol is not None:
            return f"({_isl_text(node.left)} {symbol} {_isl_text(node.right)})"
    return ast.unparse(node)
