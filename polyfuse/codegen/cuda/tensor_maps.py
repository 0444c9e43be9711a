"""Tensor maps: descriptors of arrays for TMA, 128 bytes that the driver makes from an address.

    x: float16[N, 1024] at 0x7f…, boxes of 64 × 64   ->   a map, which a kernel has as an argument of its own

A kernel says which arrays it needs maps of (`BoxMap`), a launch what they are for its sizes and addresses
(`TensorMap`); the GPU makes the driver's of it (driver.py), and lock-step reads the array itself
(`MappedArray`). What lies beyond the array is zero in a box.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

KIND = "tensormap"
"""The type of such an argument in a kernel's signature."""

MAP_BYTES, MAP_ALIGNMENT = 128, 64


@dataclass(frozen=True)
class BoxMap:
    """A map that a kernel needs: the position of its array among the launch's tensors, its extents, a box's extents.

    Extents are numbers or expressions in sizes; the last axis is the one of neighbours.
    """

    position: int
    shape: tuple[int | str, ...]
    box: tuple[int, ...]
    itemsize: int

    def extents(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The array's extents for given sizes."""
        return tuple(each if isinstance(each, int) else _value(each, sizes) for each in self.shape)

    def at(self, address: int, sizes: Mapping[str, int]) -> TensorMap:
        """The map of an array that lies at an address."""
        return TensorMap(address, self.extents(sizes), self.box, self.itemsize)

    def of(self, array: npt.NDArray[Any], sizes: Mapping[str, int]) -> MappedArray:
        """The map's counterpart in the lock-step emulator."""
        return MappedArray(array, self.extents(sizes), self.box)


@dataclass(frozen=True)
class TensorMap:
    """An array on a GPU, row-major, of which boxes are copied to lines of 128 bytes, swizzled."""

    address: int
    shape: tuple[int, ...]
    box: tuple[int, ...]
    itemsize: int


@dataclass(frozen=True, eq=False)
class MappedArray:
    """An array on the host, flat, of which boxes are copied."""

    array: npt.NDArray[Any]
    shape: tuple[int, ...]
    box: tuple[int, ...]

    def positions(self, corner: tuple[npt.NDArray[np.int64], ...]) -> npt.NDArray[np.int64]:
        """[blocks, elements of a box]: where each element lies in the array, -1 beyond it; from corners [blocks]."""
        flat = np.zeros((len(corner[0]), 1), np.int64)
        inside = np.ones(flat.shape, np.bool_)
        indices = np.indices(self.box).reshape(len(self.box), -1)
        for first, within, extent in zip(corner, indices, self.shape, strict=True):
            index = first[:, None] + within
            inside = inside & (index >= 0) & (index < extent)
            flat = flat * extent + index
        return np.where(inside, flat, -1)


def _value(expression: str, sizes: Mapping[str, int]) -> int:
    text = ast.unparse(ast.parse(expression, mode="eval"))
    return int(eval(text, {"__builtins__": {}, "floor": np.floor}, dict(sizes)))
