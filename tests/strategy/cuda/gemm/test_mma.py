"""Products on a GPU's tensor cores: within the stated bound of the oracle, no bank conflict, lean machine code."""

import ast
from dataclasses import replace
from functools import cache
from itertools import product as pairs
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.analysis.copies import rounds
from polyfuse.checks import cuda_cases as cases
from polyfuse.codegen.cuda.compile.disassembly import main_loop
from polyfuse.codegen.cuda.mma_calls import MATRICES, TRANSPOSED
from polyfuse.codegen.looptree.half_types import CONVERSIONS, rounded_bits
from polyfuse.errors import InvalidMath, InvalidSchedule
from polyfuse.ir.precision import PRECISIONS, STEPS, rounded
from polyfuse.layouts.smem import SmemLayout
from polyfuse.machine import Machine
from polyfuse.runtime.cuda.runner import build_kernels
from polyfuse.simulator.mma_fragments import Fragments, multiplied
from polyfuse.strategy.cuda.tiles.mma import Mma
from polyfuse.strategy.cuda.tiles.smem_layouts import WAYS, Stores, turns_of
from polyfuse.strategy.cuda.tiles.tile import ThreadblockTile
from polyfuse.strategy.cuda.tiles.tile_candidates import mma_tiles
from polyfuse.strategy.cuda.tiles.tile_copies import ThreadCopy
from polyfuse.strategy.cuda.tiles.tile_shape import TileShape
from polyfuse.strategy.match.gemm_problem import Extents
from tests.support.banks import assert_no_waits, waits_in
from tests.support.on_tensor_cores import by_tensor_cores, in_planned_registers, matmul, transposed

H200 = Machine.preset("h200")
MATHS = tuple(PRECISIONS)


NESTS = {
    "odd": (lambda: matmul(79, 41, 70), 41),
    "one step too many": (lambda: matmul(37, 33, 41), 33),
    "fewer steps than an instruction's": (lambda: matmul(33, 5, 34), 5),
    "in stages": (lambda: matmul(68, 84, 36), 84),
    "several warps": (lambda: matmul(131, 20, 260), 20),
    "batched": (lambda: matmul(40, 19, 35, (3,)), 19),
    "transposed": (transposed, 44),
}
every_nest = pytest.mark.parametrize("name", NESTS)
every_math = pytest.mark.parametrize("math", MATHS)


@cache
def net_of(name: str, math: Any) -> pf.Executable:
    return by_tensor_cores(NESTS[name][0](), math)


@every_math
@every_nest
def test_in_lock_step_it_is_within_the_bound(name: str, math: Any) -> None:
    net, (make, steps) = net_of(name, math), NESTS[name]
    nest = make()
    assert f"tile_mma_{math}(" in net.program.source
    inputs = cases.draw(nest, np.random.default_rng(5))
    (found,) = outputs = cases.poisoned(nest)
    net(**inputs, out=outputs)
    exact, magnitude = (
        np.asarray(*pf.interpret(nest, {k: f(v) for k, v in inputs.items()}).values())
        for f in (np.copy, np.abs)
    )
    bound = (
        PRECISIONS[math].bound(steps) * magnitude + steps * 2.0**-23 * magnitude
    )  # the oracle's own sums, too
    assert (np.abs(exact - found) <= bound).all()
    assert np.abs(exact - found).max() > 2.0**-3 * PRECISIONS[math].unit, "nothing was rounded"


@pytest.mark.parametrize("math", ["tf32", "bf16"])
@pytest.mark.parametrize("name", ["odd", "in stages", "several warps", "transposed"])
def test_no_access_to_shared_memory_waits_for_a_bank(name: str, math: Any) -> None:
    """As enumerated by the run itself: every address of every warp, copies and factors alike."""
    net = net_of(name, math)
    (launch,) = net.program.launches
    assert_no_waits(net.schedule.source, launch)


@every_math
def test_factors_are_rounded_once_where_they_are_staged(math: Any) -> None:
    net = net_of("several warps", math)
    copies = [s for s in net.schedule.nest.statements if rounds(net.schedule.nest, s) == math]
    assert len(copies) == 2
    assert all(f"copy_rounded_{math}(4, {held}, " in net.program.source for held in ("x_shared", "y_shared"))


@every_math
def test_a_matrix_load_hands_out_rows_as_the_ptx_isa_says(math: Any) -> None:
    """Own rows of 16 steps, read from rows of steps and from lines of eight lanes' elements."""
    a = rounded(math, np.random.default_rng(3).standard_normal((2, 8, 16)))  # own row, lane's g, step
    g, t = np.arange(32) // 4, np.arange(32) % 4
    steps = (t, t + 4) if math == "tf32" else (2 * t, 2 * t + 1, 2 * t + 8, 2 * t + 9)
    layouts = [(MATRICES, a, 16, 128, 1), (TRANSPOSED, a.transpose(2, 0, 1), 16, 8, 16)]
    for how, array, *apart in layouts[: 1 if math == "tf32" else 2]:
        held = rounded_bits(math, array).reshape(-1)
        threads = SimpleNamespace(load=lambda node, at, nbytes, held=held: held[at[0]])
        side = Fragments(threads, ast.Subscript(), np.int64(0), [how, *apart, 0, 0], 2, True, math, t, g)
        for row, found in enumerate(side.at(0, 16)):
            for step, values in zip(steps, found, strict=True):
                assert np.array_equal(values, a[row, g, step])


@every_math
def test_an_instruction_is_a_product_of_matrices(math: str) -> None:
    """A[16, k], B[k, 8] and C[16, 8] handed out to lanes as the PTX ISA says, and put together again."""
    depth = STEPS[math]
    rng = np.random.default_rng(2)
    a, b, c = (rounded(math, rng.standard_normal(s)) for s in ((16, depth), (depth, 8), (16, 8)))
    g, t = np.arange(32) // 4, np.arange(32) % 4
    steps = (t, t + 4) if depth == 8 else (2 * t, 2 * t + 1, 2 * t + 8, 2 * t + 9)
    corners = ((g, 2 * t), (g, 2 * t + 1), (g + 8, 2 * t), (g + 8, 2 * t + 1))
    found = multiplied(
        [[a[row, k] for k in steps] for row in (g, g + 8)],
        [b[k, g] for k in steps],
        [c[at] for at in corners],
    )
    expected = (a.astype(float) @ b + c).astype(np.float32)
    for at, values in zip(corners, found, strict=True):
        assert np.array_equal(expected[at], values)


@every_math
def test_machine_code_is_tensor_cores_in_planned_registers(math: Any) -> None:
    pytest.importorskip("cuda.core")
    nest = matmul(4096, 512, 4096)
    net = pf.compile(nest, target="cuda", machine="a100", device="none", math=math)
    for capability in ((8, 0), (9, 0)):
        cubin = in_planned_registers(net, capability)
        loop = main_loop(cubin)
        products, matrices = (sum(name.startswith(of) for name in loop) for of in ("HMMA", "LDSM"))
        assert products == {"tf32": 8, "bf16": 4, "f16": 4}[math] * matrices > 0, "8 x 16 results a thread"
        # ptxas moves words of tf32 lines side by side, and rounds by four instructions
        assert products >= (0.2 if math == "tf32" else 0.33) * len(loop)
        assert "LDG.E.128" in {name.replace(".CONSTANT", "") for name in loop}
        assert "FFMA" not in loop


def test_ieee_is_the_default_and_what_it_was() -> None:
    nest = cases.dense(64, 64, batch=64)
    plain, said = (
        pf.compile(nest, target="cuda", machine="h200", device="none", **options)
        for options in ({}, {"math": "ieee"})
    )
    assert plain.program.source == said.program.source
    assert "tile_mma" not in plain.program.source


@pytest.mark.parametrize("preset", ["a100", "h100", "h200", "rtx4090"])
def test_a_shape_fits_its_machine_and_is_faster_than_without(preset: str) -> None:
    machine = Machine.preset(preset)
    found = {
        math: mma_tiles(Extents(4096, 4096, 4096, 1), 4, replace(machine, math=math), machine.gpu)
        for math in MATHS
    }
    for math, shapes in found.items():
        assert [s.seconds for s in shapes] == sorted(s.seconds for s in shapes)
        assert f"by tensor cores on {math} factors" in shapes[0].sentences("mac")[0]
        assert shapes[0].registers <= 255
    assert found["bf16"][0].seconds <= found["tf32"][0].seconds


@every_math
def test_every_shape_has_a_layout_in_which_no_access_meets_a_bank_twice(math: Any) -> None:
    for (z, y), (rows, columns), steps in pairs(((1, 8), (4, 16)), ((4, 8), (8, 16)), (16, 64)):
        shape, mma = TileShape(z, y, 4, rows, columns, steps, 4, Mma.axes), Mma(math)
        tile = ThreadblockTile(shape, mma, ThreadCopy())
        for side, way in pairs((tile.left, tile.right), WAYS):
            (by_steps, wide), spread, values = way, tile.layout(side, *way), tile.thread_values(side, *way)
            assert isinstance(spread, SmemLayout)
            if math == "tf32" and not by_steps:
                assert waits_in(spread, tile, side, *way) == 0, (tile, side, way)
                continue
            assert values.vector == (4 if wide else 1)
            stores = Stores(by_steps, values.vector, values.folded)
            assert turns_of(mma.fragments(shape, side), stores, spread) == 0, (tile, side, way)


def test_what_math_cannot_be_is_said() -> None:
    nest = matmul(64, 64, 64)
    with pytest.raises(InvalidMath, match="unknown math 'fp8'; expected one of ieee, tf32, bf16, f16"):
        pf.compile(nest, target="cuda", machine="h200", device="none", math="fp8")  # type: ignore[arg-type]
    with pytest.raises(InvalidMath, match="tensor cores, but the target is cpu: leave it out"):
        pf.compile(nest, target="cpu", math="tf32")
    with pytest.raises(InvalidMath, match=r"microkernel\(…, math='tf32'\)"):
        pf.compile(
            nest, target="cuda", machine="h200", device="none", schedule=pf.Schedule(nest), math="tf32"
        )
    double = cases.dense(64, 64, batch=64, dtype="float64")
    with pytest.raises(InvalidMath, match=r"rounds float32 factors, but nest .* has none"):
        pf.compile(double, target="cuda", machine="h200", device="none", math="tf32")
    small = pf.compile(matmul(8, 8, 8), target="cuda", machine="h200", device="none", math="tf32")
    assert "math='tf32' is not used: no float32 product" in str(small.explain())


def test_products_that_stay_in_float32_are_named() -> None:
    layers = nn.Sequential(nn.Linear(1024, 1024), nn.Linear(1024, 3))
    net = pf.compile(nn.lower(layers, batch=1024), target="cuda", machine="h200", device="none", math="tf32")
    assert "math='tf32' is not used for mac1: float32 as written." in str(net.explain())


def test_the_verb_says_what_it_needs() -> None:
    nest = matmul(64, 64, 64)
    s = pf.Schedule(nest).split("mac0", "i", 4).split("mac0", "j", 8).split("mac0", "k", 16)
    s = s.reorder("mac0", "i", "j", "k", "k_in", "i_in", "j_in")
    with pytest.raises(InvalidSchedule, match="math='fp8', expected one of ieee, tf32, bf16, f16"):
        s.microkernel("mac0", "k_in", math="fp8")  # type: ignore[arg-type]
    done = s.microkernel("mac0", "k_in", math="bf16")
    assert "@ microkernel of bf16 factors  full tiles apart" in str(done)
    assert "microkernel('mac0', 'k_in', math='bf16')" in str(done.steps[-1])
    with pytest.raises(
        InvalidSchedule, match="needs the sums of mac0 in registers, its factors promoted with rounded='bf16'"
    ):
        pf.compile(nest, schedule=done, target="cuda", machine="h200", device="none")
    with pytest.raises(InvalidSchedule, match="with bf16 factors, which only GPUs support"):
        pf.compile(nest, schedule=done, target="cpu")
    odd = (
        pf.Schedule(nest)
        .split("mac0", "i", 3)
        .split("mac0", "j", 8)
        .reorder("mac0", "i", "j", "k", "i_in", "j_in")
    )
    with pytest.raises(
        InvalidSchedule, match="an even number of rows and of columns in each thread, not 3 x 8"
    ):
        odd.microkernel("mac0", "k", math="tf32")
    s = (
        pf.Schedule(cases.dense(64, 64, batch=64, dtype="float64"))
        .split("mac0", "i", 4)
        .split("mac0", "j", 8)
    )
    s = s.reorder("mac0", "i", "j", "k", "i_in", "j_in")
    with pytest.raises(InvalidSchedule, match="rounds factors of float32 sums, and these are float64"):
        s.microkernel("mac0", "k", math="tf32")


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
def test_halves_in_memory_are_copied_four_at_a_time_and_not_converted(half: Any) -> None:
    pytest.importorskip("cuda.core")
    nest = cases.product(2048, 512, 2048, half)
    math: Any = "bf16" if half == "bfloat16" else "f16"
    net = pf.compile(nest, target="cuda", machine="a100", device="none", math=math)
    for held in ("x_shared", "y_shared"):
        assert f"copy_rounded_{math}(4, {held}, " in net.source, (
            "one operation, which keeps halves of its format"
        )
    copies = [line for line in net.source.splitlines() if "_shared" in line]
    assert not [line for line in copies for name in CONVERSIONS if f"{name}(" in line]
    loop = next(filter(None, map(main_loop, build_kernels(net.program, (8, 0)).values())))
    assert "LDG.E.64" in {name.replace(".CONSTANT", "") for name in loop}
    assert not [name for name in loop if name.startswith(("LDG.E.U16", "F2F"))]
    assert sum(name.startswith("HMMA") for name in loop) >= 0.33 * len(loop)
