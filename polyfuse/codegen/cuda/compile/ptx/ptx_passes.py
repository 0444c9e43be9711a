"""Rewrites of PTX between NVVM and the assembler, in the order in which they run, of kernels with planned registers.

    licm                 moves what stays the same before the loop
    strength_reduction   makes addresses that grow with a counter grow by themselves: licm has moved their other terms
    interleave_copies    places copies among multiply-adds; addresses must be known before the first of them

Other kernels are left as NVVM has them: their loops are counted anew (canonical_loops.py), and addresses follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from polyfuse.codegen.cuda.compile.ptx.interleave_copies import spread_copies
from polyfuse.codegen.cuda.compile.ptx.licm import before_loops
from polyfuse.codegen.cuda.compile.ptx.strength_reduction import running_addresses


@dataclass(frozen=True)
class PtxPass:
    """A rewrite of a kernel's PTX. One that `may_spill` is taken back where registers are too few for it."""

    name: str
    run: Callable[[str], str]
    may_spill: bool = False


PTX_PASSES = (
    PtxPass("licm", before_loops),
    PtxPass("strength_reduction", running_addresses),
    PtxPass("interleave_copies", spread_copies, may_spill=True),
)


def rewritten_ptx(ptx: str) -> tuple[str, str]:
    """PTX after the passes that cost no registers, and after all of them."""
    for each in PTX_PASSES:
        ptx = ptx if each.may_spill else each.run(ptx)
    every = ptx
    for each in PTX_PASSES:
        every = each.run(every) if each.may_spill else every
    return ptx, every
