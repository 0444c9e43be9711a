"""Check a call's arrays against the nest, convert them to NumPy, and convert results back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from polyfuse.analysis.same_array import meeting
from polyfuse.errors import BadArgument, quantity
from polyfuse.ir.gather import check_indices
from polyfuse.ir.nest import Nest
from polyfuse.ir.number_types import computed_in, has, is_real
from polyfuse.ir.sizes import check_sizes, solved
from polyfuse.ir.tensor import Tensor
from polyfuse.runtime.memory.memory_plan import shape_of

Array = npt.NDArray[Any]


class Shaped(Protocol):
    """Anything with a shape in numbers."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""


CPU_DEVICES = (1, 3)
"""DLPack's codes for memory a CPU can read: plain, and pinned for CUDA."""


@dataclass(frozen=True)
class Bound:
    """The arrays of one call by tensor name, the symbolic sizes they imply, and what had to be copied."""

    arrays: Mapping[str, Array]
    sizes: Mapping[str, int]
    copied: tuple[str, ...]
    module: str | None


def bind_arguments(nest: Nest, args: tuple[Any, ...], named: Mapping[str, Any]) -> Bound:
    """Match a call's arguments with the nest's inputs, in order or by name, and bring them into the form kernels take.

    Raises BadArgument for a missing, unknown, or doubly given input, for a wrong dtype, rank, shape or device, and for
    an index that is not a row of its table.
    """
    given = matched(nest, args, named)
    arrays: dict[str, Array] = {}
    copied: list[str] = []
    written: dict[str, Array] = {}
    theirs: dict[str, Array] = {}
    for tensor in nest.inputs:
        array = theirs[tensor.name] = to_numpy(tensor, given[tensor.name])
        _check_type(tensor, array)
        if tensor.role == "inout":
            written[tensor.name] = array
        array = plain(tensor, array)
        if not (array.flags.c_contiguous and array.flags.aligned):
            array = np.array(array, order="C")
            copied.append(tensor.name)
        arrays[tensor.name] = array
    for name, array in written.items():
        check_writeable(name, array)
        check_elements_apart(name, array)
    sizes = solve_sizes(nest, arrays)
    for tensor in nest.inputs:
        check_shape(tensor, arrays[tensor.name].shape, sizes)
    for name, other in ((n, o) for n in written for o in theirs if o != n):
        if _share_memory(written[name], theirs[other]):
            check_shared(nest, name, other, _are_one(written[name], theirs[other]), sizes)
            arrays[other] = np.array(arrays[other])  # machine code is told that arrays do not overlap
            copied.append(other)
    check_indices(nest, arrays, sizes)
    return Bound(arrays, sizes, tuple(copied), foreign_module(given.values()))


def check_writeable(name: str, array: Array) -> None:
    """BadArgument for an array that is changed in place, but is read-only."""
    if not array.flags.writeable:
        raise BadArgument(f"{name} is changed in place, and the array given for it is read-only")


def check_elements_apart(name: str, array: Array) -> None:
    """BadArgument for an array that is changed in place, and has two elements in the same memory."""
    if not array.flags.c_contiguous and _meets_itself(array):
        raise BadArgument(
            f"{name} is changed in place, and two elements of the array given for it share memory (shape "
            f"{list(array.shape)}, strides {list(array.strides)}): pass a copy"
        )


def _meets_itself(array: Array) -> bool:
    """True if two elements of an array have a byte in common.

    None have where every axis, from the shortest stride on, steps over all that the axes before it reach. Else all
    addresses are compared.
    """
    axes = sorted((abs(step), n) for step, n in zip(array.strides, array.shape, strict=True) if n != 1)
    reach = array.itemsize
    for step, n in axes:
        if step < reach:
            break
        reach += step * (n - 1)
    else:
        return False
    places = np.zeros(1, np.int64)
    for step, n in axes:
        places = np.add.outer(places, step * np.arange(n)).reshape(-1)
    return bool((np.diff(np.sort(places)) < array.itemsize).any())


def check_shared(nest: Nest, written: str, other: str, one: bool, sizes: Mapping[str, int]) -> None:
    """BadArgument for two tensors in the same memory, of which one is written: unless it is `one` array and legal.

    Legal is what analysis/same_array.py says: no instance reads through one what another writes through the other.
    """
    start = f"{written} and {other} share memory, and {written} is changed in place: "
    if not one:
        raise BadArgument(f"{start}they are not the same elements of one array; pass a copy of one of them")
    if nest.tensor(other).role == "inout":
        raise BadArgument(f"{start}so is {other}; pass a copy of one of them")
    rows = any(other in (t.gather.table, t.gather.index) for t in nest.tensors if t.gather is not None)
    if rows or nest.tensor(other).below:
        raise BadArgument(f"{start}rows of {other} are chosen in the call; pass a copy of one of them")
    found = meeting(nest, written, other, sizes)
    if found is not None:
        raise BadArgument(
            f"{start}{found[0]} writes through {written} what {found[1]} reads through {other}, so that the result "
            "would depend on their order; pass a copy of one of them"
        )


def _share_memory(a: Array, b: Array) -> bool:
    """True if two arrays share an element."""
    if not np.may_share_memory(a, b):
        return False
    if a.flags.c_contiguous and b.flags.c_contiguous:
        return True
    return np.shares_memory(a, b)


def _are_one(a: Array, b: Array) -> bool:
    """True if two arrays are the same elements at the same addresses."""
    layouts = ((x.ctypes.data, x.shape, x.strides, x.dtype) for x in (a, b))
    return next(layouts) == next(layouts)


def matched(nest: Nest, args: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """A call's arguments by input name; BadArgument if one is missing, unknown or given twice."""
    names = [tensor.name for tensor in nest.inputs]
    if len(args) > len(names):
        raise BadArgument(
            f"given {quantity(len(args), 'positional argument')} for {quantity(len(names), 'input')}; {_expected(nest)}"
        )
    given = dict(zip(names, args, strict=False))
    for name, value in named.items():
        if name not in names:
            raise BadArgument(f"unknown input {name!r}; {_expected(nest)}")
        if name in given:
            raise BadArgument(f"input {name!r} is given twice")
        given[name] = value
    given = {**nest.defaults, **given}
    missing = [name for name in names if name not in given]
    if missing:
        raise BadArgument(f"input {', '.join(missing)} is missing; {_expected(nest)}")
    return given


def _expected(nest: Nest) -> str:
    return f"expected {', '.join(map(str, nest.inputs)) or 'no inputs'}"


def to_numpy(tensor: Tensor, value: Any) -> Array:
    """A NumPy view of an array of any kind that speaks DLPack; a plain number for a scalar tensor."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, int | float | np.integer | np.floating | np.bool_) and tensor.rank == 0:
        return scalar_array(tensor, value)
    if not hasattr(value, "__dlpack__"):
        what = "an array" if tensor.rank else "a number"
        raise BadArgument(f"{tensor.name}: expected {what} ({tensor}), given {type(value).__name__}")
    kind, number = value.__dlpack_device__()
    if kind not in CPU_DEVICES:
        raise BadArgument(
            f"{tensor.name}: the array lies on device {int(kind)}:{number}, this executable runs on the CPU; "
            "move the array, or compile for the device's target"
        )
    return from_dlpack(tensor, value)


def from_dlpack(tensor: Tensor, value: Any) -> Array:
    """A view of another library's array. NumPy's own exchange has no bfloat16, so its bits go as integers."""
    library = import_module(type(value).__module__.split(".")[0])
    bits = getattr(library, "int16", None)
    if tensor.dtype != "bfloat16" or "bfloat16" not in str(value.dtype) or bits is None:
        return np.from_dlpack(value)
    return np.from_dlpack(value.view(bits)).view("bfloat16")


def scalar_array(tensor: Tensor, value: Any) -> Array:
    """A number as a tensor without dimensions; BadArgument if its element type does not hold it."""
    is_whole = isinstance(value, int | np.integer) or (math.isfinite(value) and int(value) == value)
    if not is_real(tensor.dtype) and not is_whole:
        raise BadArgument(f"{tensor.name}: expected an integer ({tensor}), given {value!r}")
    if not is_real(tensor.dtype) and not has(tensor.dtype, int(value)):
        raise BadArgument(f"{tensor.name}: {value!r} does not fit {tensor.dtype}")
    return np.asarray(value, computed_in(tensor.dtype)).astype(tensor.dtype)


def foreign_module(values: Iterable[Any]) -> str | None:
    """The package of the first array that is not NumPy's."""
    for value in values:
        if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray | np.generic):
            return type(value).__module__.split(".")[0]
    return None


def give_back(array: Array, module: str | None) -> Any:
    """The result in the caller's kind of array, sharing its memory."""
    if module is None:
        return array
    library = import_module(module)
    if array.dtype != "bfloat16":
        return library.from_dlpack(array)
    return library.from_dlpack(array.view(np.int16)).view(library.bfloat16)


def plain(tensor: Tensor, array: Array) -> Array:
    """The same elements in an array of no subclass, its dtype NumPy's own object for that type."""
    dtype = np.dtype(tensor.dtype)
    return array if type(array) is np.ndarray and array.dtype is dtype else array.view(dtype, np.ndarray)


def _check_type(tensor: Tensor, array: Array) -> None:
    if array.dtype != tensor.dtype:
        raise BadArgument(
            f"{tensor.name}: expected dtype {tensor.dtype}, given {array.dtype}; convert with .astype({tensor.dtype!r})"
        )
    if array.ndim != tensor.rank:
        raise BadArgument(
            f"{tensor.name}: expected rank {tensor.rank} with shape {list(tensor.shape)}, "
            f"given rank {array.ndim} with shape {list(array.shape)}"
        )


def check_shape(tensor: Tensor, shape: tuple[int, ...], sizes: Mapping[str, int]) -> None:
    """BadArgument unless a shape is the tensor's for these symbolic sizes."""
    expected = shape_of(tensor, sizes)
    if shape != expected:
        solved = f" ({', '.join(f'{n} = {v}' for n, v in sizes.items())})" if sizes else ""
        raise BadArgument(f"{tensor.name}: expected shape {list(expected)}{solved}, given {list(shape)}")


def solve_sizes(nest: Nest, arrays: Mapping[str, Shaped]) -> dict[str, int]:
    """The symbolic sizes: integer inputs, else read off the arrays' shapes. BadArgument if the context forbids them."""
    sizes = given_sizes(nest, arrays)
    for tensor in nest.inputs:
        for size, extent in zip(tensor.shape, arrays[tensor.name].shape, strict=True):
            if isinstance(size, str) and size.isidentifier():
                sizes.setdefault(size, extent)
    unknown = [name for name in nest.params if name not in sizes]
    if unknown:
        pairs = ((s, n) for t in nest.inputs for s, n in zip(t.shape, arrays[t.name].shape, strict=True))
        sizes = solved(pairs, sizes)
        unknown = [name for name in unknown if name not in sizes]
    if unknown:
        raise BadArgument(
            f"the size {', '.join(unknown)} cannot be inferred from the shapes of the inputs; pass sizes="
        )
    check_sizes(nest, sizes)
    return sizes


def given_sizes(nest: Nest, arrays: Mapping[str, Shaped]) -> dict[str, int]:
    """The sizes that are integer inputs of their own."""
    params = nest.params
    if not params:
        return {}
    scalars = ((t.name, arrays[t.name]) for t in nest.inputs if t.rank == 0 and t.name in params)
    return {name: int(array[()]) for name, array in scalars if isinstance(array, np.ndarray)}


def check_out(tensor: Tensor, array: Any, sizes: Mapping[str, int]) -> Array:
    """An array given as `out=`: of the right type and shape, contiguous and writable."""
    found = to_numpy(tensor, array)
    _check_type(tensor, found)
    check_shape(tensor, found.shape, sizes)
    if not found.flags.carray:  # C-contiguous, aligned and writable
        raise BadArgument(f"out for {tensor.name}: expected a writable C-contiguous array")
    return plain(tensor, found)


def check_constant(tensor: Tensor, array: Array) -> Array:
    """A new value for a constant: same dtype and shape."""
    _check_type(tensor, array)
    check_shape(tensor, array.shape, {})
    return np.ascontiguousarray(array)
