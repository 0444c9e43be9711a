"""Coalesce the two loops over the pixels of a product, such as a convolution of one pixel, if that is cheaper.

    for k: for h < 4: for w < 4: for c: y[k, h, w] += a[k, c] * x[c, h, w]    tiles of one row of 4 pixels
    for k: for p < 16: for c: y[k, p] += a[k, c] * x[c, p]                    16 neighbours in memory are the columns

In tiles of one row all of a goes by for each row, or is packed for each.

All products of a component are priced together, with the copies that it needs. What accesses a coalesced temporary by
both indices may stay out of the kernels that make it, and is priced as a kernel of its own.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from functools import partial

from polyfuse.errors import IllegalRewrite
from polyfuse.ir import Nest
from polyfuse.machine import CpuMachine, Machine
from polyfuse.rewrite.coalesce import Coalesced, coalesce
from polyfuse.schedule import Schedule
from polyfuse.strategy.candidates import Choose, cheapest
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cpu.gemm.blocking import blockings
from polyfuse.strategy.cpu.gemm.problem import Question
from polyfuse.strategy.match.gemm import is_sum_of_products, products_of
from polyfuse.strategy.remarks import Remark
from polyfuse.strategy.rewrites.reductions.priced_alone import seconds_alone, taken_if_cheaper
from polyfuse.strategy.transforms.packing import apart

PASS = "coalesce"


def with_pixels_in_one_loop(
    nest: Nest, machine: Machine, choose: Choose = cheapest
) -> tuple[Nest, tuple[Remark, ...]]:
    """The nest with loops coalesced where that is cheaper, and a sentence on each component."""
    said: list[Remark] = []
    asked: set[str] = set()
    for name in [s.name for s in nest.statements if is_sum_of_products(s)]:
        if name in asked or not products_of(nest, name):
            continue
        done = _coalesced(nest, name)
        if done is None:
            continue
        asked |= set(done.statements)
        taken, remark = taken_if_cheaper(
            PASS, name, str(done), partial(_prices, nest, done, machine), choose, becomes=done.statements
        )
        said.append(remark)
        if taken:
            nest = done.nest
    return nest, tuple(said)


def _coalesced(nest: Nest, name: str) -> Coalesced | None:
    """The component of a product, by its dimensions along two neighbouring axes of the sums."""
    for dim in nest.statement(name).dims[:-1]:
        with suppress(IllegalRewrite):  # asked once: what may be done is found by doing most of it
            return coalesce(nest, name, dim)
    return None


def _prices(nest: Nest, done: Coalesced, machine: Machine) -> tuple[float, float]:
    """The seconds of a component's products before; and after, with copies and what stays outside.

    A copy that one product alone reads, and packs, is made in its panels.
    """
    products = tuple(s for s in done.statements if is_sum_of_products(nest.statement(s)))
    before = sum(_in_blocks(nest, name, machine)[0] for name in products)
    after, packed = 0.0, Counter[str]()
    for name in products:
        seconds, panels = _in_blocks(done.nest, name, machine)
        after += seconds
        packed.update(panels)
    made = {copy: done.nest.statement(copy).write.tensor for copy in done.copies}
    readers = Counter(a.tensor for s in done.nest.statements for a in s.reads)
    alone = [copy for copy, tensor in made.items() if (packed[tensor], readers[tensor]) != (1, 1)]
    return before, after + seconds_alone(done.nest, (*alone, *done.borders), machine)


def _in_blocks(nest: Nest, name: str, machine: Machine) -> tuple[float, tuple[str, ...]]:
    """The seconds of a product in the best blocks that it has, and the tensors that it packs in the call.

    By itself if it has none.
    """
    assert isinstance(machine, CpuMachine), "a pass of CPUs"
    schedule, counts = apart(Schedule(nest), (name,)), Counts(nest)
    found: list[tuple[float, tuple[str, ...]]] = []
    for product in products_of(nest, name):
        asked = Question(
            schedule, counts, product, machine, (), counts.total_bytes, frozenset(), cheapest, (name,)
        )
        loops = asked.loops()
        if loops is not None:
            task, often, _ = asked.task(loops, parallel=True)
            for b in blockings(task)[:1]:
                sides = ((b.pack_left, task.left, product.left), (b.pack_right, task.right, product.right))
                here = (factor.access.tensor for packs, one, factor in sides if packs and not one.ahead)
                found.append((b.seconds * often, tuple(here)))
    return min(found) if found else (seconds_alone(nest, (name,), machine), ())
