"""Claims: kernels that passes decide before the search for groups, which leaves their statements alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from polyfuse.ir import Nest
from polyfuse.rewrite import Overlapped
from polyfuse.strategy.cost.stencil_stages import StageCost
from polyfuse.strategy.cpu.row_sweep import RowPass
from polyfuse.strategy.cuda.attention.tiles import PassShape
from polyfuse.strategy.cuda.gemm.stream_k import InShares
from polyfuse.strategy.match.attention import OneKernel
from polyfuse.strategy.remarks import Remark


@dataclass(frozen=True)
class Tiled:
    """One pipeline after its rewrites: its statements in tiles, and what the model expects of them."""

    overlapped: Overlapped
    cost: StageCost


@dataclass(frozen=True)
class Claims:
    """A nest in which pipelines run in overlapping tiles, or passes read a matrix once, and what was decided.

    `shared` are a GPU's products in equal shares, by the statement that sums up a part; `one_pass` its sums under
    maxima that are one kernel each, with their shapes. `by_data` are a CPU's kernels in which data say what iterations
    do anything.
    """

    nest: Nest
    tiled: tuple[Tiled, ...] = ()
    remarks: tuple[Remark, ...] = ()
    shared: Mapping[str, InShares] = field(default_factory=dict)
    passes: tuple[RowPass, ...] = ()
    one_pass: tuple[tuple[OneKernel, PassShape], ...] = ()
    by_data: tuple[tuple[str, ...], ...] = ()

    @property
    def statements(self) -> frozenset[str]:
        """The statements of pipelines in tiles, of passes, and of sums under maxima: their kernels are decided."""
        tiled = (name for one in self.tiled for name in one.overlapped.statements)
        under_maxima = (one.names for one, _ in self.one_pass)
        return frozenset(tiled).union(*(one.names for one in self.passes), *under_maxima, *self.by_data)

    def under_maximum(self, names: tuple[str, ...]) -> tuple[OneKernel, PassShape] | None:
        """The sums under a maximum that some statements are, and the shape of their kernel."""
        return next((each for each in self.one_pass if set(names) <= set(each[0].names)), None)

    def with_statements(self, names: tuple[str, ...]) -> Tiled | None:
        """The pipeline in tiles that some statements are of."""
        return next((one for one in self.tiled if set(names) <= set(one.overlapped.statements)), None)
