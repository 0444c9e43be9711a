"""Reductions of a vector loop, and elements that a loop reads again and again, in local variables.

    for j: { for r in 0, 1 (unrolled): s[i + r] += A[i + r, j] * x[j] }
    ->  s_0 = s[i]; s_1 = s[i + 1]
        for j: { s_0 += A[i, j] * x[j]; s_1 += A[i + 1, j] * x[j] }
        s[i] = s_0; s[i + 1] = s_1

A vector loop carries nothing but reductions, so nobody else touches s[i] meanwhile; LLVM cannot know that, and would
load and store it in every iteration (a sum of 1000000 products: 1.06 ms against 0.35, one Zen 5 core).

    for j > k: t[i, j] = max(t[i, j], t[i, k] + t[k + 1, j])
    ->  kept = t[i, k]; for j > k: t[i, j] = max(t[i, j], kept + t[k + 1, j])

    for j: p[i, j] = min(p[i, j], p[i, k] + p[k, j])                one value of j writes what the others read
    ->  j < k, j = k and j > k apart, the first and the last with p[i, k] in a variable

Here, LLVM compares the places in memory of all that the loop around reads with all that it writes, finds that they
overlap, as t[i, k] for every k is where t[i, j] lies, and takes the loop one number at a time.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from polyfuse.codegen.looptree.half_types import held_as
from polyfuse.codegen.looptree.index import mentions, plus, substituted
from polyfuse.codegen.looptree.intervals import Ranges, interval
from polyfuse.codegen.looptree.leading_reference import distance
from polyfuse.codegen.looptree.nodes import Block, Element, For, Node, Store, nodes_in, stores_in, variables
from polyfuse.codegen.looptree.product import axis, growth, parts_of

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


# -- elements that a loop reads alone ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeptReads:
    """A loop with variables for elements that it reads alone, and what they hold."""

    values: tuple[tuple[str, Element], ...]
    loop: For


def kept_reads(loop: For, unused: Callable[[str], str]) -> KeptReads | None:
    """An innermost loop with what it reads in one place of an array that it writes elsewhere; None without that."""
    stores = _statements(loop)
    names: dict[str, tuple[str, Element]] = {}
    for read in _in_one_place(loop, stores):
        if str(read) not in names and all(_apart(read, s.target, loop) for s in _of(read, stores)):
            names[str(read)] = unused(f"{read.array}_kept{f'_{len(names) + 1}' if names else ''}"), read
    if not names:
        return None

    def kept(read: Element) -> Element:
        return Element(names[str(read)][0], (), read.dtype) if str(read) in names else read

    def changed(node: Node) -> Node:
        if isinstance(node, Block):
            return Block(tuple(map(changed, node.parts)))
        return replace(node, reads=tuple(map(kept, node.reads))) if isinstance(node, Store) else node

    return KeptReads(tuple(names.values()), replace(loop, body=changed(loop.body)))


def around_one_value(loop: For, ranges: Ranges) -> tuple[For, For, For] | None:
    """A loop before, at and after the one value at which it writes what it reads at all others; None if there is none.

    for j: p[i, j] = p[i, k] + p[k, j]   ->   for j < k, for j = k, for j > k
    for i: for j: the same               ->   for i < k, for i = k, for i > k
    """
    inner = loop
    while isinstance(inner.body, For) and inner.bind is None:
        inner = inner.body
    inside = variables(loop.body)
    store = inner.body
    if not isinstance(store, Store) or loop.step != 1 or loop.bind is not None:
        return None
    if axis(store.target, inner) != len(store.target.subscripts) - 1:
        return None
    for read in _in_one_place(loop, (store,)):
        at = _meets(read, store.target, loop)
        if at is not None and not any(mentions(at, variable) for variable in inside):
            behind = plus(at, 1)
            return (
                replace(loop, high=_bound("min", loop.high, at, ranges)),
                replace(
                    loop,
                    low=_bound("max", loop.low, at, ranges),
                    high=_bound("min", loop.high, behind, ranges),
                ),
                replace(loop, low=_bound("max", loop.low, behind, ranges)),
            )
    return None


def _statements(loop: For) -> tuple[Store, ...]:
    """The stores of an innermost loop; none where there is more in it."""
    plain = all(isinstance(node, Block | Store) for node in nodes_in(loop.body))
    return tuple(stores_in(loop.body)) if plain else ()


def _in_one_place(loop: For, stores: tuple[Store, ...]) -> list[Element]:
    """Elements of arrays that stores write, which they read in one place all along."""
    written = {s.target.array for s in stores}
    return [
        read
        for s in stores
        for read in s.reads
        if read.array in written and read.subscripts and held_as(read.dtype) == read.dtype
        if not _uses(read, loop.variable)
    ]


def _of(read: Element, stores: tuple[Store, ...]) -> list[Store]:
    return [s for s in stores if s.target.array == read.array]


def _apart(read: Element, target: Element, loop: For) -> bool:
    """True if an element is none that a loop writes: along some axis it lies before all of these, or behind."""
    return any(_is_off(r, t, loop) for r, t in zip(read.subscripts, target.subscripts, strict=True))


def _is_off(read: ast.expr, target: ast.expr, loop: For) -> bool:
    by = growth(target, loop)
    if by is None:
        return False
    if by == 0:
        return bool(distance(target, read))
    lows = parts_of(loop.low, "max")
    highs = [plus(part, -1) for part in parts_of(loop.high, "min")]
    least, most = (lows, highs) if by > 0 else (highs, lows)

    def at(value: ast.expr) -> int:
        return distance(substituted(target, {loop.variable: value}), read) or 0

    return any(at(value) > 0 for value in least) or any(at(value) < 0 for value in most)


def _meets(read: Element, target: Element, loop: For) -> ast.expr | None:
    """The value of a loop's variable at which its store writes an element; None if that is not known."""
    found = None
    for r, t in zip(read.subscripts, target.subscripts, strict=True):
        if isinstance(t, ast.Name) and t.id == loop.variable:
            found = r
        elif mentions(t, loop.variable) or distance(t, r) != 0:
            return None
    return None if found is None or _is_off(found, ast.Name(loop.variable), loop) else found


def _bound(of: str, one: ast.expr, other: ast.expr, ranges: Ranges) -> ast.expr:
    """min(a, b) or max(a, b), as the one of them that it is known to be."""
    apart = interval(ast.BinOp(one, ast.Sub(), other), ranges)
    first, second = (one, other) if of == "min" else (other, one)
    if apart.high is not None and apart.high <= 0:
        return first
    if apart.low is not None and apart.low >= 0:
        return second
    return ast.Call(ast.Name(of), [one, other], [])
