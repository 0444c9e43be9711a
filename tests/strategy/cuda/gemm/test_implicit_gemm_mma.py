"""Convolutions on a GPU's tensor cores: within the bound of the oracle, borders exact, no bank conflict, lean code."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product as pairs
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.analysis.copies import rounds
from polyfuse.analysis.validation import validate
from polyfuse.codegen.cuda.compile.disassembly import main_loop, opcodes
from polyfuse.ir.number_types import relative_step
from polyfuse.ir.precision import PRECISIONS
from polyfuse.layouts.smem import SmemLayout
from polyfuse.machine import Machine
from polyfuse.runtime.cuda.runner import build_kernels
from polyfuse.strategy.cuda.tiles.mma import Fma, Mma
from polyfuse.strategy.cuda.tiles.operands import ImplicitGemm
from polyfuse.strategy.cuda.tiles.smem_layouts import Stores, turns_of
from polyfuse.strategy.cuda.tiles.tile import ThreadblockTile
from polyfuse.strategy.cuda.tiles.tile_candidates import (
    every_mma_convolution,
    fma_convolutions,
    is_laid_out,
    mma_convolutions,
)
from polyfuse.strategy.match.gemm_problem import Extents
from polyfuse.strategy.pipeline import plan_for
from tests.support.banks import assert_no_waits, waits_in
from tests.support.on_tensor_cores import Only

H200 = Machine.preset("h200")
MATHS = tuple(PRECISIONS)

KINDS: tuple[tuple[Any, Any], ...] = (
    *((math, "float32") for math in MATHS),
    ("bf16", "bfloat16"),
    ("f16", "float16"),
    ("tf32", "float16"),
)
"""What factors are rounded to, and what they are in memory; halves round to nothing here."""


def drawn(seed: int, how: str, shape: tuple[int, ...], dtype: str = "float32") -> Any:
    """Normal numbers, their absolute values, or whole numbers, which every format holds."""
    rng = np.random.default_rng(seed)
    normal, whole = rng.standard_normal(shape), rng.integers(-3, 4, shape)
    return {"normal": normal, "absolute": abs(normal), "whole": whole}[how].astype(dtype)


def convolution(
    image: tuple[int, ...],
    filters: int,
    window: tuple[int, int] = (3, 3),
    layout: str = "NCHW",
    weights: str = "normal",
    residual: bool = False,
    dtype: Any = "float32",
    **options: Any,
) -> pf.Nest:
    """max(conv(x) + b, 0); with `residual` max(conv(x) + b + x, 0)."""
    channels = image[-1 if layout == "NHWC" else 1]
    w, b = drawn(1, weights, (filters, channels, *window), dtype), drawn(2, weights, (filters,), dtype)
    x = nn.input("x", image, dtype)
    y = nn.conv2d(x, w, b, layout=layout, **options)
    return nn.lower(nn.relu(y + x if residual else y))


CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "padded": (19 * 9, {"image": (2, 19, 9, 39), "filters": 40, "padding": 1}),
    "channels last": (
        19 * 9,
        {"image": (2, 9, 39, 19), "filters": 40, "layout": "NHWC", "padding": ((2, 0), (0, 3))},
    ),
    "strides and dilation": (
        20 * 9,
        {"image": (1, 20, 13, 71), "filters": 36, "stride": 2, "dilation": (1, 2)},
    ),
    "channels last, strides and dilation": (
        20 * 9,
        {"image": (1, 13, 71, 20), "filters": 36, "layout": "NHWC", "stride": (2, 2), "dilation": (1, 2)},
    ),
    "channels last, in vectors": (
        20 * 9,
        {"image": (2, 9, 39, 20), "filters": 40, "layout": "NHWC", "padding": 1},
    ),
    "1 x 1 in vectors": (18, {"image": (2, 18, 6, 40), "filters": 36, "window": (1, 1)}),
    "1 x 1, filters one by one": (18, {"image": (2, 18, 6, 40), "filters": 33, "window": (1, 1)}),
    "fewer channels than steps": (
        3 * 9,
        {"image": (1, 6, 35, 3), "filters": 34, "padding": 1, "layout": "NHWC"},
    ),
    "followed by a residual": (
        33 * 9,
        {"image": (1, 33, 5, 35), "filters": 33, "padding": 1, "residual": True},
    ),
}
every_math = pytest.mark.parametrize("math", MATHS)


def by_tensor_cores(nest: pf.Nest, math: Any) -> pf.Schedule:
    """The plan with tensor cores, which small sizes are too small for in the model's eyes."""
    choose = Only(lambda tile: not isinstance(tile.mma, Fma))
    return plan_for(nest, replace(H200, math=math), choose=choose).schedule


FIRST = (3 * 9, {"image": (1, 3, 6, 35), "filters": 34, "padding": 1})
"""Channels first and fewer of them than steps: no fours of lines, which tf32 numbers lie in."""


@cache
def net_of(name: str, math: Any, dtype: str = "float32") -> pf.Executable:
    schedule = by_tensor_cores(convolution(**CASES[name][1], dtype=dtype), math)
    assert "factors" in str(schedule)
    return pf.compile(schedule.source, schedule=schedule, target="cuda", machine="h200", device="lockstep")


ROUNDED = [(name, math, "float32") for name in CASES for math in MATHS]
KEPT = [
    (name, *kind)
    for name in ("padded", "channels last, in vectors")
    for kind in KINDS
    if kind[1] != "float32"
]
"""Halves of the format round nothing: two cases tell how they are copied, with channels first and last."""


@pytest.mark.parametrize(("name", "math", "dtype"), [*ROUNDED, *KEPT])
def test_in_lock_step_it_is_what_the_oracle_says(name: str, math: Any, dtype: str) -> None:
    # one test, because compiling takes most of its time
    net = net_of(name, math, dtype)
    check_whole_numbers(net, name, dtype)
    check_bound(net, math, name, dtype)
    if (math, dtype) != ("f16", "float32"):  # it lies in shared memory as bf16 does
        assert_no_waits(net.schedule.nest, net.program.launches[-1])  # copies and factors alike


@pytest.mark.parametrize("math", ["bf16", "f16"])
def test_halves_of_few_channels_too(math: Any) -> None:
    schedule = by_tensor_cores(convolution(**FIRST[1]), math)
    net = pf.compile(schedule.source, schedule=schedule, target="cuda", machine="h200", device="lockstep")
    check_bound(net, math, "first")
    extents = Extents(34, 35, 3, 1, wide=False, windows=9, deep=6)
    assert H200.gpu is not None
    operands = ImplicitGemm(padded=True)
    assert not mma_convolutions(extents, operands, 4, replace(H200, math="tf32"), H200.gpu)


@cache
def oracle(name: str, how: str, dtype: str) -> Any:
    """What an image and weights drawn in one way give, whatever products round to."""
    options = CASES.get(name, FIRST)[1]
    x = drawn(5, "whole" if how == "whole" else "normal", options["image"], dtype)
    x = abs(x) if how == "absolute" else x
    return pf.interpret(convolution(**options, weights=how, dtype=dtype), {"x": x})["out"]


def check_bound(net: pf.Executable, math: Any, name: str, dtype: str = "float32") -> None:
    """Halves are rounded behind the sums: by a step where two sums lie on both sides of a tie, then by further ones."""
    assert f"tile_mma_{math}(" in net.program.source
    steps, options = CASES.get(name, FIRST)
    x = drawn(5, "normal", options["image"], dtype)
    exact, magnitude = (oracle(name, how, dtype).astype("float64") for how in ("normal", "absolute"))
    error = abs(exact - net(x=x).astype("float64"))
    bound = PRECISIONS[math].bound(steps) + (steps + 2) * 2.0**-23  # the oracle's own sums, too
    if dtype == "float32":
        assert (error <= bound * magnitude).all()
        assert error.max() > 2.0**-3 * PRECISIONS[math].unit, "nothing was rounded"
    else:
        u = PRECISIONS[math].unit
        adding = bound - 2 * u - u * u
        behind = relative_step(dtype) * (abs(exact) + 2 * options.get("residual", False) * magnitude)
        assert (error <= adding * magnitude + 2 * behind).all()
        assert (error == 0).mean() > 0.95, "a factor was rounded"


def check_whole_numbers(net: pf.Executable, name: str, dtype: str) -> None:
    """The border's zeros are zeros, and no product is another one's; weights are data, and the code is for any."""
    options = CASES[name][1]
    normal = net.constants
    net.replace_constants(convolution(**options, weights="whole", dtype=dtype).constants)
    try:
        x = drawn(5, "whole", options["image"], dtype)
        np.testing.assert_array_equal(net(x=x), oracle(name, "whole", dtype))
    finally:
        net.replace_constants(normal)


@pytest.mark.parametrize("across", [40, 20])
@pytest.mark.parametrize("math", ["tf32", "bf16"])
def test_results_may_lie_in_planes_and_the_image_by_channels(math: Any, across: int) -> None:
    """All lanes need pixels then: rows of the image that a warp's columns do not fill have no shape, and no error."""
    x = nn.transpose(nn.transpose(nn.input("x", (2, 8, across, 32)), 2, 3), 1, 2)
    y = nn.conv2d(x, drawn(1, "whole", (64, 32, 3, 3)), drawn(2, "whole", (64,)), padding=1)
    nest = nn.lower(nn.relu(y))
    if across == 20:
        assert "factors" not in str(by_tensor_cores(nest, math))
        return
    schedule = by_tensor_cores(nest, math)
    net = pf.compile(schedule.source, schedule=schedule, target="cuda", machine="h200", device="lockstep")
    pixels = drawn(5, "whole", (2, 8, across, 32))
    np.testing.assert_array_equal(net(x=pixels), pf.interpret(nest, {"x": pixels})["out"])


@every_math
def test_every_shape_has_a_layout_in_which_no_access_meets_a_bank_twice(math: Any) -> None:
    for left, wide, channels in pairs((False, True), (False, True), (False, True)):
        operands = ImplicitGemm(left, wide=wide, by_channels=channels)
        every = (t for t in every_mma_convolution(math, operands) if t.shape.threads_z == 2)
        tiles = {t for t in every if is_laid_out(t.shape, math, operands)}
        assert {t.shape.columns for t in tiles} >= {8, 16}
        check_layouts(Mma(math), operands, tiles)


def check_layouts(mma: Mma, operands: ImplicitGemm, tiles: set[ThreadblockTile]) -> None:
    for tile in tiles:
        for side, wide in pairs((tile.left, tile.right), (False, True)):
            if operands.is_pixels(side) and wide is not operands.wide:
                continue
            by_steps = operands.is_pixels(side) and operands.by_channels
            spread, values = tile.layout(side, by_steps, wide), tile.thread_values(side, by_steps, wide)
            assert isinstance(spread, SmemLayout)
            if mma.math == "tf32" and not by_steps:
                assert waits_in(spread, tile, side, by_steps, wide) == 0, (tile, side)
                continue
            assert values.vector == (4 if wide else 1)
            stores = Stores(by_steps, values.vector, values.folded)
            assert turns_of(mma.fragments(tile.shape, side), stores, spread) == 0, (tile, side)


def test_factors_are_rounded_once_and_what_adds_zeros_is_validated() -> None:
    schedule = net_of("padded", "bf16").schedule
    copies = [s for s in schedule.nest.statements if rounds(schedule.nest, s) == "bf16"]
    assert {s.name for s in copies} >= {"load_x", "load_w0_panels"}
    assert schedule.nest.statement("clear_x").body.is_zero
    validate(schedule.source, schedule.nest, schedule.tree)
    source = net_of("padded", "bf16").source
    assert "pad_rounded_bf16(1, x_shared, " in source
    assert "copy_rounded_bf16(4, w_panels_shared, " in source
    assert "pad_rounded_bf16(4, x_shared, " in net_of("channels last, in vectors", "bf16").source
    assert "copy_rounded_bf16(4, x_shared, " in net_of("1 x 1 in vectors", "bf16").source


def test_halves_of_the_format_stay_as_they_are_from_their_layout_to_the_lanes() -> None:
    net = net_of("channels last, in vectors", "bf16", "bfloat16")
    nest = net.schedule.nest
    held = {nest.tensor(name).dtype for name in ("x", "x_shared", "w0", "w0_panels", "w0_panels_shared")}
    assert held == {"bfloat16"}
    assert not [s for s in nest.statements if s.name.startswith(("load", "pack")) and rounds(nest, s)]
    assert "pad_rounded_bf16(4, x_shared, " in net.source
    assert "copy_rounded_bf16(4, w_panels_shared, " in net.source
    widened = net_of("channels last, in vectors", "tf32", "float16")
    assert "pad_widened_f16(4, x_shared, " in widened.source
    assert widened.schedule.nest.tensor("x_shared").dtype == "float32"


IMAGES = {
    "channels first": {"image": (32, 64, 56, 56), "filters": 64, "padding": 1},
    "channels last": {"image": (32, 56, 56, 64), "filters": 64, "padding": 1, "layout": "NHWC"},
}


@pytest.mark.parametrize("layout", IMAGES)
@pytest.mark.parametrize(("math", "dtype"), KINDS[:-1])
def test_machine_code_is_tensor_cores_in_planned_registers(layout: str, math: Any, dtype: str) -> None:
    """And the model's own choice."""
    pytest.importorskip("cuda.core")
    net = pf.compile(
        convolution(**IMAGES[layout], dtype=dtype),
        target="cuda",
        machine="a100",
        device="none",
        math=math,
    )
    assert f"by tensor cores on {math} factors" in str(net.explain())
    assert ("which are copied as they are" in str(net.explain())) is (dtype != "float32")
    code = net.program.codes[-1]
    assert code.registers is not None
    alone = replace(net.program, launches=net.program.launches[-1:])
    for capability in ((8, 0), (9, 0)):
        (cubin,) = build_kernels(alone, capability).values()
        assert cubin.registers <= code.registers
        assert (cubin.spill_stores, cubin.spill_loads) == (0, 0)
        assert not [name for name in opcodes(cubin) if name.startswith(("LDL", "STL", "FFMA"))]
        loop = main_loop(cubin)
        products, matrices = (sum(name.startswith(of) for name in loop) for of in ("HMMA", "LDSM"))
        assert products >= 32
        asked = {name for name in opcodes(cubin) if name.startswith("LDG")}
        single = {"LDG.E", "LDG.E.CONSTANT", "LDG.E.U16", "LDG.E.U16.CONSTANT"}
        assert layout == "channels first" or not asked & single, "pixels one by one"
        if math != "tf32":
            assert products >= 2 * matrices > 0


@pytest.mark.parametrize("preset", ["a100", "h200"])
@pytest.mark.parametrize("left", [False, True], ids=["channels first", "channels last"])
def test_the_model_expects_large_ones_to_be_faster(preset: str, left: bool) -> None:
    machine = Machine.preset(preset)
    extents = Extents(*((56, 64) if left else (64, 56)), 64, 32, wide=False, windows=9, deep=56)
    operands = ImplicitGemm(pixels_left=left, padded=True)
    plain = fma_convolutions(extents, operands, 4, machine, machine.gpu)
    assert not mma_convolutions(extents, operands, 4, machine, machine.gpu), "nothing is rounded unasked"
    for math in MATHS:
        found = mma_convolutions(extents, operands, 4, replace(machine, math=math), machine.gpu)
        assert [s.seconds for s in found] == sorted(s.seconds for s in found)
        assert f"by tensor cores on {math} factors" in found[0].sentences("mac")[0]
        assert all(s.registers <= 255 for s in found)
        if math != "tf32":
            assert found[0].seconds < plain[0].seconds


@pytest.mark.parametrize("preset", ["a100", "h200"])
@pytest.mark.parametrize("left", [False, True], ids=["channels first", "channels last"])
def test_halves_are_half_of_the_bytes(preset: str, left: bool) -> None:
    machine = replace(Machine.preset(preset), math="bf16")
    extents = Extents(*((56, 64) if left else (64, 56)), 64, 32, wide=False, windows=9, deep=56)
    wide, narrow = (
        mma_convolutions(extents, ImplicitGemm(left, True, halves, left, left), 4, machine, machine.gpu)[0]
        for halves in (False, True)
    )
    assert narrow.seconds < 0.7 * wide.seconds
    kept = replace(wide, operands=replace(wide.operands, halves=True))
    assert 2 * kept.staged_bytes == wide.staged_bytes
    assert kept.copies == wide.copies


def test_halves_of_another_format_stay_in_float32_and_the_report_says_so() -> None:
    nest = convolution(**IMAGES["channels first"], dtype="float16")
    net = pf.compile(nest, target="cuda", machine="h200", device="none", math="bf16")
    assert "tile_mma" not in net.source
    assert "tile_fma(" in net.source
    assert "math='bf16' is not used" in str(net.explain())


def test_small_ones_stay_in_float32_and_those_that_the_caller_sees_do_not() -> None:
    small = convolution((1, 4, 5, 6), 3, padding=1)
    net = pf.compile(small, target="cuda", machine="h200", device="none", math="bf16")
    assert "math='bf16' is not used" in str(net.explain())
    seen = nn.lower(nn.conv2d(nn.input("x", (32, 64, 56, 56)), drawn(1, "normal", (64, 64, 3, 3)), padding=1))
    net = pf.compile(seen, target="cuda", machine="h200", device="none", math="bf16")
    assert "tile_mma_bf16(" in net.source
    assert "is not used" not in str(net.explain())
