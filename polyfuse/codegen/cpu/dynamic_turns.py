"""Number the iterations of a dynamic loop, which cores take one by one (lowering/dynamic_loops.py)."""

from __future__ import annotations

import ast

from polyfuse.codegen.looptree.index import binary, operand
from polyfuse.codegen.looptree.nodes import For


def in_turns(node: For, turn: str) -> tuple[str, str]:
    """(how many values a loop has, the value that a turn takes), as source."""
    low, high = operand(node.low), operand(node.high)
    count = operand(binary(ast.Sub(), node.high, node.low))
    count = count if node.step == 1 else f"-(({low} - ({high})) // {node.step})"
    nth = f"({count} - 1 - {turn})" if node.backwards else turn
    steps = nth if node.step == 1 else f"{node.step} * {nth}"
    return count, f"max({low} + {steps}, {low})"  # the maximum changes nothing, as for cores
