"""Number the blocks of a launch, and of its clusters, in the lock-step run."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from polyfuse.codegen.cuda.cluster_axes import ALONE

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Grid:
    """The launch: blocks, threads per block, and blocks of a cluster, x first."""

    blocks: tuple[int, int, int]
    threads: tuple[int, int, int]
    cluster: tuple[int, int, int] = ALONE

    @property
    def per_block(self) -> int:
        """Threads in a block."""
        x, y, z = self.threads
        return x * y * z

    @property
    def per_cluster(self) -> int:
        """Blocks in a cluster."""
        return prod(self.cluster)

    @property
    def whole(self) -> int:
        """The least number of blocks in a row, from any multiple of it on, that are whole clusters."""
        along = max((d for d in range(3) if self.cluster[d] > 1), default=None)
        return 1 if along is None else prod(self.blocks[:along]) * self.cluster[along]

    def rank(self, blocks: Integers) -> Integers:
        """The rank of each block in its cluster, counted along x first.

        >>> Grid((4, 2, 1), (32, 1, 1), (2, 2, 1)).rank(np.arange(8)).tolist()
        [0, 1, 0, 1, 2, 3, 2, 3]
        """
        x, y, z = (at % n for at, n in zip(_coordinates(blocks, self.blocks), self.cluster, strict=True))
        return np.asarray(x + self.cluster[0] * (y + self.cluster[1] * z))

    def beside(self, blocks: Integers, rank: int) -> Integers:
        """The block of the same cluster that has a rank, for each block.

        >>> Grid((4, 2, 1), (32, 1, 1), (2, 2, 1)).beside(np.arange(8), 1).tolist()
        [1, 1, 3, 3, 1, 1, 3, 3]
        """
        wanted = _coordinates(rank, self.cluster)
        x, y, z = (
            at - at % n + to
            for at, n, to in zip(_coordinates(blocks, self.blocks), self.cluster, wanted, strict=True)
        )
        return np.asarray(x + self.blocks[0] * (y + self.blocks[1] * z))

    def name(self, thread: int) -> str:
        """`thread (3, 0, 0) of block (1, 0, 0)` for a thread's number in the whole grid."""
        block, inside = divmod(thread, self.per_block)
        return f"thread {_coordinates(inside, self.threads)} of block {_coordinates(block, self.blocks)}"


def _coordinates(number: Any, extent: tuple[int, int, int]) -> tuple[Any, Any, Any]:
    return number % extent[0], number // extent[0] % extent[1], number // (extent[0] * extent[1])
