"""Products with few results and many steps in parts: when, how many, and machine code of tiles in registers."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.checks import cuda_cases as cases
from polyfuse.machine import Machine
from polyfuse.rewrite import accumulate, split_reduction
from polyfuse.runtime.cuda.runner import build_kernels
from polyfuse.strategy.pipeline import plan_for
from polyfuse.strategy.remarks import Reason
from polyfuse.strategy.rewrites.split_k import in_parts

H200 = Machine.preset("h200")


def test_a_product_is_split_where_its_tiles_leave_the_machine_idle() -> None:
    made = in_parts(cases.dense(8192, 128, batch=128), H200)
    assert made is not None
    assert made.products == ("part_mac0",)
    assert "mac0 combines" in made.remarks[0].text
    assert "in one piece" in made.remarks[0].text
    for sizes, batch in (((1024, 1024), 1024), ((512, 512), 256), ((4096, 64), 2)):
        assert in_parts(cases.dense(*sizes, batch=batch), H200) is None


def test_a_part_is_tiles_in_planned_registers() -> None:
    pytest.importorskip("cuda.core")
    net = pf.compile(cases.dense(8192, 128, batch=128), target="cuda", machine="h200", device="none")
    parts, total = net.program.codes
    assert "tile_fma(" in parts.source
    assert "tile_fma(" not in total.source
    assert parts.registers is not None
    for capability in ((8, 0), (9, 0)):
        cubins = build_kernels(net.program, capability)
        assert cubins[parts.name].registers <= parts.registers
        assert all((c.spill_stores, c.spill_loads) == (0, 0) for c in cubins.values())


def test_by_hand_a_cut_last_part_is_what_the_oracle_says() -> None:
    """203 steps in parts of 64: the last has 11."""
    nest = cases.dense(203, 24, batch=21)
    split = split_reduction(nest, "mac0", "k", size=64)
    plan = plan_for(split.nest, H200)
    assert "microkernel" in str(plan.schedule)
    net = pf.compile(
        plan.schedule.source, schedule=plan.schedule, target="cuda", machine="h200", device="lockstep"
    )
    assert "tile_fma(" in net.program.source
    inputs, outputs = cases.draw(nest, np.random.default_rng(2)), cases.poisoned(nest)
    net(**inputs, out=outputs)
    assert cases.error(nest, inputs, {"out": outputs[0]}) <= cases.TOLERANCE


def test_a_temporary_that_no_later_loop_reads_is_not_summed_apart() -> None:
    nest = cases.dense(8, 8, batch=3)
    assert accumulate(nest, "out") is not None
    split = split_reduction(nest, "mac0", "k", size=4)
    apart = accumulate(split.nest, split.tensor)
    assert apart is not None
    assert accumulate(apart, f"{split.tensor}_sum") is not None
    assert accumulate(nest, "x") is None


def test_parts_that_get_no_tiles_are_left_out_with_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyfuse.strategy.passes.result_tiles.in_tiles", lambda schedule, name: False)
    plan = plan_for(cases.dense(4096, 64, batch=64), H200)
    (remark,) = (each for each in plan.remarks if each.pass_ == "split-k")
    assert not remark.taken
    assert remark.reason is Reason.NO_TILES
    assert remark.text.startswith("not taken, since its kernel has no tiles of results: ")
    assert not any("part" in s.name for s in plan.schedule.nest.statements)
