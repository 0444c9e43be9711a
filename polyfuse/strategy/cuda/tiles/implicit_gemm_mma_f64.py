"""Shapes of tiles for convolutions of float64 numbers on tensor cores: nothing is rounded, tiles are copied ahead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product as pairs

from polyfuse.analysis.banks import WARP
from polyfuse.machine import Gpu, Machine
from polyfuse.strategy.cuda.tiles.implicit_gemm_fma import MOST_THREADS
from polyfuse.strategy.cuda.tiles.implicit_gemm_mma import WarpWindow, fits
from polyfuse.strategy.cuda.tiles.mma_f64 import DEEP, FLOAT64, STAGES, TILES, DoubleShape
from polyfuse.strategy.cuda.tiles.tile_cost import costed
from polyfuse.strategy.match.gemm_problem import Extents


@dataclass(frozen=True)
class DoubleWindow(WarpWindow, DoubleShape):
    """A shape of a convolution whose products of float64 numbers run on tensor cores."""


@lru_cache(maxsize=64)
def double_windows(
    extents: Extents, pixels_left: bool, padded: bool, itemsize: int, machine: Machine, gpu: Gpu
) -> tuple[DoubleWindow, ...]:
    """The shapes that fit a convolution of float64 numbers, the cheapest first; none where tensor cores have none."""
    if itemsize != FLOAT64 or "f64" not in dict(machine.tensor):
        return ()
    found = [s for s in _every(pixels_left, padded) if fits(s, extents, gpu)]
    return tuple(sorted((costed(s, extents, machine, gpu) for s in found), key=lambda s: s.seconds))


def _every(pixels_left: bool, padded: bool) -> Iterator[DoubleWindow]:
    for down, z, (rows, columns), steps, stages in pairs((1, 2), (1, 2, 4, 8), TILES, DEEP, STAGES):
        if WARP * down * z <= MOST_THREADS:
            yield DoubleWindow(
                z,
                8 * down,
                4,
                rows,
                columns,
                steps,
                FLOAT64,
                stages,
                format="f64",
                pixels_left=pixels_left,
                padded=padded,
            )
