"""A caller's arrays that lie on the GPU: used where they are, and answered with the caller's kind of array."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from math import prod
from typing import Any

import numpy as np

from polyfuse.errors import BadArgument
from polyfuse.ir.gather import no_row, rows_of
from polyfuse.ir.nest import Nest
from polyfuse.ir.tensor import Tensor
from polyfuse.runtime.arguments import Array, check_shape, check_shared, foreign_module, solve_sizes
from polyfuse.runtime.cuda import CudaProgram
from polyfuse.runtime.cuda_driver import address
from polyfuse.runtime.memory import shape_of

Sizes = Mapping[str, int]

CUDA_DEVICE = 2
"""DLPack's code for a GPU's own memory."""

UNORDERED = -1
"""In place of a stream: the reader runs on the stream that wrote."""


@dataclass(frozen=True)
class DeviceArray:
    """Where an array's first element lies on the GPU. `owner` keeps the memory alive."""

    address: int
    shape: tuple[int, ...]
    owner: Any


def is_on_gpu(value: Any) -> bool:
    """Whether an array lies in a GPU's memory, by what it says of itself."""
    if hasattr(value, "__dlpack_device__"):
        return int(value.__dlpack_device__()[0]) == CUDA_DEVICE
    return hasattr(value, "__cuda_array_interface__")


def device_array(tensor: Tensor, value: Any, ordinal: int, stream: int) -> DeviceArray:
    """A view of a caller's array, ordered after the work its library has queued on it.

    `stream` is the address of the stream that will read it, or UNORDERED. Raises BadArgument for an array on the
    host or on another GPU, of another dtype or rank, or one that is not C-contiguous (nothing is copied on the device
    behind the caller's back).
    """
    from cuda.core.utils import StridedMemoryView

    if not is_on_gpu(value):
        raise BadArgument(
            f"{tensor.name}: the other arrays lie on the GPU, this one does not; move it there as well"
        )
    view = StridedMemoryView(value, stream_ptr=stream)
    if view.device_id != ordinal:
        raise BadArgument(
            f"{tensor.name}: the array lies on GPU {view.device_id}, the executable runs on GPU {ordinal}"
        )
    shape = tuple(view.shape)
    if str(view.dtype) != tensor.dtype:
        raise BadArgument(f"{tensor.name}: expected dtype {tensor.dtype}, given {view.dtype}")
    if len(shape) != tensor.rank:
        raise BadArgument(
            f"{tensor.name}: expected rank {tensor.rank} with shape {list(tensor.shape)}, "
            f"given rank {len(shape)} with shape {list(shape)}"
        )
    if view.strides is not None and tuple(view.strides) != row_major(shape):
        raise BadArgument(
            f"{tensor.name}: strides {tuple(view.strides)} are not C-contiguous; make it contiguous first"
        )
    return DeviceArray(int(view.ptr), shape, value)


def call_in_place(
    program: CudaProgram,
    nest: Nest,
    given: Mapping[str, Any],
    out: Any,
    host: Callable[[Sizes], Mapping[str, Array]],
) -> Any:
    """Run a program on a caller's GPU arrays; the results are new GPU arrays of the same library, or `out`.

    `host` gives constants and temporaries for some sizes. Arrays of one library that has a current stream (torch, CuPy)
    are worked on in that stream, in order with everything else there, and nothing waits.
    """
    gpu = program.gpu
    targets = () if out is None else out if isinstance(out, tuple) else (out,)
    stream = current_stream((*given.values(), *targets))
    reader = gpu.stream if stream is None else UNORDERED
    inputs = {t.name: device_array(t, given[t.name], gpu.ordinal, reader) for t in nest.inputs}
    sizes = solve_sizes(nest, inputs)
    for tensor in nest.inputs:
        check_shape(tensor, inputs[tensor.name].shape, sizes)
    check_overlaps(nest, inputs, sizes)
    check_rows(nest, given, sizes)
    module = foreign_module(given.values())
    if module is None:
        raise BadArgument(
            "arrays on the GPU must speak DLPack for the results to be given back in their kind"
        )
    wanted = (None,) * len(nest.results) if out is None else targets
    if len(wanted) != len(nest.results):
        raise BadArgument(f"out: expected {len(nest.results)} arrays, given {len(wanted)}")
    results, addresses = [], {name: array.address for name, array in inputs.items()}
    for tensor, target in zip(nest.results, wanted, strict=True):
        shape = shape_of(tensor, sizes)
        if target is None:
            use = f"the result {tensor.name}, {tensor.dtype} {list(shape)}"
            buffer = gpu.allocate(prod(shape) * tensor.itemsize, stream, use)
            addresses[tensor.name] = address(buffer)
            results.append(for_caller(buffer, tensor, shape, module))
        else:
            known = device_array(tensor, target, gpu.ordinal, reader)
            check_shape(tensor, known.shape, sizes)
            addresses[tensor.name] = known.address
            results.append(target)
    program.run_in_place(addresses, host(sizes), sizes, stream)
    return tuple(results) if len(results) > 1 else results[0] if results else None


def current_stream(arrays: Iterable[Any]) -> int | None:
    """The address of the stream on which the one library of these arrays queues its work now; None if there is none."""
    modules = {type(array).__module__.split(".")[0] for array in arrays}
    if modules == {"torch"}:
        return int(import_module("torch").cuda.current_stream().cuda_stream)
    if modules == {"cupy"}:
        return int(import_module("cupy").cuda.get_current_stream().ptr)
    return None


def check_overlaps(nest: Nest, inputs: Mapping[str, DeviceArray], sizes: Sizes) -> None:
    """BadArgument for an array that is changed in place and shares memory with another argument, unless it is legal."""
    spans = {t.name: (inputs[t.name].address, prod(inputs[t.name].shape) * t.itemsize) for t in nest.inputs}
    kinds = {t.name: (*spans[t.name], inputs[t.name].shape, t.dtype) for t in nest.inputs}
    for name in (t.name for t in nest.inputs if t.role == "inout"):
        start, size = spans[name]
        for other, (begin, length) in spans.items():
            if other != name and start < begin + length and begin < start + size:
                check_shared(nest, name, other, kinds[name] == kinds[other], sizes)


def check_rows(nest: Nest, given: Mapping[str, Any], sizes: Sizes) -> None:
    """BadArgument for an index on the GPU that is no row of its table: two reductions there, and a wait for them."""
    for name, rows in rows_of(nest, sizes).items():
        index = given[name]
        if prod(index.shape) and not (int(index.min()) >= 0 and int(index.max()) < rows):
            raise no_row(nest, name, np.asarray(index.tolist()), rows)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides, in elements, of a C-contiguous array.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def for_caller(buffer: Any, tensor: Tensor, shape: tuple[int, ...], module: str) -> Any:
    """Device memory as an array of the caller's library (torch, cupy, …), taken over by DLPack without a copy."""
    library = import_module(module)
    return library.from_dlpack(buffer).view(getattr(library, tensor.dtype)).reshape(shape)
