"""Random pipelines of stencils: stages that read earlier ones at offsets, every second element, or halves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

import polyfuse as pf
from tests.frontend.python.running import defined

DIMS = ("i", "j")


@dataclass(frozen=True)
class Read:
    """T[s * i + o, …], or T[(i + o) // 2, …] with s = 0."""

    stage: int
    strides: tuple[int, ...]
    offsets: tuple[int, ...]

    def subscripts(self) -> str:
        texts = (
            f"({d} + {o}) // 2" if s == 0 else f"{s} * {d} + {o}"
            for d, s, o in zip(DIMS, self.strides, self.offsets, strict=False)
        )
        return ", ".join(texts)

    def extents(self, source: tuple[int, ...]) -> tuple[int, ...]:
        """How far a stage may go that reads this."""
        found = (
            2 * e - o if s == 0 else (e - 1 - o) // s + 1
            for e, s, o in zip(source, self.strides, self.offsets, strict=True)
        )
        return tuple(found)


@dataclass(frozen=True)
class Pipeline:
    """Stages in order; stage 0 is the input. Those that nobody reads are results."""

    extents: tuple[tuple[int, ...], ...]
    reads: tuple[tuple[Read, ...], ...]

    @property
    def results(self) -> tuple[int, ...]:
        used = {read.stage for every in self.reads for read in every}
        return tuple(k for k in range(1, len(self.extents)) if k not in used)

    def name(self, stage: int) -> str:
        return f"{'x' if stage == 0 else 'y' if stage in self.results else 'T'}{stage}"

    def text(self) -> str:
        """The pipeline as a Python function of loops; every stage has small integers as values."""
        given = [0, *self.results]
        parameters = (f'{self.name(k)}: "f32[{", ".join(map(str, self.extents[k]))}]"' for k in given)
        lines = ["@pf.nest", f"def pipeline({', '.join(parameters)}):"]
        for k in range(1, len(self.extents)):
            if k not in self.results:
                lines.append(f"    {self.name(k)} = np.empty({self.extents[k]}, np.float32)")
        for k, every in enumerate(self.reads, 1):
            dims = DIMS[: len(self.extents[k])]
            for depth, (d, extent) in enumerate(zip(dims, self.extents[k], strict=True), 1):
                lines.append(f"{'    ' * depth}for {d} in range({extent}):")
            terms = (f"{n}.5 * {self.name(r.stage)}[{r.subscripts()}]" for n, r in enumerate(every))
            lines.append(f"{'    ' * (len(dims) + 1)}{self.name(k)}[{', '.join(dims)}] = {' + '.join(terms)}")
        return "\n".join(lines) + "\n"

    def nest(self) -> Any:
        return defined(self.text())

    def arrays(self) -> dict[str, Any]:
        rng = np.random.default_rng(5)
        made: dict[str, Any] = {"x0": rng.integers(-8, 8, self.extents[0]).astype(np.float32)}
        for k in self.results:
            made[self.name(k)] = np.zeros(self.extents[k], np.float32)
        return made

    def statement(self, stage: int) -> str:
        return f"S{stage - 1}"


@st.composite
def pipelines(draw: st.DrawFn, most: int = 5) -> Pipeline:
    """One or two dimensions, two to five stages, each with one to three reads of earlier ones."""
    rank = draw(st.integers(1, 2))
    extents = [tuple(draw(st.integers(14, 22)) for _ in range(rank))]
    reads: list[tuple[Read, ...]] = []
    for stage in range(1, draw(st.integers(3, most + 1))):
        strides = tuple(draw(st.sampled_from([1, 1, 1, 2, 0])) for _ in range(rank))
        every = []
        for _ in range(draw(st.integers(1, 3))):
            source = draw(st.integers(max(0, stage - 2), stage - 1))
            every.append(Read(source, strides, tuple(draw(st.integers(0, 2)) for _ in range(rank))))
        limits = [read.extents(extents[read.stage]) for read in every]
        extent = tuple(min(24, *(limit[d] for limit in limits), 24) for d in range(rank))
        if min(extent) < 1:
            break
        extents.append(extent)
        reads.append(tuple(every))
    return Pipeline(tuple(extents), tuple(reads))


def same(nest: pf.Nest, pipeline: Pipeline, arrays: dict[str, Any]) -> bool:
    """Whether a rewritten nest leaves exactly what the pipeline does."""
    expected = pf.interpret(pipeline.nest(), arrays)
    found = pf.interpret(nest, arrays)
    return all(np.array_equal(found[name], expected[name]) for name in expected)
