"""Arrays that have `__cuda_array_interface__` and nothing else, numba's among them, on a GPU that is host memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.runtime.cuda.device_libraries import DEFAULT, UNORDERED
from polyfuse.runtime.cuda.runner import CudaProgram
from polyfuse.runtime.emulated.host_gpu import HostGpu, Memory

utils = pytest.importorskip("cuda.core.utils")
numba_cuda = pytest.importorskip("numba.cuda")


class Plain:
    """An array of some library that has the interface alone."""

    def __init__(self, memory: Memory, dtype: str, shape: tuple[int, ...], stream: int | None = None) -> None:
        self.memory, self.dtype, self.shape, self.stream = memory, np.dtype(dtype), shape, stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        interface = {"data": (self.memory.handle, False), "shape": self.shape, "typestr": self.dtype.str}
        return {**interface, "strides": None, "version": 3, "stream": self.stream}

    def view(self, dtype: Any) -> Plain:
        return type(self)(self.memory, np.dtype(dtype).name, self.shape, self.stream)

    def numpy(self) -> Any:
        count = int(np.prod(self.shape)) * self.dtype.itemsize
        return self.memory.bytes[:count].view(self.dtype).reshape(self.shape)


class Numba(Plain):
    """numba's array."""


Numba.__module__ = "numba.cuda.cudadrv.devicearray"
Plain.__module__ = "somelib.arrays"

READ: list[int] = []


class View:
    """What cuda.core says of such an array: the interface has no bfloat16, whose bits it calls V2."""

    def __init__(self, value: Any, stream_ptr: int) -> None:
        described = value.__cuda_array_interface__
        if described["version"] < 3:
            raise BufferError("only CUDA Array Interface v3 or above is supported")
        READ.append(stream_ptr)
        (self.ptr, self.readonly), self.shape = described["data"], described["shape"]
        self.strides, self.dtype, self.device_id = None, np.dtype(described["typestr"]), 0


def compiled(dtype: str, monkeypatch: pytest.MonkeyPatch) -> tuple[pf.Executable, HostGpu]:
    READ.clear()
    monkeypatch.setattr(utils, "StridedMemoryView", View)
    net = pf.compile(
        pf.lower(nn.relu(nn.input("x", (5, 8), dtype))), target="cuda", machine="h200", device="none"
    )
    gpu = HostGpu(net.program)
    roles = {tensor.name: tensor.role for tensor in net.schedule.nest.tensors}
    net._runner = CudaProgram(net.program, gpu, roles)  # type: ignore[arg-type]
    net._direct = net._new_direct()

    def adopted(given: Any, sync: bool) -> Numba:
        assert not sync
        described = given.__cuda_array_interface__
        memory = next(b for b in gpu.buffers if b.handle == described["data"][0])
        return Numba(memory, described["typestr"], described["shape"], described["stream"])

    monkeypatch.setattr(numba_cuda, "as_cuda_array", adopted)
    return net, gpu


def put(gpu: HostGpu, kind: type[Plain], values: Any, stream: int | None = None) -> Plain:
    made = kind(gpu.allocate(values.nbytes), values.dtype.name, values.shape, stream)
    made.numpy()[...] = values
    return made


def draw(dtype: str) -> Any:
    return np.random.default_rng(0).standard_normal((5, 8)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("kind", [Plain, Numba])
def test_the_interface_alone_does_with_out(
    kind: type[Plain], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, gpu = compiled(dtype, monkeypatch)
    x, out = put(gpu, kind, draw(dtype)), put(gpu, kind, np.ones((5, 8), dtype))
    for _ in range(2):
        assert net(x, out=out) is out
        np.testing.assert_array_equal(out.numpy(), np.maximum(draw(dtype), 0))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_numba_gets_arrays_of_its_own(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net, gpu = compiled(dtype, monkeypatch)
    result = net(put(gpu, Numba, draw(dtype), stream=45))
    assert (type(result), result.dtype, result.stream) == (Numba, np.dtype(dtype), 45)
    np.testing.assert_array_equal(result.numpy(), np.maximum(draw(dtype), 0))


def test_without_out_a_library_that_says_no_more_is_told_to_give_it(monkeypatch: pytest.MonkeyPatch) -> None:
    net, gpu = compiled("float32", monkeypatch)
    with pytest.raises(pf.BadArgument, match=r"pass out= for .*, float32 \[5, 8\]"):
        net(put(gpu, Plain, draw("float32")))


OWN = HostGpu.stream


@pytest.mark.parametrize(
    ("kind", "of_x", "of_out", "stream", "reader", "waits"),
    [
        (Numba, None, None, DEFAULT, UNORDERED, 0),  # numba names none for the default stream
        (Numba, 0, None, DEFAULT, UNORDERED, 0),
        (Numba, 45, 45, 45, UNORDERED, 0),
        (Numba, 45, None, DEFAULT, DEFAULT, 1),
        (Numba, 45, 46, DEFAULT, DEFAULT, 1),
        (Plain, 45, 45, 45, UNORDERED, 0),
        (Plain, None, None, None, OWN, 1),
        (Plain, 45, 46, None, OWN, 1),
    ],
)
def test_a_call_is_in_order_with_the_streams_that_arrays_name(
    kind: type[Plain],
    of_x: int | None,
    of_out: int | None,
    stream: int | None,
    reader: int,
    waits: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net, gpu = compiled("float32", monkeypatch)
    x = put(gpu, kind, draw("float32"), of_x)
    out = put(gpu, kind, np.zeros((5, 8), np.float32), of_out)
    net(x, out=out)
    assert gpu.streams == [stream]
    assert (set(READ), gpu.waits) == ({reader}, waits)


def test_numbas_default_stream_is_waited_for_beside_another_library(monkeypatch: pytest.MonkeyPatch) -> None:
    net, gpu = compiled("float32", monkeypatch)
    net(put(gpu, Numba, draw("float32")), out=put(gpu, Plain, np.zeros((5, 8), np.float32)))
    assert (gpu.streams, gpu.waits) == ([None], 2)


def test_an_older_interface_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    net, gpu = compiled("float32", monkeypatch)
    x = put(gpu, Plain, draw("float32"))
    described = x.__cuda_array_interface__
    monkeypatch.setattr(Plain, "__cuda_array_interface__", {**described, "version": 2})
    with pytest.raises(
        pf.BadArgument, match="x: the array does not say where it lies: only CUDA Array Interface v3"
    ):
        net(x, out=x)
