"""Choose the tensors of halves that products read through a float32 copy."""

from __future__ import annotations

from polyfuse.ir import Nest
from polyfuse.rewrite.storage.widen_halves import why_not_widen, widen
from polyfuse.strategy.remarks import Remark, applied

PASS = "widen halves"


def with_wide_factors(nest: Nest) -> tuple[Nest, tuple[Remark, ...]]:
    """The nest whose products have float32 factors, and a sentence on each; the same nest if there are no halves.

    For a CPU, whose microkernels read one factor where it lies; a GPU converts tiles on their way to shared memory.
    """
    said: list[Remark] = []
    for tensor in nest.tensors:
        if tensor.is_half and why_not_widen(nest, tensor.name) is None:
            done = widen(nest, tensor.name)
            nest = done.nest
            said.append(applied(PASS, done.users, f"{done}."))
    return nest, tuple(said)
