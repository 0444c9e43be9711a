"""Plans of random nests compute what the oracle does, on both targets, for machines that like to fuse and to split."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polyfuse.analysis.barriers import place_barriers
from polyfuse.interpret import interpret
from polyfuse.ir import Nest
from polyfuse.machine import Machine
from polyfuse.strategy import plan_for
from tests.support.execution import memory, run_lockstep, run_plain
from tests.support.models import CPU, CUDA
from tests.support.nests import inputs_for, nests, some_sizes

MACHINES = (
    CPU,
    replace(CPU, units=64, region_seconds=0.0, launch_seconds=1e-12),
    CUDA,
    replace(CUDA, launch_seconds=1e-12),
)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data(), st.sampled_from(MACHINES), nests(), st.booleans(), st.integers(0, 999))
def test_random_plans(data: st.DataObject, machine: Machine, nest: Nest, fuse: bool, seed: int) -> None:
    sizes = data.draw(some_sizes(nest), label="sizes")
    schedule = plan_for(nest, machine, fuse=fuse).schedule
    inputs = inputs_for(nest, np.random.default_rng(seed), sizes)
    oracle = interpret(nest, inputs, sizes)
    tree = schedule.tree if machine.kind == "cpu" else place_barriers(schedule.nest, schedule.tree)
    arrays = memory(nest, schedule.nest, tree, inputs, sizes)
    if machine.kind == "cpu":
        run_plain(schedule.nest, tree, arrays, sizes, seed)
    else:
        run_lockstep(schedule.nest, tree, arrays, sizes)
    for tensor in nest.outputs:
        np.testing.assert_array_equal(arrays[tensor.name], oracle[tensor.name])
