"""Which machine plans are made for where a GPU is found, by a driver that is made up."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import TargetUnavailable
from polyfuse.machine import GiB, KiB, Machine
from polyfuse.runtime.cuda import driver as cuda_driver
from polyfuse.runtime.cuda.driver import DeviceInfo
from polyfuse.runtime.cuda.gpu_here import GpuFacts, gpu_facts, machine_for
from polyfuse.runtime.cuda.runner import CudaProgram, build_for
from polyfuse.runtime.emulated.host_gpu import HostGpu

H200 = GpuFacts("NVIDIA H200", (9, 0), 132, 140 * GiB, 65536, 227 * KiB, 228 * KiB, 2048, 32)
A100 = GpuFacts("NVIDIA A100-SXM4-80GB", (8, 0), 108, 80 * GiB, 65536, 163 * KiB, 164 * KiB, 2048, 32)
RTX4090 = GpuFacts("NVIDIA GeForce RTX 4090", (8, 9), 128, 24 * GiB, 65536, 99 * KiB, 100 * KiB, 1536, 24)


def driver(facts: GpuFacts) -> Any:
    """A driver's library that answers as the real one, through pointers."""
    attributes = {
        16: facts.multiprocessors,
        75: facts.compute_capability[0],
        76: facts.compute_capability[1],
        39: facts.max_threads_per_sm,
        81: facts.shared_per_sm,
        82: facts.registers_per_sm,
        97: facts.shared_per_block,
        106: facts.max_blocks_per_sm,
    }

    def put(kind: Any, pointer: Any, value: int) -> int:
        ctypes.cast(pointer, ctypes.POINTER(kind))[0] = value
        return 0

    def name(buffer: Any, size: int, device: Any) -> int:
        buffer.value = facts.name.encode()
        return 0

    return SimpleNamespace(
        cuInit=lambda flags: 0,
        cuDeviceGetCount=lambda count: put(ctypes.c_int, count, 1),
        cuDriverGetVersion=lambda version: put(ctypes.c_int, version, 99000),
        cuDeviceGet=lambda device, ordinal: put(ctypes.c_int, device, ordinal),
        cuDeviceGetName=name,
        cuDeviceTotalMem_v2=lambda size, device: put(ctypes.c_size_t, size, facts.memory),
        cuDeviceGetAttribute=lambda found, which, device: put(ctypes.c_int, found, attributes[which]),
    )


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let a GPU be found."""

    def found(facts: GpuFacts) -> None:
        monkeypatch.setattr(cuda_driver, "find_spec", lambda name: name)
        monkeypatch.setattr(ctypes, "CDLL", lambda name: driver(facts))

    return found


@pytest.mark.parametrize("facts", [H200, A100, RTX4090])
def test_the_driver_is_asked_what_a_gpu_is(facts: GpuFacts) -> None:
    assert gpu_facts(driver(facts)) == facts
    silent = driver(facts)
    silent.cuDeviceGet = lambda device, ordinal: 101
    assert gpu_facts(silent) is None


@pytest.mark.parametrize(
    ("facts", "preset"),
    [
        (H200, "h200"),
        (replace(H200, name="NVIDIA H100 80GB HBM3", memory=80 * GiB), "h100"),
        (A100, "a100"),
        (RTX4090, "rtx4090"),
    ],
)
def test_a_gpu_that_has_a_preset_is_planned_for_as_it(facts: GpuFacts, preset: str) -> None:
    machine = machine_for(facts)
    assert replace(machine, chosen_for="") == Machine.preset(preset)
    assert machine.label == f"{preset}, chosen for {facts}"


def test_another_gpu_has_the_rates_of_the_nearest_preset_and_its_own_limits() -> None:
    slice_of = replace(H200, name="NVIDIA H100 PCIe", multiprocessors=114, memory=80 * GiB)
    machine = machine_for(slice_of)
    assert (machine.name, machine.sms) == ("h100", 114)
    assert {level.drawn_by for level in machine.levels} == {114}
    a10 = machine_for(replace(RTX4090, name="NVIDIA A10", compute_capability=(8, 6), multiprocessors=72))
    assert (a10.name, a10.sms) == ("rtx4090", 72)
    assert a10.gpu is not None
    assert a10.gpu.compute_capability == (8, 6)
    with pytest.raises(TargetUnavailable, match=r"capability 8.0 and newer, and Tesla T4 has 7.5"):
        machine_for(replace(RTX4090, name="Tesla T4", compute_capability=(7, 5)))


def test_compile_plans_for_the_gpu_that_is_here_and_the_report_says_so(found: Any) -> None:
    found(A100)
    nest = pf.lower(nn.Linear(512, 512), batch=512)
    net = pf.compile(nest, target="cuda", device="none", math="bf16")
    assert "chosen for NVIDIA A100-SXM4-80GB, compute capability 8.0, 108 SMs" in str(net.report())
    assert "on a100, chosen for NVIDIA A100" in net.explain()
    assert "wgmma" not in net.source
    named = pf.compile(nest, target="cuda", device="none", math="bf16", machine="h200")
    assert "chosen for" not in str(named.report())
    assert pf.compile(nest, target="cuda", device="lockstep").compiled.machine == Machine.preset("h200")


@pytest.mark.parametrize(
    ("device", "message"),
    [
        (
            DeviceInfo("A100", (8, 0), 108, 163 * KiB),
            r"sm_90a and of no other GPU, and this is sm_80: A100 \(compute capability 8.0\); compile for this GPU",
        ),
        (
            DeviceInfo("a small one", (9, 0), 132, 16 * KiB),
            r"kernel '\w+' \(statements .*\) needs \d+ bytes of shared memory for a block, and a small one "
            r"\(compute capability 9.0\) gives one 16384; compile for this GPU: leave machine= out",
        ),
    ],
)
def test_a_plan_for_another_gpu_is_refused_with_both_named(device: DeviceInfo, message: str) -> None:
    pytest.importorskip("numba.cuda")
    nest = pf.lower(nn.Linear(1024, 1024), batch=1024)
    net = pf.compile(nest, target="cuda", device="none", math="bf16", machine="h200")
    gpu = HostGpu(net.program)
    gpu.info = device
    with pytest.raises(TargetUnavailable, match=message):
        CudaProgram(net.program, gpu, {})  # type: ignore[arg-type]
    small = pf.compile(pf.lower(nn.Linear(8, 8), batch=8), target="cuda", device="none", machine="h200")
    assert build_for(small.program, device).keys() == {code.name for code in small.program.codes}
