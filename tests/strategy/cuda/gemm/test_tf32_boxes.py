"""Products of tf32 numbers that lie rounded in memory: in boxes, by threads, in clusters; and as machine code."""

# ruff: noqa: F821

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.checks import cuda_cases as cases
from polyfuse.checks.cuda_cases import TOLERANCE
from polyfuse.codegen.cuda.compile.disassembly import main_loop
from polyfuse.machine import Machine
from polyfuse.rewrite import expand
from polyfuse.strategy import plan_for
from polyfuse.strategy.cuda.tiles.tile import ThreadblockTile
from polyfuse.strategy.remarks import Reason
from polyfuse.strategy.rewrites.preround_operands import rounded_first
from tests.support.on_tensor_cores import groups_of, in_planned_registers, kind_of, schedule_with

H200 = replace(Machine.preset("h200"), math="tf32")


def product(rows: int, steps: int, columns: int) -> pf.Nest:
    """x.T @ y, of which no neighbours are steps, so that copies are in kernels of their own at these sizes too."""

    @pf.nest
    def turned(x: f32[K, M], y: f32[K, N], z: f32[M, N]):
        for i in range(M):
            for j in range(N):
                s = 0
                for k in range(K):
                    s += x[k, i] * y[k, j]
                z[i, j] = s

    return expand(turned.with_sizes({"M": rows, "K": steps, "N": columns})).nest


def rounded(rows: int, steps: int, columns: int) -> pf.Nest:
    """The same with factors that are rounded first, in rows of steps."""
    made = rounded_first(product(rows, steps, columns), H200)
    assert made is not None
    assert [line.split(" reads ")[1] for line in made.said] == [
        f"{name} through {name}_narrow, rounded to tf32, with axes (1, 0) of it as its own" for name in "xy"
    ]
    return made.nest


@cache
def net_of(kind: str, tile: tuple[int, ...], sides: tuple[int, int, int], device: Any) -> pf.Executable:
    """Warpgroups down and across, a thread's rows and columns, steps, stages."""

    def wanted(t: ThreadblockTile) -> bool:
        sizes = (t.shape.rows, t.shape.columns, t.shape.steps, t.stages)
        return kind_of(t) == kind and (*groups_of(t), *sizes) == tile

    schedule = schedule_with(rounded(*sides), "tf32", wanted)
    return pf.compile(schedule.source, schedule=schedule, target="cuda", machine="h200", device=device)


KINDS = {
    "boxes": ("boxed", (1, 1, 2, 16, 32, 2)),
    "a warp that only copies": ("produced", (1, 1, 2, 16, 32, 4)),
    "two warpgroups": ("produced", (2, 1, 2, 16, 32, 2)),
    "clusters": ("clustered", (1, 1, 2, 16, 32, 2)),
    "threads": ("kept", (1, 1, 2, 16, 32, 2)),
    "threads, 64 steps": ("kept", (1, 1, 4, 16, 64, 2)),
}


@pytest.mark.parametrize("name", KINDS)
def test_in_lock_step_it_is_the_product_of_rounded_factors(name: str) -> None:
    """Numbers with 24 digits: what is not rounded, or rounded otherwise, is off by far more than the tolerance."""
    sides = (128, 128, 64)
    net = net_of(*KINDS[name], sides, "lockstep")
    nest = product(*sides)
    inputs = cases.draw(nest, np.random.default_rng(4))
    z = np.full(sides[::2], np.nan, np.float32)
    net(**{**inputs, "z": z})
    assert cases.error(nest, inputs, {"z": z}, "tf32") <= TOLERANCE
    x, y = (np.round(inputs[name] * 4) / 4 for name in "xy")  # sums of few digits are exact
    net(x, y, z)
    np.testing.assert_array_equal(z, x.T @ y)


@pytest.mark.parametrize("tile", [(2, 1, 2, 64, 32, 4), (1, 2, 2, 32, 32, 2)])
def test_machine_code_multiplies_what_others_copy(tile: tuple[int, ...]) -> None:
    pytest.importorskip("cuda.core")
    net = net_of("produced", tile, (2048, 1024, 2048), "none")
    cubin = in_planned_registers(net, (9, 0))
    assert cubin.registers <= 168, "nine warps"
    loop = main_loop(cubin)
    count = loop.count(f"HGMMA.64x{4 * tile[3]}x8.F32.TF32")
    assert count > 0 == count % 4, "tiles of 32 steps, several in a pass"
    others = ("LDG", "STS", "LDGSTS", "FENCE", "UTMALDG", "BAR", "LDS", "F2FP")
    assert not [op for op in loop if op.startswith(others)], "numbers come rounded, by another warp"


def test_the_model_takes_them_for_large_products_alone() -> None:
    nest = nn.lower(nn.input("x", (4096, 4096)) @ nn.input("w", (4096, 4096)))
    plan = plan_for(nest, H200)
    taken = [line for line in plan.notes if "rounded to tf32" in line]
    assert [line.split(": ")[0] for line in taken] == [
        "mac0 reads x through x_narrow, rounded to tf32",
        "mac0 reads w through w_narrow, rounded to tf32, with axes (1, 0) of it as its own",
    ]
    assert "of a warp that only copies" in str(plan)
    small = plan_for(nn.lower(nn.input("x", (256, 256)) @ nn.input("w", (256, 256))), H200)
    assert len(small.remarks) == 2
    assert all(each.pass_ == "preround operands" and each.reason is Reason.NO_TILES for each in small.remarks)


def test_a_factor_in_two_orders_is_not_rounded_first() -> None:
    """x @ x: its steps are neighbours in the left factor and rows in the right one."""
    x = nn.input("x", (256, 256))
    assert rounded_first(nn.lower(x @ x), H200) is None
