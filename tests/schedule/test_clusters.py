# ruff: noqa: F821, UP037 — sizes are names in annotations
"""Blocks in clusters: which loops may be so, what a launch says of them, and that they are blocks like others."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.analysis.validation import validate
from polyfuse.codegen.cuda.compile.cubin import OtherInstructions
from polyfuse.errors import IllegalSchedule, InvalidSchedule, ValidationFailure
from polyfuse.ir.bindings import Binding
from polyfuse.ir.tree import loops, replace_node
from polyfuse.rewrite import expand
from polyfuse.runtime.cuda.runner import build_kernels

pytest.importorskip("numba.cuda")


@pf.nest
def doubled(x: "f32[64, 40]", z: "f32[64, 40]"):
    for i in range(64):
        for j in range(40):
            z[i, j] = 2 * x[i, j]


@pf.nest
def summed(x: "f32[N, 8]", z: "f32[N, 8]"):
    for i in range(N):
        for j in range(1, 8):
            z[i, j] = z[i, j - 1] + x[i, j]


def split(*sizes: int) -> pf.Schedule:
    """`doubled` with the loop over rows split again and again: i, i_in…, j."""
    s = pf.Schedule(expand(doubled).nest)
    for size in sizes:
        s = s.split("S0", "i", size)
    return s


def bound(s: pf.Schedule, *places: str | None) -> pf.Schedule:
    """The loops around S0, outermost first, bound to places."""
    names = [loop.name for loop in s.loops("S0")]
    return s.bind("S0", **{name: place for name, place in zip(names, places, strict=False) if place})


def compiled(s: pf.Schedule, machine: str = "h200") -> pf.Executable:
    return pf.compile(s.source, schedule=s, target="cuda", machine=machine, device="lockstep")


def pairs() -> pf.Schedule:
    """Rows in blocks of 8, two blocks a cluster."""
    return bound(split(8, 2), "block.x", "cluster.x", "thread.y", "thread.x")


def test_a_clusters_blocks_are_neighbours_of_the_grid() -> None:
    net = compiled(pairs())
    (launch,) = net.program.launches
    assert launch.code.cluster == (2, 1, 1)
    assert launch.extents({}) == ((8, 1, 1), (40, 8, 1))
    assert "cx = (cuda.blockIdx.x & 2147483647) % 2" in launch.source
    x, z = np.random.default_rng(1).random((64, 40), np.float32), np.zeros((64, 40), np.float32)
    net(x, z)
    assert np.array_equal(z, 2 * x)
    assert "@ cluster.x" in str(net.schedule)


def test_clusters_along_two_axes() -> None:
    s = split(8, 2).split("S0", "j", 10).split("S0", "j", 2)
    i, i_c, i_t, j, j_c, j_t = (loop.name for loop in s.loops("S0"))
    s = s.reorder("S0", i, i_c, j, j_c, i_t, j_t)
    net = compiled(bound(s, "block.y", "cluster.y", "block.x", "cluster.x", "thread.y", "thread.x"))
    (launch,) = net.program.launches
    assert launch.code.cluster == (2, 2, 1)
    assert launch.extents({})[0] == (4, 8, 1)
    x, z = np.random.default_rng(1).random((64, 40), np.float32), np.zeros((64, 40), np.float32)
    net(x, z)
    assert np.array_equal(z, 2 * x)


def test_machine_code_carries_the_clusters_size(tmp_path: Path) -> None:
    pathfinder = pytest.importorskip("cuda.pathfinder")
    net = compiled(pairs())
    (cubin,) = build_kernels(net.program, (9, 0)).values()
    assert ".reqnctapercluster 2, 1, 1\n" in cubin.ptx
    file = tmp_path / "kernel.cubin"
    file.write_bytes(cubin.code)
    tool = pathfinder.find_nvidia_binary_utility("nvdisasm")
    said = subprocess.run([tool, str(file)], check=True, capture_output=True, text=True).stdout
    assert "EIATTR_CTA_PER_CLUSTER" in said
    with pytest.raises(OtherInstructions, match=r"from compute capability 9\.0 on, and this is 8\.0"):
        build_kernels(net.program, (8, 0))


def test_a_gpu_without_clusters_is_named() -> None:
    with pytest.raises(
        InvalidSchedule, match=r"clusters of 2 × 1 × 1 blocks, .* and a100 has 8\.0: bind the loop"
    ):
        compiled(pairs(), "a100")
    s = pairs()
    with pytest.raises(InvalidSchedule, match="which target cpu does not have"):
        pf.compile(s.source, schedule=s, target="cpu")


SOME = "some clusters would have fewer than"

REFUSED = {
    "7 of 8 blocks": (lambda: bound(split(10, 2), "block.x", "cluster.x"), f"{SOME} 2 blocks"),
    "16 blocks": (lambda: bound(split(2, 16), "block.x", "cluster.x"), r"at most 8 blocks, but this one has 16 \(i_in"),
    "a loop in order around it": (
        lambda: bound(split(8, 2), None, "cluster.x"),
        "only loops over blocks may enclose a cluster's blocks",
    ),
    "nobody numbers clusters": (
        lambda: bound(split(8), "cluster.x"),
        "i runs over the blocks of a cluster, but no loop runs over clusters: split it",
    ),
    "threads around it": (lambda: bound(split(8), "thread.x", "cluster.x"), "i is bound to thread.x"),
    "twice": (lambda: bound(split(8, 2), "block.x", "cluster.x", "cluster.x"), "already bound to cluster.x"),
    "on cores": (lambda: bound(split(8, 2), "cores", "cluster.x"), "cores and a GPU's places do not mix"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_cluster_says_why(what: str) -> None:
    made, why = REFUSED[what]
    with pytest.raises(InvalidSchedule, match=why):
        made()


def test_a_size_that_is_not_known_to_fill_clusters_is_refused() -> None:
    s = pf.Schedule(expand(summed).nest)
    name = s.nest.statements[0].name
    s = s.split(name, "i", 2)
    with pytest.raises(InvalidSchedule, match=f"{SOME} 2 blocks: .* for all sizes"):
        s.bind(name, i="block.x", i_in="cluster.x")


def test_blocks_of_a_cluster_are_in_no_order() -> None:
    s = pf.Schedule(expand(summed).nest.with_sizes({"N": 8}))
    name = s.nest.statements[0].name
    s = s.bind(name, i="block.x")
    with pytest.raises(IllegalSchedule, match=r"bound to cluster\.x, so its iterations run in parallel"):
        s.bind(name, j="cluster.x")


def test_validation_finds_a_cluster_that_is_not_whole() -> None:
    s = pairs().synchronised()
    (loop,) = (x for x in loops(s.tree) if x.bind == "cluster.x")
    validate(s.source, s.nest, s.tree)
    (outer,) = (x for x in loops(s.tree) if x.bind == "block.x")
    deeper = replace(loop, body=replace(loop.body, bind=Binding.CLUSTER_Y))
    for changed in (
        replace_node(s.tree, outer, replace(outer, bind=None)),
        replace_node(s.tree, loop, deeper),
    ):
        with pytest.raises(ValidationFailure, match="validation of places failed"):
            validate(s.source, s.nest, changed)
