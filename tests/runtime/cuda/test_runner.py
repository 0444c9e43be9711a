"""Programs on a GPU, with a GPU that is host memory and runs its kernels in lock-step: what is copied when, which
addresses a graph is captured with, and that a replay gives the oracle's result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.checks import cuda_cases as cases
from polyfuse.errors import TargetUnavailable
from polyfuse.runtime import executable
from polyfuse.runtime.cuda.driver import Gpu, available
from polyfuse.runtime.cuda.runner import CudaProgram
from polyfuse.runtime.emulated.host_gpu import HostGpu

pytest.importorskip("cuda.core")
pytest.importorskip("numba.cuda")


def on_host_gpu(nest: pf.Nest, fuse: bool = True) -> tuple[pf.Executable, HostGpu]:
    net = pf.compile(nest, target="cuda", machine="h200", device="none", fuse=fuse)
    gpu = HostGpu(net.program)
    roles = {tensor.name: tensor.role for tensor in net.schedule.nest.tensors}
    net._runner = CudaProgram(net.program, gpu, roles)  # type: ignore[arg-type]
    return net, gpu


@pytest.mark.parametrize("fuse", [True, False])
def test_a_graph_is_captured_once_and_replayed(fuse: bool) -> None:
    nest = cases.dense(12, 20, 7, batch=9)
    net, gpu = on_host_gpu(nest, fuse)
    for seed in range(3):
        inputs, outputs = cases.draw(nest, np.random.default_rng(seed)), cases.poisoned(nest)
        net(**inputs, out=outputs)
        assert cases.error(nest, inputs, {"out": outputs[0]}) <= cases.TOLERANCE
    assert (gpu.captures, gpu.replays) == (1, 3)


def test_constants_go_to_the_device_once_and_again_when_replaced() -> None:
    nest = nn.lower(nn.Linear(6, 3, seed=1), batch=4)
    net, gpu = on_host_gpu(nest)
    x = np.ones((4, 6), np.float32)
    net(x)
    assert len(gpu.uploads) == 4  # x, w0, b0, out
    net(x)
    assert len(gpu.uploads) == 6
    net.replace_constants({"w0": np.full((6, 3), 2, np.float32), "b0": np.zeros(3, np.float32)})
    np.testing.assert_array_equal(net(x), np.full((4, 3), 12))


def test_inputs_that_overlap_in_one_call_and_not_in_the_next() -> None:
    x, y = nn.input("x", (8,)), nn.input("y", (8,))
    net, _ = on_host_gpu(nn.lower(x - y))
    both = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(net(both, both), np.zeros(8))
    np.testing.assert_array_equal(net(both, np.zeros(8, np.float32)), both)


def test_a_read_only_input_that_changes_is_copied_again() -> None:
    net, _ = on_host_gpu(cases.pointwise(nn.ReLU(), 2, 3))
    values = np.ones((2, 3), np.float32)
    fixed = values.view()
    fixed.flags.writeable = False
    net(fixed)
    values[:] = 5
    np.testing.assert_array_equal(net(fixed), values)


def test_each_set_of_sizes_has_its_own_buffers() -> None:
    scale = pf.statement("[N] -> { scale[i] : 0 <= i < N }", "b[i] = a[i] * c[0]")
    tensors = [
        pf.Tensor("a", ("N",), "float32", "input"),
        pf.Tensor("c", (1,), "float32", "constant"),
        pf.Tensor("b", ("N",), "float32", "output"),
    ]
    constants = {"c": np.full(1, 3, np.float32)}
    nest = pf.Nest.of(tensors, [scale], context="[N] -> { : N >= 0 }", constants=constants)
    net, gpu = on_host_gpu(nest)
    for size in (4, 70, 4):
        np.testing.assert_array_equal(net(np.ones(size, np.float32)), np.full(size, 3))
    assert gpu.captures == 2


def test_an_inout_comes_back_changed() -> None:
    step = pf.statement("{ step[i] : 0 <= i < 5 }", "a[i] = a[i] + b[i]")
    tensors = [pf.Tensor("a", (5,), "float64", "inout"), pf.Tensor("b", (5,), "float64", "input")]
    net, _ = on_host_gpu(pf.Nest.of(tensors, [step]))
    a = np.arange(5.0)
    net(a, np.ones(5))
    np.testing.assert_array_equal(a, np.arange(5.0) + 1)


def test_an_empty_batch_launches_nothing_and_returns() -> None:
    net, gpu = on_host_gpu(cases.dense(8, 8, batch=0))
    assert net(np.empty((0, 8), np.float32)).shape == (0, 8)
    assert gpu.replays == 1


def test_a_launch_over_less_than_nothing_is_left_out() -> None:
    tensors = (pf.Tensor("a", ("M + 4",), "float64", "inout"),)
    step = pf.statement("[M] -> { S[i] : 2 <= i < M - 1 }", "a[i] = 2 * a[i]")
    net, _ = on_host_gpu(pf.Nest.of(tensors, [step], context="[M] -> { : M > 0 }"))
    for m in (1, 2, 3, 4, 200):
        (grid, block), a = net.kernels[0].extents({"M": m}), np.arange(m + 4.0)
        assert min(*grid, *block) >= 0
        net(a)
        expected = np.arange(m + 4.0)
        expected[2 : max(2, m - 1)] *= 2
        np.testing.assert_array_equal(a, expected)
    assert net.report({"M": 1}).kernel_times[0].blocks == 0


@pytest.mark.skipif(available(), reason="there is a GPU")
def test_without_a_gpu_it_is_refused() -> None:
    with pytest.raises(TargetUnavailable, match="target 'cuda' needs"):
        Gpu()


def test_what_depends_on_constants_alone_runs_once_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    w = nn.constant(np.arange(24, dtype=np.float32).reshape(4, 6))
    nest = nn.lower(nn.matmul(nn.input("x", (3, 4)), nn.softmax(w)))
    made = pf.compile(nest, target="cuda", machine="h200", device="none", fuse=False)
    assert [launch.once for launch in made.kernels].count(False) < len(made.kernels)
    gpus: list[HostGpu] = []

    def gpu() -> HostGpu:
        gpus.append(HostGpu(made.program))
        return gpus[-1]

    monkeypatch.setattr(executable, "Gpu", gpu)
    net = pf.Executable.of(replace(made.compiled, device="gpu"))
    (name,) = nest.constants
    for value in (nest.constants[name], np.ones((4, 6), np.float32)):
        net.replace_constants({name: value})
        for seed in range(2):
            given = np.random.default_rng(seed).standard_normal((3, 4)).astype(np.float32)
            expected = pf.interpret(nest.with_constants({name: value}), {"x": given})
            np.testing.assert_allclose(net(given), next(iter(expected.values())), rtol=1e-5)
    calls, *once = gpus
    assert (calls.replays, [gpu.replays for gpu in once]) == (4, [1, 1])
