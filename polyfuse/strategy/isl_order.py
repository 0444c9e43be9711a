"""isl's scheduler on one kernel: a new order for statements that a dependence ties together, as dates for `affine`.

isl finds permutable bands of the smallest dependence distances (Verdoolaege & Janssens, "Scheduling for PPCG", 2017,
after Bondhugula et al. 2008): it shifts, skews and fuses statements of different depths as a band needs it. Reductions
may be reordered, so their own pairs count for parallel loops only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import islpy as isl

from polyfuse.analysis.bands import among
from polyfuse.analysis.budget import at_most
from polyfuse.ir import Nest
from polyfuse.ir.sizes import at_sizes
from polyfuse.ir.tree import Tree, statements
from polyfuse.sets import IN, OUT, expression_text, union_map, union_set

DEEPEST = 3
"""Loops around a statement: with four, isl's scheduler needs minutes for a stencil (heat-3d: more than five), and its
limit on operations does not stop it."""

MOST = 1200
"""The sum of (loops around source and sink)² over the dependences of a kernel that isl is asked about. It took
0.2 s for 872 (ludcmp) and 10 s for about 2000 (adi)."""

MAX_OPERATIONS = 2_000_000
"""isl operations for one kernel. What needs more keeps its original order."""

Dates = dict[str, list[str]]


@dataclass(frozen=True)
class Found:
    """The dates of each statement as text, ready for `affine`."""

    dates: dict[str, str]


def found_by_isl(nest: Nest, part: Tree) -> Found | str:
    """isl's order for one part of a tree; or why there is none, as a sentence.

    It is asked about the nest with symbolic sizes: an order that is legal for all of them is legal for those at hand,
    and large numbers in the constraints cost isl minutes.
    """
    names = statements(part)
    nest, sizes = nest.general
    deepest = max(names, key=lambda name: len(nest.statement(name).dims))
    if len(nest.statement(deepest).dims) > DEEPEST:
        return f"isl's scheduler is not asked: {deepest} has more than {DEEPEST} loops; the original order is kept"
    domains = union_set(nest.domains[name] for name in names)
    pairs = among(nest, part)
    size = sum(p.map.n_basic_map() * (p.map.dim(IN) + p.map.dim(OUT)) ** 2 for p in pairs)
    if size > MOST:
        return (
            f"isl's scheduler is not asked: {len(pairs)} dependences are too many; the original order is kept"
        )
    ordering = union_map(p.map for p in pairs if p.kind != "reduction")
    every = union_map(p.map for p in pairs)
    near = union_map(p.map for p in pairs if p.kind in ("flow", "reduction"))
    context = domains.get_ctx()
    try:
        with at_most(context, MAX_OPERATIONS):
            constraints = isl.ScheduleConstraints.on_domain(domains).set_validity(ordering)
            constraints = constraints.set_coincidence(every).set_proximity(near).set_context(nest.context)
            root = constraints.compute_schedule().get_root()
    except isl.Error:
        return (
            f"isl's scheduler did not finish within {MAX_OPERATIONS} operations; the original order is kept"
        )
    dates: Dates = {name: [] for name in names}
    if not _read(root.child(0), names, sizes, dates):
        return "isl's order has dates in pieces, or none for a statement; the original order is kept"
    return Found({name: f"[{', '.join(parts)}]" for name, parts in dates.items()})


def _read(node: isl.ScheduleNode, names: tuple[str, ...], sizes: Mapping[str, int], dates: Dates) -> bool:
    """Append the dates below a node to those of the statements that reach it; False if one is not a single piece."""
    kind = node.get_type()
    if kind == isl.schedule_node_type.band:
        partial = node.band_get_partial_schedule()
        for member in range(node.band_n_member()):
            if not _member(partial.get_union_pw_aff(member), names, sizes, dates):
                return False
        return _read(node.child(0), names, sizes, dates)
    if kind == isl.schedule_node_type.filter:
        return _read(node.child(0), names, sizes, dates)
    if kind in (isl.schedule_node_type.sequence, isl.schedule_node_type.set):
        for position in range(node.n_children()):
            inside = tuple(name for name in names if _reaches(node.child(position), name))
            for name in inside:
                dates[name].append(str(position))
            if not _read(node.child(position), inside, sizes, dates):
                return False
        return True
    if len(names) > 1:  # a leaf of several statements: isl found no need for an order; theirs is kept
        for position, name in enumerate(names):
            dates[name].append(str(position))
    return True


def _reaches(node: isl.ScheduleNode, name: str) -> bool:
    found: list[isl.Set] = []
    node.filter_get_filter().foreach_set(found.append)
    return any(part.get_tuple_name() == name for part in found)


def _member(union: isl.UnionPwAff, names: tuple[str, ...], sizes: Mapping[str, int], dates: Dates) -> bool:
    pieces: list[isl.PwAff] = []
    union.foreach_pw_aff(pieces.append)
    found = {date.get_domain_space().get_tuple_name(isl.dim_type.set): date for date in pieces}
    for name in names:
        if name not in found:  # a statement that never runs is not in isl's schedule
            return False
        text = expression_text(at_sizes(found[name], sizes))
        if ";" in text or " : " in text:
            return False
        dates[name].append(text)
    return True
