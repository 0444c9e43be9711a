"""Price tiles of a product on a GPU, with the reason for a choice.

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

from polyfuse.analysis.banks import WARP
from polyfuse.errors import quantity
from polyfuse.machine import Gpu, GpuMachine
from polyfuse.measure import duration
from polyfuse.strategy.cost.gpu_cycles import LATENCY, hertz, seconds_of_wait
from polyfuse.strategy.cuda.tiles.rasterization import Order
from polyfuse.strategy.cuda.tiles.tile import ThreadblockTile
from polyfuse.strategy.cuda.tiles.tile_shape import EXPOSED, SCHEDULERS
from polyfuse.strategy.match.gemm_problem import Extents

SINGLE = {True: 2.5, False: 5.0}
"""Instructions that copy one number: while the thread does other things, or through a register. In machine code for
sm_80 and sm_90 1.5 to 2.8 and 3.7 to 4.8, without 20 of each tile that `demands` counts (1023 × 1023 by 1023, tiles
of 32 to 64 rows by 64 to 128 columns)."""


def waiting_seconds(tile: ThreadblockTile, machine: GpuMachine) -> float:
    """The seconds that threads with one result each wait for their tiles, of 64 bytes of steps and not prefetched."""
    return tile.tiles * ceil(tile.shape.steps / (4 * tile.shape.vector)) * seconds_of_wait(machine)


def singly(t: ThreadblockTile, extents: Extents) -> float:
    """Instructions of all warps beyond those of vectors where numbers are copied one by one."""
    each = SINGLE[t.stages > 1] if extents.singles else 0
    return max(0.0, ceil(t.staged / WARP) * each - t.copies.instructions)


def costed(t: ThreadblockTile, extents: Extents, machine: GpuMachine, gpu: Gpu) -> ThreadblockTile:
    """A tile with what the model expects of it."""
    cycles, blocks, s = hertz(machine), t.blocks(extents), t.shape
    resident = 1 if extents.lone else min(t.resident(gpu), ceil(blocks / machine.units))
    issue, delivered = t.demands(machine)
    issue += singly(t, extents) / SCHEDULERS
    issue += extents.computing(s.block_rows, s.block_columns, s.vector) * s.steps / (WARP * SCHEDULERS)
    cache, memory = machine.levels[0], machine.levels[-1]
    moved = t.read_bytes * extents.read_of(s.block_rows, s.block_columns)
    near = extents.factors * t.staged_bytes <= cache.size * t.staged
    order = Order() if near else t.order(extents, machine.units * resident, cache.size)
    others = {
        "shared memory": delivered + t.copies.storing,
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
    busy = _busy(needs, t.copy.exposed)
    multiplied = max(needs["instructions"], needs["shared memory"])
    wait = busy + t.waits * LATENCY if t.stages == 1 else t.ahead(LATENCY, needs["L2"], multiplied)
    pausing, pause = t.pause(gpu)
    bounds = {what: resident * busy, "latency": wait, pausing: max(busy, wait) + pause}
    decides = max(bounds, key=lambda name: bounds[name])
    together = EXPOSED * t.waits * LATENCY if t.stages == 1 and decides != "latency" else 0.0
    tile, tiles = bounds[decides] + together, ceil(extents.steps / s.steps) * extents.windows
    full, rest = divmod(ceil(blocks / machine.units), resident)
    last = 0.0
    if rest:
        alone = rest * _busy(needs_of(rest), t.copy.exposed) + together
        last = max(alone, wait, max(busy, wait) + pause)
    waves = full + (rest > 0)
    written = extents.results * t.mma.result_bytes(s.itemsize) + extents.beside
    end = written / machine.bandwidth(memory, min(blocks, machine.units))
    passes = tiles * (full * tile + last) + waves * t.fillings(extents) * LATENCY
    seconds = machine.launch_seconds + passes / cycles + end
    every = tiles * (full * resident + rest) / cycles
    issuing = every * max(needs["instructions"], needs["shared memory"])
    moving = every * max(needs["L2"], needs["DRAM"]) + end
    parts = ", ".join(f"{value:.0f} of {name}" for name, value in needs.items() if value)
    in_waves = f"{quantity(full, 'wave')} of {quantity(tiles, 'tile')} of {tile:.0f} cycles"
    why = (
        f"{duration(seconds)} expected: {quantity(blocks, 'block')}{order}, {resident} on an SM, {in_waves}"
        f"{f', one with {rest} of {last:.0f}' if rest else ''} ({parts} a block; {decides} decides)"
    )
    done = replace(t, seconds=seconds, issuing=issuing, moving=moving, tile=tile / cycles)
    return replace(done, group=order.group, tiles=tiles, why=why)


def _busy(needs: Mapping[str, float], exposed: float) -> float:
    longest = max(needs.values())
    return longest + exposed * (sum(needs.values()) - longest)
