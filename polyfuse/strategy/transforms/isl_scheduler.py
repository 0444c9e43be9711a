"""Run isl's scheduler on one kernel: a new order for dependent statements, as dates for `affine`.

isl finds permutable bands of the smallest dependence distances (Verdoolaege & Janssens, "Scheduling for PPCG", 2017,
after Bondhugula et al. 2008): it shifts, skews and fuses statements of different depths as a band needs it. Reductions
may be reordered, so their own pairs count for parallel loops only.

One iteration of the outermost loop has fewer dependences, so that there isl may find a permutable band for statements
of different depths, whose loops may then change places, where it finds none for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import islpy as isl

from polyfuse.analysis.bands import among
from polyfuse.errors.budget import stopped, within
from polyfuse.ir import Nest
from polyfuse.ir.dependences import Pairs
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.sizes import at_sizes
from polyfuse.ir.tree import Loop, Tree, statements
from polyfuse.sets import IN, OUT, PARAM, expression_text, single_expression, union_map, union_set
from polyfuse.strategy.remarks import Reason, Refused
from polyfuse.strategy.transforms.large_numbers import sizes_for

DEEPEST = 3
"""Loops around a statement: with four, isl's scheduler needs minutes for a stencil (heat-3d: more than five), and its
limit on operations does not stop it."""

MOST = 1200
"""The sum of (loops around source and sink)² over the dependences of a kernel that isl is asked about. It took
0.2 s for 872 (ludcmp) and 10 s for about 2000 (adi). A quotient counts as a loop, and a dependence with quotients as
many times as its largest number has bits: for 5 statements along the diagonals of A.ravel(), 22 relations with numbers
up to 361, isl did not end within 9 minutes, and its limit on operations does not stop that either."""

MAX_OPERATIONS = 2_000_000
"""isl operations for one kernel. What needs more keeps its original order."""

Dates = dict[str, list[str]]


@dataclass(frozen=True)
class Found:
    """The dates of each statement as text, ready for `affine`."""

    dates: dict[str, str]


def found_by_isl(nest: Nest, part: Tree, inside: Loop | None = None) -> Found | Refused:
    """isl's order for one part of a tree; or why there is none.

    With `inside`, the part's outermost loop, that loop stays as it is, and isl orders what one iteration of it runs:

        for i: for j: { for k: R; S }   ->   R[i, j, k] at [i, j, k, 1], S[i, j] at [i, j, j, 0], if that is legal

    It is asked about the nest with symbolic sizes, and with sizes for the large numbers that are left: an order that is
    legal for all of them is legal for those at hand, and large numbers in the constraints cost isl minutes.
    """
    names = statements(part)
    nest, sizes = nest.general
    deepest = max(names, key=lambda name: len(nest.statement(name).dims))
    if len(nest.statement(deepest).dims) > DEEPEST:
        line = f"isl's scheduler is not asked: {deepest} has more than {DEEPEST} loops; the original order is kept"
        return Refused(Reason.OTHER_FORM, line)
    pairs = among(nest, part)
    if sum(_weight(part) for pair in pairs for part in pair.map.get_basic_maps()) > MOST:
        line = (
            f"isl's scheduler is not asked: {len(pairs)} dependences are too many, or have too large quotients; "
            "the original order is kept"
        )
        return Refused(Reason.BUDGET, line)
    step = _Step(nest, names, inside)
    pairs = tuple(step.one(pair) for pair in pairs)
    asked = sizes_for(
        [*step.domains.values(), *(pair.map for pair in pairs)], {*nest.params, step.value, *sizes}
    )
    found = _scheduled(
        union_set(map(asked.of_set, step.domains.values())),
        tuple(replace(pair, map=asked.of_map(pair.map)) for pair in pairs),
        nest.context.intersect(asked.context),
        inside is not None,
    )
    if found is None:
        line = (
            f"isl's scheduler did not finish within {MAX_OPERATIONS} operations; the original order is kept"
        )
        return Refused(Reason.BUDGET, line)
    sizes = {**sizes, **asked.values}
    dates: Dates = {name: step.outer(name, sizes) for name in names}
    if not _read(found.get_root().child(0), step, names, sizes, dates):
        line = "isl's order has dates in pieces, or none for a statement; the original order is kept"
        return Refused(Reason.OTHER_FORM, line)
    return Found({name: f"[{', '.join(parts)}]" for name, parts in dates.items()})


def _weight(pairs: isl.BasicMap) -> int:
    """Weigh a relation that is no union by the work that it is for isl's scheduler.

    >>> _weight(isl.BasicMap("{ S[i] -> T[j] : j = 19i }")), _weight(isl.BasicMap("{ S[i] -> T[j] : j = i mod 19 }"))
    (4, 45)
    """
    quotients = int(pairs.dim(isl.dim_type.div))
    size: int = (pairs.dim(IN) + pairs.dim(OUT) + quotients) ** 2
    if not quotients:
        return size
    numbers = (
        abs(int(constraint.get_coefficient_val(kind, d).to_python()))
        for constraint in pairs.get_constraints()
        for kind in (IN, OUT, isl.dim_type.div)
        for d in range(pairs.dim(kind))
    )
    return size * int(max(numbers)).bit_length()


def _scheduled(
    every: isl.UnionSet, pairs: tuple[Pairs, ...], context: isl.Set, inside: bool
) -> isl.Schedule | None:
    """isl's schedule of these instances; None if it takes more operations than it may.

    In one iteration of a loop what need not be together comes apart: its loops are short, and in caches anyway.
    """
    ordering = union_map(p.map for p in pairs if p.kind != "reduction")
    near = union_map(p.map for p in pairs if p.kind in ("flow", "reduction"))
    constraints = isl.ScheduleConstraints.on_domain(every).set_validity(ordering)
    constraints = constraints.set_coincidence(union_map(p.map for p in pairs)).set_proximity(near)
    isl_context = every.get_ctx()
    before = isl_context.get_schedule_serialize_sccs()
    isl_context.set_schedule_serialize_sccs(int(inside))
    try:
        asked = constraints.set_context(context)
        return within(isl_context, MAX_OPERATIONS, asked.compute_schedule, lambda: None)
    except isl.Error as error:
        if stopped(error):  # by a limit around this
            raise
        return None  # "unable to carry dependences", of some order that is not asked for then
    finally:
        isl_context.set_schedule_serialize_sccs(before)


class _Step:
    """A scheduling problem for isl: all instances, or those of one iteration of a loop, whose value is a parameter."""

    def __init__(self, nest: Nest, names: tuple[str, ...], loop: Loop | None) -> None:
        self.loop = loop
        taken = {*nest.params, *(d for name in names for d in nest.statement(name).dims)}
        self.value = fresh(loop.name if loop is not None else "step", taken)
        self.now = {} if loop is None else {name: self._now(loop.date(name)) for name in names}
        self.domains = {name: self._here(nest.domains[name], name) for name in names}

    def _now(self, date: isl.PwAff) -> isl.Set:
        """{ S[i, j] : the loop's date is the size that stands for it }."""
        relation = date.as_map().insert_dims(PARAM, 0, 1).set_dim_name(PARAM, 0, self.value)
        return relation.equate(PARAM, 0, OUT, 0).domain()

    def _here(self, instances: isl.Set, name: str) -> isl.Set:
        return instances.intersect(self.now[name]) if name in self.now else instances

    def one(self, pair: Pairs) -> Pairs:
        """A dependence as far as it lies within the step."""
        if self.loop is None:
            return pair
        here = pair.map.intersect_domain(self.now[pair.source]).intersect_range(self.now[pair.sink])
        return replace(pair, map=here)

    def outer(self, name: str, sizes: Mapping[str, int]) -> list[str]:
        """The dates that a statement has already."""
        return [] if self.loop is None else [expression_text(at_sizes(self.loop.date(name), sizes))]

    def date(self, found: isl.PwAff, name: str) -> isl.PwAff:
        """A date without the size that stood for the loop's value."""
        if name not in self.now:
            return found
        known = found.as_map().intersect_domain(self.now[name])
        at = known.find_dim_by_name(PARAM, self.value)
        known = known.project_out(PARAM, at, 1).gist_domain(known.project_out(PARAM, at, 1).domain())
        return isl.PwMultiAff.from_map(known).get_pw_aff(0)


def _read(
    node: isl.ScheduleNode, step: _Step, names: tuple[str, ...], sizes: Mapping[str, int], dates: Dates
) -> bool:
    """Append the dates below a node to those of the statements that reach it; False if one is not a single piece."""
    kind = node.get_type()
    if kind == isl.schedule_node_type.band:
        partial = node.band_get_partial_schedule()
        for member in range(node.band_n_member()):
            if not _member(partial.get_union_pw_aff(member), step, names, sizes, dates):
                return False
        return _read(node.child(0), step, names, sizes, dates)
    if kind == isl.schedule_node_type.filter:
        return _read(node.child(0), step, names, sizes, dates)
    if kind in (isl.schedule_node_type.sequence, isl.schedule_node_type.set):
        for position in range(node.n_children()):
            inside = tuple(name for name in names if _reaches(node.child(position), name))
            for name in inside:
                dates[name].append(str(position))
            if not _read(node.child(position), step, inside, sizes, dates):
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


def _member(
    union: isl.UnionPwAff, step: _Step, names: tuple[str, ...], sizes: Mapping[str, int], dates: Dates
) -> bool:
    pieces: list[isl.PwAff] = []
    union.foreach_pw_aff(pieces.append)
    found = {date.get_domain_space().get_tuple_name(isl.dim_type.set): date for date in pieces}
    for name in names:
        if name not in found:  # a statement that never runs is not in isl's schedule
            return False
        text = single_expression(at_sizes(step.date(found[name], name), sizes))
        if text is None:
            return False
        dates[name].append(text)
    return True
