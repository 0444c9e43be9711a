"""Products by Hopper's warpgroups: right in lock-step, no bank conflict, machine code with what was planned."""

# ruff: noqa: F821

from dataclasses import replace
from functools import cache, partial
from itertools import product as pairs
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.checks import cuda_cases as cases
from polyfuse.codegen.cuda.compile.disassembly import main_loop
from polyfuse.codegen.cuda.kernel_grammar import UnsupportedKernel
from polyfuse.errors import InvalidSchedule
from polyfuse.ir.precision import PRECISIONS, STEPS, Math
from polyfuse.layouts.core_matrix import CoreMatrixLayout
from polyfuse.machine import Machine
from polyfuse.rewrite import expand
from polyfuse.simulator import lockstep
from polyfuse.simulator import races as lockstep_memory
from polyfuse.strategy.cuda.tiles.mma import Wgmma
from polyfuse.strategy.cuda.tiles.smem_layouts import WAYS, copy_waits
from polyfuse.strategy.cuda.tiles.tile import ThreadblockTile
from polyfuse.strategy.cuda.tiles.tile_candidates import tiles_for
from polyfuse.strategy.cuda.tiles.tile_copies import ThreadCopy
from polyfuse.strategy.cuda.tiles.tile_shape import TileShape
from polyfuse.strategy.match.gemm_problem import Extents
from tests.support.banks import assert_no_waits
from tests.support.emitted import in_positions
from tests.support.on_tensor_cores import by_warpgroups, groups_of, in_planned_registers, kind_of, matmul

H200 = Machine.preset("h200")


@pf.nest
def transposed(A: "f32[32, 132]", B: "f32[72, 32]", C: "f32[132, 72]"):
    for i in range(132):
        for j in range(72):
            for k in range(32):
                C[i, j] += A[k, i] * B[j, k]


NESTS = {
    "whole": (lambda: matmul(128, 64, 128), "bf16", (1, 1, 2, 16, 1)),
    "in two stages": (lambda: matmul(70, 96, 136), "bf16", (1, 1, 2, 16, 2)),
    "one tile in two stages": (lambda: matmul(66, 32, 72), "bf16", (1, 1, 2, 16, 2)),
    "odd results": (lambda: matmul(137, 96, 70), "bf16", (1, 1, 4, 16, 1)),
    "two warpgroups down": (lambda: matmul(130, 64, 68), "f16", (2, 1, 2, 16, 1)),
    "two warpgroups across": (lambda: matmul(72, 96, 132), "bf16", (1, 2, 2, 16, 2)),
    "transposed": (lambda: expand(transposed).nest, "f16", (1, 1, 4, 16, 1)),
    "tf32": (lambda: matmul(128, 64, 128), "tf32", (1, 1, 2, 16, 1)),
    "tf32 in two stages": (lambda: matmul(70, 96, 136), "tf32", (1, 1, 2, 16, 2)),
    "tf32 with odd results": (lambda: matmul(137, 64, 70), "tf32", (2, 1, 2, 16, 2)),
    "tf32 transposed": (lambda: expand(transposed).nest, "tf32", (1, 1, 4, 16, 1)),
    "of halves": (lambda: matmul(66, 64, 72, dtype="bfloat16"), "bf16", (1, 1, 2, 16, 2)),
}
every_nest = pytest.mark.parametrize("name", NESTS)


def schedule_of(nest: pf.Nest, math: Math, tile: tuple[int, ...]) -> pf.Schedule:
    """The strategy's schedule with one shape: warpgroups down and across, a thread's rows and columns, stages."""

    def wanted(t: ThreadblockTile) -> bool:
        return kind_of(t) == "rounded" and (*groups_of(t), t.shape.rows, t.shape.columns, t.stages) == tile

    return by_warpgroups(nest, math, wanted).schedule


@cache
def net_of(name: str) -> pf.Executable:
    make, math, tile = NESTS[name]
    schedule = schedule_of(make(), math, tile)
    return pf.compile(schedule.source, schedule=schedule, target="cuda", machine="h200", device="lockstep")


@every_nest
def test_in_lock_step_it_is_within_the_bound(name: str) -> None:
    net, (make, math, _) = net_of(name), NESTS[name]
    nest = make()
    assert f"tile_wgmma_{math}(" in net.program.source
    inputs = cases.draw(nest, np.random.default_rng(5))
    given, outputs = {k: v.copy() for k, v in inputs.items()}, cases.poisoned(nest)
    net(**given, **({"out": outputs} if outputs else {}))
    found = (outputs[0] if outputs else given["C"]).astype(np.float64)
    exact, magnitude = (
        np.asarray(*pf.interpret(nest, {k: f(v) for k, v in inputs.items()}).values(), dtype=np.float64)
        for f in (np.copy, np.abs)
    )
    if name == "of halves":  # which are rounded already
        assert np.array_equal(exact, found)
        return
    error = np.abs(exact - found)
    assert (error <= (PRECISIONS[math].bound(96) + 2.0**-18) * magnitude).all()
    assert error.max() > 2.0**-3 * PRECISIONS[math].unit, "nothing was rounded"


@pytest.mark.parametrize(
    "name", ["in two stages", "odd results", "tf32 in two stages", "tf32 with odd results"]
)
def test_no_access_to_shared_memory_waits_for_a_bank(name: str) -> None:
    """As enumerated by the run itself: every address of every warp that copies."""
    net = net_of(name)
    (launch,) = net.program.launches
    assert_no_waits(net.schedule.source, launch)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("672, 80,", "672, 72,"),
        ("672, 80,", "664, 80,"),
        ("576, 72,", "576, 64,"),
        ("y_shared, 0,", "y_shared, 8,"),
    ],
)
def test_another_layout_is_another_result(old: str, new: str) -> None:
    """Lock-step reads by the descriptor: one that does not fit the copies multiplies other numbers, or poison."""
    net = net_of("whole")
    (launch,) = net.program.launches
    generator = np.random.default_rng(1)
    given = [generator.standard_normal(size).astype(np.float32) for size in (64 * 128, 128 * 64, 128 * 128)]
    written = in_positions(launch.source)
    source = written.replace(old, new)
    assert source != written, written
    right, wrong = ([array.copy() for array in given] for _ in range(2))
    lockstep.run(launch.source, launch.name, *launch.extents({}), right)
    lockstep.run(source, launch.name, *launch.extents({}), wrong)
    assert not np.array_equal(right[2], wrong[2])


def test_what_was_not_shown_is_not_read() -> None:
    net = net_of("whole")
    (launch,) = net.program.launches
    source = launch.source.replace("show_tensor_cores()", "pass")
    arrays = [np.zeros(size, np.float32) for size in (64 * 128, 128 * 64, 128 * 128)]
    with pytest.raises(UnsupportedKernel, match="_shared is read by tensor cores and was not shown to them"):
        lockstep.run(source, launch.name, *launch.extents({}), arrays)


@pytest.mark.parametrize(
    ("math", "tile"),
    [
        ("bf16", (2, 1, 2, 16, 1)),
        ("bf16", (1, 2, 4, 32, 2)),
        ("tf32", (2, 1, 2, 16, 1)),
        ("tf32", (1, 2, 2, 32, 2)),
        ("tf32", (1, 1, 4, 32, 2)),
    ],
)
def test_machine_code_is_warpgroups_in_planned_registers(math: Math, tile: tuple[int, ...]) -> None:
    pytest.importorskip("cuda.core")
    schedule = schedule_of(matmul(2048, 1024, 2048), math, tile)
    net = pf.compile(schedule.source, schedule=schedule, target="cuda", machine="h200", device="none")
    cubin = in_planned_registers(net, (9, 0))
    assert cubin.arch == "sm_90a"
    loop = main_loop(cubin)
    down, _, rows, columns, stages = tile
    products = [op for op in loop if op.startswith("HGMMA")]
    depth, kind = STEPS[math], {"bf16": "F32.BF16", "tf32": "F32.TF32"}[math]
    assert products == [f"HGMMA.64x{4 * columns}x{depth}.{kind}"] * (rows // 2 * 32 * down // depth)
    assert loop.count("WARPGROUP.ARRIVE") == 1
    assert loop.count("WARPGROUP.DEPBAR.LE") == 1
    first_load, last_product = loop.index("LDG.E.128"), loop.index("WARPGROUP.DEPBAR.LE")
    if stages == 2:
        assert loop.index(products[0]) < first_load < last_product, (
            "a tile is copied while tensor cores multiply"
        )
    assert not {"FFMA", "HMMA.16816.F32.BF16"} & set(loop)
    assert not [op for op in loop if op.startswith("LDS.U16")], "no thread loads a factor again"


def test_a_product_begins_before_the_next_tile_is_copied() -> None:
    (launch,) = net_of("in two stages").program.launches
    loop = launch.source.split("    for k in")[1]
    begun, copied, awaited = (
        loop.index(what) for what in ("begin_wgmma_bf16(", "copy_vector(", "await_wgmma(")
    )
    assert begun < copied < awaited < loop.index("show_tensor_cores()") < loop.index("cuda.syncthreads()")


@pytest.mark.parametrize(
    ("old", "new"),
    [("        await_wgmma(2, 16, y)\n", "        pass\n"), ("2688 * k +", "2688 * (1 - k) +")],
    ids=["not awaited", "the stage that is being copied"],
)
def test_tensor_cores_that_read_what_is_copied_are_found(old: str, new: str) -> None:
    (launch,) = net_of("in two stages").program.launches
    written = in_positions(launch.source)
    changed = written.replace(old, new, 1)
    assert changed != written, written
    arrays = [
        np.random.default_rng(1).standard_normal(n).astype(np.float32) for n in (96 * 136, 70 * 96, 9520)
    ]
    with pytest.raises((UnsupportedKernel, lockstep_memory.RaceError), match=r"was overwritten|x_shared"):
        lockstep.run(changed, launch.name, *launch.extents({}), arrays)


@pytest.mark.parametrize("math", ["bf16", "tf32"])
@pytest.mark.parametrize("preset", ["h100", "h200"])
def test_factors_that_come_through_registers_are_multiplied_by_warps(preset: str, math: Math) -> None:
    """Products of 4096 took 1510 to 1867 µs by warpgroups of 128 x 128 and more, 623 and 1096 by warps (H200)."""
    machine = replace(Machine.preset(preset), math=math)
    found = tiles_for(Extents(4096, 4096, 4096, 1, whole_steps=4096), 4, machine, machine.gpu)
    assert kind_of(found[0]) == "Mma", found[0].why
    assert next(s for s in found if isinstance(s.mma, Wgmma)).seconds > 1.5 * found[0].seconds


def test_shapes_are_hoppers_alone_and_of_whole_steps() -> None:
    def found(preset: str, math: Math, steps: int) -> list[ThreadblockTile]:
        machine = replace(Machine.preset(preset), math=math)
        every = tiles_for(Extents(4096, 4096, 4096, 1, whole_steps=steps), 4, machine, machine.gpu)
        assert [s.seconds for s in every] == sorted(s.seconds for s in every)
        return [s for s in every if isinstance(s.mma, Wgmma)]

    assert found("h100", "bf16", 4096)
    assert found("h200", "f16", 4096)
    assert not found("a100", "bf16", 4096)
    assert not found("rtx4090", "bf16", 4096)
    assert found("h200", "tf32", 4096)
    assert not found("h200", "bf16", 0)
    assert {t.shape.steps for t in found("h200", "bf16", 4096 + 32)} == {32}
    shape = found("h200", "bf16", 4096)[0]
    assert "by tensor cores on bf16 factors, a warpgroup together" in shape.sentences("mac")[0]
    assert shape.registers <= 255


@pytest.mark.parametrize("math", ["bf16", "tf32"])
def test_copies_meet_no_bank_twice_where_they_are_wide(math: Math) -> None:
    for (down, across), (rows, columns) in pairs(((1, 1), (2, 1), (1, 2)), ((2, 16), (4, 32))):
        shape = TileShape(across, 32 * down, 4, rows, columns, 32 * down, 4, Wgmma.axes)
        s = ThreadblockTile(shape, Wgmma(math), ThreadCopy())
        for by_steps, wide in WAYS:
            for side in (s.left, s.right):
                cores, values = s.layout(side, by_steps, wide), s.thread_values(side, by_steps, wide)
                assert isinstance(cores, CoreMatrixLayout)
                waiting = copy_waits(shape, side, values, s.element, cores)
                expected = wide and (by_steps or side is not s.left)
                assert waiting == 0 or not expected, (s, side, by_steps, cores)


def test_what_does_not_fit_is_said() -> None:
    nest = matmul(64, 64, 64)
    s = (
        pf.Schedule(nest)
        .split("mac0", "i", 32)
        .split("mac0", "k", 16)
        .reorder("mac0", "i", "k", "j", "i_in", "k_in")
    )
    promote = partial(s.promote, "x", "mac0", at="k", memory="shared", panel=(0, 32))
    with pytest.raises(InvalidSchedule, match=r"CoreMatrixLayout\(tile=3, .*does not fit panels of 32"):
        promote(layout=pf.CoreMatrixLayout(3, 8, 2, 8))
    with pytest.raises(InvalidSchedule, match=r"a layout is pf.SmemLayout\(…\), .*, not \(4, 4, 0, 1, 0\)"):
        promote(layout=(4, 4, 0, 1, 0))  # type: ignore[arg-type]  # a tuple is what is refused


def test_a_layout_may_still_be_numbers_and_the_trace_names_it() -> None:
    """As printed schedules had it until 0.1.0; a user is told what to write."""
    s = pf.Schedule(matmul(64, 64, 64)).split("mac0", "i", 32).split("mac0", "k", 16)
    s = s.reorder("mac0", "i", "k", "j", "i_in", "k_in")
    promote = partial(s.promote, "x", "mac0", at="k", memory="shared", panel=(0, 32))
    old: dict[str, Any]
    for old, layout in (
        ({"spread": (4, 4, 0, 1, 4)}, pf.SmemLayout(4, 4, 0, 1, 4)),
        ({"cores": (4, 8, 2, 8, 0, 0, 0, 0)}, pf.CoreMatrixLayout(4, 8, 2, 8)),
        ({"cores": "swizzled"}, pf.SwizzledLayout()),
    ):
        with pytest.warns(DeprecationWarning, match="give layout="):
            done = promote(**old)
        assert done.trace() == promote(layout=layout).trace()
        space: dict[str, Any] = {"pf": pf, "nest": s.source}
        exec(done.trace(), space)
        assert str(space["s"]) == str(done)


@pytest.mark.filterwarnings("ignore:promote. spread= and cores= are deprecated")
def test_numbers_that_are_no_layout_are_refused() -> None:
    s = pf.Schedule(matmul(64, 64, 64)).split("mac0", "i", 32).split("mac0", "k", 16)
    s = s.reorder("mac0", "i", "k", "j", "i_in", "k_in")
    promote = partial(s.promote, "x", "mac0", at="k", memory="shared", panel=(0, 32))
    with pytest.raises(InvalidSchedule, match="a CoreMatrixLayout has tile, lanes, side, depth, gap"):
        promote(cores=(4, 8))  # type: ignore[arg-type]  # too few numbers are what is refused
    with pytest.raises(InvalidSchedule, match="layout, spread and cores are alternatives"):
        promote(spread=(4, 4, 0, 1, 0), cores=(4, 8, 2, 8, 0, 0, 0, 0))
