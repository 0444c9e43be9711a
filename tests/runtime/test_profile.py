"""Profiles: one measured time per launch of a call, and no argument changed."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.checks import cuda_cases as cases
from polyfuse.errors import BadArgument, TargetUnavailable
from polyfuse.runtime.cuda.runner import CudaProgram
from polyfuse.runtime.emulated.host_gpu import HostGpu

# ruff: noqa: F821


@pf.nest
def doubled(a: f64[N], b: f64[N]):
    for i in range(N):
        a[i] = a[i] + b[i]
    for i in range(N):
        b[i] = 2.0 * a[i]


def test_each_kernel_has_a_time_a_prediction_and_a_bound() -> None:
    nest = pf.lower(nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 16)), batch=8)
    net = pf.compile(nest, target="cpu", machine="zen5", fuse=False)
    profile = net.profile(np.ones((8, 32), np.float32), turns=2, pause=0)
    assert [kernel.statements for kernel in profile.kernels] == [
        launch.statements for launch in net.kernels if not launch.once
    ]
    assert profile.predicted == pytest.approx(net.report().predicted_seconds)
    assert sum(kernel.flops for kernel in profile.kernels) == net.report().flops
    for kernel in profile.kernels:
        assert kernel.measured.turns == 2
        assert 0 < kernel.seconds < 1
        assert kernel.bound <= kernel.predicted
    assert sum(kernel.measured.best for kernel in profile.kernels) <= profile.measured.high * 1.01
    assert str(profile).splitlines()[1].split()[:3] == ["kernel", "measured", "predicted"]
    assert repr(profile).startswith("<Profile on cpu (zen5): ")
    assert "\n" not in repr(profile)
    assert profile._repr_html_().count("<tr>") == 2 + len(profile.kernels)
    assert str(profile).splitlines()[-1] == str(profile.counts) != ""


def test_arrays_that_a_call_changes_keep_their_values() -> None:
    net = pf.compile(doubled, target="cpu", machine="zen5")
    a, b = np.arange(64.0), np.ones(64)
    profile = net.profile(a, b, turns=1, pause=0)
    np.testing.assert_array_equal(a, np.arange(64.0))
    np.testing.assert_array_equal(b, np.ones(64))
    assert profile.sizes == {"N": 64}
    assert profile.predicted is None  # the model counted for another N
    known = pf.compile(doubled, target="cpu", machine="zen5", sizes=[64, "N"]).profile(a, b, turns=1, pause=0)
    assert known.predicted is not None


def test_new_constants_are_measured() -> None:
    net = pf.compile(nn.lower(nn.Linear(6, 3), batch=4), target="cpu")
    x = np.ones((4, 6), np.float32)
    net.profile(x, turns=1, pause=0)
    net.replace_constants({"w0": np.zeros((6, 3), np.float32)})
    assert len(net.profile(x, turns=1, pause=0).kernels) == len([k for k in net.kernels if not k.once])


def test_a_gpu_has_events_between_its_launches() -> None:
    pytest.importorskip("cuda.core")
    pytest.importorskip("numba.cuda")
    nest = cases.dense(6, 5, batch=3)
    net = pf.compile(nest, target="cuda", machine="h200", device="none", fuse=False)
    roles = {tensor.name: tensor.role for tensor in net.schedule.nest.tensors}
    net._runner = CudaProgram(net.program, HostGpu(net.program), roles)  # type: ignore[arg-type]
    profile = net.profile(**cases.draw(nest, np.random.default_rng(0)), turns=1, pause=0)
    assert len(profile.kernels) == len(net.kernels)


def test_what_has_no_times_is_refused() -> None:
    nest = nn.lower(nn.Linear(6, 3), batch=4)
    read = pf.compile(nest, target="cuda", machine="h200", device="none")
    with pytest.raises(TargetUnavailable, match="compiled for reading only"):
        read.profile(np.ones((4, 6), np.float32))
    with pytest.raises(BadArgument, match="turns=0"):
        pf.compile(nest, target="cpu").profile(np.ones((4, 6), np.float32), turns=0)
