"""The attribute of a function by which LLVM fills whole registers with its vectors (cpu/intrinsics/vector_width.py)."""

from __future__ import annotations

from typing import ClassVar

from llvmlite import ir

WHOLE_REGISTERS = '"prefer-vector-width"="512"'


class _Attributes(ir.values.FunctionAttributes):
    """A function's attributes, which may be this one too; llvmlite knows those of one word."""

    _known: ClassVar[frozenset[str]] = ir.values.FunctionAttributes._known | {WHOLE_REGISTERS}


def in_whole_registers(function: ir.Function) -> None:
    """Let LLVM fill whole registers in a function that is being written, and in what is inlined into it."""
    if WHOLE_REGISTERS not in function.attributes:
        function.attributes = _Attributes([*function.attributes, WHOLE_REGISTERS])
