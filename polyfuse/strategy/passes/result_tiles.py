"""Change the nest so that products on a GPU get tiles of results: split-k and private accumulators.

    C += a * b   ->   C_parts[p] += a * b;  C += C_parts[p]          (split_k.py)
    C += a * b   ->   C_sum += a * b;  C = C_sum                      (private_accumulator.py)

Whether a product gets tiles is known once its kernel has its shape. So each form is planned, and one that leaves a
product without tiles gives way to the next: first parts, then sums apart, of fewer and fewer products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from polyfuse.machine import GpuMachine
from polyfuse.strategy.claims import Claims
from polyfuse.strategy.cuda.gemm.schedule import in_tiles
from polyfuse.strategy.driver import Start
from polyfuse.strategy.plan import Plan
from polyfuse.strategy.remarks import Reason, Remark
from polyfuse.strategy.rewrites.private_accumulator import PASS as PRIVATE_ACCUMULATOR
from polyfuse.strategy.rewrites.private_accumulator import summed_apart
from polyfuse.strategy.rewrites.split_k import PASS as SPLIT_K
from polyfuse.strategy.rewrites.split_k import in_parts


def with_result_tiles(
    start: Start, planned: Callable[[Start], Plan]
) -> tuple[Plan | None, tuple[Remark, ...]]:
    """The plan for a nest whose products are changed for tiles.

    Args:
        start: on a GPU.
        planned: makes the plan for a changed start.

    Returns:
        The plan, and nothing more to say; or None if there is no such plan, and remarks on the parts for which no
        tiles of results were found. Sums that get no tiles stay where they are.
    """
    machine = start.model_machine
    assert isinstance(machine, GpuMachine), "tiles of results are a GPU's"
    parted = in_parts(start.nest, machine, start.choose) if start.choose.asks(SPLIT_K) else None
    refused = tuple[Remark, ...]()
    for split in (parted, None) if parted is not None else (None,):
        nest, summing, told = (
            (start.nest, (), ()) if split is None else (split.nest, split.products, split.remarks)
        )
        shared = {} if split is None else split.shared
        stay = frozenset[str]()
        apart = start.choose.asks(PRIVATE_ACCUMULATOR)
        summed = summed_apart(nest) if apart else None
        while summing or summed is not None:
            changed, own = (nest, ()) if summed is None else (summed.nest, summed.products)
            other = replace(start, nest=changed, claims=Claims(changed, shared=shared))
            plan = planned(other.with_remarks(*refused, *told))
            lost = {name for name in (*summing, *own) if not in_tiles(plan.schedule, name)}
            if not lost:
                return plan, ()
            if not lost.isdisjoint(summing):
                break
            stay |= lost
            summed = summed_apart(nest, stay)
        refused = (*refused, *map(_without_tiles, told))
    return None, refused


def _without_tiles(remark: Remark) -> Remark:
    """The remark on parts that are not taken, since what sums one up has no tiles."""
    text = f"not taken, since its kernel has no tiles of results: {remark}"
    return replace(remark, taken=False, reason=Reason.NO_TILES, text=text)
