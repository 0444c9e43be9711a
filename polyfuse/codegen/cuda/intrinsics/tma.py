"""Device operations for TMA on Hopper: copies of boxes, and the barriers on which they arrive.

    begin_bulk    mbarrier.init, one arrival each; everything sees it behind the next barrier of the block
    copy_bulk     mbarrier.expect_tx, then cp.async.bulk.tensor.Nd … mbarrier::complete_tx::bytes
    await_bulk    mbarrier.arrive by the block's first thread, and mbarrier.try_wait.parity until a group has arrived

Groups are counted, and group n is on barrier n mod count: tma_boxes.py. A phase of a barrier is over when its
one arrival has come and all bytes that it expects (PTX ISA, "mbarrier", "Phase Completion"). A tensor's map is a
parameter of the kernel by value, as the CUDA Programming Guide recommends ("Tensor Memory Accelerator"): cubin.py
makes one of the number that numba knows. Needs the extra `polyfuse[cuda]`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic

from polyfuse.codegen.cuda.intrinsics.tile_fma import INT, SHARED, assembly
from polyfuse.layouts.swizzle import BARRIER_BYTES, MOST_AXES

WORD = ir.IntType(32)

FIRST = """
{ .reg .pred first; .reg .b32 x, y;
mov.u32 x, %tid.x; mov.u32 y, %tid.y; or.b32 x, x, y; mov.u32 y, %tid.z; or.b32 x, x, y;
setp.eq.u32 first, x, 0;
"""
"""Of a block's threads the first one."""

WAIT = """
{ .reg .pred there;
AGAIN_${:uid}:
mbarrier.try_wait.parity.shared::cta.b64 there, [$0], $1;
@!there bra AGAIN_${:uid};
}
"""
"""Until a barrier's phase of a parity is over."""


@intrinsic
def begin_bulk(typingctx: Any, count: Any, arrivals: Any) -> Any:
    """Make `count` barriers, a literal, in an array in shared memory."""
    if not isinstance(count, types.IntegerLiteral):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        made = "".join(
            f"@first mbarrier.init.shared::cta.b64 [$0+{BARRIER_BYTES * n}], 1;\n"
            for n in range(count.literal_value)
        )
        seen = "fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;\n}"
        assembly(builder, FIRST + made + seen, "r", [shared_address(context, builder, sig, args, 1, INT(0))])
        return context.get_dummy_value()

    return types.void(count, arrivals), codegen


@intrinsic
def copy_bulk(
    typingctx: Any, axes: Any, nbytes: Any, target: Any, to: Any, boxes: Any,
    c0: Any, c1: Any, c2: Any, c3: Any, c4: Any, arrivals: Any, count: Any, group: Any,
) -> Any:  # fmt: skip
    """A box of `nbytes` from coordinates on to an array in shared memory, by the thread that calls, begun.

    `boxes` is where the kernel's map lies, the first coordinate that of neighbours. `axes`, `nbytes` and `count` are
    literals.
    """
    if not all(isinstance(value, types.IntegerLiteral) for value in (axes, nbytes, count)):
        return None
    rank = axes.literal_value

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        def number(position: int) -> Any:
            return context.cast(builder, args[position], sig.args[position], types.int64)

        place = shared_address(context, builder, sig, args, 2, number(3))
        corner = [builder.trunc(number(5 + axis), WORD) for axis in range(rank)]
        barrier = barrier_of(context, builder, sig, args, 10, number(12), count.literal_value)
        places = ", ".join(f"${3 + axis}" for axis in range(rank))
        text = (
            f"mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [$2], {nbytes.literal_value};\n"
            f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
            f"[$0], [$1, {{{places}}}], [$2];"
        )
        assembly(builder, text, ",".join("rlr" + "r" * rank), [place, number(4), barrier, *corner])
        return context.get_dummy_value()

    kinds = (axes, nbytes, target, types.int64, types.int64, *(types.int64 for _ in range(MOST_AXES)),
             arrivals, count, types.int64)  # fmt: skip
    return types.void(*kinds), codegen


@intrinsic
def await_bulk(typingctx: Any, still_open: Any, arrivals: Any, count: Any, group: Any) -> Any:
    """Complete a group, and wait for the one `still_open` groups before it, if there is one; all threads of a block."""
    if not all(isinstance(value, types.IntegerLiteral) for value in (still_open, count)):
        return None
    barriers = count.literal_value

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        number = context.cast(builder, args[3], sig.args[3], types.int64)
        own = barrier_of(context, builder, sig, args, 1, number, barriers)
        assembly(builder, FIRST + "@first mbarrier.arrive.shared::cta.b64 _, [$0];\n}", "r", [own])
        before = builder.sub(number, INT(still_open.literal_value))
        with builder.if_then(builder.icmp_signed(">=", before, INT(0))):
            awaited = barrier_of(context, builder, sig, args, 1, before, barriers)
            phase = builder.and_(builder.udiv(before, INT(barriers)), INT(1))
            assembly(builder, WAIT, "r,r", [awaited, builder.trunc(phase, WORD)])
        return context.get_dummy_value()

    return types.void(still_open, arrivals, count, types.int64), codegen


def barrier_of(
    context: Any, builder: Any, sig: Any, args: Any, array: int, group: Any, count: int, first: int = 0
) -> Any:
    """The address of a group's barrier, of so many from the first one on."""
    place = builder.urem(group, INT(count))
    return shared_address(
        context, builder, sig, args, array, builder.add(place, INT(first)) if first else place
    )


def shared_address(context: Any, builder: Any, sig: Any, args: Any, array: int, first: Any) -> Any:
    """The address in shared memory of an element of an array there."""
    data = context.make_array(sig.args[array])(context, builder, args[array]).data
    place = builder.gep(data, [first])
    kind = context.get_data_type(sig.args[array].dtype)
    return builder.ptrtoint(builder.addrspacecast(place, ir.PointerType(kind, addrspace=SHARED)), WORD)
