"""The verb `join`: make one kernel of several.

    for i: A;  for j: B   ->   for l in 0: { for i: A;  for j: B }

What a program runs one after the other at the top are its kernels. In one loop of one value they are one kernel, whose
blocks wait for each other where B needs what other blocks have done in A (analysis/across_blocks.py), and which may
keep in shared memory, promoted at that loop, what all parts use.
"""

from __future__ import annotations

from polyfuse.errors import InvalidSchedule
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Loop, Tree, loops, parts, sequence, statements
from polyfuse.schedule.chains import check_new_name
from polyfuse.sets import constant


def join(nest: Nest, tree: Tree, first: str, last: str, loop: str) -> Tree:
    """for i: A; for j: B  ->  for loop in 0: { for i: A; for j: B }, for the kernels from A's to B's."""
    check_new_name("join", loop)
    kernels = parts(tree)
    at = {name: position for position, kernel in enumerate(kernels) for name in statements(kernel)}
    unknown = [name for name in (first, last) if name not in at]
    if unknown:
        raise InvalidSchedule(
            f"unknown statement {unknown[0]!r}; expected one of {', '.join(statements(tree))}"
        )
    start, stop = at[first], at[last] + 1
    if start >= stop:
        raise InvalidSchedule(
            f"join: {last} runs in a kernel before that of {first}; name the earlier one first"
        )
    inside = kernels[start:stop]
    if any(x.name == loop for kernel in inside for x in loops(kernel)):
        raise InvalidSchedule(f"join: a loop in these kernels is called {loop!r}; give another name")
    zero = tuple((name, constant(nest.domains[name], 0)) for kernel in inside for name in statements(kernel))
    return sequence((*kernels[:start], Loop(loop, zero, sequence(inside)), *kernels[stop:]))
