"""Products of halves whose factors one instruction copies a box at a time: in lock-step, as machine code, refused."""

# ruff: noqa: F821

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.codegen.cuda.compile.disassembly import main_loop, opcodes
from polyfuse.codegen.cuda.tensor_maps import TensorMap
from polyfuse.errors import InvalidSchedule
from polyfuse.machine import Machine
from polyfuse.rewrite import expand
from polyfuse.runtime.cuda.runner import CudaProgram
from polyfuse.runtime.emulated.host_gpu import HostGpu
from polyfuse.strategy.cuda.tiles.tile_candidates import tiles_for
from polyfuse.strategy.match.gemm_problem import Extents, Kept
from tests.support.boxes import NESTS, arguments_of, schedule_of
from tests.support.on_tensor_cores import (
    assert_exact,
    assert_found,
    in_planned_registers,
    kind_of,
    large,
    matmul,
    warpgroups,
)

every_nest = pytest.mark.parametrize("name", NESTS)


@cache
def net_of(name: str) -> pf.Executable:
    make, math, tile = NESTS[name]
    schedule = schedule_of(make(), math, tile)
    return pf.compile(schedule.source, schedule=schedule, target="cuda", machine="h200", device="lockstep")


@every_nest
def test_in_lock_step_it_is_exact(name: str) -> None:
    """Small integers, of which every sum is exact, in rows and columns that fill no tile."""
    net, nest = net_of(name), NESTS[name][0]()
    assert "copy_bulk(" in net.program.source
    assert not [what for what in ("copy_ahead", "copy_rounded") if what in net.program.source]
    assert_exact(net, nest)


CHANGED = {
    "boxes are waited for": (
        "await_bulk(2, arrived, 4, group)",
        "await_bulk(3, arrived, 4, group)",
        "read before the copies to it have been waited for",
    ),
    "a group has a barrier of its own": (
        ", arrived, 4, group)",
        ", arrived, 4, 0)",
        "read before the copies",
    ),
    "groups are counted": ("group += 1", "pass", "read before the copies"),
    "there is a barrier for each open group": ("arrived, 4,", "arrived, 2,", "is used again before"),
    "sums are waited for": ("        await_wgmma(2, 16, y)\n", "", "was overwritten|before the copies"),
    "another stage is filled": (
        "x_shared, -12288 * k + 12288",
        "x_shared, 0 * k",
        "race on shared array|was overwritten|read before",
    ),
    "one thread asks": ("if tx == 0 and ty == 0:", "if tx == 0:", "several threads of a block ask for a box"),
    "whole boxes are expected": (
        "copy_bulk(2, 8192,",
        "copy_bulk(2, 4096,",
        "4096 bytes are expected of boxes",
    ),
    "a box begins at whole lines": (
        "x_shared, 4096 *",
        "x_shared, 64 + 4096 *",
        "goes to no multiple of 1024",
    ),
    "the lines are swizzled": ("4096, 4096, 3)", "4096, 4096, 1)", "read before the copies"),
    "steps are lines": ("512, 4096, 4096, 3)", "512, 4096, 4096, 2)", "read before the copies"),
    "rows of lines are swizzled": ("8, 512, 4096, 2, y", "8, 512, 4096, 0, y", "differ"),
    "boxes begin at a tile": ("y_2_boxes, 64 * bx", "y_2_boxes, 64 * bx + 8", "differ"),
}


@pytest.mark.parametrize("what", CHANGED)
def test_what_is_left_out_is_found(what: str) -> None:
    """Lock-step sees each wait and each number that a kernel in four stages cannot do without."""
    net = net_of("four stages")
    (launch,) = net.program.launches
    assert_found(launch, CHANGED[what], lambda: arguments_of(net, launch))


def test_maps_are_of_the_addresses_that_a_graph_is_captured_with() -> None:
    """The GPU's host side, on a GPU that is host memory: one graph for a caller's arrays, its arguments maps too."""
    net = net_of("two across")
    gpu = HostGpu(net.program)
    roles = {tensor.name: tensor.role for tensor in net.schedule.nest.tensors}
    program = CudaProgram(net.program, gpu, roles)  # type: ignore[arg-type]
    for seed in range(2):
        generator = np.random.default_rng(seed)
        arrays = {t.name: generator.integers(-2, 3, t.shape).astype(t.dtype).view(np.uint16)
                  for t in net.schedule.nest.tensors if t.role in ("input", "output")}  # fmt: skip
        program.run(arrays, {})
        x, y, out = (arrays[name].view("bfloat16").astype(float) for name in ("x", "y", "out"))
        assert np.array_equal(out, np.maximum(x @ y, 0))
    assert (gpu.captures, gpu.replays) == (1, 2)
    (launch,) = program.launches({name: 4096 * n for n, name in enumerate(arrays, 1)}, {})
    assert [m.box for m in launch.args if isinstance(m, TensorMap)] == [(64, 64), (64, 64)]


@pytest.mark.parametrize(
    ("turned", "tile"),
    [
        (True, (2, 1, 2, 32, 4)),
        (False, (1, 2, 2, 32, 2)),
    ],
)
def test_machine_code_copies_while_it_multiplies(turned: bool, tile: tuple[int, ...]) -> None:
    pytest.importorskip("cuda.core")
    schedule = schedule_of(matmul(2000, 1024, 2040, dtype="bfloat16") if turned else large(), "bf16", tile)
    net = pf.compile(schedule.source, schedule=schedule, target="cuda", machine="h200", device="none")
    cubin = in_planned_registers(net, (9, 0))
    assert (cubin.arch, cubin.shared_bytes) == ("sm_90a", net.program.codes[0].shared_bytes)
    _, across, rows, columns, stages = tile
    loop = main_loop(cubin)
    products = loop.count(f"HGMMA.64x{4 * columns}x16.F32.BF16")
    boxes = 1 + (4 * across * columns // 64 if turned else -(-4 * across * columns // 256))
    assert products % (rows // 2 * 4) == 0 < products
    assert loop.count("UTMALDG.2D") % boxes == 0 < loop.count("UTMALDG.2D")
    assert "SYNCS.PHASECHK.TRANS64.TRYWAIT" in loop
    begun, asked, ended = (
        loop.index(op) for op in (f"HGMMA.64x{4 * columns}x16.F32.BF16", "UTMALDG.2D", "WARPGROUP.DEPBAR.LE")
    )
    assert begun < asked < ended, "copies run while tensor cores multiply"
    by_threads = ("LDG", "STS", "LDGSTS", "FENCE")
    assert not [op for op in loop if op.startswith(by_threads)]
    assert opcodes(cubin).count("SYNCS.EXCH.64") == (4 if stages == 4 else 2)


@pytest.mark.parametrize("kept", ["steps", "columns"])
def test_the_model_takes_them_for_large_products(kept: Kept) -> None:
    machine = replace(Machine.preset("h200"), math="bf16")
    extents = Extents(1024, 1024, 1024, 1, whole_steps=1024, kept=kept)
    assert kind_of(tiles_for(extents, 4, machine, machine.gpu)[0]) == "boxed"
    assert not warpgroups("boxed", replace(extents, whole_steps=0), "bf16", machine)
    assert not warpgroups("boxed", replace(extents, whole_steps=4096 + 32), "bf16", machine)
    ampere = Machine.preset("a100")
    assert ampere.gpu is not None
    assert not warpgroups("boxed", extents, "bf16", ampere)


def test_the_report_names_them() -> None:
    net = pf.compile(
        matmul(1024, 1024, 1024, dtype="bfloat16"), target="cuda", machine="h200", device="none", math="bf16"
    )
    assert "a box by one instruction (tensor maps)" in str(net.explain())


def _by_hand(**changed: object) -> pf.Schedule:
    """A copy of 64 × 32 numbers by one instruction, two stages, that a thread reads; or with something else."""

    @pf.nest
    def sums(x: "f32[64, 128]", z: "f32[64]"):
        for i in range(64):
            for k in range(128):
                z[i] += x[i, k]

    s = pf.Schedule(expand(sums).nest)
    name = s.nest.statements[0].name
    s = s.split(name, "k", 32).reorder(name, "k", "i", "k_in").bind(name, i="thread.x")
    options = {"panel": (1, 32), "stages": 2, "layout": pf.SwizzledLayout()} | changed
    return s.promote("x", name, at="k", memory="shared", **options)  # type: ignore[arg-type]


def test_only_products_by_warpgroups_read_swizzled_lines() -> None:
    s = _by_hand()
    s = s.bind("load_x", load_x_0="bulk").shift("load_x", "k", -1)
    with pytest.raises(InvalidSchedule, match="x_shared lies in swizzled lines, which bulk copies write"):
        pf.compile(s.source, schedule=s, target="cuda", machine="h200", device="lockstep")


@pytest.mark.parametrize(
    ("changed", "ahead", "why"),
    [
        ({"layout": None}, 1, "x_shared has no swizzled lines: promote"),
        ({"panel": (1, 16)}, 1, "panels of width 16 are not lines of 128 bytes"),
        ({}, 0, "x_shared has one stage, so the copy would be waited for immediately"),
    ],
)
def test_what_is_no_box_says_why(changed: dict[str, object], ahead: int, why: str) -> None:
    s = _by_hand(**changed).bind("load_x", load_x_0="bulk")
    s = s.shift("load_x", "k", -ahead) if ahead else s
    with pytest.raises(InvalidSchedule, match=why):
        pf.compile(s.source, schedule=s, target="cuda", machine="h200", device="lockstep")


def test_a_row_that_begins_anywhere_is_refused() -> None:
    @pf.nest
    def sums(x: "f32[64, 126]", z: "f32[64]"):
        for i in range(64):
            for k in range(126):
                z[i] += x[i, k]

    s = pf.Schedule(expand(sums).nest)
    name = s.nest.statements[0].name
    s = s.split(name, "k", 32).reorder(name, "k", "i", "k_in").bind(name, i="thread.x")
    s = s.promote("x", name, at="k", memory="shared", panel=(1, 32), stages=2, layout=pf.SwizzledLayout())
    s = s.bind("load_x", load_x_0="bulk").shift("load_x", "k", -1)
    with pytest.raises(InvalidSchedule, match="rows of x do not start at multiples of 16 bytes"):
        pf.compile(s.source, schedule=s, target="cuda", machine="h200", device="lockstep")


def test_a_bulk_copy_is_a_gpus() -> None:
    s = _by_hand().bind("load_x", load_x_0="bulk")
    with pytest.raises(InvalidSchedule, match="which target cpu does not have"):
        pf.compile(s.source, schedule=s, target="cpu")
