"""Fold constant scales into weights wherever possible, because kernels of constants run once for all calls.

A batch norm after a convolution, or a number after a Linear, then costs a call nothing; its offset joins the bias.
"""

from __future__ import annotations

from polyfuse.analysis.once import constant_tensors
from polyfuse.ir import Nest
from polyfuse.ir.tree import statements
from polyfuse.rewrite.reductions.fold_scales import Folded, folded, still_fixed
from polyfuse.strategy.remarks import Remark, applied

PASS = "fold scales"


def with_scales_folded(nest: Nest) -> tuple[Nest, tuple[Remark, ...]]:
    """The nest with constant scales in constant factors, and a sentence on each; the same nest if there are none.

    From the last statement to the first: a chain of scales is one factor.
    """
    said: list[Remark] = []
    fixed = constant_tensors(nest, nest.order)
    for name in reversed(statements(nest.order)):
        done = folded(nest, name, fixed) if name in nest.order.members else None
        if isinstance(done, Folded):
            nest, fixed = done.nest, still_fixed(nest, fixed, done)
            said.append(applied(PASS, (name,), f"{done} (fold=False keeps it)."))
    if said:
        nest.check()
    return nest, tuple(said)
