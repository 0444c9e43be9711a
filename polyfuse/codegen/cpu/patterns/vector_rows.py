"""The common part of patterns that print vector rows: the call of a row's function, and its lines."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac import VECTOR_BYTES

Define = Callable[[Sequence[str], Sequence[str]], str]
"""Prints a `VectorRow` with such parameters and lines beside the kernel, and returns its name."""


def assigned(line: str) -> str:
    """out += a * b  ->  out = out + a * b."""
    match ast.parse(line).body:
        case [ast.AugAssign(target, op, value)]:
            return f"{ast.unparse(target)} = {ast.unparse(ast.BinOp(target, op, value))}"
    return line


def stored(line: str, elements: set[str]) -> str:
    """An assignment, to all of an element's vector if it is to one: out = z  ->  out[:] = z."""
    name, value = line.split(" = ", 1)
    return f"{name}[:] = {value}" if name in elements else line


def in_whole_vectors(nbytes: int) -> bool:
    """True if no vector of a row is cut short.

    A part is stored under a mask, and the processor does not forward that to the load of the next operation in place:
    LeNet's first layer with its pooling took 53 µs with maxima of rows of 6 so, and 42 with scalars (one Zen 4 core).
    """
    return nbytes in (VECTOR_BYTES // 4, VECTOR_BYTES // 2) or nbytes % VECTOR_BYTES == 0
