"""Labels of a schedule tree's rows, shared by pictures and pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from polyfuse.ir import Nest
from polyfuse.ir.nest_text import body_text
from polyfuse.ir.tree import Leaf, Loop, Sequence, Tree
from polyfuse.sets import expression_text


@dataclass(frozen=True)
class Row:
    """One line of a tree: `kind` is "loop", "statement" or "barrier", `place` what the `loop` is bound to."""

    depth: int
    kind: str
    text: str
    detail: str = ""
    place: str | None = None
    loop: Loop | None = None


Below = Callable[[Nest, Tree, int], Iterable[Row]]
"""What gives the rows of a part of a tree."""


def rows(nest: Nest, tree: Tree, depth: int = 0, below: Below | None = None) -> Iterator[Row]:
    """A tree from the top down; a sequence is its children, with the barriers between them.

    `below` is asked for the rows of the parts, by one who keeps them from tree to tree.
    """
    below = below or rows
    match tree:
        case Leaf(name):
            yield Row(depth, "statement", name, body_text(nest.statement(name)))
        case Loop():
            yield Row(depth, "loop", loop_label(tree), dates_label(tree), tree.bind, tree)
            yield from below(nest, tree.body, depth + 1)
            if tree.barrier:
                yield Row(depth + 1, "barrier", "barrier")
            if tree.slots:
                yield Row(depth + 1, "barrier", f"handed over in {tree.slots} slots")
        case Sequence():
            for position, child in enumerate(tree.children):
                yield from below(nest, child, depth)
                if position in tree.barriers:
                    yield Row(depth, "barrier", "barrier")


def loop_label(loop: Loop) -> str:
    """A loop with what runs it and what it keeps: "for i @ cores [y0 in local]"."""
    place = f" @ {loop.bind}" if loop.bind else ""
    return f"for {loop.name}{place}" + "".join(f" [{b}]" for b in loop.buffers)


def dates_label(loop: Loop, most: int | None = None) -> str:
    """Return the dates of instances as text, grouped by function: "i: blur; 1 + i: edge".

    Of more than `most` statements, the first ones and how many there are: "i: mac0, bias0, … 24 statements".
    """
    groups: dict[str, list[str]] = {}
    for statement, date in loop.dates:
        groups.setdefault(expression_text(date), []).append(statement)
    return "; ".join(f"{date}: {_names(names, most)}" for date, names in groups.items())


def _names(names: list[str], most: int | None) -> str:
    if most is None or len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])}, … {len(names)} statements"
