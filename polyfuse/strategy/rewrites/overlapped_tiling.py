"""Choose the stages of a pipeline to inline, and the overlapping tiles of the rest.

    pipelines of the nest  ->  what tiles need  ->  inlined stages, sizes: the cheapest by the model  ->  rewritten nest

A pipeline is left as it is where the model expects no gain over whole images stage by stage; nests without a stencil
between temporaries, such as networks, have none. Every choice is said with its numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import sympy

from polyfuse.errors import IllegalRewrite
from polyfuse.ir import Nest, Statement
from polyfuse.machine import CpuMachine
from polyfuse.measure import duration
from polyfuse.rewrite import Overlapped, inline, overlap, why_not_inline
from polyfuse.rewrite.inline import reads, substituted
from polyfuse.strategy.candidates import Choose, cheapest
from polyfuse.strategy.claims import Claims, Tiled
from polyfuse.strategy.cost.stencil_stages import StageCost, StageModel, slots
from polyfuse.strategy.match.stencil import Parts, Pipeline, parts_of_tiles, pipelines
from polyfuse.strategy.remarks import Reason, Remark, weighed

PASS = "overlapped tiling"

ROWS = (1, 8, 16, 32, 64, 128)
"""Values of a tile's last dimension but one."""

COLUMNS = (64, 128, 256, 512, 1024)
"""Values of a tile's last dimension, beside all of them."""

FEW = 32
"""Values of the last dimension that may be in a tile, too, where no stage needs more of them than are in it."""

PLANES = (1, 4, 8, 16, 32)
"""Values of a dimension further out along which stages need more than a tile has: planes of a volume."""

CHEAP = 4
"""Instructions of a stage that may be computed again for every read."""

TYPICAL = (32, 256)
"""The tile for which inlining is decided."""

INLINED = "inlined"
"""The candidate without tiles: every stage is computed where it is read, in one sweep over the results."""

LARGEST = 100, 1000
"""Instructions, and nodes of an expression, of a result that is computed in one sweep: 14 elements are read in hdiff,
whose 60 instructions leave some of 32 vector registers free."""


def recomputed(nest: Nest, machine: CpuMachine, choose: Choose = cheapest) -> Claims:
    """The nest with its pipelines in tiles where that pays on a machine."""
    done = Claims(nest)
    for pipeline in pipelines(nest):
        more = _decided(done.nest, pipeline, machine, choose)
        done = Claims(more.nest, (*done.tiled, *more.tiled), (*done.remarks, *more.remarks))
    return done


def _decided(nest: Nest, pipeline: Pipeline, machine: CpuMachine, choose: Choose) -> Claims:
    """One pipeline, rewritten or left."""
    name = ", ".join(nest.statement(n).write.tensor for n in pipeline.results)

    def left(reason: Reason, why: str, seconds: tuple[float, float] | None = None) -> Claims:
        line = f"the stages of {name} are not tiled together{why}"
        return Claims(nest, (), (Remark(PASS, pipeline.results, False, reason, line, seconds),))

    parts = parts_of_tiles(nest, pipeline)
    if parts is None:
        return left(Reason.OTHER_FORM, ": what a tile needs is no box that moves with it.")
    model = StageModel(nest, parts, machine, pipeline.results[0])
    if model.is_empty:
        return left(Reason.OTHER_FORM, ": they have no values at the sizes that are planned for.")
    stages = {n: nest.statement(n) for n in (*pipeline.producers, *pipeline.results)}
    whole = model.apart(model.passes(stages))
    choices = sorted(_choices(nest, model, pipeline, stages), key=lambda each: each.cost.total)
    first = choices[0].cost
    if not choose.takes(PASS, pipeline.results, first.total < whole.total):
        tiles = f"{duration(first.total)} {choices[0].how}"
        line = f", which does not pay: {tiles}, {duration(whole.total)} stage by stage."
        return left(Reason.DEARER, line, (first.total, whole.total))
    best = choose.best(
        PASS,
        pipeline.results,
        choices,
        seconds=lambda each: each.cost.total,
        name=lambda each: each.name,
        what="overlapping tiles",
    )
    prices = best.cost.total, whole.total, choose.wished(PASS, pipeline.results)
    result, said = nest, list[Remark]()
    for stage in best.gone:
        done = inline(result, stage)
        result = done.nest
        said.append(weighed(PASS, (stage,), True, f"{done}.", *prices))
    producers = [n for n in pipeline.producers if n not in best.gone]
    if not producers:
        return Claims(result, (), tuple(said))
    try:
        made = overlap(result, parts.tiles(best.cost.sizes), producers)
    except IllegalRewrite as error:
        return left(Reason.ILLEGAL, f": {error}")
    said.append(weighed(PASS, made.statements, True, _tiled_sentence(made, name, best.cost, whole), *prices))
    return Claims(made.nest, (Tiled(made, best.cost),), tuple(said))


@dataclass(frozen=True)
class _Choice:
    """A way to run a pipeline: the stages that are inlined, and the price of tiles of the rest, if any are left."""

    gone: tuple[str, ...]
    cost: StageCost
    tiled: bool = True

    @property
    def name(self) -> str:
        return _by(self.cost.sizes) if self.tiled else INLINED

    @property
    def how(self) -> str:
        return f"in tiles of {self.name}" if self.tiled else "in one sweep"


def _choices(
    nest: Nest, model: StageModel, pipeline: Pipeline, stages: Mapping[str, Statement]
) -> Iterator[_Choice]:
    """Tiles of every size, with the stages inlined that are best so in a typical one; and all stages inlined."""
    gone = _inlined(nest, model, pipeline, stages)
    passes = model.passes(without(stages, gone))
    for sizes in _sizes(model.parts, model.extents):
        yield _Choice(gone, model.in_tiles(passes, sizes))
    sweep = _in_one_sweep(nest, pipeline, stages)
    if sweep is not None:
        yield _Choice(pipeline.producers, model.apart(model.passes(sweep)), tiled=False)


# -- inlining ----------------------------------------------------------------------------------------------------------


def without(stages: Mapping[str, Statement], gone: tuple[str, ...]) -> dict[str, Statement]:
    """The stages with some of them computed where they are read."""
    left = dict(stages)
    for name in gone:
        producer = left.pop(name)
        left = {
            n: substituted(s, producer) if reads(s, producer.write.tensor) else s for n, s in left.items()
        }
    return left


def _in_one_sweep(
    nest: Nest, pipeline: Pipeline, stages: Mapping[str, Statement]
) -> dict[str, Statement] | None:
    """The results with all stages inlined; None where one cannot be, or an expression grows too large."""
    if any(why_not_inline(nest, name) is not None for name in pipeline.producers):
        return None
    left, (instructions, nodes) = dict(stages), LARGEST
    for name in pipeline.producers:
        left = without(left, (name,))
        for body in {s.body for s in left.values()}:
            if sum(1 for _ in sympy.preorder_traversal(body)) > nodes or slots(body) > instructions:
                return None
    return left


def _inlined(
    nest: Nest, model: StageModel, pipeline: Pipeline, stages: Mapping[str, Statement]
) -> tuple[str, ...]:
    """The stages whose inlining makes a typical tile cheapest: all cheap ones or none, then one more or one less.

    Two products of one factor save its loads only together, so that neither alone would be inlined.
    """
    sizes = (1,) * (len(model.extents) - 2) + TYPICAL[-len(model.extents) :]
    parts = model.parts.of

    def is_candidate(name: str) -> bool:
        tensor = stages[name].write.tensor
        elsewhere = any(parts[n] != parts[name] for n, s in stages.items() if reads(s, tensor))
        return slots(stages[name].body) <= CHEAP and elsewhere and why_not_inline(nest, name) is None

    candidates = tuple(name for name in pipeline.producers if is_candidate(name))

    def price(chosen: frozenset[str]) -> float:
        gone = tuple(name for name in candidates if name in chosen)
        return round(model.in_tiles(model.passes(without(stages, gone)), sizes).compute, 12)

    best = min((frozenset(candidates), frozenset()), key=price)
    improved = True
    while improved:
        nearby = [best ^ {name} for name in candidates]
        other = min(nearby, key=price, default=best)
        improved = price(other) < price(best)
        best = other if improved else best
    return tuple(name for name in candidates if name in best)


# -- sizes -------------------------------------------------------------------------------------------------------------


def _sizes(parts: Parts, extents: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Planes × rows × columns that every result can have; dimensions further out one by one if no stencil moves along
    them.
    """
    widened = {
        d
        for part in parts.of.values()
        for d, border in zip(part.along, part.border, strict=True)
        if d is not None and border
    }
    *outer, columns = extents
    last = len(outer)
    choices: list[tuple[int, ...]] = [
        tuple(n for n in PLANES if n <= max(1, extent)) if d in widened else (1,)
        for d, extent in enumerate(outer)
    ]
    if outer:
        choices[-1] = tuple(r for r in ROWS if r <= max(1, outer[-1]))
    few = () if last in widened else (FEW,)
    choices.append(
        (
            *(c for c in (*few, *COLUMNS) if c < columns),
            -(-columns // FEW) * FEW if few else -(-columns // 64) * 64,
        )
    )
    for sizes in product(*choices):
        if all(
            (k * s).denominator == 1
            for every in parts.scales.values()
            for k, s in zip(every, sizes, strict=True)
        ):
            yield sizes


# -- for a person ------------------------------------------------------------------------------------------------------


def _by(sizes: tuple[int, ...]) -> str:
    return " x ".join(map(str, sizes))


def _tiled_sentence(made: Overlapped, name: str, best: StageCost, whole: StageCost) -> str:
    again: dict[str, list[str]] = {}
    for stage in made.stages:
        tensor = made.nest.statement(stage.statement).write.tensor
        again.setdefault(f"{stage.times:.2f} times", []).append(tensor)
    counts = "; ".join(f"{', '.join(tensors)} {times}" for times, tensors in again.items())
    saved = max(0, whole.once - best.once - best.again)
    return (
        f"the stages of {name} run together in tiles of {_by(best.sizes)}, computed per element: {counts}; "
        f"{saved} bytes less move, {duration(best.total)} in tiles, {duration(whole.total)} stage by stage."
    )
