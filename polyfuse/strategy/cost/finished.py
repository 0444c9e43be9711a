"""Price the loops of a finished schedule as the code generator will print them, whoever made it.

    seconds = launch + regions + max(compute, memory) + exposed × min(compute, memory)
    compute, by the innermost loops
        a microkernel        steps × (multiply-adds of the tile, or their latency where they are few; loads)
        on vector lanes      as loops in `cpu_loops`
        a sum in one place   a multiply-add's latency for each term: floating-point sums keep their order
        few values           one by one: LLVM writes such a loop out, and joins nothing to vectors
        any other            as LLVM vectorizes it: along memory if it carries nothing
    memory  = the bytes that come into each cache, from L1 to the one that holds the whole program

The strategy prices its candidates before they have loops, by what good loops would take. This is for schedules made by
hand: an innermost loop that is not on vector lanes costs what it costs.
"""

from __future__ import annotations

from math import ceil

from polyfuse.ir.tree import Leaf, Loop, Tree, loops_around, parts, statements
from polyfuse.machine import CpuMachine, GpuMachine, Machine
from polyfuse.schedule import Schedule
from polyfuse.strategy.cost.composite import finished_cost
from polyfuse.strategy.cost.counts import Counts, dims_of, stride
from polyfuse.strategy.cost.cpu_loops import Estimate, Estimator, Run, cost_from
from polyfuse.strategy.cost.register_tiles import LATENCY
from polyfuse.strategy.cost.roofline import KernelCost

WRITTEN_OUT = 32
"""Values of an innermost loop of constant bounds up to which LLVM writes it out: tiles of 4 × 32 without `vectorize`
took 1.8 ns a multiply-add, in loops of 256 along memory 0.13 (256 × 256 products of 128 rows, one Zen core)."""


class _Finished(Run):
    """A finished tree being priced."""

    def compute(self, tree: Tree, depth: int, units: float) -> float:
        """Seconds of arithmetic, loads and stores."""
        if isinstance(tree, Loop) and tree.bind == "microkernel" and len(statements(tree)) == 1:
            return self.tile(tree, depth) / units
        return super().compute(tree, depth, units)

    def tile(self, steps: Loop, depth: int) -> float:
        """Seconds of a product in register tiles, all steps of one tile: loads beside multiply-adds."""
        (name,) = statements(steps)
        extents = self.chains[name].extents[depth:]
        itemsize = self.counts.nest.tensor(self.counts.nest.statement(name).write.tensor).itemsize
        lanes = self.machine.vector_bytes // itemsize
        count, columns, inside = extents[0], extents[-1], loops_around(steps, name)
        rows = extents[1] if len(inside) > 2 else 1
        vectors = ceil(columns / lanes)
        write = self.counts.nest.statement(name).write
        if all(stride(write, d) == 0 for d in dims_of(inside[-1].date(name))):  # each sum is a vector
            vectors *= extents[2]
        sums = rows * vectors
        loaded = self.machine.loading * (rows + vectors)
        spilled = max(0, sums + vectors - self.machine.vector_registers)
        issued = (sums + loaded + spilled) / self.machine.multiply_adds
        cycles = max(issued, float(LATENCY) if sums else 0.0, self.machine.broadcast * rows)
        return count * cycles * self.machine.cycle * self.filled(name)

    def instance(self, name: str, inner: Loop | None) -> float:
        """Seconds of one instance."""
        seconds = super().instance(name, inner)
        if inner is None or inner.bind in ("vector", "unroll"):
            return seconds
        statement = self.counts.nest.statement(name)
        itemsize = max(self.counts.nest.tensor(a.tensor).itemsize for a in statement.accesses)
        lanes = self.machine.vector_bytes / itemsize
        dims = dims_of(inner.date(name))
        if statement.is_reduction and all(stride(statement.write, d) == 0 for d in dims):
            one_by_one = super().instance(name, None)
            return max(one_by_one, LATENCY * self.machine.cycle * self.filled(name))
        if self.extent(inner, self.depth(inner)) <= WRITTEN_OUT and isinstance(inner.body, Leaf):
            return seconds * lanes if self.near(name, inner) else seconds
        return seconds

    def depth(self, inner: Loop) -> int:
        """The number of loops around a loop."""
        around = loops_around(self.tree, inner.names[0])
        return next(place for place, loop in enumerate(around) if loop is inner)


class FinishedEstimator(Estimator):
    """Prices finished trees of one nest."""

    def of(self, tree: Tree) -> Estimate:
        """The price of one kernel."""
        run = _Finished(self, tree, *self.chains(tree))
        compute = run.compute(tree, 0, 1.0)
        return Estimate(compute, *self.moving(run, tree), run.overhead(), run.most)


def tree_costs(schedule: Schedule, machine: Machine) -> tuple[KernelCost, ...]:
    """Return the cost of each kernel of a finished schedule, in order, from its loops."""
    counts = Counts.of(schedule)
    if isinstance(machine, GpuMachine):
        return tuple(finished_cost(counts, part, machine) for part in parts(schedule.tree))
    assert isinstance(machine, CpuMachine)
    estimator = FinishedEstimator(counts, machine)
    return tuple(cost_from(counts, part, estimator.of(part), machine) for part in parts(schedule.tree))
