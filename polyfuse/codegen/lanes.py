"""How many lanes LLVM gives the vectors of a loop: all that a register of the machine has.

    define void @kernel(…) "prefer-vector-width"="512" { for j: … }

LLVM takes half a register where it knows a processor's model as one that whole ones slow down: softmax of 4096 × 1024
took 2.0 ms in the vectors of AVX2 and 1.6 in those of AVX-512 (one core of a Xeon that has both). The width is an upper
bound: shorter registers are whole before.
"""

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
