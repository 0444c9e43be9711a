"""Round tensor-core factors in a separate pass before the product if this is cheaper.

    for i, j, k: y[i, j] += bf16(x[i, k]) * bf16(w[k, j])
    ->  for e: x_narrow[e] = x[e]                                        once an element, in the kernel that computes x
        for i, j, k: y[i, j] += x_narrow[i, k] * w_narrow[k, j]          halves as they lie in memory, copied in boxes

A block that rounds what it copies does so for its own tile: an element of x as often as there are blocks side by side.
Numbers that lie there rounded are copied without a thread (tma_boxes.py), and halves are half the bytes.
Constants are rounded once for all calls. The values are the same: each factor is rounded once.

Of tf32 numbers a warpgroup's instructions take such alone whose neighbours are steps, so their copies lie so:

    ->  for e: w_narrow[e1, e0] = tf32(w[e0, e1])
        for i, j, k: y[i, j] += x_narrow[i, k] * w_narrow[j, k]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.number_types import HALVES
from polyfuse.ir.precision import STORED
from polyfuse.machine import GpuMachine, Machine
from polyfuse.rewrite.storage.widen_halves import narrow, users_of, why_not_narrow
from polyfuse.sets import IN
from polyfuse.strategy.cuda.gemm.schedule import in_tiles
from polyfuse.strategy.cuda.tiles.tile_candidates import has_warpgroups
from polyfuse.strategy.driver import Candidate, Start
from polyfuse.strategy.match.gemm import moved_axes
from polyfuse.strategy.plan import Plan

PASS = "preround operands"


@dataclass(frozen=True)
class RoundedFirst:
    """A nest whose products read rounded copies, and a sentence on each."""

    nest: Nest
    products: tuple[str, ...]
    said: tuple[str, ...]


def candidates(start: Start) -> Iterator[Candidate]:
    """The nest whose products read rounded copies; each of these products needs tiles of results."""
    made = rounded_first(start.nest, start.model_machine)
    if made is not None:
        changed = replace(start, nest=made.nest)
        yield Candidate(changed, made.said, "rounded where it is copied", products=made.products)


def rounded_first(nest: Nest, machine: Machine) -> RoundedFirst | None:
    """The nest with such copies; None if no product may read one, or tensor cores do not take them in boxes."""
    if not isinstance(machine, GpuMachine) or not has_warpgroups(machine.gpu, machine.math):
        return None
    math = machine.math
    done, said, products = nest, list[str](), dict[str, None]()
    for tensor in nest.tensors:
        axes = tuple(range(tensor.rank)) if STORED[math] in HALVES else _steps_last(done, tensor.name)
        if tensor.dtype == "float32" and axes and why_not_narrow(done, tensor.name, math, axes) is None:
            made = narrow(done, tensor.name, math, axes)
            done, said = made.nest, [*said, str(made)]
            products |= dict.fromkeys(made.users)
    return RoundedFirst(done, tuple(products), tuple(said)) if said else None


def _steps_last(nest: Nest, tensor: str) -> tuple[int, ...]:
    """A tensor's axes with that behind the others along which its products' steps are; none where these disagree."""
    found = {
        _axis_of_steps(s, access)
        for s in users_of(nest, tensor)
        for access in s.reads
        if access.tensor == tensor
    }
    last = found.pop() if len(found) == 1 else None
    if last is None:
        return ()
    return (*(axis for axis in range(nest.tensor(tensor).rank) if axis != last), last)


def _axis_of_steps(s: Statement, access: Access) -> int | None:
    """The axis along which the one step of a product moves; None if there are several."""
    steps = [d for d in range(len(s.dims)) if not s.write.map.involves_dims(IN, d, 1)]
    axes = moved_axes(access, len(s.dims))
    return None if axes is None or len(steps) != 1 else axes.get(steps[0])


def without_tiles(plan: Plan, products: tuple[str, ...]) -> frozenset[str]:
    """The products without tiles of results in a plan: what rounds may have come into their kernel."""
    return frozenset(name for name in products if not in_tiles(plan.schedule, name))
