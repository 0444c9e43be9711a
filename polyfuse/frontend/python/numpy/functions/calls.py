"""Which Python objects are called in array expressions, and what evaluates a call of each."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

from polyfuse.frontend.python.numpy.expressions import Call, Expressions
from polyfuse.frontend.python.numpy.functions.arguments import Arguments
from polyfuse.frontend.python.numpy.values import Array, Value

Function = Callable[[Expressions, Arguments], Value]
"""Evaluates a call whose arguments have NumPy's names."""


class Calls:
    """A family of functions: the Python objects, compared by identity, and what evaluates a call of each."""

    def __init__(self) -> None:
        self._calls: list[tuple[object, Call]] = []

    def __iter__(self) -> Iterator[tuple[object, Call]]:
        return iter(self._calls)

    def define(self, call: Call, *functions: object) -> None:
        """Let a call of these objects be evaluated so."""
        self._calls += [(function, call) for function in functions]

    def reads(self, names: str, *functions: object) -> Callable[[Function], Function]:
        """Register a function of an evaluator and the arguments with these names."""

        def register(function: Function) -> Function:
            def call(
                e: Expressions, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
            ) -> Value:
                return function(e, Arguments(e, node, names, args, named))

            self.define(call, *functions)
            return function

        return register

    def inlines(self, program: Callable[..., Any], *functions: object) -> None:
        """Let a call of these objects be inlined as one of a program in NumPy."""

        def call(
            e: Expressions, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
        ) -> Value:
            return e.inlined(e, node, program, args, named)

        self.define(call, *functions)
