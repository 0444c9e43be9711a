"""The device operation grid_barrier, at which all threads of all blocks wait for each other.

    all threads of a block meet; its first one adds to the counter and waits until the top bit has changed; they meet

The counter restores itself, as that of cooperative groups does (cooperative_groups/details/sync.h): block 0 adds
2^31 - (blocks - 1) and each other block 1, which is 2^31 in sum, so that the last to come changes the top bit and the
others are 0 again. It is zero before the first launch and never touched in between. What a block has written before
is seen behind by all: the barrier of the block, then an addition that releases and a load that acquires at the scope
of the GPU (PTX ISA, "Memory Consistency Model": causality order goes through barriers). All blocks have to be on the
GPU at once, which a cooperative launch guarantees. Needs the extra `polyfuse[cuda]`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic

WAIT = """{
.reg .pred other, same;
.reg .u32 x, y, z, blocks, mine, before, now;
mov.u32 x, %tid.x;
mov.u32 y, %tid.y;
mov.u32 z, %tid.z;
or.b32 x, x, y;
or.b32 x, x, z;
setp.ne.u32 other, x, 0;
@other bra MET;
mov.u32 x, %nctaid.x;
mov.u32 y, %nctaid.y;
mov.u32 z, %nctaid.z;
mul.lo.u32 blocks, x, y;
mul.lo.u32 blocks, blocks, z;
mov.u32 x, %ctaid.x;
mov.u32 y, %ctaid.y;
mov.u32 z, %ctaid.z;
or.b32 x, x, y;
or.b32 x, x, z;
setp.ne.u32 other, x, 0;
sub.u32 mine, 0x80000001, blocks;
selp.u32 mine, 1, mine, other;
fence.acq_rel.gpu;
atom.add.acq_rel.gpu.global.u32 before, [$0], mine;
WAITING:
ld.acquire.gpu.global.u32 now, [$0];
xor.b32 now, now, before;
setp.ge.s32 same, now, 0;
@same bra WAITING;
fence.acq_rel.gpu;
MET:
}"""
"""The code between a block's two barriers; all threads but the first go on to the second."""


@intrinsic
def grid_barrier(typingctx: Any, arrivals: Any) -> Any:
    """All threads of all blocks meet; `arrivals` is the address of the counter, one 32-bit integer."""
    if not isinstance(arrivals, types.CPointer):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        meet = builder.module.declare_intrinsic("llvm.nvvm.barrier0", (), ir.FunctionType(ir.VoidType(), ()))
        builder.call(meet, ())
        wait = ir.FunctionType(ir.VoidType(), [args[0].type])
        builder.asm(wait, WAIT, "l,~{memory}", [args[0]], side_effect=True)
        builder.call(meet, ())
        return context.get_dummy_value()

    return types.void(arrivals), codegen
