"""The mapping of lanes to threads in tensor-core tiles: neighbours in pairs, one behind another.

    lane                    0      1      2      3      4   …    31      of 16 × 4 threads
    by itself (x, y)      0, 0   1, 0   2, 0   3, 0   4, 0     15, 1
    in pairs              0, 0   0, 1   1, 0   1, 1   2, 0     15, 1

Shared memory gives a warp 4 bytes a lane in a cycle, also where lanes read the same, but 8 where all lanes n and n ^ 1,
or all lanes n and n ^ 2, do (NVIDIA's forum, "Unexpected shared memory bank conflict", of compute capability 7). A
product's factors are read along x and along y. By themselves lanes n and n ^ 1 have one y and two x, so that what
depends on x alone comes at 4 bytes a lane; in pairs both factors come at 8. A warp has the same threads either way.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from polyfuse.analysis.banks import WARP

Number = TypeVar("Number", int, npt.NDArray[np.int64])


def can_pair(x: int, y: int) -> bool:
    """True if a block with so many threads on thread.x and thread.y has warps of whole pairs of rows."""
    return x >= 4 and y % 2 == 0 and WARP % (2 * x) == 0


def paired(x: Number, y: Number, extent: int) -> tuple[Number, Number]:
    """Return the thread that the hardware's thread (x, y) acts as, in a block with `extent` threads on thread.x.

    >>> [paired(x, 0, 16) for x in range(4)]
    [(0, 0), (0, 1), (1, 0), (1, 1)]
    """
    return x // 2 + y % 2 * (extent // 2), y // 2 * 2 + x % 2
