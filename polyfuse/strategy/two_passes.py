"""Long reductions to a few results in two passes: partial results for all that a machine can do at once, then these.

    cpu:   consecutive values for each part, few enough that several reductions of one input find them in L1
    cuda:  neighbouring parts read neighbouring values, a part for each thread the machine holds

A reduction to fewer results than there are cores (or threads) leaves the others idle; and reductions to scalars have no
loop that they could share. Partial results give them one, so that several reductions of one input share one pass.
"""

from __future__ import annotations

from polyfuse.ir import Nest
from polyfuse.ir.tree import parts, statements
from polyfuse.machine import Machine
from polyfuse.rewrite.reduce import SplitReduction, split_reduction, why_not_split_reduction
from polyfuse.sets import IN, OUT, bounding_count, dimension
from polyfuse.strategy.cost import microseconds
from polyfuse.strategy.counts import Counts
from polyfuse.strategy.priced import price

LONG = 4096
"""Values of one result, from which on a second pass can pay; and of one part on a CPU: 16 KiB of float32."""

LAST = 256
"""Partial results that one thread of a GPU may combine in the end."""

EACH = 8
"""Values that a thread combines at least."""


def in_two_passes(nest: Nest, machine: Machine) -> tuple[Nest, tuple[str, ...]]:
    """The nest with its long reductions split, if the model expects that to pay; and what was done, with numbers."""
    split = _on_cpu if machine.kind == "cpu" else _on_cuda
    done, said = nest, []
    for name in _candidates(nest, machine):
        for made in split(done, name, machine):
            done = made.nest
            said.append(str(made))
    if done is nest:
        return nest, ()
    before, after = price(nest, machine), price(done, machine)
    numbers = f"{microseconds(after)} in two passes, {microseconds(before)} in one"
    if after >= before:
        return nest, (f"long reductions are not split: {numbers}.",)
    return done, tuple(f"{line}: {numbers}." for line in said)


def _candidates(nest: Nest, machine: Machine) -> tuple[str, ...]:
    """Reductions in loops of their own, of many values to fewer results than the machine computes at once."""
    if nest.params or not any(s.is_reduction for s in nest.statements):
        return ()
    counts = Counts(nest)
    most = _at_once(machine)
    found = []
    for name in (statements(part)[0] for part in parts(nest.order) if len(statements(part)) == 1):
        results = max(1, counts.footprint(name, 0))
        long = nest.statement(name).is_reduction and counts.work(name).instances >= LONG * results
        if long and (results == 1 or EACH * results <= most):
            found.append(name)
    return tuple(found)


def _at_once(machine: Machine) -> int:
    gpu = machine.gpu
    return machine.units if gpu is None else machine.units * gpu.max_threads_per_sm


def _reduced(nest: Nest, name: str) -> dict[str, int]:
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
    extents = _reduced(nest, name)
    dim = max(extents, key=lambda d: extents[d])
    inner = Counts(nest).work(name).instances // extents[dim]
    size = max(1, min(LONG // max(1, inner), extents[dim] // machine.units))
    return (
        []
        if why_not_split_reduction(nest, name, dim, size=size)
        else [split_reduction(nest, name, dim, size=size)]
    )


def _on_cuda(nest: Nest, name: str, machine: Machine) -> list[SplitReduction]:
    """Every dimension from the innermost on interleaved until the threads are busy; then few partial results each."""
    done: list[SplitReduction] = []
    idle = _at_once(machine) // max(1, Counts(nest).footprint(name, 0))
    partial = name
    for dim, extent in reversed(_reduced(nest, name).items()):
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
