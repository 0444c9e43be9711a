"""A reduction whose values come from the lanes of a warp: partial results, combined by shuffles.

    for l (lane): for j: s += x[32 * j + l]   ->   partial = 0
                                                   for j: partial += x[32 * j + tx]
                                                   other = shfl_xor(partial, 16); partial += other      and 8, 4, 2, 1
                                                   if tx == 0: s += partial

After the last exchange every lane has the sum of all. All 32 lanes come here together: the axis of lanes is one warp
long, so no condition around the loop tells them apart; those inside it end before the first exchange.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

import sympy

from polyfuse.analysis.banks import WARP
from polyfuse.codegen.emit import INDENT
from polyfuse.codegen.looptree import Block, Element, For, Guard, Lanes, Node, Store, below
from polyfuse.codegen.values import Place, Values
from polyfuse.ir.scalar import REDUCTIONS, Read

FULL_MASK = -1
"""All 32 lanes take part."""

READ = Read("read0")


def over_lanes(body: Node, partial: Element, lane: str) -> Lanes:
    """The stores of a loop over lanes made to go to `partial`, and the one that lane 0 runs when all are done."""
    found = list(_stores(body))
    (target,) = {ast.dump(_as_tuple(store)): store.target for store in found}.values()
    inside = {lane, *_variables(body)}
    used = {n.id for index in target.subscripts for n in ast.walk(index) if isinstance(n, ast.Name)}
    assert not inside & used, f"{target.array} is one element for all lanes"
    total = Store(found[0].statement, target, found[0].op, READ, (partial,))
    return Lanes(partial, _redirected(body, partial), total)


def _as_tuple(store: Store) -> ast.expr:
    return ast.Tuple([ast.Name(store.target.array), *store.target.subscripts])


def _stores(node: Node) -> Iterator[Store]:
    if isinstance(node, Store):
        yield node
    for part in below(node):
        yield from _stores(part)


def _variables(node: Node) -> Iterator[str]:
    if isinstance(node, For):
        yield node.variable
    for part in below(node):
        yield from _variables(part)


def _redirected(node: Node, partial: Element) -> Node:
    match node:
        case Store():
            return replace(node, target=partial)
        case Block(parts):
            return Block(tuple(_redirected(part, partial) for part in parts))
        case For():
            return replace(node, body=_redirected(node.body, partial))
        case Guard(_, body, otherwise):
            other = None if otherwise is None else _redirected(otherwise, partial)
            return replace(node, body=_redirected(body, partial), otherwise=other)
    raise AssertionError(f"a loop over lanes holds a {type(node).__name__}")


def shuffled(node: Lanes, body: list[str], place: Place, lane: str) -> list[str]:
    """The lines: the neutral value, the body, five exchanges, and what lane 0 does."""
    partial, op = node.partial, node.total.op
    other = replace(partial, array=f"{partial.array}_other")
    neutral = REDUCTIONS[op][1]
    start = Store("", partial, "=", sympy.Float(neutral) if abs(neutral) <= 1 else sympy.sympify(neutral), ())
    lines = [*Values(start, place).lines(), *body]
    offset = WARP // 2
    while offset:
        lines.append(f"{other.array} = cuda.shfl_xor_sync({FULL_MASK}, {partial.array}, {offset})")
        lines += Values(Store("", partial, op, READ, (other,)), place).lines()
        offset //= 2
    return [*lines, f"if {lane} == 0:", *(INDENT + line for line in Values(node.total, place).lines())]
