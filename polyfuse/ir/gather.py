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

import islpy as isl
import numpy as np

from polyfuse.errors import BadArgument, InvalidNest
from polyfuse.errors.budget import within
from polyfuse.ir.access import Access
from polyfuse.ir.nest_data import NestData
from polyfuse.ir.number_types import is_integer
from polyfuse.ir.sizes import Sizes, extent, extent_text
from polyfuse.ir.tensor import Box, Limit, Tensor, whole

LIMITS = ("limits",)
"""The key, among a nest's answers, of `limits_of`."""

BOX_OPERATIONS = 100_000
"""isl operations for the ends of a box along one axis; where they do not do, the whole axis is checked."""


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


def limits_of(nest: NestData) -> Mapping[str, tuple[Limit, ...]]:
    """For each input of row numbers or other places, return the limits that a call checks, each once.

    A table limits the elements of the index by which some read takes a row of it; the check is of their box.

    y[i] = u[x[i, 0]] + v[x[i, 1]]        x: len(u) in [0:N, 0:1] and len(v) in [0:N, 1:2]
    """
    if LIMITS not in nest.answers:
        found = {name: tuple(limits) for name, limits in _tables_by_limit(nest).items()}
        for tensor in nest.inputs:
            if tensor.below:
                known = found.get(tensor.name, ())
                found[tensor.name] = tuple(dict.fromkeys((*known, *tensor.below)))
        nest.answers[LIMITS] = found
    limits: Mapping[str, tuple[Limit, ...]] = nest.answers[LIMITS]
    return limits


def limits_by_reads(nest: NestData, tensor: Tensor) -> tuple[Limit, ...]:
    """The limits of a gathered tensor's index: of the box that each read of the tensor takes row numbers from."""
    table, index = parts_of(nest, tensor)
    reads = ((s, a) for s in nest.readers(tensor.name) for a in s.reads if a.tensor == tensor.name)
    boxes = (_box(nest, nest.domains[s.name], access, index) for s, access in reads)
    return tuple(dict.fromkeys(Limit(table.shape[0], box) for box in boxes))


def _tables_by_limit(nest: NestData) -> Mapping[str, Mapping[Limit, tuple[Tensor, ...]]]:
    """For each index, its limits, and the tables of which each is the number of rows."""
    found: dict[str, dict[Limit, tuple[Tensor, ...]]] = {}
    for tensor in nest.with_role("gathered"):
        table, index = parts_of(nest, tensor)
        limits = found.setdefault(index.name, {})
        for limit in limits_by_reads(nest, tensor):
            limits[limit] = (*limits.get(limit, ()), table)
    return {name: limits for name, limits in found.items() if limits}


def _box(nest: NestData, domain: isl.Set, access: Access, index: Tensor) -> Box:
    """The box of an index's elements that an access of its rows reads, in each axis as exact as an extent can be."""
    rows = access.map.intersect_domain(domain).range()

    def ends(axis: int) -> tuple[int | str, int | str]:
        all_of_it = 0, index.shape[axis]

        def asked() -> tuple[int | str, int | str]:
            low, high = (end.gist_params(nest.context) for end in (rows.dim_min(axis), rows.dim_max(axis)))
            first, end = extent_text(low), extent_text(high.add_constant_val(isl.Val(1)))
            return all_of_it if first is None or end is None else (first, end)

        return within(rows.get_ctx(), BOX_OPERATIONS, asked, lambda: all_of_it)

    box = tuple(ends(axis) for axis in range(index.rank))
    return () if box == whole(index) else box


def slices(limit: Limit, sizes: Sizes) -> tuple[slice, ...]:
    """The box of a limit as a subscript of the array."""
    return tuple(slice(extent(first, sizes), extent(end, sizes)) for first, end in limit.box)


def rows_of(nest: NestData, sizes: Sizes) -> dict[str, np.ndarray[Any, Any]]:
    """For each input that holds row numbers or other places, return the number that each element has to be below.

    Elements that no limit is for get the least of the others' numbers.
    """
    found = {}
    for name, limits in limits_of(nest).items():
        highest = [(extent(limit.extent, sizes), slices(limit, sizes)) for limit in limits]
        shape = tuple(extent(size, sizes) for size in nest.tensor(name).shape)
        found[name] = np.full(shape, min(rows for rows, _ in highest))
        for rows, box in sorted(highest, key=lambda each: -each[0]):
            found[name][box] = rows
    return found


def check_indices(nest: NestData, arrays: Mapping[str, np.ndarray[Any, Any]], sizes: Sizes) -> None:
    """BadArgument for an index that is not a row of its tables, with its place and value.

    A negative index is not a row either: nothing is counted from the end.
    """
    for name, limits in limits_of(nest).items():
        for limit in limits:
            index, rows = arrays[name][slices(limit, sizes)], extent(limit.extent, sizes)
            if index.size and not 0 <= index.min() <= index.max() < rows:
                raise no_row(nest, name, arrays[name], limit, sizes)


def no_row(nest: NestData, name: str, array: np.ndarray[Any, Any], limit: Limit, sizes: Sizes) -> BadArgument:
    """Return the error for an array with elements that break a limit."""
    box, rows = slices(limit, sizes), extent(limit.extent, sizes)
    wrong = np.argwhere((array[box] < 0) | (array[box] >= rows))[0].tolist()
    at = tuple(axis + (box[d].start if box else 0) for d, axis in enumerate(wrong))
    place = f"[{', '.join(map(str, at))}]" if at else ""
    tables = " and ".join(map(str, _tables_by_limit(nest).get(name, {}).get(limit, ())))
    use = f"it chooses a row of {tables}" if tables else f"it is a place: {nest.tensor(name)}"
    return BadArgument(f"{name}{place} is {array[at]}, expected 0 <= {name}{place} < {rows}: {use}")
