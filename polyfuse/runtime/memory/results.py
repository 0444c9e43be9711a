"""Reuse the memory of large results that are no longer referenced.

    y = net(x)      new memory: the system gives pages of zeros, one fault after the other
    y = net(x)      again, since the first y is still there
    y = net(x)      the memory of the first y, which was dropped by the second assignment

What is written into fresh pages is written twice, and zeros come through the caches: 16M floats divided by a number
took 14.9 ms with new memory and 10.1 without (one core of a Xeon). One spare is kept for each result of an executable.

They begin with a line of cache. NumPy's arrays of this size begin 16 bytes behind one, so that every store of 64 bytes
lies across two: layer norm of 4096 x 1024 took 1.28 ms in these and 1.14 in lines, softmax 1.56 and 1.50 (one core of a
Zen 4).
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from polyfuse.runtime.cpu.aligned_arrays import aligned_array

LARGE = 4 << 20
"""Bytes from which on the memory of a result is kept: NumPy asks for large pages from there on, all zeroed first."""

SPARE = 1
"""Memories that are kept for a result: a loop that assigns it to one name needs two, and holds one of them."""

Array = npt.NDArray[Any]


class Recycled:
    """Makes a result's arrays, in memory that was dropped where there is some. Threads never share one."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._shape, self._dtype = shape, dtype
        self._spare: list[Array] = []

    def __call__(self) -> Array:
        """An array whose elements are not said."""
        try:
            memory = self._spare.pop()
        except IndexError:
            memory = aligned_array(self._shape, self._dtype)
        array = np.asarray(_Lent(memory, self._spare))
        # the interface has no bfloat16
        return array if array.dtype == self._dtype else array.view(self._dtype)


class _Lent:
    """The owner of a lent buffer: returns it when the last array that views it dies."""

    def __init__(self, memory: Array, spare: list[Array]) -> None:
        self._memory, self._spare = memory, spare
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        if len(self._spare) < SPARE:
            self._spare.append(self._memory)


def is_large(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """True if a result is large enough that its memory is worth keeping."""
    return prod(shape) * dtype.itemsize >= LARGE
