"""The verb `prefetch`: software prefetching. It moves no instance, so it needs no theorem."""

from __future__ import annotations

from dataclasses import replace

from polyfuse.errors import InvalidSchedule
from polyfuse.ir.access import Access
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Fetch, Loop, Tree, loops_around, replace_node
from polyfuse.schedule.chains import loop_named
from polyfuse.schedule.microkernel_verb import roles_of
from polyfuse.sets import IN, OUT


def prefetch(nest: Nest, tree: Tree, statement: str, tensor: str, loop: str, by: int = 1) -> Tree:
    """for i: for j (vector): … x[i, j] …  ->  the same, which asks for x[i + by, j] meanwhile."""
    if not isinstance(by, int) or by < 1:
        raise InvalidSchedule(f"prefetch: by={by!r}, expected an integer, at least 1")
    for rows in nest.with_role("gathered"):
        if rows.name == tensor and rows.gather is not None:
            raise InvalidSchedule(
                f"prefetch: the address of the next row of {tensor} is read from {rows.gather.index}, out of bounds "
                "at its end"
            )
    outer = loop_named(tree, statement, loop)
    inner = loops_around(tree, statement)[-1]
    kernel = next((x for x in loops_around(tree, statement) if x.bind == "microkernel"), None)
    if kernel is None and (inner is outer or inner.bind != "vector"):
        raise InvalidSchedule(
            f"prefetch: the innermost loop around {statement}, {inner.name}, is not on vector lanes inside {loop}; "
            "vectorize it first"
        )
    if any(x.bind is not None and x.bind.on_gpu for x in loops_around(tree, statement)):
        raise InvalidSchedule(
            f"prefetch: {statement} runs in a GPU's threads, which hide memory latency themselves; prefetch is for CPUs"
        )
    if kernel is not None:
        return _next_panel(nest, tree, statement, tensor, outer, kernel, by)
    touched = [a for a in nest.statement(statement).accesses if a.tensor == tensor]
    if not touched:
        raise InvalidSchedule(f"prefetch: {statement} does not access {tensor}")
    if any(b.tensor == tensor for x in loops_around(tree, statement) for b in x.buffers):
        raise InvalidSchedule(
            f"prefetch: {tensor} is promoted to a buffer around {statement}, which stays in cache"
        )
    if not any(_along(access, inner, statement) and _moves(access, outer, statement) for access in touched):
        raise InvalidSchedule(
            f"prefetch: {statement} has no access to {tensor} with unit stride along {inner.name} that "
            f"moves along {loop}"
        )
    known = next((fetch for fetch in inner.fetches if (fetch.tensor, fetch.loop) == (tensor, loop)), None)
    if known is not None:
        raise InvalidSchedule(f"prefetch: {inner.name} prefetches {tensor} of {known.later} already")
    return replace_node(tree, inner, replace(inner, fetches=(*inner.fetches, Fetch(tensor, loop, by))))


def _next_panel(
    nest: Nest, tree: Tree, statement: str, tensor: str, outer: Loop, kernel: Loop, by: int
) -> Tree:
    """for j: for i: tile of w[j, k, …]  ->  the same, whose tiles ask for their share of w[j + 1] meanwhile.

    Or of the rows' factor, where the rows of a tile lie side by side: for i: tile of w[i, k, …]. Or, where panels are
    parts of rows: for j: tile of w[k, 32 * j …]  ->  … which ask for w[k, 32 * (j + by) …].
    """
    around = loops_around(tree, statement)
    depth = next(d for d, x in enumerate(around) if x is kernel)
    if all(x is not outer for x in around[:depth]):
        outside = ", ".join(x.name for x in around[:depth]) or "none"
        raise InvalidSchedule(
            f"prefetch: {outer.name} is not a loop around the microkernel; expected one of {outside}"
        )
    free = replace(kernel, bind=None)
    roles = roles_of(nest, replace_node(tree, kernel, free), statement, free)
    if roles.rows is None or len(roles.steps) != 1 or roles.lanes is not None:
        raise InvalidSchedule(
            "prefetch: only a tile of several rows with one loop of steps can prefetch a panel"
        )
    reads = nest.statement(statement).reads
    right, left = reads[roles.right], reads[1 - roles.right]
    if tensor == left.tensor != right.tensor and _moves(left, outer, statement):
        if not _moves_last(left, roles.rows, statement):
            raise InvalidSchedule(
                f"prefetch: the rows of {statement}'s tiles lie apart in {tensor}, which a tile would ask for row by "
                "row: pack it in panels first"
            )
    elif right.tensor != tensor or not _moves(right, outer, statement):
        raise InvalidSchedule(
            f"prefetch: the rows of {statement}'s tiles share {right.tensor}, and {tensor} of the next {outer.name} "
            "is the same part of it"
        )
    if by != 1 and not (right.tensor == tensor and _along(right, outer, statement)):
        raise InvalidSchedule(f"prefetch: by={by}; the tiles of a microkernel prefetch the next panel, by=1")
    return replace_node(tree, kernel, replace(kernel, fetches=(Fetch(tensor, outer.name, by),)))


def _along(access: Access, loop: Loop, statement: str) -> bool:
    """True if only the last subscript depends on a loop."""
    subscripts, dims = access.subscripts(), _dims(loop, statement)
    moving = [
        axis
        for axis in range(access.map.dim(OUT))
        if any(subscripts.get_pw_aff(axis).involves_dims(IN, d, 1) for d in dims)
    ]
    return moving == [access.map.dim(OUT) - 1]


def _moves_last(access: Access, loop: Loop, statement: str) -> bool:
    """True if the last subscript depends on a loop, as w_panels[i // 8, k, i % 8] on that over i."""
    last = access.subscripts().get_pw_aff(access.map.dim(OUT) - 1)
    return any(last.involves_dims(IN, d, 1) for d in _dims(loop, statement))


def _moves(access: Access, loop: Loop, statement: str) -> bool:
    subscripts, dims = access.subscripts(), _dims(loop, statement)
    return any(
        subscripts.get_pw_aff(axis).involves_dims(IN, d, 1)
        for axis in range(access.map.dim(OUT))
        for d in dims
    )


def _dims(loop: Loop, statement: str) -> tuple[int, ...]:
    date = loop.date(statement)
    return tuple(d for d in range(date.dim(IN)) if date.involves_dims(IN, d, 1))
