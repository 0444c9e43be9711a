"""Price any schedule tree on a CPU: loops with dependences, triangles, tiles, pipelines.

    seconds = regions + max(compute, memory) + exposed × min(compute, memory)
    memory  = for each level: the bytes that come from it, and from none beyond, at its rate

A part of the tree whose data fit into a cache brings them in once; a larger one brings in what its parts do, each time.
All is counted at one iteration in the middle of each loop: half of a triangle's row, a full tile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, prod
from typing import TypeVar

import islpy as isl

from polyfuse.analysis.bands import is_parallel, open_at
from polyfuse.analysis.legality import differing
from polyfuse.ir import Access
from polyfuse.ir.dependences import Pairs
from polyfuse.ir.tree import (
    ON_CORES,
    SHARED,
    Leaf,
    Loop,
    Sequence,
    Tree,
    date_map,
    loops,
    loops_around,
    parts,
    statements,
)
from polyfuse.machine import CpuMachine, Level
from polyfuse.schedule.binding import extent
from polyfuse.sets import IN, OUT, PARAM, SET, least_and_most
from polyfuse.strategy.cost.counts import Counts, dims_of, stride
from polyfuse.strategy.cost.kernel_model import LINE
from polyfuse.strategy.cost.load_balance import cores_at_work
from polyfuse.strategy.cost.op_latency import effort
from polyfuse.strategy.cost.roofline import CPU_EXPOSED, REGION_AGAIN, WAIT_SECONDS, KernelCost, Tiling

Relation = TypeVar("Relation", isl.Set, isl.Map)

LOOP_SECONDS = 4e-9
"""The seconds of entering an innermost loop: bounds, overlap check of arrays, first and last partial vector."""

FIRST, CACHE = 0.75, 0.5
"""The part of L1, and of another cache, that a loop can count on: the rest is other data, other programs', and lines
not chosen well. jacobi-2d of 1300 × 1300 (27 MB) ran at the rate of DRAM beside an L3 of 32 MB (two Zen 5 cores);
jacobi-1d of 2000 values (32 KB) at the rate of L1 beside one of 48 KB (one core of a Xeon)."""

FEW = 8
"""Values of a loop inside an innermost one that LLVM writes out."""

ROW_READS = 3
"""Elements along a row that a statement reads at least, for its rows to run in whole vectors along lines of cache."""

CHAINED = 4.0
"""The latency of a scalar operation that depends on the previous one, as a multiple of its throughput."""


def usable(machine: CpuMachine, level: Level) -> float:
    """The bytes of a level that a loop can count on."""
    return level.size * (FIRST if level is machine.levels[0] else CACHE)


def holding(machine: CpuMachine, size: float) -> Level:
    """The smallest level that is sure to hold `size` bytes; the last one if none is."""
    return next((level for level in machine.levels if size <= usable(machine, level)), machine.levels[-1])


@dataclass(frozen=True)
class Estimate:
    """Seconds of one kernel, and what they go to; `traffic` are bytes that come into the last cache."""

    compute: float
    memory: float
    traffic: float
    overhead: float
    units: float

    @property
    def total(self) -> float:
        """Seconds in all."""
        longer, shorter = max(self.compute, self.memory), min(self.compute, self.memory)
        return self.overhead + longer + CPU_EXPOSED * shorter


@dataclass(frozen=True)
class Chain:
    """A statement in the middle of its loops: values per loop, bytes by tensor with the outer loops fixed."""

    extents: tuple[int, ...]
    touched: tuple[Mapping[str, int], ...]


class Estimator:
    """Prices trees of one nest; what is known of a statement under the same loops is asked of isl once."""

    def __init__(self, counts: Counts, machine: CpuMachine) -> None:
        self.counts, self.machine = counts, machine
        order = counts.nest.order
        self._order = {name: loops_around(order, name) for name in statements(order)}
        self._chains: dict[tuple[object, ...], tuple[tuple[isl.PwAff, ...], Chain]] = {}
        self._subscripts: dict[str, list[tuple[Access, list[tuple[str, isl.PwAff]]]]] = {}
        self._whole: dict[str, Mapping[str, int]] = {}

    def of(self, tree: Tree) -> Estimate:
        """The price of one kernel."""
        run = Run(self, tree, *self.chains(tree))
        compute = run.compute(tree, 0, 1.0)
        return Estimate(compute, *self.moving(run, tree), run.overhead(), run.most)

    def moving(self, run: Run, tree: Tree) -> tuple[float, float]:
        """Seconds in which a kernel's data come to its cores, and bytes that come into the last cache.

        What comes into a cache from beyond the next one is brought at the rate of where it comes from alone, as the
        bandwidth of a level is measured: sums of 64 MB at a memory's, which passes L3 and L2.
        """
        filled = max(map(run.filled, statements(tree)))
        origin = self.machine.level(self.counts.total_bytes)
        caches = [level for level in self.machine.levels[:-1] if level.size < origin.size or origin.missing]
        sources = [*self.machine.levels[1 : len(caches)], origin][: len(caches)]
        flows = [run.traffic(tree, 0, usable(self.machine, level), 1.0) for level in caches]
        seconds, traffic = 0.0, 0.0
        for flow, source, further in zip(flows, sources, [*flows, []][1:], strict=True):
            traffic = sum(moved for moved, _ in flow)
            here = max(0.0, 1 - sum(moved for moved, _ in further) / max(1.0, traffic))
            seconds += sum(
                here * moved * filled / self.machine.bandwidth(source, units) for moved, units in flow
            )
        return seconds, traffic

    def waits(self, tree: Tree) -> bool:
        """True if a statement of a kernel waits along its loops, as `Run.waits` says."""
        return Run(self, tree, *self.chains(tree)).waits(tree)

    def chains(self, tree: Tree) -> tuple[dict[str, Chain], dict[str, int]]:
        """Each statement in the middle of its loops, and its instances there in the order as written."""
        chains = {name: self._chain(name, loops_around(tree, name)) for name in statements(tree)}
        return chains, {name: prod(self._chain(name, self._order[name]).extents) for name in chains}

    def _chain(self, name: str, around: tuple[Loop, ...]) -> Chain:
        dates = tuple(loop.date(name) for loop in around)
        key = (name, *map(id, dates))
        if key not in self._chains:
            self._chains[key] = dates, self._counted(name, dates)
        return self._chains[key][1]

    def _counted(self, name: str, dates: tuple[isl.PwAff, ...]) -> Chain:
        domain = _without_sizes(self.counts.domains[name])
        when = _without_sizes(date_map(self.counts.domains[name], list(dates)))
        values, extents = when.range(), []
        if name not in self._whole:  # whatever the loops are
            self._whole[name] = self._touched(name, domain)
        touched = [self._whole[name]]
        for d in range(len(dates)):
            if values.is_empty():
                extents.append(0)
                touched.append({})
                continue
            low, high = _int(values.dim_min_val(d)), _int(values.dim_max_val(d))
            extents.append(high - low + 1)
            values = _middle(values, d, low, high).detect_equalities()
            domain = domain.intersect(when.intersect_range(values).domain()).detect_equalities()
            touched.append(self._touched(name, domain))
        return Chain(tuple(extents), tuple(touched))

    def _touched(self, name: str, domain: isl.Set) -> dict[str, int]:
        """Bytes of each tensor that some instances touch, in whole lines of cache."""
        if domain.is_empty():
            return {}
        widths: dict[str, int] = {}
        found: dict[str, int] = {}
        for access, forms in self._forms(name):
            for text, form in forms:
                if text not in widths:
                    low, high = map(_int, least_and_most(form, domain))
                    widths[text] = high - low + 1
            sides = [widths[text] for text, _ in forms]
            size = self.counts.nest.tensor(access.tensor).itemsize
            row = -(-(sides[-1] if sides else 1) * size // LINE) * LINE
            touched = prod(sides[:-1]) * row
            if len(sides) > domain.dim(SET):  # a diagonal is less than the box around it
                touched = min(touched, LINE * _box(domain, 0))
            found[access.tensor] = max(found.get(access.tensor, 0), touched)
        return found

    def _forms(self, name: str) -> list[tuple[Access, list[tuple[str, isl.PwAff]]]]:
        """Each access's subscripts less the numbers in them, by what they look like: A[i + 1, j] has those of A[i, j].

        A tensor has many accesses in a stencil, and isl is asked for the least and the largest of each subscript once.
        """
        if name not in self._subscripts:
            found = []
            for access in self.counts.nest.statement(name).accesses:
                at = isl.PwMultiAff.from_map(_without_sizes(access.map.intersect_params(self.counts.nominal)))
                forms = [_without_constant(at.get_pw_aff(d)) for d in range(at.dim(OUT))]
                found.append((access, [(str(form), form) for form in forms]))
            self._subscripts[name] = found
        return self._subscripts[name]


class Run:
    """One tree being priced."""

    def __init__(
        self, estimator: Estimator, tree: Tree, chains: Mapping[str, Chain], written: Mapping[str, int]
    ) -> None:
        self.tree, self.written = tree, written
        self.waiting: dict[int, frozenset[str]] = {}
        self.counts, self.machine, self.chains = estimator.counts, estimator.machine, chains
        self.most = 1.0
        self.kernels = parts(tree)

    def overhead(self) -> float:
        """Seconds to start the kernel, its parallel regions, and to wait in its pipelines."""
        regions = self.regions(self.tree, 0)
        handed = any(loop.bind == "dynamic" for loop in loops(self.tree))
        again = REGION_AGAIN if handed else WAIT_SECONDS
        extra = self.machine.region_seconds + again * (regions - 1) if regions else 0.0
        extra += self.turns(self.tree, 0, 1.0) * WAIT_SECONDS
        return self.machine.launch_seconds + extra

    def extent(self, tree: Tree, depth: int) -> int:
        """The values of the loop at a depth, in the middle of those around it, that run a part of what is in it.

        for k: { R at k < i; S at k = i }: one for S
        """
        return max(self.chains[name].extents[depth] for name in statements(tree))

    def compute(self, tree: Tree, depth: int, units: float) -> float:
        """Seconds of arithmetic, loads and stores."""
        if isinstance(tree, Sequence):
            return sum(self.compute(child, depth, units) for child in tree.children)
        if isinstance(tree, Leaf):
            return self.instance(tree.statement, None) / units
        count = self.extent(tree, depth)
        units = self.spread(tree, count, units)
        if all(isinstance(part, Leaf) or self.unrolled(part, depth + 1) for part in parts(tree.body)):
            inner = sum(
                prod(self.chains[name].extents[depth:]) * self.instance(name, tree)
                for name in statements(tree)
            )
            entering = (name for name in statements(tree) if not self.abreast(name, tree))
            entered = max((self.filled(name) for name in entering), default=0.0)
            return (LOOP_SECONDS * entered + inner) / units
        inside = ((self.extent(part, depth), part) for part in parts(tree.body))
        return sum(count * self.compute(part, depth + 1, units) for count, part in inside)

    def unrolled(self, tree: Tree, depth: int) -> bool:
        """True if a part is a loop of few values around statements, which LLVM writes out inside the loop around it."""
        if not isinstance(tree, Loop) or not all(isinstance(part, Leaf) for part in parts(tree.body)):
            return False
        return extent(self.counts.nest, tree) is not None and self.extent(tree, depth) <= FEW

    def spread(self, loop: Loop, count: int, units: float) -> float:
        """The number of units that work inside a loop."""
        if loop.bind in ON_CORES:
            units = max(1, count) / (ceil(max(1, count) / self.machine.units) + self.lag(loop))
            # inside other loops its values are those in the middle of these, not all that it has
            if loop.bind in SHARED and any(loop is one for one in self.kernels):
                units = min(units, cores_at_work(self.counts, loop, self.machine.units))
            self.most = max(self.most, units)
        return units

    def turns(self, tree: Tree, depth: int, times: float) -> float:
        """The number of times that each core of a pipeline waits for another one."""
        if isinstance(tree, Sequence):
            return sum(self.turns(child, depth, times) for child in tree.children)
        if isinstance(tree, Leaf):
            return 0.0
        times *= self.extent(tree, depth)
        if tree.bind == "pipeline" and isinstance(tree.body, Loop):
            return times * self.extent(tree.body, depth + 1) / self.machine.units
        return self.turns(tree.body, depth + 1, times)

    def lag(self, loop: Loop) -> float:
        """The fill time of a pipeline: the last core's first wait, as a fraction of one value's time.

        Each begins two values of the inner loop behind the one before: skewed tiles wait for their neighbour too.
        """
        if loop.bind != "pipeline" or not isinstance(loop.body, Loop):
            return 0.0
        depth = len(loops_around(self.tree, loop.names[0])) - len(loops_around(loop.body, loop.names[0]))
        return 2 * (self.machine.units - 1) / max(1, self.extent(loop.body, depth))

    def instance(self, name: str, inner: Loop | None) -> float:
        """Seconds of one instance: on vector lanes if the innermost loop is parallel and walks along memory."""
        statement = self.counts.nest.statement(name)
        itemsize = max(self.counts.nest.tensor(a.tensor).itemsize for a in statement.accesses)
        work = (
            effort(statement.body, itemsize, self.machine.functions)
            + statement.is_reduction
            + self.moved(name, inner)
        )
        seconds = work / self.machine.in_loops(itemsize, 1.0) * self.filled(name)
        lanes = self.machine.vector_bytes / itemsize
        if inner is None:
            return seconds * lanes
        if name in self.chained(inner):
            return seconds * lanes * CHAINED
        near = self.near(name, inner)
        if near and self.in_rows(name, inner):
            longer = max(effort(statement.body, itemsize, self.machine.functions), self.moved(name, inner))
            return 2 * longer / self.machine.peak(itemsize, 1.0) * self.filled(name)
        if self.abreast(name, inner):
            far = sum(any(stride(a, d) > 1 for d in dims_of(inner.date(name))) for a in statement.accesses)
            apart = far * self.machine.row.apart * self.machine.cycle * self.filled(name)
            return seconds * max(0.0, 1 - far / work) + apart
        return seconds if near else seconds * lanes

    def in_rows(self, name: str, inner: Loop) -> bool:
        """True if a statement's rows run in whole vectors along lines of cache (row_operation.py).

        There, two loads and two operations start each cycle, side by side: heat-3d of 118 numbers in L1, 15 operations
        and 8 accesses, took 0.31 ns an element, where this is 0.36 (one core of a Xeon, vectors of 64 bytes).
        """
        statement = self.counts.nest.statement(name)
        dims = dims_of(inner.date(name))
        along = [a for a in statement.reads if any(stride(a, d) == 1 for d in dims)]
        return isinstance(inner.body, Leaf) and not statement.is_reduction and len(along) >= ROW_READS

    def moved(self, name: str, inner: Loop | None) -> float:
        """Loads and stores of one instance; what stays in place along unrolled loops inside is moved once for all."""
        statement = self.counts.nest.statement(name)
        if inner is None:
            return len(statement.accesses)
        few = loops_around(inner.body, name)
        total = 0.0
        for access in statement.accesses:
            still = (loop for loop in few if all(stride(access, d) == 0 for d in dims_of(loop.date(name))))
            total += 1 / prod(extent(self.counts.nest, loop) or 1 for loop in still)
        return total

    def filled(self, name: str) -> float:
        """Instances that there are for each that the middle has: tiles at a domain's border are not full, and where the
        middle is at a border, the others are fuller.
        """
        counted = prod(self.chains[name].extents)
        return self.written[name] / counted if counted else 1.0

    def chained(self, inner: Loop) -> frozenset[str]:
        """The statements of a loop that wait for an earlier iteration of it; sums need not wait.

        Nor do those that need or make what one iteration alone has: the printer takes that one apart.
        """
        if id(inner) not in self.waiting:
            pairs = [p for p in open_at(self.counts.nest, self.tree, inner) if p.kind != "reduction"]
            found = (p for p in pairs if not is_parallel(inner, (p,)) and not _by_one_value(p, inner))
            self.waiting[id(inner)] = frozenset(name for p in found for name in (p.source, p.sink))
        return self.waiting[id(inner)]

    def abreast(self, name: str, inner: Loop) -> bool:
        """True if rows that lie apart run side by side along a loop, as their steps, in the loop around, wait."""
        around = loops_around(self.tree, name)
        outer = around[-2] if len(around) > 1 and around[-1] is inner else None
        if outer is None or self.counts.nest.statement(name).is_reduction or self.near(name, inner):
            return False
        few = self.chains[name].extents[len(around) - 1] <= FEW
        return not few and name in self.chained(outer) and name not in self.chained(inner)

    def near(self, name: str, inner: Loop) -> bool:
        """True if what a statement accesses lies side by side, or in one place, along a loop."""
        accesses, dims = self.counts.nest.statement(name).accesses, dims_of(inner.date(name))
        return all(stride(a, d) < 2 for a in accesses for d in dims)

    def waits(self, tree: Tree) -> bool:
        """True if a statement waits along its innermost loop, or rows of it do side by side; running sums do not."""
        return any(
            (not self.counts.parallel(inner) and name in self.chained(inner)) or self.abreast(name, inner)
            for name in statements(tree)
            for inner in loops_around(tree, name)[-1:]
            if not self.counts.cumulates(name)
        )

    def traffic(self, tree: Tree, depth: int, size: float, units: float) -> list[tuple[float, float]]:
        """(bytes that come into a cache of this size, units that draw them), part by part."""
        held = self.held(tree, depth)
        total = float(sum(held.values()))
        if total <= size or isinstance(tree, Leaf):
            return [(total, units)]
        if isinstance(tree, Sequence):
            return [moved for child in tree.children for moved in self.traffic(child, depth, size, units)]
        count = self.extent(tree, depth)
        units = self.spread(tree, count, units)
        once = self.held(tree.body, depth + 1)
        if sum(once.values()) <= size or not _has_loops(tree.body):
            # the next iteration finds what this one left: a tensor comes in at most once
            return [(float(sum(min(count * once.get(t, 0), b) for t, b in held.items())), units)]
        return [
            (moved * self.extent(part, depth), drawn)
            for part in parts(tree.body)
            for moved, drawn in self.traffic(part, depth + 1, size, units)
        ]

    def held(self, tree: Tree, depth: int) -> dict[str, int]:
        """The bytes of each tensor that a part touches."""
        every: dict[str, int] = {}
        for name in statements(tree):
            for tensor, size in self.chains[name].touched[depth].items():
                every[tensor] = max(every.get(tensor, 0), size)
        return every

    def regions(self, tree: Tree, depth: int) -> int:
        """The number of times that a parallel loop starts."""
        if isinstance(tree, Leaf):
            return 0
        if isinstance(tree, Sequence):
            return sum(self.regions(child, depth) for child in tree.children)
        if tree.bind in ON_CORES:
            return 1
        inside = self.regions(tree.body, depth + 1)
        return inside * self.extent(tree, depth) if inside else 0


def _by_one_value(pair: Pairs, loop: Loop) -> bool:
    """True if, in one iteration of the loops around, one value of a loop alone is a source of pairs, or one a sink.

    p[i, j] = p[i, k] + p[k, j]: all j > k wait for j = k.
    """
    dims = dims_of(loop.date(pair.source))
    if pair.source != pair.sink or len(dims) != 1:
        return False
    (along,) = dims
    apart = differing(pair.map, loop.date(pair.source), loop.date(pair.sink))
    return any(_has_one_value(ends, along) for ends in (apart.domain(), apart.range()))


def _has_one_value(values: isl.Set, along: int) -> bool:
    """True if no two points of a set differ in one dimension alone."""
    others = isl.Map.universe(values.get_space().map_from_set())
    for d in range(values.dim(SET)):
        others = others.order_lt(IN, d, OUT, d) if d == along else others.equate(IN, d, OUT, d)
    return bool(others.intersect_domain(values).intersect_range(values).is_empty())


def _has_loops(tree: Tree) -> bool:
    return any(
        isinstance(part, Loop) or _has_loops(part) for part in parts(tree) if not isinstance(part, Leaf)
    )


def _without_sizes(relation: Relation) -> Relation:
    """A set or map at the nominal sizes as one of numbers alone."""
    return relation.project_out(PARAM, 0, relation.dim(PARAM))


def _without_constant(form: isl.PwAff) -> isl.PwAff:
    """i + 1  ->  i; several pieces as they are, as the numbers in them may differ."""
    pieces = form.get_pieces()
    return isl.PwAff.from_aff(pieces[0][1].set_constant_val(isl.Val(0))) if len(pieces) == 1 else form


def _middle(values: isl.Set, d: int, low: int, high: int) -> isl.Set:
    """The values of the loops further in, in the middle of loop d; of two, where there are more of them.

    Tiles of 256 along k, for 497 <= k < 631: 15 values in the first, 119 in the second.
    """
    if high == low + 1:
        both = [values.fix_val(SET, d, isl.Val(value)) for value in (low, high)]
        return max(both, key=lambda part: _box(part, d + 1))
    middle = values.fix_val(SET, d, isl.Val((low + high) // 2))
    return middle if not middle.is_empty() else values.fix_val(SET, d, isl.Val(low))


def _box(values: isl.Set, first: int) -> int:
    """The number of points in a box around a set, over its dimensions from one on; 0 for an empty set."""
    if values.is_empty():
        return 0
    values = values.detect_equalities()
    inner = range(first, values.dim(SET))
    return prod(_int(values.dim_max_val(d)) - _int(values.dim_min_val(d)) + 1 for d in inner)


def _int(value: isl.Val) -> int:
    # to_python prints the number, which isl does not do any more once its operations are used up
    return int(value.get_num_si())


def cost_from(counts: Counts, part: Tree, estimate: Estimate, machine: CpuMachine) -> KernelCost:
    """An estimate as the cost of a kernel."""
    flops = sum(counts.operations(name) for name in statements(part))
    touched = {t for name in statements(part) for t in counts.nest.statement(name).tensors}
    compulsory = sum(counts.tensor_bytes(t) for t in touched)
    again = max(0, int(estimate.traffic) - compulsory)
    return KernelCost(
        Tiling((), ()),
        flops,
        compulsory,
        again,
        1,
        estimate.units / machine.units,
        estimate.compute,
        estimate.memory,
        estimate.overhead,
        CPU_EXPOSED,
    )
