"""The verb `pack`: give a statement a copy of a whole tensor in a layout for it.

    for i: for k: S[i, k] reads w[i, k]
    ->  for e0: for e1: pack_w: w_panels[e0 // p, e1, e0 % p] = w[e0, e1]          a kernel of its own
        for i: for k: S[i, k] reads w_panels[i // p, k, i % p]

The copy is a tensor like any other: where the one copied is a constant, its kernel runs once for all calls, as every
kernel does that depends on constants alone (polyfuse.analysis.once).
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import islpy as isl

from polyfuse.errors import InvalidSchedule
from polyfuse.ir.access import Access
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.nest import Nest, own_loops
from polyfuse.ir.number_types import computed_in
from polyfuse.ir.scalar import read
from polyfuse.ir.statement import Statement
from polyfuse.ir.tensor import Tensor
from polyfuse.ir.tree import Panel, Tree, parts, sequence, statements
from polyfuse.schedule.promote.copy_order import ordered_with_copies
from polyfuse.schedule.promote.copy_statements import Promoted
from polyfuse.schedule.promote.promotion import panel_of
from polyfuse.sets import IN, OUT, SET


def pack(
    nest: Nest, tree: Tree, tensor: str, statement: str, panel: tuple[int, int], halves: bool = False
) -> Promoted:
    """S reads w  ->  for all elements: w_panels = w, in panels; S reads w_panels.

    Panels of halves are float32 numbers, which a CPU multiplies, or `halves` as they are.
    """
    known, reader = nest.tensor(tensor), nest.statement(statement)
    layout = panel_of(tensor, known.rank, panel)
    shape = _shape(known, layout)
    if not any(access.tensor == tensor for access in reader.reads):
        raise InvalidSchedule(f"pack: {statement} does not read {tensor}")
    name = fresh(f"pack_{tensor}", {s.name for s in nest.statements})
    panels = Tensor(
        fresh(f"{tensor}_panels", {t.name for t in nest.tensors}),
        shape,
        known.dtype if halves else computed_in(known.dtype),
        "temporary",
    )
    cells = _cells(known.rank, layout).set_tuple_name(OUT, panels.name)
    copy = _copy(nest, known, reader, name, cells)
    moved = replace(reader, reads=tuple(_moved(access, tensor, cells) for access in reader.reads))
    changed = tuple(moved if s is reader else s for s in nest.statements)
    position = nest.statements.index(reader)
    extended = nest.rewritten(
        (*nest.tensors, panels),
        (*changed[:position], copy, *changed[position:]),
        ordered_with_copies(nest, (copy,), frozenset((statement,))),
        frozenset((tensor, panels.name)),
    )
    return Promoted(extended, _before(tree, statement, own_loops(copy)))


def _shape(tensor: Tensor, panel: Panel) -> tuple[int | str, ...]:
    """Panels, the other axes in their order, elements of a panel's row; the last panel may be full of nothing."""
    along, width = tensor.shape[panel.axis], panel.width
    count = -(-along // width) if isinstance(along, int) else f"floor(({along} + {width - 1})/{width})"
    others = (size for axis, size in enumerate(tensor.shape) if axis != panel.axis)
    return (count, *others, width)


def _cells(rank: int, panel: Panel) -> isl.Map:
    """Return the layout of panels: { [e0, e1] -> [floor(e1/32), e0, e1 mod 32] } for width 32 along axis 1."""
    dims = [f"e{axis}" for axis in range(rank)]
    along = dims[panel.axis]
    others = [dim for dim in dims if dim != along]
    cell = [f"floor({along}/{panel.width})", *others, f"{along} mod {panel.width}"]
    return isl.Map(f"{{ [{', '.join(dims)}] -> [{', '.join(cell)}] }}")


def _copy(nest: Nest, tensor: Tensor, reader: Statement, name: str, cells: isl.Map) -> Statement:
    """pack_w[e..]: w_panels[cell of e..] = w[e..], for all elements that the reader reads."""
    read_maps = (a.map for a in reader.reads if a.tensor == tensor.name)
    elements = reduce(
        isl.Set.union, (m.intersect_domain(nest.domains[reader.name]).range() for m in read_maps)
    )
    domain = elements.coalesce().set_tuple_name(name)
    for axis in range(tensor.rank):
        domain = domain.set_dim_name(SET, axis, f"e{axis}")
    same = isl.Map(f"{{ [{_dims(tensor)}] -> [{_dims(tensor)}] }}").set_tuple_name(OUT, tensor.name)
    write, source = (found.set_tuple_name(IN, name) for found in (cells, same))
    target = Access(write.get_tuple_name(OUT), write)
    return Statement(name, domain, target, "=", (Access(tensor.name, source),), read(0))


def _dims(tensor: Tensor) -> str:
    return ", ".join(f"e{axis}" for axis in range(tensor.rank))


def _moved(access: Access, tensor: str, cells: isl.Map) -> Access:
    if access.tensor != tensor:
        return access
    return Access(cells.get_tuple_name(OUT), access.map.apply_range(cells.set_tuple_name(IN, tensor)))


def _before(tree: Tree, statement: str, copy: Tree) -> Tree:
    """The tree with the copy as a kernel of its own, before the one that holds the statement."""
    kernels = parts(tree)
    first = next(p for p, kernel in enumerate(kernels) if statement in statements(kernel))
    return sequence((*kernels[:first], copy, *kernels[first:]))
