"""Run kernels on a GPU: load cubins once, launch in order on one stream, or capture a graph and replay it.

Everything here goes through `cuda.core` (extra `polyfuse[cuda]`). Nothing waits between launches: the order of
the stream is the only order. What waits for the GPU says so.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from polyfuse.codegen.cuda.compile.cubin import Cubin
from polyfuse.codegen.cuda.tensor_maps import TensorMap
from polyfuse.errors import BadArgument, PolyfuseError, TargetUnavailable
from polyfuse.machine import GpuMachine
from polyfuse.runtime.cuda.device_failures import NO_MEMORY, launch_failed, no_memory, step_failed
from polyfuse.runtime.cuda.gpu_here import driver_library, gpu_facts, machine_for, too_old

_CTYPES: dict[str, Callable[[Any], Any]] = {
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
}


@dataclass(frozen=True)
class DeviceInfo:
    """The properties of a GPU for schedules and reports. `shared_per_block` are the bytes that a launch may request."""

    name: str
    compute_capability: tuple[int, int]
    multiprocessors: int
    shared_per_block: int

    def __str__(self) -> str:
        major, minor = self.compute_capability
        return f"{self.name} (compute capability {major}.{minor})"


@dataclass(frozen=True)
class Launch:
    """One kernel launch. An argument is an address or int64 (as int), a float64 (as float), a NumPy scalar or a map.

    Its blocks are on the GPU all at once if they run `together`: they wait for each other. `statements` are what it
    computes, for a failure to name.
    """

    kernel: Cubin
    grid: tuple[int, int, int]  # blocks, x first
    block: tuple[int, int, int]  # threads of a block, x first
    args: tuple[int | float | np.generic | TensorMap, ...]
    together: bool = False
    statements: tuple[str, ...] = ()


def missing() -> str | None:
    """Return the reason why no kernel can run here, with a remedy; None if one can.

    Neither imports `cuda.core` nor makes a context: it asks the driver for the number of GPUs and for its version,
    which takes about a millisecond if there is no driver.
    """
    try:
        if find_spec("cuda.core") is None:
            raise ModuleNotFoundError
    except ModuleNotFoundError:
        return "target 'cuda' needs cuda-core, which is not installed: pip install polyfuse[cuda]"
    driver = driver_library()
    if driver is None:
        return "target 'cuda' needs an NVIDIA GPU with its driver; no driver library is found on this machine"
    count = ctypes.c_int(0)
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status or count.value == 0:
        return f"target 'cuda' needs an NVIDIA GPU; the driver reports {count.value} (status {status})"
    return too_old(driver)


def available() -> bool:
    """Can kernels run here? Never raises."""
    return missing() is None


def machine_here() -> GpuMachine:
    """The machine that plans for the GPU here are made for; TargetUnavailable if there is none or an unknown one."""
    reason, driver = missing(), driver_library()
    facts = gpu_facts(driver) if reason is None else None
    if facts is None:
        raise TargetUnavailable(
            reason or "the driver does not say which GPU this is: name a machine, machine='h200'"
        )
    return machine_for(facts)


class Gpu:
    """One GPU, one stream on it, and the kernels loaded so far. Raises TargetUnavailable if there is none.

    A `stream` is the address of a caller's stream to use instead of this one's own. What the driver refuses is a
    DeviceFailure, one that has no memory left an OutOfDeviceMemory (polyfuse.runtime.cuda.device_failures).
    Methods may be called from any thread, but what one thread launches and another copies is theirs to order.
    """

    def __init__(self, ordinal: int = 0) -> None:
        reason = missing()
        if reason is not None:
            raise TargetUnavailable(reason)
        from cuda.core import Device

        self._device = Device(ordinal)
        self._device.set_current()
        self._stream = self._device.create_stream()
        self._streams: dict[int, Any] = {}
        self._kernels: dict[tuple[str, bytes], Any] = {}

    @property
    def ordinal(self) -> int:
        """The index of this GPU among the machine's."""
        return int(self._device.device_id)

    @property
    def stream(self) -> int:
        """The address of the stream that everything runs on."""
        return int(self._stream.handle)

    @property
    def info(self) -> DeviceInfo:
        """Name, compute capability, number of multiprocessors, a block's shared memory."""
        (major, minor), properties = self._device.compute_capability, self._device.properties
        return DeviceInfo(
            self._device.name,
            (major, minor),
            properties.multiprocessor_count,
            properties.max_shared_memory_per_block_optin,
        )

    def allocate(self, nbytes: int, stream: int | None = None, use: str = "a buffer") -> Any:
        """A `cuda.core.Buffer` of at least `nbytes` for a use that an error names; its memory lives as long as it."""
        self._device.set_current()
        try:
            return self._device.allocate(max(nbytes, 1), stream=self._on(stream))
        except Exception as error:
            if NO_MEMORY not in str(error):
                raise step_failed(f"allocating {nbytes} bytes for {use}", error) from error
            raise no_memory(nbytes, use, self.info.name, self._free(), error) from error

    def _free(self) -> tuple[int, int] | None:
        """The free bytes of the device's memory, and all of them; None if the driver does not say."""
        from cuda.bindings import driver

        status, free, total = driver.cuMemGetInfo()
        return (int(free), int(total)) if status == 0 else None

    def upload(self, address: int, array: npt.NDArray[Any], stream: int | None = None) -> None:
        """Copies a C-contiguous array to the device, after all launches so far. The array may change at once."""
        from cuda.bindings import driver

        self._copy(driver.cuMemcpyHtoDAsync, address, _pointer(array), array.nbytes, stream)

    def download(self, address: int, array: npt.NDArray[Any]) -> None:
        """Fills a C-contiguous array from the device, after all launches so far, and waits for it."""
        from cuda.bindings import driver

        self._copy(driver.cuMemcpyDtoHAsync, _pointer(array), address, array.nbytes)
        self.wait()

    def launch(self, launches: Sequence[Launch], stream: int | None = None) -> None:
        """Launches in order and returns at once."""
        self._device.set_current()
        for step in launches:
            self._launch_on(self._on(stream), step)

    def seconds(self, launches: Sequence[Launch]) -> list[float]:
        """Launches in order, waits, and returns the seconds of each between two events on the stream.

        An event takes some 2 µs of the GPU's time, which a shorter kernel hides.
        """
        from cuda.core import EventOptions

        self._device.set_current()
        for step in launches:  # loading a module would be timed
            self._load(step.kernel)
        timed = EventOptions(timing_enabled=True)
        events = [self._stream.record(options=timed)]
        for step in launches:
            self._launch_on(self._stream, step)
            events.append(self._stream.record(options=timed))
        self.wait()
        return [float(stop - start) * 1e-3 for start, stop in pairwise(events)]

    def capture(self, launches: Sequence[Launch]) -> Any:
        """The launches as one `cuda.core.graph.Graph`, for `replay`. The addresses are fixed until it is updated."""
        with _step(f"making a graph of {len(launches)} launch{'' if len(launches) == 1 else 'es'}"):
            graph = self._captured(launches).complete()
            graph.upload(self._stream)
        return graph

    def update(self, graph: Any, launches: Sequence[Launch]) -> None:
        """The same kernels on other addresses, in a graph that was captured before; replays under way keep theirs."""
        with _step(f"updating a graph of {len(launches)} launch{'' if len(launches) == 1 else 'es'}"):
            graph.update(self._captured(launches))

    def _captured(self, launches: Sequence[Launch]) -> Any:
        self._device.set_current()
        for step in launches:  # loading a module is not a stream operation and is best not captured
            self._load(step.kernel)
        builder = self._device.create_graph_builder()
        builder.begin_building()
        for step in launches:
            self._launch_on(builder, step)
        return builder.end_building()

    def replay(self, graph: Any, stream: int | None = None) -> None:
        """Launches a captured graph and returns at once."""
        self._device.set_current()
        try:
            graph.launch(self._on(stream))
        except Exception as error:
            raise step_failed("replaying the call's graph", error) from error

    def wait(self, stream: int | None = None) -> None:
        """Returns when everything launched so far is done. Raises what went wrong on the device."""
        with _step("waiting for the GPU"):
            self._on(stream).sync()

    def _on(self, stream: int | None) -> Any:
        """The stream at an address, which its owner keeps alive; this object's own for None."""
        if stream is None:
            return self._stream
        if stream not in self._streams:
            from cuda.core import Stream

            self._streams[stream] = Stream.from_handle(stream)
        return self._streams[stream]

    def _launch_on(self, stream: Any, step: Launch) -> None:
        from cuda.core import LaunchConfig, launch

        kernel = self._load(step.kernel)
        config = LaunchConfig(
            grid=step.grid,
            block=step.block,
            shmem_size=step.kernel.dynamic_bytes,
            is_cooperative=step.together,
        )
        if step.together:
            self._check_residence(kernel, step)
        arguments = [_argument(value) for value in step.args]
        try:
            launch(stream, config, kernel, *arguments)
        except Exception as error:
            shared = step.kernel.shared_bytes
            raise launch_failed(
                step.kernel.entry, step.statements, step.grid, step.block, shared, error
            ) from error

    def _check_residence(self, kernel: Any, step: Launch) -> None:
        """Raises TargetUnavailable if blocks wait for each other and are more than the GPU holds at once."""
        threads, dynamic = prod(step.block), step.kernel.dynamic_bytes
        on_one = kernel.occupancy.max_active_blocks_per_multiprocessor(threads, dynamic)
        most = on_one * self.info.multiprocessors
        if prod(step.grid) > most:
            raise TargetUnavailable(
                f"the {prod(step.grid)} blocks of kernel {step.kernel.entry!r} synchronise with each other, but "
                f"{self.info.name} can hold {most} of them at a time ({on_one} of {threads} threads on each of "
                f"{self.info.multiprocessors} multiprocessors); use fewer blocks with more work each"
            )

    def _load(self, cubin: Cubin) -> Any:
        from cuda.core import ObjectCode

        key = cubin.entry, cubin.code
        if key not in self._kernels:
            with _step(f"loading kernel {cubin.entry!r}, built for {cubin.arch}, onto {self.info.name}"):
                kernel = ObjectCode.from_cubin(cubin.code, name=cubin.entry).get_kernel(cubin.entry)
            if cubin.dynamic_bytes:
                self._allow(kernel, cubin)
            self._kernels[key] = kernel
        return self._kernels[key]

    def _allow(self, kernel: Any, cubin: Cubin) -> None:
        """Let a kernel's launches ask for as much dynamic shared memory as it needs: more than 48 KiB by default.

        cuda.core's view of a kernel's attributes is for reading only.
        """
        from cuda.bindings import driver

        which = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        device = driver.CUdevice(self.ordinal)
        (status,) = driver.cuKernelSetAttribute(which, cubin.dynamic_bytes, kernel.handle, device)
        if status != 0:
            raise TargetUnavailable(
                f"kernel {cubin.entry!r} needs {cubin.dynamic_bytes} bytes of shared memory for a block, which "
                f"{self.info.name} does not give, with {self.info.shared_per_block} bytes at most: {status!r}"
            )

    def _copy(
        self, function: Any, destination: int, source: int, nbytes: int, stream: int | None = None
    ) -> None:
        if nbytes == 0:
            return
        self._device.set_current()
        (status,) = function(destination, source, nbytes, self._on(stream).handle)
        if status != 0:
            raise step_failed(f"copying {nbytes} bytes between host and device", repr(status))


@contextmanager
def _step(what: str) -> Iterator[None]:
    """Raises DeviceFailure for whatever the driver's libraries raise: cuda.core has no public class of its errors."""
    try:
        yield
    except PolyfuseError:
        raise
    except Exception as error:
        raise step_failed(what, error) from error


def address(buffer: Any) -> int:
    """The device address of a buffer's first byte; elements further on are reached by adding bytes."""
    return int(buffer.handle)


def _pointer(array: npt.NDArray[Any]) -> int:
    if not array.flags.c_contiguous:
        raise BadArgument(
            f"a copy needs a C-contiguous array; this {array.shape} has strides {array.strides}"
        )
    return array.ctypes.data


@dataclass(frozen=True)
class _Held:
    """Memory of a GPU, as others describe theirs to cuda.core (numba's "CUDA Array Interface", version 3)."""

    map: TensorMap

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The address and layout; elements are bits, row-major."""
        kind = f"<u{self.map.itemsize}"
        return {
            "data": (self.map.address, True),
            "shape": self.map.shape,
            "strides": None,
            "typestr": kind,
            "version": 3,
        }


def _tensor_map(given: TensorMap) -> Any:
    """The driver's map, which `launch` passes by value: a graph keeps its own. What lies beyond the array is zero."""
    from cuda.core import TensorMapDescriptorOptions
    from cuda.core.utils import StridedMemoryView

    view = StridedMemoryView.from_cuda_array_interface(_Held(given), stream_ptr=-1)
    swizzles = type(TensorMapDescriptorOptions.swizzle)  # an enumeration without a public name of its own
    options = TensorMapDescriptorOptions(box_dim=given.box, swizzle=swizzles.SWIZZLE_128B)
    return view.as_tensor_map(options=options)


def _argument(value: int | float | np.generic | TensorMap) -> Any:
    if isinstance(value, TensorMap):
        return _tensor_map(value)
    dtype = np.asarray(value).dtype.name
    if dtype not in _CTYPES:
        raise BadArgument(f"a kernel argument is one of {', '.join(_CTYPES)}; {value!r} is {dtype}")
    return _CTYPES[dtype](value.item() if isinstance(value, np.generic) else value)
