"""The cases that a change of the compiler is compared on, by name, each planned for a fixed machine.

    case  ->  nest, and a schedule where one was made by hand  ->  planned, validated and printed by polyfuse.compiler

Machines are presets and sizes are numbers, so a plan is the same on every computer. No machine code is made here:
`polyfuse.compiler.decided` is `polyfuse.compile` up to the source text.

| group | cases | machine |
|---|---|---|
| workloads | the 22 of benchmarks.peers | zen5 with 1 and with 2 cores |
| networks | the 168 dense networks of its grid | the same two |
| polybench | the 30 kernels, LARGE | the same two |
| pipelines | the image pipelines, 2048 × 2048 | the same two |
| cuda | polyfuse.checks.cuda_cases | h200 |
| golden | the CPU schedules of tests/golden/source | zen5 with 1 core |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import polyfuse as pf
from benchmarks.peers.grid import cells
from benchmarks.peers.workloads import TABLE, Workload, mlp
from benchmarks.polybench_table import counted
from benchmarks.sides.by_polyfuse import nest_of
from papers.pipelines import PIPELINES
from papers.polybench import KERNELS
from polyfuse.checks.cuda_cases import CASES
from polyfuse.checks.cuda_cases import Case as CudaCase
from polyfuse.compiler import decided
from polyfuse.runtime.artifact import Compiled, Device
from polyfuse.strategy.rewrites.fast_matmul import Wanted
from tests.codegen import test_golden_source
from tests.codegen.lowering import test_partition_loops

CPU, CUDA = "zen5", "h200"
"""The presets that all plans are made for."""

THREADS = (1, 2)

Made = tuple[pf.Nest, pf.Schedule | None]
"""The inputs of one compile: a nest, and its schedule where one was made by hand."""


@dataclass(frozen=True)
class Case:
    """Return the nest to compile, made anew each time, and the machine to compile it for."""

    make: Callable[[], Made]
    machine: pf.Machine

    def compiled(self) -> Compiled:
        """Everything that a compile with no further options decides, and the source text.

        Raises:
            PolyfuseError: if the case cannot be compiled for its machine.
        """
        nest, schedule = self.make()
        place: Device = "cpu" if self.machine.kind == "cpu" else "none"
        return decided(nest, self.machine.kind, place, self.machine, schedule, True, Wanted(), {})


def on_cores(name: str, make: Callable[[], Made]) -> Iterator[tuple[str, Case]]:
    """One case for each number of threads."""
    for threads in THREADS:
        machine = replace(pf.Machine.preset(CPU), units=threads)
        yield f"{name}, {counted(threads)}", Case(make, machine)


def of_workload(workload: Workload) -> Made:
    nest, sizes, _ = nest_of(workload.kind, workload.make())
    return (nest.with_sizes(sizes) if sizes else nest), None


def of_sizes(nest: pf.Nest, sizes: Mapping[str, int]) -> Made:
    return nest.with_sizes(sizes), None


def workloads() -> Iterator[tuple[str, Case]]:
    for name, workload in TABLE.items():
        yield from on_cores(name, partial(of_workload, workload))


def networks() -> Iterator[tuple[str, Case]]:
    for layers, batch, width in cells(long=True):
        workload = mlp(layers, width, batch)
        yield from on_cores(workload.name, partial(of_workload, workload))


def polybench() -> Iterator[tuple[str, Case]]:
    for name, kernel in KERNELS.items():
        yield from on_cores(name, partial(of_sizes, kernel.nest, kernel.large))


def pipelines() -> Iterator[tuple[str, Case]]:
    for name, pipeline in PIPELINES.items():
        yield from on_cores(name, partial(of_sizes, pipeline.nest, pipeline.large))


def cuda() -> Iterator[tuple[str, Case]]:
    for case in CASES:
        machine = replace(pf.Machine.preset(CUDA), math=case.math)
        yield case.name, Case(partial(of_cuda_case, case), machine)


def of_cuda_case(case: CudaCase) -> Made:
    nest = case.nest()
    return nest, case.by_hand(nest)


def golden() -> Iterator[tuple[str, Case]]:
    every = {**test_golden_source.CASES, **test_partition_loops.CASES}
    machine = replace(pf.Machine.preset(CPU), units=1)
    for name, (make, target) in every.items():
        if target == "cpu":
            yield name, Case(partial(of_schedule, make), machine)


def of_schedule(make: Callable[[], pf.Schedule]) -> Made:
    schedule = make()
    return schedule.source, schedule


GROUPS: Mapping[str, Callable[[], Iterator[tuple[str, Case]]]] = {
    each.__name__: each for each in (workloads, networks, polybench, pipelines, cuda, golden)
}


def cases(group: str) -> dict[str, Case]:
    """The cases of a group by name, in a fixed order; the names begin with the group's."""
    found: dict[str, Case] = {}
    for name, case in GROUPS[group]():
        assert f"{group}/{name}" not in found, f"two cases are called {name}"
        found[f"{group}/{name}"] = case
    return found
