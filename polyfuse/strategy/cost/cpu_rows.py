"""Price what rows of a CPU's kernels take besides their operations: loads and stores, entries, ends, sums of lanes.

    for i: { for j: s += x[i, j];  for j: y[i, j] = x[i, j] / s }     two rows of each i, the first of which is one sum
    for i (tiles): { for j: y[i, j] = 0;  for k (microkernel): …;  for j: a[i, j] = max(y[i, j] + b[j], 0) }

Loads and stores are counted beside register tiles, which have no part in their price; loops have (`CpuMachine.loops`).
Tiles of few steps take no longer than these.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import ceil

import islpy as isl

from polyfuse.ir import Access
from polyfuse.ir.tree import Loop, Tree, loops, loops_around, statements
from polyfuse.machine import CpuMachine
from polyfuse.strategy.cost.counts import Counts, dims_of, stride
from polyfuse.strategy.cost.kernel_model import Kernel, Share, is_internal

SHUFFLING = 4.0
"""Cycles of a sum of one vector at most, which LLVM writes out: its shuffles and additions, as others go on meanwhile.
5184 sums of 16 products, and what is done with them, took 12.0 µs (one core of a Xeon)."""


def row_seconds(kernel: Kernel, machine: CpuMachine) -> float:
    """Return the seconds in which one core enters and ends the rows of a kernel's loops, and adds up lanes.

    Rows of one vector are written out: nothing enters them, and no sum waits for another. A product's go by several
    steps and rows at once (strategy/cpu/kernel.py), or in register tiles; not if its only vectors are along its sums.
    """
    longest = max((share.long_row for share in kernel.shares if not share.is_product), default=0)
    alone = min(1.0, longest / (machine.vector_bytes // kernel.itemsize) / machine.row.window)
    cycles = (_row_cycles(share, kernel, machine, alone) for share in kernel.shares)
    return sum(cycles) * machine.cycle


def _row_cycles(share: Share, kernel: Kernel, machine: CpuMachine, alone: float) -> float:
    lanes = machine.vector_bytes // kernel.itemsize
    if not share.long_row or (share.is_product and not share.one_sum):
        return 0.0
    rows, last = share.instances / share.long_row, share.long_row % lanes
    if share.long_row <= lanes:
        return rows * (SHUFFLING if share.one_sum else 0.0)
    costs = machine.row
    cycles = costs.entering + costs.last * last
    if share.one_sum:
        cycles += costs.lanes + alone * costs.waits
    return rows * cycles + (costs.cumulated * share.instances if share.cumulates else 0.0)


def beside_seconds(counts: Counts, part: Tree, machine: CpuMachine) -> float:
    """Return the seconds that one core takes for a kernel's statements outside its register tiles."""
    tiles = {name for loop in loops(part) if loop.bind == "microkernel" for name in statements(loop)}
    cycles = sum(_cycles(counts, part, name, machine) for name in statements(part) if name not in tiles)
    return cycles * machine.cycle


def _cycles(counts: Counts, part: Tree, name: str, machine: CpuMachine) -> float:
    """Cycles of one statement's loads and stores."""
    s, around = counts.nest.statement(name), loops_around(part, name)
    instances = counts.work(name).instances * counts.filled(name)
    moved = [access for access in s.accesses if not _in_a_variable(counts, part, name, access.tensor)]
    if not around:
        return instances * len(moved)
    inner = around[-1]
    dims = _along(inner.date(name))
    columns = counts.extent(replace(inner, dates=((name, inner.date(name)),)))
    lanes = machine.vector_bytes // max(counts.nest.tensor(a.tensor).itemsize for a in s.accesses)
    strides = [_stride(counts, part, access, dims) for access in moved]
    rows = instances / columns
    vectors = rows * ceil(columns / lanes)
    cycles = instances * machine.row.apart * strides.count(2) + vectors * strides.count(1)
    summed = s.is_reduction and all(stride(s.write, d) == 0 for d in dims)
    return cycles + rows * machine.row.lanes if summed else cycles


def _along(date: isl.PwAff) -> Iterable[int]:
    """The dimension along which a loop advances: the last one of a loop over several, (32k + l) mod 64."""
    return sorted(dims_of(date))[-1:]


def _stride(counts: Counts, part: Tree, access: Access, dims: Iterable[int]) -> int:
    """How an access moves along a loop: 0 not, 1 to neighbours, 2 further.

    A buffer of the kernel's own has its elements in the order of the loops, where none goes along its tensor's rows.
    """
    found = max((stride(access, d) for d in dims), default=0)
    if found < 2 or not is_internal(counts, access.tensor, part.members):
        return found
    users = counts.users[access.tensor]
    return 2 if any(_goes_along(counts, part, user, access.tensor) for user in users) else 1


def _goes_along(counts: Counts, part: Tree, name: str, tensor: str) -> bool:
    """True if a statement's innermost loop goes along the rows of a tensor."""
    inner = loops_around(part, name)[-1]
    accesses = (access for access in counts.nest.statement(name).accesses if access.tensor == tensor)
    return any(stride(access, d) == 1 for access in accesses for d in _along(inner.date(name)))


def _in_a_variable(counts: Counts, part: Tree, name: str, tensor: str) -> bool:
    """True if a temporary is written and read in one innermost loop: { z = y[j] + b[j]; a[j] = max(z, 0) }."""
    users = counts.users[tensor]
    if counts.nest.tensor(tensor).role != "temporary" or len(users) < 2 or not users <= part.members:
        return False
    inner: list[Loop | None] = [next(reversed(loops_around(part, user)), None) for user in users]
    return all(loop is not None and loop is inner[0] for loop in inner)
