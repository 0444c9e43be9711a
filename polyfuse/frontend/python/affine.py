"""Python's integer expressions and conditions as isl functions and sets over the instances of a statement.

    aff  ::= integer | size | index | aff + aff | aff - aff | -aff | constant * aff | aff // constant | aff % constant
           | min(aff, …) | max(aff, …) | aff if cond else aff | len(A) | A.shape[d]
    cond ::= aff < aff | <= > >= == != (chained too) | cond and cond | cond or cond | not cond

Whatever else stands where an `aff` or `cond` is expected is refused, with its place in the source.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import NoReturn

import islpy as isl

from polyfuse.errors import NotAffine
from polyfuse.frontend.python.scope_names import Names
from polyfuse.sets import PARAM, SET, dim_names, param_names

ALLOWED = "integers, sizes, indices of the loops around, + and -, * // % by a constant, min, max, len(A), A.shape[d]"
ALLOWED_IF = f"comparisons (< <= > >= == !=) of {ALLOWED}; and, or, not"

_COMPARE: dict[type[ast.cmpop], Callable[[isl.PwAff, isl.PwAff], isl.Set]] = {
    ast.Lt: isl.PwAff.lt_set,
    ast.LtE: isl.PwAff.le_set,
    ast.Gt: isl.PwAff.gt_set,
    ast.GtE: isl.PwAff.ge_set,
    ast.Eq: isl.PwAff.eq_set,
    ast.NotEq: isl.PwAff.ne_set,
}


def instances(name: str | None, sizes: tuple[str, ...], dims: tuple[str, ...]) -> isl.Set:
    """All instances of a statement, without bounds: [N] -> { S[i, j] }."""
    space = isl.Space.set_alloc(isl.DEFAULT_CONTEXT, len(sizes), len(dims))
    for position, size in enumerate(sizes):
        space = space.set_dim_name(PARAM, position, size)
    for position, dim in enumerate(dims):
        space = space.set_dim_name(SET, position, dim)
    return isl.Set.universe(space if name is None else space.set_tuple_name(SET, name))


@dataclass(frozen=True)
class Affine:
    """Reads expressions as functions of the points of `domain`, whose dimensions are the loop indices in scope."""

    names: Names
    domain: isl.Set

    def constant(self, number: int) -> isl.PwAff:
        """The function that is one number everywhere."""
        return isl.PwAff.val_on_domain(isl.Set.universe(self.domain.get_space()), isl.Val(str(number)))

    def variable(self, name: str) -> isl.PwAff | None:
        """An index in scope, or a size, as a function; None if the name is neither."""
        space = isl.LocalSpace.from_space(self.domain.get_space())
        for kind, known in ((SET, dim_names(self.domain)), (PARAM, param_names(self.domain))):
            if name in known:
                return isl.PwAff.var_on_domain(space, kind, known.index(name))
        return None

    def value(self, node: ast.expr) -> isl.PwAff:
        """An integer expression; NotAffine if it is not affine."""
        match node:
            case ast.Constant(value=bool()):
                self._refuse(node, "a truth value where a number is needed")
            case ast.Constant(value=int() as number):
                return self.constant(number)
            case ast.Name() | ast.Attribute():
                return self._name(node)
            case ast.UnaryOp(op=ast.USub()):
                return self.value(node.operand).neg()
            case ast.UnaryOp(op=ast.UAdd()):
                return self.value(node.operand)
            case ast.BinOp():
                return self._binary(node)
            case ast.Call():
                return self._call(node)
            case ast.IfExp():
                return self._choice(node)
            case ast.Subscript(
                value=ast.Attribute(value=ast.Name(id=array), attr="shape"), slice=ast.Constant(int(d))
            ):
                return self._extent(node, array, d)
            case ast.Subscript():
                self._refuse(node, f"{ast.unparse(node)} depends on data")
        self._refuse(node, f"{ast.unparse(node)} is not affine")

    def is_value(self, node: ast.expr) -> bool:
        """True if an expression is affine."""
        try:
            self.value(node)
        except NotAffine:
            return False
        return True

    def is_condition(self, node: ast.expr) -> bool:
        """True if a test is a condition on sizes and indices."""
        try:
            self.condition(node)
        except NotAffine:
            return False
        return True

    def condition(self, node: ast.expr) -> isl.Set:
        """Return the isl set on which a condition holds; NotAffine if it is not affine."""
        match node:
            case ast.Constant(value=bool() as truth):
                everything = isl.Set.universe(self.domain.get_space())
                return everything if truth else everything.complement()
            case ast.BoolOp():
                joined = isl.Set.intersect if isinstance(node.op, ast.And) else isl.Set.union
                return reduce(joined, (self.condition(part) for part in node.values))
            case ast.UnaryOp(op=ast.Not()):
                return self.condition(node.operand).complement()
            case ast.Compare() if all(type(op) in _COMPARE for op in node.ops):
                values = [self.value(part) for part in (node.left, *node.comparators)]
                holds = (
                    _COMPARE[type(op)](a, b) for op, a, b in zip(node.ops, values, values[1:], strict=False)
                )
                return reduce(isl.Set.intersect, holds)
        self.names.source.refuse(
            node, f"{ast.unparse(node)} is not a condition on indices and sizes", ALLOWED_IF
        )

    def _name(self, node: ast.Name | ast.Attribute) -> isl.PwAff:
        found = self.variable(node.id) if isinstance(node, ast.Name) else None
        if found is not None:
            return found
        number = self.names.number(node)
        if isinstance(number, int):
            return self.constant(number)
        if number is not None:
            self._refuse(node, f"{ast.unparse(node)} is {number!r}, not an integer")
        what = (
            self.names.describe(node.id)
            if isinstance(node, ast.Name)
            else f"{ast.unparse(node)} is not a size"
        )
        self._refuse(node, f"{what}, not a size or an index of a loop around this")

    def _binary(self, node: ast.BinOp) -> isl.PwAff:
        left, right = self.value(node.left), self.value(node.right)
        match node.op:
            case ast.Add():
                return left.add(right)
            case ast.Sub():
                return left.sub(right)
            case ast.Mult():
                if not (left.is_cst() or right.is_cst()):
                    self._refuse(
                        node, f"{ast.unparse(node)} is a product of two values that are not constant"
                    )
                return left.mul(right)
            case ast.FloorDiv() | ast.Mod():
                divisor = right.max_val() if right.is_cst() else isl.Val(0)
                if not divisor.is_pos():
                    self._refuse(
                        node, f"{ast.unparse(node)} divides by something else than a positive constant"
                    )
                floor = isinstance(node.op, ast.FloorDiv)
                return left.scale_down_val(divisor).floor() if floor else left.mod_val(divisor)
        self._refuse(node, f"{ast.unparse(node)} is not affine")

    def _choice(self, node: ast.IfExp) -> isl.PwAff:
        holds = self.condition(node.test)
        then, other = self.value(node.body), self.value(node.orelse)
        return then.intersect_domain(holds).union_add(other.intersect_domain(holds.complement()))

    def _call(self, node: ast.Call) -> isl.PwAff:
        name = self.names.function(node.func)
        if name == "len" and len(node.args) == 1 and isinstance(node.args[0], ast.Name):
            return self._extent(node, node.args[0].id, 0)
        if name not in ("min", "max") or not node.args or node.keywords:
            self._refuse(node, f"{ast.unparse(node)} is not affine")
        return reduce(
            isl.PwAff.min if name == "min" else isl.PwAff.max, (self.value(arg) for arg in node.args)
        )

    def _extent(self, node: ast.expr, array: str, d: int) -> isl.PwAff:
        shape = self.names.shapes.get(array, ())
        if not 0 <= d < len(shape):
            self._refuse(node, f"{array} has no dimension {d}")
        return self.value(shape[d])

    def _refuse(self, node: ast.expr, why: str) -> NoReturn:
        self.names.source.refuse(node, why, ALLOWED)
