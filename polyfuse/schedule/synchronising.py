"""The verb `synchronised`: insert barriers between threads and between blocks."""

from __future__ import annotations

from polyfuse.analysis import barriers
from polyfuse.analysis.across_blocks import is_resident
from polyfuse.errors import IllegalSchedule
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Tree, parts
from polyfuse.schedule.step import Step, violation_of


def synchronised(nest: Nest, tree: Tree, step: Step) -> Tree:
    """for k: { copy (threads); compute (threads) }  ->  for k: { copy; barrier; compute; barrier }."""
    if not barriers.has_threads(tree) and not any(is_resident(kernel) for kernel in parts(tree)):
        return tree
    placed, broken = barriers.synchronised(nest, tree)
    if broken is not None:
        raise IllegalSchedule(violation_of(step, broken))
    return placed
