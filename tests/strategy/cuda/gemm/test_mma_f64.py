"""Products of float64 numbers on a GPU's tensor cores: the oracle's results, no bank conflict, lean machine code."""

# ruff: noqa: F821
from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from itertools import product as pairs

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.checks import cuda_cases as cases
from polyfuse.codegen.cuda.compile.disassembly import main_loop
from polyfuse.errors import InvalidMath, InvalidSchedule
from polyfuse.layouts.smem import SmemLayout
from polyfuse.machine import Machine
from polyfuse.simulator.mma_fragments import multiplied
from polyfuse.strategy.cuda.gemm.schedule import whole_steps
from polyfuse.strategy.cuda.tiles.mma import MmaF64
from polyfuse.strategy.cuda.tiles.smem_layouts import WAYS
from polyfuse.strategy.cuda.tiles.tile import ThreadblockTile
from polyfuse.strategy.cuda.tiles.tile_candidates import fma_tiles, mma_f64_tiles
from polyfuse.strategy.cuda.tiles.tile_copies import ThreadCopy
from polyfuse.strategy.cuda.tiles.tile_shape import TileShape
from polyfuse.strategy.match.gemm import products_of
from polyfuse.strategy.match.gemm_problem import Extents
from tests.support import on_tensor_cores as products
from tests.support.banks import assert_no_waits, waits_in
from tests.support.on_tensor_cores import by_tensor_cores, in_planned_registers

matmul = partial(products.matmul, dtype="float64")

NESTS = {
    "odd": lambda: matmul(79, 41, 70),
    "one step too many": lambda: matmul(37, 33, 41),
    "fewer steps than are staged": lambda: matmul(33, 8, 34),
    "in stages": lambda: matmul(68, 84, 36),
    "several warps": lambda: matmul(131, 20, 260),
    "batched": lambda: matmul(40, 19, 35, (3,)),
    "transposed": partial(products.transposed, "float64"),
}
every_nest = pytest.mark.parametrize("name", NESTS)


@cache
def net_of(name: str) -> pf.Executable:
    return by_tensor_cores(NESTS[name]())


@every_nest
def test_in_lock_step_it_is_the_oracle(name: str) -> None:
    net, nest = net_of(name), NESTS[name]()
    assert "tile_mma_f64(" in net.program.source
    inputs = cases.draw(nest, np.random.default_rng(5))
    (found,) = outputs = cases.poisoned(nest)
    net(**inputs, out=outputs)
    assert cases.error(nest, inputs, {nest.outputs[0].name: found}) <= cases.TOLERANCE


@every_nest
def test_no_access_to_shared_memory_waits_for_a_bank(name: str) -> None:
    net = net_of(name)
    (launch,) = net.program.launches
    assert_no_waits(net.schedule.source, launch)


def test_every_shape_has_a_layout_in_which_no_access_meets_a_bank_twice() -> None:
    for (rows, columns), steps in pairs(((4, 4), (4, 8), (8, 4), (8, 8)), (8, 16)):
        tile = ThreadblockTile(
            TileShape(2, 16, 4, rows, columns, steps, 8, MmaF64.axes), MmaF64(), ThreadCopy()
        )
        for side, way in pairs((tile.left, tile.right), WAYS):
            spread = tile.layout(side, *way)
            assert isinstance(spread, SmemLayout)
            assert waits_in(spread, tile, side, *way) == 0, (tile, side, way)


def test_an_instruction_is_a_product_of_matrices() -> None:
    """A[8, 4], B[4, 8] and C[8, 8] handed out to lanes as the PTX ISA says, and put together again."""
    rng = np.random.default_rng(2)
    a, b, c = (rng.standard_normal(shape) for shape in ((8, 4), (4, 8), (8, 8)))
    g, t = np.arange(32) // 4, np.arange(32) % 4
    found = multiplied([[a[g, t]]], [b[t, g]], [c[g, 2 * t], c[g, 2 * t + 1]])
    for n, values in enumerate(found):
        assert values.dtype == np.float64
        assert np.array_equal((a @ b + c)[g, 2 * t + n], values)


@pytest.mark.parametrize("sizes", [(1024, 512, 1024), (4096, 512, 4096), (96, 448, 160)])
def test_machine_code_is_tensor_cores_in_planned_registers(sizes: tuple[int, int, int]) -> None:
    pytest.importorskip("cuda.core")
    net = pf.compile(matmul(*sizes), target="cuda", machine="h200", device="none")
    for capability in ((8, 0), (9, 0)):
        cubin = in_planned_registers(net, capability)
        # on sm_90 ptxas puts a NOP behind most of these instructions
        loop = [name for name in main_loop(cubin) if name != "NOP"]
        assert sum(name.startswith("DMMA") for name in loop) >= 0.3 * len(loop)
        assert "LDS.128" in loop
        assert "DFMA" not in loop


@pytest.mark.parametrize("preset", ["a100", "h100", "h200"])
def test_the_model_expects_them_to_be_faster(preset: str) -> None:
    machine = Machine.preset(preset)
    extents = Extents(4096, 4096, 4096, 1, whole_steps=4096)
    first, *_ = found = mma_f64_tiles(extents, 8, machine, machine.gpu)
    assert [s.seconds for s in found] == sorted(s.seconds for s in found)
    assert first.seconds < fma_tiles(extents, 8, machine, machine.gpu)[0].seconds
    assert "by tensor cores on float64 numbers as they are" in first.sentences("mac")[0]


def test_where_there_are_none_products_are_what_they_were() -> None:
    """A GeForce has no such units worth using, and the simulator runs one thread at a time."""
    nest = matmul(96, 64, 80)
    without = pf.compile(nest, target="cuda", machine="rtx4090", device="none")
    simulated = pf.compile(nest, target="cuda", machine="h200", device="simulator")
    for net in (without, simulated):
        assert "tile_fma(" in net.program.source
        assert "tile_mma" not in net.program.source


@pf.nest
def triangle(a: f64[96, 96], b: f64[96, 96], y: f64[96, 96]):
    """Lanes of a warp would take different steps."""
    for i in range(96):
        for j in range(96):
            y[i, j] = 0.0
            for k in range(i + 1):
                y[i, j] += a[i, k] * b[k, j]


def test_shapes_are_for_results_that_all_take_the_same_steps() -> None:
    """Lanes of a warp multiply together, so that a row of a triangle cannot end before the next one."""
    product, *_ = products_of(triangle, "S1", triangles=True)
    assert whole_steps(triangle, product) == 0
    full = matmul(96, 96, 96)
    product, *_ = products_of(full, "mac0")
    assert whole_steps(full, product) == 96
    machine = Machine.preset("h200")
    sizes = Extents(1024, 1024, 1024, 1)
    assert mma_f64_tiles(replace(sizes, whole_steps=1024), 8, machine, machine.gpu)
    assert not mma_f64_tiles(sizes, 8, machine, machine.gpu)


def test_the_verb_says_what_it_needs() -> None:
    def tiled(nest: pf.Nest, rows: int, columns: int) -> pf.Schedule:
        s = pf.Schedule(nest).split("mac0", "i", rows).split("mac0", "j", columns)
        return s.reorder("mac0", "i", "j", "k", "i_in", "j_in")

    nest = matmul(64, 64, 64)
    done = tiled(nest, 3, 4).microkernel("mac0", "k", math="f64")
    assert "@ microkernel of f64 factors" in str(done)
    with pytest.raises(InvalidSchedule, match="an even number of columns in each thread, not 4 x 3"):
        tiled(nest, 4, 3).microkernel("mac0", "k", math="f64")
    with pytest.raises(InvalidSchedule, match="needs the sums of mac0 in registers, its factors promoted"):
        pf.compile(nest, schedule=done, target="cuda", machine="h200", device="none")
    with pytest.raises(InvalidSchedule, match="with f64 factors, which only GPUs support"):
        pf.compile(nest, schedule=done, target="cpu")
    single = cases.product(64, 64, 64)
    with pytest.raises(InvalidSchedule, match="multiplies float64 numbers, and these are float32"):
        tiled(single, 4, 4).microkernel("mac0", "k", math="f64")
    with pytest.raises(InvalidMath, match="unknown math 'f64'; expected one of ieee, tf32, bf16, f16"):
        pf.compile(nest, target="cuda", machine="h200", device="none", math="f64")
    with pytest.raises(InvalidSchedule, match="rounded='f64', expected one of ieee, tf32, bf16, f16"):
        pf.Schedule(nest).promote("x", "mac0", at="k", memory="shared", rounded="f64")
