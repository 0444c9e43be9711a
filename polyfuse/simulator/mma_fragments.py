"""mma.sync on NumPy arrays: 32 lanes' fragments become matrices, and the product becomes fragments again.

    mma.m16n8k8, mma.m16n8k16     C[16, 8] += A[16, steps] * B[steps, 8], one warp's
    mma.m8n8k4                    C[8, 8] += A[8, 4] * B[4, 8], of float64 numbers

Lane 4 * g + t holds of A the rows g and g + 8, of B the column g, and of C rows g and g + 8, columns 2t and 2t + 1. Its
steps are t of 4, t and t + 4 of 8, and 2t, 2t + 1, 2t + 8, 2t + 9 of 16 (PTX ISA, sections "Matrix Fragments for
mma.m8n8k4", "… mma.m16n8k8", "… mma.m16n8k16"); of float64 numbers there are no rows g + 8. Products of rounded
factors are exact here and their sum rounded once; a GPU's may lie off by what polyfuse.ir.precision says.

    ldmatrix, ldmatrix.trans      four matrices of 8 rows of 16 bytes, one warp's

Lane 8 * q + row says where row `row` of matrix q begins, and lane 4 * g + t gets elements (g, 2t) and (g, 2t + 1) of 16
bits of each matrix, or with .trans (2t, g) and (2t + 1, g); of 32 bits element (g, t) (PTX ISA, section "ldmatrix").
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from polyfuse.analysis.banks import WARP
from polyfuse.codegen.cuda.mma_calls import LINES, TRANSPOSED
from polyfuse.codegen.looptree.half_types import FROM, converted
from polyfuse.ir.number_types import ITEMSIZE
from polyfuse.ir.precision import STEPS, STORED, Math
from polyfuse.simulator.threads import WIDE, Threads, line

Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class Fragments:
    """One factor as all warps' lanes read it: the arguments of `tile_mma` for it, and a lane's rows or columns."""

    threads: Threads
    factor: ast.Subscript
    first: Numbers
    numbers: list[int]
    width: int
    left: bool
    math: Math
    t: Numbers
    g: Numbers

    @property
    def transposed(self) -> bool:
        """True if steps are a matrix's rows."""
        return self.numbers[0] == TRANSPOSED

    def at(self, step: int, count: int) -> list[list[Numbers]]:
        """For each of a lane's rows or columns its steps of one instruction, in float32; zeros from `count` on."""
        if self.numbers[0] == LINES:
            return self._lines(step, count)
        found: list[list[Numbers]] = [[] for _ in range(self.width)]
        for own in range(0, self.width, 2):
            matrices = 4 if own + 1 < self.width else 2
            for q, words in enumerate(self._loaded(step, own, matrices, count)):
                second, late = (q % 2, q // 2) if self.left else (q // 2, q % 2)
                found[own + second] += self._below(words, step + late * self._neighbours, count)
        return found

    @property
    def _neighbours(self) -> int:
        return WIDE // ITEMSIZE[STORED[self.math]]

    def _lines(self, step: int, count: int) -> list[list[Numbers]]:
        first = self.first if self.left else self.first + self.g * self.numbers[-1]
        found: list[list[Numbers]] = [[] for _ in range(self.width)]
        for own in (step + n + self.t for n in range(0, STEPS[self.math], 4)):
            there = own < count
            read = np.where(there, own, count - 1)
            for n, value in enumerate(
                line(self.threads, self.factor, first, self.width, read, self.numbers[1:])
            ):
                found[n].append(np.where(there, value, value.dtype.type(0)))
        return found

    def _loaded(self, step: int, own: int, matrices: int, count: int) -> list[list[Numbers]]:
        """ldmatrix: for each matrix the elements that each lane gets."""
        row_apart, own_apart, step_apart = self.numbers[1:4]
        lane = 4 * self.g + self.t
        low, high = lane // 8 % 2, lane // 16 * (matrices == 4)
        second, late = (low, high) if self.left else (high, low)
        row, after = lane % 8, late * self._neighbours
        if self.transposed:
            place = np.minimum(step + after + row, count - 1) * step_apart
        else:
            place = row * row_apart + step + after
        place = place + (own + second) * own_apart + self.first
        elements = [
            np.broadcast_to(self.threads.load(self.factor, [place + e], WIDE), lane.shape)
            for e in range(self._neighbours)
        ]
        held = np.stack(elements, axis=-1).reshape(-1, 4, 8, self._neighbours)
        if self._neighbours == 4:
            return [[held[:, q].reshape(-1)] for q in range(matrices)]
        if self.transposed:
            held = held.swapaxes(2, 3)
        return [[held[:, q, :, n::2].reshape(-1) for n in (0, 1)] for q in range(matrices)]

    def _below(self, words: list[Numbers], step: int, count: int) -> list[Numbers]:
        """A lane's elements of a matrix as float32 numbers, zeros from step `count` on."""
        found = []
        for n, word in enumerate(words):
            value = word if self.math == "tf32" else converted(FROM[STORED[self.math]], word)
            found.append(np.where(step + len(words) * self.t + n < count, value, np.float32(0)))
        return found


def multiplied(a: list[list[Numbers]], b: list[Numbers], c: list[Numbers]) -> list[Numbers]:
    """One instruction by every warp: each list entry has an element a lane, for all lanes of all warps.

    `a` has rows g and g + 8 of a lane's steps, `b` its steps, `c` (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1);
    of float64 numbers there is row g alone.
    """
    warps, depth, heights = len(c[0]) // WARP, 4 * len(b), range(0, 8 * len(a), 8)
    lanes = np.arange(WARP)
    g, t = lanes // 4, lanes % 4
    left = np.empty((warps, 8 * len(a), depth))
    right = np.empty((warps, depth, 8))
    steps = {4: (t,), 8: (t, t + 4), 16: (2 * t, 2 * t + 1, 2 * t + 8, 2 * t + 9)}[depth]
    for position, step in enumerate(steps):
        for rows, below in zip(a, heights, strict=True):
            left[:, g + below, step] = rows[position].reshape(warps, WARP)
        right[:, step, g] = b[position].reshape(warps, WARP)
    sums = left @ right
    places = [(g + below, 2 * t + n) for below in heights for n in (0, 1)]
    return [
        (sums[:, row, column].reshape(-1) + held).astype(held.dtype)
        for (row, column), held in zip(places, c, strict=True)
    ]
