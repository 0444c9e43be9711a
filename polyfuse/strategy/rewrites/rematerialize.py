"""Rematerialise large temporaries where they are read, if computing them again is cheaper than loading them.

    for i, j: T[i, j] = a[i, j] + u[i] * v[j]
    for i, j: x[i] += T[j, i] * y[j]            ->    for i, j: x[i] += (a[j, i] + u[j] * v[i]) * y[j]
    for i, j: w[i] += T[i, j] * x[j]                  for i, j: w[i] += (a[i, j] + u[i] * v[j]) * x[j]

A temporary that several kernels read has to be stored: written once and read by each. Where it is larger than L2 and
takes a few multiply-adds of tensors that are there anyway, computing it again at each use moves less, and what is left
may stay in L3: with a matrix of 16 MB its sum is 32 MB. PolyBench's gemver of 2000² float32 took 2.3 ms by hand with
the sum stored and 0.6 without, on a core of a Zen 5 with 32 MiB of L3.

The other kernels must stay what they are. Readers that come together without the temporary are priced by the search,
not in their shape: two sums along columns of 4000 x 1000 float32, in one loop over columns, took 5.6 ms for 4.4 stored.
Only the kernels that touch the temporary, and those that share an array with one of these, are searched again.

The stages of a pipeline of stencils are left to `recompute`: these are read at several offsets, in tiles.
"""

from __future__ import annotations

from collections.abc import Iterator

from polyfuse.ir import Nest, Statement
from polyfuse.machine import Machine
from polyfuse.measure import duration
from polyfuse.rewrite.inline import inline, reads, why_not_inline
from polyfuse.strategy.candidates import Choose, cheapest
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.op_latency import effort
from polyfuse.strategy.cost.roofline import CACHED
from polyfuse.strategy.fusion.alignments import Searches
from polyfuse.strategy.fusion.price_nest import Priced, priced, priced_again
from polyfuse.strategy.match.stencil import pipelines
from polyfuse.strategy.remarks import Reason, Remark, refused, weighed

PASS = "rematerialize"

CHEAP = 8.0
"""Additions that a value may take as long as, to be computed several times: no division and no function does."""

CLEARLY = 0.9
"""The largest cost without the temporary, as a fraction of the cost with it: the model is not more accurate."""

TRIED = 3
"""Temporaries that are tried at most, the largest first: each costs a search for groups."""


def computed_where_read(
    nest: Nest, machine: Machine, choose: Choose = cheapest, searches: Searches | None = None
) -> tuple[Nest, tuple[Remark, ...]]:
    """The nest without the large temporaries that the model expects to cost less computed at each use; and why.

    Every operation keeps its place (`inline`). A nest with symbolic sizes is left: what fits a cache is not known.
    """
    names = () if nest.params else _candidates(nest, machine)
    if not names:
        return nest, ()
    known = searches or Searches()
    usual, said = priced(nest, machine, known), list[Remark]()
    for name in names:
        if _kernels_reading(nest, usual, name) < 2 or not _is_open(nest, name):
            continue
        made = inline(nest, name)
        other = priced_again(usual, made.nest, machine, known, _near(nest, usual, made.tensor))
        chosen = choose.wished(PASS, (name,))
        numbers = f"{duration(other.seconds)} expected so, {duration(usual.seconds)} with it stored"
        if not choose.takes(PASS, (name,), _without(usual, name) == other.kernels.keys()):
            line = f"{made.tensor} is stored: without it its readers would run in other kernels."
            said.append(refused(PASS, (name,), Reason.OTHERS_CHANGE, line))
            continue
        if not choose.takes(PASS, (name,), other.seconds <= CLEARLY * usual.seconds):
            line = f"{made.tensor} is stored, not computed where it is read: {numbers}."
            said.append(weighed(PASS, (name,), False, line, other.seconds, usual.seconds, chosen))
            continue
        said.append(weighed(PASS, (name,), True, f"{made}: {numbers}.", other.seconds, usual.seconds, chosen))
        nest, usual = made.nest, other
    return nest, tuple(said)


def _candidates(nest: Nest, machine: Machine) -> tuple[str, ...]:
    """The statements whose temporaries are worth a try, the largest first."""
    counts = Counts(nest)
    large = [s for s in _large(nest, counts, machine) if _is_cheap(nest, counts, s)]
    if not large:
        return ()
    stages = {name for pipeline in pipelines(nest) for name in pipeline.producers}
    large.sort(key=lambda s: -counts.tensor_bytes(s.write.tensor))
    names = (s.name for s in large if s.name not in stages)
    return tuple(name for name in names if why_not_inline(nest, name) is None)[:TRIED]


def _is_open(nest: Nest, name: str) -> bool:
    """True if a candidate is one still, after others were inlined into it or into its readers."""
    return _is_cheap(nest, Counts(nest), nest.statement(name)) and why_not_inline(nest, name) is None


def _large(nest: Nest, counts: Counts, machine: Machine) -> Iterator[Statement]:
    """Statements that write a temporary which several others read and which L2 does not hold."""
    temporaries = {t.name for t in nest.with_role("temporary")}
    for s in nest.statements:
        tensor = s.write.tensor
        is_shared = tensor in temporaries and len(counts.users[tensor]) > 2
        if is_shared and counts.tensor_bytes(tensor) > machine.levels[CACHED].size:
            yield s


def _is_cheap(nest: Nest, counts: Counts, s: Statement) -> bool:
    """True if a value takes few operations, and every reader needs each of them once at most.

    y[i, j] += T[i, k] * b[k, j] needs T[i, k] for every j: a product reads it from a tile, and computes none.
    """
    made, tensor = counts.work(s.name).instances, s.write.tensor
    readers = [nest.statement(name) for name in counts.users[tensor] if name != s.name]
    return effort(s.body, nest.tensor(tensor).itemsize) <= CHEAP and all(
        counts.work(reader.name).instances <= made and sum(a.tensor == tensor for a in reader.reads) == 1
        for reader in readers
    )


def _kernels_reading(nest: Nest, found: Priced, name: str) -> int:
    """The kernels that read what a statement writes."""
    tensor = nest.statement(name).write.tensor
    return sum(any(reads(nest.statement(n), tensor) for n in kernel) for kernel in found.kernels)


def _near(nest: Nest, found: Priced, tensor: str) -> frozenset[str]:
    """The statements of the kernels that touch a tensor, and of those that share an array with one of these."""
    arrays = {
        names: frozenset(t for n in names for t in nest.statement(n).tensors if nest.tensor(t).rank)
        for names in found.kernels
    }
    shared = frozenset[str]().union(*(used for used in arrays.values() if tensor in used))
    return frozenset(n for names, used in arrays.items() if used & shared for n in names)


def _without(found: Priced, name: str) -> set[tuple[str, ...]]:
    """The kernels that are left without a statement."""
    kernels = (tuple(n for n in kernel if n != name) for kernel in found.kernels)
    return {kernel for kernel in kernels if kernel}
