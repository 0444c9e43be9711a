"""Price a product on a GPU, classically and by a bilinear algorithm.

    classical   register tiles of (M, N, K), in one piece or in parts, as strategy.cuda.tiles prices them
    batched     r × (M/m, N/n, K/k) in one launch       +  sums of blocks before and behind, through memory
    apart       r launches of (M/m, N/n, K/k)           +  sums of blocks before; those behind in the products' kernels
    inline      the same, factors computed from blocks as they are copied: reads and additions in each block of threads

The tiles are those that each product would get: factors that are computed on the way have one stage, and each of their
terms comes from L2 and DRAM for itself. Kernels of sums are priced by their bytes, as if all sums of a side were one
launch. A product by itself adds its results to the blocks of the result that it is part of: all but the first one of
each are loaded, too. H200, 8192 x 8192 by 8192 in float32, ms expected: 21.9 as it stands, with Strassen's 19.7
batched, 19.7 apart, 20.3 apart with both operands' sums in the loads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Any

from polyfuse.bilinear import Algorithm
from polyfuse.ir import Nest
from polyfuse.machine import GpuMachine
from polyfuse.rewrite.bilinear.dimension_roles import Roles
from polyfuse.strategy.cost.bilinear_products import REST, is_constant
from polyfuse.strategy.cuda.gemm.schedule import product_of
from polyfuse.strategy.cuda.tiles.tile_candidates import tiles_for
from polyfuse.strategy.match.gemm_problem import Extents, Terms
from polyfuse.strategy.rewrites.split_k import extents_of, seconds_in_parts


@dataclass(frozen=True)
class GpuPrice:
    """A product of known sizes in a nest, priced on a GPU; `constant` are the factors whose sums cost nothing."""

    extents: Extents
    itemsize: int
    constant: tuple[bool, bool]
    machine: GpuMachine

    @staticmethod
    def of(nest: Nest, roles: Roles, machine: GpuMachine) -> GpuPrice | None:
        """None if the model has no answer: sizes that are not known, or a product that has no tiles."""
        product = product_of(nest, roles.statement.name)
        if nest.params or product is None:
            return None
        itemsize = nest.tensor(roles.statement.write.tensor).itemsize
        constant = is_constant(nest, roles, roles.left), is_constant(nest, roles, roles.right)
        return GpuPrice(extents_of(nest, product, machine), itemsize, constant, machine)

    def classical(self) -> float | None:
        """Seconds of the product as it stands; None if it has no tiles."""
        seconds = seconds_in_parts(self.extents, self.itemsize, self.machine)
        return seconds if seconds < inf else None

    def fast(self, x: Algorithm, form: Mapping[str, Any]) -> float | None:
        """Seconds of one form, inf where it has no tiles; None without whole blocks, or anything to peel."""
        e = self.extents
        whole = e.rows % x.m == e.steps % x.k == e.columns % x.n == 0
        if whole and form.get("edges") == "peel":
            return None
        padded = form.get("edges") == "pad"
        part = ceil if padded else int
        m, k, n = part(e.rows / x.m), part(e.steps / x.k), part(e.columns / x.n)
        if min(m, k, n) == 0:
            return None
        block = replace(e, rows=m, columns=n, steps=k, whole_steps=k if e.whole_steps else 0, beside=0)
        apart = bool(form.get("apart"))
        products = self._apart(x, form, block) if apart else [replace(block, count=e.count * x.rank)]
        seconds = sum(self._tiled(each) for each in products) + self._sums(x, form, block)
        rest = 2.0 * e.count * (e.rows * e.steps * e.columns - (m * x.m) * (k * x.k) * (n * x.n))
        peak = self.machine.peak(self.itemsize, self.machine.units)
        return seconds + (0.0 if padded else max(0.0, rest) / (REST * peak))

    def _tiled(self, extents: Extents) -> float:
        """Seconds of one product in one piece; inf where it has no tiles."""
        shapes = tiles_for(self._aligned(extents), self.itemsize, self.machine, self.machine.gpu)
        return shapes[0].seconds if shapes else inf

    def _aligned(self, e: Extents) -> Extents:
        """Rows of blocks may begin at no multiple of 16 bytes where those of the whole factor do."""
        vector = 16 // self.itemsize
        computed = e.left.operations or e.right.operations
        return replace(e, wide=e.wide and not computed and e.steps % vector == e.columns % vector == 0)

    def _apart(self, x: Algorithm, form: Mapping[str, Any], block: Extents) -> Iterator[Extents]:
        """Each product by itself: what its factors are computed from, and what its kernel adds up behind it."""
        inline, begun = form.get("inline", ()), set[int]()
        for t in range(x.rank):
            left, right = (
                _terms(sums[t]) if side in inline else Terms()
                for side, sums in (("left", x.left), ("right", x.right))
            )
            into = [c for c, row in enumerate(x.result) if row[t]]
            moved = sum(2 if c in begun else 1 for c in into)
            begun |= set(into)
            beside = (moved - 1) * block.results * self.itemsize
            kept = None if left.operations or right.operations else block.kept
            yield replace(block, left=left, right=right, beside=beside, kept=kept)

    def _sums(self, x: Algorithm, form: Mapping[str, Any], block: Extents) -> float:
        """Seconds of the kernels of sums of blocks, by their bytes."""
        apart, seconds = bool(form.get("apart")), 0.0
        for side, constant, size, sums in (
            ("left", self.constant[0], block.rows * block.steps, x.left),
            ("right", self.constant[1], block.columns * block.steps, x.right),
        ):
            computed = [one for one in sums if not apart or _terms(one).operations]
            if constant or side in form.get("inline", ()) or not computed:
                continue
            read = len(sums[0])  # each block once where the sums are one launch
            seconds += self._passing((read + len(computed)) * size * block.count)
        behind = 0 if apart else (x.rank + x.m * x.n) * block.results
        return seconds + (self._passing(behind) if behind else 0.0)

    def _passing(self, elements: int) -> float:
        """Seconds of a launch that moves so many elements."""
        moved, machine = elements * self.itemsize, self.machine
        return machine.launch_seconds + moved / machine.bandwidth(machine.level(moved), machine.units)


def _terms(form: Sequence[int]) -> Terms:
    """The reads and operations of a sum of blocks: -a is an operation, too."""
    reads = sum(map(bool, form))
    return Terms(reads, reads - 1 + (reads == 1 and 1 not in form))
