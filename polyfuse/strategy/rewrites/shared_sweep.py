"""Read a matrix once for two statements: one that sums along its rows, and one that sums across them.

    for i: for j: t[i] += A[i, j] * x[j];   for j: for i: y[j] += A[i, j] * t[i]
    ->  for i (a share of the rows a core): for i_in (of 4): {
          for j: for r: t[r] += A[r, j] * x[j];   for j: for r: y_parts[i, j] += A[r, j] * t[r] }
        for i: for j: y[j] += y_parts[i, j]

Alone, sums across rows run column by column, over which cores and vectors are spread, and the search, which makes no
other values than the nest has, leaves them in a kernel that shares no loop with sums along rows: a matrix that no cache
near a core holds comes from far away twice. Row by row both can run, if each core adds its rows to sums of its own,
which are added up in the end (split_reduction.py). For a fixed number of cores the results are the same in each call.

In turns on a Zen 5, atax of 1900 x 2100 float32 (NumPy 503 and 252 µs): 546 µs in two kernels on one core, 347 in one;
on two cores 321 and 179.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.tree import Sequence, statements
from polyfuse.machine import CpuMachine, Machine
from polyfuse.rewrite.reductions.split_reduction import split_reduction, why_not_split_reduction
from polyfuse.schedule import Schedule
from polyfuse.schedule.rewriting import distributed
from polyfuse.sets import OUT, dimension_of
from polyfuse.strategy.claims import Claims
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.cpu_loops import Estimator, usable
from polyfuse.strategy.cost.roofline import CACHED
from polyfuse.strategy.cpu.row_sweep import RowPass, Rows, row_by_row
from polyfuse.strategy.driver import Candidate, Start
from polyfuse.strategy.fusion.group_search import early_statements, inits_of, part_with
from polyfuse.strategy.options import PlannerOptions
from polyfuse.strategy.passes.backtrack import compared
from polyfuse.strategy.plan import Plan
from polyfuse.strategy.remarks import Reason, Remark, refused

PASS = "shared sweep"

ROWS_AHEAD = PlannerOptions(rows_ahead=True)
"""With L1 the model expects four rows of 8 KiB at a time to take longer than one (847 and 782 µs), since they do not
stay there until they are read again: they take 295 and 361 (best turns)."""

HEIGHTS = (4, 2, 1)
"""Rows at a time: what they add to, or multiply with, is loaded once for all of them."""


@dataclass(frozen=True)
class ReadOnce:
    """A nest with kernels to be made that read a matrix once, a sentence on each, and why others are not made."""

    nest: Nest
    passes: tuple[RowPass, ...] = ()
    said: tuple[str, ...] = ()
    refused: tuple[Remark, ...] = ()


def candidates(start: Start) -> Iterator[Candidate | Remark]:
    """The nest with kernels that read a matrix once, and why others do not."""
    made = read_once(start.nest, start.model_machine)
    yield from made.refused
    if made.passes:
        claims = Claims(made.nest, passes=made.passes)
        yield Candidate(replace(start, nest=made.nest, claims=claims), made.said)


def seconds_of_calls_with_rows_ahead(usual: Plan, other: Plan) -> tuple[float, float]:
    """The seconds of two plans if rows are prefetched from the second cache."""
    every = frozenset(s.name for plan in (usual, other) for s in plan.schedule.nest.statements)
    machine = usual.machine
    assert isinstance(machine, CpuMachine), "only a CPU reads a matrix once"
    return compared(usual, other, every, ROWS_AHEAD.on(machine))


def read_once(nest: Nest, machine: Machine) -> ReadOnce:
    """The nest with such matrices read once, if that is legal and caches near the cores do not hold them."""
    done, taken = ReadOnce(nest), set[str]()
    if nest.params or not isinstance(machine, CpuMachine):
        return done
    near = machine.units * usable(machine, machine.levels[CACHED])
    counts = Counts(nest)
    for pair in pairs_of(nest):
        names = {pair.along.name, pair.across.name}
        if counts.tensor_bytes(pair.matrix) <= near or names & taken:
            continue
        try:
            made, one = _cheapest(done.nest, pair, machine)
        except (IllegalSchedule, InvalidSchedule) as why:
            line = f"{pair.along.name} and {pair.across.name} read {pair.matrix} each on its own: {why}"
            left = refused(PASS, (pair.along.name, pair.across.name), Reason.ILLEGAL, line)
            done = replace(done, refused=(*done.refused, left))
            continue
        said = (
            f"{pair.along.name} and {pair.across.name} read {pair.matrix} once, {one.height} rows at a time"
        )
        taken |= names | one.names
        done = replace(done, nest=made, passes=(*done.passes, one), said=(*done.said, said))
    return done


# -- which sums --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """A sum along rows and one across them, of the same matrix."""

    matrix: str
    along: Rows
    across: Rows


def pairs_of(nest: Nest) -> Iterator[Pair]:
    """The sums along rows and across rows of one matrix, of those that run in each call."""
    sums = [s for s in nest.statements if s.is_reduction and len(s.dims) == 2]
    found = [(s, *one) for s in sums for one in _sums(nest, s)]
    pairs = [
        Pair(matrix, _rows(along, rows), _rows(across, columns))
        for across, matrix, columns, kept in found
        for along, other, rows, own in found
        if matrix == other and (own, kept) == (0, 1) and along is not across
    ]
    early = early_statements(nest, nest.order) if pairs else frozenset[str]()
    yield from (pair for pair in pairs if early.isdisjoint((pair.along.name, pair.across.name)))


def _rows(s: Statement, dims: tuple[int, ...]) -> Rows:
    return Rows(s.name, s.dims[dims[0]], s.dims[dims[1]])


def _sums(nest: Nest, s: Statement) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """The matrices that a statement sums to a vector: their axes' dimensions, and the axis that the vector has."""
    kept = _dims(nest, s, s.write)
    if kept is None or len(kept) != 1:
        return
    for access in s.reads:
        read = _dims(nest, s, access)
        if read is not None and sorted(read) == [0, 1]:
            yield access.tensor, read, read.index(kept[0])


def _dims(nest: Nest, s: Statement, access: Access) -> tuple[int, ...] | None:
    """The dimension that each subscript is, A[j, i] of S[i, j]: (1, 0); None if one is something else."""
    subscripts, domain = access.subscripts(), nest.domains[s.name]
    found = []
    for axis in range(access.map.dim(OUT)):
        dim = dimension_of(subscripts.get_pw_aff(axis), domain)
        if dim is None:
            return None
        found.append(dim)
    return tuple(found)


# -- what goes into a pass ---------------------------------------------------------------------------------------------


def _cheapest(nest: Nest, pair: Pair, machine: CpuMachine) -> tuple[Nest, RowPass]:
    """The nest for a pass, and the pass with the rows at a time that the model expects to take least."""
    nest, one = row_pass(nest, pair, machine)
    estimator = Estimator(Counts(nest), ROWS_AHEAD.on(machine))

    def seconds(height: int) -> float:
        schedule = row_by_row(Schedule(nest), replace(one, height=height))
        return round(estimator.of(part_with(schedule, pair.along.name)).total, 12)

    return nest, replace(one, height=min(HEIGHTS, key=seconds))


def row_pass(nest: Nest, pair: Pair, machine: CpuMachine) -> tuple[Nest, RowPass]:
    """The nest with both sums ready to share their rows, those across rows in a part for each core; and the pass.

    Raises IllegalSchedule or InvalidSchedule if their loops do not come apart.
    """
    beside, across = _beside(nest, pair), pair.across
    nest = _apart(nest, (*beside, pair.along.name, across.name))
    order = statements(nest.order)
    rows = [*(Rows(name, nest.statement(name).dims[0]) for name in beside), pair.along, across]
    rows.sort(key=lambda one: order.index(one.name))
    if machine.units == 1:
        return nest, RowPass(tuple(rows), HEIGHTS[0])
    share = _share(nest, across, machine)
    why = why_not_split_reduction(nest, across.name, across.row, size=share)
    if why is not None:
        raise InvalidSchedule(str(why))
    split = split_reduction(nest, across.name, across.row, size=share)
    rows[rows.index(across)] = replace(across, name=split.partial)
    first = next(init for init, of in inits_of(split.nest).items() if of == split.partial)
    return split.nest, RowPass(tuple(rows), HEIGHTS[0], share, split.partial, first)


def _share(nest: Nest, rows: Rows, machine: CpuMachine) -> int:
    """Rows of a core: about equally many each, and whole tiles of them."""
    row = nest.statement(rows.name).dims.index(rows.row)
    count = int(nest.domains[rows.name].dim_max_val(row).to_python()) + 1
    return -(-count // (machine.units * HEIGHTS[0])) * HEIGHTS[0]


def _beside(nest: Nest, pair: Pair) -> tuple[str, ...]:
    """The statements that run row by row with the two: first values of the sums along rows, and those in between.

    Raises InvalidSchedule if that does not run once a row.
    """
    along, across = pair.along.name, pair.across.name
    flow = {(p.source, p.sink) for p in nest.dependences().pairs if p.kind == "flow" and p.source != p.sink}
    target = nest.statement(along).write.tensor
    firsts = {a for a, b in flow if b == along and nest.statement(a).write.tensor == target}
    between = _reached(flow, along) & _reached({(b, a) for a, b in flow}, across)
    found = [s for s in nest.statements if s.name in (firsts | between) - {along, across}]
    for s in found:
        if len(s.dims) != 1:
            raise InvalidSchedule(f"{s.name}, which comes between, does not run once a row")
    return tuple(s.name for s in found)


def _reached(flow: set[tuple[str, str]], start: str) -> set[str]:
    """The statements that a value goes into, over others too."""
    found, new = set[str](), {start}
    while new:
        new = {b for a, b in flow if a in new} - found
        found |= new
    return found


def _apart(nest: Nest, names: tuple[str, ...]) -> Nest:
    """The nest with these statements in loops of their own. Raises IllegalSchedule if one waits for another."""
    schedule = Schedule(nest)
    for name in names:
        while mixed := [loop for loop in schedule.loops(name) if isinstance(loop.body, Sequence)]:
            schedule = schedule.distribute(name, mixed[-1].name)
    loops = ((str(step.args[0]), str(step.args[1])) for step in schedule.steps)
    return distributed(nest, *loops) if schedule.steps else nest
