"""Gathered reads: rows of a table, chosen by an array of integers.

    S[i, j]: y[i, j] = table[index[i], j]     ->     gathered rows = table[index];  S[i, j]: y[i, j] = rows[i, j]

The rows are a tensor of their own without memory, and reads of it are affine: dependences, footprints and copies are
exact, as of any other tensor that nobody writes. They are sound because the nest writes neither the table nor the
index. Only the last stage, which names an element of memory, knows where the rows lie.

No kernel has a guard: a call checks its indices before the first kernel runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from polyfuse.errors import BadArgument, InvalidNest
from polyfuse.ir.nest_data import NestData
from polyfuse.ir.number_types import is_integer
from polyfuse.ir.sizes import Sizes, extent
from polyfuse.ir.tensor import Tensor


def check_gathered(nest: NestData) -> None:
    """Raise InvalidNest at the first gathered tensor that is not what it says, or whose parts may change."""
    for tensor in nest.with_role("gathered"):
        table, index = parts_of(nest, tensor)
        for part, allowed, why in (
            (index, ("input",), "so that a call can check it before a row is read"),
            (table, ("input", "constant"), "as rows are read where they lie, at any time"),
        ):
            if part.role not in allowed:
                raise InvalidNest(
                    f"gathered {tensor.name}: {part.name} has role {part.role}, expected {' or '.join(allowed)}, {why}"
                )
        if not is_integer(index.dtype):
            raise InvalidNest(
                f"gathered {tensor.name}: the index {index.name} is {index.dtype}, expected integers"
            )
        if table.rank == 0 or tensor != Tensor.gathered(tensor.name, table, index):
            raise InvalidNest(f"{tensor} is not what {table} and {index} give: rows for each index")


def parts_of(nest: NestData, tensor: Tensor) -> tuple[Tensor, Tensor]:
    """The table and the index of a gathered tensor."""
    assert tensor.gather is not None, f"{tensor.name} is not gathered"
    return nest.tensor(tensor.gather.table), nest.tensor(tensor.gather.index)


def read_from(nest: NestData, tensor: Tensor) -> tuple[Tensor, ...]:
    """The tensors with memory that a read of one accesses: itself, or a table and its index."""
    return (tensor,) if tensor.gather is None else parts_of(nest, tensor)


def tables_of(nest: NestData) -> Mapping[str, tuple[Tensor, ...]]:
    """For each input that holds row numbers, return the tables that it indexes."""
    found: dict[str, list[Tensor]] = {}
    for tensor in nest.with_role("gathered"):
        table, index = parts_of(nest, tensor)
        found.setdefault(index.name, []).append(table)
    return {name: tuple(tables) for name, tables in found.items()}


def limits_of(nest: NestData) -> Mapping[str, tuple[int | str, ...]]:
    """For each input of row numbers or other places, return the extents that every element has to be below."""
    found: dict[str, list[int | str]] = {}
    for name, tables in tables_of(nest).items():
        found[name] = [table.shape[0] for table in tables]
    for tensor in nest.inputs:
        if tensor.below:
            found.setdefault(tensor.name, []).extend(tensor.below)
    return {name: tuple(limits) for name, limits in found.items()}


def rows_of(nest: NestData, sizes: Sizes) -> dict[str, int]:
    """For each input that holds row numbers or other places, return how many there are."""
    return {name: min(extent(one, sizes) for one in every) for name, every in limits_of(nest).items()}


def check_indices(nest: NestData, arrays: Mapping[str, np.ndarray[Any, Any]], sizes: Sizes) -> None:
    """BadArgument for an index that is not a row of its tables, with its place and value.

    A negative index is not a row either: nothing is counted from the end.
    """
    for name, rows in rows_of(nest, sizes).items():
        index = arrays[name]
        if index.size and not 0 <= index.min() <= index.max() < rows:
            raise no_row(nest, name, index, rows)


def no_row(nest: NestData, name: str, index: np.ndarray[Any, Any], rows: int) -> BadArgument:
    """Return the error for an array with elements outside of 0 to rows - 1."""
    at = tuple(np.argwhere((index < 0) | (index >= rows))[0].tolist())
    place = f"[{', '.join(map(str, at))}]" if at else ""
    tables = " and ".join(map(str, tables_of(nest).get(name, ())))
    use = f"it chooses a row of {tables}" if tables else f"it is a place: {nest.tensor(name)}"
    return BadArgument(f"{name}{place} is {index[at]}, expected 0 <= {name}{place} < {rows}: {use}")
