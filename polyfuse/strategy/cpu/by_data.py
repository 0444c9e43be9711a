"""Kernels in which data say what iterations do anything: in the order as written, the outermost loop on cores.

    for i (on cores): for k (vector): y[i] += a[k] if p[i] <= k < p[i + 1] else 0        rows of a sparse matrix
    for i: for b: h[b] += w[i] if idx[i] == b else 0                                    a histogram: on one core

What such a loop costs is not known before a call, so that no order of loops can be priced. As written the loop over
places lies inside, and code generation leaves one iteration of it, or one row's. The outermost loop runs on cores where
it carries nothing. A sum into places that data name carries its reduction: it stays on one core.
"""

from __future__ import annotations

from polyfuse.ir.masks import compared_dims, named_dims
from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Loop, parts, statements
from polyfuse.machine import CpuMachine
from polyfuse.schedule import Schedule
from polyfuse.strategy.cost.counts import Counts, dims_of
from polyfuse.strategy.cost.kernel_model import internal, kernel_of
from polyfuse.strategy.fusion.group_search import part_with
from polyfuse.strategy.remarks import Remark, applied
from polyfuse.strategy.transforms.band_verbs import contracted, users_in, where_legal

PASS = "loops bounded by data"


def kernels_by_data(
    nest: Nest, without: frozenset[str]
) -> tuple[tuple[tuple[str, ...], ...], tuple[Remark, ...]]:
    """(the parts of the order as written that hold a statement masked by data, a remark on each such statement)."""
    found = []
    remarks: list[Remark] = []
    for part in parts(Schedule(nest).tree):
        names = statements(part)
        masked = [name for name in names if compared_dims(nest, nest.statement(name))]
        if masked and without.isdisjoint(names):
            found.append(names)
            remarks += (applied(PASS, [name], _said(nest, name)) for name in masked)
    return tuple(found), tuple(remarks)


def kept_in_order(schedule: Schedule, names: tuple[str, ...], machine: CpuMachine) -> Schedule:
    """The loops as written: the outermost on cores, an innermost one along a row of data on vector lanes.

    A temporary lies in the innermost loop around its uses: elsewhere it would have an element for each iteration,
    those too that do nothing.
    """
    counts = Counts(schedule.nest)
    for name in names:
        loops = schedule.loops(name)
        if loops and _moved(schedule, name, loops[-1]) & _rows(schedule.nest, name):
            schedule = where_legal(schedule, "vectorize", name, loops[-1].name)
    outer = next(iter(schedule.loops(names[0])), None)
    if outer is not None and machine.units > 1 and set(outer.names) == set(names) and counts.parallel(outer):
        compared = (set(compared_dims(schedule.nest, schedule.nest.statement(name))) for name in names)
        if not any(_moved(schedule, name, outer) & dims for name, dims in zip(names, compared, strict=True)):
            schedule = schedule.bind(names[0], **{outer.name: "cores"})
    for tensor in internal(kernel_of(counts, part_with(schedule, names[0]), ())):
        schedule = contracted(schedule, tensor, users_in(schedule, names, tensor), machine)
    return schedule


def _moved(schedule: Schedule, name: str, loop: Loop) -> set[str]:
    """The dimensions of a statement that a loop counts."""
    dims = schedule.nest.statement(name).dims
    return {dims[d] for d in dims_of(loop.date(name))}


def _rows(nest: Nest, name: str) -> set[str]:
    """The dimensions of a statement that run along a row between two numbers in data, not to a single place."""
    return set(compared_dims(nest, nest.statement(name))) - set(named_dims(nest, nest.statement(name)))


def _said(nest: Nest, name: str) -> str:
    """What the loops of one statement cost."""
    s = nest.statement(name)
    named, rows = named_dims(nest, s), _rows(nest, name)
    said = []
    if named:
        said.append(
            f"data say which element {s.write} is: it may be any of {s.write.tensor}, so that loops over these updates "
            "stay in order, on one core"
        )
    if rows:
        said.append(
            f"data say where {', '.join(d for d in s.dims if d in rows)} begins and ends: the loops stay as written, "
            "without tiles"
        )
    return f"{name}: {'; '.join(said)}"
