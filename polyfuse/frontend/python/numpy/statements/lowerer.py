"""The state of a function that is lowered statement by statement, and the order of a body's statements.

if c: continue               ->   the rest of the body in an else
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from polyfuse.frontend.python.numpy.expressions.evaluator import Evaluator
from polyfuse.frontend.python.numpy.expressions.rules import RULES
from polyfuse.frontend.python.numpy.frames import Frame
from polyfuse.frontend.python.numpy.functions.table import called
from polyfuse.frontend.python.numpy.program import Program
from polyfuse.frontend.python.numpy.syntax import name
from polyfuse.frontend.python.numpy.values import Array, Static, Value


@dataclass
class Result:
    """The value that an inlined function has returned, or a tuple of them."""

    value: Value = field(default_factory=lambda: Static(None))
    is_given: bool = False


Rule = Callable[["Lowerer", Any], bool]
"""Lowers a statement; False if it is left as it stands."""


@dataclass(frozen=True)
class Rules:
    """The functions that lower each kind of statement, an `if` that returns before the end, and an inlined call."""

    statements: Mapping[type[ast.stmt], Rule]
    early_return: Callable[[Lowerer, ast.If, list[ast.stmt]], None]
    inline: Callable[[Lowerer, Evaluator, ast.Call, Any, list[Value], dict[str, Value]], Value]


class Lowerer:
    """Lowers the statements of one frame after the other into one program."""

    def __init__(self, program: Program, frame: Frame, rules: Rules) -> None:
        self.program, self.rules = program, rules
        self.frames = [frame]
        self.evaluator = Evaluator(program, frame, RULES, called, partial(rules.inline, self))
        self.results: list[Result] = []
        self.around: list[ast.For] = []

    @property
    def frame(self) -> Frame:
        """The function that is being read."""
        return self.frames[-1]

    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """The lowered statements of a body."""
        outside, self.program.block = self.program.block, []
        try:
            self.statements(body)
            return self.program.block
        finally:
            self.program.block = outside

    def statements(self, body: Sequence[ast.stmt]) -> None:
        """Lower statements into the current block."""
        for position, node in enumerate(body):
            rest = list(body[position + 1 :])
            match node:
                case ast.If(body=[*first, ast.Continue()], orelse=[]):
                    inside = first or [ast.copy_location(ast.Pass(), node)]
                    self.statement(ast.copy_location(ast.If(node.test, inside, rest), node))
                    return
                case ast.If() if any(map(_returns, (node,))):
                    self.rules.early_return(self, node, rest)
                    return
                case ast.Continue():
                    return
            self.statement(node)

    def statement(self, node: ast.stmt) -> None:
        """Lower one statement."""
        if self.frame.is_first:
            self.program.place = node
        rule = self.rules.statements.get(type(node))
        if rule is not None and rule(self, node):
            return
        if not self.frame.is_first:
            self.evaluator.refuse(
                node,
                f"{type(node).__name__.lower()} is not a statement of an affine program",
                "for … in range(…), if, assignments, return at the end",
            )
        self.program.emit(node)

    def changed(self, storage: str | None) -> None:
        """Forget the elements that masks select of what has changed."""
        for frame in self.frames:
            for variable, value in list(frame.variables.items()):
                if isinstance(value, Array) and value.mask is not None and storage is not None:
                    index = tuple(name("i") for _ in value.shape)
                    read = (value.element(index), value.mask.element(index))
                    if any(isinstance(p, ast.Name) and p.id == storage for e in read for p in ast.walk(e)):
                        del frame.variables[variable]


def _returns(node: ast.stmt) -> bool:
    return any(isinstance(part, ast.Return) for part in ast.walk(node))
