"""Check that a warp's lanes, or a block's threads, can combine a reduction's values: the theorem, then its check.

    for l (lane): for j: s[i] += x[i, 32 j + l]   ->   each lane adds up its own values; the warp adds up its 32 sums

A loop over lanes is right iff below it stands one statement, a reduction that does not read its own target, whose
instances in one iteration of the loops around all accumulate on one element: { loops around -> element } is a function.
Then its values may be combined in any order, as the nest declares them, and lane 0 alone accesses the element. A loop
with more values than a warp has lanes is a block's: its warps combine what each of them has, and meet for that, so that
no loop of the kernel may give the block other threads beside them.
"""

from __future__ import annotations

from collections.abc import Iterator

from polyfuse.analysis.banks import WARP
from polyfuse.analysis.storage import LANE
from polyfuse.ir.nest import Nest
from polyfuse.ir.number_types import is_real
from polyfuse.ir.tree import Loop, Tree, date_map, loops, parts, path_to, statements

MOST_LANES = 1024
"""Threads of a block."""

BESIDE = ("thread.y", "thread.z")


def unfit_lanes(nest: Nest, tree: Tree) -> str | None:
    """Return the fault of the loops bound to lanes, as a sentence; None if there is none."""
    return next(
        (fault for loop in loops(tree) if loop.bind == LANE for fault in _faults(nest, tree, loop)), None
    )


def _faults(nest: Nest, tree: Tree, loop: Loop) -> Iterator[str]:
    names = statements(loop)
    if len(names) > 1:
        yield f"lanes combine the values of one reduction, but {', '.join(names)} lie in {loop.name}; distribute first"
        return
    s = nest.statement(names[0])
    if not s.is_reduction:
        yield f"lanes combine a reduction's values, but {s.name} is {s.op!r}: bind {loop.name} to thread.x instead"
    elif s.write.tensor in {access.tensor for access in s.reads}:
        yield f"{s.name} reads {s.write.tensor}, which its lanes do not see until all of them are done"
    elif not is_real(nest.tensor(s.write.tensor).dtype):
        yield f"{s.name} combines {nest.tensor(s.write.tensor).dtype}; lanes combine floating-point numbers"
    else:
        domain = nest.domains[s.name]
        around = path_to(tree, s.name)
        outside = around[: next(p for p, node in enumerate(around) if node is loop)]
        where = date_map(domain, [node.date(s.name) for node in outside if isinstance(node, Loop)])
        element = s.write.map.intersect_domain(domain).apply_domain(where)
        if not element.is_single_valued():
            yield (
                f"{s.name} accumulates on several elements of {s.write.tensor} in one iteration of the loops around "
                f"{loop.name}; put {loop.name} inside the loops over these elements"
            )
        values = domain.apply(loop.date(s.name).as_map())
        low, high = values.dim_min_val(0), values.dim_max_val(0)
        if not values.is_empty() and (low < 0 or high >= MOST_LANES):
            yield (
                f"{loop.name} has values outside 0…{MOST_LANES - 1}, the threads of a block; split it by {WARP} for "
                "the lanes of a warp first, or by more for a block's"
            )
        elif not values.is_empty() and high >= WARP:
            yield from _beside(tree, loop)


def _beside(tree: Tree, loop: Loop) -> Iterator[str]:
    """Yield the loops that give a block threads which would miss the barrier of a row's warps."""
    (kernel,) = (part for part in parts(tree) if any(x is loop for x in loops(part)))
    others = [x for x in loops(kernel) if x.bind in BESIDE]
    if others:
        yield (
            f"{loop.name} has more values than a warp has lanes, so a whole block works on one row, but "
            f"{others[0].name} is bound to {others[0].bind}; split {loop.name} by {WARP}, or bind rows to blocks only"
        )
