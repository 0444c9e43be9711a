"""Calls on GPU arrays that come again: straight to their graph, and checked in full whenever anything is different."""

from __future__ import annotations

import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.runtime import executable as executable_module
from polyfuse.runtime.cuda.runner import CAPTURED, CudaProgram
from polyfuse.runtime.emulated.host_gpu import HostGpu, Memory

utils = pytest.importorskip("cuda.core.utils")
pytest.importorskip("numba.cuda")


class Tensor:
    """torch's array as far as a call asks it."""

    def __init__(self, memory: Memory, dtype: str, shape: tuple[int, ...]) -> None:
        self.memory, self.dtype, self.shape = memory, dtype, shape
        self.device, self.strides = "cuda:0", None

    def __dlpack__(self, **_: Any) -> Any:
        raise AssertionError("only the view reads it")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, int(self.device[-1])

    def data_ptr(self) -> int:
        return self.memory.handle

    def stride(self) -> Any:
        return self.strides

    def numpy(self) -> Any:
        return self.memory.bytes.view(self.dtype)[: int(np.prod(self.shape))].reshape(self.shape)


class View:
    """What cuda.core says of one."""

    def __init__(self, value: Tensor, stream_ptr: int) -> None:
        self.ptr, self.shape, self.strides = value.data_ptr(), value.shape, value.strides
        self.dtype, self.device_id, self.readonly = np.dtype(value.dtype), int(value.device[-1]), False


class Bench:
    """An executable on a stand-in, torch's allocator on the same memory, and how often a call was checked in full."""

    def __init__(self, nest: pf.Nest, monkeypatch: pytest.MonkeyPatch) -> None:
        self.net = pf.compile(nest, target="cuda", machine="h200", device="none")
        self.gpu = HostGpu(self.net.program)
        self.stream, self.full, self.spare = SimpleNamespace(cuda_stream=41), 0, {}
        roles = {tensor.name: tensor.role for tensor in self.net.schedule.nest.tensors}
        self.net._runner = CudaProgram(self.net.program, self.gpu, roles)  # type: ignore[arg-type]
        self.net._direct = self.net._new_direct()
        library = ModuleType("torch")
        library.cuda = SimpleNamespace(current_stream=lambda ordinal: self.stream)  # type: ignore[attr-defined]
        library.empty = self.empty  # type: ignore[attr-defined]
        for name in ("float16", "bfloat16", "float32", "float64"):
            setattr(library, name, name)
        monkeypatch.setitem(sys.modules, "torch", library)
        monkeypatch.setattr(Tensor, "__module__", "torch")
        monkeypatch.setattr(utils, "StridedMemoryView", View)
        whole = executable_module.call_in_place

        def counted(*args: Any) -> Any:
            self.full += 1
            return whole(*args)

        monkeypatch.setattr(executable_module, "call_in_place", counted)

    def empty(self, shape: tuple[int, ...], dtype: str, device: Any) -> Tensor:
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        free = self.spare.get(nbytes)
        memory = free.pop() if free else self.gpu.allocate(nbytes)
        memory.bytes[:] = 0xFF
        return Tensor(memory, dtype, shape)

    def put(self, values: Any) -> Tensor:
        made = self.empty(values.shape, values.dtype.name, "cuda:0")
        made.numpy()[...] = values
        return made

    def free(self, tensor: Tensor) -> None:
        self.spare.setdefault(tensor.memory.bytes.nbytes, []).append(tensor.memory)


def draw(seed: int, dtype: str = "float32", rows: int = 9) -> Any:
    return np.random.default_rng(seed).standard_normal((rows, 12)).astype(dtype)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    model = nn.Sequential(nn.Linear(12, 20, seed=1), nn.ReLU(), nn.Linear(20, 7, seed=2))
    return Bench(pf.lower(model, batch=9), monkeypatch)


def right(bench: Bench, result: Tensor, values: Any) -> None:
    expected = pf.interpret(bench.net.nest.with_constants(bench.net.constants), {"x": values})["out"]
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_with_out_a_call_that_comes_again_is_a_replay_alone(bench: Bench) -> None:
    x, out = bench.put(draw(0)), bench.put(np.empty((9, 7), np.float32))
    for call in range(5):
        x.numpy()[...] = draw(call)
        assert (bench.net(x, out=out) if call % 2 else bench.net(x=x, out=out)) is out
        right(bench, out, draw(call))
    assert (bench.full, bench.gpu.captures, bench.gpu.replays, bench.gpu.waits) == (1, 1, 4, 0)


def test_new_results_are_the_librarys_own_and_the_graph_is_that_of_their_addresses(bench: Bench) -> None:
    x = bench.put(draw(0))
    kept = bench.net(x)
    right(bench, kept, draw(0))
    for call in range(1, 5):
        x.numpy()[...] = draw(call)
        result = bench.net(x)
        right(bench, result, draw(call))
        bench.free(result)  # the next call gets this memory again
    right(bench, kept, draw(0))
    assert bench.full == 1
    assert bench.gpu.captures == 1
    assert bench.gpu.replays == 3


def test_another_array_in_the_same_place_is_right(bench: Bench) -> None:
    out = bench.put(np.empty((9, 7), np.float32))
    for call in range(4):
        x = bench.put(draw(call))
        right(bench, bench.net(x, out=out), draw(call))
        bench.free(x)
    assert bench.full == 1
    elsewhere = bench.put(draw(7)), bench.put(draw(8))
    for call, x in ((7, elsewhere[0]), (8, elsewhere[1]), (7, elsewhere[0])):
        right(bench, bench.net(x, out=out), draw(call))
    assert bench.full == 2  # the first of the two lies where the freed one lay


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": (12, 9)}, "expected shape"),
        ({"strides": (1, 9)}, "not C-contiguous"),
        ({"dtype": "float64"}, "expected dtype float32"),
        ({"device": "cuda:1"}, "lies on GPU 1"),
    ],
)
def test_another_array_at_the_same_address_is_checked(bench: Bench, change: Any, message: str) -> None:
    x, out = bench.put(draw(0)), bench.put(np.empty((9, 7), np.float32))
    for _ in range(3):
        bench.net(x, out=out)
    other = Tensor(x.memory, "float32", (9, 12))
    for name, value in change.items():
        setattr(other, name, value)
    replays = bench.gpu.replays
    with pytest.raises(pf.BadArgument, match=message):
        bench.net(other, out=out)
    with pytest.raises(pf.BadArgument, match="the other arrays lie on the GPU"):
        bench.net(x, out=np.empty((9, 7), np.float32))
    with pytest.raises(pf.BadArgument, match="given 2 positional arguments for 1 input"):
        bench.net(x, x, out=out)
    assert bench.gpu.replays == replays


def test_another_stream_is_another_call(bench: Bench) -> None:
    x, out = bench.put(draw(0)), bench.put(np.empty((9, 7), np.float32))
    streams = [41, 41, 43, 43, 41, 43]
    for stream in streams:
        bench.stream.cuda_stream = stream
        bench.net(x, out=out)
        right(bench, out, draw(0))
    assert bench.gpu.streams == streams
    assert bench.full == 2
    assert len(bench.gpu.uploads) == 8  # the weights of each stream


def test_new_constants_are_seen_by_calls_that_are_known(bench: Bench) -> None:
    x, out = bench.put(draw(0)), bench.put(np.empty((9, 7), np.float32))
    for call in range(6):
        if call in (2, 4):
            bench.net.replace_constants({"w0": np.full((12, 20), call, np.float32)})
        right(bench, bench.net(x, out=out), draw(0))
    assert bench.full == 3


def test_constants_of_a_call_that_began_before_are_not_taken_for_the_new_ones(bench: Bench) -> None:
    x, out = bench.put(draw(0)), bench.put(np.empty((9, 7), np.float32))
    bench.net(x, out=out)
    runner, old = bench.net._runner, bench.net._host_arrays({})
    assert isinstance(runner, CudaProgram)
    before = bench.net._direct
    bench.net.replace_constants({"w0": np.full((12, 20), 3, np.float32)})
    right(bench, bench.net(x, out=out), draw(0))
    given = {"x": x.data_ptr(), "out": out.data_ptr()}
    runner.run_in_place(
        given, old, {}, 41, owner=before
    )  # a thread that was slow has the old ones uploaded again
    right(bench, bench.net(x, out=out), draw(0))


def test_graphs_that_were_given_up_come_back(bench: Bench) -> None:
    out = bench.put(np.empty((9, 7), np.float32))
    arrays = [bench.put(draw(seed)) for seed in range(CAPTURED + 2)]
    for _ in range(2):
        for x in arrays:
            bench.net(x, out=out)
    full = bench.full
    for seed in (0, 1, 0, CAPTURED + 1):
        right(bench, bench.net(arrays[seed], out=out), draw(seed))
    assert (full, bench.full) == (len(arrays), len(arrays))


def test_threads_get_their_own_results(bench: Bench) -> None:
    given = [(bench.put(draw(seed)), bench.put(np.empty((9, 7), np.float32)), seed) for seed in range(4)]
    failures: list[BaseException] = []

    def work(x: Tensor, out: Tensor, seed: int) -> None:
        try:
            for call in range(6):
                right(bench, bench.net(x, out=out) if call % 2 else bench.net(x), draw(seed))
        except BaseException as error:  # noqa: BLE001 — shown by the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=each) for each in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_rows_of_a_table_are_checked_in_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    nest = pf.lower(nn.embedding(nn.input("x", (2, 3), "int64"), np.ones((4, 5), np.float32)))
    bench = Bench(nest, monkeypatch)
    checked: list[Any] = []
    from polyfuse.runtime.cuda import device_arrays

    monkeypatch.setattr(device_arrays, "check_rows", lambda nest, given, sizes: checked.append(given))
    (result,) = nest.results
    x = bench.put(np.zeros((2, 3), np.int64))
    out = bench.put(np.empty(result.shape, np.float32))
    for _ in range(3):
        bench.net(x, out=out)
    assert len(checked) == bench.full == 3


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("given", [True, False])
def test_other_dtypes(monkeypatch: pytest.MonkeyPatch, dtype: str, given: bool) -> None:
    nest = pf.lower(nn.relu(nn.input("x", (9, 12), dtype)))
    bench = Bench(nest, monkeypatch)
    x = bench.put(draw(0, dtype))
    out = bench.put(draw(1, dtype)) if given else None
    for _ in range(3):
        result = bench.net(x, out=out)
        assert result.dtype == dtype
        np.testing.assert_array_equal(result.numpy(), np.maximum(draw(0, dtype), 0))
    assert bench.full == 1


def test_a_replay_that_fails_names_the_kernels(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    x, out = bench.put(draw(0)), bench.put(np.empty((9, 7), np.float32))
    for _ in range(2):
        bench.net(x, out=out)

    def fail(graph: Any, stream: Any = None) -> None:
        raise pf.DeviceFailure("replaying the call's graph failed: CUDA_ERROR_ILLEGAL_ADDRESS")

    monkeypatch.setattr(bench.gpu, "replay", fail)
    with pytest.raises(pf.DeviceFailure, match="The kernels of this call: kernel ") as found:
        bench.net(x, out=out)
    assert found.value.kernels == tuple(dict.fromkeys(launch.name for launch in bench.net.kernels))


def test_without_memory_for_a_result_it_is_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    class OutOfMemoryError(RuntimeError):
        """torch's."""

    def none_left(shape: Any, dtype: Any, device: Any) -> Any:
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr(sys.modules["torch"], "empty", none_left)
    with pytest.raises(pf.OutOfDeviceMemory, match=r"the result out, float32 \[9, 7\]: CUDA out of memory"):
        bench.net(bench.put(draw(0)))


class Cupy(Tensor):
    """CuPy's array: where it lies is said by others names."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.memory.handle, device_id=0)

    def data_ptr(self) -> int:
        raise AttributeError("data_ptr")


def test_cupys_arrays_are_known_too(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(pf.lower(nn.Linear(12, 7, seed=1), batch=9), monkeypatch)
    monkeypatch.setattr(Cupy, "__module__", "cupy")
    entered: list[int] = []

    class Device:
        def __init__(self, ordinal: int) -> None:
            self.ordinal = ordinal

        def __enter__(self) -> None:
            entered.append(self.ordinal)

        def __exit__(self, *_: object) -> None:
            pass

    def empty(shape: tuple[int, ...], dtype: Any) -> Cupy:
        made = bench.empty(shape, np.dtype(dtype).name, "cuda:0")
        return Cupy(made.memory, made.dtype, made.shape)

    class CupyView(View):
        def __init__(self, value: Any, stream_ptr: int) -> None:
            self.ptr, self.shape, self.strides = value.data.ptr, value.shape, value.strides
            self.dtype, self.device_id, self.readonly = np.dtype(value.dtype), 0, False

    library = ModuleType("cupy")
    cuda = SimpleNamespace(get_current_stream=lambda ordinal: SimpleNamespace(ptr=51), Device=Device)
    library.cuda, library.empty = cuda, empty  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", library)
    monkeypatch.setattr(utils, "StridedMemoryView", CupyView)
    given = bench.put(draw(0))
    x = Cupy(given.memory, given.dtype, given.shape)
    for call in range(4):
        x.numpy()[...] = draw(call)
        result = bench.net(x)
        assert type(result) is Cupy
        right(bench, result, draw(call))
        bench.free(result)
    assert (bench.full, bench.gpu.captures, bench.gpu.replays) == (1, 1, 3)
    assert set(bench.gpu.streams) == {51}
    assert entered == [0] * 4
    cuda.get_current_stream = lambda ordinal: SimpleNamespace(ptr=53)
    right(bench, bench.net(x), draw(3))
    assert bench.full == 2
