"""Remark on what a GPU's kernels do without: tiles of a sum of products, atomics of updates at places in data.

    for n, c, p, q: for r, s: y[n, c, p, q] += x[n, c, p + r, q + s] * w[c, r, s]
    ->  "mac0 is a sum of products without register tiles: no two results have the same values of x"

    for i: for b: h[b] += w[i] if idx[i] == b else 0
    ->  "S0 has no atomics: each thread goes over all updates, and does those of its own elements of h"

What shape a kernel got is decided in many places. This one looks at the finished schedule, so that none is silent.
"""

from __future__ import annotations

from dataclasses import replace

from polyfuse.ir import Nest
from polyfuse.ir.masks import named_dims
from polyfuse.schedule import Schedule
from polyfuse.sets import IN
from polyfuse.strategy.cuda.gemm.depthwise import PASS as WINDOW_ROWS
from polyfuse.strategy.cuda.gemm.implicit_gemm import convolution_of
from polyfuse.strategy.cuda.gemm.schedule import in_tiles, product_of
from polyfuse.strategy.cuda.gemm.tile_choice import PASS as REGISTER_TILES
from polyfuse.strategy.driver import Start
from polyfuse.strategy.match.gemm import contractions_of, is_sum_of_products, moved_axes
from polyfuse.strategy.plan import Group, Plan
from polyfuse.strategy.remarks import Reason, Remark, refused

PASS = "missed remarks"


def with_words(start: Start, plan: Plan, again: object) -> Plan:
    """A plan for a GPU with a remark on each sum of products in no tiles, if it has none yet, and on each scatter."""
    return replace(plan, groups=tuple(_with_words(plan, group) for group in plan.groups))


def _with_words(plan: Plan, group: Group) -> Group:
    """A kernel with its words; nothing more where the one sum of products in it has a reason already."""
    schedule = plan.schedule
    group = replace(group, remarks=(*group.remarks, *_no_atomics(schedule.nest, group.statements)))
    sums = [name for name in group.statements if is_sum_of_products(schedule.nest.statement(name))]
    plain = [name for name in sums if not in_tiles(schedule, name) and not _in_rows(name, group)]
    if not plain or (len(sums) == 1 and any(_about_tiles(remark) for remark in group.remarks)):
        return group
    found: dict[str, list[str]] = {}
    for name in plain:
        found.setdefault(_why(schedule, name, len(sums)), []).append(name)
    words = (
        refused(
            PASS, names, Reason.NO_TILES, f"{', '.join(names)} {_are(names)} without register tiles: {why}"
        )
        for why, names in found.items()
    )
    return replace(group, remarks=(*group.remarks, *words))


def _no_atomics(nest: Nest, names: tuple[str, ...]) -> tuple[Remark, ...]:
    """Remarks on updates of elements that data name."""
    found = (nest.statement(name) for name in names)
    return tuple(
        refused(
            PASS,
            [s.name],
            Reason.OTHER_FORM,
            f"{s.name} has no atomics: each thread goes over all updates, and does those of its own elements of "
            f"{s.write.tensor}",
        )
        for s in found
        if named_dims(nest, s)
    )


def _about_tiles(remark: Remark) -> bool:
    """True if a remark says why a kernel's only product has no tiles."""
    return remark.pass_ == REGISTER_TILES and not remark.taken


def _in_rows(name: str, group: Group) -> bool:
    """True if a thread has several results of a sum over windows (depthwise.py)."""
    return any(r.pass_ == WINDOW_ROWS and r.taken and name in r.statements for r in group.remarks)


def _are(names: list[str]) -> str:
    return "is a sum of products" if len(names) == 1 else "are sums of products"


def _why(schedule: Schedule, name: str, sums: int) -> str:
    """The reason why no tile holds a statement's results: the statement's form, or its kernel's."""
    shape = why_no_tile(schedule.nest, name)
    if shape is not None:
        return shape
    if schedule.nest.domains[name].is_empty():
        return "there is nothing to compute"
    if schedule.loops(name)[0].bind is None:
        return "the outermost loop of the kernel runs in order"
    if sums > 1:
        return f"the kernel holds {sums} of them, and tiles are those of one"
    return "the kernel was made for something else, which its other notes say"


def why_no_tile(nest: Nest, name: str) -> str | None:
    """The reason why a sum is neither a matrix product nor a convolution of several channels; None if it is one."""
    if product_of(nest, name) is not None or convolution_of(nest, name) is not None:
        return None
    s = nest.statement(name)
    results = {d for d in range(len(s.dims)) if s.write.map.involves_dims(IN, d, 1)}
    moved = {access.tensor: set(moved_axes(access, len(s.dims)) or {}) & results for access in s.reads}
    everywhere = [tensor for tensor, dims in moved.items() if dims == results]
    if everywhere and results:
        return f"no two results have the same values of {everywhere[0]}"
    if not results:
        return "it has one result"
    if contractions_of(nest, name, by_value=True):
        return "its steps are not the same for all results, or its columns are no neighbours in memory"
    return "its factors are not each a value that moves with dimensions of their own"
