"""Evaluate a function's expressions to values: numbers stay as they are written, arrays become views and formulas.

An expression of numbers alone is given back as it stands, so that what the reader of single elements refuses, it
refuses at its place in the source. `rules` evaluates each kind of node by the modules of this folder.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from polyfuse.errors import NotAffine
from polyfuse.frontend.python.numpy.frames import Frame
from polyfuse.frontend.python.numpy.program import Program
from polyfuse.frontend.python.numpy.syntax import placed
from polyfuse.frontend.python.numpy.values import Array, Scalar, Value

Call = Callable[["Evaluator", ast.Call, list[Value], dict[str, Value], Array | None], Value]
"""Evaluates a call: the evaluator, the node, the arguments by position and by name, where the result may go."""

Rule = Callable[["Evaluator", Any, Array | None, str | None], Value]
"""Evaluates a node: the evaluator, the node, where the result may go, the name that it is assigned to."""

ALLOWED = "array expressions of NumPy: slices, arithmetic, @, sums and maxima over axes, np.where, np.exp, …"


class Evaluator:
    """Evaluates the expressions of one frame at a time; what needs statements of its own emits them to the program."""

    def __init__(
        self,
        program: Program,
        frame: Frame,
        rules: Mapping[type[ast.expr], Rule],
        calls: Callable[[object], Call | None],
        inlined: Callable[[Evaluator, ast.Call, Any, list[Value], dict[str, Value]], Value],
    ) -> None:
        self.program, self.frame, self.rules = program, frame, rules
        self.calls, self.inlined = calls, inlined
        self.constants: dict[int, Array] = {}

    def refuse(self, node: ast.AST, why: str, allowed: str = ALLOWED) -> NoReturn:
        """Raise NotAffine at a node of the frame's source, with the calls that lead there."""
        chain = self.frame.chain()
        self.frame.source.refuse(node, f"{why} ({chain})" if chain else why, allowed)

    def unread(self, node: ast.expr, whole: ast.expr | None = None) -> Scalar:
        """Hand an expression to the reader of elements, which refuses it if it cannot read it either.

        In an inlined function it is refused here, since that reader knows the decorated function's names alone.
        """
        if not self.frame.is_first:
            self.refuse(node, f"{ast.unparse(node)}, which pf.nest does not read")
        return Scalar(whole or node, "fraction")

    def value(self, node: ast.expr, into: Array | None = None) -> Value:
        """The value of an expression. `into` is where a reduction may leave its result."""
        hint, self.program.hint = self.program.hint, None
        rule = self.rules.get(type(node))
        return self.unread(node) if rule is None else rule(self, node, into, hint)

    def parts(self, node: ast.expr) -> tuple[Value, ...]:
        """An element of a tuple as it is written: *t are all elements of t."""
        if not isinstance(node, ast.Starred):
            return (self.value(node),)
        found = self.value(node.value)
        if not isinstance(found, tuple):
            self.refuse(node, f"{ast.unparse(node)} of what is no tuple", "tuples")
        return found

    def placed_scalar(self, node: ast.expr, where: ast.AST) -> Scalar:
        """An integer that was made here, at a place in the source."""
        return Scalar(placed(copied(node), where), "integer")

    def affine(self, node: ast.expr) -> ast.expr:
        """An integer that is affine. NotAffine, with the calls that lead here, if it is not."""
        try:
            self.program.geometry.here().affine.value(placed(node, self.program.place))
        except NotAffine as error:
            chain = self.frame.chain()
            raise (
                NotAffine(
                    f"{error.why} ({chain})", error.file, error.line, error.column, error.text, error.allowed
                )
                if chain
                else error
            ) from None
        return node

    def integer(self, node: ast.expr) -> ast.expr:
        """An integer in a bound or a shape, as it is written."""
        value = self.value(node)
        if not isinstance(value, Scalar):
            self.refuse(
                node, f"{ast.unparse(node)} where an integer is expected", "integers, sizes and indices"
            )
        return value.node


def copied(node: ast.expr) -> ast.expr:
    """A new node of the same parts, so that a place given to it is its own."""
    return ast.parse(ast.unparse(node), mode="eval").body if not hasattr(node, "lineno") else node


def rebuilt(node: Any, **parts: Any) -> Any:
    """The node itself if its parts are those it has, else a new one of these parts at its place."""

    def same(new: Any, old: Any) -> bool:
        if isinstance(new, list):
            return len(new) == len(old) and all(a is b for a, b in zip(new, old, strict=True))
        return new is old

    if all(same(part, getattr(node, field)) for field, part in parts.items()):
        return node
    fields = {field: getattr(node, field) for field in node._fields}
    return ast.copy_location(type(node)(**{**fields, **parts}), node)
