"""The GPU side as far as a machine without a GPU can show it: refusals, and the calls made on a stand-in."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import replace
from importlib import metadata
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from polyfuse.codegen.cuda.compile.cubin import Cubin, build
from polyfuse.errors import BadArgument, DeviceFailure, OutOfDeviceMemory, TargetUnavailable
from polyfuse.runtime.cuda import driver as cuda_driver
from polyfuse.runtime.cuda.driver import Gpu, Launch, address, available, missing

CUBIN = Cubin("k", "sm_90", 8, 0, 0, 0, 0, b"code", "ptx")


def test_asking_never_raises() -> None:
    assert available() is (missing() is None)


def test_without_the_extra_the_refusal_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "find_spec", lambda name: None)
    with pytest.raises(
        TargetUnavailable, match=r"cuda-core, which is not installed: pip install polyfuse\[cuda\]"
    ):
        Gpu()


def test_without_a_driver_the_refusal_names_the_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(cuda_driver, "find_spec", lambda name: name)
    monkeypatch.setattr(ctypes, "CDLL", absent)
    with pytest.raises(TargetUnavailable, match="needs an NVIDIA GPU with its driver"):
        Gpu()


def test_a_driver_without_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = SimpleNamespace(cuInit=lambda flags: 100, cuDeviceGetCount=lambda count: 0)
    monkeypatch.setattr(cuda_driver, "find_spec", lambda name: name)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    assert missing() == "target 'cuda' needs an NVIDIA GPU; the driver reports 0 (status 100)"


@pytest.mark.parametrize(
    ("driver_is_for", "bindings"), [(12040, "13.5.0"), (13000, "13.5.0"), (13010, "12.9.1")]
)
def test_a_driver_older_than_what_is_installed_is_refused(
    monkeypatch: pytest.MonkeyPatch, driver_is_for: int, bindings: str
) -> None:
    def answer(value: int) -> Any:
        def ask(count: Any) -> int:
            ctypes.cast(count, ctypes.POINTER(ctypes.c_int))[0] = value
            return 0

        return ask

    driver = SimpleNamespace(
        cuInit=lambda flags: 0, cuDeviceGetCount=answer(1), cuDriverGetVersion=answer(driver_is_for)
    )
    monkeypatch.setattr(cuda_driver, "find_spec", lambda name: name)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    monkeypatch.setattr(metadata, "version", lambda name: bindings)
    refused = (
        "target 'cuda' needs a driver for CUDA 13.0 or newer (driver 580 or newer), as cuda-bindings 13.5.0 is "
        "installed; this one is for CUDA 12.4: update NVIDIA's driver"
    )
    assert missing() == (refused if driver_is_for == 12040 else None)


class Loaded(str):
    """A kernel by its name."""

    handle = 11
    occupancy = SimpleNamespace(max_active_blocks_per_multiprocessor=lambda threads, dynamic: 2048 // threads)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """A `cuda.core` that writes down what it is asked."""
    made: list[tuple[Any, ...]] = []
    stream = SimpleNamespace(sync=lambda: made.append(("sync",)), handle=7)
    graph = SimpleNamespace(
        upload=lambda s: made.append(("upload",)), launch=lambda s: made.append(("replay",))
    )
    builder = SimpleNamespace(begin_building=lambda: made.append(("begin",)), complete=lambda: graph)
    builder.end_building = lambda: made.append(("end",)) or builder
    device = SimpleNamespace(
        set_current=lambda: None,
        create_stream=lambda: stream,
        create_graph_builder=lambda: builder,
        allocate=lambda size, stream: SimpleNamespace(handle=4096, size=size),
        compute_capability=(9, 0),
        name="a GPU",
        device_id=0,
        properties=SimpleNamespace(multiprocessor_count=132, max_shared_memory_per_block_optin=232448),
    )

    def load(code: bytes, name: str) -> Any:
        made.append(("load", name))
        return SimpleNamespace(get_kernel=lambda entry: Loaded(entry))

    def launch(on: Any, config: Any, kernel: str, *args: Any) -> None:
        made.append(("launch", "graph" if on is builder else "stream", config, kernel, *args))

    core = ModuleType("cuda.core")
    core.__dict__.update(
        Device=lambda ordinal: device,
        LaunchConfig=lambda grid, block, shmem_size, is_cooperative: (
            (grid, block, shmem_size) + (("together",) if is_cooperative else ())
        ),
        ObjectCode=SimpleNamespace(from_cubin=load),
        launch=launch,
    )
    monkeypatch.setitem(sys.modules, "cuda.core", core)
    monkeypatch.setattr(cuda_driver, "missing", lambda: None)
    return made


def test_launches_load_once_and_do_not_wait(calls: list[tuple[Any, ...]]) -> None:
    step = Launch(CUBIN, (2, 1, 1), (32, 1, 1), (4096, 7, np.float32(0.5), 0.25))
    Gpu().launch([step, step])
    assert [c[0] for c in calls] == ["load", "launch", "launch"]
    _, on, config, kernel, *args = calls[1]
    assert (on, config, kernel) == ("stream", ((2, 1, 1), (32, 1, 1), 0), "k")
    assert [type(a) for a in args] == [ctypes.c_int64, ctypes.c_int64, ctypes.c_float, ctypes.c_double]
    assert [a.value for a in args] == [4096, 7, 0.5, 0.25]


def test_blocks_that_wait_for_each_other_are_launched_together_or_not_at_all(
    calls: list[tuple[Any, ...]],
) -> None:
    step = Launch(CUBIN, (132, 2, 1), (512, 2, 1), (4096,), together=True)
    gpu = Gpu()
    gpu.capture([step])
    assert [c[2] for c in calls if c[0] == "launch"] == [((132, 2, 1), (512, 2, 1), 0, "together")]
    with pytest.raises(TargetUnavailable) as refused:
        gpu.launch([replace(step, grid=(133, 2, 1))])
    assert str(refused.value) == (
        "the 266 blocks of kernel 'k' synchronise with each other, but a GPU can hold 264 of them at a time "
        "(2 of 1024 threads on each of 132 multiprocessors); use fewer blocks with more work each"
    )


def test_a_launch_asks_for_the_dynamic_shared_memory(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    answers = [(driver.CUresult.CUDA_SUCCESS,), (driver.CUresult.CUDA_ERROR_INVALID_VALUE,)]

    def allow(which: Any, nbytes: int, kernel: int, device: Any) -> tuple[Any]:
        calls.append(("allow", which.name, nbytes, kernel, int(device)))
        return answers.pop(0)

    monkeypatch.setattr(driver, "cuKernelSetAttribute", allow)
    step = Launch(replace(CUBIN, shared_bytes=65536, dynamic_bytes=65536), (1, 1, 1), (32, 1, 1), ())
    Gpu().launch([step, step])
    allowed = ("allow", "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", 65536, 11, 0)
    assert [c[0] for c in calls] == ["load", "allow", "launch", "launch"]
    assert calls[1] == allowed
    assert [c[2][2] for c in calls[2:]] == [65536, 65536]
    with pytest.raises(
        TargetUnavailable, match=r"'k' needs 65536 bytes of shared memory for a block, which a GPU"
    ):
        Gpu().launch([step])


def test_a_capture_loads_before_it_begins(calls: list[tuple[Any, ...]]) -> None:
    gpu = Gpu()
    graph = gpu.capture([Launch(CUBIN, (1, 1, 1), (1, 1, 1), ())] * 2)
    gpu.replay(graph)
    gpu.wait()
    order = ["load", "begin", "launch", "launch", "end", "upload", "replay", "sync"]
    assert [c[0] for c in calls] == order
    assert {c[1] for c in calls if c[0] == "launch"} == {"graph"}


def test_facts_of_the_device_and_addresses(calls: list[tuple[Any, ...]]) -> None:
    gpu = Gpu()
    assert gpu.info == cuda_driver.DeviceInfo("a GPU", (9, 0), 132, 232448)
    assert address(gpu.allocate(0)) == 4096


def test_arguments_and_copies_of_the_wrong_kind(calls: list[tuple[Any, ...]]) -> None:
    with pytest.raises(BadArgument, match="is float16"):
        Gpu().launch([Launch(CUBIN, (1, 1, 1), (1, 1, 1), (np.float16(1),))])
    pytest.importorskip("cuda.bindings")
    with pytest.raises(BadArgument, match="C-contiguous"):
        Gpu().upload(4096, np.zeros((2, 2))[:, 0])


def test_what_the_driver_refuses_is_a_failure_with_its_words(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("CUDA_ERROR_INVALID_VALUE: one of the parameters is out of range")

    gpu = Gpu()
    step = Launch(CUBIN, (2, 1, 1), (32, 1, 1), (), statements=("mac", "relu"))
    graph = gpu.capture([step])
    monkeypatch.setattr(sys.modules["cuda.core"], "launch", refuse)
    named = (
        r"kernel 'k' \(statements mac, relu\) could not be launched, grid 2 × 1 × 1.*CUDA_ERROR_INVALID_VALUE"
    )
    with pytest.raises(DeviceFailure, match=named) as refused:
        gpu.launch([step])
    assert isinstance(refused.value.__cause__, RuntimeError)
    with pytest.raises(DeviceFailure, match=named):
        gpu.capture([step])
    graph.launch = gpu._stream.sync = refuse
    with pytest.raises(DeviceFailure, match="replaying the call's graph failed: CUDA_ERROR_INVALID_VALUE"):
        gpu.replay(graph)
    with pytest.raises(DeviceFailure, match="waiting for the GPU failed: CUDA_ERROR_INVALID_VALUE"):
        gpu.wait()
    with pytest.raises(BadArgument, match="is float16"):  # our own refusals stay what they are
        gpu.launch([replace(step, args=(np.float16(1),))])


def test_without_memory_the_failure_says_how_much_is_free(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    said = ["CUDA_ERROR_OUT_OF_MEMORY: the API call failed", "CUDA_ERROR_ILLEGAL_ADDRESS: …"]

    def allocate(size: int, stream: Any) -> None:
        raise RuntimeError(said.pop(0))

    gpu = Gpu()
    monkeypatch.setattr(gpu._device, "allocate", allocate)
    monkeypatch.setattr(
        driver, "cuMemGetInfo", lambda: (driver.CUresult.CUDA_SUCCESS, 5 << 20, 80 << 30), raising=True
    )
    with pytest.raises(OutOfDeviceMemory) as none_left:
        gpu.allocate(3 << 30, use="constant w0")
    start = "no 3.0 GiB (3221225472 bytes) left on a GPU for constant w0: 5.0 MiB of 80.0 GiB are free (CUDA_ERROR_OUT"
    assert str(none_left.value).startswith(start)
    with pytest.raises(
        DeviceFailure, match="allocating 8 bytes for a buffer failed: CUDA_ERROR_ILLEGAL"
    ) as other:
        gpu.allocate(8)
    assert not isinstance(other.value, OutOfDeviceMemory)


@pytest.mark.skipif(not available(), reason="needs a GPU")
def test_a_kernel_runs() -> None:
    gpu = Gpu()
    source = "from numba import cuda\n"
    source += "def scale(x, n, a):\n    t = cuda.threadIdx.x\n    if t < n:\n        x[t] = x[t] * a\n"
    cubin = build(source, "scale", ("float32*", "int64", "float32"), cc=gpu.info.compute_capability)
    x = np.arange(8, dtype=np.float32)
    buffer = gpu.allocate(x.nbytes)
    step = Launch(cubin, (1, 1, 1), (32, 1, 1), (address(buffer), 6, np.float32(2)))
    gpu.upload(address(buffer), x)
    gpu.launch([step])
    gpu.replay(gpu.capture([step, step]))
    gpu.download(address(buffer), x)
    assert x.tolist() == [0, 8, 16, 24, 32, 40, 6, 7]
