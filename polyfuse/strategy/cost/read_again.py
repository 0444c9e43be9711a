"""What it costs that the values of loops around a kernel read again what the first one has read."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from polyfuse.ir.tree import Loop, Tree
from polyfuse.machine import Machine
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.kernel_model import kernel_of
from polyfuse.strategy.cost.roofline import KernelCost

STRIDED = 3.0
"""How much longer rows in different places take, of a panel (4.5 ms for these 8 layers, 2.5 as panels) or of a copy."""


def with_again(
    cost: KernelCost, counts: Counts, part: Tree, around: tuple[Loop, ...], machine: Machine, units: float = 1
) -> KernelCost:
    """A price with what all values but the first of the loops `around` read again; so many cores share the values."""
    return reading(cost, *held_and_again(counts, part, around), machine, units)


def reading(cost: KernelCost, held: float, again: int, machine: Machine, units: float) -> KernelCost:
    """A price with bytes that are read again, from where so many bytes are held."""
    seconds = again / units / machine.reading(machine.level(held), 1.0)
    return replace(cost, again=again, memory=cost.memory + seconds)


def held_and_again(counts: Counts, part: Tree, around: tuple[Loop, ...]) -> tuple[float, int]:
    """The bytes that one value of some loops around a kernel touches, and those that the others read again."""
    step = kernel_of(counts, part, around)
    held = sum(u.bytes_in((1,) * len(around), step.extents) for u in step.uses)
    same = sum(u.elements * u.itemsize for u in step.uses if u.read and all(r == 1.0 for r in u.ratios))
    return held, (prod(step.extents) - 1) * same
