"""Tiles of results in a GPU thread's registers: the oracle's results, no bank conflict, lean machine code."""

# ruff: noqa: F821

from functools import cache
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.analysis.banks import waits
from polyfuse.checks import cuda_cases as cases
from polyfuse.codegen.cuda.compile.cubin import Cubin
from polyfuse.codegen.cuda.compile.disassembly import main_loop, opcodes, register_reads
from polyfuse.codegen.looptree.half_types import WIDENED
from polyfuse.errors import InvalidSchedule
from polyfuse.ir.number_types import HALVES
from polyfuse.layouts.smem import SmemLayout
from polyfuse.machine import Machine
from polyfuse.rewrite import expand
from polyfuse.runtime.cuda.runner import build_kernels
from polyfuse.runtime.samples import roundings
from polyfuse.simulator import lockstep
from polyfuse.strategy.cuda.tiles.mma import Fma
from polyfuse.strategy.cuda.tiles.tile import ThreadblockTile
from polyfuse.strategy.cuda.tiles.tile_candidates import fma_tiles
from polyfuse.strategy.cuda.tiles.tile_copies import CpAsync
from polyfuse.strategy.cuda.tiles.tile_cost import costed
from polyfuse.strategy.cuda.tiles.tile_shape import TileShape
from polyfuse.strategy.match.gemm_problem import Extents
from polyfuse.strategy.pipeline import plan_for
from polyfuse.strategy.plan import Plan
from tests.support.banks import assert_no_waits


@pf.nest
def gemm(alpha: "f32", A: "f32[29, 23]", B: "f32[23, 37]", C: "f32[29, 37]"):
    for i in range(29):
        for j in range(37):
            C[i, j] *= 0.5
            for k in range(23):
                C[i, j] += alpha * A[i, k] * B[k, j]


@pf.nest
def transposed(A: "f32[40, 32]", B: "f32[48, 40]", C: "f32[32, 48]"):
    for i in range(32):
        for j in range(48):
            for k in range(40):
                C[i, j] += A[k, i] * B[j, k]


@pf.nest
def batched(A: "f64[3, 11, 14]", B: "f64[3, 14, 9]", C: "f64[3, 11, 9]"):
    for b in range(3):
        for i in range(11):
            for j in range(9):
                C[b, i, j] = 0.0
                for k in range(14):
                    C[b, i, j] += A[b, i, k] * B[b, k, j]


NESTS = {
    "linear + ReLU, whole tiles": lambda: cases.dense(48, 64, batch=32),
    "linear + ReLU, odd": lambda: cases.dense(37, 41, batch=29),
    "linear + ReLU, one step too many": lambda: cases.dense(33, 65, batch=17),
    "linear + tanh, float64": lambda: cases.dense(19, 22, batch=13, dtype="float64", activation=nn.Tanh),
    "linear + ReLU, float64, in stages": lambda: cases.dense(64, 40, batch=24, dtype="float64"),
    "linear, no bias": lambda: nn.lower(nn.Linear(20, 24, bias=False), batch=21),
    "float16 in vectors": lambda: cases.dense(36, 44, batch=29, dtype="float16"),
    "bfloat16, one by one": lambda: cases.dense(37, 41, batch=29, dtype="bfloat16"),
    "residual": lambda: nn.lower(nn.Residual(nn.Linear(24, 24)), batch=19),
    "@pf.nest gemm": lambda: expand(gemm).nest,
    "@pf.nest transposed, in place": lambda: expand(transposed).nest,
    "@pf.nest batched": lambda: expand(batched).nest,
    "heads of a batch": lambda: nn.lower(
        nn.relu(nn.input("a", (3, 5, 19, 16)) @ nn.input("b", (5, 16, 21)) + 1)
    ),
}
every_nest = pytest.mark.parametrize("name", NESTS)


@cache
def plan(name: str) -> Plan:
    """The plan with register tiles, whether the model finds them the faster form at these sizes or not."""
    return plan_for(NESTS[name](), Machine.preset("h200"), force={"register tiles": True})


@cache
def program(name: str) -> pf.Executable:
    schedule = plan(name).schedule
    return pf.compile(schedule.source, schedule=schedule, target="cuda", machine="h200", device="lockstep")


@every_nest
def test_in_lock_step_it_is_what_the_oracle_says(name: str) -> None:
    net, nest = program(name), NESTS[name]()
    assert "tile_fma(" in net.program.source
    inputs = cases.draw(nest, np.random.default_rng(5))
    expected = pf.interpret(nest, {k: v.copy() for k, v in inputs.items()})
    outputs = tuple(np.full(t.shape, np.nan, t.dtype) for t in nest.with_role("output"))
    given = {k: v.copy() for k, v in inputs.items()}
    net(**given, **({"out": outputs} if outputs else {}))
    names = [t.name for t in nest.with_role("output")]
    found = dict(zip(names, outputs, strict=True)) | {t.name: given[t.name] for t in nest.with_role("inout")}
    assert roundings(expected, found) <= cases.TOLERANCE


@every_nest
def test_no_access_to_shared_memory_waits_for_a_bank(name: str) -> None:
    """As enumerated by the run itself: every address of every warp, copies and factors alike."""
    (launch,) = [each for each in program(name).program.launches if "tile_fma(" in each.source]
    assert_no_waits(plan(name).schedule.source, launch)


def test_a_last_tile_of_one_step_is_an_operation_too() -> None:
    """Loops in its place would index the results by variables: they would leave the registers."""
    source = program("linear + ReLU, one step too many").source
    assert source.count("tile_fma(") == 2
    assert "y[i_in_in_in, j_in_in] +=" not in source


def test_waits_are_counted() -> None:
    source = """
def k(x):
    tx = cuda.threadIdx.x
    s = cuda.shared.array((64,), float32)
    s[2 * tx] = x[tx]
    cuda.syncthreads()
    x[tx] = s[2 * tx]
"""
    report = lockstep.run(source, "k", 1, 32, [np.zeros(32, np.float32)], counts_waits=True)
    assert report.waits == 2
    assert waits(np.arange(32)[None] * 4, 4) == 0


@pytest.mark.parametrize("preset", ["a100", "h100", "h200", "rtx4090"])
def test_a_shape_fits_its_machine_and_says_why(preset: str) -> None:
    machine = Machine.preset(preset)
    found = fma_tiles(Extents(2048, 2048, 1024, 1), 4, machine, machine.gpu)
    best = found[0]
    assert [s.seconds for s in found] == sorted(s.seconds for s in found)
    assert best.shape.rows * best.shape.columns >= 32
    assert best.shared_bytes <= machine.gpu.shared_per_block
    assert "registers planned" in best.sentences("mac")[0]
    for side in (best.left, best.right):
        spread = best.layout(side, by_steps=True, wide=True)
        assert isinstance(spread, SmemLayout)
        assert spread.tile == side.tile


def test_a_warp_has_one_of_four_schedulers() -> None:
    """One warp's instructions take as long on an SM as four warps', and five warps' as long as eight's."""
    machine = Machine.preset("h200")
    gpu = machine.gpu
    assert gpu is not None

    def issuing(blocks: int) -> float:
        extents = Extents(32, 32, 4096, blocks * machine.units)
        tile = ThreadblockTile(TileShape(1, 4, 8, 8, 4, 16, 4), Fma(), CpAsync(), stages=4)
        return costed(tile, extents, machine, gpu).issuing

    assert [issuing(blocks) / issuing(4) for blocks in (1, 2, 3, 5, 8)] == pytest.approx([1, 1, 1, 2, 2])


def test_only_the_largest_tiles_of_float64_numbers_have_stages() -> None:
    machine = Machine.preset("h200")
    found = [s for s in fma_tiles(Extents(512, 512, 512, 1), 8, machine, machine.gpu) if s.stages > 1]
    assert {(t.shape.rows, t.shape.columns, t.registers) for t in found} == {(4, 4, 128)}
    assert "await_copies(" in program("linear + ReLU, float64, in stages").program.source


def test_a_grid_has_so_many_blocks_along_the_batch() -> None:
    machine = Machine.preset("h200")
    assert fma_tiles(Extents(64, 64, 64, 65535), 4, machine, machine.gpu)
    assert not fma_tiles(Extents(64, 64, 64, 65536), 4, machine, machine.gpu)


def test_a_spread_needs_panels_in_shared_memory() -> None:
    nest = NESTS["linear + ReLU, odd"]()
    start = pf.Schedule(nest).split("mac0", "k", 16)
    with pytest.raises(InvalidSchedule, match="only panels in shared memory can be spread"):
        start.promote("x", "mac0", at="k", memory="local", layout=pf.SmemLayout(8, 4, 0, 1, 0))
    with pytest.raises(InvalidSchedule, match="does not fit panels of 12"):
        start.promote(
            "x", "mac0", at="k", memory="shared", panel=(0, 12), layout=pf.SmemLayout(8, 4, 0, 1, 0)
        )


@pytest.mark.parametrize("sides", [(1024, 1024, 1024), (1000, 1023, 514)], ids=["1024", "odd"])
def test_machine_code_is_multiply_adds_in_planned_registers(sides: tuple[int, int, int]) -> None:
    pytest.importorskip("cuda.core")
    rows, columns, steps = sides
    net = pf.compile(cases.dense(steps, columns, batch=rows), target="cuda", machine="h200", device="none")
    (code,) = net.program.codes
    for capability in ((8, 0), (9, 0)):
        (cubin,) = build_kernels(net.program, capability).values()
        assert code.registers is not None
        assert cubin.registers <= code.registers
        assert (cubin.spill_stores, cubin.spill_loads) == (0, 0)
        every = opcodes(cubin)
        assert not [name for name in every if name.startswith(("LDL", "STL"))]
        assert "LDS.128" in every
        loop = main_loop(cubin)
        if capability == (9, 0):  # an A100 begins one multiply-add in two cycles
            assert_banks_keep_up(cubin)
        # before each copy that follows a load ptxas has three empty loads: with all copies before the
        # multiply-adds the share is 0.89, and the product of 1024 takes 68 µs where it takes 55 (H200)
        assert loop.count("FFMA") >= 0.87 * len(loop)
        assert loop.count("BRA") == 1, "where tiles are cut short, copies bring zeros: nothing jumps"
        if sides[0] == 1024:
            assert {"LDS.128", "LDGSTS.E.BYPASS.128"} <= set(loop), "the next tile is on its way"
            assert {"STG.E.128", "LDG.E.128"} <= set(every), "results and the bias are rows of whole vectors"
            assert not {"STG.E", "LDG.E"} & set(every), "nothing is accessed 4 bytes at a time"


def assert_banks_keep_up(cubin: Cubin) -> None:
    """No bank of registers delivers more for a pass than one number for each multiply-add and a few more."""
    reads = register_reads(cubin)
    assert max(reads.banks) <= 1.05 * reads.multiply_adds  # 1.18 and 1.19 with the results row by row


@pytest.mark.parametrize(("size", "registers"), [(1024, 255), (2048, 255), (2000, 255), (2200, 128)])
def test_blocks_that_are_at_once_share_all_registers(size: int, registers: int) -> None:
    """128 blocks have an SM each, large ones too; others take turns as planned."""
    net = pf.compile(cases.dense(size, size, batch=size), target="cuda", machine="h200", device="none")
    (code,) = net.program.codes
    assert code.registers == registers


def test_copies_ahead_are_cheaper_than_blocks_that_wait_for_each_other() -> None:
    """Two blocks of one stage hide each other's loads only where they are in turns, which nothing sees to."""
    machine = Machine.preset("h200")
    extents = Extents(2048, 2048, 2048, 1)
    best, *others = fma_tiles(extents, 4, machine, machine.gpu)
    best = next(
        s for s in (best, *others) if s.shape.rows == 8 and s.stages > 1
    )  # tiles of 16 rows have no other form
    alike = next(
        t
        for t in others
        if t.stages == 1 and (t.shape.threads, t.shape.rows) == (best.shape.threads, best.shape.rows)
    )
    assert best.stages == 2
    assert best.seconds < alike.seconds < 1.1 * best.seconds


@pytest.mark.parametrize("preset", ["a100", "h200"])
@pytest.mark.parametrize("half", HALVES)
def test_machine_code_of_halves_is_multiply_adds_too(half: str, preset: str) -> None:
    """Four halves are one load and one store of float32 numbers: one by one they took registers of results."""
    pytest.importorskip("cuda.core")
    net = pf.compile(
        cases.dense(1024, 1024, batch=1024, dtype=half), target="cuda", machine=preset, device="none"
    )
    assert f"copy_{WIDENED[half]}(4, x_shared, " in net.source
    code = net.program.codes[0]  # for an A100 in two parts, which another kernel adds
    assert code.registers is not None
    for capability in ((8, 0), (9, 0)):
        cubin = build_kernels(net.program, capability)[code.name]
        assert cubin.registers <= code.registers
        assert (cubin.spill_stores, cubin.spill_loads) == (0, 0)
        loop = main_loop(cubin)
        assert loop.count("FFMA") >= 0.88 * len(loop)
        assert "LDG.E.64" in {name.replace(".CONSTANT", "") for name in loop}


def test_a_product_is_explained() -> None:
    net = pf.compile(cases.dense(1024, 1024, batch=1024), target="cuda", machine="a100", device="none")
    assert "mac0 in register tiles: blocks of" in str(net.explain())


@pytest.mark.parametrize("axes", [0, 1, (0, 1)])
@pytest.mark.parametrize(
    ("dtype", "options"), [("float32", {}), ("float64", {}), ("float32", {"math": "tf32"})], ids=str
)
def test_results_whose_rows_or_columns_run_backwards(axes: Any, dtype: str, options: dict[str, Any]) -> None:
    rng = np.random.default_rng(3)
    x, y = (rng.integers(-3, 4, (32, 32)).astype(dtype) for _ in range(2))
    product = nn.input("x", x.shape, dtype) @ nn.input("y", y.shape, dtype)
    net = pf.compile(
        pf.lower(nn.flip(product, axes)), target="cuda", machine="h200", device="lockstep", **options
    )
    assert np.array_equal(net(x, y), np.flip(x @ y, axes))
