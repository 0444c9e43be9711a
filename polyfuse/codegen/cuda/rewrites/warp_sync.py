"""Let all lanes of a warp reach each shuffle if several rows share the warp, whatever the rows' guards say.

    if i + ty < n:                                   if i + ty < n:
      partial = …; exchange(partial)           ->      partial = …
      if tx == 0: s[i + ty] += partial               exchange(partial)
                                                     if i + ty < n: if tx == 0: s[i + ty] += partial

A lane without a row exchanges the neutral value, and nobody needs what it gets. Where the lanes of a warp cannot be
brought together so, in a loop that one row runs more often than another, each row's exchange among themselves; ptxas
(CUDA 13) has a way for the others to come later then, with spills around it.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from math import prod

from polyfuse.analysis.banks import WARP
from polyfuse.codegen.cuda.device_calls import constant_bounds
from polyfuse.codegen.looptree.hardware_axes import axis_name
from polyfuse.codegen.looptree.index import beside, mentions
from polyfuse.codegen.looptree.nodes import Block, For, Guard, Kernel, Lanes, Node, nodes_in, with_below

THREADS = tuple(axis_name(f"thread.{d}") for d in "xyz")


def met_by_warps(kernel: Kernel) -> Kernel:
    """The kernel with guards of rows that are part of a warp inside what the lanes do, and around what lane 0 does."""
    if not any(_narrow(node) for node in nodes_in(kernel.body)):
        return kernel
    extents = [axis.extent for axis in kernel.axes if axis.name.startswith("thread")]
    known = [e.value for e in extents if isinstance(e, ast.Constant) and isinstance(e.value, int)]
    whole = len(known) == len(extents) and prod(known) % WARP == 0
    return replace(kernel, body=_met(kernel.body, (), whole))


def with_constant_bounds(node: For, low: int, high: int) -> For:
    """for c in range(0, min(8, n)): S  ->  for c in range(0, 8): if c < n: S.

    A register has no address: results in registers are only there where every loop over them has constant bounds.
    """
    variable = ast.Name(node.variable)
    checks: list[ast.expr] = []
    if not isinstance(node.low, ast.Constant):
        checks.append(ast.Compare(beside(node.low, "max", low), [ast.LtE()], [variable]))
    if not isinstance(node.high, ast.Constant):
        checks.append(ast.Compare(variable, [ast.Lt()], [beside(node.high, "min", high)]))
    return replace(
        node, low=ast.Constant(low), high=ast.Constant(high), body=_under(tuple(checks), node.body)
    )


def _met(node: Node, conditions: tuple[ast.expr, ...], whole: bool) -> Node:
    """A node under conditions that move inside where narrow rows are; `whole`: all lanes of a warp are here."""
    if not any(map(_narrow, nodes_in(node))):
        return _under(conditions, node)
    match node:
        case Lanes():
            inside = _under(conditions, node.body)
            return replace(node, body=inside, when=(*conditions, *node.when), met=whole)
        case Guard(condition, body, None):
            if not _by_thread(condition):
                return replace(node, body=_met(body, conditions, whole))
            return _met(body, (*conditions, condition), whole)
        case For(bind="unroll") if (bounds := _bounds(node)) is not None:
            node = with_constant_bounds(node, *bounds)
            return replace(node, body=_met(node.body, conditions, whole))
        case For():
            same = not (_by_thread(node.low) or _by_thread(node.high))
            return replace(node, body=_met(node.body, conditions, whole and same))
        case Block():
            return with_below(node, lambda part: _met(part, conditions, whole))
    return _under(conditions, with_below(node, lambda part: _met(part, (), False)))


def _bounds(node: For) -> tuple[int, int] | None:
    low, high = constant_bounds(node)
    return None if low is None or high is None or node.step != 1 else (low, high)


def _narrow(node: Node) -> bool:
    return isinstance(node, Lanes) and node.threads < WARP


def _by_thread(condition: ast.expr) -> bool:
    return any(mentions(condition, name) for name in THREADS)


def _under(conditions: tuple[ast.expr, ...], node: Node) -> Node:
    if not conditions:
        return node
    return Guard(conditions[0] if len(conditions) == 1 else ast.BoolOp(ast.And(), list(conditions)), node)
