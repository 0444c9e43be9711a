"""What fails on a GPU, on one that is host memory: errors that name the kernel, its statements, the buffer."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.runtime.cuda.device_failures import launch_failed, no_memory, step_failed
from polyfuse.runtime.cuda.driver import Launch
from polyfuse.runtime.cuda.runner import CudaProgram
from polyfuse.runtime.emulated.host_gpu import HostGpu, Memory

pytest.importorskip("cuda.core")
pytest.importorskip("numba.cuda")

X = np.ones((4, 6), np.float32)


class FailingGpu(HostGpu):
    """A stand-in on which one kind of request fails, a number of times."""

    failing: str = ""
    times = 1

    def _fail(self, kind: str, error: pf.DeviceFailure) -> None:
        if self.failing == kind and self.times:
            self.times -= 1
            raise error

    def allocate(self, nbytes: int, stream: int | None = None, use: str = "a buffer") -> Memory:
        self._fail(
            f"allocate {use.split(',')[0]}",
            no_memory(nbytes, use, "host", (1 << 20, 3 << 30), "CUDA_ERROR_OUT"),
        )
        return super().allocate(nbytes, stream, use)

    def capture(self, launches: Sequence[Launch]) -> list[Launch]:
        first = launches[0]
        said = launch_failed(
            first.kernel.entry, first.statements, first.grid, first.block, 0, "CUDA_ERROR_INVALID_VALUE"
        )
        self._fail("capture", said)
        return super().capture(launches)

    def download(self, address: int, array: Any) -> None:
        self._fail("download", step_failed("waiting for the GPU", "CUDA_ERROR_ILLEGAL_ADDRESS: it was read"))
        super().download(address, array)

    def wait(self, stream: int | None = None) -> None:
        self._fail("wait", step_failed("waiting for the GPU", "CUDA_ERROR_LAUNCH_FAILED: …"))
        super().wait(stream)


def failing(kind: str) -> tuple[pf.Executable, FailingGpu]:
    model = nn.Sequential(nn.Linear(6, 3, seed=1), nn.Softmax())
    net = pf.compile(nn.lower(model, batch=4), target="cuda", machine="h200", device="none", fuse=False)
    gpu = FailingGpu(net.program)
    gpu.failing = kind
    roles = {tensor.name: tensor.role for tensor in net.schedule.nest.tensors}
    net._runner = CudaProgram(net.program, gpu, roles)  # type: ignore[arg-type]
    return net, gpu


def right(net: pf.Executable) -> None:
    np.testing.assert_allclose(net(X), pf.interpret(net.nest, {"x": X})["out"], rtol=1e-5)


def test_a_refused_launch_names_its_kernel_and_statements() -> None:
    net, _ = failing("capture")
    first = net.kernels[0]
    with pytest.raises(pf.DeviceFailure) as refused:
        net(X)
    message = str(refused.value)
    assert (
        f"kernel {first.name!r} (statements {', '.join(first.statements)}) could not be launched" in message
    )
    assert "CUDA_ERROR_INVALID_VALUE" in message
    assert refused.value.kernels == (first.name,)
    right(net)  # nothing of the failed call is left


def test_what_a_wait_finds_names_all_kernels_of_the_call() -> None:
    net, _ = failing("download")
    with pytest.raises(pf.DeviceFailure, match="CUDA_ERROR_ILLEGAL_ADDRESS: it was read") as found:
        net(X)
    assert found.value.kernels == tuple(dict.fromkeys(launch.name for launch in net.kernels))
    assert len(found.value.kernels) > 1
    for launch in net.kernels:
        for statement in launch.statements:
            assert statement in str(found.value)
    assert "compute-sanitizer" in str(found.value)
    assert "process has to be started anew" in str(found.value)
    again = pickle.loads(pickle.dumps(found.value))
    assert (str(again), again.kernels) == (str(found.value), found.value.kernels)


def test_a_wait_after_work_in_place_names_the_kernels_too() -> None:
    net, gpu = failing("wait")
    assert isinstance(net._runner, CudaProgram)
    given = {name: gpu.allocate(4 * size).handle for name, size in (("x", 24), ("out", 12))}
    with pytest.raises(pf.DeviceFailure, match=f"The kernels of this call: kernel '{net.kernels[0].name}'"):
        net._runner.run_in_place(given, net._host_arrays({}), {})


@pytest.mark.parametrize(
    ("kind", "use"),
    [
        ("allocate constant w0", r"^no 72 B \(72 bytes\) left on host for constant w0, float32 \[6, 3\]"),
        ("allocate the temporaries", "left on host for the temporaries "),
        ("allocate output out", r"output out, float32 \[4, 3\]"),
    ],
)
def test_without_memory_the_buffer_is_named_and_the_next_call_is_right(kind: str, use: str) -> None:
    net, gpu = failing(kind)
    if kind.endswith("temporaries"):
        gpu.failing = f"allocate the temporaries {net._runner._temporaries().split(',')[0]}"  # type: ignore[union-attr]
    with pytest.raises(pf.OutOfDeviceMemory, match=use) as none_left:
        net(X)
    assert isinstance(none_left.value, MemoryError)
    assert "1.0 MiB of 3.0 GiB are free" in str(none_left.value)
    assert "out= that are used again" in str(none_left.value)
    right(net)


def test_without_memory_in_place_the_next_call_has_every_buffer() -> None:
    net, gpu = failing("allocate constant b0")
    runner = net._runner
    assert isinstance(runner, CudaProgram)
    x, out = gpu.allocate(X.nbytes), gpu.allocate(4 * 12)
    x.bytes[:] = X.reshape(-1).view(np.uint8)
    given = {"x": x.handle, "out": out.handle}
    with pytest.raises(pf.OutOfDeviceMemory, match="constant b0"):
        runner.run_in_place(given, net._host_arrays({}), {})
    runner.run_in_place(given, net._host_arrays({}), {})
    expected = pf.interpret(net.nest, {"x": X})["out"]
    np.testing.assert_allclose(out.bytes.view(np.float32).reshape(4, 3), expected, rtol=1e-5)


def test_a_launch_that_finds_an_earlier_failure_says_so() -> None:
    found = launch_failed("k", ("mac",), (2, 1, 1), (32, 2, 1), 0, "CUDA_ERROR_MISALIGNED_ADDRESS: …")
    assert "grid 2 × 1 × 1, block 32 × 2 × 1 (64 threads)" in str(found)
    assert "it may have been an earlier kernel" in str(found)
    refused = launch_failed("k", ("mac",), (2, 1, 1), (32, 2, 1), 0, "CUDA_ERROR_INVALID_VALUE: …")
    assert "before" not in str(refused)
