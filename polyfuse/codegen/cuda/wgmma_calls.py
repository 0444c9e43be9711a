"""wgmma products in the loop tree: the call, and the fences that make factors visible to tensor cores.

for k: { for …: a_shared[…] = …; barrier; for k_in: for r: for c: y[r, c] += …; barrier }
->  for k: { for …: a_shared[…] = …; barrier that shows; tile_wgmma_bf16(…); barrier }

Where the copies of an iteration are for a later one, they run while the tensor cores multiply. That is the order as
written but for instances that have nothing in common: as written the copies overwrite nothing that the product behind
them reads, and async_copy_groups.py has found that it reads nothing that they write.

    for k: { for …: a_shared[(k + 1) % 2, …] = …; for k_in: for r: for c: y[r, c] += a_shared[k % 2, …] * …; barrier }
    ->  for k: { begin_wgmma_bf16(…); for …: a_shared[(k + 1) % 2, …] = …; barrier that awaits and shows }
"""

from __future__ import annotations

import ast
from dataclasses import replace

from polyfuse.codegen.cuda.device_ops import DEVICE_OPS, Argument
from polyfuse.codegen.cuda.proofs.wgmma_operands import GROUP_TILES
from polyfuse.codegen.looptree.hardware_axes import axis_name
from polyfuse.codegen.looptree.index import in_bits, substituted
from polyfuse.codegen.looptree.nodes import (
    Barrier,
    Block,
    For,
    Guard,
    Kernel,
    Lanes,
    Node,
    Store,
    stores_in,
    surely_runs,
    with_below,
)
from polyfuse.codegen.looptree.operations import CoreLines, TileProduct, VectorCopy
from polyfuse.schedule.promote.tma_boxes import BulkCopy

X, Y = axis_name("thread.x"), axis_name("thread.y")


def wgmma_call(tile: TileProduct, store: Store, first: dict[str, ast.expr]) -> str:
    """The call for a tile whose factors lie in core matrices, `first` being the loops' first values.

    They begin where those of the warpgroup's first thread do: that of thread.x 0 and a multiple of 32 on thread.y.
    """
    group = ast.BinOp(
        ast.BinOp(ast.Name(Y), ast.FloorDiv(), ast.Constant(GROUP_TILES)),
        ast.Mult(),
        ast.Constant(GROUP_TILES),
    )
    factors = dict[str, Argument]()
    for side, lines in (("a", tile.left), ("b", tile.right)):
        assert isinstance(lines, CoreLines)
        factor = store.reads[lines.position]
        (at,) = factor.subscripts
        factors[side] = factor.array
        factors[f"{side}_at"] = in_bits(substituted(at, {**first, X: ast.Constant(0), Y: group}))
        numbers = {"line": lines.line, "core": lines.core, "far": lines.far, "form": lines.form.number}
        factors |= {f"{side}_{name}": number for name, number in numbers.items()}
    op = DEVICE_OPS[f"{'tile' if tile.waits else 'begin'}_wgmma_{tile.math}"]
    return op.call(rows=tile.rows, columns=tile.columns, steps=tile.steps, y=store.target.array, **factors)


def by_warpgroups(node: Node) -> bool:
    """True if a product by warpgroups is in a node."""
    return any(map(_is_by_warpgroup, stores_in(node)))


def _is_by_warpgroup(store: Store) -> bool:
    return isinstance(store.operation, TileProduct) and store.operation.by_warpgroup


def shown_to_warpgroups(kernel: Kernel) -> Kernel:
    """The kernel whose products begin before copies where they may, and whose barriers show these."""
    factors = _factors(kernel.body)
    if not factors:
        return kernel
    body, _ = _shown(_begun(kernel.body, factors), factors, False)
    return replace(kernel, body=_arrivals_shown(body) if _asks_for(kernel.body, factors) else body)


def _asks_for(node: Node, factors: frozenset[str]) -> bool:
    """True if copies to factors go on while their threads do other things."""
    copies = (store for store in stores_in(node) if store.target.array in factors)
    return any(isinstance(store.operation, VectorCopy) and store.operation.ahead for store in copies)


def _arrivals_shown(node: Node) -> Node:
    """A node in which threads that have waited for copies show these, which they may have asked for long before.

    for k: { product; barrier that waits for copies }   ->   for k: { product; barrier that waits for them and shows }
    """
    if isinstance(node, Barrier):
        return replace(node, shows=node.shows or node.open is not None)
    return with_below(node, _arrivals_shown)


def _begun(node: Node, factors: frozenset[str]) -> Node:
    """Products whose copies are ahead before these, in blocks that end at a barrier."""
    if isinstance(node, For) and node.bind == "microkernel":
        return node
    new = with_below(node, lambda part: _begun(part, factors))
    return Block(_begun_first(new.parts, factors)) if isinstance(new, Block) else new


def _begun_first(parts: tuple[Node, ...], factors: frozenset[str]) -> tuple[Node, ...]:
    """copies; product; barrier  ->  product, begun; copies; barrier that waits for it."""
    for place in range(len(parts) - 1):
        product, barrier = parts[place], parts[place + 1]
        stores = list(stores_in(product))
        if len(stores) != 1 or not isinstance(barrier, Barrier):
            continue
        tile, first = stores[0].operation, place
        while first > 0 and all(store.target.array in factors for store in stores_in(parts[first - 1])):
            if isinstance(parts[first - 1], Barrier):
                break
            first -= 1
        if isinstance(tile, TileProduct) and tile.by_warpgroup and tile.ahead and first < place:
            waits = replace(barrier, awaits=(tile.rows, tile.columns, stores[0].target.array))
            run = (without_waiting(product), *parts[first:place], waits)
            return (*parts[:first], *run, *parts[place + 2 :])
    return parts


def without_waiting(node: Node) -> Node:
    """A product that is begun."""
    match node:
        case Store(operation=TileProduct() as tile):
            return replace(node, operation=replace(tile, waits=False))
        case For() | Guard():
            return replace(node, body=without_waiting(node.body))
    return node


def _factors(node: Node) -> frozenset[str]:
    """The arrays that warpgroups' instructions read."""
    products = filter(_is_by_warpgroup, stores_in(node))
    return frozenset(element.array for product in products for element in product.reads)


def _shown(node: Node, factors: frozenset[str], unshown: bool) -> tuple[Node, bool]:
    """A node whose barriers show the factors where these may have been written and were not shown since.

    `unshown` says whether that may be so before the node; what is returned beside it, whether behind it. A write may
    reach a barrier from outside of a loop, and from the value before:

        a_shared[…] = …; for k: { if k == 0: product; barrier }   ->   …; for k: { …; barrier that shows }
    """
    match node:
        case Store(target=target):
            by_threads = target.array in factors and not isinstance(node.operation, BulkCopy)
            return node, unshown or by_threads
        case Barrier():
            return replace(node, shows=unshown), False
        case Block(parts):
            new = list[Node]()
            for part in parts:
                done, unshown = _shown(part, factors, unshown)
                new.append(done)
            return Block(tuple(new)), unshown
        case For() | Lanes():
            body, left = _shown(node.body, factors, unshown)
            if left and not unshown:
                body, left = _shown(node.body, factors, True)
            ran = isinstance(node, Lanes) or surely_runs(node)
            return replace(node, body=body), left or (unshown and not ran)
        case Guard(_, body, otherwise):
            held, left = _shown(body, factors, unshown)
            other, rest = (None, unshown) if otherwise is None else _shown(otherwise, factors, unshown)
            return replace(node, body=held, otherwise=other), left or rest
    return node, unshown
