"""Loops that isl has proven to be a device operation as one line of source: tile_fma(…), copy_vector(…)."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from math import prod

from polyfuse.codegen.cuda.device_ops import DEVICE_OPS, Argument
from polyfuse.codegen.cuda.mma_calls import mma_call, numbers_of
from polyfuse.codegen.looptree.guards import all_of
from polyfuse.codegen.looptree.index import (
    Environment,
    beside,
    expanded,
    in_bits,
    is_number,
    mentions,
    rejoined,
    substituted,
)
from polyfuse.codegen.looptree.nodes import (
    Allocate,
    Element,
    For,
    Guard,
    Node,
    PaddedCopy,
    Store,
    below,
    stores_in,
)
from polyfuse.codegen.looptree.operations import Lines, TileProduct, VectorCopy
from polyfuse.codegen.looptree.product import numbers_in
from polyfuse.ir.number_types import ITEMSIZE
from polyfuse.schedule.microkernel_verb import (
    CONVERTED_REGISTERS,
    DEALT_OTHERS,
    registers_for,
    warpgroup_registers,
)
from polyfuse.schedule.promote.tma_boxes import BulkCopy

Place = Callable[[Element], ast.expr]
"""A function that prints an element for the target: a subscript."""

Address = Callable[[Element, Environment], tuple[ast.expr, ast.expr]]
"""The array of an element, and how far behind its first one it lies where names have these values."""


def device_call(top: For, address: Address, repeated: bool) -> list[str] | None:
    """The lines for the loops around a store that is an operation; None if they are none, or begin elsewhere.

    for k: for r: for c: y[r, c] += a[…] * b[…]   ->   tile_fma(8, 8, 16, y, a, 4 * ty, …, b, 4 * tx, …, min(16, n - k))
    for l in range(0, 4): shared[…] = x[…]         ->   copy_vector(4, shared, …, 1, x, …), or pad_ahead(…, i < n)

    A tile that is cut short computes all of its results: those it lacks are of elements that nobody wrote, and nobody
    reads them. Steps that it lacks do not run. Only a tile that is `repeated`, in a loop over tiles, has its steps
    written out; one that runs three times at most would keep more in registers, and decide how many a thread gets.
    """
    if top.bind == "microkernel":
        return mma_call(top, repeated) or _tile_fma(top, repeated)
    outside, guarded = _guarded(top)
    match guarded:
        case For(bind="vector", body=Store(operation=VectorCopy() as copy) as store) if copy.count > 1:
            if is_number(top.low, 0) and is_number(top.high, copy.count) and top.step == 1:
                return _under(outside, copy_vector(store, copy, top.variable, address))
        case For(bind="vector", body=Store(operation=PaddedCopy(here, copy)) as store) if copy.count > 1:
            whole = is_number(top.low, 0) and is_number(top.high, copy.count) and top.step == 1
            if whole and not mentions(here, top.variable):
                call = padded_ahead if copy.ahead else pad_converted
                return _under(outside, call(store, here, copy, top.variable, address))
    return None


def _tile_fma(top: For, repeated: bool) -> list[str] | None:
    outside, top = _guarded(top)
    match top.body:
        case For(body=For(body=Store(operation=TileProduct() as tile) as store) as innermost) as inner:
            loops = (top, inner, innermost)
        case _:
            return None
    variables = {loop.variable for loop in loops}
    if not all(is_number(loop.low, 0) and loop.step == 1 for loop in loops):
        return None
    if any(mentions(x.high, variable) for x in loops for variable in variables):
        return None
    first: dict[str, ast.expr] = {loop.variable: ast.Constant(0) for loop in loops}
    factors = dict[str, Argument]()
    for side, lines in (("a", tile.left), ("b", tile.right)):
        assert isinstance(lines, Lines), "matrices are for tensor cores"
        element = store.reads[lines.position]
        (index,) = element.subscripts
        factors[side] = element.array
        factors[f"{side}_at"] = in_bits(rejoined(substituted(index, first)))
        factors |= {f"{side}_{name}": n for name, n in numbers_of(lines).items()}
    call = DEVICE_OPS["tile_fma"].call(
        rows=tile.rows,
        columns=tile.columns,
        most=repeated * tile.steps,
        y=store.target.array,
        **factors,
        count=top.high,
    )
    cut = (loop.high for loop in (inner, innermost) if not isinstance(loop.high, ast.Constant))
    runs = (ast.Compare(ast.Constant(0), [ast.Lt()], [beside(high, "min", 1)]) for high in cut)
    return _under((*outside, *runs), call)


def _guarded(top: For) -> tuple[tuple[ast.expr, ...], For]:
    """Conditions around the innermost statement that no loop changes, and the loops without them.

    for k: for r: for c: if tz == 0: S      ->   tz == 0,  for k: for r: for c: S
    """
    match top.body:
        case For() as inner:
            found, body = _guarded(inner)
        case Guard(condition, Store() as body, None):
            found = (condition,)
        case _:
            return (), top
    if any(mentions(condition, top.variable) for condition in found):
        return (), top
    return found, replace(top, body=body)


def _under(conditions: tuple[ast.expr, ...], call: str) -> list[str]:
    """The call where the conditions hold."""
    if not conditions:
        return call.splitlines()
    return [f"if {ast.unparse(all_of(conditions))}:", *(f"    {line}" for line in call.splitlines())]


def copy_vector(store: Store, copy: VectorCopy, variable: str | None, address: Address) -> str:
    """The call that copies one element, or the neighbours along a loop; numba would test a subscript's sign."""
    ends = _ends(store, variable, address)
    if copy.conversion:
        op = DEVICE_OPS[f"copy_{copy.conversion}"]
        return op.call(count=copy.count, run=copy.run, step=copy.step, **ends)
    return DEVICE_OPS["copy_ahead" if copy.ahead else "copy_vector"].call(
        count=copy.count, step=copy.step, **ends
    )


def _ends(store: Store, variable: str | None, address: Address) -> dict[str, ast.expr]:
    """The array that a copy goes to, its place there, and those it comes from: of the first neighbour along a loop."""
    first: dict[str, ast.expr] = {} if variable is None else {variable: ast.Constant(0)}
    target, to = address(store.target, first)
    source, at = address(store.reads[0], first)
    return {"target": target, "to": to, "source": source, "at": at}


def _padded_ends(store: Store, here: ast.expr, variable: str | None, address: Address) -> dict[str, ast.expr]:
    """The same of a copy where a condition holds, which needs no branch."""
    ends = _ends(store, variable, address)
    return {**ends, "to": expanded(ends["to"]), "at": expanded(ends["at"]), "here": in_bits(here)}


def copy_padded(store: Store, here: ast.expr, place: Place) -> str:
    """The call that copies one element where a condition holds, and else zero."""
    source = place(store.reads[0])
    assert isinstance(source, ast.Subscript), "a tensor is a pointer"
    (to,) = store.target.subscripts
    return DEVICE_OPS["copy_padded"].call(
        target=store.target.array,
        to=expanded(in_bits(to)),
        source=source.value,
        at=expanded(source.slice),
        here=in_bits(here),
    )


def padded_ahead(
    store: Store, here: ast.expr, copy: VectorCopy, variable: str | None, address: Address
) -> str:
    """The call that copies one element, or the neighbours along a loop, where a condition holds, and else zeros, while
    the thread goes on.
    """
    ends = _padded_ends(store, here, variable, address)
    return DEVICE_OPS["pad_ahead"].call(count=copy.count, step=copy.step, **ends)


def pad_converted(
    store: Store, here: ast.expr, copy: VectorCopy, variable: str | None, address: Address
) -> str:
    """The call that converts one element, or the neighbours along a loop, where a condition holds, and else zeros."""
    ends = _padded_ends(store, here, variable, address)
    op = DEVICE_OPS[f"pad_{copy.conversion}"]
    return op.call(count=copy.count, run=copy.run, step=copy.step, **ends)


def accessed_widely(node: Node) -> frozenset[str]:
    """The arrays of which several neighbours are read or written in one access."""
    match node:
        case Store(operation=TileProduct()):
            return frozenset(element.array for element in node.reads)
        case Store(operation=VectorCopy(count) | PaddedCopy(copy=VectorCopy(count))) if count > 1:
            return frozenset((node.target.array, node.reads[0].array))
    return frozenset(name for part in below(node) for name in accessed_widely(part))


def copied_widely(node: Node) -> frozenset[str]:
    """The arrays of which several neighbours are copied in one access: a tensor has to begin at a multiple of it."""
    match node:
        case Store(operation=VectorCopy(count) | PaddedCopy(copy=VectorCopy(count))) if count > 1:
            return frozenset((node.target.array, node.reads[0].array))
        case Store(operation=BulkCopy()):
            return frozenset((node.reads[0].array,))
    return frozenset(name for part in below(node) for name in copied_widely(part))


def planned_registers(node: Node) -> int | None:
    """The registers that a thread is given for its largest tile of results and those in use around it; None without."""
    every = list(stores_in(node))
    found = [(s, s.operation) for s in every if isinstance(s.operation, TileProduct)]
    tiles = {s.target.array: tile.rows * tile.columns * ITEMSIZE[s.target.dtype] // 4 for s, tile in found}
    places = {array: [p for p, s in enumerate(every) if array in _touched(s)] for array in tiles}
    most = None
    for place, s in enumerate(every):
        if isinstance(s.operation, TileProduct):
            held = [a for a in tiles if a != s.target.array and places[a][0] < place < places[a][-1]]
            beside = sum(tiles[a] for a in held)
            if held and s.operation.math != "ieee":
                beside += CONVERTED_REGISTERS  # what is copied next is on its way while results stay
            most = max(most or 0, _planned(s, s.operation, node) + beside)
    return most


def _touched(store: Store) -> frozenset[str]:
    return frozenset((store.target.array, *(element.array for element in store.reads)))


def _planned(store: Store, tile: TileProduct, kernel: Node) -> int:
    if tile.by_warpgroup:
        factors = frozenset(element.array for element in store.reads)
        copied = tile.copied * _through_registers(kernel, factors)
        return warpgroup_registers(tile.rows, tile.columns, copied + DEALT_OTHERS * tile.in_lines)
    ahead = _copies_ahead(kernel)
    itemsize = ITEMSIZE[store.target.dtype]
    return registers_for(tile.rows, tile.columns, itemsize, tile.math, ahead, _converts(kernel))


def _through_registers(node: Node, arrays: frozenset[str]) -> bool:
    """True if a thread has in registers what it copies to some arrays."""
    match node:
        case Store(target=target) if target.array in arrays:
            return not _copies_ahead(node)
    return any(_through_registers(part, arrays) for part in below(node))


def _copies_ahead(node: Node) -> bool:
    return copies_by_threads(node) or any(isinstance(store.operation, BulkCopy) for store in stores_in(node))


def _converts(node: Node) -> bool:
    """True if threads have in registers what they load together, zeros beyond a border with it, to change its type."""
    copies = (store.operation for store in stores_in(node))
    return any(isinstance(copy, PaddedCopy) and bool(copy.copy.conversion) for copy in copies)


def copies_by_threads(node: Node) -> bool:
    """True if threads ask for copies, each for its own, and go on."""
    return any(
        isinstance(store.operation, VectorCopy | PaddedCopy) and store.operation.ahead
        for store in stores_in(node)
    )


def shared_bytes(node: Node) -> int:
    """The shared memory of a block."""
    if isinstance(node, Allocate):
        return prod(node.shape) * ITEMSIZE[node.dtype] if node.memory == "shared" else 0
    return sum(map(shared_bytes, below(node)))


def constant_bounds(loop: For) -> tuple[int | None, int | None]:
    """The numbers that surely bound a loop's values: 0, 8 for range(max(0, a), min(8, b)); None if there is none."""
    low, high = numbers_in(loop.low, "max"), numbers_in(loop.high, "min")
    return max(low, default=None), min(high, default=None)


def runs_often(loop: For) -> bool:
    """True if a loop may run more than three times, which the tiles at the end of one that copies ahead do at most."""
    low, high = constant_bounds(loop)
    return low is None or high is None or high - low > 3 * loop.step
