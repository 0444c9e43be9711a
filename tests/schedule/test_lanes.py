"""Reductions over the lanes of a warp: by hand against the oracle, in machine code, refused, by default."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.analysis.lanes import unfit_lanes
from polyfuse.analysis.validation import validate
from polyfuse.checks import cuda_cases as cases
from polyfuse.codegen.cuda.compile.disassembly import sass
from polyfuse.errors import IllegalSchedule, InvalidSchedule, ValidationFailure
from polyfuse.ir.bindings import Binding
from polyfuse.ir.tree import loops, replace_node
from polyfuse.runtime.cuda.runner import build_kernels
from polyfuse.simulator.lockstep import BarrierError, run

pytest.importorskip("cuda.core")
pytest.importorskip("numba.cuda")


def rows(op: str, size: int | str = 77, dtype: str = "float32") -> pf.Nest:
    """out[i] op x[i, j] for five rows, from 0.5."""
    start = pf.statement("{ start[i] : 0 <= i < 5 }", "out[i] = 0.5")
    head = f"[{size}] -> " if isinstance(size, str) else ""
    take = pf.statement(f"{head}{{ take[i, j] : 0 <= i < 5 and 0 <= j < {size} }}", f"out[i] {op} x[i, j]")
    tensors = [pf.Tensor("x", (5, size), dtype, "input"), pf.Tensor("out", (5,), dtype, "output")]
    context = f"[{size}] -> {{ : {size} >= 0 }}" if isinstance(size, str) else None
    return pf.Nest.of(tensors, [start, take], **({"context": context} if context else {}))


def by_hand(nest: pf.Nest) -> pf.Schedule:
    """Four rows a block, a warp each."""
    s = pf.Schedule(nest).split("take", "j", 32).reorder("take", "j_in", "j").split("take", "i", 4)
    return s.bind("take", i="block.x", i_in="thread.y", j_in="lane").bind("start", i="thread.x")


@pytest.mark.parametrize("op", ["+=", "*=", "max=", "min="])
def test_a_warp_combines_what_the_oracle_does(op: str) -> None:
    nest = rows(op)
    x = np.random.default_rng(3).uniform(0.7, 1.4, (5, 77)).astype(np.float32)
    net = pf.compile(nest, target="cuda", machine="h200", device="lockstep", schedule=by_hand(nest))
    found = net(x)
    np.testing.assert_allclose(found, pf.interpret(nest, [x])["out"], rtol=1e-5)
    x[2, 70] = np.nan
    assert np.isnan(net(x)).tolist() == [False, False, True, False, False]


def narrow(nest: pf.Nest, lanes: int, rows: int) -> pf.Schedule:
    """So many rows a block, part of a warp each."""
    s = pf.Schedule(nest).split("take", "j", lanes).reorder("take", "j_in", "j").split("take", "i", rows)
    return s.bind("take", i="block.x", i_in="thread.y", j_in="lane").bind("start", i="block.x")


@pytest.mark.parametrize(("lanes", "rows_each", "mask"), [(16, 4, "-1"), (8, 4, "-1"), (4, 3, "lanes_of(4)")])
@pytest.mark.parametrize("device", ["lockstep", "simulator"])
def test_part_of_a_warp_combines_its_row(lanes: int, rows_each: int, mask: str, device: str) -> None:
    """Five rows leave guards; where a block is whole warps they lie around what lane 0 does."""
    nest = rows("max=")
    x = np.random.default_rng(3).uniform(0.0, 1.4, (5, 77)).astype(np.float32)
    schedule = narrow(nest, lanes, rows_each)
    net = pf.compile(nest, target="cuda", machine="h200", device=device, schedule=schedule)
    assert net.source.count(f"shfl_xor_sync({mask}, ") == lanes.bit_length() - 1
    np.testing.assert_array_equal(net(x), np.maximum(x.max(1), np.float32(0.5)))


def test_a_rows_lanes_exchange_in_machine_code() -> None:
    nest = rows("+=")
    net = pf.compile(nest, target="cuda", machine="h200", device="none", schedule=narrow(nest, 4, 3))
    cubin = build_kernels(net.program, (9, 0))["take"]
    assert sass(cubin).count("SHFL.BFLY") >= 2
    assert cubin.spill_stores == 0


def test_with_a_symbolic_size_rows_may_be_shorter_than_a_warp() -> None:
    nest = rows("+=", "N", "float64")
    net = pf.compile(nest, target="cuda", machine="h200", device="lockstep", schedule=by_hand(nest))
    for size in (0, 1, 31, 32, 65):
        x = np.arange(5.0 * size).reshape(5, size)
        np.testing.assert_array_equal(net(x), 0.5 + x.sum(1))


def test_on_the_simulator_lanes_meet() -> None:
    nest = rows("+=", 40)
    x = np.ones((5, 40), np.float32)
    net = pf.compile(nest, target="cuda", machine="h200", device="simulator", schedule=by_hand(nest))
    np.testing.assert_array_equal(net(x), np.full(5, 40.5))


@cache
def softmax() -> pf.Executable:
    return pf.compile(cases.pointwise(nn.Softmax(), 9, 300), target="cuda", machine="h200", device="lockstep")


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
def test_machine_code_has_the_exchanges_and_no_memory_between_them(capability: tuple[int, int]) -> None:
    (cubin,) = build_kernels(softmax().program, capability).values()
    lines = [line for line in sass(cubin).splitlines() if "SHFL.BFLY" in line]
    for bits in ("0x10", "0x8", "0x4", "0x2", "0x1"):  # again where a warp has come apart, which never runs
        assert sum(f", {bits}, 0x1f" in line for line in lines) in (2, 4), (
            "one for the maximum, one for the sum"
        )
    assert cubin.spill_stores + cubin.spill_loads == 0


def test_rows_are_a_warps_by_default_and_what_a_lane_wrote_itself_needs_no_barrier() -> None:
    net = softmax()
    lanes = {loop.body.names for loop in loops(net.schedule.tree) if loop.bind == "lane"}
    assert lanes == {("rowmax0",), ("rowsum0",)}
    (launch,) = net.program.launches
    assert launch.extents({})[1][0] == 32
    assert launch.source.count("cuda.syncthreads()") == 2  # the maximum and the inverse are for all lanes
    trace: dict[str, Any] = {"pf": pf, "nest": net.schedule.source}
    exec(net.schedule.trace(), trace)
    assert str(trace["s"]) == str(net.schedule)


@pytest.mark.parametrize(("op", "size", "threads"), [("+=", 500, 96), ("max=", 701, 160), ("*=", 300, 256)])
def test_all_warps_of_a_block_combine_what_the_oracle_does(op: str, size: int, threads: int) -> None:
    nest = rows(op, size)
    s = pf.Schedule(nest).split("take", "j", threads).reorder("take", "j_in", "j")
    s = s.bind("take", i="block.x", j_in="lane").bind("start", i="thread.x")
    x = np.random.default_rng(3).uniform(0.99, 1.01, (5, size)).astype(np.float32)
    x[3, size - 1] = np.nan
    expected = pf.interpret(nest, [x])["out"]
    for device in ("lockstep", "simulator") if threads == 96 else ("lockstep",):
        net = pf.compile(nest, target="cuda", machine="h200", device=device, schedule=s)
        np.testing.assert_allclose(net(x), expected, rtol=1e-5)
        assert net.program.source.count("cuda.syncthreads()") == 1
        assert net.program.source.count("shfl_xor_sync") == 5 + (threads // 32 - 1).bit_length()


@cache
def long_softmax() -> pf.Executable:
    return pf.compile(
        cases.pointwise(nn.Softmax(), 3, 4100), target="cuda", machine="h200", device="lockstep"
    )


def test_a_long_row_has_a_block_by_default() -> None:
    net = long_softmax()
    (launch,) = net.program.launches
    assert launch.extents({}) == ((3, 1, 1), (512, 1, 1))
    # two for each reduction's warps and one before the second's, and as many as with a warp for what lane 0 has
    assert launch.source.count("cuda.syncthreads()") == 2 + 1 + 2
    inputs, outputs = cases.draw(net.nest, np.random.default_rng(4)), cases.poisoned(net.nest)
    net(**inputs, out=outputs)
    assert cases.error(net.nest, inputs, {"out": outputs[0]}) <= cases.TOLERANCE


def test_a_long_row_is_machine_code_without_spills() -> None:
    long = pf.compile(
        cases.pointwise(nn.Softmax(), 4096, 16384), target="cuda", machine="h200", device="none"
    )
    for capability in ((8, 0), (9, 0)):
        (cubin,) = build_kernels(long.program, capability).values()
        assert cubin.registers <= 64, "two blocks of 1024 threads on an SM"
        assert cubin.spill_stores + cubin.spill_loads == 0
        assert cubin.dynamic_bytes >= 4 * 16384, "a row of exponentials in shared memory"


def test_columns_stay_with_a_thread_each() -> None:
    net = pf.compile(
        cases.reduction(lambda x: nn.sum(x, 0), 64, 40), target="cuda", machine="h200", device="none"
    )
    assert not [loop for loop in loops(net.schedule.tree) if loop.bind == "lane"]


def test_what_is_no_reduction_on_one_element_of_a_warp_is_refused() -> None:
    s = pf.Schedule(rows("+="))
    with pytest.raises(InvalidSchedule, match=r"lanes combine a reduction's values, but start is '='"):
        s.bind("start", i="lane")
    with pytest.raises(
        InvalidSchedule, match=r"take accumulates on several elements of out in one iteration"
    ):
        s.split("take", "i", 4).bind("take", i_in="lane")
    long = pf.Schedule(rows("+=", 1025))
    with pytest.raises(
        InvalidSchedule, match=r"j has values outside 0…1023, the threads of a block; split it by 32"
    ):
        long.bind("take", j="lane")
    with pytest.raises(InvalidSchedule, match=r"a whole block works on one row, but i is bound to"):
        s.bind("take", i="thread.y", j="lane")
    with pytest.raises(InvalidSchedule, match=r"lanes run along thread\.x too"):
        s.split("take", "j", 32).bind("take", i="thread.x", j_in="lane")
    whole = rows("+=", dtype="int32")
    with pytest.raises(InvalidSchedule, match="take combines int32; lanes combine floating-point numbers"):
        pf.Schedule(whole).split("take", "j", 32).bind("take", j_in="lane")


def test_a_flow_between_lanes_is_refused_with_two_instances() -> None:
    step = pf.statement("{ step[i] : 0 <= i < 31 }", "a[i + 1] += a[i]")
    nest = pf.Nest.of([pf.Tensor("a", (32,), "float32", "inout")], [step])
    with pytest.raises(IllegalSchedule, match=r"step\[0\].*step\[1\]"):
        pf.Schedule(nest).bind("step", i="lane")


def test_another_loop_on_the_lanes_axis_has_to_fit_a_warp() -> None:
    x = nn.input("x", (6, 70))
    nest = nn.lower(x / nn.sum(x, 1, keepdims=True))
    total = next(s.name for s in nest.statements if s.is_reduction)
    last = nest.statements[-1].name
    s = pf.Schedule(nest).split(total, "j", 32).reorder(total, "j_in", "j").fuse(total, last, at="i")
    s = s.split(last, "j", 64).bind(total, i="block.x", j_in="lane").bind(last, j_in="thread.x")
    with pytest.raises(InvalidSchedule, match=r"j_in on thread.x has others: split it by 32"):
        pf.compile(nest, target="cuda", machine="h200", device="none", schedule=s)


def test_validation_trusts_no_lane() -> None:
    nest = rows("+=")
    tree = by_hand(nest).synchronised().tree
    (loop,) = (x for x in loops(tree) if x.bind == "lane")
    assert unfit_lanes(nest, tree) is None
    row = next(x for x in loops(tree) if x.bind == "thread.y")
    wrong = replace_node(
        tree, row, replace(row, bind=Binding.LANE, body=replace(loop, bind=Binding.THREAD_Y))
    )
    assert "several elements" in (unfit_lanes(nest, wrong) or "")
    with pytest.raises(ValidationFailure, match="validation of places failed: take accumulates on several"):
        validate(nest, nest, wrong)


SHUFFLE = """
def k(x, out):
    t = cuda.threadIdx.x
    v = x[t]
    if t < {most}:
        v = v + cuda.shfl_xor_sync(-1, v, 1)
    out[t] = v
"""


def test_in_lock_step_all_lanes_of_a_warp_have_to_come() -> None:
    x, out = np.arange(64, dtype=np.float32), np.empty(64, np.float32)
    run(SHUFFLE.format(most=32), "k", 1, 64, [x, out])
    assert out[:3].tolist() == [1, 1, 5]
    assert out[40] == 40
    with pytest.raises(BarrierError, match="lanes exchange values under divergent control flow"):
        run(SHUFFLE.format(most=20), "k", 1, 64, [x, out])
    with pytest.raises(BarrierError, match="the block's last warp is not whole"):
        run(SHUFFLE.format(most=48), "k", 1, 48, [x, out])


def test_where_another_part_has_more_threads_those_without_a_row_give_no_sum() -> None:
    tensors = [
        pf.Tensor("a", (8, 8), "float32", "input"),
        pf.Tensor("b", (8, 8), "float32", "inout"),
        pf.Tensor("x", (4, 256), "float32", "input"),
        pf.Tensor("s", (4,), "float32", "inout"),
    ]
    each = pf.statement("{ E[i, j] : 0 <= i < 8 and 0 <= j < 8 }", "b[i, j] = a[i, j] + 1")
    rows = pf.statement("{ R[i, j] : 0 <= i < 4 and 0 <= j < 256 }", "s[i] += x[i, j]")
    made = pf.Schedule(pf.Nest.of(tensors, [each, rows])).split("R", "j", 32).reorder("R", "j_in", "j")
    made = made.bind("R", j_in="lane").bind("R", i="block.x").split("E", "i", 4)
    made = (
        made.bind("E", i="block.x", i_in="thread.y", j="thread.x").join("E", "R", loop="both").synchronised()
    )
    net = pf.compile(made.source, schedule=made, target="cuda", machine="h200", device="lockstep")
    assert "    if tx == 0 and ty == 0:\n        s[bx] += partial" in net.source
    rng = np.random.default_rng(0)
    a, b, x, s = (rng.integers(-3, 4, t.shape).astype(np.float32) for t in tensors)
    expected = s + x.sum(axis=1)
    net(a, b, x, s)
    np.testing.assert_array_equal(s, expected)
