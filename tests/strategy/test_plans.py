from __future__ import annotations

from math import prod
from types import SimpleNamespace

import pytest

from polyfuse import nn
from polyfuse.analysis.barriers import place_barriers, unsynchronised
from polyfuse.analysis.storage import buffers_of, geometry
from polyfuse.ir import Nest
from polyfuse.ir.tree import Loop, loops, parts
from polyfuse.machine import Machine
from polyfuse.schedule import Schedule, binding
from polyfuse.schedule.dump import tree_text
from polyfuse.strategy import Plan, plan_for, schedule_costs
from polyfuse.strategy.remarks import applied
from tests.support.models import CPU, CUDA, diamond, layer_norm, log_softmax, mlp, residual, softmax

NESTS = {
    "mlp": mlp(2, 128, 32),
    "small mlp": mlp(3, 64, 1),
    "softmax": softmax(),
    "log_softmax": log_softmax(),
    "layer_norm": layer_norm(),
    "residual": residual(),
    "diamond": diamond(),
}


def kernels(plan: Plan) -> int:
    assert len(plan.groups) == len(parts(plan.schedule.tree))
    return len(plan.groups)


@pytest.mark.parametrize("batch", [1, 16])
@pytest.mark.parametrize("machine", [CPU, CUDA], ids=lambda m: m.kind)
def test_eight_small_layers_become_one_kernel(machine: Machine, batch: int) -> None:
    """But for those of a CPU: several rows have tiles in registers, and a kernel costs a call some nanoseconds."""
    plan = plan_for(mlp(8, 64, batch), machine)
    assert plan.once.count(False) == (8 if machine is CPU else 1)


def test_wide_layers_become_a_kernel_each_on_cuda_and_four_of_them_one_launch() -> None:
    plans = [plan_for(mlp(layers, 384, 64), CUDA) for layers in (3, 4)]
    apart, together = (
        [tuple(s for s in group.statements if not s.startswith("load_")) for group in plan.groups]
        for plan in plans
    )
    layers = [(f"zero{k}", f"mac{k}", f"bias{k}", f"relu{k}") for k in range(4)]
    assert apart == layers[:3]
    assert together == [tuple(name for layer in layers for name in layer)]


def test_four_wide_layers_become_at_most_four_kernels_on_a_cpu() -> None:
    """In each call; the weights' panels, which are made once, take kernels of their own."""
    assert plan_for(mlp(4, 512, 64), CPU).once.count(False) <= 4


@pytest.mark.parametrize("machine", [CPU, CUDA], ids=lambda m: m.kind)
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm", "residual"])
def test_one_kernel_each(name: str, machine: Machine) -> None:
    """But for two products on a CPU, each with what follows it: microkernels save more there than a launch."""
    assert kernels(plan_for(NESTS[name], machine)) == (2 if name == "residual" and machine is CPU else 1)


@pytest.mark.parametrize("machine", [CPU, CUDA], ids=lambda m: m.kind)
@pytest.mark.parametrize(("name", "count"), [("mlp", 6), ("softmax", 5), ("layer_norm", 9), ("residual", 6)])
def test_unfused_only_initial_values_join(name: str, count: int, machine: Machine) -> None:
    plan = plan_for(NESTS[name], machine, fuse=False)
    assert kernels(plan) == count
    assert all(decision.taken for decision in plan.decisions)


@pytest.mark.parametrize("machine", [CPU, CUDA], ids=lambda m: m.kind)
@pytest.mark.parametrize("name", NESTS)
def test_fusing_is_never_slower_by_the_model(name: str, machine: Machine) -> None:
    nest = NESTS[name]
    assert plan_for(nest, machine).seconds <= plan_for(nest, machine, fuse=False).seconds


@pytest.mark.parametrize("machine", [CPU, CUDA], ids=lambda m: m.kind)
@pytest.mark.parametrize("name", NESTS)
def test_the_trace_makes_the_same_schedule(name: str, machine: Machine) -> None:
    nest = NESTS[name]
    schedule = plan_for(nest, machine).schedule
    space = {"pf": SimpleNamespace(Schedule=Schedule), "nest": nest}
    exec(schedule.trace(), space)
    again = space["s"]
    assert isinstance(again, Schedule)
    assert tree_text(again.nest, again.tree) == tree_text(schedule.nest, schedule.tree)


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("name", [*NESTS, "wide mlp"])
def test_barriers_of_cuda_plans_are_provable(name: str, fuse: bool) -> None:
    nest = mlp(2, 512, 64) if name == "wide mlp" else NESTS[name]
    schedule = plan_for(nest, CUDA, fuse=fuse).schedule
    placed = place_barriers(schedule.nest, schedule.tree)
    assert unsynchronised(schedule.nest, placed) is None


@pytest.mark.parametrize("name", [*NESTS, "wide mlp"])
def test_cuda_plans_keep_to_the_limits_of_a_block(name: str) -> None:
    nest = mlp(2, 512, 64) if name == "wide mlp" else NESTS[name]
    schedule = plan_for(nest, CUDA).schedule
    for part in parts(schedule.tree):
        places = {loop.bind for loop in loops(part)}
        assert any(place and place.startswith("block") for place in places)
        assert any(place and place.startswith("thread") for place in places)
        threads = 1
        for axis in ("thread.x", "thread.y", "thread.z"):
            threads *= max((extent(schedule.nest, x) for x in loops(part) if x.bind == axis), default=1)
        assert threads <= 1024


def extent(nest: Nest, loop: Loop) -> int:
    found = binding.extent(nest, loop)
    assert found is not None
    return found


@pytest.mark.parametrize("name", [*NESTS, "wide softmax"])
def test_cuda_plans_fit_into_static_shared_memory(name: str) -> None:
    nest = nn.lower(nn.Softmax(), batch=4096, features=(1024,)) if name == "wide softmax" else NESTS[name]
    schedule = plan_for(nest, CUDA).schedule
    for part in parts(schedule.tree):
        size = 0
        for loop, buffer in buffers_of(part):
            if buffer.memory == "shared":
                shape = geometry(schedule.nest, schedule.tree, loop, buffer).shape
                size += prod(shape) * schedule.nest.tensor(buffer.tensor).itemsize
        assert size <= 48 * 1024


def test_a_tiled_product_keeps_its_sum_in_a_register_and_its_operands_in_shared_memory() -> None:
    schedule = plan_for(mlp(1, 384, 64), CUDA).schedule
    held = {buffer.tensor: buffer.memory for loop in loops(schedule.tree) for buffer in loop.buffers}
    assert held == {"y0": "register", "z0": "register", "x_shared": "shared", "w0_shared": "shared"}


def test_on_a_cpu_a_product_is_a_microkernel() -> None:
    schedule = plan_for(mlp(1, 512, 64), CPU).schedule
    steps, rows, columns = schedule.loops("mac0")[-3:]
    assert (steps.name, steps.bind) == ("k", "microkernel")
    assert rows.name.startswith("i_in")
    assert columns.name.startswith("j_in")


def test_on_a_cpu_a_row_times_a_matrix_has_the_loop_along_memory_inside_the_contraction() -> None:
    """Also where its rows are read in order from beyond L2: in pieces of them otherwise, as a microkernel."""
    schedule = plan_for(mlp(1, 512, 1), CPU).schedule
    names = [loop.name for loop in schedule.loops("mac0")]
    assert names.index("k") < len(names) - 1
    assert names[-1] == "j_in"


def test_plans_are_deterministic() -> None:
    first, second = (plan_for(residual(), CUDA) for _ in range(2))
    assert [str(d) for d in first.decisions] == [str(d) for d in second.decisions]
    assert first.schedule.trace() == second.schedule.trace()


@pytest.mark.parametrize("machine", [CPU, CUDA], ids=lambda m: m.kind)
@pytest.mark.parametrize("name", NESTS)
def test_a_finished_schedule_is_costed_much_as_it_was_planned(name: str, machine: Machine) -> None:
    plan = plan_for(NESTS[name], machine)
    for group, cost in zip(plan.groups, schedule_costs(plan.schedule, machine), strict=True):
        assert cost.flops == group.cost.flops
        assert cost.compulsory == group.cost.compulsory
        assert cost.total == pytest.approx(group.cost.total, rel=0.5)


def test_an_empty_batch_needs_no_kernel_shape() -> None:
    plan = plan_for(mlp(1, 64, 0), CUDA)
    assert all(group.cost.flops == 0 for group in plan.groups)


def test_the_old_name_of_remarks_gives_their_texts() -> None:
    plan = plan_for(softmax(), CPU).with_remarks(applied("views", ("copy",), "copy is read through."))
    with pytest.warns(DeprecationWarning, match=r"read Plan\.remarks"):
        assert plan.recomputed[-1] == "copy is read through."
