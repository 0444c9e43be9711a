"""Price the stages of a stencil pipeline, in tiles of some size and as whole images in sequence.

    seconds = regions + max(compute, memory) + exposed × min(compute, memory)
    compute = slots / rate: operations (a product that is added at once is none), loads and stores of one pass
    memory  = tensors of others once; in tiles the borders again; what does not stay in L1 between two stages, each time

Stages with boxes of one shape run in one loop nest (a pass): what they hand on pointwise stays in registers, and what
two of them read is loaded once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod

import sympy

from polyfuse.ir import Nest, Statement
from polyfuse.ir.scalar import own_operations
from polyfuse.machine import CpuMachine
from polyfuse.sets import bounding_box
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.cpu_loops import LOOP_SECONDS, holding
from polyfuse.strategy.cost.roofline import CPU_EXPOSED, KernelCost, Tiling
from polyfuse.strategy.match.stencil import Part, Parts


def slots(body: sympy.Basic) -> int:
    """Instructions of a body: each different operation once, and none for a product inside of a sum (multiply-add).

    Harris' sums of products: S += Ix * Iy nine times is 9, not 17. Inlined so, the pipeline of 2048² ran in 5.1 ms,
    with the products in tiles of their own in 5.8 (one Zen 5 core); counted as 17 the second would be chosen.
    """
    return sum(own_operations(node) - _is_multiply_add(node) for node in set(sympy.preorder_traversal(body)))


def _is_multiply_add(node: sympy.Basic) -> bool:
    return isinstance(node, sympy.Add) and any(
        isinstance(arg, sympy.Mul) and _is_product(arg) for arg in node.args
    )


def _is_product(node: sympy.Basic) -> bool:
    return len([arg for arg in node.args if arg != -1]) > 1


@dataclass(frozen=True)
class Pass:
    """Stages in one loop nest: loads, stores and operations of one iteration, and the tensors that go by."""

    stages: tuple[str, ...]
    part: Part
    slots: int
    tensors: tuple[str, ...]


@dataclass(frozen=True)
class StageCost:
    """Seconds of a pipeline in tiles (or whole), and what they go to. Bytes: of others' tensors, once and again."""

    sizes: tuple[int, ...]
    compute: float
    memory: float
    overhead: float
    flops: int
    once: int
    again: int
    tiles: int
    units: float
    utilisation: float

    @property
    def total(self) -> float:
        """Seconds in all."""
        longer, shorter = max(self.compute, self.memory), min(self.compute, self.memory)
        return self.overhead + longer + CPU_EXPOSED * shorter

    def as_kernel(self) -> KernelCost:
        """The same as the cost of a kernel."""
        tiling = Tiling(self.sizes, tuple(range(len(self.sizes))), 0)
        return KernelCost(
            tiling, self.flops, self.once, self.again, self.tiles, self.utilisation,
            self.compute, self.memory, self.overhead, CPU_EXPOSED,
        )  # fmt: skip


class StageModel:
    """Prices the stages of one pipeline on a machine."""

    def __init__(self, nest: Nest, parts: Parts, machine: CpuMachine, result: str) -> None:
        self.nest, self.parts, self.machine = nest, parts, machine
        self.counts = Counts(nest)
        domain = self.counts.domains[result]
        box = (bounding_box(domain) or ())[: len(parts.dims)]
        self.extents = tuple(high - low + 1 for low, high in box)

    @property
    def is_empty(self) -> bool:
        """True if the result has no values, at the sizes that are planned for."""
        return not self.extents

    def passes(self, stages: Mapping[str, Statement]) -> tuple[Pass, ...]:
        """The stages by the shape of their boxes, in order."""
        groups: dict[Part, list[Statement]] = {}
        for name, s in stages.items():
            groups.setdefault(self.parts.of[name], []).append(s)
        return tuple(self._pass(part, own, stages) for part, own in groups.items())

    def _pass(self, part: Part, own: list[Statement], stages: Mapping[str, Statement]) -> Pass:
        made = {s.write.tensor for s in own}
        loads = {
            str(a) for s in own for a in s.reads if a.tensor not in made and self.nest.tensor(a.tensor).rank
        }
        names = {s.name for s in own}
        readers = {a.tensor for s in stages.values() if s.name not in names for a in s.reads}
        stored = {t for t in made if t in readers or self.nest.tensor(t).role != "temporary"}
        count = sum(slots(s.body) for s in own) + len(loads) + len(stored)
        seen = dict.fromkeys(t for s in own for t in s.tensors if t not in made or t in stored)
        return Pass(
            tuple(s.name for s in own), part, count, tuple(t for t in seen if self.nest.tensor(t).rank)
        )

    @cached_property
    def itemsize(self) -> int:
        """The widest element."""
        return max(self.nest.tensor(t).itemsize for n in self.parts.of for t in self._tensors_of(n))

    def _tensors_of(self, name: str) -> tuple[str, ...]:
        known = {s.name: s for s in self.nest.statements}
        return known[name].tensors if name in known else ()

    def in_tiles(self, every: tuple[Pass, ...], sizes: tuple[int, ...]) -> StageCost:
        """Every pass tile after tile; tiles of one loop over the cores, if that is faster than all on one."""
        tiles = [ceil(extent / size) for extent, size in zip(self.extents, sizes, strict=True)]
        most = max(tiles[:-1] or tiles)
        spread = most / ceil(most / self.machine.units)
        costs = (self._in_tiles(every, sizes, tiles, units) for units in dict.fromkeys((spread, 1.0)))
        return min(costs, key=lambda cost: cost.total)

    def _in_tiles(
        self, every: tuple[Pass, ...], sizes: tuple[int, ...], tiles: list[int], units: float
    ) -> StageCost:
        issued, entered, flops = self._work(every, sizes)
        rate = self.machine.in_loops(self.itemsize, units)
        count = prod(tiles)
        compute = count * (issued / rate + entered * LOOP_SECONDS / units)
        outside = self._outside(every)
        once = sum(self.counts.tensor_bytes(t) for t in outside)
        memory = once / self.machine.bandwidth(self.machine.level(once), units)
        touched = sum(self._bytes(t, sizes) for t in outside)
        again = max(0, count * touched - once)
        row = touched * tiles[-1]
        memory += again / self.machine.reading(holding(self.machine, row), units)
        for one in every:
            held = sum(self._bytes(t, sizes) for t in one.tensors)
            level = holding(self.machine, held)
            if level is not self.machine.levels[0]:
                memory += count * held / self.machine.bandwidth(level, units)
        overhead = self.machine.launch_seconds + (self.machine.region_seconds if units > 1 else 0.0)
        used = units / self.machine.units
        return StageCost(sizes, compute, memory, overhead, count * flops, once, again, count, units, used)

    def apart(self, every: tuple[Pass, ...]) -> StageCost:
        """Every pass over whole images, its results in memory: what is done where stages are not tiled together."""
        costs = (self._apart(every, units) for units in dict.fromkeys((float(self.machine.units), 1.0)))
        return min(costs, key=lambda cost: cost.total)

    def _apart(self, every: tuple[Pass, ...], units: float) -> StageCost:
        issued, entered, flops = self._work(every, self.extents)
        rate = self.machine.in_loops(self.itemsize, units)
        moved = sum(self.counts.tensor_bytes(t) for one in every for t in one.tensors)
        held = {t: self.counts.tensor_bytes(t) for one in every for t in one.tensors}
        memory = moved / self.machine.bandwidth(holding(self.machine, sum(held.values())), units)
        start = self.machine.launch_seconds + (self.machine.region_seconds if units > 1 else 0.0)
        compute = issued / rate + entered * LOOP_SECONDS / units
        used = units / self.machine.units
        return StageCost(self.extents, compute, memory, start * len(every), flops, moved, 0, 1, units, used)

    def _work(self, every: tuple[Pass, ...], sizes: tuple[int, ...]) -> tuple[int, int, int]:
        """Of one tile: slots with vectors filled up, inner loops entered, operations."""
        lanes = self.machine.vector_bytes // self.itemsize
        issued = entered = flops = 0
        for one in every:
            *rows, columns = one.part.shape(sizes)
            entered += prod(rows)
            issued += prod(rows) * ceil(columns / lanes) * lanes * one.slots
            flops += prod(rows) * columns * one.slots
        return issued, entered, flops

    def _outside(self, every: tuple[Pass, ...]) -> tuple[str, ...]:
        """The tensors that others give or see."""
        seen = dict.fromkeys(t for one in every for t in one.tensors)
        return tuple(t for t in seen if self.nest.tensor(t).role != "temporary")

    def _bytes(self, tensor: str, sizes: tuple[int, ...]) -> int:
        return prod(self.parts.of[tensor].shape(sizes)) * self.nest.tensor(tensor).itemsize
