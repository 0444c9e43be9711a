"""Split long reductions to few results in two passes: parallel partial results, and then their reduction.

    cpu:   consecutive values for each part, few enough that several reductions of one input find them in L1
    cuda:  along rows of memory consecutive values, a part for each block of threads, which share it (lanes.py);
           across them neighbouring parts read neighbouring values, a part for each thread the machine holds

A reduction to fewer results than there are cores (or threads) leaves the others idle; and reductions to scalars have no
loop that they could share. Partial results give them one, so that several reductions of one input share one pass.

    for i: { t[i] = f(x[i]); s += t[i] }   ->   for b: for i < 4096: p[b] += f(x[4096 b + i]);  for b: s += p[b]

A value that only the reduction needs is computed where it is combined. Sums of floating-point numbers are split too
where that costs next to nothing, because the rounding of a sum grows with its length: the sum of a chain of 16M float32
numbers was off by 3e-5 of itself in 64 partial sums, and by 1.2e-7 in parts of 4096.
"""

from __future__ import annotations

from polyfuse.analysis.banks import WARP
from polyfuse.ir import Nest
from polyfuse.ir.number_types import is_real
from polyfuse.ir.scalar import operations
from polyfuse.ir.tree import parts, statements
from polyfuse.machine import GpuMachine, Machine
from polyfuse.measure import duration
from polyfuse.rewrite.inline import inline, reads, why_not_inline
from polyfuse.rewrite.reductions.split_reduction import (
    SplitReduction,
    split_reduction,
    why_not_split_reduction,
)
from polyfuse.sets import IN, OUT, bounding_count, dimension
from polyfuse.strategy.candidates import Choose, cheapest
from polyfuse.strategy.cost.counts import Counts, stride
from polyfuse.strategy.fusion.alignments import Searches
from polyfuse.strategy.fusion.price_nest import price
from polyfuse.strategy.match.lane_reductions import LONG_ROW, row_threads
from polyfuse.strategy.remarks import Remark, applied, weighed
from polyfuse.strategy.rewrites.split_k import fills_tiles

PASS = "split reduction"

WHERE_SUMMED = "values where summed"
"""The pass that computes single operations in the reductions that read them."""

LONG = 4096
"""Values of one result, from which on a second pass can pay; and of one part on a CPU: 16 KiB of float32."""

LAST = 256
"""Partial results that one thread of a GPU may combine in the end."""

EACH = 8
"""Values that a thread combines at least."""

BLOCKS = 8
"""Blocks for each SM of a GPU that parts of rows are made for."""

ALONE = 32768
"""Values that one block of a GPU combines in about the time of a launch."""

PASSES = 4
"""Passes at most: each is a launch."""

NEXT_TO_NOTHING = 1.01
"""The largest cost of two passes, as a multiple of one pass, that is accepted for better rounding alone."""


def in_two_passes(
    nest: Nest, machine: Machine, choose: Choose = cheapest, searches: Searches | None = None
) -> tuple[Nest, tuple[Remark, ...]]:
    """The nest with its long reductions split, if the model expects that to pay; and what was done, with numbers."""
    split = _on_cpu if machine.kind == "cpu" else _on_cuda
    done, said = nest, list[SplitReduction]()
    for name in _candidates(nest, machine):
        for made in split(_alone(done, name), name, machine):
            done = made.nest
            said.append(made)
    if done is nest:
        return nest, ()
    known = searches or Searches()
    before, after = price(nest, machine, known), price(done, machine, known)
    numbers = f"{duration(after)} in two passes, {duration(before)} in one"
    most = before * (NEXT_TO_NOTHING if machine.kind == "cpu" and _sums(nest, done) else 1.0)
    chosen = choose.wished(PASS)
    if not choose.takes(PASS, (), after < most):
        line = f"long reductions are not split: {numbers}."
        return nest, (weighed(PASS, [made.statement for made in said], False, line, after, before, chosen),)
    return done, tuple(
        weighed(PASS, (made.statement, made.partial), True, f"{made}: {numbers}.", after, before, chosen)
        for made in said
    )


def with_values_where_summed(
    nest: Nest, machine: Machine, choose: Choose = cheapest
) -> tuple[Nest, tuple[Remark, ...]]:
    """On a GPU, one operation that several reductions to single values read is computed where they read it.

    Elsewhere it would be a launch of its own, which all blocks of the next one wait for.

    for i: y[i] = x[i] - mu;  for i: t += y[i];  for i: q += y[i] * y[i]
    ->  for i: t += x[i] - mu;  for i: q += (x[i] - mu) * (x[i] - mu)
    """
    said: list[Remark] = []
    for s in nest.statements if machine.kind == "cuda" and not nest.params else ():
        readers = [nest.statement(name) for name in _readers(nest, s.name)]
        single = all(r.is_reduction and nest.tensor(r.write.tensor).rank == 0 for r in readers)
        able = len(readers) > 1 and single and operations(s.body) == 1
        if able and why_not_inline(nest, s.name) is None and choose.asks(WHERE_SUMMED, (s.name,)):
            done = inline(nest, s.name)
            nest, said = done.nest, [*said, applied(WHERE_SUMMED, (s.name,), f"{done}.")]
    return nest, tuple(said)


def _sums(nest: Nest, done: Nest) -> bool:
    """True if one of the reductions that were split rounds more the longer it is."""
    kept = {s.name: s for s in done.statements}
    split = (s for s in nest.statements if s.is_reduction and kept[s.name] != s)
    return any(s.op == "+=" and is_real(nest.tensor(s.write.tensor).dtype) for s in split)


def _candidates(nest: Nest, machine: Machine) -> tuple[str, ...]:
    """Reductions of many values to fewer results than the machine computes at once, alone in loops or made so."""
    if nest.params or not any(s.is_reduction for s in nest.statements):
        return ()
    counts = Counts(nest)
    most = _at_once(machine)
    found = []
    for part in parts(nest.order):
        name = statements(part)[-1]
        if not nest.statement(name).is_reduction or not _only_makes(nest, statements(part)[:-1], name):
            continue
        if fills_tiles(nest, name, machine):
            continue  # split_k.py
        results = max(1, counts.footprint(name, 0))
        if counts.work(name).instances >= LONG * results and (results == 1 or EACH * results <= most):
            found.append(name)
    return tuple(found)


def _only_makes(nest: Nest, makers: tuple[str, ...], reduction: str) -> bool:
    """True if statements do nothing but compute values for one reduction, which could compute them itself."""
    return all(
        _readers(nest, name) <= {*makers, reduction} and why_not_inline(nest, name) is None for name in makers
    )


def _readers(nest: Nest, maker: str) -> set[str]:
    tensor = nest.statement(maker).write.tensor
    return {s.name for s in nest.statements if reads(s, tensor)}


def _alone(nest: Nest, reduction: str) -> Nest:
    """for i: { t[i] = f(x[i]); s += t[i] }  ->  for i: s += f(x[i])."""
    part = next(part for part in parts(nest.order) if reduction in statements(part))
    for maker in statements(part)[:-1]:
        nest = inline(nest, maker).nest
    return nest


def _at_once(machine: Machine) -> int:
    threads = machine.gpu.max_threads_per_sm if isinstance(machine, GpuMachine) else 1
    return machine.units * threads


def reduced_dims(nest: Nest, name: str) -> dict[str, int]:
    """The dimensions that a statement combines over, with their extents."""
    s = nest.statement(name)
    element = s.write.subscripts()
    found = {}
    for d, dim in enumerate(s.dims):
        if not any(element.get_pw_aff(axis).involves_dims(IN, d, 1) for axis in range(s.write.map.dim(OUT))):
            values = dimension(s.domain, d).intersect_domain(nest.domains[name]).as_map().range()
            found[dim] = bounding_count(values, {})
    return found


def _on_cpu(nest: Nest, name: str, machine: Machine) -> list[SplitReduction]:
    extents = reduced_dims(nest, name)
    dim = max(extents, key=lambda d: extents[d])
    inner = Counts(nest).work(name).instances // extents[dim]
    size = max(1, min(LONG // max(1, inner), extents[dim] // machine.units))
    return (
        []
        if why_not_split_reduction(nest, name, dim, size=size)
        else [split_reduction(nest, name, dim, size=size)]
    )


def _on_cuda(nest: Nest, name: str, machine: Machine) -> list[SplitReduction]:
    """Along rows, for as many passes as it takes; what runs across them, or has no rows of a warp, interleaved."""
    done: list[SplitReduction] = []
    while len(done) < PASSES and _goes_on(nest, name):
        row = _row(nest, name)
        if row is None:
            return done or _interleaved(nest, name, machine)
        made = _in_rows(nest, name, row, machine)
        if not made:
            return done
        done, nest = [*done, *made], made[-1].nest
    return done


def _goes_on(nest: Nest, name: str) -> bool:
    """True if a reduction still combines so many values of each result that another pass can pay."""
    counts, row = Counts(nest), _row(nest, name)
    most = ALONE if row is not None and len(reduced_dims(nest, name)) == 1 else LONG
    return counts.work(name).instances >= most * max(1, counts.footprint(name, 0))


def _row(nest: Nest, name: str) -> str | None:
    """The dimension along which a reduction's reads are neighbours, a warp of them at least; None without one."""
    s, extents = nest.statement(name), reduced_dims(nest, name)
    if not is_real(nest.tensor(s.write.tensor).dtype):
        return None
    along = (d for d in extents if max(stride(access, s.dims.index(d)) for access in s.reads) == 1)
    return next((d for d in along if extents[d] >= WARP), None)


def _in_rows(nest: Nest, name: str, row: str, machine: Machine) -> list[SplitReduction]:
    """for i: for j: s += x[i, j]  ->  for b: { p[b] = 0; for i: for j: p[b] += x[i, size b + j] };  for b: s += p[b].

    A long row is cut, else the longest loop around rows; every loop is where that leaves threads of the machine idle.
    """
    extents = reduced_dims(nest, name)
    wanted = max(1, BLOCKS * machine.units // max(1, Counts(nest).footprint(name, 0)))
    around = {d: n for d, n in extents.items() if d != row}
    most = max(around, key=lambda d: around[d], default=row)
    if extents[row] >= LONG_ROW * around.get(most, 1):
        sizes = {row: LONG_ROW * -(-extents[row] // (LONG_ROW * wanted))}
        if sizes[row] >= extents[row]:
            return []  # there are results for all blocks
    else:
        sizes = {most: -(-around[most] // wanted)}
        if 2 * (around[most] // sizes[most]) * row_threads(extents[row]) < _at_once(machine):
            sizes = dict.fromkeys(around, 1)
    done: list[SplitReduction] = []
    partial = name
    for dim, each in sizes.items():
        if why_not_split_reduction(nest, partial, dim, size=each) is not None:
            return []
        done.append(split_reduction(nest, partial, dim, size=each))
        nest, partial = done[-1].nest, done[-1].partial
    return done


def _interleaved(nest: Nest, name: str, machine: Machine) -> list[SplitReduction]:
    """Every dimension from the innermost on interleaved until the threads are busy; then few partial results each."""
    done: list[SplitReduction] = []
    idle = _at_once(machine) // max(1, Counts(nest).footprint(name, 0))
    partial = name
    for dim, extent in reversed(reduced_dims(nest, name).items()):
        count = min(_power_of_two(idle), _power_of_two(extent // EACH))
        if count > 1 and why_not_split_reduction(nest, partial, dim, parts=count) is None:
            done.append(split_reduction(nest, partial, dim, parts=count))
            nest, partial, idle = done[-1].nest, done[-1].partial, idle // count
    for made in tuple(done):
        last = f"{nest.statement(made.statement).dims[0]}"
        if isinstance(made.parts, int) and made.parts > EACH * LAST:
            done.append(split_reduction(nest, made.statement, last, parts=LAST))
            nest = done[-1].nest
    return done


def _power_of_two(value: int) -> int:
    """The largest power of two that is not larger; 1 at least."""
    return 1 << max(0, value.bit_length() - 1)
