"""The rewrites of a CUDA kernel between lowering and printing, in the order in which they run.

    loop tree, as lowering builds it (polyfuse.codegen.lowering)
      CUDA_PASSES          loop tree -> loop tree
    source                 (printer.py)
      PTX_PASSES           PTX -> PTX, behind numba and NVVM (compile/ptx/ptx_passes.py)
    machine code

Each pass takes any kernel and returns it as it is where it has nothing to do. What the order is for:

    whole_warps          comes first: it refuses threads that are no warps, and takes guards on threads from around
                         products by tensor cores
    zero_filled_copies   before zero_fill, which puts the guards of such copies into their conditions
    eliminate_guards     comes last: what zero_fill has taken into copies it need not decide

wide_access changes loops over neighbours, warp_sync reductions over lanes, overlap_wgmma loops over slots: none of
these changes what another one of the list looks for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from polyfuse.codegen.cuda.mma_calls import for_whole_warps
from polyfuse.codegen.cuda.rewrites.eliminate_guards import without_decided_guards
from polyfuse.codegen.cuda.rewrites.overlap_wgmma import with_overlapped_products
from polyfuse.codegen.cuda.rewrites.warp_sync import met_by_warps
from polyfuse.codegen.cuda.rewrites.wide_access import with_wide_accesses
from polyfuse.codegen.cuda.rewrites.zero_fill import with_filled_tiles
from polyfuse.codegen.cuda.rewrites.zero_filled_copies import with_padded_copies
from polyfuse.codegen.cuda.tma_calls import bulk_of
from polyfuse.codegen.cuda.wgmma_calls import shown_to_warpgroups
from polyfuse.codegen.looptree.nodes import Kernel


@dataclass(frozen=True)
class Pass:
    """A rewrite of a kernel's loop tree."""

    name: str
    run: Callable[[Kernel], Kernel]


def _decided_around_boxes(kernel: Kernel) -> Kernel:
    """Guards that always hold go where boxes are copied: results are dealt out as instructions have them there."""
    return kernel if bulk_of(kernel) is None else without_decided_guards(kernel)


CUDA_PASSES = (
    Pass("whole_warps", for_whole_warps),
    Pass("show_operands", shown_to_warpgroups),
    Pass("zero_filled_copies", with_padded_copies),
    Pass("wide_access", with_wide_accesses),
    Pass("overlap_wgmma", with_overlapped_products),
    Pass("warp_sync", met_by_warps),
    Pass("zero_fill", with_filled_tiles),
    Pass("eliminate_guards", _decided_around_boxes),
)

After = Callable[[str, Kernel], object]
"""Looks at a kernel, and at the name of what has made it."""


def rewritten(kernel: Kernel, after: After | None = None) -> Kernel:
    """The kernel after all passes; `after` sees it before the first one and behind each, as tests' verifier does."""
    if after is not None:
        after("lowering", kernel)
    for each in CUDA_PASSES:
        kernel = each.run(kernel)
        if after is not None:
            after(each.name, kernel)
    return kernel
