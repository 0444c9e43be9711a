"""`CPU_PATTERNS`: the forms of a loop that the CPU printer has code of its own for, in the order that it tries them in.

    for r < 8: for c < 32: y[r, c] = 0        tile_init       ->  tile_zero(…)
    for k: for r: for c: y[r, c] += a * b     tile_mac        ->  tile_mac(…)
    for c < 32: out[i, c] = max(y[r, c], 0)   short_row       ->  short_row(…)
    for j: s[i] += x[i, j]                    sum_in_register ->  sum = s[i]; for j: sum += x[i, j]; s[i] = sum
    for i (cores): …                          cores           ->  on_cores(…)

The first pattern that answers prints the loop. The last one is the loop itself, so that one always does.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from polyfuse.codegen.cpu.intrinsic_table import WHOLE
from polyfuse.codegen.cpu.patterns.calls import printed
from polyfuse.codegen.cpu.patterns.dot_microkernel import dot_products
from polyfuse.codegen.cpu.patterns.gemv import row_product
from polyfuse.codegen.cpu.patterns.microkernel import one_loop_of_steps
from polyfuse.codegen.cpu.patterns.no_unroll import rows_not_written_out
from polyfuse.codegen.cpu.patterns.nontemporal_stores import streams_inside
from polyfuse.codegen.cpu.patterns.outer_loop_vectorize import rows_abreast
from polyfuse.codegen.cpu.patterns.reduced_row import reduced_row_call
from polyfuse.codegen.cpu.patterns.scalar_promotion import (
    Gathered,
    KeptReads,
    around_one_value,
    gathered,
    kept_reads,
)
from polyfuse.codegen.cpu.patterns.short_rows import short_row_call
from polyfuse.codegen.cpu.patterns.stencil_row import reads_several, stencil_row, two_rows
from polyfuse.codegen.cpu.patterns.tile_init import first_values
from polyfuse.codegen.cpu.patterns.transposed.copies import copy_in_blocks, copy_in_strips
from polyfuse.codegen.cpu.patterns.transposed.joined_loops import Shapes, one_loop_along_memory
from polyfuse.codegen.cpu.patterns.transposed.reads import transposed_reads
from polyfuse.codegen.cpu.patterns.transposed.stores import row_by_row, transposed_store, whole_tile
from polyfuse.codegen.cpu.patterns.triangle_border import steps_apart
from polyfuse.codegen.cpu.patterns.triangular_microkernel import slanted_product
from polyfuse.codegen.cpu.patterns.window_microkernel import over_windows
from polyfuse.codegen.cpu.patterns.window_row import row_over_windows
from polyfuse.codegen.looptree.gather_rows import reads_rows
from polyfuse.codegen.looptree.joint_values import Facts
from polyfuse.codegen.looptree.nodes import Element, For, Kernel, Node, Store
from polyfuse.codegen.looptree.product import ProductLoops, movement, tile_of
from polyfuse.ir.tree import SHARED

Lines = list[str]


class LoopPrinter(Protocol):
    """The part of the printer that patterns use."""

    kernel: Kernel
    facts: Facts
    """The known facts about the values of variables here."""
    around: tuple[For, ...]
    """The loops that the walk is in, outermost first, and the loop itself."""
    has_tiles: bool
    """True if a product runs in a microkernel here: short rows are whole vectors then."""
    rows: frozenset[str]
    """The variables that hold rows which data name: short ones are whole vectors, too."""
    shapes: Shapes
    """The shapes of the kernel's arrays and buffers."""
    turns: str
    """The arguments that the operations of the doacross loop around have in common; empty outside of one."""

    def place(self, element: Element) -> ast.expr:
        """An element as an expression."""

    def unused(self, name: str) -> str:
        """A name like this one that nothing in the kernel has."""

    def vector_row(self, parameters: Sequence[str], lines: Sequence[str]) -> str:
        """The name of a vector row with such parameters and lines, which stands beside the kernel."""

    def lines(self, node: Node) -> Lines:
        """The lines of a node."""

    def loop(self, node: For) -> Lines:
        """The lines of another loop in this one's place, for which all patterns are tried."""

    def plain_loop(self, node: For) -> Lines:
        """`for i in range(…):` and the lines of its body."""

    def loop_in_pieces(self, node: For) -> Lines:
        """The same in pieces of 512 bytes, where it asks for memory ahead of time or stores past the caches."""

    def in_rows(self, node: For) -> Lines:
        """Two loops over a tile of which short rows are whole vectors."""

    def held_in_registers(self, node: For, held: Gathered) -> Lines:
        """A loop whose sums are in variables."""

    def holding(self, node: For, kept: KeptReads) -> Lines:
        """A loop behind the loads of what it reads in one place."""

    def doacross(self, node: For) -> Lines:
        """A loop whose values cores take in turns, each waiting for steps of the one before."""

    def step_of_doacross(self, node: For) -> Lines:
        """The loop over these steps."""

    def dynamic(self, node: For) -> Lines:
        """A loop whose values cores take one by one."""

    def shared_out(self, node: For) -> Lines:
        """A loop of which each core has an equal share."""


@dataclass(frozen=True)
class LoopPattern:
    """A form of a loop. `lines` prints a loop of that form and returns None for others; `does` says what it prints."""

    name: str
    lines: Callable[[LoopPrinter, For], Lines | None]
    does: str


def _product(call: Callable[[ProductLoops, LoopPrinter], ast.Call | None]) -> Callable[..., Lines | None]:
    """The pattern for a microkernel's loops of steps, rows and columns around a store, given how it is called."""

    def lines(p: LoopPrinter, loop: For) -> Lines | None:
        tile = tile_of(loop) if loop.bind == "microkernel" else None
        return None if tile is None else _line(call(tile, p))

    return lines


def _line(call: ast.Call | None) -> Lines | None:
    return None if call is None else printed(call)


def _row_mac(p: LoopPrinter, loop: For) -> Lines | None:
    return _line(row_product(loop)) if loop.bind == "microkernel" else None


def _tile_dot(p: LoopPrinter, loop: For) -> Lines | None:
    return _line(dot_products(loop)) if loop.bind == "microkernel" else None


def _row_mac_windows(p: LoopPrinter, loop: For) -> Lines | None:
    return _line(row_over_windows(loop, p.facts)) if loop.bind == "microkernel" else None


def _triangle_border(p: LoopPrinter, loop: For) -> Lines | None:
    pieces = steps_apart(loop, p.unused) if loop.bind == "microkernel" else None
    return None if pieces is None else p.lines(pieces)


def _no_microkernel(p: LoopPrinter, loop: For) -> Lines | None:
    if loop.bind != "microkernel":
        return None
    why = "# no microkernel: a condition inside the tile, or no numbers that bound its rows and columns"
    return [why, *p.plain_loop(loop)]


def _tile_init(p: LoopPrinter, loop: For) -> Lines | None:
    return _line(first_values(loop)) if p.has_tiles and loop.bind not in SHARED else None


def _rows_abreast(p: LoopPrinter, loop: For) -> Lines | None:
    found = rows_abreast(loop, p.place, p.unused, p.vector_row)
    return None if found is None else found.lines(p.plain_loop(found.left))


def _transposed_reads(p: LoopPrinter, loop: For) -> Lines | None:
    found = transposed_reads(loop, p.unused)
    return None if found is None else [*found.before, *p.in_rows(found.loops)]


def _transposed_copy(p: LoopPrinter, loop: For) -> Lines | None:
    parts = copy_in_blocks(loop, p.unused) or copy_in_strips(loop, p.unused)
    return None if parts is None else p.lines(parts)


def _one_loop(p: LoopPrinter, loop: For) -> Lines | None:
    found = one_loop_along_memory(loop, p.shapes, p.unused)
    return None if found is None else [*found.before, *p.lines(found.loops)]


def _whole_tile(p: LoopPrinter, loop: For) -> Lines | None:
    either = whole_tile(loop, p.unused) if p.has_tiles else None
    return None if either is None else p.lines(either)


def _transposed_store(p: LoopPrinter, loop: For) -> Lines | None:
    found = transposed_store(loop, p.unused)
    if found is None:
        return None
    columns = found.loops.body
    if not p.has_tiles:
        lines = p.in_rows(found.loops)
    elif found.one_vector and isinstance(columns, For) and _short_row(p, columns) is not None:
        lines = p.loop(found.loops)
    else:
        lines = p.loop(found.exchanged)
    return [found.before, *lines, found.after]


def _row_by_row(p: LoopPrinter, loop: For) -> Lines | None:
    exchanged = row_by_row(loop) if p.has_tiles else None
    return None if exchanged is None else p.lines(exchanged)


def _sum_in_register(p: LoopPrinter, loop: For) -> Lines | None:
    held = gathered(loop) if loop.bind == "vector" else None
    return None if held is None else p.held_in_registers(loop, held)


def _reduced_row(p: LoopPrinter, loop: For) -> Lines | None:
    return _line(reduced_row_call(loop, p.around[:-1], p.vector_row))


def _short_row(p: LoopPrinter, loop: For) -> Lines | None:
    if loop.bind != "vector":
        return None
    beside = p.has_tiles or reads_rows(loop, p.rows)
    return _line(short_row_call(loop, p.kernel.body, p.place, p.vector_row, alone=not beside))


def _stencil_row(p: LoopPrinter, loop: For) -> Lines | None:
    if loop.bind != "vector" or loop.streams:
        return None
    return stencil_row(loop, p.place, p.unused, p.vector_row)


def _kept_reads(p: LoopPrinter, loop: For) -> Lines | None:
    if loop.bind not in (None, "vector"):
        return None
    found = kept_reads(loop, p.unused)
    return None if found is None else p.holding(loop, found)


def _around_one_value(p: LoopPrinter, loop: For) -> Lines | None:
    pieces = around_one_value(loop, p.facts.ranges)
    if pieces is None:
        return None
    before, here, behind = pieces
    return [*p.loop(before), *p.plain_loop(here), *p.loop(behind)]


def _whole_registers(p: LoopPrinter, loop: For) -> Lines | None:
    if loop.bind != "vector" or not (_lies_apart(loop) or reads_several(loop)):
        return None
    return [f"{WHOLE}()", *p.loop_in_pieces(loop)]


def _doacross(p: LoopPrinter, loop: For) -> Lines | None:
    return p.doacross(loop) if loop.bind == "pipeline" else None


def _dynamic(p: LoopPrinter, loop: For) -> Lines | None:
    return p.dynamic(loop) if loop.bind == "dynamic" else None


def _step_of_doacross(p: LoopPrinter, loop: For) -> Lines | None:
    return p.step_of_doacross(loop) if loop.bind == "turn" and p.turns else None


def _cores(p: LoopPrinter, loop: For) -> Lines | None:
    return p.shared_out(loop) if loop.bind == "cores" else None


def _two_rows(p: LoopPrinter, loop: For) -> Lines | None:
    return None if streams_inside(loop) else two_rows(loop, p.place, p.unused, p.vector_row)


def _loop(p: LoopPrinter, loop: For) -> Lines:
    return p.loop_in_pieces(rows_not_written_out(loop))


def _lies_apart(loop: For) -> bool:
    """True if a loop contains one store only, to elements that are not contiguous in memory."""
    if not isinstance(loop.body, Store) or loop.body.op != "=":
        return False
    *outer, _ = movement(loop.body.target, loop) or (0,)
    return any(outer)


CPU_PATTERNS = (
    # loops that the schedule bound to a microkernel
    LoopPattern("row_mac", _row_mac, "one row times a matrix, sums in registers"),
    LoopPattern("row_mac_windows", _row_mac_windows, "a row of sums over a window, sums in registers"),
    LoopPattern("tile_dot", _tile_dot, "a tile of a product, each sum a vector of partial sums in registers"),
    LoopPattern(
        "tile_mac",
        _product(lambda tile, p: one_loop_of_steps(tile, p.around[:-1], p.facts)),
        "a tile of a product, sums in registers: tile_mac, tile_mac_ahead, tile_mac_rows_ahead, "
        "tile_mac_columns_ahead, tile_mac_cut",
    ),
    LoopPattern(
        "tile_mac_slanted",
        _product(lambda tile, _: slanted_product(tile)),
        "a tile on the diagonal of a triangle: lanes masked row by row",
    ),
    LoopPattern(
        "tile_mac_windows",
        _product(lambda tile, p: over_windows(tile, p.facts)),
        "a tile of a product over windows, whose border rows are never stored",
    ),
    LoopPattern(
        "triangle_border", _triangle_border, "steps that all rows have as a tile, the others as loops"
    ),
    LoopPattern("no_microkernel", _no_microkernel, "the loops, with a comment that says why"),
    # loops over a tile, before and behind a product
    LoopPattern("tile_init", _tile_init, "the first values of sums, stored as whole vectors"),
    LoopPattern("rows_abreast", _rows_abreast, "steps that wait for each other: rows side by side on lanes"),
    LoopPattern("transposed_reads", _transposed_reads, "a transposed copy of what is read across memory"),
    LoopPattern("one_loop", _one_loop, "loops of a copy that go along memory as one, for blocks of it"),
    LoopPattern(
        "transposed_copy",
        _transposed_copy,
        "a copy across memory in blocks, which transposed reads take, or strips",
    ),
    LoopPattern(
        "whole_tile", _whole_tile, "whole tiles apart from those cut short, so that their stores transpose"
    ),
    LoopPattern(
        "transposed_store", _transposed_store, "results across memory kept in a tile, then transposed"
    ),
    LoopPattern("row_by_row", _row_by_row, "results that lie apart, stored in the order of memory"),
    # loops on vector lanes
    LoopPattern("reduced_row", _reduced_row, "a short row that a few steps reduce, in registers meanwhile"),
    LoopPattern("sum_in_register", _sum_in_register, "what a loop reduces into is a variable meanwhile"),
    LoopPattern(
        "short_row", _short_row, "a few whole vectors instead of the scalars that LLVM would write out"
    ),
    LoopPattern("stencil_row", _stencil_row, "aligned vectors, of which neighbours are taken from registers"),
    LoopPattern("kept_reads", _kept_reads, "what a loop reads in one place and never writes is a variable"),
    LoopPattern("around_one_value", _around_one_value, "the one value apart at which it writes that"),
    LoopPattern("whole_registers", _whole_registers, "vectors as wide as registers, where LLVM takes half"),
    # loops on cores
    LoopPattern("doacross", _doacross, "cores take values in turns and wait for steps of the value before"),
    LoopPattern("dynamic", _dynamic, "cores take values one by one"),
    LoopPattern(
        "step_of_doacross", _step_of_doacross, "wait for a step of the value before, and say when it is done"
    ),
    LoopPattern("cores", _cores, "each core has an equal share"),
    # the loop itself
    LoopPattern("two_rows", _two_rows, "two rows of a stencil at a time, which read the same elements"),
    LoopPattern("loop", _loop, "in order; in pieces where it asks for memory or stores past the caches"),
)
"""The patterns, in order."""
