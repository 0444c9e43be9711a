"""Which Python objects are called in array expressions, and what evaluates a call of each."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

from polyfuse.frontend.python.numpy.broadcasting import converted
from polyfuse.frontend.python.numpy.expressions.evaluator import Call, Evaluator
from polyfuse.frontend.python.numpy.expressions.lists import number_or_array
from polyfuse.frontend.python.numpy.functions.arguments import Arguments
from polyfuse.frontend.python.numpy.values import Array, Scalar, Value, common_type, stored_type
from polyfuse.ir.number_types import HALVES, is_complex, is_integer, is_number, real_type

Function = Callable[[Evaluator, Arguments], Value]
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
                e: Evaluator, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
            ) -> Value:
                return function(e, Arguments(e, node, names, args, named))

            self.define(call, *functions)
            return function

        return register

    def inlines(
        self,
        program: Callable[..., Any],
        *functions: object,
        complex_program: Callable[..., Any] | None = None,
    ) -> None:
        """Let a call of these objects be inlined as one of a program in NumPy, or of another for complex numbers."""

        def call(
            e: Evaluator, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
        ) -> Value:
            numbers = [value for value in args if isinstance(value, Array | Scalar)]
            if complex_program is not None and any(is_complex(value.dtype) for value in numbers):
                return e.inlined(e, node, complex_program, args, named)
            return e.inlined(e, node, program, args, named)

        self.define(call, *functions)

    def inlines_real(
        self,
        program: Callable[..., Any],
        *functions: object,
        complex_program: Callable[..., Any] | None = None,
        whole: bool = False,
    ) -> None:
        """The same for real numbers: operands and result have NumPy's type, whatever literals are in it.

        `whole` says that of integers it is the identity.
        """

        def call(
            e: Evaluator, node: ast.Call, args: list[Value], named: dict[str, Value], into: Array | None
        ) -> Value:
            values = [number_or_array(e, node, value) for value in args]
            types = [value.dtype for value in values]
            if whole and is_integer(types[0]):
                return values[0]
            if any(map(is_complex, types)):
                if complex_program is None:
                    e.refuse(node, f"{ast.unparse(node)} of complex numbers", "real numbers")
                return e.inlined(e, node, complex_program, list(values), named)
            dtype = stored_type(real_type(common_type(types)))  # type: ignore[arg-type]  # a type of nests
            wide = "float32" if dtype in HALVES else dtype
            real = [
                value
                if is_number(value.dtype) and isinstance(value, Scalar)
                else converted(e.program, value, wide)
                for value in values
            ]
            made = e.inlined(e, node, program, list(real), named)
            assert isinstance(made, Array | Scalar), "a function of numbers is a number"
            return converted(e.program, made, dtype)

        self.define(call, *functions)
