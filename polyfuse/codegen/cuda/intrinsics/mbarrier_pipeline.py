"""Device operations of a pipeline on mbarriers: a warp that only copies, and the warps that use its copies.

    begin_handover   mbarrier.init of two barriers a slot: full, one arrival and bytes; free, one arrival a warp of the
                     others
    await_free       the warp that copies: mbarrier.try_wait.parity until its next slot is free; the first ones are
    hand_over        mbarrier.arrive: all that it has asked for in this slot is to be waited for
    await_full       the others: until their next slot is full, its bytes too
    hand_back        mbarrier.arrive, one thread of each warp: it has used the slot

Slots are counted by both sides, and slot n is on barriers n mod slots, in phase n // slots of them: a barrier whose
current phase has another parity has ended the one that is waited for (producer_consumer.py says why that is so).
Needs the extra `polyfuse[cuda]`.
"""

from __future__ import annotations

from typing import Any

from numba.cuda import types
from numba.cuda.extending import intrinsic

from polyfuse.codegen.cuda.intrinsics.tile_fma import INT, assembly
from polyfuse.codegen.cuda.intrinsics.tma import FIRST, WAIT, WORD, barrier_of
from polyfuse.layouts.swizzle import BARRIER_BYTES

LANE_ZERO = "{ .reg .pred zero; .reg .b32 lane;\nmov.u32 lane, %laneid; setp.eq.u32 zero, lane, 0;\n@zero "
"""One thread of a warp does what follows."""


@intrinsic
def begin_handover(typingctx: Any, slots: Any, warps: Any, arrivals: Any) -> Any:
    """Make two barriers a slot in an array in shared memory; `slots`, and how many `warps` hand back, are literals."""
    if not all(isinstance(value, types.IntegerLiteral) for value in (slots, warps)):
        return None
    count, users = slots.literal_value, warps.literal_value

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        made = "".join(
            f"@first mbarrier.init.shared::cta.b64 [$0+{BARRIER_BYTES * n}], {1 if n < count else users};\n"
            for n in range(2 * count)
        )
        seen = "fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;\n}"
        first = barrier_of(context, builder, sig, args, 2, INT(0), 1)
        assembly(builder, FIRST + made + seen, "r", [first])
        return context.get_dummy_value()

    return types.void(slots, warps, arrivals), codegen


def _waiting(free: bool) -> Any:
    """The intrinsic that waits for a slot, until it is free or until it is full."""

    @intrinsic
    def await_slot(typingctx: Any, slots: Any, arrivals: Any, number: Any) -> Any:
        """Wait for slot `number`, counted from 0; each thread for itself. `slots` is a literal."""
        if not isinstance(slots, types.IntegerLiteral):
            return None
        count = slots.literal_value

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            slot = context.cast(builder, args[2], sig.args[2], types.int64)
            place = barrier_of(context, builder, sig, args, 1, slot, count, count if free else 0)
            phase = builder.and_(builder.udiv(slot, INT(count)), INT(1))
            # a slot is free from the beginning: the phase before the first counts as over
            parity = builder.xor(phase, INT(1)) if free else phase
            assembly(builder, WAIT, "r,r", [place, builder.trunc(parity, WORD)])
            return context.get_dummy_value()

        return types.void(slots, arrivals, types.int64), codegen

    return await_slot


def _giving(back: bool) -> Any:
    """The intrinsic that gives a slot to the other side."""

    @intrinsic
    def give_slot(typingctx: Any, slots: Any, arrivals: Any, number: Any) -> Any:
        """Arrive at slot `number`, counted from 0: one thread of each warp that hands back. `slots` is a literal."""
        if not isinstance(slots, types.IntegerLiteral):
            return None
        count = slots.literal_value

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            slot = context.cast(builder, args[2], sig.args[2], types.int64)
            place = barrier_of(context, builder, sig, args, 1, slot, count, count if back else 0)
            arrive = "mbarrier.arrive.shared::cta.b64 _, [$0];"
            assembly(builder, f"{LANE_ZERO}{arrive}\n}}" if back else arrive, "r", [place])
            return context.get_dummy_value()

        return types.void(slots, arrivals, types.int64), codegen

    return give_slot


await_free, await_full = _waiting(True), _waiting(False)
hand_back, hand_over = _giving(True), _giving(False)
