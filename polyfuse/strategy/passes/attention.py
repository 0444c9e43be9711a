"""Run attention as one kernel on a GPU, without storing whole rows of scores, in the cheapest shape.

    s = q kᵀ;  m = max s;  e = exp(s - m);  l = Σ e;  o = (e / l) v     ->     one kernel (schedule.py)

The rewrites are those of online_softmax.py, for as many keys at a time as the shape of the kernel has in a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from polyfuse.analysis.vector_access import ACCESS_BYTES
from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir import Nest
from polyfuse.ir.number_types import computed_in
from polyfuse.machine import GpuMachine, Machine
from polyfuse.schedule import Schedule
from polyfuse.strategy.candidates import Choose, cheapest
from polyfuse.strategy.claims import Claims
from polyfuse.strategy.cuda.attention.mma_tiles import tensor_pass_shapes
from polyfuse.strategy.cuda.attention.schedule import dated
from polyfuse.strategy.cuda.attention.tiles import PassShape, Sizes, pass_shapes
from polyfuse.strategy.driver import Candidate, Start
from polyfuse.strategy.match.attention import OneKernel, one_kernel
from polyfuse.strategy.remarks import Reason, Refused, Remark, applied
from polyfuse.strategy.rewrites.online_softmax import (
    Blocked,
    blocked,
    length_of,
    unrounded_weights,
)
from polyfuse.strategy.rewrites.private_accumulator import summed_apart

PASS = "attention"

FEWEST = 64
"""Values of a maximum from which on blocks of them are thought of: two of the smallest."""


@dataclass(frozen=True)
class InOneKernel:
    """A nest with sums under maxima in blocks, their kernels, what was done, and why other maxima stay as they are."""

    nest: Nest
    kernels: tuple[tuple[OneKernel, PassShape], ...]
    said: tuple[str, ...]
    refused: tuple[Remark, ...]


def candidates(start: Start) -> Iterator[Candidate | Remark]:
    """The nest with sums under maxima in one kernel each, and why others are not."""
    made = in_one_kernel(start.nest, start.model_machine, start.choose)
    if made is None:
        return
    yield from made.refused
    if made.kernels:
        summed = summed_apart(made.nest, frozenset(name for one, _ in made.kernels for name in one.names))
        nest = made.nest if summed is None else summed.nest
        told = (applied(PASS, (), f"{line}.", Reason.CHEAPER) for line in made.said)
        changed = replace(start, nest=nest, claims=Claims(nest, one_pass=made.kernels))
        names = dict.fromkeys(shape.name for _, shape in made.kernels)
        yield Candidate(changed.with_remarks(*told), made.said, name="; ".join(names))


def in_one_kernel(nest: Nest, machine: Machine, choose: Choose = cheapest) -> InOneKernel | None:
    """The nest with every maximum under which there is a product in blocks of keys; None if there is none.

    With known sizes, in float32 numbers; halves are widened where they are staged, and stay as they are in memory.
    """
    if not isinstance(machine, GpuMachine) or nest.params:
        return None
    done = nest
    kernels: list[tuple[OneKernel, PassShape]] = []
    said: list[str] = []
    refused: list[Remark] = []
    for s in nest.statements:
        if s.op != "max=" or length_of(nest, s) < FEWEST:
            continue
        found = _in_shape(done, s.name, machine, choose)
        if isinstance(found, Refused):
            line = f"sums under a maximum are not one kernel: {found}"
            refused.append(Remark(PASS, (s.name,), False, found.reason, line))
        elif found is not None:
            made, kernel, shape = found
            done, said = made.online.nest, [*said, *made.said]
            kernels.append((kernel, shape))
    return InOneKernel(done, tuple(kernels), tuple(said), tuple(refused)) if kernels or refused else None


def _in_shape(
    nest: Nest, maximum: str, machine: GpuMachine, choose: Choose
) -> tuple[Blocked, OneKernel, PassShape] | Refused | None:
    """One maximum in blocks for the cheapest shape of its kernel; why not; None if no product is under it."""
    nest, whole = unrounded_weights(nest, maximum)
    made = blocked(nest, maximum, FEWEST // 2)
    if made is None or isinstance(made, Refused):
        return made
    one = one_kernel(made.online)
    if isinstance(one, Refused):
        return Refused(one.reason, f"{maximum} and what is under it are no kernel: {one}.")
    dtypes = {computed_in(one.nest.tensor(t).dtype) for t in one.factors}
    if dtypes not in ({"float32"}, {"float64"}):
        line = f"{maximum} and what is under it are no kernel: its factors are {', '.join(sorted(dtypes))}."
        return Refused(Reason.OTHER_FORM, line)
    sizes = _sizes(one)
    itemsize = 8 if "float64" in dtypes else 4
    shapes = pass_shapes(sizes, itemsize, machine, machine.gpu)
    shapes += tensor_pass_shapes(one, sizes, machine, machine.gpu)
    shapes.sort(key=lambda shape: shape.seconds)
    if not shapes:
        return Refused(
            Reason.NO_SIZE,
            f"{maximum} and what is under it are no kernel: no blocks of {64 // itemsize} to {512 // itemsize} rows "
            f"and of {128 // itemsize} to {512 // itemsize} keys, two of these at least, divide {sizes.rows} rows and "
            f"{sizes.keys} keys, with all of {sizes.columns} columns, multiples of {ACCESS_BYTES // itemsize} up to "
            f"{512 // itemsize}.",
        )
    best = choose.best(PASS, (), shapes, seconds=lambda shape: shape.seconds, name=lambda shape: shape.name)
    again = blocked(nest, maximum, best.keys, best.narrowed)
    assert isinstance(again, Blocked), "as for blocks of another size"
    again = replace(again, said=(*whole, *again.said))
    one = one_kernel(again.online)
    assert isinstance(one, OneKernel), "as for blocks of another size"
    try:
        dated(Schedule(one.nest), one, best)
    except (IllegalSchedule, InvalidSchedule) as error:
        return Refused(Reason.ILLEGAL, f"{maximum} and what is under it are no kernel: {error}")
    return again, one, best


def _sizes(one: OneKernel) -> Sizes:
    p, q = one.scores, one.results
    count = prod(one.extent(q, d) for d in q.others)
    rows, keys = one.extent(p, p.rows), one.extent(p, p.columns)
    stored = one.nest.tensor(p.right.name).itemsize
    return Sizes(rows, keys, one.extent(p, p.steps[0]), one.extent(q, q.columns), count, one.between, stored)
