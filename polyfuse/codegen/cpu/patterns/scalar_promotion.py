"""Reductions of a vector loop in local variables.

    for j: { for r in 0, 1 (unrolled): s[i + r] += A[i + r, j] * x[j] }
    ->  s_0 = s[i]; s_1 = s[i + 1]
        for j: { s_0 += A[i, j] * x[j]; s_1 += A[i + 1, j] * x[j] }
        s[i] = s_0; s[i + 1] = s_1

A vector loop carries nothing but reductions, so nobody else touches s[i] meanwhile; LLVM cannot know that, and would
load and store it in every iteration (a sum of 1000000 products: 1.06 ms against 0.35, one Zen 5 core).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from polyfuse.codegen.looptree.index import mentions, substituted
from polyfuse.codegen.looptree.nodes import Block, Element, For, Node, Store

MOST = 32
"""Statements that unrolled loops are written out to, at most: numba's frontend is slow on many."""


@dataclass(frozen=True)
class Sum:
    """An element that a loop reduces into, and the variable that holds it meanwhile."""

    variable: str
    element: Element
    op: str


@dataclass(frozen=True)
class Gathered:
    """A loop's statements with variables for the elements they reduce into."""

    sums: tuple[Sum, ...]
    stores: tuple[Store, ...]


def gathered(loop: For) -> Gathered | None:
    """A vector loop's statements, its reductions in variables; None if it reduces into nothing that may be held."""
    stores = _written_out(loop.body)
    if stores is None:
        return None
    sums: dict[str, Sum] = {}
    changed: list[Store] = []
    for store in stores:
        if not _may_be_held(loop.variable, store, stores):
            changed.append(store)
            continue
        key = _key(store.target)
        if key not in sums:
            name = f"{store.statement}_{'sum' if store.op == '+=' else 'value'}"
            number = sum(other.variable.startswith(name) for other in sums.values())
            sums[key] = Sum(f"{name}_{number + 1}" if number else name, store.target, store.op)
        changed.append(replace(store, target=Element(sums[key].variable, (), store.target.dtype)))
    return Gathered(tuple(sums.values()), tuple(changed)) if sums else None


def _may_be_held(variable: str, store: Store, stores: tuple[Store, ...]) -> bool:
    """True if a statement reduces into one element, and no other statement of the loop needs its array meanwhile.

    It may read the array itself: if it read the element, the loop would carry more than a reduction.
    """
    if store.op == "=" or _uses(store.target, variable):
        return False
    array = store.target.array
    for other in stores:
        if other is not store and any(read.array == array for read in other.reads):
            return False
        same_form = other.statement == store.statement or _key(other.target) == _key(store.target)
        if other.target.array == array and not (same_form and other.op == store.op):
            return False
    return True


def _written_out(node: Node) -> tuple[Store, ...] | None:
    """The statements of a loop's body, unrolled loops written out; None where there is more than that."""
    found: list[Store] = []
    for store in _stores(node):
        if store is None or len(found) == MOST:
            return None
        found.append(store)
    return tuple(found)


def _stores(node: Node) -> Iterator[Store | None]:
    match node:
        case Store():
            yield node
        case Block(parts):
            for part in parts:
                yield from _stores(part)
        case For(variable, ast.Constant(int(low)), ast.Constant(int(high)), step, "unroll", body):
            for value in range(low, high, step):
                for store in _stores(body):
                    if store is None or not _linear(store.target, variable):
                        yield None
                    else:
                        yield _at(store, variable, value)
        case _:
            yield None


def _key(element: Element) -> str:
    return f"{element.array}[{', '.join(map(ast.unparse, element.subscripts))}]"


def _uses(element: Element, variable: str) -> bool:
    return any(mentions(subscript, variable) for subscript in element.subscripts)


def _linear(element: Element, variable: str) -> bool:
    """True if different values of a variable are different elements, or all of them the same one."""
    if not _uses(element, variable):
        return True
    allowed = ast.BinOp | ast.Add | ast.Sub | ast.Mult | ast.Name | ast.Constant | ast.expr_context
    return all(isinstance(part, allowed) for value in element.subscripts for part in ast.walk(value))


def _at(store: Store, variable: str, value: int) -> Store:
    """A statement for one value of an unrolled loop's variable."""
    values = {variable: ast.Constant(value)}

    def element(old: Element) -> Element:
        return replace(old, subscripts=tuple(substituted(part, values) for part in old.subscripts))

    return replace(
        store,
        target=element(store.target),
        reads=tuple(map(element, store.reads)),
        indices={name: substituted(index, values) for name, index in store.indices.items()},
    )
