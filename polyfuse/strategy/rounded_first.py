"""Factors that tensor cores take rounded: in a pass of their own before the product, where that is cheaper.

    for i, j, k: y[i, j] += bf16(x[i, k]) * bf16(w[k, j])
    ->  for e: x_narrow[e] = x[e]                                        once an element, in the kernel that computes x
        for i, j, k: y[i, j] += x_narrow[i, k] * w_narrow[k, j]          halves as they lie in memory, copied in boxes

A block that rounds what it copies does so for its own tile: an element of x as often as there are blocks side by side.
Numbers that lie there as halves are copied without a thread (strategy/own_warp_shapes.py), and are half the bytes.
Constants are rounded once for all calls. The values are the same: each factor is rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from polyfuse.ir import Nest
from polyfuse.ir.tensor import DType
from polyfuse.machine import Machine
from polyfuse.rewrite.widen import narrow, why_not_narrow
from polyfuse.strategy.decisions import Plan
from polyfuse.strategy.either import either
from polyfuse.strategy.products_cuda import in_tiles
from polyfuse.strategy.warpgroup_shapes import has_warpgroups

HALVES: dict[str, DType] = {"bf16": "bfloat16", "f16": "float16"}
"""The element type of a format that is stored as it is multiplied."""


@dataclass(frozen=True)
class RoundedFirst:
    """A nest whose products read rounded copies, and a sentence on each."""

    nest: Nest
    products: tuple[str, ...]
    said: tuple[str, ...]


def rounded_first(nest: Nest, machine: Machine) -> RoundedFirst | None:
    """The nest with such copies; None where no product may read one, or tensor cores do not take halves in boxes."""
    if machine.gpu is None or machine.math not in HALVES or not has_warpgroups(machine.gpu, machine.math):
        return None
    half, done, said = HALVES[machine.math], nest, list[str]()
    products = dict[str, None]()
    for tensor in nest.tensors:
        if tensor.dtype == "float32" and why_not_narrow(done, tensor.name, half) is None:
            made = narrow(done, tensor.name, half)
            done, said = made.nest, [*said, str(made)]
            products |= dict.fromkeys(made.users)
    return RoundedFirst(done, tuple(products), tuple(said)) if said else None


def cheaper(usual: Plan, made: RoundedFirst, other: Plan) -> Plan:
    """The plan without copies, or the `other` one that has them, in which each product needs tiles of results: what
    rounds may have come into its kernel.
    """
    if all(in_tiles(other.schedule, name) for name in made.products):
        return either(usual, other, usual.seconds, other.seconds, made.said, "rounded where it is copied")
    refused = (f"not taken, since a product would have no tiles of results: {line}." for line in made.said)
    return replace(usual, recomputed=(*usual.recomputed, *refused))
