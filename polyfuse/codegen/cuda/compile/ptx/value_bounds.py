"""The largest result of a PTX instruction, if its operands bound it.

    and.b32 %r2, %r1, 7;     7
    shl.b64 %rd2, %rd1, 4;   16 times what %rd1 is at most
    mov.u32 %r1, %tid.x;     1023

By it an `or` is known to be an addition, where the other operand ends in as many zeros (linear_forms.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from polyfuse.codegen.cuda.compile.ptx.ptx_loops import THREAD

LARGEST = {"%tid": 1023, "%ntid": 1024, "%ctaid": 2**31 - 1, "%nctaid": 2**31 - 1}
"""CUDA C++ Programming Guide, technical specifications per compute capability."""

_INSTRUCTION = re.compile(r"\s*([a-z][\w.]*)\.[a-z](\d+)\s+%\w+, ([^@\[{]*);$")


def most_of(line: str, most: Callable[[str], int | None]) -> int | None:
    r"""The largest number that a line's instruction gives, or None; `most` says the same of its operands.

    Numbers are not negative: those of which that is not known have no largest number here.

    >>> most_of("\tmad.lo.s32 \t%r3, %r1, 4, %r2;", {"%r1": 7, "4": 4, "%r2": 3}.get)
    31
    >>> most_of("\tadd.s32 \t%r3, %r1, -1;", {"%r1": 7}.get) is None
    True
    """
    match = _INSTRUCTION.match(line)
    if match is None:
        return None
    operation, bits, text = match[1], int(match[2]), match[3]
    if THREAD.fullmatch(text):
        return LARGEST[text[:-2]]
    operands = [most(operand) for operand in text.split(", ")]
    if operation == "and":
        return min((one for one in operands if one is not None), default=None)
    known = [one for one in operands if one is not None]
    found = _largest(operation, known) if len(known) == len(operands) else None
    return found if found is not None and found < 1 << (bits - 1) else None


def _largest(operation: str, operands: list[int]) -> int | None:
    match operation, operands:
        case "mov" | "cvt.u64" | "cvt.u32" | "cvt.s64", [one]:
            return one
        case "or" | "xor", [left, right]:
            return (1 << max(left, right).bit_length()) - 1
        case "add", [left, right]:
            return left + right
        case "shl", [one, by] if by < 64:
            return one << by
        case "mul.lo" | "mul.wide", [left, right]:
            return left * right
        case "mad.lo", [left, right, more]:
            return left * right + more
    return None
