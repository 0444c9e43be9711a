"""The verb `sections`: make a loop of parts that run one after the other.

    for t: A;  for t: B   ->   for l in 0, 1: { l = 0: for t: A;  l = 1: for t: B }

Each part lies at one value of the new loop. Nothing runs in another order but what lay between the parts; the new loop
can then be bound, its parts fused inside it, and skewed against a loop that they share: layers of a network on cores,
one step behind the other (OpenMP's `sections`, with their order).
"""

from __future__ import annotations

from collections.abc import Iterator

from polyfuse.errors import InvalidSchedule
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import (
    Loop,
    Sequence,
    Tree,
    loops,
    loops_around,
    path_to,
    replace_node,
    restrict,
    sequence,
    statements,
)
from polyfuse.schedule.chains import check_new_name
from polyfuse.sets import constant, greatest


def in_sections(nest: Nest, tree: Tree, names: tuple[str, ...], loop: str) -> Iterator[Tree]:
    """The trees with the parts that hold these statements in one loop: where the last of them stood, or the first."""
    check_new_name("sections", loop)
    node = _parting(tree, names)
    chosen = [child for child in node.children if set(names) & child.members]
    if len(chosen) != len(names):
        both = next(child for child in chosen if len(set(names) & child.members) > 1)
        together = " and ".join(name for name in names if name in both.members)
        raise InvalidSchedule(f"sections: {together} share a part; distribute the loops around them first")
    around = {x.name for x in loops_around(tree, names[0])} | {x.name for part in chosen for x in loops(part)}
    if loop in around:
        raise InvalidSchedule(
            f"sections: a loop around or inside these parts has the name {loop!r} already; give another one"
        )
    dates = tuple(
        (name, constant(nest.domains[name], number))
        for number, part in enumerate(chosen)
        for name in statements(part)
    )
    made = Loop(loop, dates, sequence(tuple(chosen)))
    for place in (chosen[-1], chosen[0]):
        kept = (made if child is place else child for child in node.children)
        rest = tuple(child for child in kept if all(child is not part for part in chosen))
        yield replace_node(tree, node, sequence(rest))


def values_of(loop: Loop) -> dict[str, int]:
    """The value at which each statement runs, if that is a number for all of them and not the same; else nothing.

    { S[t] -> [0]; T[t] -> [1] }  ->  S: 0, T: 1
    """
    if not all(date.is_cst() for _, date in loop.dates):
        return {}
    found = {name: greatest(date) for name, date in loop.dates}
    if not all(value.is_int() for value in found.values()):
        return {}
    numbers = {name: int(value.to_python()) for name, value in found.items()}
    return numbers if len(set(numbers.values())) > 1 else {}


def parts_of(loop: Loop) -> tuple[Tree, ...]:
    """Return the parts that run at each value of a sections loop, in order."""
    values = values_of(loop)
    names = (frozenset(n for n, v in values.items() if v == each) for each in sorted({*values.values()}))
    return tuple(part for own in names if (part := restrict(loop.body, own)) is not None)


def _parting(tree: Tree, names: tuple[str, ...]) -> Sequence:
    """The sequence whose parts hold the statements."""
    for name in names:
        if name not in tree.members:
            raise InvalidSchedule(
                f"unknown statement {name!r}; expected one of {', '.join(statements(tree))}"
            )
    if len(set(names)) < max(2, len(names)):
        raise InvalidSchedule("sections: name one statement of each part, for at least two parts")
    first, *others = (path_to(tree, name) for name in names)
    shared = [x for x in first if all(any(x is y for y in other) for other in others)]
    node = shared[-1]
    assert isinstance(node, Sequence), "paths to different leaves part at a sequence"
    return node
