"""A caller's arrays on the GPU: used in place; results are of the caller's library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from polyfuse.errors import BadArgument, quantity
from polyfuse.ir.gather import limits_of, no_row, slices
from polyfuse.ir.nest import Nest
from polyfuse.ir.sizes import extent
from polyfuse.ir.tensor import Tensor
from polyfuse.runtime.arguments import Array, check_shape, check_shared, solve_sizes
from polyfuse.runtime.cuda.device_libraries import UNORDERED, library_of, made
from polyfuse.runtime.cuda.known_calls import KnownCall, KnownCalls
from polyfuse.runtime.cuda.runner import CudaProgram
from polyfuse.runtime.memory.memory_plan import shape_of

Sizes = Mapping[str, int]

CUDA_DEVICE = 2
"""DLPack's code for a GPU's own memory."""


@dataclass(frozen=True)
class DeviceArray:
    """The address of an array's first element on the GPU. `owner` keeps the memory alive."""

    address: int
    shape: tuple[int, ...]
    nbytes: int
    owner: Any


def is_on_gpu(value: Any) -> bool:
    """True if an array lies in a GPU's memory, by its own attributes."""
    if hasattr(value, "__dlpack_device__"):
        return int(value.__dlpack_device__()[0]) == CUDA_DEVICE
    return hasattr(value, "__cuda_array_interface__")


def device_array(tensor: Tensor, value: Any, ordinal: int, stream: int, written: bool = False) -> DeviceArray:
    """A view of a caller's array, ordered after the work its library has queued on it.

    `stream` is the address of the stream that will read it, or UNORDERED. Raises BadArgument for an array on the
    host or on another GPU, of another dtype or rank, one that is `written` and read-only, or one that is not
    C-contiguous (nothing is copied on the device behind the caller's back).
    """
    from cuda.core.utils import StridedMemoryView

    if not is_on_gpu(value):
        raise BadArgument(
            f"{tensor.name}: the other arrays lie on the GPU, this one does not; move it there as well"
        )
    try:
        view = StridedMemoryView(value, stream_ptr=stream)
    except BufferError as error:
        raise BadArgument(f"{tensor.name}: the array does not say where it lies: {error}") from error
    if view.device_id != ordinal:
        raise BadArgument(
            f"{tensor.name}: the array lies on GPU {view.device_id}, the executable runs on GPU {ordinal}"
        )
    shape = tuple(view.shape)
    if str(view.dtype) != tensor.dtype and not (str(view.dtype) == "|V2" and tensor.dtype == "bfloat16"):
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
    if written and view.readonly:
        raise BadArgument(f"{tensor.name} is written, and the array given for it is read-only")
    return DeviceArray(int(view.ptr), shape, prod(shape) * tensor.itemsize, value)


def call_in_place(
    program: CudaProgram,
    nest: Nest,
    given: Mapping[str, Any],
    out: Any,
    host: Callable[[Sizes], Mapping[str, Array]],
    known: KnownCalls | None = None,
) -> Any:
    """Run a program on a caller's GPU arrays; the results are new GPU arrays of the same library, or `out`.

    `host` gives constants and temporaries for some sizes. The call is queued on the caller's stream, in order with
    everything else there, and nothing waits, if the arrays have one (device_libraries.py). What was found
    right is `known` to the next call on the same arrays.
    """
    gpu = program.gpu
    targets = () if out is None else out if isinstance(out, tuple) else (out,)
    values = tuple(given[tensor.name] for tensor in nest.inputs)
    library = library_of((*values, *targets), gpu.ordinal)
    order = library.order((*values, *targets), gpu)
    inputs = {
        t.name: device_array(t, given[t.name], gpu.ordinal, order.reader, t.role == "inout")
        for t in nest.inputs
    }
    sizes = solve_sizes(nest, inputs)
    for tensor in nest.inputs:
        check_shape(tensor, inputs[tensor.name].shape, sizes)
    check_overlaps(nest, inputs, sizes)
    check_rows(nest, given, sizes)
    if out is not None and len(targets) != len(nest.results):
        raise BadArgument(f"out: expected {quantity(len(nest.results), 'array')}, given {len(targets)}")
    arrays = dict(inputs)
    for tensor, target in zip(nest.results, targets, strict=False):
        found = device_array(tensor, target, gpu.ordinal, order.reader, written=True)
        check_shape(tensor, found.shape, sizes)
        check_apart(tensor, found, arrays)
        arrays[tensor.name] = found
    fresh = () if targets else tuple((tensor, shape_of(tensor, sizes)) for tensor in nest.results)
    results = targets or tuple(made(library, t, shape, values[0], gpu, order) for t, shape in fresh)
    for (tensor, _), result in zip(fresh, results, strict=False):
        arrays[tensor.name] = device_array(tensor, result, gpu.ordinal, UNORDERED)
    addresses = {name: array.address for name, array in arrays.items()}
    held = program.run_in_place(addresses, host(sizes), sizes, order.stream, order.waits, known)
    if known is not None and not limits_of(nest):
        were_given = tuple(addresses.values())[: len(values) + len(targets)]
        call = KnownCall(held, sizes, order, tuple(addresses), were_given, fresh)
        known.learn(library, (*values, *targets), call)
    return tuple(results) if len(results) > 1 else results[0] if results else None


def check_apart(tensor: Tensor, found: DeviceArray, others: Mapping[str, DeviceArray]) -> None:
    """BadArgument for a result's array that shares memory with another of the call."""
    for name, other in others.items():
        if found.address < other.address + other.nbytes and other.address < found.address + found.nbytes:
            raise BadArgument(
                f"out for {tensor.name} shares memory with {name}, which the call reads or writes"
            )


def check_overlaps(nest: Nest, inputs: Mapping[str, DeviceArray], sizes: Sizes) -> None:
    """BadArgument for an array that is changed in place and shares memory with another argument, unless it is legal."""
    spans = {t.name: (inputs[t.name].address, inputs[t.name].nbytes) for t in nest.inputs}
    kinds = {t.name: (*spans[t.name], inputs[t.name].shape, t.dtype) for t in nest.inputs}
    for name in (t.name for t in nest.inputs if t.role == "inout"):
        start, size = spans[name]
        for other, (begin, length) in spans.items():
            if other != name and start < begin + length and begin < start + size:
                check_shared(nest, name, other, kinds[name] == kinds[other], sizes)


def check_rows(nest: Nest, given: Mapping[str, Any], sizes: Sizes) -> None:
    """BadArgument for an index on the GPU that is not a row of its table: two reductions of each box, and a wait."""
    for name, limits in limits_of(nest).items():
        for limit in limits:
            index, rows = given[name][slices(limit, sizes)], extent(limit.extent, sizes)
            if prod(index.shape) and not (int(index.min()) >= 0 and int(index.max()) < rows):
                raise no_row(nest, name, np.asarray(given[name].tolist()), limit, sizes)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides, in elements, of a C-contiguous array.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
