"""A caller's GPU arrays, on a GPU that is host memory: used in place, answered in their kind, refused with reasons."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import BadArgument
from polyfuse.runtime.cuda.device_arrays import UNORDERED, check_rows
from polyfuse.runtime.cuda.runner import CAPTURED, CudaProgram
from polyfuse.runtime.emulated.host_gpu import HostGpu, Memory

utils = pytest.importorskip("cuda.core.utils")
pytest.importorskip("numba.cuda")


class Tensor:
    """An array of a made-up GPU library."""

    def __init__(self, memory: Memory, dtype: str, shape: tuple[int, ...], device: int = 0) -> None:
        self.memory, self.dtype, self.shape, self.device = memory, np.dtype(dtype), shape, device
        self.strides: tuple[int, ...] | None = None
        self.readonly, self.given = False, True

    def data_ptr(self) -> int:
        return self.memory.handle

    def stride(self) -> tuple[int, ...] | None:
        return self.strides

    def __dlpack__(self, **_: Any) -> Any:
        raise AssertionError("only the view reads it")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device

    def view(self, dtype: Any) -> Tensor:
        return Tensor(
            self.memory, np.dtype(dtype).name, (self.memory.bytes.nbytes // np.dtype(dtype).itemsize,)
        )

    def reshape(self, shape: tuple[int, ...]) -> Tensor:
        made = Tensor(self.memory, self.dtype.name, shape)
        made.given = False
        return made

    def numpy(self) -> np.ndarray[Any, Any]:
        count = int(np.prod(self.shape)) * self.dtype.itemsize
        return self.memory.bytes[:count].view(self.dtype).reshape(self.shape)


class View:
    """What cuda.core's StridedMemoryView says of a Tensor."""

    def __init__(self, value: Tensor, stream_ptr: int) -> None:
        ordered = type(value).__module__.split(".")[0] != "torch" and value.given
        assert stream_ptr == (HostGpu.stream if ordered else UNORDERED)
        self.ptr, self.shape, self.strides = value.memory.handle, value.shape, value.strides
        self.dtype, self.device_id, self.readonly = value.dtype, value.device, value.readonly


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> tuple[pf.Executable, HostGpu]:
    library = ModuleType("gpulib")
    library.from_dlpack = lambda buffer: Tensor(buffer, "uint8", (buffer.bytes.nbytes,))  # type: ignore[attr-defined]
    library.float32 = np.float32  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gpulib", library)
    monkeypatch.setattr(Tensor, "__module__", "gpulib.arrays")
    monkeypatch.setattr(utils, "StridedMemoryView", View)
    model = nn.Sequential(nn.Linear(12, 20, seed=1), nn.ReLU(), nn.Linear(20, 7, seed=2))
    compiled = pf.compile(pf.lower(model, batch=9), target="cuda", machine="h200", device="none")
    gpu = HostGpu(compiled.program)
    roles = {tensor.name: tensor.role for tensor in compiled.schedule.nest.tensors}
    compiled._runner = CudaProgram(compiled.program, gpu, roles)  # type: ignore[arg-type]
    return compiled, gpu


def put(gpu: HostGpu, array: np.ndarray[Any, Any]) -> Tensor:
    memory = gpu.allocate(array.nbytes)
    memory.bytes[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return Tensor(memory, array.dtype.name, array.shape)


def test_results_come_back_in_the_callers_kind(net: tuple[pf.Executable, HostGpu]) -> None:
    compiled, gpu = net
    for seed in range(2):
        x = np.random.default_rng(seed).standard_normal((9, 12)).astype(np.float32)
        result = compiled(put(gpu, x))
        assert isinstance(result, Tensor)
        expected = pf.interpret(compiled.nest, {"x": x})["out"]
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert gpu.captures == 0
    assert gpu.waits == 2


def test_on_the_callers_stream_nothing_waits_and_addresses_that_come_again_are_replayed(
    net: tuple[pf.Executable, HostGpu], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled, gpu = net
    library = ModuleType("torch")
    stream = SimpleNamespace(cuda_stream=41)
    library.cuda = SimpleNamespace(current_stream=lambda ordinal: stream)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", library)
    monkeypatch.setattr(Tensor, "__module__", "torch")
    x, out = put(gpu, np.ones((9, 12), np.float32)), put(gpu, np.empty((9, 7), np.float32))
    uploaded = []
    for call in range(4):
        x.numpy()[...] = values = np.random.default_rng(call).standard_normal((9, 12)).astype(np.float32)
        stream.cuda_stream = 41 if call < 3 else 43
        assert compiled(x, out=out) is out
        uploaded.append(len(gpu.uploads))
        expected = pf.interpret(compiled.nest, {"x": values})["out"]
        np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert gpu.streams == [41, 41, 41, 43]
    assert (gpu.captures, gpu.replays, gpu.waits) == (1, 2, 0)
    assert uploaded == [4, 4, 4, 8]  # the weights once for each stream, which has temporaries of its own too


def test_graphs_are_of_the_addresses_used_last_and_updated_in_place(
    net: tuple[pf.Executable, HostGpu],
) -> None:
    compiled, gpu = net
    runner = compiled._runner
    assert isinstance(runner, CudaProgram)
    addresses: list[int] = []
    x = compiled.kernels[0].tensors.index("x")
    gpu.launch = lambda launches, stream=None: addresses.append(-launches[0].args[x])  # type: ignore[method-assign]
    gpu.replay = lambda graph, stream=None: addresses.append(graph[0].args[x])  # type: ignore[method-assign]

    def call(address: int) -> int:
        runner.run_in_place({"x": 16 * address, "out": 0}, compiled._host_arrays({}), {}, 1)
        return int(addresses.pop() / 16)

    for address in range(1, CAPTURED + 1):
        assert [call(address), call(address)] == [-address, address]
    assert (gpu.captures, gpu.updates) == (CAPTURED, 0)
    assert call(1) == 1
    new = CAPTURED + 1
    assert [call(new), call(new)] == [-new, new]
    assert (gpu.captures, gpu.updates) == (CAPTURED, 1)
    assert [call(1), call(3), call(2), call(2)] == [1, 3, -2, 2], "2 was not used for longest"


def test_rows_are_checked_on_the_gpu() -> None:
    x = nn.input("x", (2, 3), "int64")
    nest = pf.lower(nn.embedding(x, np.ones((4, 5), np.float32)))
    check_rows(nest, {"x": np.array([[0, 1, 2], [3, 3, 0]])}, {})
    with pytest.raises(BadArgument, match=r"^x\[1, 0\] is 4, expected 0 <= x\[1, 0\] < 4"):
        check_rows(nest, {"x": np.array([[0, 1, 2], [4, 3, 0]])}, {})


def test_rows_of_several_tables_are_checked_by_the_column_that_chooses_them() -> None:
    x = nn.input("x", (2, 3), "int64")
    nest = pf.lower([nn.embedding(x[:, at], np.ones((rows, 5), np.float32)) for at, rows in ((0, 4), (2, 9))])
    check_rows(nest, {"x": np.array([[0, -1, 8], [3, 99, 0]])}, {})
    with pytest.raises(BadArgument, match=r"^x\[1, 2\] is 9, expected 0 <= x\[1, 2\] < 9"):
        check_rows(nest, {"x": np.array([[0, 1, 2], [3, 3, 9]])}, {})


def test_out_is_written_in_place(net: tuple[pf.Executable, HostGpu]) -> None:
    compiled, gpu = net
    x, out = np.ones((9, 12), np.float32), put(gpu, np.full((9, 7), np.nan, np.float32))
    assert compiled(put(gpu, x), out=out) is out
    np.testing.assert_allclose(
        out.numpy(), pf.interpret(compiled.nest, {"x": x})["out"], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": np.dtype("float64")}, "x: expected dtype float32, given float64"),
        ({"shape": (12,)}, "x: expected rank 2"),
        ({"shape": (8, 12)}, r"x: expected shape \[9, 12\], given \[8, 12\]"),
        ({"device": 1}, "x: the array lies on GPU 1, the executable runs on GPU 0"),
        ({"strides": (1, 9)}, r"x: strides \(1, 9\) are not C-contiguous"),
    ],
)
def test_what_does_not_fit_is_refused(
    net: tuple[pf.Executable, HostGpu], change: dict[str, Any], message: str
) -> None:
    compiled, gpu = net
    x = put(gpu, np.ones((9, 12), np.float32))
    for name, value in change.items():
        setattr(x, name, value)
    with pytest.raises(BadArgument, match=message):
        compiled(x)


def test_a_result_that_cannot_be_written_or_is_read_too_is_refused(
    net: tuple[pf.Executable, HostGpu],
) -> None:
    compiled, gpu = net
    x, out = put(gpu, np.ones((9, 12), np.float32)), put(gpu, np.ones((9, 7), np.float32))
    out.readonly = True
    with pytest.raises(BadArgument, match="out is written, and the array given for it is read-only"):
        compiled(x, out=out)
    with pytest.raises(BadArgument, match="out for out shares memory with x"):
        compiled(x, out=Tensor(x.memory, "float32", (9, 7)))


def test_what_is_accessed_16_bytes_at_a_time_has_to_begin_so() -> None:
    model = nn.Sequential(nn.Linear(64, 64, seed=1), nn.ReLU())
    program = pf.compile(pf.lower(model, batch=32), target="cuda", machine="h200", device="none").program
    (launch,) = program.launches
    wide = {launch.tensors[position] for position in launch.code.wide}
    assert wide == {"w0", "b0", "out"}, "x is copied number by number, ahead"
    runner = CudaProgram(program, HostGpu(program), {})  # type: ignore[arg-type]
    runner._check_alignment({"x": 4100, "out": 4112})
    with pytest.raises(BadArgument, match="out begins at 0x1004, no multiple of 16 bytes"):
        runner._check_alignment({"x": 4096, "out": 4100})


def test_a_cpu_executable_refuses_a_gpu_array() -> None:
    compiled = pf.compile(pf.lower(nn.Linear(3, 2), batch=4), target="cpu")
    x = Tensor(Memory(np.zeros(48, np.uint8)), "float32", (4, 3))
    with pytest.raises(BadArgument, match="lies on device 2:0, this executable runs on the CPU"):
        compiled(x)
