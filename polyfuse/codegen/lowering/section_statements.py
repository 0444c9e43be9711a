"""Lower sections: parallel loops whose iterations are different parts of a program.

    for l (cores): for t: { A at l = 0; B at l = 1 }   ->   for l in 0, 1 (cores): { if l == 0: for t: A
                                                                                    if l == 1: for t: B }

isl makes no loop of constant dates, but one part after the other. So each value's part is a tree of its own here, under
a mark, and the loop over them is put back around what isl has made of them.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace

from polyfuse.codegen.looptree.nodes import For, Guard, Node, block
from polyfuse.ir.tree import ON_CORES, Loop, Sequence, Tree, children, with_children
from polyfuse.schedule.sections_verb import parts_of, values_of


def with_sections(tree: Tree) -> Tree:
    """The tree with each value's part of such a loop in a tree of its own."""
    tree = with_children(tree, tuple(map(with_sections, children(tree))))
    if not isinstance(tree, Loop) or tree.bind not in ON_CORES or not values_of(tree):
        return tree
    return replace(tree, body=Sequence(parts_of(tree)))


def sections(loop: Loop) -> Mapping[int, Tree]:
    """The part of each value of a loop that `with_sections` has been through; nothing for another loop."""
    values = values_of(loop) if loop.bind in ON_CORES else {}
    return {_value(part, values): part for part in children(loop.body)} if values else {}


def _value(part: Tree, values: Mapping[str, int]) -> int:
    return next(value for name, value in values.items() if name in part.members)


def over_sections(loop: Loop, variable: str, body: Node) -> For:
    """The loop over parts that are guarded by their values."""
    numbers = sorted(values_of(loop).values())
    return For(variable, ast.Constant(numbers[0]), ast.Constant(numbers[-1] + 1), 1, loop.bind, body)


def section(variable: str, value: int, body: Node) -> Node:
    """A part at its value."""
    return Guard(ast.Compare(ast.Name(variable), [ast.Eq()], [ast.Constant(value)]), block((body,)))
