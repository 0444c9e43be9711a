"""A warpgroup's instruction on NumPy arrays: matrices found by descriptors, and sums of 128 threads.

    wgmma.m64nNk16     C[64, N] += A[64, 16] * B[16, N]

Lane 4 * g + t of warp w holds of C the rows 16w + g and 16w + g + 8, of these the columns 8j + 2t and 8j + 2t + 1 (PTX
ISA, "Matrix Fragments for wgmma.mma_async.m64nNk16", accumulator D). Products are exact here and their sum rounded
once; a GPU's may lie off by what polyfuse.ir.precision says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from polyfuse.analysis.banks import WARP
from polyfuse.layouts.core_matrix import INSTRUCTION_ROWS
from polyfuse.layouts.wgmma_descriptors import UNIT, WARPGROUP, Described

Numbers = npt.NDArray[Any]


def matrices(
    bits: list[int], count: int, itemsize: int, load: Callable[[Numbers], Numbers], turned: bool = False
) -> Numbers:
    """[warpgroups, count, 16]: the matrix of so many rows that each warpgroup's descriptor tells of.

    Its steps are those of one instruction, two core matrices' of 16 bytes each; `turned`, these have steps as rows.

    `load` gives what all threads read of an array, each at a byte position of its own: each reads some elements here.
    """
    steps = 2 * UNIT // itemsize
    described = [Described.by(each) for each in bits]
    start = np.repeat([each.start for each in described], WARPGROUP)
    whole = replace(described[0], start=start)
    lane = np.arange(len(start)) % WARPGROUP
    found = []
    for first in range(0, count * steps, WARPGROUP):
        row, step = np.divmod(first + lane, steps)
        found.append(np.asarray(load(whole.address(row, step, itemsize, turned))))
    by_group = np.stack(found).reshape(-1, len(bits), WARPGROUP).transpose(1, 0, 2)
    return by_group.reshape(len(bits), count, steps)


def warpgroups_multiplied(left: Numbers, right: Numbers, held: list[Numbers]) -> list[Numbers]:
    """One instruction by every warpgroup: A[64, 16], B[N, 16], and C as its threads hold it, in registers' order.

    Register 4j + 2h + e has row 16 * warp + g + 8h, column 8j + 2t + e.
    """
    sums = left.astype(np.float64) @ right.astype(np.float64).transpose(0, 2, 1)
    lane = np.arange(WARPGROUP)
    warp, g, t = lane // WARP, lane % WARP // 4, lane % 4
    new = []
    for register, before in enumerate(held):
        j, rest = divmod(register, 4)
        row = warp * (INSTRUCTION_ROWS // 4) + g + 8 * (rest // 2)
        own = sums[:, row, 8 * j + 2 * t + rest % 2].reshape(-1)
        new.append((own + before).astype(np.float32))
    return new
