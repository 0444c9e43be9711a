"""What the model expects of tiles of a product on a GPU, and why one is chosen.

    time = launch + waves × (tiles × tile + LATENCY × fillings) + written, a last wave with the blocks that are left
    tile = max(resident blocks × busy, wait, max(busy, wait) + meeting), and EXPOSED × LATENCY × loads in a row where
           only other blocks hide these: blocks that are not in turns wait together
    wait = busy + LATENCY × loads in a row, or LATENCY / (stages - 1 - begun) where tiles are asked for while others are
           used, the last number of them behind so much of a tile's multiply-adds (interleave_copies.py);
           of boxes a slot's round trip, (LATENCY + copied + multiplied) / stages
    busy = longest + exposed × the others, of: instructions / 4 a cycle, shared memory's bytes / 128 a cycle,
           the SM's share of the bytes from L2, and of those from DRAM where the factors do not fit into L2

Each of an SM's four schedulers issues for warps of its own: one warp's instructions take as long as four's, five's as
long as eight's. All are cycles of one SM and one tile of steps; `waves` counts how often the SMs are filled with
resident blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import TypeVar

from polyfuse.analysis.banks import WARP
from polyfuse.machine import Gpu, Machine
from polyfuse.strategy.cost.gpu_cycles import LATENCY, hertz, seconds_of_wait
from polyfuse.strategy.cost.roofline import microseconds
from polyfuse.strategy.cuda.tiles.fma import EXPOSED, SCHEDULERS, Shape, candidates, fits
from polyfuse.strategy.cuda.transforms.rasterization import Order
from polyfuse.strategy.match.gemm_problem import Extents

AnyShape = TypeVar("AnyShape", bound=Shape)


def shapes(extents: Extents, itemsize: int, machine: Machine, gpu: Gpu) -> list[Shape]:
    """The shapes that fit a product and a machine, the cheapest first."""
    every = (s for s in candidates(itemsize) if s.stages == 1 or extents.wide or extents.singles)
    found = [costed(s, extents, machine, gpu) for s in every if fits(s, extents, gpu) and _suits(s, extents)]
    return sorted(found, key=lambda s: s.seconds)


def _suits(s: Shape, extents: Extents) -> bool:
    """Whether a shape is worth a price. Where tiles are cut short, the highest ones are for results that all take the
    same steps: else blocks differ, and guards stay (zero_fill.py), by which products of 2047 and 5001 took
    1.12 and 1.17 times as long in these as in others, for the same price (H200). Blocks of more rows of threads than
    columns cost the same as others and have more conditions: 3000 × 3000 by 3000 spills 4 bytes in 4 × 4 × 8 threads.
    """
    alike = s.rows <= 2 * s.vector or bool(extents.whole_steps)
    return s.is_whole(extents) or (alike and s.threads_z * s.threads_y <= s.threads_x)


def waiting_seconds(shape: Shape, machine: Machine) -> float:
    """What threads with one result each wait for their tiles, of 64 bytes of steps and not loaded ahead."""
    return shape.tiles * ceil(shape.steps / (4 * shape.vector)) * seconds_of_wait(machine)


def costed(s: AnyShape, extents: Extents, machine: Machine, gpu: Gpu) -> AnyShape:
    """A shape with what the model expects of it."""
    cycles, blocks = hertz(machine), s.blocks(extents)
    resident = 1 if extents.lone else min(s.resident(gpu), ceil(blocks / machine.units))
    issue, delivered = s.demands(machine)
    issue += s.singly(extents) / SCHEDULERS
    issue += extents.computing(s.block_rows, s.block_columns, s.vector) * s.steps / (WARP * SCHEDULERS)
    cache, memory = machine.levels[0], machine.levels[-1]
    moved = s.read_bytes * extents.read_of(s.block_rows, s.block_columns)
    near = extents.factors * s.staged_bytes <= cache.size * s.staged
    order = Order() if near else s.order(extents, machine.units * resident, cache.size)
    others = {
        "shared memory": delivered + s.storing,
        "L2": moved * machine.units * cycles / machine.bandwidth(cache, machine.units),
        "DRAM": order.read / resident * cycles / machine.bandwidth(memory, machine.units),
    }

    def needs_of(at_once: int) -> dict[str, float]:
        """Cycles of each of so many blocks on an SM; of its schedulers some may have fewer warps than others."""
        warps = at_once * ceil(s.threads / WARP)
        uneven = SCHEDULERS * ceil(warps / SCHEDULERS) / warps
        return {"instructions": issue * uneven, **others}

    needs = needs_of(resident)
    what = max(needs, key=lambda name: needs[name])
    busy = _busy(needs, s.exposed)
    multiplied = max(needs["instructions"], needs["shared memory"])
    wait = busy + s.waits * LATENCY if s.stages == 1 else s.ahead(LATENCY, needs["L2"], multiplied)
    pausing, pause = s.pause(gpu)
    bounds = {what: resident * busy, "latency": wait, pausing: max(busy, wait) + pause}
    decides = max(bounds, key=lambda name: bounds[name])
    together = EXPOSED * s.waits * LATENCY if s.stages == 1 and decides != "latency" else 0.0
    tile, tiles = bounds[decides] + together, ceil(extents.steps / s.steps) * extents.windows
    full, rest = divmod(ceil(blocks / machine.units), resident)
    last = 0.0
    if rest:
        alone = rest * _busy(needs_of(rest), s.exposed) + together
        last = max(alone, wait, max(busy, wait) + pause)
    waves = full + (rest > 0)
    written = extents.results * s.result_bytes + extents.beside
    end = written / machine.bandwidth(memory, min(blocks, machine.units))
    passes = tiles * (full * tile + last) + waves * s.fillings(extents) * LATENCY
    seconds = machine.launch_seconds + passes / cycles + end
    every = tiles * (full * resident + rest) / cycles
    issuing = every * max(needs["instructions"], needs["shared memory"])
    moving = every * max(needs["L2"], needs["DRAM"]) + end
    parts = ", ".join(f"{value:.0f} of {name}" for name, value in needs.items() if value)
    why = (
        f"{microseconds(seconds)} expected: {blocks} blocks{order}, {resident} on an SM, {full} waves of {tiles} "
        f"tiles of {tile:.0f} cycles{f', one with {rest} of {last:.0f}' if rest else ''} ({parts} a block; {decides} "
        "decides)"
    )
    done = replace(s, seconds=seconds, issuing=issuing, moving=moving, tile=tile / cycles)
    return replace(done, group=order.group, tiles=tiles, why=why)


def _busy(needs: Mapping[str, float], exposed: float) -> float:
    longest = max(needs.values())
    return longest + exposed * (sum(needs.values()) - longest)
