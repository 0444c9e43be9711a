"""The device operations in lock-step, element by element: what `device_operations` says, by NumPy.

Every element goes through the memories' checks, as the plain loops' would.
"""

from __future__ import annotations

import ast
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from polyfuse.codegen.lockstep_values import Value

Numbers = npt.NDArray[Any]

WIDE = 16
"""Bytes of one access to a vector."""


class Threads(Protocol):
    """What an operation needs of the machine that runs all threads."""

    active: Any

    def value(self, node: ast.expr) -> Value:
        """An expression's value."""

    def load(self, node: ast.Subscript, indices: list[Any], nbytes: int | None = None) -> Value:
        """Elements of an array."""

    def store(self, node: ast.Subscript, indices: list[Any], value: Value, nbytes: int | None = None) -> None:
        """Set elements of an array."""


def distance(step: Any, along: int, line: int, every: int, skip: int, part: int, vector: int) -> Any:
    """How far an element of a factor lies from the tile's first one."""
    return step * line + step // every * skip + along // vector * part + along % vector


def perform(threads: Threads, name: str, node: ast.stmt, arguments: list[ast.expr]) -> None:
    """One call of an operation by the active threads."""
    (_tile_fma if name == "tile_fma" else _copy_vector)(threads, node, arguments)


def _element(node: ast.stmt, array: ast.expr) -> ast.Subscript:
    """An element of an array, for messages and checks."""
    return ast.Subscript(array, ast.Constant(0), lineno=node.lineno)


def _numbers(arguments: list[ast.expr]) -> list[int]:
    return [int(ast.literal_eval(argument)) for argument in arguments]


def _tile_fma(threads: Threads, node: ast.stmt, arguments: list[ast.expr]) -> None:
    rows, columns, most = _numbers(arguments[:3])
    y, a, b = (_element(node, arguments[p]) for p in (3, 4, 11))
    a_lines, b_lines = _numbers(arguments[6:11]), _numbers(arguments[13:18])
    a_at, b_at, count = (np.asarray(threads.value(arguments[p])) for p in (5, 12, 18))
    places = [[np.int64(r), np.int64(c)] for r in range(rows) for c in range(columns)]
    sums = [np.asarray(threads.load(y, place)) for place in places]
    outer = threads.active
    for step in range(most):
        runs = np.asarray(step < count)
        threads.active = outer.where(np.broadcast_to(runs, np.shape(sums[0]))) if runs.ndim else outer
        if threads.active.count == 0 or (runs.ndim == 0 and not runs):
            break
        left = _line(threads, a, a_at, rows, step, a_lines)
        right = _line(threads, b, b_at, columns, step, b_lines)
        new = [s + x * z for s, (x, z) in zip(sums, ((x, z) for x in left for z in right), strict=True)]
        sums = [np.where(runs, after, before) for after, before in zip(new, sums, strict=True)]
    threads.active = outer
    for total, place in zip(sums, places, strict=True):
        threads.store(y, place, total)


def _line(
    threads: Threads, factor: ast.Subscript, at: Numbers, count: int, step: int, lines: list[int]
) -> list[Numbers]:
    """A factor's elements of one step; the access of a vector is counted with its first element."""
    vector = lines[-1]
    return [
        np.asarray(threads.load(factor, [at + distance(step, p, *lines)], WIDE if vector > 1 else None))
        for p in range(count)
    ]


def _copy_vector(threads: Threads, node: ast.stmt, arguments: list[ast.expr]) -> None:
    (count,), (step,) = _numbers(arguments[:1]), _numbers(arguments[3:4])
    target, source = (_element(node, arguments[p]) for p in (1, 4))
    to, at = (np.asarray(threads.value(arguments[p])) for p in (2, 5))
    for lane in range(count):
        value = threads.load(source, [at + lane])
        threads.store(target, [to + step * lane], value, WIDE if step == 1 and count > 1 else None)
