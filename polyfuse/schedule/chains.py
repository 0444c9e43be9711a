"""Find loops in a tree: the chains of perfectly nested loops on which verbs work."""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import replace

from polyfuse.errors import InvalidSchedule
from polyfuse.ir.tree import Loop, Tree, loops, loops_around, statements


def loop_named(tree: Tree, statement: str, name: str) -> Loop:
    """The loop of that name around a statement; InvalidSchedule says which there are."""
    around = loops_of(tree, statement)
    for loop in around:
        if loop.name == name:
            return loop
    known = ", ".join(loop.name for loop in around) or "none"
    raise InvalidSchedule(f"no loop {name!r} around {statement}; its loops are {known}")


def loops_of(tree: Tree, statement: str) -> tuple[Loop, ...]:
    """The loops around a statement, outermost first; InvalidSchedule says which statements there are."""
    if statement not in tree.members:
        raise InvalidSchedule(
            f"unknown statement {statement!r}; expected one of {', '.join(statements(tree))}"
        )
    return loops_around(tree, statement)


def only_loop(tree: Tree, name: str) -> Loop:
    """The one loop of that name in the tree; InvalidSchedule if there is none or more than one."""
    found = [loop for loop in loops(tree) if loop.name == name]
    if len(found) == 1:
        return found[0]
    names = ", ".join(dict.fromkeys(loop.name for loop in loops(tree)))
    if not found:
        raise InvalidSchedule(f"unknown loop {name!r}; expected one of {names}")
    homes = "; ".join(f"around {', '.join(statements(loop))}" for loop in found)
    raise InvalidSchedule(
        f"{len(found)} loops are named {name!r} ({homes}): pass a statement as the first argument to select one"
    )


def check_new_name(verb: str, loop: object) -> None:
    """InvalidSchedule for what cannot be the name of a loop: a number, "", "a b"."""
    if not isinstance(loop, str) or not loop.isidentifier():
        raise InvalidSchedule(f"{verb}: a loop is named by an identifier such as 'layer', not {loop!r}")


def chain_from(top: Loop) -> tuple[Loop, ...]:
    """The loop and those perfectly nested in it, outermost first."""
    chain = [top]
    while isinstance(chain[-1].body, Loop):
        chain.append(chain[-1].body)
    return tuple(chain)


def chain_of(tree: Tree, statement: str, names: Many[str]) -> tuple[Loop, ...]:
    """The named loops around a statement in tree order, with every loop between them; all perfectly nested."""
    if not names:
        raise InvalidSchedule(f"name at least one loop around {statement}")
    found = [loop_named(tree, statement, name) for name in names]
    around = loops_around(tree, statement)
    places = sorted(next(p for p, x in enumerate(around) if x is loop) for loop in found)
    span = around[places[0] : places[-1] + 1]
    chain = chain_from(span[0])[: len(span)]
    if len(chain) < len(span):
        raise InvalidSchedule(
            f"loops {', '.join(names)} around {statement} are not perfectly nested: "
            f"the body of {chain[-1].name} holds {', '.join(statements(chain[-1]))}; distribute it first"
        )
    return span


def rebuilt(chain: Many[Loop], body: Tree) -> Tree:
    """The loops of `chain`, outermost first, around a body."""
    for loop in reversed(chain):
        body = replace(loop, body=body)
    return body


def names_in_reach(tree: Tree, loop: Loop) -> set[str]:
    """The names of every loop on a path through `loop`."""
    reach: set[str] = set()
    for statement in statements(loop):
        reach |= {other.name for other in loops_around(tree, statement)}
    return reach
