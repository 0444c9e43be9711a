"""Products in clusters of blocks that copy boxes for each other: in lock-step, as machine code, priced, refused."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import polyfuse as pf
from polyfuse.codegen.cuda.compile.disassembly import main_loop, opcodes
from polyfuse.ir.precision import Math
from polyfuse.machine import Machine
from polyfuse.simulator import lockstep
from polyfuse.simulator.races import BarrierError
from polyfuse.strategy.cuda.tiles.tile import WAITING, Cluster, ThreadblockTile
from polyfuse.strategy.cuda.tiles.tile_candidates import tiles_for
from polyfuse.strategy.match.gemm_problem import Extents
from tests.support.boxes import arguments_of
from tests.support.emitted import in_positions
from tests.support.on_tensor_cores import (
    assert_exact,
    assert_found,
    by_steps,
    groups_of,
    in_planned_registers,
    matmul,
    schedule_with,
    warpgroups,
)

Nests = dict[str, tuple[Callable[[], pf.Nest], Math, tuple[int, ...], int, bool]]

NESTS: Nests = {
    "two down": (lambda: matmul(128, 320, 64, dtype="bfloat16"), "bf16", (1, 1, 2, 16, 4), 2, True),
    "four across": (lambda: matmul(66, 128, 200, dtype="float16"), "f16", (1, 1, 2, 16, 2), 4, False),
    "by steps": (by_steps, "f16", (1, 1, 2, 16, 2), 2, True),
}
"""A nest, the format, warpgroups down and across, a thread's rows and columns, stages; a cluster's blocks, if down."""


def schedule_of(
    nest: pf.Nest, math: Math, tile: tuple[int, ...], cluster: int, down: bool, group: int = 1
) -> pf.Schedule:
    """The schedule with one shape, its blocks in groups of so many rows."""

    def wanted(t: ThreadblockTile) -> bool:
        sizes = (*groups_of(t), t.shape.rows, t.shape.columns, t.stages)
        return t.cluster == Cluster(cluster, down) and sizes == tile

    return schedule_with(nest, math, wanted, group)


@cache
def net_of(name: str) -> pf.Executable:
    make, math, tile, cluster, down = NESTS[name]
    schedule = schedule_of(make(), math, tile, cluster, down)
    return pf.compile(schedule.source, schedule=schedule, target="cuda", machine="h200", device="lockstep")


@pytest.mark.parametrize("name", NESTS)
def test_in_lock_step_it_is_exact(name: str) -> None:
    net, (make, _, _, cluster, down) = net_of(name), NESTS[name]
    (launch,) = net.program.launches
    assert launch.code.cluster == ((1, cluster, 1) if down else (cluster, 1, 1))
    assert (launch.source.count("copy_multicast("), "cuda.syncthreads()" in launch.source) == (1, False)
    assert_exact(net, make())


@pytest.mark.parametrize(
    ("nest", "tile", "down"),
    [
        (matmul(512, 64, 64, dtype="bfloat16"), (2, 1, 2, 16, 2), True),
        (matmul(128, 64, 128, (3,), "bfloat16"), (1, 1, 2, 16, 2), False),
    ],
)
def test_blocks_in_groups_of_rows_are_in_clusters_too(
    nest: pf.Nest, tile: tuple[int, ...], down: bool
) -> None:
    schedule = schedule_of(nest, "bf16", tile, 2, down, group=2)
    net = pf.compile(schedule.source, schedule=schedule, target="cuda", machine="h200", device="lockstep")
    (launch,) = net.program.launches
    assert launch.code.cluster == ((2, 1, 1) if down else (1, 2, 1)), "rows of a group are on block.x"
    assert_exact(net, nest)


WAIT, FREE = "await_full(4, arrived, group)", "await_free(4, arrived, group)"
BACK, LAST = "hand_back_cluster(4, 2, arrived, group - 1)", "hand_back_cluster(4, 2, arrived, group)"

CHANGED = {
    "a copy waits until a slot is free in all blocks": (FREE, "pass", "is copied to"),
    "products wait for a full slot": (WAIT, "pass", "read before the copies"),
    "a full slot is handed over": ("hand_over(4, arrived, group)", "pass", "for ever"),
    "a used slot is handed back": (BACK, "pass", "for ever"),
    "to all blocks": (BACK, "hand_back_cluster(4, 1, arrived, group - 1)", "for ever"),
    "to others than its own": (BACK, "hand_back(4, arrived, group - 1)", "for ever"),
    "to no more than there are": (BACK, "hand_back_cluster(4, 4, arrived, group - 1)", "has 2 blocks, and 4"),
    "once it is used": (f"            if k > 0:\n                {BACK}", f"            {LAST}", "while others read"),
    "by all warps of all blocks": ("begin_handover(4, 8,", "begin_handover(4, 4,", "is copied to|more threads arrive"),
    "and no more": ("begin_handover(4, 8,", "begin_handover(4, 9,", "for ever"),
    "all blocks get a part": ("group, 2, 3, 0)", "group, 2, 1, 0)", "for ever"),
    "and only those that there are": ("group, 2, 3, 0)", "group, 2, 5, 0)", "a copy to block 2 of a cluster of 2"),
    "the bytes of all parts are expected": ("group, 2, 3, 0)", "group, 1, 3, 0)", "is copied to|read before"),
    "each block copies another part": ("+ 2048 * cy", "+ 2048 * 0", "is copied to|differ"),
    "from elsewhere": ("+ 32 * cy", "+ 32 * 0", "differ"),
    "slots are seen by all blocks": (
        "group = 0\n    cluster_barrier()",
        "group = 0\n    cuda.syncthreads()",
        "before all threads of a cluster have seen them made",
    ),
    "all of a block comes to its end": (
        "\n    if thread < 128:",
        "\n    if thread < 128:\n        cluster_barrier()\n    if thread < 128:",
        "for ever|a block ends",
    ),
    "the parity of a full slot": (WAIT, "await_full(4, arrived, group + 4)", "read before|for ever"),
    "the parity of a free slot": (FREE, "await_free(4, arrived, group + 4)", "for ever"),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGED)
def test_what_is_left_out_is_found(what: str) -> None:
    """Lock-step sees each wait, each arrival and each number that five tiles in four slots cannot do without."""
    net = net_of("two down")
    (launch,) = net.program.launches
    assert_found(launch, CHANGED[what], lambda: arguments_of(net, launch))


@pytest.mark.parametrize("block", [0, 1])
def test_each_block_waits_for_itself(block: int) -> None:
    """Whichever runs first: what one block of a cluster has seen another has not."""
    net = net_of("two down")
    (launch,) = net.program.launches
    for line, error in ((WAIT, "read before"), (FREE, "is copied to"), (BACK, "for ever")):
        assert_found(launch, (line, f"if cy == {block}: {line}", error), lambda: arguments_of(net, launch))


def test_a_block_ends_when_nobody_writes_to_it() -> None:
    net = net_of("two down")
    (launch,) = net.program.launches
    *lines, last = launch.source.rstrip().splitlines()
    assert last == "    cluster_barrier()"
    with pytest.raises(BarrierError, match="a block ends while others of its cluster may still arrive"):
        lockstep.run("\n".join(lines), launch.name, *launch.extents({}), arguments_of(net, launch),
                     cluster=launch.code.cluster)  # fmt: skip


def test_machine_code_copies_for_all_blocks_of_a_cluster() -> None:
    pytest.importorskip("cuda.core")
    tile = (2, 1, 2, 32, 4)
    schedule = schedule_of(matmul(2000, 1024, 2048, dtype="bfloat16"), "bf16", tile, 2, True)
    net = pf.compile(schedule.source, schedule=schedule, target="cuda", machine="h200", device="none")
    cubin = in_planned_registers(net, (9, 0))
    assert (cubin.arch, cubin.shared_bytes) == ("sm_90a", net.program.codes[0].shared_bytes)
    assert ".reqnctapercluster 1, 2, 1\n" in cubin.ptx
    loop, every = main_loop(cubin), opcodes(cubin)
    assert {"UTMALDG.2D", "UTMALDG.2D.MULTICAST"} <= set(every)
    assert sum(op.startswith("UCGABAR_ARV") for op in every) == 2, (
        "when slots have been made, and before the end"
    )
    assert sum(op.startswith("UCGABAR_WAIT") for op in every) == 2
    assert not [op for op in every if op.startswith("BAR.")]
    assert {"HGMMA", "SYNCS"} <= {op.split(".")[0] for op in loop}
    assert "SYNCS.ARRIVE.TRANS64.RED.A1T0" in loop, "at other blocks' barriers"
    assert not [op for op in loop if op.startswith(("LDG", "LDS", "STS", "UTMALDG", "UCGABAR", "MEMBAR"))], (
        "others copy, nobody meets"
    )


def with_slow_l2() -> Machine:
    """An H200 whose L2 gives a third: its own is fast enough for tiles of 128 x 128 by themselves."""
    machine = Machine.preset("h200")
    l2, *others = machine.levels
    return replace(machine, levels=(replace(l2, bandwidth=l2.bandwidth / 3), *others))


def test_the_model_takes_clusters_where_l2_decides() -> None:
    machine = replace(with_slow_l2(), math="bf16")
    extents = Extents(1024, 1024, 1024, 1, whole_steps=1024, kept="columns", once=True)
    best = tiles_for(extents, 4, machine, machine.gpu)[0]
    assert best.cluster is not None
    assert best.read_bytes < best.staged_bytes
    lone = replace(machine.gpu, cluster=1)
    alone = tiles_for(extents, 4, machine, lone)[0]
    assert alone.cluster is None
    assert best.seconds < alone.seconds
    said = best.sentences("mac")[-1]
    assert f"waits for the others, {WAITING * best.cluster.blocks} cycles of a tile" in said
    many = replace(extents, rows=64 * 17, columns=128 * 17)
    odd = [t.cluster for t in warpgroups("clustered", many, "bf16", machine)
           if t.shape.block_rows == 64 and t.shape.block_columns == 128]  # fmt: skip
    assert not odd, "17 blocks are no clusters"
    assert not warpgroups("clustered", replace(extents, once=False), "bf16", machine)
    assert not warpgroups("clustered", extents, "bf16", replace(machine, gpu=lone))


def test_the_report_says_what_a_cluster_shares() -> None:
    net = pf.compile(
        matmul(1024, 1024, 1024, dtype="bfloat16"),
        target="cuda",
        machine=with_slow_l2(),
        device="none",
        math="bf16",
    )
    assert "mac0 has clusters of " in str(net.explain())
    assert "cluster." in net.schedule.trace()


# -- what is shared ----------------------------------------------------------------------------------------------------


def test_what_depends_on_the_clusters_loop_is_each_blocks_own() -> None:
    """Of a cluster's two blocks down the rows' factor is each block's own, and the columns' is shared."""
    source = in_positions(net_of("two down").program.source)
    (own,), (shared,) = ([line.split("(")[1] for line in source.splitlines() if f"{name}(" in line and "_boxes" in line]
                         for name in ("copy_bulk", "copy_multicast"))  # fmt: skip
    assert own.startswith("2, 8192, x_shared")
    assert shared.startswith("2, 4096, y_shared"), "half of it"


def test_clusters_along_two_axes_share_rows_across_and_columns_down() -> None:
    """By hand: 2 × 2 blocks of 64 × 64 results, of which each copies half of both factors' boxes."""
    nest = matmul(128, 192, 128, dtype="bfloat16")
    made = schedule_of(nest, "bf16", (1, 1, 2, 16, 2), 2, True)
    bound = "s = s.bind('zero0', i='block.y', j='block.x', i_in='cluster.y')\n"
    before, _, after = made.trace().partition(bound)
    space: dict[str, Any] = {"pf": pf, "nest": made.source}
    exec(before, space)
    loops = {loop.name for loop in space["s"].loops("zero0")}
    s = space["s"].split("zero0", "j", 2)
    (inner,) = {loop.name for loop in s.loops("zero0")} - loops
    places = {"i": "block.y", "i_in": "cluster.y", "j": "block.x", inner: "cluster.x"}
    space["s"] = s.bind("zero0", **places)
    exec(after.replace("at='j'", f"at='{inner}'"), space)
    net = pf.compile(made.source, schedule=space["s"], target="cuda", machine="h200", device="lockstep")
    (launch,) = net.program.launches
    assert launch.code.cluster == (2, 2, 1)
    source = in_positions(launch.source)
    assert "group, 2, 5, cx)" in source, "columns are those of ranks cx and cx + 2"
    assert "group, 2, 3, 2 * cy)" in source, "rows are those of ranks 2 * cy and 2 * cy + 1"
    assert_exact(net, nest)
    error = "for ever|read before|is copied to"
    for old, new in (("2, 5, cx)", "2, 5, 0)"), ("2, 3, 2 * cy)", "2, 3, 0)"), ("(2, 4, arr", "(2, 2, arr")):
        assert_found(launch, (old, new, error), lambda: arguments_of(net, launch))
