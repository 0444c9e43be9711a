# ruff: noqa: F821, UP037 — sizes are names in annotations
"""Kernels whose blocks wait for each other: where grid barriers are placed, that they suffice, and what they run as."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.analysis.barriers import place_barriers
from polyfuse.analysis.validation import validate
from polyfuse.checks import cuda_cases as cases
from polyfuse.checks.cuda_cases import layers_in_one_launch, units_on_blocks
from polyfuse.errors import IllegalSchedule, InvalidSchedule, ValidationFailure
from polyfuse.ir.tree import Loop, Sequence, Tree, loops, parts, replace_node, walk
from polyfuse.rewrite import expand
from polyfuse.runtime.cuda.runner import CudaProgram, build_kernels
from polyfuse.runtime.emulated.host_gpu import HostGpu
from polyfuse.simulator.lockstep import BarrierError, RaceError, UnsupportedKernel
from polyfuse.simulator.lockstep import run as run_kernel
from polyfuse.strategy.cost.composite import schedule_costs
from tests.support.execution import memory, run_lockstep

pytest.importorskip("numba.cuda")


@pf.nest
def recurrence(W: "f32[16, 16]", x: "f32[6, 3, 16]", h: "f32[7, 3, 16]"):  # type: ignore[no-untyped-def]
    for t in range(6):
        for u in range(16):
            for b in range(3):
                s = x[t, b, u]
                for k in range(16):
                    s += W[u, k] * h[t, b, k]
                h[t + 1, b, u] = math.tanh(s)


@cache
def shared_units() -> pf.Schedule:
    """h[t] = tanh(W h[t - 1] + x[t]), four units a block, their weights in shared memory for all steps."""
    s = pf.Schedule(expand(recurrence).nest).promote("s", "S0", at="b", memory="register")
    s = s.split("S1", "u", 4).bind("S1", u="block.x", u_in="thread.y", b="thread.x")
    s = s.join("S1", loop="run").promote("W", "S1", at="run", memory="shared")
    return s.split("load_W", "load_W_1", 8).bind("load_W", load_W_0="thread.y", load_W_1_in="thread.x")


def computed(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    h = np.zeros((7, 3, 16), np.float32)
    for t in range(6):
        h[t + 1] = np.tanh(h[t] @ w.T + x[t])
    return h


def drawn() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return rng.standard_normal((16, 16), np.float32) / 4, rng.standard_normal((6, 3, 16), np.float32)


def without(tree: Tree, change: Callable[[Tree], Tree]) -> Tree:
    """The tree with every node that has a grid barrier changed."""
    node = next(n for n in walk(tree) if isinstance(n, Loop | Sequence) and n.grid)
    return replace_node(tree, node, change(node))


def test_a_recurrence_meets_once_a_step_and_its_weights_are_loaded_once() -> None:
    s = shared_units().synchronised()
    lines = [line.strip() for line in s.dump().splitlines()]
    assert [line for line in lines if "barrier" in line] == ["barrier", "grid barrier"]
    (time,) = (loop for loop in loops(s.tree) if loop.name == "t")
    assert time.grid
    assert not any(loop.grid for loop in loops(time.body))
    net = pf.compile(s.source, target="cuda", machine="h200", device="lockstep", schedule=s)
    w, x = drawn()
    h = np.zeros((7, 3, 16), np.float32)
    net(w, x, h)
    np.testing.assert_allclose(h, computed(w, x), atol=1e-6)
    report = net.report()
    assert (report.launches, report.grid_barriers) == (1, 6)
    assert "6 grid barriers" in str(report)
    assert report.predicted_seconds > 6 * 1.2e-6
    assert "W_shared" in net.program.source.split("for t in")[0], "weights are copied before the first step"


def test_validation_misses_a_grid_barrier_and_lock_step_sees_the_race() -> None:
    s = shared_units().synchronised()
    changes: tuple[tuple[Callable[[Any], Tree], str], ...] = (
        (lambda node: replace(node, barrier=False, grid=False), r"cuda.syncthreads\(\)"),
        (
            lambda node: replace(node, grid=False),
            r"grid_barrier\(\)",
        ),  # a block's threads meet, blocks do not
    )
    for change, missing in changes:
        tree = without(s.tree, change)
        with pytest.raises(
            ValidationFailure, match=r"S2.* -> S1.*no grid barrier lies between the iterations of t"
        ):
            validate(s.source, s.nest, tree)
        w, x = drawn()
        arrays = {"W": w, "x": x, "h": np.zeros((7, 3, 16), np.float32)}
        with pytest.raises(RaceError, match=rf"array 'h'.*no {missing} lies between them"):
            run_lockstep(s.nest, tree, memory(s.source, s.nest, tree, arrays, {}), {})


def test_placing_barriers_again_places_the_same() -> None:
    s = shared_units().synchronised()
    assert place_barriers(s.nest, s.tree) == s.tree


def test_blocks_do_not_share_a_buffer() -> None:
    s = pf.Schedule(cases.dense(8, 8, batch=4)).fuse("zero0", "mac0", at="j").fuse("mac0", "bias0", at="i")
    s = s.join("mac0", "bias0", loop="l")
    with pytest.raises(IllegalSchedule) as refused:
        s.promote("y0", "mac0", at="l", memory="shared").bind("mac0", j="block.x")
    violation = refused.value.violation
    assert "and each block has its own" in str(violation)
    assert (violation.source.statement, violation.sink.statement) == ("mac0", "bias0")
    assert "leave y0 in global memory" in violation.remedy


def test_parts_of_one_launch_have_blocks_of_their_own_number() -> None:
    nest = cases.dense(9, 21, 30, 5, batch=4)
    net = pf.compile(
        nest, target="cuda", machine="h200", device="lockstep", schedule=layers_in_one_launch(nest)
    )
    (launch,) = net.program.launches
    assert launch.extents({}) == ((4, 4, 1), (8, 1, 1))
    assert net.report().grid_barriers == 2 == launch.code.grid_barriers
    assert launch.source.count("if bx < 3:") == 1, "the first layer has three blocks a row"
    inputs, outputs = cases.draw(nest, np.random.default_rng(1)), cases.poisoned(nest)
    net(**inputs, out=outputs)
    assert cases.error(nest, inputs, {"out": outputs[0]}) <= cases.TOLERANCE


def test_a_block_that_reads_what_it_wrote_itself_waits_for_none() -> None:
    s = pf.Schedule(cases.pointwise(nn.Tanh(), 4, 6))
    nest = nn.lower(nn.Sequential(nn.Tanh(), nn.Tanh()), batch=4, features=6)
    s = pf.Schedule(nest)
    first, second = (statement.name for statement in nest.statements)
    s = s.bind(first, i="block.x", j="thread.x").bind(second, i="block.x", j="thread.x")
    s = s.join(first, second, loop="l").synchronised()
    assert "barrier" not in s.dump()


def test_no_grid_barrier_inside_a_loop_over_blocks() -> None:
    s = pf.Schedule(cases.dense(8, 8, 8, batch=4)).fuse("zero0", "mac0", at="i").fuse("mac0", "bias0", at="i")
    s = s.bind("mac0", i="block.x").bind("mac0", j="block.y").bind("bias0", j="thread.x")
    with pytest.raises(IllegalSchedule, match="no grid barrier lies between the parts of a sequence"):
        s.synchronised()
    (block,) = (loop for loop in loops(s.tree) if loop.bind == "block.x")
    tree = replace_node(s.tree, block, replace(block, barrier=True, grid=True))
    with pytest.raises(ValidationFailure, match=r"a grid barrier lies inside i, whose values are blocks"):
        validate(s.source, s.nest, tree)


def test_more_blocks_than_the_gpu_holds_at_once_are_refused_with_numbers() -> None:
    nest = cases.dense(4, 16, 4, batch=5000)
    s = layers_in_one_launch(nest)
    with pytest.raises(InvalidSchedule) as refused:
        pf.compile(nest, target="cuda", machine="h200", device="none", schedule=s)
    assert str(refused.value) == (
        "the 10000 blocks of kernel zero_mac_bias_relu wait for each other at a grid barrier, and h200 holds 4224 of "
        "them at once: 32 blocks on an SM, 50% of its threads (blocks), 132 SMs; give each block more values, so that "
        "there are fewer"
    )


def test_the_simulator_runs_no_blocks_together() -> None:
    nest = cases.dense(4, 16, 4, batch=2)
    s = layers_in_one_launch(nest)
    net = pf.compile(nest, target="cuda", machine="h200", device="simulator", schedule=s)
    with pytest.raises(UnsupportedKernel, match="runs one block after the other"):
        net(np.ones((2, 4), np.float32))


def test_the_counter_is_zeroed_once_and_serves_every_launch() -> None:
    pytest.importorskip("cuda.core")
    nest = cases.dense(9, 21, 30, batch=4)
    net = pf.compile(nest, target="cuda", machine="h200", device="none", schedule=layers_in_one_launch(nest))
    gpu = HostGpu(net.program)
    roles = {tensor.name: tensor.role for tensor in net.schedule.nest.tensors}
    program = CudaProgram(net.program, gpu, roles)  # type: ignore[arg-type]
    net._runner = program  # type: ignore[assignment]
    for seed in range(3):
        inputs, outputs = cases.draw(nest, np.random.default_rng(seed)), cases.poisoned(nest)
        net(**inputs, out=outputs)
        assert cases.error(nest, inputs, {"out": outputs[0]}) <= cases.TOLERANCE
    (held,) = program._by_sizes.values()
    assert gpu.uploads.count(held.arrivals) == 1
    assert gpu.at(held.arrivals, np.dtype(np.int32))[0] == -(2**31), "one barrier in each of three launches"
    (launch,) = program.launches(held.addresses, {}, held.arrivals)
    assert launch.together


def test_as_machine_code_blocks_meet_and_read_what_others_wrote() -> None:
    pytest.importorskip("cuda.core")
    s = shared_units()
    net = pf.compile(s.source, target="cuda", machine="h200", device="none", schedule=s)
    for capability in ((8, 0), (9, 0)):
        (cubin,) = build_kernels(net.program, capability).values()
        assert (cubin.spill_stores, cubin.spill_loads) == (0, 0)
        assert cubin.ptx.count("atom.add.acq_rel.gpu.global.u32") == 1
        assert cubin.ptx.count("ld.acquire.gpu.global.u32") == 1
        assert "ld.global.nc" not in cubin.ptx


def test_a_counter_that_is_not_zero_and_threads_that_do_not_come_are_seen() -> None:
    whole = "def k(x, arrivals):\n    x[cuda.blockIdx.x] = float32(1.0)\n    grid_barrier(arrivals)\n"
    x = np.zeros(3, np.float32)
    report = run_kernel(whole, "k", 3, 1, [x, np.zeros(1, np.int32)])
    assert (report.barriers, report.grid_barriers) == (1, 1)
    with pytest.raises(BarrierError, match="no 32-bit counter that began at zero"):
        run_kernel(whole, "k", 3, 1, [x, np.full(1, 5, np.int32)])
    some = "def k(x, arrivals):\n    if cuda.blockIdx.x > 0:\n        grid_barrier(arrivals)\n"
    with pytest.raises(BarrierError, match=r"all blocks meet .* block \(0, 0, 0\) does not"):
        run_kernel(some, "k", 3, 1, [x, np.zeros(1, np.int32)])


def test_blocks_that_run_together_wait_for_their_own_copies() -> None:
    head = "def k(x, y, arrivals):\n    s = cuda.shared.array((1,), float32)\n    b = cuda.blockIdx.x\n"
    part = "    if b == {0}:\n        copy_ahead(1, s, 0, 1, x, {0})\n{1}        y[{0}] = s[0]\n"
    wait = "        await_copies(0)\n"
    x, y = np.arange(2, dtype=np.float32) + 1, np.zeros(2, np.float32)
    both = head + part.format(0, wait) + "    grid_barrier(arrivals)\n" + part.format(1, wait)
    run_kernel(both, "k", 2, 1, [x, y, np.zeros(1, np.int32)])
    np.testing.assert_array_equal(y, x)
    late = head + part.format(0, "") + "    grid_barrier(arrivals)\n" + part.format(1, wait)
    with pytest.raises(UnsupportedKernel, match="the others' groups would not be counted"):
        run_kernel(late, "k", 2, 1, [x, y, np.zeros(1, np.int32)])


def test_two_recurrences_of_one_form_are_one_kernel() -> None:
    nest = nn.lower(nn.Sequential(nn.RNN(16, 16), nn.RNN(16, 16)), batch=(3, 2))
    s = pf.Schedule(nest)
    for n in (0, 1):
        s = s.fuse(f"step{n}", f"hidden{n}", at="k").interchange(f"step{n}", "j", "k")
        s = s.split(f"step{n}", "k", 4).bind(f"step{n}", k="block.x", k_in="thread.y", j="thread.x")
    meeting = [kernel for kernel in parts(s.synchronised().tree) if any(x.grid for x in loops(kernel))]
    assert len(meeting) == 2
    net = pf.compile(nest, target="cuda", machine="h200", device="none", schedule=s)
    launches = [launch for launch in net.program.launches if launch.code.grid_barriers]
    assert len(launches) == 2
    assert launches[0].code is launches[1].code


def test_a_case_by_hand_is_what_its_words_say() -> None:
    nest = cases.recurrent(nn.RNN(5, 14))
    s = units_on_blocks(nest)
    assert "u0_shared in shared" in s.dump()


def test_a_part_beside_a_loop_over_blocks_inside_another_is_priced_as_blocks_of_its_own() -> None:
    tensors = [pf.Tensor(name, (8, 4), "float32", "input") for name in "ab"]
    tensors += [pf.Tensor(name, (8, 4), "float32", "output") for name in "xy"]
    first = pf.statement("{ S[i, j] : 0 <= i < 8 and 0 <= j < 4 }", "x[i, j] = a[i, j]")
    second = pf.statement("{ T[i, j] : 0 <= i < 8 and 0 <= j < 4 }", "y[i, j] = b[i, j]")
    nest = pf.Nest.of(tensors, [first, second])
    s = pf.Schedule(nest).fuse("S", "T", at="i").bind("S", i="block.y").bind("T", j="block.x")
    apart = pf.Schedule(nest).bind("S", i="block.y").bind("T", i="block.y", j="block.x")
    h200 = pf.Machine.preset("h200")
    (together,), each = schedule_costs(s, h200), schedule_costs(apart, h200)
    assert (together.compute, together.memory) == (sum(c.compute for c in each), sum(c.memory for c in each))
