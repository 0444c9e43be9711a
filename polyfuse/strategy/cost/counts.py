"""Counting with isl, each fact once: instances, operations, footprints, and which loops run in any order.

Sets are counted by their bounding boxes. A symbolic size counts as NOMINAL_SIZE (or as some value its context allows).
The facts depend on statements and on the dates of loops, not on trees; so a search over many trees asks isl little.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

import islpy as isl

from polyfuse.analysis.storage import buffers_of
from polyfuse.ir import Access, Nest
from polyfuse.ir.dependences import Pairs
from polyfuse.ir.scalar import operations
from polyfuse.ir.tree import Loop, Tree
from polyfuse.schedule import Schedule
from polyfuse.sets import (
    IN,
    OUT,
    PARAM,
    SET,
    Box,
    bounding_box,
    constant,
    dimension,
    greatest,
    least_and_most,
    volume,
)
from polyfuse.strategy.cost.op_latency import Operations, operations_of

NOMINAL_SIZE = 256
"""The value that the cost model assumes for a symbolic size."""


SAMPLES = 17
"""Values of a loop at which instances are counted, where some have more of them than others."""

ALIKE = 1.1
"""The largest ratio of the most to the fewest instances in a value of a loop at which all values count as equal."""


@dataclass(frozen=True)
class Work:
    """The work of one statement: instances, operations of all of them, and these by how long a CPU takes for them."""

    instances: int
    flops: int
    operations: Operations


def nominal_sizes(nest: Nest, given: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return a value for every symbolic size: the given one, else NOMINAL_SIZE, or the nearest that the context allows.

    [N, M] -> { : M <= 2 }  ->  N = 256, M = 2

    The context must allow the given ones.
    """
    names, given = nest.params, given or {}
    chosen = {name: given.get(name, NOMINAL_SIZE) for name in names}
    if not _where(chosen).intersect(nest.context).is_empty():
        return chosen
    left = isl.Set(f"[{', '.join(names)}] -> {{ : }}").intersect(nest.context)
    left = left.intersect(_where({name: value for name, value in given.items() if name in names}))
    found = {}
    for name in names:
        found[name] = _nearest(left, name)
        left = left.intersect(_where({name: found[name]}))
    return found


def _nearest(sizes: isl.Set, name: str) -> int:
    """The value of a size in a set of sizes that is nearest to NOMINAL_SIZE from below, else from above."""
    values = sizes.move_dims(SET, 0, PARAM, sizes.find_dim_by_name(PARAM, name), 1)
    small = values.intersect(isl.Set(f"{{ [n] : n <= {NOMINAL_SIZE} }}").align_params(values.get_space()))
    value = values.dim_min_val(0) if small.is_empty() else small.dim_max_val(0)
    return int(value.to_python())


def _where(sizes: Mapping[str, int]) -> isl.Set:
    """[N] -> { : N = 256 }."""
    wanted = " and ".join(f"{name} = {value}" for name, value in sizes.items()) or "1 = 1"
    return isl.Set(f"[{', '.join(sizes)}] -> {{ : {wanted} }}")


class Counts:
    """Facts about one nest. Values are computed when first asked for and kept: a cache, not a state.

    What is `held` in buffers of a schedule is in none of the bytes that a call goes through.
    """

    def __init__(self, nest: Nest, held: frozenset[str] = frozenset()) -> None:
        self.nest, self.held = nest, held
        self._work: dict[str, Work] = {}
        self._footprints: dict[tuple[str, int], int] = {}
        self._sources: dict[tuple[str, int], frozenset[str]] = {}
        self._slices: dict[tuple[str, int, int], float] = {}
        self._boxes: dict[tuple[object, ...], Box | None] = {}
        self._carried: dict[tuple[int, int, int], tuple[object, bool]] = {}
        self._parallel: dict[tuple[int, ...], tuple[object, bool]] = {}
        self._profiles: dict[tuple[str, int], tuple[float, ...]] = {}
        self._filled: dict[int, tuple[isl.Set, float]] = {}
        self._rows: dict[str, tuple[int, int]] = {}
        self._long_rows: dict[str, tuple[int, bool]] = {}
        self._sizes: dict[str, int] = {}
        self._extents: dict[tuple[str, int], tuple[int, int]] = {}
        self._dates: dict[int, list[isl.PwAff]] = {}
        self._around: dict[int, list[tuple[isl.Set, Box | None]]] = {}

    @classmethod
    def of(cls, schedule: Schedule) -> Counts:
        """Return the facts about a schedule's nest, and what its buffers hold."""
        return cls(schedule.nest, frozenset(buffer.tensor for _, buffer in buffers_of(schedule.tree)))

    def after(self, nest: Nest) -> Counts:
        """Return the facts about a nest that this one became, with what is known of domains that both have."""
        found = Counts(nest)
        found._filled = self._filled
        return found

    @cached_property
    def nominal(self) -> isl.Set:
        """The sizes the counts are for."""
        return _where(nominal_sizes(self.nest))

    @cached_property
    def domains(self) -> Mapping[str, isl.Set]:
        """Each statement's domain at the nominal sizes."""
        if not self.nest.params:
            return self.nest.domains
        return {name: domain.intersect_params(self.nominal) for name, domain in self.nest.domains.items()}

    @cached_property
    def users(self) -> dict[str, frozenset[str]]:
        """For each tensor the statements that touch it."""
        found: dict[str, set[str]] = {tensor.name: set() for tensor in self.nest.tensors}
        for s in self.nest.statements:
            for tensor in s.tensors:
                found[tensor].add(s.name)
        return {tensor: frozenset(names) for tensor, names in found.items()}

    @cached_property
    def total_bytes(self) -> int:
        """The bytes that a call goes through: of tables those that are read, of constants none that it does not read.

        w and scale of folded[j, k] = w[j, k] * scale[j], constants that no other statement reads, are of no call. A
        product's packed factor is as large as one block of it, though the nest has a tensor with all blocks: 133 MB
        for the 13 of PolyBench's covariance.
        """
        looked_up = {t.gather.table for t in self.nest.tensors if t.gather}
        tables = {name for name in looked_up if not (self.nest.writers(name) or self.nest.readers(name))}
        before = {t.name for t in self.nest.tensors if self.users[t.name] and self._is_read_before(t.name)}
        return sum(
            self.tensor_bytes(t.name) for t in self.nest.tensors if t.name not in tables | before | self.held
        )

    def _is_read_before(self, tensor: str) -> bool:
        """True if only statements touch a tensor that compute from constants alone, which run once for all calls."""
        written = (self.nest.statement(name).write.tensor for name in self.users[tensor])
        return self.nest.varying.isdisjoint(written)

    def sources(self, name: str, position: int) -> frozenset[str]:
        """The statements whose values one access of a statement finds in its tensor."""
        key = name, position
        if key not in self._sources:
            access = self._access(name, position)
            touched = self.domains[name].apply(access.map)
            found = (p.source for p in self.nest.flow_through(access.tensor) if p.sink == name)
            self._sources[key] = frozenset(
                n for n in found if not self.domains[n].apply(self._access(n, 0).map).is_disjoint(touched)
            )
        return self._sources[key]

    def tensor_bytes(self, name: str) -> int:
        """The size of a tensor."""
        tensor = self.nest.tensor(name)
        sizes = [self.size(extent) if isinstance(extent, str) else extent for extent in tensor.shape]
        return prod(sizes) * tensor.itemsize if all(size > 0 for size in sizes) else 0

    def size(self, extent: str) -> int:
        """A symbolic extent's value at the nominal sizes."""
        if extent not in self._sizes:
            value = isl.PwAff(f"[{', '.join(self.nest.params)}] -> {{ [({extent})] }}")
            self._sizes[extent] = int(greatest(value.intersect_params(self.nominal)).to_python())
        return self._sizes[extent]

    def work(self, name: str) -> Work:
        """Instances and operations of a statement; a reduction's combination counts as one operation."""
        if name not in self._work:
            s = self.nest.statement(name)
            instances = self._count(self.domains[name])
            flops = instances * (operations(s.body) + s.is_reduction)
            itemsize = max(self.nest.tensor(a.tensor).itemsize for a in s.accesses)
            taking = operations_of(s.body, itemsize).times(instances, s.is_reduction)
            self._work[name] = Work(instances, flops, taking)
        return self._work[name]

    def operations(self, name: str) -> int:
        """Operations of the instances that there are: half of the box's in a triangle."""
        return round(self.work(name).flops * self.filled(name))

    def footprint(self, name: str, position: int) -> int:
        """The elements that one access of a statement (0 is the write) touches in all."""
        key = name, position
        if key not in self._footprints:
            touched = self.domains[name].apply(self._access(name, position).map)
            self._footprints[key] = self._count(touched)
        return self._footprints[key]

    def slice_ratio(self, name: str, position: int, date: isl.PwAff) -> float:
        """The part of an access's footprint that one (middle) value of a loop touches.

        mac[i, j, k] reads X[i, k] of 4 × 8: one i touches 1/4 of it, one j all of it.
        """
        date = self._kept(date)
        key = name, position, id(date)
        if key not in self._slices:
            low, high = self._range(name, date)
            middle = isl.PwAff.val_on_domain(
                isl.Set.universe(self.domains[name].get_space()), isl.Val((low + high) // 2)
            )
            here = self.domains[name].intersect(date.eq_set(middle))
            touched = self._count(here.apply(self._access(name, position).map))
            self._slices[key] = touched / max(1, self.footprint(name, position))
        return self._slices[key]

    def slice_box(self, name: str, position: int, dates: tuple[isl.PwAff, ...]) -> Box | None:
        """The box around what an access touches for one (middle) value of each of some loops; None for nothing."""
        dates = tuple(map(self._kept, dates))
        key = name, position, *map(id, dates)
        if key not in self._boxes:
            here = self.domains[name]
            for date in dates:
                low, high = self._range(name, date)
                here = here.intersect(date.eq_set(constant(here, (low + high) // 2)))
            self._boxes[key] = self._box(here.apply(self._access(name, position).map))
        return self._boxes[key]

    def extent(self, loop: Loop) -> int:
        """The number of values of a loop, at least 1."""
        ranges = [self._range(name, date) for name, date in loop.dates]
        return max(1, max(high for _, high in ranges) - min(low for low, _ in ranges) + 1)

    def box_of(self, name: str, dims: Iterable[int]) -> int:
        """The points of the box around a statement's instances along some of its dimensions."""
        ranges = (self._range(name, dimension(self.domains[name], d)) for d in dims)
        return prod(high - low + 1 for low, high in ranges)

    def profile(self, name: str, date: isl.PwAff) -> tuple[float, ...]:
        """The filled fraction of a box around all instances, at evenly spaced values of a loop; one number if equal.

        S[i, j] with j <= i: (0.0, 0.5, 1.0) along i, nearly; a box (1.0,)
        """
        date = self._kept(date)
        key = name, id(date)
        if key not in self._profiles:
            self._profiles[key] = self._counted_along(name, date)
        return self._profiles[key]

    def _counted_along(self, name: str, date: isl.PwAff) -> tuple[float, ...]:
        filled = self.filled(name)
        if filled == 1.0:
            return (1.0,)
        along = self._boxes_along(name, date)
        scale = filled * len(along) / sum(along)
        return tuple(scale * part for part in along) if max(along) > ALIKE * min(along) else (filled,)

    def filled(self, name: str) -> float:
        """The filled fraction of the box around a statement's instances, by boxes at each value of a dimension.

        Dimensions that no constraint relates are filled apart: padded windows 3 x 3 of 4 x 4 pixels, { [k, n, l, p] :
        0 <= k + n - 1 < 4 and 0 <= l + p - 1 < 4 }, have five sixths of their rows, and five sixths of their columns.
        """
        domain = self.domains[name]
        if id(domain) not in self._filled:
            if domain.is_empty() or domain.project_out(PARAM, 0, domain.dim(PARAM)).is_box():
                filled = 1.0
            else:
                filled = prod(self._filled_along(name, dims) for dims in independent(domain))
            self._filled[id(domain)] = domain, filled
        return self._filled[id(domain)][1]

    def _filled_along(self, name: str, dims: Iterable[int]) -> float:
        """The least filled fraction that boxes at the values of one of some dimensions show."""
        along = (self._boxes_along(name, dimension(self.domains[name], d)) for d in dims)
        return min(sum(parts) / len(parts) for parts in along)

    def _boxes_along(self, name: str, date: isl.PwAff) -> tuple[float, ...]:
        """Boxes around the instances at equally spaced values, as parts of a value's share of the box around all."""
        domain = self.domains[name]
        low, high = self._range(name, date)
        box = self._count(domain) / (high - low + 1)
        steps = min(SAMPLES, high - low + 1) - 1
        values = [low + (high - low) * step // max(1, steps) for step in range(steps + 1)]
        at = (domain.intersect(date.eq_set(constant(domain, value))) for value in values)
        return tuple(min(1.0, self._count(here) / box) for here in at)

    def parallel(self, loop: Loop) -> bool:
        """True if no dependence among the statements below lies between two values of the loop."""
        key = tuple(id(date) for _, date in loop.dates)
        if key not in self._parallel:
            # dates say which statements are below; they are kept, so that no others get their identities
            self._parallel[key] = loop.dates, not any(self.carries(loop, pair) for pair in self.among(loop))
        return self._parallel[key][1]

    def among(self, tree: Tree) -> tuple[Pairs, ...]:
        """The dependences among the statements of a tree."""
        return self.nest.pairs_in_order.among(tree.members)

    def carries(self, loop: Loop, pair: Pairs) -> bool:
        """True if a dependence lies between two values of a loop."""
        dates = dict(loop.dates)
        source, sink = dates[pair.source], dates[pair.sink]
        key = id(pair.map), id(source), id(sink)
        if key not in self._carried:
            kept = pair.map, source, sink
            self._carried[key] = kept, pair.differs(source, sink)
        return self._carried[key][1]

    def rows(self, name: str) -> tuple[int, int]:
        """The values of a statement's longest dimension along which vectors run: (into neighbours, into places apart).

        y[i, 2j] += x[i, k, j] of 4 × 8 × 16: (0, 8), as j is the only one along which both move within rows
        """
        if name not in self._rows:
            write, *reads = self.nest.statement(name).accesses
            found = [0, 0]
            for d in range(self.domains[name].dim(SET)):
                if all(stride(access, d) < 2 for access in (write, *reads)):
                    apart = step(write, d) > 1
                    low, high = self._range(name, dimension(self.domains[name], d))
                    found[apart] = max(found[apart], high - low + 1)
            self._rows[name] = found[0], found[1]
        return self._rows[name]

    def long_row(self, name: str) -> tuple[int, bool]:
        """The values of a statement that follow each other in memory, over several loops, and whether they are one sum.

        y[i, j, k] = x[i, j, k] of 4 × 8 × 16 has a row of 512; y[i] += x[i, j] of 4 × 8 has rows of 8, each one sum.
        """
        if name not in self._long_rows:
            self._long_rows[name] = self._merged_row(name)
        return self._long_rows[name]

    def _merged_row(self, name: str) -> tuple[int, bool]:
        s, first = self.nest.statement(name), self.rows(name)[0]
        dims = [d for d in range(self.domains[name].dim(SET)) if self.box_of(name, (d,)) > 1]
        moved = {d: [self.elements_between(access, d) for access in s.accesses] for d in dims}
        length = 1
        row = next((d for d in dims if set(moved[d]) <= {0, 1} and self.box_of(name, (d,)) == first), None)
        if row is None:
            return first, False
        one_sum = s.is_reduction and moved[row][0] == 0
        while row is not None:
            length *= self.box_of(name, (row,))
            wanted = (
                [by * self.box_of(name, (row,)) for by in moved[row]] if self.filled(name) == 1.0 else None
            )
            dims.remove(row)
            row = next((d for d in dims if moved[d] == wanted), None)
        return length, one_sum

    def elements_between(self, access: Access, dim: int) -> int:
        """The elements in memory between what an access touches at neighbouring values of a dimension."""
        subscripts, between, apart = access.subscripts(), 0, 1
        for d in reversed(range(subscripts.dim(OUT))):
            by = (piece.get_coefficient_val(IN, dim) for _, piece in subscripts.get_pw_aff(d).get_pieces())
            between += apart * max((int(value.to_python()) for value in by if value.is_int()), default=0)
            size = self.nest.tensor(access.tensor).shape[d]
            apart *= self.size(size) if isinstance(size, str) else size
        return between

    def cumulates(self, name: str) -> bool:
        """True if a statement reads what it wrote to the place before along memory: y[i, j] = y[i, j - 1] + x[i, j]."""
        s = self.nest.statement(name)
        return not s.is_reduction and any(
            a.tensor == s.write.tensor and name in self.sources(name, position) and _is_beside(a, s.write)
            for position, a in enumerate(s.accesses)
            if position
        )

    def named_rows(self, name: str) -> int:
        """The rows that a statement reads at places which data name."""
        found = 0
        for position, access in enumerate(self.nest.statement(name).accesses):
            tensor = self.nest.tensor(access.tensor)
            if tensor.gather is not None and tensor.rank > 1:
                last = tensor.shape[-1]
                length = self.size(last) if isinstance(last, str) else last
                found += self.footprint(name, position) // max(1, length)
        return found

    def _kept(self, date: isl.PwAff) -> isl.PwAff:
        """The first of all equal functions that was asked about: trees that are tried have loops of their own."""
        same = self._dates.setdefault(hash(date), [])
        known = next((each for each in same if each is date or each.plain_is_equal(date)), None)
        if known is None:
            same.append(date)
        return date if known is None else known

    def _count(self, points: isl.Set) -> int:
        """The volume of the box around a set of known size."""
        return volume(self._box(points))

    def _box(self, points: isl.Set) -> Box | None:
        """The box around a set, found once for all that are equal but for names."""
        bare = points.reset_tuple_id()
        same = self._around.setdefault(hash(bare), [])
        for known, box in same:
            if known.plain_is_equal(bare):
                return box
        same.append((bare, bounding_box(bare)))
        return same[-1][1]

    def _range(self, name: str, date: isl.PwAff) -> tuple[int, int]:
        date = self._kept(date)
        key = name, id(date)
        if key not in self._extents:
            if self.domains[name].is_empty():
                return 0, 0
            low, high = least_and_most(date, self.domains[name])
            self._extents[key] = int(low.to_python()), int(high.to_python())
        return self._extents[key]

    def _access(self, name: str, position: int) -> Access:
        return self.nest.statement(name).accesses[position]


def independent(domain: isl.Set) -> tuple[frozenset[int], ...]:
    """The dimensions of a set in groups: a constraint of it relates only dimensions of one group.

    >>> independent(isl.Set("{ [i, j, k, l] : 0 <= i, k < 4 and 0 <= j <= i and 0 <= l < 2 }"))
    (frozenset({0, 1}), frozenset({2}), frozenset({3}))

    Of a union, and where a constraint has a modulus, all are one group.
    """
    pieces = domain.coalesce().get_basic_sets()
    if len(pieces) != 1 or pieces[0].dim(isl.dim_type.div):
        return (frozenset(range(domain.dim(SET))),)
    groups = [frozenset({d}) for d in range(domain.dim(SET))]
    for constraint in pieces[0].get_constraints():
        met = [group for group in groups if any(constraint.involves_dims(SET, d, 1) for d in group)]
        groups = [group for group in groups if group not in met] + [frozenset().union(*met)] * bool(met)
    return tuple(sorted(groups, key=min))


def _is_beside(access: Access, other: Access) -> bool:
    """True if two accesses of a tensor differ in their last subscript alone: y[i, j - 1] and y[i, j]."""
    one, two = access.subscripts(), other.subscripts()
    last = one.dim(OUT) - 1
    return last >= 0 and all(one.get_pw_aff(d).is_equal(two.get_pw_aff(d)) for d in range(last))


def dims_of(date: isl.PwAff) -> frozenset[int]:
    """The dimensions of its statement that a loop's value depends on."""
    return frozenset(d for d in range(date.dim(IN)) if date.involves_dims(IN, d, 1))


def stride(access: Access, dim: int) -> int:
    """The stride class of an access along a dimension: 0 does not move, 1 moves by one element, 2 moves further.

    Y[i, j] has strides 2 in i, 1 in j, 0 in k.
    """
    subscripts = access.subscripts()
    rank = subscripts.dim(OUT)
    moved = [d for d in range(rank) if subscripts.get_pw_aff(d).involves_dims(IN, dim, 1)]
    return 0 if not moved else 1 if moved == [rank - 1] else 2


def step(access: Access, dim: int) -> int:
    """The elements along its last dimension by which an access moves along a dimension of its statement.

    Y[i, 2j + 1] moves by 2 in j, by 0 in i.
    """
    subscripts = access.subscripts()
    if not subscripts.dim(OUT):
        return 0
    pieces = subscripts.get_pw_aff(subscripts.dim(OUT) - 1).get_pieces()
    by = (piece.get_coefficient_val(IN, dim) for _, piece in pieces)
    return max((abs(int(value.to_python())) for value in by if value.is_int()), default=0)
