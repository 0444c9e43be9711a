"""The tensor cores' instructions on NumPy arrays: what 32 lanes hold goes into matrices, and what they get comes out.

    mma.m16n8k8, mma.m16n8k16     C[16, 8] += A[16, steps] * B[steps, 8], one warp's

Lane 4 * g + t holds of A the rows g and g + 8, of B the column g, and of C rows g and g + 8, columns 2t and 2t + 1. Its
steps are t and t + 4 of 8, and 2t, 2t + 1, 2t + 8, 2t + 9 of 16 (PTX ISA, sections "Matrix Fragments for mma.m16n8k8"
and "Matrix Fragments for mma.m16n8k16"). Products are exact here and their sum rounded once; a GPU's may lie off by
what polyfuse.ir.precision says.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from polyfuse.analysis.banks import WARP

Numbers = npt.NDArray[Any]


def multiplied(a: list[list[Numbers]], b: list[Numbers], c: list[Numbers]) -> list[Numbers]:
    """One instruction by every warp: each list entry has an element a lane, for all lanes of all warps.

    `a` has rows g and g + 8 of a lane's steps, `b` its steps, `c` (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
    """
    warps, depth = len(c[0]) // WARP, 4 * len(b)
    lanes = np.arange(WARP)
    g, t = lanes // 4, lanes % 4
    left = np.empty((warps, 16, depth))
    right = np.empty((warps, depth, 8))
    steps = (t, t + 4) if depth == 8 else (2 * t, 2 * t + 1, 2 * t + 8, 2 * t + 9)
    for position, step in enumerate(steps):
        left[:, g, step] = a[0][position].reshape(warps, WARP)
        left[:, g + 8, step] = a[1][position].reshape(warps, WARP)
        right[:, step, g] = b[position].reshape(warps, WARP)
    sums = left @ right
    places = ((g, 2 * t), (g, 2 * t + 1), (g + 8, 2 * t), (g + 8, 2 * t + 1))
    return [
        (sums[:, row, column].reshape(-1) + held).astype(np.float32)
        for (row, column), held in zip(places, c, strict=True)
    ]
