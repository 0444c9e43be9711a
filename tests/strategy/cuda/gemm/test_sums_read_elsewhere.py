"""Products whose sums another kernel reads: on a GPU they are made in registers and stored once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.checks import cuda_cases as cases
from polyfuse.codegen.cuda.compile.disassembly import main_loop, opcodes
from polyfuse.rewrite import accumulate
from polyfuse.runtime.cuda.runner import build_kernels
from polyfuse.schedule import Schedule


def matmul(rows: int, steps: int, columns: int) -> pf.Nest:
    """x @ w."""
    return nn.lower(nn.matmul(nn.input("x", (rows, steps)), nn.input("w", (steps, columns))))


def chain(rows: int, steps: int, columns: int, last: int, dtype: Any = "float32") -> pf.Nest:
    """(x @ w) @ v."""
    x, w = nn.input("x", (rows, steps), dtype), nn.input("w", (steps, columns), dtype)
    return nn.lower(nn.matmul(nn.matmul(x, w), nn.input("v", (columns, last), dtype)))


def softmax(rows: int, steps: int, columns: int) -> pf.Nest:
    """softmax(x @ w)."""
    x, w = nn.input("x", (rows, steps)), nn.input("w", (steps, columns))
    return nn.lower(nn.softmax(nn.matmul(x, w)))


def read_twice(size: int) -> pf.Nest:
    """relu(y) and y @ v of one y = x @ w: the product's own kernel reads what it stores, too."""
    x, w, v = (nn.input(name, (size, size)) for name in "xwv")
    y = nn.matmul(x, w)
    return nn.lower((nn.relu(y), nn.matmul(y, v)))


def lstm(units: int, layers: int, steps: int, rows: int) -> pf.Nest:
    """A recurrent layer whose input's product is one for all steps."""
    return nn.lower(nn.LSTM(units, units, layers), batch=(steps, rows))


def compiled(nest: pf.Nest, device: Any = "none", **options: Any) -> pf.Executable:
    return pf.compile(nest, target="cuda", machine="h200", device=device, **options)


PLANS: dict[str, tuple[Callable[[], pf.Nest], dict[str, Any], int, str]] = {
    "chain": (lambda: chain(384, 384, 384, 384), {}, 2, "tile_fma("),
    "chain, odd": (lambda: chain(255, 193, 517, 129), {}, 2, "tile_fma("),
    "chain, tf32": (lambda: chain(1024, 1024, 1024, 1024), {"math": "tf32"}, 2, "tile_wgmma_tf32("),
    "chain, bf16": (lambda: chain(1024, 1024, 1024, 1024), {"math": "bf16"}, 2, "tile_wgmma_bf16("),
    "chain, float64": (lambda: chain(512, 512, 512, 512, "float64"), {}, 2, "tile_mma_f64("),
    "softmax": (lambda: softmax(1024, 1024, 1024), {}, 1, "tile_fma("),
    "Strassen": (lambda: matmul(1024, 1024, 1024), {"fast_matmul": "strassen"}, 1, "tile_fma("),
    "Strassen, bf16": (
        lambda: matmul(2048, 2048, 2048),
        {"fast_matmul": "strassen", "math": "bf16"},
        1,
        "tile_wgmma_bf16(",
    ),
    "Strassen, a network": (
        lambda: cases.dense(1024, 1024, 1024, batch=256),
        {"fast_matmul": "strassen"},
        2,
        "tile_fma(",
    ),
    "LSTM 2 x 128": (lambda: lstm(128, 2, 50, 50), {}, 4, "tile_fma("),
    "read twice": (lambda: read_twice(512), {}, 2, "tile_fma("),
    "unfused": (lambda: cases.dense(256, 256, 256, batch=256), {"fuse": False}, 2, "tile_fma("),
    "convolution, unfollowed": (
        lambda: nn.lower(nn.Conv2d(64, 64, 3, padding=1, bias=False), batch=8, features=(64, 56, 56)),
        {},
        1,
        "tile_fma(",
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_every_product_has_a_tile_in_registers(name: str) -> None:
    make, options, count, operation = PLANS[name]
    net = compiled(make(), **options)
    assert sum(operation in launch.source for launch in net.kernels) == count
    assert "no tile in registers" not in net.source
    assert not any(launch.untiled for launch in net.kernels)
    assert "no tile of results in registers" not in net.explain()
    assert net.explain().count("in register tiles: ") == count


SMALL: dict[str, tuple[Callable[[], pf.Nest], dict[str, Any], int, str]] = {
    "chain": (lambda: chain(129, 65, 257, 70), {}, 2, "tile_fma("),
    "chain, float64": (lambda: chain(96, 96, 160, 160, "float64"), {}, 2, "tile_mma_f64("),
    "softmax": (lambda: softmax(70, 40, 400), {}, 1, "tile_fma("),
    "Strassen": (lambda: matmul(96, 96, 96), {"fast_matmul": "strassen"}, 1, "tile_fma("),
    "Strassen, a network": (
        lambda: cases.dense(96, 96, 96, batch=64),
        {"fast_matmul": "strassen"},
        2,
        "tile_fma(",
    ),
    "LSTM": (lambda: lstm(32, 2, 8, 8), {}, 4, "tile_fma("),
    "read twice": (lambda: read_twice(320), {}, 2, "tile_fma("),
    "unfused": (lambda: cases.dense(66, 96, 35, batch=64), {"fuse": False}, 2, "tile_fma("),
    "convolution": (
        lambda: nn.lower(nn.Conv2d(16, 32, 3, padding=1, bias=False), batch=2, features=(16, 20, 20)),
        {},
        1,
        "tile_fma(",
    ),
}


@pytest.mark.parametrize("name", SMALL)
def test_in_lock_step_it_is_what_the_oracle_says(name: str) -> None:
    make, options, count, operation = SMALL[name]
    nest = make()
    net = compiled(nest, "lockstep", **options)
    assert sum(operation in launch.source for launch in net.kernels) == count
    inputs, outputs = cases.draw(nest, np.random.default_rng(2)), cases.poisoned(nest)
    net(**inputs, out=outputs)
    found = {t.name: array for t, array in zip(nest.with_role("output"), outputs, strict=True)}
    assert cases.error(nest, inputs, found) <= cases.TOLERANCE


@pytest.mark.parametrize(
    ("size", "options", "operation"),
    [
        (96, {"fast_matmul": "strassen"}, "tile_fma("),
        (187, {"fast_matmul": "strassen"}, "tile_fma("),
        (128, {"fast_matmul": "strassen", "math": "bf16"}, "tile_mma_bf16("),
        (128, {"fast_matmul": "strassen", "math": "tf32"}, "tile_mma_tf32("),
    ],
    ids=["96", "187", "bf16", "tf32"],
)
def test_strassen_is_exact_on_integers(size: int, options: dict[str, Any], operation: str) -> None:
    """Sums of two small integers are bfloat16 numbers, and sums of their products float32 ones."""
    net = compiled(matmul(size, size, size), "lockstep", **options)
    assert operation in net.source
    random = np.random.default_rng(3)
    x, w = (random.integers(-9, 10, (size, size)).astype(np.float32) for _ in "xw")
    assert np.array_equal(net(x, w), x @ w)


def test_tensor_cores_sum_up_what_rows_are_normalised_of() -> None:
    net = compiled(softmax(70, 40, 400), "lockstep", math="bf16")
    assert "tile_mma_bf16(" in net.source
    random = np.random.default_rng(4)
    x, w = (random.integers(-2, 3, shape).astype(np.float32) for shape in ((70, 40), (40, 400)))
    powers = np.exp(x @ w - (x @ w).max(1, keepdims=True))
    assert np.allclose(net(x, w), powers / powers.sum(1, keepdims=True), rtol=1e-5)


MACHINE_CODE: dict[str, tuple[Callable[[], pf.Nest], dict[str, Any], float]] = {
    "chain": (lambda: chain(1024, 1024, 1024, 1024), {}, 0.87),
    "softmax, odd": (lambda: softmax(1000, 514, 1023), {}, 0.78),
    "Strassen": (lambda: matmul(1024, 1024, 1024), {"fast_matmul": "strassen"}, 0.88),
    "Strassen, odd": (lambda: matmul(1030, 2002, 1023), {"fast_matmul": "strassen"}, 0.78),
    "LSTM, blocks cut short": (lambda: lstm(512, 1, 50, 50), {}, 0.75),
}


@pytest.mark.parametrize("name", MACHINE_CODE)
def test_machine_code_is_multiply_adds_in_planned_registers(name: str) -> None:
    pytest.importorskip("cuda.core")
    make, options, share = MACHINE_CODE[name]
    net = compiled(make(), **options)
    for capability in ((8, 0), (9, 0)):
        cubins = build_kernels(net.program, capability)
        tiles = [code for code in net.program.codes if "rows=8, columns=8, most=" in code.source]
        assert tiles
        for code in tiles:
            cubin, every, loop = cubins[code.name], opcodes(cubins[code.name]), main_loop(cubins[code.name])
            assert code.registers is not None
            assert cubin.registers <= code.registers
            assert (cubin.spill_stores, cubin.spill_loads) == (0, 0)
            assert not [found for found in every if found.startswith(("LDL", "STL"))]
            assert "LDS.128" in loop
            assert loop.count("FFMA") >= share * len(loop)


def test_what_later_loops_write_again_is_stored_before_them() -> None:
    """An LSTM's input product is summed up apart, bit by bit alike; each step adds to what is stored."""
    nest = lstm(6, 1, 4, 3)
    assert accumulate(nest, "z0") is None, "what writes it last stands in the readers' loop"
    made = accumulate(nest, "z0", after="mac0")
    assert made is not None
    assert made.statement("mac0").write.tensor == "z0_sum"
    assert made.statement("step0").write.tensor == "z0"
    inputs = cases.draw(nest, np.random.default_rng(6))
    before, after = (pf.interpret(each, inputs) for each in (nest, made))
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_strassen_is_reported() -> None:
    """The product's seconds are those of the tile that it has, and nothing is said to lack one."""
    net = compiled(matmul(1024, 1024, 1024), fast_matmul="strassen")
    assert "mac0_product sums in mac0_P_sum, which is then stored in mac0_P" in net.explain()
    report = net.report()
    assert report.launches == 4
    assert report.predicted_seconds is not None
    assert 30e-6 < report.predicted_seconds < 90e-6


def test_a_microkernel_without_a_tile_is_reported() -> None:
    """A schedule by hand that keeps the sums in memory runs as plain loops, and the compile says so."""
    nest = matmul(32, 32, 32)
    schedule = Schedule(nest).tile("mac0", i=8, j=8)
    schedule = schedule.bind("mac0", i="block.y", j="block.x").split("mac0", "k", 8)
    schedule = schedule.reorder("mac0", "k", "k_in", "i_in", "j_in").microkernel("mac0", "k_in")
    net = pf.compile(nest, schedule=schedule, target="cuda", machine="h200", device="lockstep")
    assert [launch.untiled for launch in net.kernels if launch.untiled] == [("mac0",)]
    assert "mac0 has no tile of results in registers, though it is in a microkernel" in net.explain()
    x, w = (np.full((32, 32), value, np.float32) for value in (2, 3))
    assert np.array_equal(net(x, w), x @ w)


def test_sums_that_memory_has_to_hold_get_no_tile_and_the_plan_says_why() -> None:
    net = compiled(chain(512, 512, 512, 512), force={"private accumulator after grouping": False})
    assert "not in register tiles: y0 is summed up in memory, where another kernel or the caller sees it" in (
        net.explain()
    )
    assert sum("tile_fma(" in launch.source for launch in net.kernels) == 1
    assert not any(launch.untiled for launch in net.kernels)
