"""Recognise stencil pipelines: stages that read earlier ones at several offsets, and the footprints of their tiles.

stage     ::= a statement that assigns each element of its tensor once, from values it does not make itself
pipeline  ::= stages linked by temporaries that nobody else uses; its results are what others see
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import ceil

import islpy as isl

from polyfuse.ir import Access, Nest, Statement
from polyfuse.ir.tree import statements
from polyfuse.rewrite.inline import reads, twice_written
from polyfuse.rewrite.tiling.footprints import advance, grid_of, needs, touched, window
from polyfuse.sets import OUT, Alike, greatest, least

NEAR = 32
"""Elements between two reads of one stage that still make a stencil; further apart they are parts of a tensor."""

PROBE = 64
"""The largest tile for which isl is asked what it needs; other sizes follow from how needs move and their border."""


@dataclass(frozen=True)
class Pipeline:
    """Stages in the nest's order, the last of which are its results."""

    producers: tuple[str, ...]
    results: tuple[str, ...]


def pipelines(nest: Nest) -> tuple[Pipeline, ...]:
    """Every pipeline of a nest in which some stage reads another at several offsets; most nests have none."""
    if not any(is_stencil(nest, s) for s in nest.statements):
        return ()
    stages = {s.name for s in nest.statements if _is_stage(nest, s)}
    producers = {n for n in stages if _is_hidden(nest, n, stages)}
    found = []
    for group in _linked(nest, stages, producers):
        if any(is_stencil(nest, nest.statement(n)) for n in group):
            inside = tuple(n for n in statements(nest.order) if n in group)
            results = tuple(n for n in inside if n not in producers)
            found.append(Pipeline(tuple(n for n in inside if n in producers), results))
    return tuple(found)


def is_stencil(nest: Nest, s: Statement) -> bool:
    """True if a statement reads a temporary at several elements that are near each other."""
    temporaries = {t.name for t in nest.with_role("temporary")}
    return any(
        a.tensor == b.tensor and a.tensor in temporaries and _are_near(a, b)
        for a, b in combinations(s.reads, 2)
    )


def _are_near(first: Access, second: Access) -> bool:
    a, b = first.subscripts(), second.subscripts()
    for d in range(a.dim(OUT)):
        apart = a.get_pw_aff(d).sub(b.get_pw_aff(d))
        for bound in (greatest(apart), least(apart)):
            if not bound.is_int() or abs(bound.to_python()) > NEAR:
                return False
    return True


def _is_stage(nest: Nest, s: Statement) -> bool:
    simple = not s.is_reduction and bool(s.dims) and not reads(s, s.write.tensor)
    return simple and twice_written(nest, s) is None


def _is_hidden(nest: Nest, name: str, stages: set[str]) -> bool:
    """True if a stage's tensor is a temporary that it alone writes and stages alone read."""
    tensor = nest.tensor(nest.statement(name).write.tensor)
    users = [s for s in nest.statements if tensor.name in s.tensors]
    alone = all(s.write.tensor != tensor.name or s.name == name for s in users)
    return tensor.role == "temporary" and alone and len(users) > 1 and all(s.name in stages for s in users)


def _linked(nest: Nest, stages: set[str], producers: set[str]) -> list[set[str]]:
    """Stages that producers' tensors connect, in the order of their first stage."""
    order = statements(nest.order)
    groups = [{n} for n in order if n in stages]
    for name in (n for n in order if n in producers):
        tensor = nest.statement(name).write.tensor
        users = {s.name for s in nest.statements if tensor in s.tensors}
        joined = [g for g in groups if g & users]
        groups = [g for g in groups if not g & users]
        groups.append(set().union(*joined))
    return sorted((g for g in groups if len(g) > 1), key=lambda group: min(map(order.index, group)))


# -- what a tile needs, for any size -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """The part of a statement's instances or of a tensor that a tile touches, per dimension: moves × size + border.

    `along` says which of the tile's dimensions moves it: None for a dimension that every tile takes whole.
    """

    along: tuple[int | None, ...]
    moves: tuple[Fraction, ...]
    border: tuple[int, ...]

    def shape(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """The box for tiles of these sizes."""
        found = []
        for along, moves, border in zip(self.along, self.moves, self.border, strict=True):
            found.append(border if along is None else max(1, ceil(moves * sizes[along]) + border))
        return tuple(found)


@dataclass(frozen=True)
class Parts:
    """A pipeline's tiles: the dimensions that are cut, each result's size for one of the first's, every part."""

    dims: tuple[str, ...]
    scales: Mapping[str, tuple[Fraction, ...]]
    of: Mapping[str, Part]

    def tiles(self, sizes: tuple[int, ...]) -> dict[str, dict[str, int]]:
        """Sizes for each result, by the names of its dimensions; that of the rows first, where most tiles are."""
        made: dict[str, dict[str, int]] = {}
        *outer, columns = range(len(self.dims))
        for name, scales in self.scales.items():
            own = [int(scale * size) for scale, size in zip(scales, sizes, strict=True)]
            made[name] = {self.dims[p]: own[p] for p in (*outer[-1:], *outer[:-1], columns)}
        return made


def parts_of_tiles(nest: Nest, pipeline: Pipeline) -> Parts | None:
    """The footprint of a tile as a function of its size; None if its parts are not boxes that move with the tile.

    All dimensions of the results are cut: results have the same ones, by name.
    """
    dims = nest.statement(pipeline.results[0]).dims
    if any(nest.statement(n).dims != dims for n in pipeline.results[1:]):
        return None
    probe = {d: _probe(nest, pipeline.results, position) for position, d in enumerate(dims)}
    seen = _Seen(tuple(probe.values()))
    scales = _scales(nest, pipeline, probe, seen)
    if scales is None:
        return None
    sizes = {
        n: {d: int(probe[d] * k) for d, k in zip(dims, scales[n], strict=True)} for n in pipeline.results
    }
    found: dict[str, Part] = {}
    for name, footprint in _footprints(nest, pipeline, sizes).items():
        part = seen.part(footprint)
        if part is None:
            return None
        found[name] = part
    return Parts(dims, scales, found)


def _footprints(nest: Nest, pipeline: Pipeline, sizes: Mapping[str, Mapping[str, int]]) -> dict[str, isl.Map]:
    """The instances that each tile runs, by statement, and the elements that it touches, by tensor."""
    need = needs(nest, grid_of(nest, sizes), pipeline.producers)
    running = [nest.statement(n) for n in need]
    tensors = dict.fromkeys(t for s in running for t in s.tensors)
    return {**need, **{t: touched(need, running, t) for t in tensors}}


def _probe(nest: Nest, results: tuple[str, ...], position: int) -> int:
    """A size with two tiles at least in a dimension of every result, so that needs are seen to move: up to PROBE."""
    most = PROBE
    for name in results:
        domain = nest.domains[name]
        last = domain.dim_max_val(position)
        while last.is_int() and not domain.is_empty() and most > 1 and last.to_python() + 1 < 4 * most:
            most //= 2
    return most


class _Seen:
    """The parts of footprints of one tile, found once for all that are equal but for names."""

    def __init__(self, probe: tuple[int, ...]) -> None:
        self.probe, self.alike = probe, Alike()
        self.found: dict[int, Part | None] = {}

    def part(self, footprint: isl.Map) -> Part | None:
        """The part of a statement's instances or of a tensor; None if it is no box that moves with the tile."""
        bare = self.alike.nameless(footprint)
        if id(bare) not in self.found:
            self.found[id(bare)] = _part(bare, self.probe)
        return self.found[id(bare)]


def _part(footprint: isl.Map, probe: tuple[int, ...]) -> Part | None:
    box = window(footprint)
    if box is None:
        return None
    along: list[int | None] = []
    moves, border = [], []
    for corner, extent in zip(box.corner, box.shape, strict=True):
        moved = [
            d for d in range(footprint.dim(isl.dim_type.in_)) if corner.involves_dims(isl.dim_type.in_, d, 1)
        ]
        if len(moved) > 1:
            return None
        far = Fraction(advance(corner))
        along.append(moved[0] if moved else None)
        moves.append(far / probe[moved[0]] if moved else far)
        border.append(extent - ceil(far) if moved else extent)
    return Part(tuple(along), tuple(moves), tuple(border))


def _scales(
    nest: Nest, pipeline: Pipeline, probe: Mapping[str, int], seen: _Seen
) -> dict[str, tuple[Fraction, ...]] | None:
    """The tile sizes of each result relative to the first result's, at which both need the same stages.

    down[i] feeds coarse[i] and detail[2 i], detail[2 i + 1]: tiles of coarse are half as large.
    """
    scales = {pipeline.results[0]: tuple(Fraction(1) for _ in probe)}
    if len(pipeline.results) == 1:
        return scales
    rates: dict[str, dict[str, Part]] = {}
    for name in pipeline.results:
        alone = Pipeline(pipeline.producers, (name,))
        found = _footprints(nest, alone, {name: probe})
        stages = {n: seen.part(found[n]) for n in pipeline.producers if n in found}
        if None in stages.values():
            return None
        rates[name] = {n: part for n, part in stages.items() if part is not None}
    for name in pipeline.results[1:]:
        other = next((o for o in scales if rates[o].keys() & rates[name].keys()), None)
        if other is None:
            return None
        stage = next(n for n in rates[other] if n in rates[name])
        mine, theirs = rates[name][stage], rates[other][stage]
        if mine.along != theirs.along or set(mine.along) - {None} != set(range(len(probe))):
            return None
        by_dim = {
            a: t / m for a, m, t in zip(mine.along, mine.moves, theirs.moves, strict=True) if a is not None
        }
        scales[name] = tuple(by_dim[d] * scales[other][d] for d in range(len(probe)))
    return scales
