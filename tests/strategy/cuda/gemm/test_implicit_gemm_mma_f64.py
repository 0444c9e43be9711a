"""Convolutions of float64 numbers on a GPU's tensor cores: the oracle's results, no bank conflict, lean code."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.codegen.cuda.compile.disassembly import main_loop, opcodes
from polyfuse.layouts.smem import SmemLayout
from polyfuse.machine import Machine
from polyfuse.runtime.cuda.runner import build_kernels
from polyfuse.strategy.cuda.tiles.operands import ImplicitGemm
from polyfuse.strategy.cuda.tiles.tile_candidates import fma_convolutions, mma_f64_convolutions
from polyfuse.strategy.match.gemm_problem import Extents
from tests.strategy.cuda.gemm.test_implicit_gemm_mma import by_tensor_cores, convolution, drawn
from tests.support.banks import assert_no_waits, waits_in

CASES: dict[str, dict[str, Any]] = {
    "padded": {"image": (2, 19, 9, 39), "filters": 40, "padding": 1},
    "channels last": {
        "image": (2, 9, 39, 19),
        "filters": 40,
        "layout": "NHWC",
        "padding": ((2, 0), (0, 3)),
    },
    "strides and dilation": {"image": (1, 20, 13, 71), "filters": 36, "stride": 2, "dilation": (1, 2)},
    "1 x 1, filters one by one": {"image": (2, 18, 6, 40), "filters": 33, "window": (1, 1)},
}
every_case = pytest.mark.parametrize("name", CASES)


@cache
def net_of(name: str) -> pf.Executable:
    schedule = by_tensor_cores(convolution(**CASES[name], dtype="float64"), "ieee")
    assert "factors" in str(schedule)
    return pf.compile(schedule.source, schedule=schedule, target="cuda", machine="h200", device="lockstep")


@every_case
def test_in_lock_step_it_is_the_oracle(name: str) -> None:
    net = net_of(name)
    assert "tile_mma_f64(" in net.program.source
    x = drawn(5, "normal", CASES[name]["image"], "float64")
    exact = pf.interpret(net.schedule.source, {"x": x})["out"]
    np.testing.assert_allclose(net(x=x), exact, rtol=0, atol=2.0**-44 * abs(exact).max())


@every_case
def test_no_access_to_shared_memory_waits_for_a_bank(name: str) -> None:
    net = net_of(name)
    assert_no_waits(net.schedule.nest, net.program.launches[-1])


def test_tiles_are_asked_for_ahead_and_zeros_with_them() -> None:
    source = net_of("padded").source
    assert "pad_ahead(1, x_shared, " in source
    assert "copy_ahead(2, w_panels_shared, " in source


@pytest.mark.parametrize("left", [False, True], ids=["channels first", "channels last"])
def test_the_model_expects_them_to_be_faster_and_none_of_them_waits_for_a_bank(left: bool) -> None:
    machine = Machine.preset("h200")
    extents = Extents(*((56, 64) if left else (64, 56)), 64, 32, wide=False, windows=9, deep=56)
    operands = ImplicitGemm(pixels_left=left, padded=True)
    found = mma_f64_convolutions(extents, operands, 8, machine, machine.gpu)
    assert found[0].seconds < fma_convolutions(extents, operands, 8, machine, machine.gpu)[0].seconds
    for tile in found:
        assert tile.registers <= 255
        for side in (tile.left, tile.right):
            by_steps, wide = operands.is_pixels(side) and left, not operands.is_pixels(side)
            spread = tile.layout(side, by_steps, wide)
            assert isinstance(spread, SmemLayout)
            assert waits_in(spread, tile, side, by_steps, wide) == 0, (tile, side)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_machine_code_is_tensor_cores_in_planned_registers(layout: str) -> None:
    """And the model's own choice."""
    pytest.importorskip("cuda.core")
    image = (32, 64, 56, 56) if layout == "NCHW" else (32, 56, 56, 64)
    nest = convolution(image, 64, layout=layout, padding=1, dtype="float64")
    net = pf.compile(nest, target="cuda", machine="h200", device="none")
    assert "by tensor cores on float64 numbers as they are" in str(net.explain())
    code = net.program.codes[-1]
    assert code.registers is not None
    for capability in ((8, 0), (9, 0)):
        (cubin,) = build_kernels(
            replace(net.program, launches=net.program.launches[-1:]), capability
        ).values()
        assert cubin.registers <= -(-code.registers // 8) * 8, "a GPU gives them in eights"
        assert (cubin.spill_stores, cubin.spill_loads) == (0, 0)
        assert not [name for name in opcodes(cubin) if name.startswith(("LDL", "STL", "DFMA"))]
        loop = [name for name in main_loop(cubin) if name != "NOP"]
        assert sum(name.startswith("DMMA") for name in loop) >= 0.3 * len(loop)
