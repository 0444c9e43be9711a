"""Blocks of a product in groups of rows: what a wave of them reads, the oracle's results, lean machine code."""

from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.checks import cuda_cases as cases
from polyfuse.codegen.cuda.compile.disassembly import main_loop
from polyfuse.ir.precision import PRECISIONS, Math
from polyfuse.machine import KiB, Machine, MiB
from polyfuse.strategy.cuda.tiles.rasterization import GRID, Grid
from polyfuse.strategy.cuda.tiles.tile_candidates import tiles_for
from polyfuse.strategy.match.gemm_problem import Extents
from polyfuse.strategy.pipeline import plan_for
from tests.support.on_tensor_cores import in_planned_registers, matmul


def numbered(grid: Grid, group: int) -> list[tuple[int, int]]:
    """(row, column) of the blocks that do something, as a grid of (group, columns, groups) blocks numbers them."""
    every = (
        (z * group + x, y)
        for z in range(ceil(grid.rows / group))
        for y in range(grid.columns)
        for x in range(group)
    )
    return [(row, column) for row, column in every if row < grid.rows]


def counted(grid: Grid, group: int, wave: int) -> float:
    """Bytes that a full wave reads once for all its blocks, on average."""
    blocks = numbered(grid, group)
    waves = [blocks[n : n + wave] for n in range(0, len(blocks) - wave + 1, wave)]
    read = (len({r for r, _ in w}) * grid.left + len({c for _, c in w}) * grid.right for w in waves)
    return sum(read) / len(waves)


@pytest.mark.parametrize("wave", [4, 66, 132, 264])
@pytest.mark.parametrize("sides", [(32, 32), (33, 31), (64, 64), (128, 9), (9, 128), (101, 67)], ids=str)
def test_the_order_reads_as_little_as_counting_block_by_block_says(sides: tuple[int, int], wave: int) -> None:
    grid = Grid(*sides, count=1, tiles=64, left=4096, right=8192)
    chosen = grid.best(wave, cache=0)
    every = {group: counted(grid, group, wave) for group in grid.groups()}
    assert sum(1 for _ in numbered(grid, chosen.group)) == sides[0] * sides[1]
    assert every[chosen.group] <= 1.05 * min(every.values())
    assert chosen.by_rows == grid.read(1, wave, 0)
    for group, bytes_ in every.items():
        assert 0.9 * bytes_ <= grid.read(group, wave, 0) <= 1.2 * bytes_, group


def test_what_stays_in_the_cache_is_read_once() -> None:
    grid = Grid(64, 8, 1, tiles=16, left=1000, right=1000)
    assert grid.read(1, 32, cache=0) == 4 * 1000 + 8 * 1000
    assert grid.read(1, 32, cache=MiB) == 4 * 1000 + 8 * 1000 * 32 / (64 * 8), "all columns stay"
    assert grid.read(16, 32, cache=0) == 16 * 1000 + 2 * 1000
    assert grid.read(16, 32, cache=MiB) == 16 * 1000 * 2 / 8 + 2 * 1000, "a group's rows stay"
    assert grid.read(4, 1024, cache=0) == 2 * (64 + 8) * 1000, "two products at once"


def test_groups_are_alike_and_fit_the_grid() -> None:
    assert [*Grid(33, 8, 1, 1, 1, 1).groups()] == [1, 2, 4, 7, 11, 17]
    assert [*Grid(33, 8, 5, 1, 1, 1).groups()] == [1, 11], "groups of several products divide the rows"
    assert [*Grid(33, GRID + 1, 1, 1, 1, 1).groups()] == [1]
    assert [*Grid(32, 8, GRID // 2, 1, 1, 1).groups()] == [1, 16, 32], "groups and products are on one axis"


@pytest.mark.parametrize("preset", ["a100", "h100", "h200", "rtx4090"])
@pytest.mark.parametrize("math", ["ieee", *PRECISIONS])
def test_large_products_are_in_groups_and_small_ones_are_not(preset: str, math: Math) -> None:
    machine = replace(Machine.preset(preset), math=math)
    for size in (1024, 8192):
        best = tiles_for(Extents(size, size, size, 1, whole_steps=size), 4, machine, machine.gpu)[0]
        assert (best.group > 1) == (size > 1024), best.why
        assert ("blocks in groups of" in best.why) == ("of DRAM" in best.why) == (size > 1024)


def tiny(preset: str) -> Machine:
    """A GPU of one SM whose L2 has room for next to nothing, so that small products are large ones."""
    machine = Machine.preset(preset)
    cache, memory = machine.levels
    return replace(machine, units=1, levels=(replace(cache, size=4 * KiB), memory))


def in_tiles(nest: pf.Nest, preset: str, math: Math) -> pf.Schedule:
    """The schedule with tiles of results, whether the model finds them the faster form at these sizes or not."""
    machine = replace(tiny(preset), math=math)
    return plan_for(nest, machine, force={"register tiles": True}).schedule


NESTS = {
    "whole groups": (lambda: matmul(320, 64, 384), 64),
    "a group cut short, odd sides": (lambda: matmul(281, 45, 400), 45),
    "a batch": (lambda: matmul(256, 32, 384, (3,)), 32),
}


@pytest.mark.parametrize("name", NESTS)
@pytest.mark.parametrize(
    ("preset", "math"), [("a100", "ieee"), ("a100", "tf32"), ("h200", "bf16"), ("rtx4090", "f16")]
)
def test_in_lock_step_it_is_what_the_oracle_says(name: str, preset: str, math: Any) -> None:
    make, steps = NESTS[name]
    nest = make()
    schedule = in_tiles(nest, preset, math)
    (bound,) = (line for line in schedule.trace().splitlines() if "block.x" in line)
    assert "block.z" in bound, "groups"
    net = pf.compile(nest, target="cuda", machine=tiny(preset), device="lockstep", schedule=schedule)
    given = cases.draw(nest, np.random.default_rng(4))
    out = np.full(nest.tensor("out").shape, np.nan, np.float32)
    net(**given, out=(out,))
    exact = np.maximum(given["x"].astype(float) @ given["y"], 0)
    unit = PRECISIONS[math].bound(steps) if math != "ieee" else steps * 2.0**-23
    assert (abs(out - exact) <= unit * (abs(given["x"]).astype(float) @ abs(given["y"]))).all()


def test_on_the_simulator_blocks_that_are_not_there_keep_nobody_at_a_barrier() -> None:
    pytest.importorskip("numba.cuda.simulator.kernel")
    nest = matmul(70, 24, 530)
    schedule = in_tiles(nest, "a100", "ieee")
    net = pf.compile(nest, target="cuda", machine=tiny("a100"), device="simulator", schedule=schedule)
    assert "block.z" in schedule.trace()
    given = cases.draw(nest, np.random.default_rng(4))
    assert np.allclose(net(**given), np.maximum(given["x"] @ given["y"], 0), atol=1e-5)


@pytest.mark.parametrize(
    ("preset", "capability", "math"),
    [("a100", (8, 0), "ieee"), ("h200", (9, 0), "ieee"), ("a100", (8, 0), "tf32"), ("h200", (9, 0), "tf32")],
)
def test_machine_code_keeps_its_registers(preset: str, capability: tuple[int, int], math: Any) -> None:
    pytest.importorskip("cuda.core")
    nest = matmul(8192, 8192, 8192)
    net = pf.compile(nest, target="cuda", machine=preset, device="none", math=math)
    assert "blocks in groups of" in str(net.explain())
    cubin = in_planned_registers(net, capability)
    assert any(name.startswith(("FFMA", "HMMA", "HGMMA")) for name in main_loop(cubin))
