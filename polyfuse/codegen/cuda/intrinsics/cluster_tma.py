"""Device operations by which blocks of a cluster copy boxes for each other and wait for each other.

    cluster_barrier      barrier.cluster.arrive, .wait: all threads of all blocks of a cluster
    copy_multicast       mbarrier.expect_tx of the bytes of all parts, then cp.async.bulk.tensor…multicast::cluster of
                         one's own part: to the same place in each block, counted on the barrier at the same place there
    hand_back_cluster    mapa, mbarrier.arrive.shared::cluster at every block, by a lane of each warp for each

Another block's part may come before a block has said what it expects: the bytes that are missing are then less than
none, and the phase is not over without the block's own arrival (PTX ISA, "mbarrier", "tx-count"). A block's memory has
to be there as long as others write to it, so all meet before one ends. What is not said here is as in one block
(mbarrier_pipeline.py).

What is handed back are reads that have ended, nothing that others are to see: arrivals and waits have the scope that
they have in one block, as CUTLASS' pipelines for Hopper do (`ClusterBarrier`). With `.release.cluster` ptxas (CUDA 13)
puts a MEMBAR.ALL.GPU before each arrival. Needs the extra `polyfuse[cuda]`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic

from polyfuse.codegen.cuda.intrinsics.tile_fma import INT, assembly
from polyfuse.codegen.cuda.intrinsics.tma import WORD, barrier_of, shared_address
from polyfuse.layouts.swizzle import MOST_AXES

MASK = ir.IntType(16)
"""A bit for each block of a cluster."""


@intrinsic
def cluster_barrier(typingctx: Any) -> Any:
    """All threads of all blocks of a cluster meet."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        assembly(builder, "barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;", "", [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def copy_multicast(
    typingctx: Any, axes: Any, nbytes: Any, target: Any, to: Any, boxes: Any,
    c0: Any, c1: Any, c2: Any, c3: Any, c4: Any, arrivals: Any, count: Any, group: Any,
    parts: Any, ranks: Any, first: Any,
) -> Any:  # fmt: skip
    """A part of `nbytes` of a box, to an array in shared memory of `parts` blocks, of which each copies another part.

    A bit of `ranks` is the rank of a block that gets it, less `first`. Otherwise as copy_bulk; literals are these two,
    `axes`, `nbytes` and `count`.
    """
    if not all(isinstance(value, types.IntegerLiteral) for value in (axes, nbytes, count, parts, ranks)):
        return None
    rank, expected = axes.literal_value, nbytes.literal_value * parts.literal_value

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        def number(position: int) -> Any:
            return context.cast(builder, args[position], sig.args[position], types.int64)

        place = shared_address(context, builder, sig, args, 2, number(3))
        corner = [builder.trunc(number(5 + axis), WORD) for axis in range(rank)]
        barrier = barrier_of(context, builder, sig, args, 10, number(12), count.literal_value)
        mask = builder.trunc(builder.shl(INT(ranks.literal_value), number(15)), MASK)
        places = ", ".join(f"${4 + axis}" for axis in range(rank))
        text = (
            f"mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [$2], {expected};\n"
            f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
            f".multicast::cluster [$0], [$1, {{{places}}}], [$2], $3;"
        )
        assembly(
            builder,
            text,
            ",".join(["r", "l", "r", "h", *"r" * rank]),
            [place, number(4), barrier, mask, *corner],
        )
        return context.get_dummy_value()

    kinds = (axes, nbytes, target, types.int64, types.int64, *(types.int64 for _ in range(MOST_AXES)),
             arrivals, count, types.int64, parts, ranks, types.int64)  # fmt: skip
    return types.void(*kinds), codegen


@intrinsic
def hand_back_cluster(typingctx: Any, slots: Any, blocks: Any, arrivals: Any, number: Any) -> Any:
    """Each warp arrives at slot `number`, counted from 0, of each of a cluster's so many `blocks`.

    `slots` and `blocks` are literals.
    """
    if not all(isinstance(value, types.IntegerLiteral) for value in (slots, blocks)):
        return None
    count = slots.literal_value
    text = (
        "{ .reg .pred mine; .reg .b32 lane, there;\n"
        f"mov.u32 lane, %laneid; setp.lt.u32 mine, lane, {blocks.literal_value};\n"
        "@mine mapa.shared::cluster.u32 there, $0, lane;\n"
        "@mine mbarrier.arrive.shared::cluster.b64 _, [there];\n}"
    )

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        slot = context.cast(builder, args[3], sig.args[3], types.int64)
        assembly(builder, text, "r", [barrier_of(context, builder, sig, args, 2, slot, count, count)])
        return context.get_dummy_value()

    return types.void(slots, blocks, arrivals, types.int64), codegen
