"""A reduction over the lanes of a warp, or a block's warps, as source (lowering/warp_shuffle_reduce.py draws it)."""

from __future__ import annotations

from dataclasses import replace

from polyfuse.analysis.banks import WARP
from polyfuse.codegen.cuda.device_ops import DEVICE_OPS
from polyfuse.codegen.looptree.body_source import Place, Values
from polyfuse.codegen.looptree.emit import INDENT
from polyfuse.codegen.looptree.index import operand
from polyfuse.codegen.looptree.nodes import Element, Lanes, Node, Store, below
from polyfuse.codegen.lowering.warp_shuffle_reduce import READ
from polyfuse.ir.number_types import is_real
from polyfuse.ir.scalar import neutral

FULL_MASK = -1
"""All 32 lanes take part."""


def warps_of(node: Node) -> dict[str, tuple[int, str]]:
    """The shared arrays by which a block's warps combine what they have: how many there are, and of which numbers."""
    if isinstance(node, Lanes) and node.threads > WARP:
        return {_warps(node): (node.threads // WARP, node.partial.dtype)}
    return {name: array for part in below(node) for name, array in warps_of(part).items()}


def _warps(node: Lanes) -> str:
    return f"warps_of_{node.partial.dtype}"


def shuffled(node: Lanes, body: list[str], place: Place, lane: str, again: bool) -> list[str]:
    """The lines: the neutral value, the body, five exchanges (fewer for part of a warp), and what lane 0 does.

    With several warps they meet in between, and before that where they did so `again`: others may still read.
    """
    partial, op = node.partial, node.total.op
    first = neutral(op, partial.dtype)
    first = first.doit() if is_real(partial.dtype) else first
    start = Values(Store("", partial, "=", first, ()), place).lines()
    lines = [
        *start,
        *body,
        *_exchanges(partial, op, min(WARP, node.threads), place, WARP if node.met else node.threads),
    ]
    if node.threads > WARP:
        warps, count, own = _warps(node), node.threads // WARP, f"{lane} & {WARP - 1}"
        lines += ["cuda.syncthreads()"] if again else []
        lines += [f"if {own} == 0:", f"{INDENT}{warps}[{lane} // {WARP}] = {partial.array}"]
        lines += ["cuda.syncthreads()", *start, f"if {own} < {count}:"]
        lines += [f"{INDENT}{partial.array} = {warps}[{own}]"]
        lines += _exchanges(partial, op, 1 << (count - 1).bit_length(), place, WARP)
    only = " and ".join((f"{lane} == 0", *map(operand, node.when)))
    return [*lines, f"if {only}:", *(INDENT + line for line in Values(node.total, place).lines())]


def _exchanges(partial: Element, op: str, among: int, place: Place, here: int) -> list[str]:
    """Each of so many neighbouring lanes, a power of two, gets what all have together; `here` come at once."""
    mask = FULL_MASK if here >= WARP else DEVICE_OPS["lanes_of"].call(count=here)
    other = replace(partial, array=f"{partial.array}_other")
    lines, offset = list[str](), among // 2
    while offset:
        lines.append(f"{other.array} = cuda.shfl_xor_sync({mask}, {partial.array}, {offset})")
        lines += Values(Store("", partial, op, READ, (other,)), place).lines()
        offset //= 2
    return lines
