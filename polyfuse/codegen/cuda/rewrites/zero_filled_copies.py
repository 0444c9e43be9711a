"""Zero-filled copies in the loop tree: clearing an element and filling it become one operation.

    if a: t[i] = 0                    ->   if a: copy_padded(t, i, x, j, b)
    if a: if b: t[i] = x[j]

Neighbours that are loaded and rounded together are one operation too, under a condition that is the same for all:

    for l: { if a: t[i + l] = 0;  if a: if b: t[i + l] = x[j + l] }
    ->  if a: pad_rounded_bf16(4, t, i, 4, 4, x, j, b)

One store in place of two, and no registers for the places of both: 128 hold a convolution's 8 x 8 results then.

A copy that goes on while its thread does other things brings its zeros along (`pad_ahead`): nothing orders it behind a
store of the same thread. Where zeros are stored by themselves the thread waits for its copies of that buffer.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from polyfuse.codegen.looptree.guards import all_of, conditions_around, guarded
from polyfuse.codegen.looptree.nodes import Block, Kernel, Node, PaddedCopy, Store, below, block, with_below
from polyfuse.codegen.looptree.operations import VectorCopy


def with_padded_copies(kernel: Kernel) -> Kernel:
    """The kernel with such pairs joined."""
    body = _joined(kernel.body)
    return replace(kernel, body=_waiting(body, frozenset(_stored(body)) & frozenset(_asked(body))))


def _stored(node: Node) -> Iterator[str]:
    """The arrays that a thread stores to."""
    match node:
        case Store(operation=VectorCopy(ahead=True) | PaddedCopy(ahead=True)):
            return
        case Store(target=target):
            yield target.array
    for part in below(node):
        yield from _stored(part)


def _asked(node: Node) -> Iterator[str]:
    """The arrays to which copies are on their way while their thread does other things."""
    match node:
        case Store(target=target, operation=VectorCopy(ahead=True) | PaddedCopy(ahead=True)):
            yield target.array
    for part in below(node):
        yield from _asked(part)


def _waiting(node: Node, buffers: frozenset[str]) -> Node:
    """A node whose copies to some buffers are waited for at once."""
    match node:
        case Block(parts):
            return block(tuple(_waiting(part, buffers) for part in parts))
        case Store(operation=VectorCopy(ahead=True) as copy) if node.target.array in buffers:
            return replace(node, operation=replace(copy, ahead=False))
        case Store(operation=PaddedCopy(here, VectorCopy(ahead=True) as copy)) if (
            node.target.array in buffers
        ):
            return replace(node, operation=PaddedCopy(here, replace(copy, ahead=False)))
    return with_below(node, lambda part: _waiting(part, buffers))


def _joined(node: Node) -> Node:
    match node:
        case Block(parts):
            done: list[Node] = []
            for part in map(_joined, parts):
                pair = _pair(done[-1], part) if done else None
                done[-1:] = [*done[-1:], part] if pair is None else [pair]
            return block(tuple(done))
    return with_below(node, _joined)


def _pair(first: Node, second: Node) -> Node | None:
    """Two stores to one element, zero and then a copy under further conditions, as one."""
    (outside, clear), (inside, copy) = conditions_around(first), conditions_around(second)
    match clear, copy:
        case Store(op="=", body=zero), Store(operation=VectorCopy() as single) if zero.is_zero:
            pass
        case _:
            return None
    known = {ast.dump(condition) for condition in outside}
    further = [condition for condition in inside if ast.dump(condition) not in known]
    if _text(clear) != _text(copy) or not further or len(inside) - len(further) != len(outside):
        return None
    return guarded(outside, replace(copy, operation=PaddedCopy(all_of(further), single)))


def _text(store: Store) -> tuple[str, ...]:
    return (store.target.array, *map(ast.dump, store.target.subscripts))
