"""What holds a product's tiles below the peak: a tile's loop with its operands nearer and farther, in turns.

python -m benchmarks.tile_rates [--turns N] [--dtype float32|float64]

The peak is that of multiply-adds alone, in the same turns (benchmarks.peak). Each row below it adds one thing to the
one above: tiles whose operands all lie in L1, a panel of b from L2, a block of several, rows of a that are others for
each block, sums that are elsewhere for each tile. From the last of them to `benchmarks.gemm` there is packing, and the
first block of steps, whose sums are not loaded.
"""

from __future__ import annotations

import os

os.environ["NUMBA_NUM_THREADS"] = "1"

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

import polyfuse as pf
from benchmarks.peak import peak_of
from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac import VECTOR_BYTES
from polyfuse.intrinsics import TileSpec, tile_mac

TILES = 1024
"""Tiles in one call, of 1024 steps; as many more as the steps are fewer."""


@dataclass(frozen=True)
class Case:
    """Tiles of rows x vectors, so many steps, a block of so many panels of b; whether a and the sums move on."""

    name: str
    rows: int = 6
    vectors: int = 4
    steps: int = 1024
    panels: int = 1
    moving_rows: bool = False
    moving_sums: bool = False


CASES = (
    Case("6 x 4, all in L1", steps=128),
    Case("8 x 3, all in L1", rows=8, vectors=3, steps=128),
    Case("12 x 2, all in L1", rows=12, vectors=2, steps=128),
    Case("14 x 2, all in L1", rows=14, vectors=2, steps=128),
    Case("6 x 4, a panel of b from L2"),
    Case("6 x 4, a block of 4 panels", panels=4),
    Case("6 x 4, a block of 8 panels", panels=8),
    Case("6 x 4, 4 panels, a moves", panels=4, moving_rows=True),
    Case("6 x 4, 4 panels, a and sums move", panels=4, moving_rows=True, moving_sums=True),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.tile_rates", description="Tiles against the peak.")
    parser.add_argument("--turns", type=int, default=15, help="how often each candidate is timed")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    options = parser.parse_args()
    kind = np.dtype(options.dtype).type
    multiply_adds, operations = peak_of(kind, 100_000)
    timed = {case.name: tiles(case, kind) for case in CASES}
    candidates = {"peak": multiply_adds, **{name: call for name, (call, _) in timed.items()}}
    times = pf.measure.in_turns(candidates, options.turns, pause=0.005)
    peak = operations / times["peak"].median, operations / times["peak"].best
    print(f"{options.dtype}, multiply-adds alone: {peak[0] / 1e9:.1f} GFLOP/s, best {peak[1] / 1e9:.1f}")
    for name, (_, work) in timed.items():
        part, best = work / times[name].median / peak[0], work / times[name].best / peak[1]
        print(f"{name:34} {part:6.1%} of the peak, best of best {best:6.1%}")


def tiles(case: Case, kind: Any) -> tuple[Callable[[], object], int]:
    """(something to time, the floating-point operations that it does)."""
    lanes = VECTOR_BYTES // np.dtype(kind).itemsize
    columns, count = case.vectors * lanes, TILES * 1024 // case.steps
    blocks = count // case.panels
    rng = np.random.default_rng(0)
    a = _aligned(rng, (blocks * case.rows if case.moving_rows else case.rows, case.steps), kind)
    b = _aligned(rng, (case.panels, case.steps, columns), kind)
    y = _aligned(
        rng, (blocks * case.rows, case.panels * columns) if case.moving_sums else (case.rows, columns), kind
    )
    down, right = case.rows if case.moving_sums else 0, columns if case.moving_sums else 0
    run = _kernel(case.rows, columns)
    call = partial(run, y, a, b, case.steps, blocks, case.rows if case.moving_rows else 0, down, right)
    return call, 2 * case.rows * columns * case.steps * case.panels * blocks


def _aligned(rng: np.random.Generator, shape: tuple[int, ...], kind: Any) -> npt.NDArray[Any]:
    """Random numbers, small ones, from a cache line's beginning on."""
    size = int(np.prod(shape))
    room = np.empty(size + VECTOR_BYTES, kind)
    first = -room.ctypes.data % VECTOR_BYTES // room.itemsize
    values = room[first : first + size].reshape(shape)
    values[...] = rng.uniform(-0.01, 0.01, shape)
    return values


def _kernel(rows: int, columns: int) -> Callable[..., object]:
    @njit
    def run(y: Any, a: Any, b: Any, steps: int, blocks: int, next_rows: int, down: int, right: int) -> None:
        for i in range(blocks):
            for j in range(b.shape[0]):
                tile_mac(
                    TileSpec(rows=rows, columns=columns),
                    y=y, y_at=(down * i, right * j), y_row=0,
                    a=a, a_at=(next_rows * i, 0), a_row=0, a_step=1,
                    b=b, b_at=(j, 0, 0), b_step=1,
                    steps=steps,
                )  # fmt: skip

    return run


if __name__ == "__main__":
    main()
