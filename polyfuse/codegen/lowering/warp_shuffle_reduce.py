"""Lower reductions over a warp's lanes or a block's warps: partial results, combined by shuffles.

    for l (lane): for j: s += x[32 * j + l]   ->   partial = 0
                                                   for j: partial += x[32 * j + tx]
                                                   other = shfl_xor(partial, 16); partial += other      and 8, 4, 2, 1
                                                   if tx == 0: s += partial

After the last exchange every lane has the sum of all. All 32 lanes come here together: the axis of lanes is whole warps
long, so no condition around the loop tells them apart; those inside it end before the first exchange. Where it is 4, 8
or 16 long, a warp has several rows: all come together, or each row's lanes exchange among themselves, lanes_of(16) in
place of -1 (warp_sync.py). Where it is several warps long, each leaves what it has in shared memory, they meet,
and each warp combines what all have:

    if tx & 31 == 0: warps[tx >> 5] = partial
    syncthreads()
    partial = 0;  if tx & 31 < 8: partial = warps[tx & 31]
    other = shfl_xor(partial, 4); partial += other                                                    and 2, 1
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeGuard

from polyfuse.codegen.looptree.index import mentions
from polyfuse.codegen.looptree.nodes import (
    Block,
    Element,
    For,
    Guard,
    Lanes,
    Node,
    Store,
    below,
    stores_in,
    with_below,
)
from polyfuse.ir.scalar import Read

READ = Read("read0")


def over_lanes(body: Node, partial: Element, lane: str, threads: int) -> Lanes:
    """The stores of a loop over lanes made to go to `partial`, and the one that lane 0 runs when all are done."""
    found = list(stores_in(body))
    (target,) = {ast.dump(_as_tuple(store)): store.target for store in found}.values()
    inside = {lane, *_variables(body)}
    used = {n.id for index in target.subscripts for n in ast.walk(index) if isinstance(n, ast.Name)}
    assert not inside & used, f"{target.array} is one element for all lanes"
    total = Store(found[0].statement, target, found[0].op, READ, (partial,))
    when = (c for c in _conditions(body) if not any(mentions(c, name) for name in inside))
    return Lanes(partial, _redirected(body, partial), total, threads, tuple(when))


def _conditions(node: Node) -> tuple[ast.expr, ...]:
    """The conditions of all stores inside a node: without a row, lane 0 has no sum to store.

    Another part of the launch may have more of them: if ty == 0: partial += …  ->  if tx == 0 and ty == 0: s += partial
    """
    if isinstance(node, Guard) and node.otherwise is None:
        own = node.condition.values if _is_all_of(node.condition) else [node.condition]
        return (*own, *_conditions(node.body))
    first, *others = [_conditions(part) for part in below(node) if any(stores_in(part))] or [()]
    every = [set(map(ast.dump, other)) for other in others]
    return tuple(condition for condition in first if all(ast.dump(condition) in other for other in every))


def _is_all_of(condition: ast.expr) -> TypeGuard[ast.BoolOp]:
    return isinstance(condition, ast.BoolOp) and isinstance(condition.op, ast.And)


def _as_tuple(store: Store) -> ast.expr:
    return ast.Tuple([ast.Name(store.target.array), *store.target.subscripts])


def _variables(node: Node) -> Iterator[str]:
    if isinstance(node, For):
        yield node.variable
    for part in below(node):
        yield from _variables(part)


def _redirected(node: Node, partial: Element) -> Node:
    match node:
        case Store():
            return replace(node, target=partial)
        case Block() | For() | Guard():
            return with_below(node, lambda part: _redirected(part, partial))
    raise AssertionError(f"a loop over lanes holds a {type(node).__name__}")
