"""Products whose factors a warp that only copies asks for: in lock-step, as machine code, priced, refused."""

# ruff: noqa: F821

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.analysis.barriers import unsynchronised
from polyfuse.codegen.cuda.compile.disassembly import main_loop, opcodes, sass
from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir.tree import loops, replace_node
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


@cache
def net_of(name: str) -> pf.Executable:
    make, math, tile = NESTS[name]
    schedule = schedule_of(make(), math, tile, "produced")
    return pf.compile(schedule.source, schedule=schedule, target="cuda", machine="h200", device="lockstep")


@pytest.mark.parametrize("name", NESTS)
def test_in_lock_step_it_is_exact(name: str) -> None:
    net, (make, _, (down, across, *_, stages)) = net_of(name), NESTS[name]
    (launch,) = net.program.launches
    assert launch.extents({})[1] == (128 * down * across + 32, 1, 1)
    assert f"handed over in {stages} slots" in str(net.schedule)
    assert launch.source.count("cuda.syncthreads()") == 1, "when its slots are made"
    assert_exact(net, make())


CHANGED = {
    "a copy waits for a free slot": ("await_free(4, arrived, group)", "pass", "is copied to"),
    "products wait for a full slot": ("await_full(4, arrived, group)", "pass", "read before the copies"),
    "a full slot is handed over": ("hand_over(4, arrived, group)", "pass", "for ever"),
    "a used slot is handed back": ("hand_back(4, arrived, group - 1)", "pass", "for ever"),
    "it is handed back once used": (
        "            if k > 0:\n                hand_back(4, arrived, group - 1)",
        "            hand_back(4, arrived, group)",
        "while others read it",
    ),
    "the first one is handed back too": ("if k > 0:", "if k > 1:", "for ever"),
    "the parity of a full slot": (
        "await_full(4, arrived, group)",
        "await_full(4, arrived, group + 4)",
        "for ever",
    ),
    "the parity of a free slot": (
        "await_free(4, arrived, group)",
        "await_free(4, arrived, group + 4)",
        "for ever",
    ),
    "the slot that is full": ("await_full(4, arrived, group)", "await_full(4, arrived, 0)", "read before"),
    "the slot that is free": ("await_free(4, arrived, group)", "await_free(4, arrived, 0)", "is copied to"),
    "all slots are waited for": ("await_full(4,", "await_full(2,", "there are 4 slots"),
    "as many free slots as there are": ("await_free(4,", "await_free(8,", "there are 4 slots"),
    "a box arrives in a slot that there is": (
        "0, 0, 0, arrived, 4,",
        "0, 0, 0, arrived, 2,",
        "there are 4 slots",
    ),
    "a box arrives in its slot": (
        "0, 0, 0, arrived, 4, group)",
        "0, 0, 0, arrived, 4, group + 1)",
        "read before",
    ),
    "every warp hands back": ("begin_handover(4, 4,", "begin_handover(4, 3,", "more threads arrive"),
    "no other warp hands back": ("begin_handover(4, 4,", "begin_handover(4, 5,", "for ever"),
    "slots are counted": ("group += 1", "pass", "is copied to|read before|for ever"),
    "products are waited for": ("await_wgmma_before()", "pass", "a factor was overwritten"),
    "sums are waited for": ("tile_wgmma_bf16(", "begin_wgmma_bf16(", "differ"),
    "another stage is filled": (
        "4096 * (k & 3), x_boxes",
        "4096 * (k & 1), x_boxes",
        "is copied to|read before",
    ),
    "one thread asks": ("if thread == 128:", "if thread >= 128:", "several threads of a block ask for a box"),
    "the warp has no results": ("if thread < 128:", "if thread < 160:", "at different copies"),
    "slots are seen": ("    cuda.syncthreads()\n", "", "before all threads have seen them made"),
    "nobody meets": ("hand_over(4, arrived, group)", "cuda.syncthreads()", "under divergent control flow"),
    "boxes begin at a tile": ("y_2_boxes, 64 * bx", "y_2_boxes, 64 * bx + 8", "differ"),
}


@pytest.mark.parametrize("what", CHANGED)
def test_what_is_left_out_is_found(what: str) -> None:
    """Lock-step sees each wait, each arrival and each number that five tiles in four slots cannot do without."""
    net = net_of("four stages")
    (launch,) = net.program.launches
    assert_found(launch, CHANGED[what], lambda: arguments_of(net, launch))


def test_each_warpgroup_waits_for_itself() -> None:
    """Whichever runs first: what one has seen another has not, and one's slot is not another's."""
    nest = matmul(130, 384, 72, dtype="bfloat16")
    schedule = schedule_of(nest, "bf16", (2, 1, 2, 16, 4), "produced")
    net = pf.compile(schedule.source, schedule=schedule, target="cuda", machine="h200", device="lockstep")
    assert_exact(net, nest)
    (launch,) = net.program.launches

    def found(*changed: str) -> None:
        assert_found(launch, changed, lambda: arguments_of(net, launch))

    wait, back = "            await_full(4, arrived, group)", "hand_back(4, arrived, group - 1)"
    for mine in ("ty < 32", "ty >= 32"):
        found(wait, wait.replace("await", f"if {mine}: await"), "read before")
        found(back, f"if {mine}: {back}", "for ever")
        # with as many arrivals as come, the others' slots are gone: their phase is over twice before they look
        fewer = ("begin_handover(4, 8,", "begin_handover(4, 4,")
        found(back, f"if {mine}: {back}", *fewer, "while others read it|for ever")


@pytest.mark.parametrize("tile", [(2, 1, 2, 32, 4), (1, 2, 2, 32, 2), (1, 1, 2, 16, 4), (2, 1, 2, 64, 4)])
def test_machine_code_multiplies_without_a_pause(tile: tuple[int, ...]) -> None:
    pytest.importorskip("cuda.core")
    schedule = schedule_of(matmul(2000, 8192, 2040, dtype="bfloat16"), "bf16", tile, "produced")
    net = pf.compile(schedule.source, schedule=schedule, target="cuda", machine="h200", device="none")
    cubin = in_planned_registers(net, (9, 0))
    assert (cubin.arch, cubin.shared_bytes) == ("sm_90a", net.program.codes[0].shared_bytes)
    assert (cubin.spill_stores, cubin.spill_loads) == (0, 0)
    assert cubin.registers <= 168, "nine warps"
    _, _, rows, columns, stages = tile
    loop, every = main_loop(cubin), opcodes(cubin)
    assert loop.count(f"HGMMA.64x{4 * columns}x16.F32.BF16") % (rows // 2 * 4) == 0
    assert {"HGMMA", "SYNCS", "WARPGROUP"} <= {op.split(".")[0] for op in loop}
    by_threads = ("LDG", "STS", "LDGSTS", "FENCE", "UTMALDG", "BAR", "LDS")
    assert not [op for op in loop if op.startswith(by_threads)], "others copy, and nobody meets"
    assert "UTMALDG.2D" in every
    assert sum(op.startswith("BAR.") for op in every) == 1, "when slots have been made"
    assert every.count("SYNCS.EXCH.64") == 2 * stages
    assert "DEPBAR.LE gsb0, 0x1" in sass(cubin), "one tile's products are on their way"


@pytest.mark.parametrize("rows", [2000, 2048])
def test_nothing_reads_sums_before_the_wait_for_them(rows: int) -> None:
    """Tiles that are cut short, and whole ones, whose stores have no guard that ptxas would stay behind."""
    pytest.importorskip("cuda.core")
    nest = large() if rows == 2048 else matmul(rows, 1024, 2040, dtype="bfloat16")
    schedule = schedule_of(nest, "bf16", (2, 1, 2, 32, 4), "produced")
    net = pf.compile(schedule.source, schedule=schedule, target="cuda", machine="h200", device="none")
    code = sass(in_planned_registers(net, (9, 0)))
    last = code.rindex("HGMMA.")
    wait = code.index("WARPGROUP.DEPBAR.LE gsb0, 0x0", last)
    assert not [op for op in ("F2FP", "STG", "FMNMX", "FADD") if op in code[last:wait]]


@pytest.mark.parametrize(("dtype", "store"), [("bfloat16", "STG.E"), ("float32", "STG.E.64")])
def test_results_that_are_neighbours_are_stored_together(dtype: str, store: str) -> None:
    """Two of each eight columns are a thread's, in tiles that are cut short too."""
    pytest.importorskip("cuda.core")
    nest = matmul(2000, 1024, 2040, dtype="bfloat16") if dtype == "bfloat16" else sums_of_halves()
    schedule = schedule_of(nest, "bf16", (2, 1, 2, 32, 4), "produced")
    net = pf.compile(schedule.source, schedule=schedule, target="cuda", machine="h200", device="none")
    every = opcodes(in_planned_registers(net, (9, 0)))
    assert [op for op in every if op.startswith("STG")] == [store] * 32


def sums_of_halves() -> pf.Nest:
    """x @ y of bfloat16 numbers, as float32 numbers."""

    @pf.nest
    def product(x: "bf16[2000, 1024]", y: "bf16[1024, 2040]", z: "f32[2000, 2040]"):
        for i in range(2000):
            for j in range(2040):
                z[i, j] = 0
                for k in range(1024):
                    z[i, j] += x[i, k] * y[k, j]

    return expand(product).nest


@pytest.mark.parametrize("kept", ["steps", "columns"])
def test_the_model_takes_them_where_warps_would_wait(kept: Kept) -> None:
    """One block on an SM has nothing to multiply while its warps meet; with several, others do meanwhile."""
    machine = replace(Machine.preset("h200"), math="bf16")
    machine = replace(machine, gpu=replace(machine.gpu, cluster=1))
    extents = Extents(1024, 1024, 1024, 1, whole_steps=1024, kept=kept, once=True)
    best = tiles_for(extents, 4, machine, machine.gpu)[0]
    assert kind_of(best) == "produced"
    boxed = warpgroups("boxed", extents, "bf16", machine)
    (same,) = (t for t in boxed if (t.shape, t.stages) == (best.shape, best.stages))
    assert same.seconds - best.seconds == pytest.approx(
        16 * machine.gpu.meeting_cycles / (machine.flops32 / 256)
    )
    assert "that its warps meet decides" in same.why
    assert "has a warp that only copies" in best.sentences("mac")[1]
    many = replace(extents, rows=8192, columns=8192)
    crowded = [s for s in warpgroups("produced", many, "bf16", machine) if s.resident(machine.gpu) > 2]
    assert crowded
    assert not warpgroups("produced", replace(extents, whole_steps=4096 + 32), "bf16", machine)
    assert not warpgroups("produced", replace(extents, once=False), "bf16", machine)
    ampere = Machine.preset("a100")
    assert ampere.gpu is not None
    assert not warpgroups("produced", extents, "bf16", ampere)


def test_the_report_says_what_it_gains() -> None:
    net = pf.compile(
        matmul(1024, 1024, 1024, dtype="bfloat16"), target="cuda", machine="h200", device="none", math="bf16"
    )
    assert "a box by one instruction (tensor maps) of a warp that only copies" in str(net.explain())
    assert "tensor cores do not pause while all of a block's warps wait for their sums" in str(net.explain())


def test_graphs_of_the_gpus_host_side_have_its_threads() -> None:
    """The GPU's host side, on a GPU that is host memory."""
    net = net_of("two across")
    program = CudaProgram(
        net.program,
        HostGpu(net.program),
        {t.name: t.role for t in net.schedule.nest.tensors},  # type: ignore[arg-type]
    )
    generator = np.random.default_rng(3)
    arrays = {t.name: generator.integers(-2, 3, t.shape).astype(t.dtype).view(np.uint16)
              for t in net.schedule.nest.tensors if t.role in ("input", "output")}  # fmt: skip
    program.run(arrays, {})
    x, y, out = (arrays[name].view("bfloat16").astype(float) for name in ("x", "y", "out"))
    assert np.array_equal(out, np.maximum(x @ y, 0))


# -- the verb ----------------------------------------------------------------------------------------------------------


def _again(schedule: pf.Schedule, **changed: object) -> pf.Schedule:
    """A schedule made again by its own text, some of which is changed."""
    text = schedule.trace()
    for old, new in changed.items():
        text = text.replace(old, str(new))
    space = {"pf": pf, "nest": schedule.source}
    exec(text, space)
    made = space["s"]
    assert isinstance(made, pf.Schedule)
    return made


def test_a_schedule_says_it_and_is_made_again_by_its_text() -> None:
    schedule = net_of("four stages").schedule
    assert "s = s.bind('load_x', load_x_0_in='bulk.warp')" in schedule.trace()
    again = _again(schedule)
    assert str(again) == str(schedule)
    assert "@ bulk.warp" in str(again)


def test_validation_proves_the_slots() -> None:
    """One slot more than the dependences allow, or none, is found; fewer are as good."""
    schedule = net_of("four stages").schedule
    (loop,) = (x for x in loops(schedule.tree) if x.slots)
    found = {}
    for slots in (0, 1, 3, 4, 5):
        tree = replace_node(schedule.tree, loop, replace(loop, slots=slots))
        found[slots] = unsynchronised(schedule.nest, tree)
    assert [slots for slots, broken in found.items() if broken is None] == [1, 3, 4]
    assert found[5] is not None
    assert "would be ahead of the threads that still use what it overwrites" in found[5].why


def test_copies_that_are_shifted_ahead_have_fewer_slots() -> None:
    """The warp runs ahead without being told: iterations between leave it less room, and are right all the same."""
    make, math, tile = NESTS["four stages"]
    text = schedule_of(make(), math, tile, "produced").trace()
    for name in ("load_x", "load_y"):
        text = text.replace(
            f"s = s.bind('{name}', {name}_0_in='bulk.warp')",
            f"s = s.bind('{name}', {name}_0_in='bulk.warp')\ns = s.shift('{name}', 'k', -2)",
        )
    space = {"pf": pf, "nest": make()}
    exec(text, space)
    schedule = space["s"]
    assert isinstance(schedule, pf.Schedule)
    net = pf.compile(schedule.source, schedule=schedule, target="cuda", machine="h200", device="lockstep")
    assert "handed over in 2 slots" in str(net.schedule)
    assert_exact(net, make())


def _by_hand(threads: bool, **changed: object) -> pf.Schedule:
    @pf.nest
    def sums(x: "f32[64, 128]", z: "f32[64]"):
        for i in range(64):
            for k in range(128):
                z[i] += x[i, k]

    s = pf.Schedule(expand(sums).nest)
    name = s.nest.statements[0].name
    s = s.split(name, "k", 32).reorder(name, "k", "i", "k_in")
    s = s.bind(name, i="thread.x") if threads else s
    options = {"panel": (1, 32), "stages": 2, "layout": pf.SwizzledLayout()} | changed
    s = s.promote("x", name, at="k", memory="shared", **options)  # type: ignore[arg-type]
    return s.bind("load_x", load_x_0="bulk.warp")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"layout": None}, "x_shared has no swizzled lines: promote"),
        (
            {"stages": 1},
            "no loop hands copies over. To make it legal: promote what is copied with stages",
        ),
    ],
)
def test_what_cannot_be_handed_over_says_why(changed: dict[str, object], why: str) -> None:
    s = _by_hand(True, **changed)
    with pytest.raises((InvalidSchedule, IllegalSchedule), match=why):
        pf.compile(s.source, schedule=s, target="cuda", machine="h200", device="lockstep")


def test_others_have_to_be_there() -> None:
    s = _by_hand(False)
    with pytest.raises(InvalidSchedule, match="no other threads are there to use it"):
        pf.compile(s.source, schedule=s, target="cuda", machine="h200", device="lockstep")


def test_it_is_a_gpus() -> None:
    s = _by_hand(True)
    with pytest.raises(InvalidSchedule, match="which target cpu does not have"):
        pf.compile(s.source, schedule=s, target="cpu")
