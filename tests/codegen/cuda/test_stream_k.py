"""A product in equal shares on a GPU (stream-k), by verbs: values in lock-step, stages ahead, machine code."""

from __future__ import annotations

import ast

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.checks import cuda_cases as cases
from polyfuse.rewrite import Shares, accumulate, split_reduction
from polyfuse.runtime.cuda.runner import build_kernels

TILE, STEPS = 16, 16
PART, FIRST, LAST = "part_mac0", "init_part_mac0", "store_y0_parts"


def in_shares(nest: pf.Nest, count: int) -> pf.Schedule:
    """One block a share, a loop over its tiles, one over a tile's chunks; a second kernel adds up what blocks have."""
    done = split_reduction(nest, "mac0", "k", shares=Shares(count, STEPS, {"i": TILE, "j": TILE}))
    summed = accumulate(done.nest, done.tensor)
    assert summed is not None
    assert done.dealt is not None
    s = pf.Schedule(summed).fuse(PART, FIRST, at="j").fuse(PART, LAST, at="j")
    s = s.split(FIRST, "i", TILE).split(FIRST, "i_in", 4).split(FIRST, "j", TILE).split(FIRST, "j_in", 4)
    s = s.reorder(FIRST, "i", "j", "k_part", "i_in", "j_in", "i_in_in", "j_in_in").collapse(FIRST, "i", "j")
    s = s.skew(FIRST, "k_part", by="i_j", factor=done.dealt.chunks, per=done.dealt.share)
    s = s.interchange(FIRST, "i_j", "k_part").bind(FIRST, k_part="block.x")
    for loop in ("j_in_in", "i_in_in", "j_in", "i_in"):
        s = s.distribute(FIRST, loop)
    s = s.split(PART, "k", STEPS).reorder(PART, "k", "i_in", "j_in", "k_in", "i_in_in", "j_in_in")
    for name in (FIRST, PART, LAST):
        s = s.bind(name, i_in="thread.y", j_in="thread.x")
        s = s if name == PART else s.unroll(name, "i_in_in").unroll(name, "j_in_in")
    s = s.promote("y0_parts_sum", FIRST, at="i_j", memory="register")
    for tensor, axis, layout in (
        ("x", 0, pf.SmemLayout(4, 4, 0, 4, 8)),
        ("w0", 1, pf.SmemLayout(4, 4, 0, 1, 0)),
    ):
        s = copied_ahead(
            s.promote(tensor, PART, "k", "shared", (axis, TILE), layout, stages=2), f"load_{tensor}"
        )
    s = s.microkernel(PART, "k_in").reorder("mac0", "i", "j", "k_part").fuse("zero0", "mac0", at="j")
    return (
        s.fuse("mac0", "bias0", at="j").fuse("bias0", "relu0", at="j").bind("mac0", i="block.x", j="thread.x")
    )


def copied_ahead(s: pf.Schedule, copy: str) -> pf.Schedule:
    """A copy by 4 × 4 threads, 16 bytes each at a time, one chunk ahead."""
    rows, columns = (loop.name for loop in s.loops(copy)[-2:])
    s = s.split(copy, columns, 4).split(copy, columns, 4).split(copy, rows, 4)
    _, row, _, column, element = names = tuple(loop.name for loop in s.loops(copy)[-5:])
    s = s.reorder(copy, names[0], names[2], row, column, element).bind(
        copy, **{row: "thread.y", column: "thread.x"}
    )
    return s.unroll(copy, names[0]).unroll(copy, names[2]).vectorize(copy, element).shift(copy, "k", -1)


@pytest.mark.parametrize(
    ("sizes", "batch", "count"),
    [((80, 48), 40, 4), ((80, 32), 16, 5), ((32, 32), 32, 8)],
    ids=["ends of tiles", "tiles of three blocks", "parts alone"],
)
def test_blocks_take_the_end_of_a_tile_whole_ones_and_the_beginning_of_another(
    sizes: tuple[int, int], batch: int, count: int
) -> None:
    nest = cases.dense(*sizes, batch=batch)
    s = in_shares(nest, count)
    net = pf.compile(s.source, schedule=s, target="cuda", machine="h200", device="lockstep")
    parts = net.program.codes[0]
    assert "tile_fma(" in parts.source
    assert "copy_ahead(" in parts.source
    assert [ast.unparse(launch.grid[0]) for launch in net.program.launches] == [str(count), str(batch)]
    inputs, outputs = cases.draw(nest, np.random.default_rng(2)), cases.poisoned(nest)
    net(**inputs, out=outputs)
    assert cases.error(nest, inputs, {"out": outputs[0]}) <= cases.TOLERANCE
    if count == 4:
        pytest.importorskip("cuda.core")
        for capability in ((8, 0), (9, 0)):
            cubin = build_kernels(net.program, capability)[parts.name]
            assert (cubin.spill_stores, cubin.spill_loads) == (0, 0)
            assert cubin.registers <= 128
