"""Overlap wgmma products: each begins before the previous one has ended, so that tensor cores do not idle.

    for k: { await_full(k); tile_wgmma_bf16(…); hand_back(k) }
    ->  for k but the last: { await_full(k); begin_wgmma_bf16(…); all but these have ended; if k > 0: hand_back(k - 1) }
        for the last k: { await_full(k); tile_wgmma_bf16(…); hand_back(k - 1); hand_back(k) }

The last product's instructions and the wait for all are one piece of assembly. With the wait behind the loop ptxas
(CUDA 13) moves what reads the sums before it: 32 roundings of 2 × 32 results of whole tiles.

A slot is given back an iteration later, so there have to be two at least: the warp that copies fills the next one
without it. The instructions add to the same registers in order (PTX ISA, "wgmma.mma_async": accumulators of one shape).
"""

from __future__ import annotations

import ast
from dataclasses import replace

from polyfuse.codegen.cuda.wgmma_calls import without_waiting
from polyfuse.codegen.looptree.nodes import (
    AwaitBefore,
    Block,
    For,
    Guard,
    Handover,
    Kernel,
    Node,
    stores_in,
    with_below,
)
from polyfuse.codegen.looptree.operations import TileProduct


def with_overlapped_products(kernel: Kernel) -> Kernel:
    """The kernel in whose loops over slots each product begins before the one before has ended."""
    return replace(kernel, body=_overlapped(kernel.body))


def _overlapped(node: Node) -> Node:
    new = with_below(node, _overlapped)
    match new:
        case For(
            low=ast.Constant(value=int(low)),
            high=ast.Constant(value=int(high)),
            body=Block(
                (Handover(what="await_full") as full, product, Handover(what="hand_back") as back, on)
            ),
        ) if full.slots > 1 and high - low > 1 and _is_product(product):
            before = replace(back, late=True)
            later = ast.Compare(ast.Name(new.variable), [ast.Gt()], [new.low])
            ends = AwaitBefore(), Guard(later, before), on
            most = Block((full, without_waiting(product), *ends))
            last = Block((full, product, before, back, on))
            end = ast.Constant(high - 1)
            return Block((replace(new, high=end, body=most), replace(new, low=end, body=last)))
    return new


def _is_product(node: Node) -> bool:
    """True if a node is a warpgroup's product, and nothing else."""
    operations = [store.operation for store in stores_in(node)]
    return len(operations) == 1 and isinstance(operations[0], TileProduct) and operations[0].by_warpgroup
