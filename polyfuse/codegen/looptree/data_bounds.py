"""Loops of which data say what iterations do anything: they run those alone.

    for b in range(B): h[b] += w[i] if idx[i] == b else 0
    ->  at = idx[i]; if 0 <= at and at < B: { b = at; h[b] += w[i] }

    for k in range(Z): y[i] += a[k] if ptr[i] <= k and k < ptr[i + 1] else 0
    ->  begin = ptr[i]; end = ptr[i + 1] - 1; for k in range(max(0, begin), min(Z, end + 1)): y[i] += a[k]

    for i in range(k + 1, N): for j: { t = A[k, j]; A[k, j] = A[i, j] if i == p else A[k, j]; A[i, j] = t if i == p … }
    ->  at = p; if k + 1 <= at and at < N: { i = at; for j: { t = A[k, j]; A[k, j] = A[i, j]; A[i, j] = t } }

The data are integers, those that the kernel computes itself too, as the bounds are asked for: p is a pivot's row. Of
int64 that no call has checked they say one iteration, and no end: end + 1 could overflow.

The loop as it was says exactly what the program means, so that dependences and proofs know nothing of data: what an
iteration may write are all elements. Here, behind all proofs, iterations that change nothing are left out. That is
sound where every store in the loop keeps what was there unless the same comparisons of the loop's index hold, and the
loop changes no operand of these comparisons. The neutral 0 that is no longer added would have turned -0.0 into 0.0.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import sympy

from polyfuse.codegen.looptree.gather_rows import chosen
from polyfuse.codegen.looptree.guards import same
from polyfuse.codegen.looptree.index import binary, mentions
from polyfuse.codegen.looptree.nodes import (
    Allocate,
    Block,
    Element,
    For,
    Guard,
    Kernel,
    Let,
    Node,
    Store,
    block,
    nodes_in,
    stores_in,
    surely_runs,
    variables,
    with_below,
)
from polyfuse.codegen.looptree.rename import renamed
from polyfuse.ir.expression import call
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.masks import Mask, comparison, mask_of
from polyfuse.ir.number_types import ITEMSIZE, is_integer
from polyfuse.ir.scalar import And, Select

IN_ORDER = (None, "vector", "unroll")
"""The loops whose iterations may be left out: others share them out among cores or threads."""


WIDE = 8
"""Bytes of integers of which one more, or so many less, may be another number than in the program: they are computed
as int64, and LLVM may take it that nothing overflows."""

Places = Mapping[str, bool]
"""Arrays and buffers of integers: True if all their numbers may be ends of loops, with something added. Others are only
asked for one iteration: whether a number is among a loop's needs no addition to it."""


@dataclass(frozen=True)
class Bound:
    """One comparison `variable + rest (== < <= > >=) load` of a loop's variable."""

    kind: type[sympy.Basic]
    rest: ast.expr
    load: ast.expr

    @property
    def key(self) -> tuple[str, str, str]:
        """The text by which two bounds are compared."""
        return self.kind.__name__, ast.unparse(self.rest), ast.unparse(self.load)


def with_data_bounds(kernel: Kernel) -> Kernel:
    """The kernel with loops that run only the iterations which data ask for."""
    made = [part for part in nodes_in(kernel.body) if isinstance(part, Allocate)]
    dtypes = {name: tensor.dtype for name, tensor in kernel.arrays.items()}
    dtypes |= {part.buffer: part.dtype for part in made}
    checked = {name for name, tensor in kernel.arrays.items() if tensor.is_checked}
    places = {
        name: name in checked or ITEMSIZE[dtype] < WIDE
        for name, dtype in dtypes.items()
        if is_integer(dtype) and (name in checked or dtype != "uint64")  # int64 has not all of these
    }
    if not places:
        return kernel
    taken = {*kernel.arrays, *kernel.sizes, *variables(kernel.body)}
    buffers = {part.buffer for part in made}
    uses = {name: count for name, count in _uses(kernel.body).items() if name in buffers}
    loops = Counter(part.variable for part in nodes_in(kernel.body) if isinstance(part, For))
    shared = {name for name, count in loops.items() if count > 1}
    body = _Bounding(taken, places, uses, shared).node(kernel.body)
    return kernel if body is kernel.body else replace(kernel, body=body)


class _Bounding:
    """Walks from the innermost loops outwards.

    `uses` says how many stores touch each buffer. Of `shared` variables several loops have the name: the one that a
    single iteration gets is another, as a kernel's variable is either a loop's or has a value of its own.
    """

    def __init__(self, taken: set[str], places: Places, uses: Mapping[str, int], shared: set[str]) -> None:
        self.taken, self.places, self.uses, self.shared = taken, places, uses, shared
        self.named: set[str] = set()

    def node(self, node: Node) -> Node:
        """The node with bounds from data in all loops inside."""
        if not any(masked(store) for store in stores_in(node)):
            return node
        node = with_below(node, self.node)
        if not isinstance(node, For) or node.bind not in IN_ORDER or node.step != 1:
            return node
        return self._bounded(node) or self._hoisted(node) or node

    def _bounded(self, loop: For) -> Node | None:
        """The loop with the bounds that all its stores have in common; None if there are none."""
        found = common_bounds(loop, self.places, self._private(loop))
        if not found:
            return None
        body = _without(loop.body, {bound.key for bound in found}, loop.variable, self.places)
        equal = next((bound for bound in found if bound.kind is sympy.Eq), None)
        if equal is not None:
            return self._single(loop, equal, _guarded(loop, [b for b in found if b is not equal], body))
        lets: list[Node] = []
        low, high = loop.low, loop.high
        for bound in found:
            name = self._let("end", bound.load, lets)
            limit = binary(ast.Sub(), ast.Name(name), bound.rest)
            if bound.kind in (sympy.Gt, sympy.Le):
                limit = binary(ast.Add(), limit, ast.Constant(1))
            if bound.kind in (sympy.Ge, sympy.Gt):
                low = call("max", [low, limit])
            else:
                high = call("min", [high, limit])
        return _if_it_runs(loop, block((*lets, replace(loop, low=low, high=high, body=body))))

    def _private(self, loop: For) -> frozenset[str]:
        """The buffers whose values live in one iteration of a loop."""
        inside = _uses(loop.body)
        return frozenset(
            name
            for name, count in self.uses.items()
            if inside[name] == count and _is_set_first(loop.body, name)
        )

    def _single(self, loop: For, bound: Bound, body: Node) -> Node:
        """The one iteration that an equality leaves."""
        lets: list[Node] = []
        name = self._let("at", bound.load, lets)
        low, high = (binary(ast.Add(), end, bound.rest) for end in (loop.low, loop.high))
        ends = (
            ast.Compare(low, [ast.LtE()], [ast.Name(name)]),
            ast.Compare(ast.Name(name), [ast.Lt()], [high]),
        )
        inside = ast.BoolOp(ast.And(), list(ends))
        variable = loop.variable
        if variable in self.shared:
            variable = fresh(variable, self.taken)
            self.taken.add(variable)
            body = renamed(body, {loop.variable: variable}, {})
        here = Let(variable, binary(ast.Sub(), ast.Name(name), bound.rest))
        return _if_it_runs(loop, block((*lets, Guard(inside, block((here, body))))))

    def _let(self, stem: str, value: ast.expr, into: list[Node]) -> str:
        name = fresh(stem, self.taken)
        self.taken.add(name)
        self.named.add(name)
        into.append(Let(name, value))
        return name

    def _hoisted(self, loop: For) -> Node | None:
        """for j: { at = idx[i]; if …: … }  ->  at = idx[i]; if …: for j: …      where j has no part in it."""
        runs, body = loop.body, loop.body
        if isinstance(body, Guard) and body.otherwise is None:
            body = body.body
        match body:
            case Block((Let(name, value) as let, Guard(condition, inside, None) as guard)) if (
                name in self.named
            ):
                pass
            case _:
                return None
        fixed = [value, condition, *([runs.condition] if isinstance(runs, Guard) else [])]
        if any(mentions(part, loop.variable) for part in fixed) or _changes(inside, value):
            return None
        moved = block((let, replace(guard, body=replace(loop, body=inside))))
        if isinstance(runs, Guard):
            moved = replace(runs, body=moved)
        return _if_it_runs(loop, moved)


def masked(store: Store) -> Mask | None:
    """The conditions without which a store changes nothing; None if it has none."""
    if store.operation is not None:
        return None
    return mask_of(store.op, store.body, lambda read: str(store.reads[read.position]) == str(store.target))


def common_bounds(loop: For, places: Places, private: frozenset[str]) -> list[Bound]:
    """The comparisons of a loop's variable without which none of its stores changes anything but private variables."""
    allowed = (Block, For, Guard, Allocate, Store, Let)
    if not all(isinstance(part, allowed) for part in nodes_in(loop)):
        return []
    inner = variables(loop.body) | {loop.variable}
    found: list[Bound] | None = None
    for store in stores_in(loop.body):
        if store.target.array in private:
            continue
        mask = masked(store)
        bounds = [] if mask is None else [_bound(part, store, loop.variable, places) for part in mask.parts]
        known = {bound.key: bound for bound in bounds if bound is not None}
        found = [b for b in (known.values() if found is None else found) if b.key in known]
    return [
        bound
        for bound in found or ()
        if not any(mentions(part, name) for name in inner for part in (bound.rest, bound.load))
        and not _changes(loop.body, bound.load)
    ]


def _uses(node: Node) -> Counter[str]:
    """How many stores touch each array."""
    return Counter(name for store in stores_in(node) for name in _touched(store))


def _touched(store: Store) -> set[str]:
    return {store.target.array, *(read.array for read in store.reads)}


def _is_set_first(node: Node, array: str) -> bool:
    """True if a loop's body assigns a buffer before anything in it reads it, in every iteration.

    s = x[i, k]; y[i] = s + 1        for j < n: t[j] = x[k, j]; for j < n: x[i, j] = t[j]
    """
    parts = node.parts if isinstance(node, Block) else (node,)
    rows = [part for part in parts if array in _uses(part)]
    first = rows[0]
    if isinstance(first, For) and len(rows) == 1:
        return _is_set_first(first.body, array)
    if isinstance(first, For):
        if not all(isinstance(row, For) and _goes_along(row, first, array) for row in rows):
            return False
        first = first.body
    elif isinstance(first, Store) and first.target.subscripts:
        return False
    if not isinstance(first, Store) or first.op != "=":
        return False
    return first.target.array == array and all(read.array != array for read in first.reads)


def _goes_along(row: For, first: For, array: str) -> bool:
    """True if a loop has the bounds of another, and its index as the one subscript of a buffer."""
    ends = all(same(a, b) for a, b in ((row.low, first.low), (row.high, first.high)))
    touched = [e for store in stores_in(row) for e in (store.target, *store.reads) if e.array == array]
    return ends and row.step == first.step and all(_is_at(e, row.variable) for e in touched)


def _is_at(element: Element, variable: str) -> bool:
    match element.subscripts:
        case (ast.Name(id=name),):
            return name == variable
    return False


def _bound(part: sympy.Basic, store: Store, variable: str, places: Places) -> Bound | None:
    """A comparison of a loop's variable with a loaded integer; None for any other condition."""
    found = comparison(part)
    if found is None or found.index not in store.indices:
        return None
    element = store.reads[found.read.position]
    if element.array not in places or not (places[element.array] or found.kind is sympy.Eq):
        return None
    rest = _apart(store.indices[found.index], variable)
    return None if rest is None else Bound(found.kind, rest, chosen(element.array, element.subscripts))


def _apart(index: ast.expr, variable: str) -> ast.expr | None:
    """The rest of an index in which a variable is a term: 32 * c + v  ->  32 * c; None if it is not."""
    match index:
        case ast.Name(id=name) if name == variable:
            return ast.Constant(0)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            for one, other in ((left, right), (right, left)):
                rest = _apart(one, variable)
                if rest is not None and not mentions(other, variable):
                    return binary(ast.Add(), rest, other)
        case ast.BinOp(left=left, op=ast.Sub(), right=right) if not mentions(right, variable):
            rest = _apart(left, variable)
            return None if rest is None else binary(ast.Sub(), rest, right)
    return None


def _if_it_runs(loop: For, node: Node) -> Node:
    """A node that reads operands before a loop, where the loop runs: elsewhere there may be no such elements."""
    return node if surely_runs(loop) else Guard(ast.Compare(loop.low, [ast.Lt()], [loop.high]), node)


def _guarded(loop: For, bounds: list[Bound], body: Node) -> Node:
    """The body where other bounds of one iteration hold."""
    signs: dict[type[sympy.Basic], ast.cmpop] = {
        sympy.Eq: ast.Eq(), sympy.Lt: ast.Lt(), sympy.Le: ast.LtE(), sympy.Gt: ast.Gt(), sympy.Ge: ast.GtE()
    }  # fmt: skip
    for bound in bounds:
        index = binary(ast.Add(), ast.Name(loop.variable), bound.rest)
        body = Guard(ast.Compare(index, [signs[bound.kind]], [bound.load]), body)
    return body


def _changes(node: Node, load: ast.expr) -> bool:
    """True if a node stores to an array that a load reads."""
    read = {part.id for part in ast.walk(load) if isinstance(part, ast.Name)}
    return any(store.target.array in read for store in stores_in(node))


def _without(node: Node, keys: set[tuple[str, str, str]], variable: str, places: Places) -> Node:
    """A loop's body whose stores do not ask again for what the loop's bounds say."""
    if not isinstance(node, Store):
        return with_below(node, lambda part: _without(part, keys, variable, places))
    mask = masked(node)
    if mask is None:
        return node
    left = [
        part
        for part in mask.parts
        if (bound := _bound(part, node, variable, places)) is None or bound.key not in keys
    ]
    if not left:
        return replace(node, body=mask.value)
    condition = left[0] if len(left) == 1 else And(*left, evaluate=False)
    return replace(node, body=Select(condition, mask.value, node.body.args[2]))
