"""Prepare the interpreter's arguments: solve symbolic sizes, check arrays, allocate memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import islpy as isl
import numpy as np

from polyfuse.errors import BadArgument, quantity
from polyfuse.interpret.affine_grid import Points, values
from polyfuse.ir import Nest, Tensor
from polyfuse.ir.gather import check_indices, parts_of
from polyfuse.ir.number_types import NUMBER_TYPES, computed_in, has, is_integer
from polyfuse.ir.sizes import check_sizes, solved
from polyfuse.ir.tensor import pairs_of

Array = np.ndarray[Any, Any]


def named_arrays(nest: Nest, inputs: Mapping[str, Any] | Sequence[Any]) -> dict[str, Array]:
    """Every array given, by name, with the nest's constants; BadArgument if one is missing or not asked for."""
    expected = [t.name for t in nest.inputs]
    if not isinstance(inputs, Mapping):
        if len(inputs) != len(expected):
            raise BadArgument(f"given {quantity(len(inputs), 'array')} for the inputs {', '.join(expected)}")
        inputs = dict(zip(expected, inputs, strict=True))
    given = {**nest.constants, **nest.defaults, **inputs}
    allowed = {*expected, *nest.constants}
    for name in given:
        if name not in allowed:
            raise BadArgument(
                f"{name!r} is not an input of the nest; its inputs are {', '.join(expected) or 'none'}"
            )
    for name in expected:
        if name not in given:
            raise BadArgument(f"{nest.tensor(name)} is missing; given are {', '.join(inputs) or 'none'}")
    return {
        name: _array(nest.tensor(name), pairs_of(nest.tensor(name), value)) for name, value in given.items()
    }


def _array(tensor: Tensor, value: Any) -> Array:
    if tensor.rank == 0 and isinstance(value, int | float):
        if is_integer(tensor.dtype) and not (int(value) == value and has(tensor.dtype, int(value))):
            raise BadArgument(f"{tensor.name} is {value!r}, expected {tensor}")
        return np.asarray(value, computed_in(tensor.dtype)).astype(tensor.dtype)
    array = np.asarray(value)
    if array.ndim != tensor.rank or array.dtype != tensor.dtype:
        raise BadArgument(f"{tensor.name} is {array.dtype}{list(array.shape)}, expected {tensor}")
    return array


def solve_sizes(nest: Nest, arrays: Mapping[str, Array], given: Mapping[str, int]) -> dict[str, int]:
    """The symbolic sizes: those given, integer inputs of that name, and what the shapes of the arrays say.

    BadArgument if one is unknown, or two disagree, or the context does not allow them.
    """
    sizes = dict(given)
    for tensor in nest.inputs:
        if tensor.rank == 0 and tensor.name in nest.params:
            sizes.setdefault(tensor.name, int(arrays[tensor.name][()]))
    pairs = [(s, n) for t in nest.inputs for s, n in zip(t.shape, arrays[t.name].shape, strict=True)]
    sizes = solved(pairs, sizes)
    missing = [name for name in nest.params if name not in sizes]
    if missing:
        raise BadArgument(
            f"the inputs' shapes do not say {', '.join(missing)}; give sizes={{{missing[0]!r}: …}}"
        )
    check_sizes(nest, sizes)
    for name, array in arrays.items():
        shape = shape_of(nest.tensor(name), sizes)
        if array.shape != shape:
            raise BadArgument(
                f"{name} has shape {array.shape}, expected {shape} for {nest.tensor(name)} with {sizes}"
            )
    return sizes


def shape_of(tensor: Tensor, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """A tensor's shape in numbers."""
    return tuple(size if isinstance(size, int) else max(0, evaluate(size, sizes)) for size in tensor.shape)


def evaluate(text: str, sizes: Mapping[str, int]) -> int:
    """An affine expression in symbolic sizes as a number."""
    function = isl.PwAff(f"[{', '.join(sizes)}] -> {{ [] -> [({text})] }}")
    return int(values(function, Points((), sizes)))


def memory_of(nest: Nest, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, Array]:
    """An array for every tensor, in row-major order: given values (copied where they will be written), else poison.

    Poison is NaN, or the smallest integer (the largest, if none is negative), so that an element that is read or
    returned unwritten shows.
    """
    memory = {}
    check_indices(nest, arrays, sizes)
    for tensor in nest.tensors:
        if tensor.role == "gathered":
            table, index = parts_of(nest, tensor)
            memory[tensor.name] = _rows(np.asarray(arrays[table.name]), arrays[index.name])
        elif tensor.is_given:
            copy = tensor.role == "inout"
            memory[tensor.name] = np.array(arrays[tensor.name], order="C", copy=copy or None)
        else:
            memory[tensor.name] = _poison(shape_of(tensor, sizes), np.dtype(tensor.dtype))
    return memory


def _rows(table: Array, index: Array) -> Array:
    """The rows of a table; poison for numbers that are none, of elements that no statement reads a row by."""
    found = _poison((*index.shape, *table.shape[1:]), table.dtype)
    known = (index >= 0) & (index < len(table))
    found[known] = table[index[known]]
    return found


def _poison(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    known = NUMBER_TYPES[str(dtype)]
    poison = np.nan if known.kind == "float" else known.least if known.signed else known.largest
    return np.full(shape, poison, dtype)
