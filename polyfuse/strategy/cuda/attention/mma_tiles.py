"""Tiles of attention on tensor cores: four lanes of a warp share all keys of a block.

    lane 4 * g + t:    rows of g    scores: keys of t    results: columns of t

A lane's rows and keys are neighbours, as without tensor cores (mma_tile.py), so that all between the
products is as it was. What they multiply is rounded where it is staged: queries, keys, values, and exponentials, of
which sums are taken before that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product as pairs
from math import ceil

from polyfuse.analysis.banks import WARP
from polyfuse.analysis.vector_access import ACCESS_BYTES
from polyfuse.ir.number_types import HALVES
from polyfuse.ir.precision import STEPS as OF_ONE
from polyfuse.ir.precision import STORED, Math
from polyfuse.machine import Gpu, GpuMachine
from polyfuse.schedule.microkernel_verb import CONVERTED_REGISTERS
from polyfuse.strategy.cost.gpu_cycles import hertz
from polyfuse.strategy.cuda.attention.tiles import STEPS, Panels, PassShape, Sizes, cheapest_first
from polyfuse.strategy.cuda.tiles.mma import FLOAT32, Mma, reached
from polyfuse.strategy.cuda.tiles.tile import ThreadblockTile
from polyfuse.strategy.cuda.tiles.tile_copies import ThreadCopy
from polyfuse.strategy.cuda.tiles.tile_shape import SCHEDULERS, SHARED_BYTES, TileShape
from polyfuse.strategy.match.attention import KEY, OneKernel

OF_AN_EXPONENTIAL = 3
"""Instructions that round an exponential, find its place and store it."""

MOST_COLUMNS = 128
"""Columns of a result: 32 of a lane, which stay in its registers."""


@dataclass(frozen=True)
class TensorPassShape(PassShape):
    """A shape whose two products are tensor cores'."""

    @property
    def registers(self) -> int:
        """Registers a thread needs: what scores need, the tile of results, and what copies convert."""
        b = self.results.shape
        return self.scores.registers + b.rows * b.columns + CONVERTED_REGISTERS

    @property
    def narrowed(self) -> Math | None:
        """Exponentials are factors of the format."""
        return self.scores.math

    def exponentials(self) -> Panels:
        """Rows of keys, as ldmatrix reads them."""
        tile = self.values()
        return Panels(KEY, self.keys, tile.layout(tile.left, True, True))

    def shared_bytes(self, steps: int) -> int:
        """Shared memory of a block: queries, keys, values, exponentials, and four numbers a row."""
        return self.queries(steps).shared_bytes + self.values().shared_bytes + 4 * self.rows * FLOAT32

    def issued(self, sizes: Sizes, machine: GpuMachine, at_once: int) -> float:
        """Cycles of an SM for a block of keys: the tensor cores', or all instructions' where they wait for these."""
        a, b = self.scores.shape, self.results.shape
        products = (
            a.rows // 2 * (a.columns // 2 * self._deep(sizes.steps) + b.columns // 2 * self._deep(self.keys))
        )
        beside = self.beside(sizes, machine) + OF_AN_EXPONENTIAL * a.rows * a.columns
        issue = (products + self._loads(sizes) + beside) * self.warps + self._copies(sizes)
        flops = 2 * a.threads * a.rows * (a.columns * sizes.steps + b.columns * self.keys)
        of_tensor_cores = flops / (dict(machine.tensor)[self.math] / hertz(machine) * reached(machine))
        return max(issue / at_once, of_tensor_cores * SCHEDULERS / at_once)

    def delivered(self, sizes: Sizes) -> float:
        """Cycles of shared memory for a block of keys."""
        a = self.scores.shape
        loaded = self._loads(sizes) * self.warps * WARP * ACCESS_BYTES / SHARED_BYTES
        return (
            loaded + a.rows * a.columns * self.warps + self.copied(sizes) * self.scores.element / SHARED_BYTES
        )

    def _deep(self, steps: int) -> int:
        """Instructions one after the other."""
        return ceil(steps / OF_ONE[self.scores.math])

    def _loads(self, sizes: Sizes) -> int:
        """Reads of four matrices of a warp."""
        a, b = self.scores.shape, self.results.shape
        of_scores = (a.rows // 2 + a.columns // 4) * self._deep(sizes.steps)
        return of_scores + (b.rows // 2 + b.columns // 4) * self._deep(self.keys)

    def _copies(self, sizes: Sizes) -> int:
        """Instructions of all warps that copy keys and values: a load, addresses, roundings, stores of runs."""
        vector = self.scores.shape.vector
        return ceil(self.copied(sizes) / vector / WARP) * (2 + self.scores.mma.stores(vector))


def tensor_pass_shapes(one: OneKernel, sizes: Sizes, machine: GpuMachine, gpu: Gpu) -> list[PassShape]:
    """The shapes for a machine's `math` that fit, the cheapest first; none where `why_not_rounded` says why."""
    if machine.math == "ieee" or why_not_rounded(one, machine) is not None:
        return []
    return cheapest_first(_every(machine.math, sizes.columns), sizes, machine, gpu)


def why_not_rounded(one: OneKernel, machine: GpuMachine) -> str | None:
    """The reason why tensor cores cannot multiply a kernel's factors in a machine's format; None if they can."""
    math, p, q = machine.math, one.scores, one.results
    if STORED[math] not in HALVES or math not in dict(machine.tensor):
        return "exponentials are stored as halves for them"
    for name in (p.left.name, p.right.name, q.right.name):
        dtype = one.nest.tensor(name).dtype
        if dtype not in ("float32", STORED[math]):
            return f"{name} is {dtype}"
    steps, columns = one.extent(p, p.steps[0]), one.extent(q, q.columns)
    if steps % STEPS:
        return f"{steps} steps of a score are no multiple of {STEPS}"
    if columns % STEPS or columns > MOST_COLUMNS:
        return f"{columns} columns are no multiple of {STEPS} up to {MOST_COLUMNS}"
    return None


def beside_tensor_cores(one: OneKernel, shape: PassShape, machine: GpuMachine) -> tuple[str, ...]:
    """A remark that a kernel's products are multiply-adds although tensor cores were allowed, and the reason."""
    if machine.math == shape.math:
        return ()
    why = why_not_rounded(one, machine) or "that is expected to be faster"
    return (f"no tensor cores in it, though math={machine.math!r}: {why}",)


def _every(math: Math, columns: int) -> Iterator[PassShape]:
    """Warps that each have rows of their own, with all keys of a block and all columns of a result."""
    for down, rows, keys in pairs((1, 2, 4), (2, 4), (8, 16, 32)):
        shape = TileShape(1, 8 * down, 4, rows, keys, STEPS, FLOAT32, Mma.axes)
        tile = ThreadblockTile(shape, Mma(math), ThreadCopy())
        yield TensorPassShape(tile, tile.sized(columns=columns // 4))
