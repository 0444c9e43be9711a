"""Eliminate guards that hold for all threads of a block and all values of the loops around, by enumeration.

    if -7 <= ty and ty < 71: for j in range(0, 32): if -tx + (tx + 1) // 2 <= j: if 128 * bx + j < n: S
    ->  for j in range(0, 32): if 128 * bx + j < n: S                  with 64 threads on ty and 4 on tx

isl does not know how many threads an axis has. Where rows and columns are dealt out as an instruction has them, each of
a thread's results has such conditions, and of 2 × 64 results LLVM leaves the loops as they are, and results in memory.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from polyfuse.codegen.cuda.device_calls import constant_bounds
from polyfuse.codegen.cuda.rewrites.warp_sync import with_constant_bounds
from polyfuse.codegen.looptree.guards import guarded, parts_of
from polyfuse.codegen.looptree.hardware_axes import axis_name
from polyfuse.codegen.looptree.nodes import Axis, For, Guard, Kernel, Node, with_below

MOST = 1 << 16
"""Combinations of values that are tried, at most."""

Ranges = Mapping[str, range]
"""The values that a name may have."""

_KNOWN = (ast.Compare, ast.BinOp, ast.UnaryOp, ast.Call, ast.Constant, ast.Name, ast.operator, ast.cmpop, ast.unaryop,
          ast.expr_context)  # fmt: skip
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "min": lambda *values: reduce(np.minimum, values),
    "max": lambda *values: reduce(np.maximum, values),
}


def without_decided_guards(kernel: Kernel) -> Kernel:
    """The kernel without conditions on threads and loops of constant bounds that always hold."""
    ranges = {axis_name(axis.name): range(count) for axis in kernel.axes if (count := count_of(axis))}
    return replace(kernel, body=_without(kernel.body, ranges))


def count_of(axis: Axis) -> int:
    """The values of a thread axis; 0 if they are no constant number, or a grid's, of which there may be many."""
    known = axis.extent.value if isinstance(axis.extent, ast.Constant) else 0
    return known if isinstance(known, int) and axis.name.startswith("thread") else 0


def whole(loop: For) -> For:
    """A loop that is written out with the constant bounds that it may have, what it lacks under a condition inside."""
    return bounded(loop) if loop.bind == "unroll" else loop


def bounded(loop: For) -> For:
    """A loop with the constant bounds that it may have, what it lacks under a condition inside."""
    low, high = constant_bounds(loop)
    return loop if low is None or high is None or loop.step != 1 else with_constant_bounds(loop, low, high)


def _without(node: Node, ranges: Ranges) -> Node:
    node = whole(node) if isinstance(node, For) else node
    match node:
        case For(variable, ast.Constant(value=int(low)), ast.Constant(value=int(high)), step):
            inside = {**ranges, variable: range(low, high, step)}
            return replace(node, body=_without(node.body, inside))
        case Guard(condition, body, None):
            left = [part for part in parts_of(condition) if not holds(part, ranges)]
            return guarded(left, _without(body, ranges))
    return with_below(node, lambda part: _without(part, ranges))


def holds(condition: ast.expr, ranges: Ranges) -> bool:
    """True if a comparison of integers holds for all values of what it mentions, each of which has a range."""
    named = {node.id for node in ast.walk(condition) if isinstance(node, ast.Name)} - _FUNCTIONS.keys()
    if not isinstance(condition, ast.Compare) or not named <= ranges.keys():
        return False
    order = sorted(named)
    if not all(isinstance(node, _KNOWN) for node in ast.walk(condition)):
        return False
    if prod(len(ranges[name]) for name in order) > MOST:
        return False
    grids: Any = np.meshgrid(*(np.array(ranges[name], np.int64) for name in order), indexing="ij")
    space = {"__builtins__": {}, **_FUNCTIONS, **dict(zip(order, grids, strict=True))}
    return bool(np.all(eval(ast.unparse(condition), space)))
