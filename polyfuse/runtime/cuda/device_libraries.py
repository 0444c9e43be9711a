"""Libraries with GPU arrays: their current stream, an array's identity, and new arrays.

    torch, CuPy    a current stream: a call is queued there, and nothing waits
    numba          a stream in each array's `__cuda_array_interface__`, without one the default stream: the same
    others         the one stream that every array names in its `__cuda_array_interface__`: the same; else the program's
                   own stream, which is ordered after what the arrays name, and the host waits for it

(numba's documentation, "CUDA Array Interface (Version 3)", Synchronization.)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from polyfuse.errors import BadArgument, OutOfDeviceMemory
from polyfuse.ir.tensor import Tensor
from polyfuse.runtime.arguments import foreign_module
from polyfuse.runtime.cuda.driver import Gpu, address

UNORDERED = -1
"""In place of a stream: the reader runs on the stream that wrote."""

DEFAULT = 1
"""The handle of the (legacy) default stream, on which numba works where no other is named."""

Arrays = Sequence[Any]


@dataclass(frozen=True)
class Order:
    """A call's place in a caller's work: its stream, None for the program's own; on which stream arrays are read.

    `waits` says whether the host waits for the call.
    """

    stream: int | None
    reader: int
    waits: bool


class Library(Protocol):
    """The interface of an array library that a call uses."""

    def order(self, arrays: Arrays, gpu: Gpu) -> Order:
        """Return the stream of a call on these arrays."""

    def new(self, tensor: Tensor, shape: tuple[int, ...], like: Any, gpu: Gpu, order: Order) -> Any:
        """A new array on the GPU."""


class Torch:
    """torch: one current stream for each device and thread."""

    def __init__(self, ordinal: int) -> None:
        self._torch, self._ordinal = import_module("torch"), ordinal
        # The public function makes an object of Python's; this is what torch's own generated code calls.
        internals = getattr(self._torch, "_C", None)
        self.stream: Callable[[int], int] = getattr(internals, "_cuda_getCurrentRawStream", self._public)

    def _public(self, ordinal: int) -> int:
        return int(self._torch.cuda.current_stream(ordinal).cuda_stream)

    def current(self) -> int:
        """The current stream's handle."""
        return self.stream(self._ordinal)

    def order(self, arrays: Arrays, gpu: Gpu) -> Order:
        """Return the current stream."""
        return Order(self.current(), UNORDERED, waits=False)

    def key(self, arrays: Arrays) -> Hashable:
        """Return the key of a call: the stream, and each array's address and layout; AttributeError for foreign
        arrays.
        """
        return (
            self.stream(self._ordinal),
            *[(type(a), a.data_ptr(), a.shape, a.stride(), a.dtype, a.device) for a in arrays],
        )

    def address(self, array: Any) -> int:
        """Return the address of an array's first element."""
        return int(array.data_ptr())

    def new(self, tensor: Tensor, shape: tuple[int, ...], like: Any, gpu: Gpu, order: Order) -> Any:
        """Allocate from torch's memory, in the current stream."""
        return self._torch.empty(shape, dtype=getattr(self._torch, tensor.dtype), device=like.device)


class CuPy:
    """CuPy: one current stream for each device and thread."""

    def __init__(self, ordinal: int) -> None:
        self._cupy, self._ordinal = import_module("cupy"), ordinal

    def current(self) -> int:
        """The current stream's handle."""
        return int(self._cupy.cuda.get_current_stream(self._ordinal).ptr)

    def order(self, arrays: Arrays, gpu: Gpu) -> Order:
        """Return the current stream."""
        return Order(self.current(), UNORDERED, waits=False)

    def key(self, arrays: Arrays) -> Hashable:
        """Return the key of a call: the stream, and each array's address and layout; AttributeError for foreign
        arrays.
        """
        return (
            self._cupy.cuda.get_current_stream(self._ordinal).ptr,
            *[(type(a), a.data.ptr, a.shape, a.strides, a.dtype, a.data.device_id) for a in arrays],
        )

    def address(self, array: Any) -> int:
        """Return the address of an array's first element."""
        return int(array.data.ptr)

    def new(self, tensor: Tensor, shape: tuple[int, ...], like: Any, gpu: Gpu, order: Order) -> Any:
        """Allocate from CuPy's memory, in the current stream."""
        with self._cupy.cuda.Device(self._ordinal):
            return self._cupy.empty(shape, np.dtype(tensor.dtype))


class Numba:
    """numba.cuda: an array may be bound to a stream, the others are worked on in the default stream."""

    def order(self, arrays: Arrays, gpu: Gpu) -> Order:
        """Return the stream of all arrays; if they have several, the default one after waiting for them."""
        streams = {stream_of(array) or DEFAULT for array in arrays}
        if len(streams) == 1:
            return Order(streams.pop(), UNORDERED, waits=False)
        return Order(DEFAULT, DEFAULT, waits=True)

    def new(self, tensor: Tensor, shape: tuple[int, ...], like: Any, gpu: Gpu, order: Order) -> Any:
        """An array over memory of the GPU's pool, bound to the call's stream."""
        given = Described(allocated(gpu, tensor, shape, order), tensor, shape, order.stream)
        array = import_module("numba.cuda").as_cuda_array(given, sync=False)
        return array.view(np.dtype(tensor.dtype)) if tensor.dtype == "bfloat16" else array


@dataclass(frozen=True)
class Others:
    """Arrays of another library, of several, or of none that is known; `module` is where a result is made."""

    module: str | None

    def order(self, arrays: Arrays, gpu: Gpu) -> Order:
        """Return the stream that all arrays name; if they name several, the program's own, after those."""
        streams = {stream_of(array) for array in arrays}
        if len(streams) == 1 and (stream := streams.pop()) is not None:
            return Order(stream, UNORDERED, waits=False)
        if any(_package(array) == "numba" for array in arrays):
            gpu.wait(DEFAULT)  # numba says of work in the default stream that it needs no order
        return Order(None, gpu.stream, waits=True)

    def new(self, tensor: Tensor, shape: tuple[int, ...], like: Any, gpu: Gpu, order: Order) -> Any:
        """Device memory that the library takes over by DLPack, without a copy."""
        if self.module is None:
            raise BadArgument(
                "a new array cannot be made from GPU arrays that have only __cuda_array_interface__: "
                f"pass out= for {tensor.name}, {tensor.dtype} {list(shape)}"
            )
        library = import_module(self.module)
        found = library.from_dlpack(allocated(gpu, tensor, shape, order))
        return found.view(getattr(library, tensor.dtype)).reshape(shape)


@dataclass(frozen=True)
class Described:
    """Device memory as `__cuda_array_interface__` describes it; `buffer` keeps it alive."""

    buffer: Any
    tensor: Tensor
    shape: tuple[int, ...]
    stream: int | None

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The address and layout, row-major."""
        return {
            "data": (address(self.buffer), False),
            "shape": self.shape,
            "strides": None,
            "typestr": np.dtype(self.tensor.dtype).str,
            "stream": self.stream,
            "version": 3,
        }


def library_of(arrays: Arrays, ordinal: int) -> Library:
    """Return the library of some arrays, if it has streams of its own."""
    packages = {_package(array) for array in arrays}
    if packages == {"torch"}:
        return Torch(ordinal)
    if packages == {"cupy"}:
        return CuPy(ordinal)
    return Numba() if packages == {"numba"} else Others(foreign_module(arrays))


def made(library: Library, tensor: Tensor, shape: tuple[int, ...], like: Any, gpu: Gpu, order: Order) -> Any:
    """A new array for a result; OutOfDeviceMemory if the library has no memory for it."""
    try:
        return library.new(tensor, shape, like, gpu, order)
    except OutOfDeviceMemory:
        raise
    except Exception as error:
        if type(error).__name__ != "OutOfMemoryError":  # torch's and CuPy's name for it
            raise
        raise OutOfDeviceMemory(f"no memory left for {_use(tensor, shape)}: {error}") from error


def allocated(gpu: Gpu, tensor: Tensor, shape: tuple[int, ...], order: Order) -> Any:
    """Device memory for a result, from the GPU's pool."""
    count = int(np.prod(shape, dtype=np.int64))
    return gpu.allocate(count * tensor.itemsize, order.stream, _use(tensor, shape))


def stream_of(array: Any) -> int | None:
    """The stream that an array's `__cuda_array_interface__` names; numba writes 0 for the default stream."""
    interface = getattr(array, "__cuda_array_interface__", None)
    stream = interface.get("stream") if interface is not None else None
    return None if stream is None else int(stream) or DEFAULT


def _use(tensor: Tensor, shape: tuple[int, ...]) -> str:
    return f"the result {tensor.name}, {tensor.dtype} {list(shape)}"


def _package(array: Any) -> str:
    return type(array).__module__.split(".")[0]
