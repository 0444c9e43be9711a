"""Products of halves by warpgroups, copied as they are while tensor cores multiply: in lock-step, as machine code."""

# ruff: noqa: F821

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

import polyfuse as pf
from polyfuse.codegen.cuda.compile.disassembly import main_loop
from polyfuse.ir.precision import Math
from polyfuse.layouts.core_matrix import CoreMatrixLayout
from polyfuse.machine import Machine
from polyfuse.rewrite import expand
from polyfuse.strategy.cuda.tiles.smem_layouts import copy_waits
from polyfuse.strategy.cuda.tiles.tile import ThreadblockTile
from polyfuse.strategy.cuda.tiles.tile_candidates import tiles_for
from polyfuse.strategy.match.gemm_problem import Extents, Kept
from tests.support.banks import assert_no_waits
from tests.support.on_tensor_cores import (
    assert_exact,
    assert_found,
    bits_of_halves,
    by_steps,
    groups_of,
    in_planned_registers,
    kind_of,
    large,
    matmul,
    schedule_with,
    warpgroups,
)

NESTS = {
    "columns": (lambda: matmul(128, 128, 128, dtype="bfloat16"), "bf16", (1, 1, 2, 16, 32, 2)),
    "columns in four stages": (lambda: matmul(70, 192, 136, dtype="bfloat16"), "bf16", (1, 1, 2, 16, 32, 4)),
    "columns, 64 steps": (lambda: matmul(137, 128, 72, dtype="float16"), "f16", (1, 1, 4, 16, 64, 2)),
    "columns, one tile in four stages": (
        lambda: matmul(66, 32, 72, dtype="bfloat16"),
        "bf16",
        (1, 1, 2, 16, 32, 4),
    ),
    "two down": (lambda: matmul(130, 96, 72, dtype="float16"), "f16", (2, 1, 2, 16, 32, 4)),
    "two across": (lambda: matmul(72, 96, 136, dtype="bfloat16"), "bf16", (1, 2, 2, 16, 32, 2)),
    "256 columns": (lambda: matmul(66, 64, 264, dtype="bfloat16"), "bf16", (1, 1, 2, 64, 32, 2)),
    "steps": (by_steps, "f16", (1, 1, 2, 16, 32, 4)),
    "steps in two stages": (by_steps, "f16", (1, 2, 2, 16, 32, 2)),
    "batched": (lambda: matmul(66, 64, 72, (3,), "bfloat16"), "bf16", (1, 1, 2, 16, 32, 2)),
}
every_nest = pytest.mark.parametrize("name", NESTS)


def schedule_of(nest: pf.Nest, math: Math, tile: tuple[int, ...]) -> pf.Schedule:
    """The schedule with one shape: warpgroups down and across, a thread's rows and columns, steps, stages."""

    def wanted(t: ThreadblockTile) -> bool:
        sizes = (t.shape.rows, t.shape.columns, t.shape.steps, t.stages)
        return kind_of(t) == "kept" and (*groups_of(t), *sizes) == tile

    return schedule_with(nest, math, wanted)


def transposed() -> pf.Nest:
    """A product whose rows are neighbours in its left factor."""

    @pf.nest
    def product(x: "bf16[512, 1024]", y: "bf16[512, 1024]", z: "bf16[1024, 1024]"):
        for i in range(1024):
            for j in range(1024):
                s = 0
                for k in range(512):
                    s += x[k, i] * y[k, j]
                z[i, j] = s

    return expand(product).nest


@cache
def net_of(name: str) -> pf.Executable:
    make, math, tile = NESTS[name]
    schedule = schedule_of(make(), math, tile)
    return pf.compile(schedule.source, schedule=schedule, target="cuda", machine="h200", device="lockstep")


@every_nest
def test_in_lock_step_it_is_exact(name: str) -> None:
    """Halves are products' factors as they are: of small integers every sum is exact."""
    net, nest = net_of(name), NESTS[name][0]()
    assert "copy_ahead(" in net.program.source
    assert not [what for what in ("copy_rounded", "copy_vector(4") if what in net.program.source]
    assert_exact(net, nest)


@every_nest
def test_no_copy_waits_for_a_bank(name: str) -> None:
    """As enumerated by the run itself: every address of every warp that copies."""
    net = net_of(name)
    (launch,) = net.program.launches
    assert_no_waits(net.schedule.source, launch)


ARRIVED = "        await_copies(2)\n        show_tensor_cores()"

CHANGED = {
    "copies are waited for": ("await_copies(2)", "await_copies(3)", "race on shared array 'y_shared'"),
    "what arrives is shown": ("show_tensor_cores()", "pass", "was not shown to them"),
    "what arrives late is shown": (
        f", 1)\n{ARRIVED}",
        ", 1)\n        await_copies(2)",
        "was not shown to them",
    ),
    "sums are waited for": ("        await_wgmma(2, 16, y)\n", "", "was overwritten"),
    "another stage is copied": ("2304 * (k + 3 & 3)", "2304 * (k & 3)", "was overwritten|y_shared"),
    "steps are rows": ("576, 72, 576, 1)", "576, 72, 576, 0)", "differ"),
    "a core is 128 bytes and a gap": ("576, 72, 576, 1)", "576, 64, 576, 1)", "differ"),
}


@pytest.mark.parametrize("what", CHANGED)
def test_what_is_left_out_is_found(what: str) -> None:
    """Lock-step sees each wait and each number that a kernel in four stages cannot do without."""
    net = net_of("columns in four stages")
    (launch,) = net.program.launches
    assert_found(launch, CHANGED[what], lambda: bits_of_halves(net, launch))


@pytest.mark.parametrize(
    ("turned", "tile"),
    [
        (True, (1, 1, 2, 32, 32, 4)),
        (True, (2, 1, 2, 64, 32, 4)),
        (True, (1, 2, 4, 32, 64, 2)),
        (False, (1, 1, 2, 64, 64, 4)),
        (False, (1, 2, 4, 32, 32, 4)),
    ],
)
def test_machine_code_copies_while_it_multiplies(turned: bool, tile: tuple[int, ...]) -> None:
    pytest.importorskip("cuda.core")
    schedule = schedule_of(matmul(2048, 1024, 2048, dtype="bfloat16") if turned else large(), "bf16", tile)
    net = pf.compile(schedule.source, schedule=schedule, target="cuda", machine="h200", device="none")
    cubin = in_planned_registers(net, (9, 0))
    assert cubin.arch == "sm_90a"
    down, across, rows, columns, steps, _ = tile
    loop = main_loop(cubin)
    products = [at for at, op in enumerate(loop) if op == f"HGMMA.64x{4 * columns}x16.F32.BF16"]
    assert len(products) == rows // 2 * steps // 16
    copies = {op: loop.count(op) for op in loop if op.startswith("LDGSTS")}
    by_16 = steps * 32 * down * rows * 2 // 16  # bytes of the left factor
    elements = 4 * across * columns * steps
    threads = 128 * down * across
    expected = {"LDGSTS.E.BYPASS.128": by_16 // threads, "LDGSTS.E": elements // 2 // threads}
    if not turned:
        expected = {"LDGSTS.E.BYPASS.128": (by_16 + elements // 8) // threads}
    assert copies == expected
    first, last = (loop.index(op) for op in (next(iter(copies)), "LDGDEPBAR"))
    assert products[-1] < first < loop.index("WARPGROUP.DEPBAR.LE") < last, (
        "copies run while tensor cores multiply"
    )
    assert loop.index("DEPBAR.LE") < loop.index("FENCE.VIEW.ASYNC.S") < loop.index("BAR.SYNC.DEFER_BLOCKING")
    through_registers = ("LDG", "STS", "F2F", "PRMT")
    assert not [op for op in loop if op.startswith(through_registers) and op not in (*copies, "LDGDEPBAR")]


@pytest.mark.parametrize("kept", ["steps", "columns"])
def test_no_shape_has_copies_that_wait_for_banks(kept: Kept) -> None:
    machine = replace(Machine.preset("h200"), math="bf16")
    found = warpgroups("kept", Extents(4096, 4096, 4096, 1, whole_steps=4096, kept=kept), "bf16", machine)
    assert len({(t.shape.threads, t.shape.rows, t.shape.columns) for t in found}) >= 10
    for s in found:
        for side, steps in s.sides:
            cores = s.layout(side, steps, wide=True)
            assert isinstance(cores, CoreMatrixLayout)
            values = s.thread_values(side, steps, wide=True)
            assert copy_waits(s.shape, side, values, s.element, cores) == 0, s


@pytest.mark.parametrize("kept", ["steps", "columns"])
def test_the_model_takes_them_for_large_products(kept: Kept) -> None:
    machine = replace(Machine.preset("h200"), math="bf16")
    for size in (1024, 4096):
        extents = Extents(size, size, size, 1, whole_steps=size)
        through_registers, as_they_are = (
            tiles_for(each, 4, machine, machine.gpu)[0] for each in (extents, replace(extents, kept=kept))
        )
        assert as_they_are.kept
        assert as_they_are.seconds < through_registers.seconds
        assert "which are copied as they are" in as_they_are.sentences("mac")[0]
    assert not warpgroups("kept", replace(extents, whole_steps=0), "bf16", machine)
    ampere = Machine.preset("a100")
    assert ampere.gpu is not None
    assert not warpgroups("kept", replace(extents, kept=kept), "bf16", ampere)


@pytest.mark.parametrize(
    ("nest", "reason"),
    [
        (lambda: matmul(256, 64, 256), "x is float32 and rounded to bf16"),
        (lambda: matmul(1024, 512, 1028, dtype="bfloat16"), "rows of y begin at no multiples of 16 bytes"),
        (lambda: transposed(), "rows of the product are neighbours in x, and not its steps"),
    ],
)
def test_what_goes_through_registers_says_why(nest: Callable[[], pf.Nest], reason: str) -> None:
    net = pf.compile(nest(), target="cuda", machine="h200", device="none", math="bf16")
    assert f"are copied as they are: {reason}" in str(net.explain())
