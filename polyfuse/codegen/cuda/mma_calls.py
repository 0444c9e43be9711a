"""A product by tensor cores in the loop tree: all lanes of a warp run it, and the call that it becomes.

    if 8*ty + 64*by < n: if k >= 0: for k_in: for r: for c: y[r, c] += …
    ->  if k >= 0: tile_mma_tf32(rows, columns, y, …)

A lane whose rows or columns lie beyond the results takes part as well: it has a share in the others' factors. What it
adds up itself are results that there are not, of elements that nobody wrote, and nobody reads them.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from polyfuse.codegen.cuda.device_ops import DEVICE_OPS, Argument
from polyfuse.codegen.cuda.proofs.wgmma_operands import GROUP_TILES
from polyfuse.codegen.cuda.wgmma_calls import by_warpgroups, wgmma_call
from polyfuse.codegen.looptree.hardware_axes import axis_name
from polyfuse.codegen.looptree.index import Environment, in_bits, is_number, mentions, substituted
from polyfuse.codegen.looptree.nodes import For, Guard, Kernel, Node, Store, below, stores_in, with_below
from polyfuse.codegen.looptree.operations import CoreLines, Fragment, Lines, TileProduct
from polyfuse.errors import InvalidSchedule

THREADS = tuple(map(axis_name, ("thread.x", "thread.y", "thread.z")))
X, Y, _ = THREADS

LINES, MATRICES, TRANSPOSED = range(3)
"""How lanes read a factor: lines of steps; ldmatrix (contiguous steps); ldmatrix.trans (contiguous lanes)."""


def for_whole_warps(kernel: Kernel) -> Kernel:
    """The kernel in which no condition on threads keeps lanes from a product by tensor cores.

    Raises InvalidSchedule if the threads of a block are no warps of 4 x 8 lanes.
    """
    if not _by_warps(kernel.body):
        return kernel
    multiple = GROUP_TILES if by_warpgroups(kernel.body) else 8
    extents = {axis.name: axis.extent for axis in kernel.axes}
    x, y = (extents.get(f"thread.{d}", ast.Constant(1)) for d in "xy")
    match x, y:
        case ast.Constant(value=4), ast.Constant(value=int(rows)) if rows % multiple == 0:
            return replace(kernel, body=_converged(kernel.body))
    raise InvalidSchedule(
        f"tensor cores take blocks of 4 threads along thread.x and a multiple of {multiple} along thread.y, and kernel "
        f"{kernel.name} has {ast.unparse(x)} and {ast.unparse(y)}: bind tiles of that many"
    )


def mma_call(top: For, repeated: bool) -> list[str] | None:
    """The line for a microkernel by tensor cores; None for another one.

    Only a tile that is `repeated`, in a loop over tiles, has its steps written out.
    """
    loops, store = _chain(top)
    if store is None or not isinstance(store.operation, TileProduct) or store.operation.math == "ieee":
        return None
    tile = store.operation
    if not is_number(top.low, 0) or top.step != 1 or len(loops) > 3:
        raise InvalidSchedule(
            f"the steps of a product by tensor cores begin at {ast.unparse(top.low)}, not at 0"
        )
    _check_alike(top.high)
    if tile.by_warpgroup:
        return wgmma_call(tile, store, {loop.variable: ast.Constant(0) for loop in loops}).splitlines()
    first: dict[str, ast.expr] = {loop.variable: ast.Constant(0) for loop in loops}
    call = DEVICE_OPS[f"tile_mma_{tile.math}"].call(
        rows=tile.rows,
        columns=tile.columns,
        most=repeated * tile.steps,
        y=store.target.array,
        **_factor("a", store, tile.left, first),
        **_factor("b", store, tile.right, {**first, X: ast.Constant(0)}),
        count=top.high,
        lane_x=X,
        lane_y=in_bits(ast.BinOp(ast.Name(Y), ast.Mod(), ast.Constant(8))),
    )
    return call.splitlines()


def _factor(
    side: str, store: Store, fragment: Fragment | CoreLines, first: Environment
) -> dict[str, Argument]:
    """A factor's array, where its lanes' elements begin (as matrices: the warp's), how they lie, five numbers."""
    assert not isinstance(fragment, CoreLines), "a warpgroup's"
    element = store.reads[fragment.position]
    (at,) = element.subscripts
    if isinstance(fragment, Lines):
        how, numbers = LINES, [*numbers_of(fragment).values()]
    else:
        how = TRANSPOSED if fragment.transposed else MATRICES
        numbers = [fragment.row, fragment.own, fragment.step, 0, 0]
        warp = ast.BinOp(ast.BinOp(ast.Name(Y), ast.FloorDiv(), ast.Constant(8)), ast.Mult(), ast.Constant(8))
        first = {**first, X: ast.Constant(0), Y: warp}
    return {
        side: element.array,
        f"{side}_at": in_bits(substituted(at, first)),
        f"{side}_how": how,
        **{f"{side}_{place}": number for place, number in enumerate(numbers, 1)},
    }


def numbers_of(lines: Lines) -> dict[str, int]:
    """The layout of a factor's elements relative to its first one, as an operation's parameters."""
    return {
        "line": lines.line,
        "every": lines.every,
        "skip": lines.skip,
        "part": lines.part,
        "vector": lines.vector,
    }


def _chain(node: Node) -> tuple[tuple[For, ...], Store | None]:
    """The loops around one statement, whatever its conditions: those of results go, there are no others."""
    match node:
        case For(body=body):
            loops, store = _chain(body)
            return (node, *loops), store
        case Guard(condition, body, None):
            loops, store = _chain(body)
            if _is_mma(store) and not all(map(_about_results, _conjuncts(condition))):
                raise InvalidSchedule(
                    f"a condition inside a product by tensor cores: {ast.unparse(condition)}"
                )
            return loops, store
        case Store():
            return (), node
    return (), None


def _converged(node: Node) -> Node:
    if not _by_warps(node) or (isinstance(node, For) and node.bind == "microkernel"):
        return node
    match node:
        case For(low=low, high=high):
            _check_alike(low)
            _check_alike(high)
        case Guard(condition, body, otherwise):
            return _guarded(condition, body, otherwise)
    return with_below(node, _converged)


def _guarded(condition: ast.expr, body: Node, otherwise: Node | None) -> Node:
    """A guard around a product, without what it says of threads."""
    every = _conjuncts(condition)
    kept = [each for each in every if not _about_results(each)]
    if len(kept) < len(every) and (otherwise is not None or not _alone(body)):
        raise InvalidSchedule(
            f"only some lanes of a warp would be at a product by tensor cores: {ast.unparse(condition)}"
        )
    inner, other = _converged(body), None if otherwise is None else _converged(otherwise)
    if not kept:
        return inner
    return Guard(kept[0] if len(kept) == 1 else ast.BoolOp(ast.And(), kept), inner, other)


def _conjuncts(condition: ast.expr) -> list[ast.expr]:
    match condition:
        case ast.BoolOp(op=ast.And(), values=values):
            return values
    return [condition]


def _about_results(condition: ast.expr) -> bool:
    """True if a condition says which results there are: that alone can differ between threads (register_tiles)."""
    return any(mentions(condition, name) for name in THREADS)


def _alone(node: Node) -> bool:
    """True if nothing but products by tensor cores is in a node."""
    if isinstance(node, Store):
        return _is_mma(node)
    inside = below(node)
    return bool(inside) and all(map(_alone, inside))


def _by_warps(node: Node) -> bool:
    """True if a product by tensor cores is in a node."""
    return any(map(_is_mma, stores_in(node)))


def _is_mma(node: Node | None) -> bool:
    return (
        isinstance(node, Store) and isinstance(node.operation, TileProduct) and node.operation.math != "ieee"
    )


def _check_alike(bound: ast.expr) -> None:
    if any(mentions(bound, name) for name in THREADS):
        raise InvalidSchedule(
            f"the lanes of a warp would take different steps of a product by tensor cores: {ast.unparse(bound)}"
        )
