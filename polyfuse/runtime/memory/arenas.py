"""Temporaries as arrays in one arena, for runners that take every tensor by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from polyfuse.ir.tensor import Tensor
from polyfuse.runtime.memory.memory_plan import MemoryPlan, shape_of

Array = npt.NDArray[Any]
Sizes = Mapping[str, int]


class Arenas:
    """Spare sets of temporaries by sizes. Threads never share one: list.pop is atomic."""

    def __init__(self, tensors: tuple[Tensor, ...], plan: Callable[[Sizes], MemoryPlan]) -> None:
        self._tensors, self._plan = tensors, plan
        self._spare: dict[tuple[tuple[str, int], ...], list[dict[str, Array]]] = {}

    @contextmanager
    def lent(self, sizes: Sizes) -> Iterator[Mapping[str, Array]]:
        """The temporaries by name, for as long as the block runs."""
        spare = self._spare.setdefault(tuple(sorted(sizes.items())), [])
        try:
            found = spare.pop()
        except IndexError:
            found = self._new(sizes)
        try:
            yield found
        finally:
            spare.append(found)

    def _new(self, sizes: Sizes) -> dict[str, Array]:
        plan = self._plan(sizes)
        arena = np.empty(plan.size, np.uint8)
        found = {}
        for tensor in self._tensors:
            start, stop = plan.spans[tensor.name]
            array = arena[start:stop].view(tensor.dtype).reshape(shape_of(tensor, sizes))
            found[tensor.name] = at_least_1d(array)
        return found


def at_least_1d(array: Array) -> Array:
    """Kernels take a scalar tensor as an array of one element."""
    return array.reshape(1) if array.ndim == 0 else array
