"""Remarks on a product's blocks: the choice with its numbers."""

from __future__ import annotations

from math import ceil

from polyfuse.machine.levels import bytes_text
from polyfuse.measure import duration
from polyfuse.strategy.cpu.gemm.block_cost import asks_further_on, packing
from polyfuse.strategy.cpu.gemm.blocks import Blocking, Operand, Task


def sentences(task: Task, b: Blocking, names: tuple[str, str, str], often: float = 1.0) -> tuple[str, ...]:
    """The choice with its numbers; `names` are the loops of rows, columns and steps.

    The busiest core does the task `often` times: the part of it that there is of a triangle, or several pieces.
    """
    rows, columns, steps = names
    e, m = task.extents, task.machine
    vectors = task.vectors(b)
    used = vectors * (b.rows + 1) + 1
    panel, block = e.of_left(b.rows, b.steps) * task.itemsize, task.block(b)
    blocks = ceil(e.steps / b.steps)
    if b.lanes:
        used = b.rows * b.columns + min(b.rows, b.columns) + 1
    dots = f" as vectors of {b.lanes} partial sums" if b.lanes else ""
    lines = [
        f"{rows} x {columns} in tiles of {b.rows} x {b.columns} sums{dots}: {used} of {m.vector_registers} "
        "vector registers",
        f"{steps} in {'one block' if blocks == 1 else 'blocks'} of {b.steps}: {b.rows} x {b.steps} of "
        f"{task.left.tensor} is {bytes_text(panel)} of L1's {bytes_text(task.l1.size)}",
    ]
    if b.width < e.columns:
        lines.append(
            f"{columns} in blocks of {b.width}: {bytes_text(block)} of {task.right.tensor} in {m.level(block).name}"
        )
    if b.inside:
        lines.append(
            f"{e.alike} batches go through a block one after the other: {task.right.tensor} comes once for all"
        )
    if task.asks(b):
        following = f"{b.columns} columns" if blocks == 1 else f"{b.steps} steps"
        lines.append(f"each tile asks for its share of the next {following} of {task.right.tensor}")
    if asks_further_on(task, b):
        tiles = b.further_on(task.itemsize)
        lines.append(f"each tile asks for {task.right.tensor} of the tile {tiles} further on")
    if task.asks_rows(b):
        lines.append(f"each tile asks for its share of the next {b.rows} rows of {task.left.tensor}")
    lines.append(_packed_sentence(task, b, block))
    expected = (
        2.0 * e.batches * e.rows * e.columns * e.steps * e.window / b.seconds / m.peak(task.itemsize, 1.0)
    )
    lines.append(f"{duration(b.seconds * often)} expected on one core, {expected:.0%} of its peak")
    return tuple(lines)


def _packed_sentence(task: Task, b: Blocking, block: int) -> str:
    level = task.machine.level(block).name
    parts = []
    for packed, operand, other in (
        (b.pack_right, task.right, f"{b.steps} x {b.width} of it is {bytes_text(block)}, read from {level}"),
        (b.pack_left, task.left, f"{b.rows} rows of it, {bytes_text(task.left.stride)} apart, stay in L1"),
    ):
        parts.append(f"{operand.tensor} is {_packed_how(operand, packed)} ({other})")
    seconds = packing(task, b)
    return "; ".join(parts) + (f"; packing takes {duration(seconds)}" if seconds else "")


def _packed_how(operand: Operand, packed: bool) -> str:
    if not packed:
        return "not packed"
    if operand.fixed:
        return "packed once for all calls"
    if operand.by_cores:
        return f"packed by {operand.by_cores} cores before"
    if operand.turns > 1:
        return f"packed before {operand.turns} turns"
    return "computed while it is packed" if operand.computed else "packed"
