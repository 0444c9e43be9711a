"""Snapshot an operand: products that update an array in place read its first values from a copy, if this is cheaper.

    for i: for k > i: B[i] += A[k, i] * B[k]   ->   B_before = B;  B += A' B_before, in blocks

Nothing orders the copy's readers, so that their loops may be tiled and shared out, and what they read be packed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from polyfuse.ir import Nest
from polyfuse.machine import Machine
from polyfuse.rewrite.storage.snapshot_operand import snapshot, why_not_snapshot
from polyfuse.strategy.driver import Candidate, Start
from polyfuse.strategy.match.gemm import products_of

PASS = "snapshot operand"


@dataclass(frozen=True)
class CopiedFirst:
    """A nest whose products in place read copies, and a sentence on each."""

    nest: Nest
    said: tuple[str, ...]


def candidates(start: Start) -> Iterator[Candidate]:
    """The nest whose products in place read copies."""
    made = copied_first(start.nest, start.model_machine)
    if made is not None:
        yield Candidate(replace(start, nest=made.nest), made.said, "in place")


def copied_first(nest: Nest, machine: Machine) -> CopiedFirst | None:
    """The nest with such copies; None if no product needs one. On a CPU: elsewhere products have other tiles."""
    done = nest
    said: list[str] = []
    for s in nest.statements if machine.kind == "cpu" else ():
        own = s.write.tensor
        if s.op != "+=" or all(access.tensor != own for access in s.reads):
            continue
        if why_not_snapshot(done, s.name, own) is None:
            made = snapshot(done, s.name, own)
            if products_of(made.nest, s.name, triangles=True):
                done, said = made.nest, [*said, str(made)]
    return CopiedFirst(done, tuple(said)) if said else None
