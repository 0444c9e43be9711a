"""A vector program as a value: a function in emitted source that intrinsics read and no code calls.

    @VectorRow
    def mac_bias_relu_row(y, b, out):               one vector of each of its parameters
        z = y + b
        out[:] = larger(z, float32(0.0))            is stored

    short_row(mac_bias_relu_row, float32, 32, (address(y, …), address(b, …), address(out, …)), ())

For numba it is a type of its own: functions of the same text are one type, as equal numbers are one literal.
"""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Callable
from functools import cached_property
from textwrap import dedent
from typing import Any

from numba.core import types
from numba.core.datamodel.models import OpaqueModel
from numba.core.imputils import lower_constant
from numba.extending import register_model, typeof_impl


class VectorRow:
    """A function whose statements are emitted for vectors."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    @cached_property
    def definition(self) -> ast.FunctionDef:
        """Its source, which Python's `linecache` has: of a file, or what a compiler has put there."""
        code = self.function.__code__
        block = inspect.getblock(linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :])
        (definition,) = ast.parse(dedent("".join(block))).body
        assert isinstance(definition, ast.FunctionDef), "a row is a function"
        return definition

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of what it is a program for."""
        return tuple(argument.arg for argument in self.definition.args.args)

    @property
    def statements(self) -> list[ast.stmt]:
        """Its lines."""
        return self.definition.body


class VectorRowType(types.Type):
    """The type of one row."""

    def __init__(self, row: VectorRow) -> None:
        self.row = row
        super().__init__(f"vector_row({ast.unparse(row.definition)})")


register_model(VectorRowType)(OpaqueModel)


@typeof_impl.register(VectorRow)
def _type_of_a_row(row: VectorRow, _: Any) -> VectorRowType:
    return VectorRowType(row)


@lower_constant(VectorRowType)
def _constant_row(context: Any, *_: Any) -> Any:
    return context.get_dummy_value()
