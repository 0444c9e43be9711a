"""Privatise the caller's arrays that iterations reuse as scratch, if this is cheaper.

    for r: { total[p] = …; A[r, p] = total[p] }   ->   each r has its own total, and the last one is kept

Nothing then orders the iterations, so that cores, blocks and tiles may share them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from polyfuse.analysis.bands import is_parallel, open_at
from polyfuse.ir import Nest
from polyfuse.ir.tree import loops_around
from polyfuse.rewrite.storage.privatize_scratch import Scratch, is_inside_a_loop, is_reused, tried
from polyfuse.strategy.driver import Candidate, Start

PASS = "privatize scratch"


@dataclass(frozen=True)
class ScratchApart:
    """A nest in which iterations have scratch of their own, and a sentence on each array."""

    nest: Nest
    said: tuple[str, ...]


def candidates(start: Start) -> Iterator[Candidate]:
    """The nest in which iterations have scratch of their own."""
    made = scratch_apart(start.nest)
    if made is not None:
        yield Candidate(replace(start, nest=made.nest), made.said, "in the array itself")


def scratch_apart(nest: Nest) -> ScratchApart | None:
    """The nest with all arrays private that leave a loop parallel so; None if none does.

    In a loop in time that carries other values too, an array for each step would only take memory.
    """
    said: list[str] = []
    for tensor in nest.tensors:
        if not (is_reused(nest, tensor.name) and is_inside_a_loop(nest, tensor.name)):
            continue
        made = tried(nest, tensor.name)
        if isinstance(made, Scratch) and _frees_a_loop(made):
            nest, said = made.nest, [*said, str(made)]
    return ScratchApart(nest, tuple(said)) if said else None


def _frees_a_loop(made: Scratch) -> bool:
    """True if no dependence is left between the iterations of a loop that the array is private to."""
    order = made.nest.order
    return any(
        is_parallel(loop, open_at(made.nest, order, loop))
        for loop in loops_around(order, made.copy)
        if loop.name in made.loops
    )
