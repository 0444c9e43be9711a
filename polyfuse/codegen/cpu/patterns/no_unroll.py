"""Keep LLVM from unrolling sums over rows and loops over rows completely, by hiding their loops' bounds.

    for j in range(0, 64): s += x[i, j]            ->  for j in range(0, opaque(64)): s += x[i, j]
    for j in range(0, 1024): s += x[i, j]              for j in range(0, 64 * opaque(16)): s += x[i, j]
    for j in range(0, 1024): out[i, j] = x[i, j] * s   for j in range(0, 1024): out[i, j] = x[i, j] * s

A short loop is written out before loops are put on vector lanes: what it sums up is one chain of additions then. A long
one is written out in vectors, and LLVM takes the row to be in registers for the loops behind it: it stores what they do
not hold, and reads memory in an order that the processor does not foresee.

    for i in range(0, 11): for j in range(0, 256): …   ->  for i in range(0, opaque(11)): for j in range(0, 256): …

A few rows of which each runs on vector lanes are written out row by row. Nothing is gained by that but code: layer norm
behind a product, 64 rows in tiles of 6, took 23,000 instructions and 5 of a compile's 19 seconds, and 2,800 so.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from math import inf

import sympy

from polyfuse.codegen.cpu.intrinsics.reassociated import OPAQUE
from polyfuse.codegen.looptree.index import mentions
from polyfuse.codegen.looptree.nodes import Block, For, Node, Store, stores_in
from polyfuse.codegen.looptree.product import most_of
from polyfuse.ir.scalar import operations

PASS = 64
"""Numbers that a pass adds up, at most: four registers of sixteen."""

LONG = 512
"""Numbers in a row from which on a loop over them stays one, where passes do not divide them. LLVM would write it out
in full, and add up every fourth register of the row first: 32 x 32 rows of 784 took 45 µs for 32 (one core of a
Zen 5). Rows of 1024 take the same time in both forms.

So it stays where a loop behind it reads the row again to store one. Layer norm of 4096 x 1024 took 1.8 ms written out
and 1.2 so, of 64 x 1024 in L1 12.7 µs and 8.9, x * mean(x * x) of 8192 x 512 1.6 ms and 1.1; a variance alone, where
none is stored, 0.36 ms and 0.47 (one core of a Zen 4)."""

AGAIN = 128
"""Numbers in a row from which on that is so. Written out, the row's four sums in registers become one chain, as they
may be added up in any order: of 64 rows RMS norm took, in µs, of 128 numbers 1.5 and 1.1 so, of 256 4.5 and 2.5, of
333 6.1 and 4.0, of 500 9.0 and 5.7, layer norm of 128 3.5 and 2.7, of 448 12.0 and 8.6 (one core of a Zen 3).

Where passes do not divide the row, any loop behind that reads it again is enough: variances of 200 numbers took 3.2
and 2.7, of 333 5.9 and 3.9, of 128, 256 and 448 the same. A sum alone of 160 or 333 took 1.2 to 1.3 times as long."""

FEW, REGISTER = 32, 8
"""Numbers of a row from which on vectors pay; half as many where they are whole registers. Others are not clear: of
3276 rows of 20, sums of products took 45 µs as chains and 15 in vectors, layer norm 62 and 114; of 8192 rows of 8, sums
of products 6.9 and 16.5 (one core of a Zen 4)."""

WRITTEN_OUT = 300
"""Instructions up to which LLVM writes a loop out before it looks at vectors (its threshold at -O3). A sum of 96
numbers takes that, of 128 not; 1024 rows of 64 took 22 µs as chains of additions and 3.8 in vectors, 2048 products of
32 numbers 44 and 6.3, 1365 maxima of 48 23 and 6.5, layer norm of 1024 x 64 41 and 18, softmax 78 and 35, but layer
norm of 2730 x 24 63 and 86 (one core of a Zen 4)."""

ROWS, ROW = 16, 128
"""Rows, and numbers in each, from which on a loop over rows stays one. Of fewer rows there is little code, and a
shorter row may be written out too: then the loop around it is put on vector lanes."""

CALL = 20
"""Instructions that a function is written out in, at least."""


def not_written_out(row: For, behind: Sequence[Node] = ()) -> For:
    """A vector loop of sums that stays a loop, if that is faster; `behind` is what runs after it, in order."""
    match row:
        case For(low=ast.Constant(value=int(low)), high=ast.Constant(value=int(high)), ahead=(), streams=()):
            count = high - low
            short = _in_vectors(count) and count * _instructions(row) < WRITTEN_OUT
            again = count >= AGAIN and _goes_again(row, behind)
            if short or (count % PASS and (again or count >= LONG)):
                return replace(row, high=ast.Call(ast.Name(OPAQUE), [row.high], []))
            if again and low == 0 and _goes_again(row, _storing_rows(behind)):
                passes = ast.Call(ast.Name(OPAQUE), [ast.Constant(count // PASS)], [])
                return replace(row, high=ast.BinOp(ast.Constant(PASS), ast.Mult(), passes))
    return row


def rows_not_written_out(loop: For) -> For:
    """A loop over rows of a tile that stays a loop, where LLVM would write each of them out."""
    match loop:
        case For(low=ast.Constant(value=int(low)), high=ast.Constant(value=int(high)), bind=None):
            rows, instructions = _rows_in(loop.body)
            if (high - low) * rows >= ROWS and (high - low) * instructions < WRITTEN_OUT:
                return replace(loop, high=ast.Call(ast.Name(OPAQUE), [loop.high], []))
    return loop


def _rows_in(node: Node) -> tuple[int, float]:
    """(the long rows on vector lanes in a node, its instructions); none where it is not loops and stores alone."""
    match node:
        case Block(parts):
            inside = [_rows_in(part) for part in parts]
            return sum(rows for rows, _ in inside), sum(instructions for _, instructions in inside)
        case For(bind="vector", ahead=(), streams=()):
            return int((most_of(node) or 0) >= ROW), _instructions(node)
        case For(bind=None, body=body):
            rows, instructions = _rows_in(body)
            return rows * (most_of(node) or 0), 1 + instructions
        case Store():
            return 0, 1
    return 0, inf


def _in_vectors(count: int) -> bool:
    return count >= FEW or (2 * count >= FEW and count % REGISTER == 0)


def _instructions(row: For) -> int:
    """The instructions of one iteration, as LLVM counts them: loads, arithmetic, and the loop's own."""
    stores = tuple(stores_in(row))
    moving = (read for store in stores for read in store.reads if _moves(read.subscripts, row))
    loads = {(read.array, *map(ast.unparse, read.subscripts)) for read in moving}
    return 1 + len(loads) + sum(_arithmetic(store) for store in stores)


def _arithmetic(store: Store) -> int:
    combining = {"=": 0, "max=": 2, "min=": 2}.get(store.op, 1)
    functions = len(store.body.atoms(sympy.Function))
    return combining + operations(store.body) + CALL * functions


def _moves(subscripts: Sequence[ast.expr], loop: For) -> bool:
    return any(mentions(subscript, loop.variable) for subscript in subscripts)


def _goes_again(row: For, behind: Sequence[Node]) -> bool:
    """True if a row of which nothing but sums is kept is read again by a loop behind."""
    loops = (part for part in behind if isinstance(part, For))
    return not _stores_a_row(row) and any(
        not _read_along(row).isdisjoint(_read_along(part)) for part in loops
    )


def _storing_rows(behind: Sequence[Node]) -> tuple[For, ...]:
    """The loops that store a row."""
    return tuple(part for part in behind if isinstance(part, For) and _stores_a_row(part))


def _stores_a_row(loop: For) -> bool:
    """True if a loop assigns to elements along memory."""
    return any(store.op == "=" and _moves(store.target.subscripts, loop) for store in stores_in(loop))


def _read_along(loop: For) -> frozenset[str]:
    """The arrays that a loop reads along memory."""
    return frozenset(
        read.array for store in stores_in(loop) for read in store.reads if _moves(read.subscripts, loop)
    )
