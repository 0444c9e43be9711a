"""Verify the invariants of a loop tree before and after each rewrite; tests use it to find the pass that broke one.

    names       every name in a condition, a bound or a subscript is an array, a size, an axis or defined before,
                here; none is defined twice, but for buffers
    loops       steps are positive; a loop's variable is nobody else's on the way to it
    elements    every array is the kernel's or allocated, and has as many subscripts as axes
    bodies      a store has a read for each Read in its body
    barriers    no condition and no loop around one depends on the thread: some threads would not come
    roles       slots are handed over by the warp that copies, or by the others, as `Meeting` says; a pipeline's step
                waits inside a "turn"

Threads are those of a GPU's block; a CPU's trees have no axes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from polyfuse.analysis.banks import WARP
from polyfuse.codegen.looptree.hardware_axes import axis_name
from polyfuse.codegen.looptree.nodes import (
    ARRIVALS,
    Allocate,
    Await,
    AwaitBefore,
    Barrier,
    Block,
    ByRole,
    Element,
    For,
    Guard,
    Handover,
    Kernel,
    Lanes,
    Let,
    NextSlot,
    Node,
    PaddedCopy,
    Store,
    variables,
)
from polyfuse.errors import PolyfuseError
from polyfuse.ir.scalar import Read

COPIES, OTHERS = ("await_free", "hand_over"), ("await_full", "hand_back")
"""The operations of the producer warp on a slot, and those of the consumers."""


class MalformedLoopTree(PolyfuseError):
    """A loop tree breaks a rule; the message names the pass that made it, and where."""


def verify(made_by: str, kernel: Kernel) -> None:
    """Raises MalformedLoopTree if a kernel's loop tree breaks a rule; `made_by` is the pass that made it."""
    found = list(faults(kernel))
    if found:
        raise MalformedLoopTree(f"kernel {kernel.name} after {made_by}: {'; '.join(found)}")


def faults(kernel: Kernel) -> Iterator[str]:
    """The faults of a kernel's loop tree, each as a sentence."""
    ranks = {name: len(tensor.shape) for name, tensor in kernel.arrays.items()}
    axes = [axis_name(axis.name) for axis in kernel.axes]
    names = {*kernel.arrays, *kernel.sizes, *axes, ARRIVALS}
    threads = frozenset(name for name in axes if name.startswith("t"))
    yield from _Scope(names, ranks, threads).faults(kernel.body)


@dataclass
class _Scope:
    """The scope at a node: names, the axes of arrays, names that depend on the thread, enclosing nodes."""

    names: set[str]
    ranks: dict[str, int]
    by_thread: frozenset[str]
    buffers: frozenset[str] = frozenset()
    around: tuple[str, ...] = ()
    apart: str | None = None
    """A loop or a condition around that some threads do not pass."""
    role: tuple[str, ...] = ()
    in_turn: bool = False

    def inner(self, note: str, *expressions: ast.expr) -> _Scope:
        """The scope inside of a loop or a condition, which says `expressions`."""
        apart = self.apart
        if any(self.depends(e) for e in expressions):
            apart = note
        return replace(
            self, names={*self.names}, ranks={**self.ranks}, around=(*self.around, note), apart=apart
        )

    def depends(self, expression: ast.expr) -> bool:
        """True if an expression is not the same for all threads of a block."""
        return not self.by_thread.isdisjoint(_names(expression))

    def fault(self, what: str) -> str:
        where = f" in {' / '.join(self.around)}" if self.around else ""
        return what + where

    def faults(self, node: Node) -> Iterator[str]:
        match node:
            case Block(parts):
                for part in parts:
                    yield from self.faults(part)
            case For():
                yield from self._loop(node)
            case Guard(condition, body, otherwise):
                yield from self._known(condition)
                note = f"if {ast.unparse(condition)}"
                yield from self.inner(note, condition).faults(body)
                if otherwise is not None:
                    yield from self.inner(note, condition).faults(otherwise)
            case Allocate(buffer, shape):
                if buffer not in self.buffers:  # each of a loop's values may allocate its own anew
                    yield from self._defined(buffer)
                self.buffers |= {buffer}
                self.ranks[buffer] = len(shape)
            case Let(variable, value):
                yield from self._known(value)
                yield from self._defined(variable)
                if self.depends(value):
                    self.by_thread |= {variable}
            case Store():
                yield from self._store(node)
            case Lanes():
                yield from self._lanes(node)
            case ByRole(copies, others):
                for part, role in ((copies, COPIES), (others, OTHERS)):
                    inside = self.inner(role[0])
                    inside.role = role
                    yield from inside.faults(part)
            case Barrier():
                yield from self._barrier(node)
            case Await():
                if not self.in_turn:
                    yield self.fault("an Await stands in no step of a pipeline")
            case Handover(_, what):
                if what not in self.role:
                    yield self.fault(f"{what} is not what this side of a slot does")
            case NextSlot() | AwaitBefore():
                if not self.role:
                    yield self.fault(f"{type(node).__name__} stands where there are no slots")

    def _loop(self, node: For) -> Iterator[str]:
        yield from self._known(node.low)
        yield from self._known(node.high)
        if node.step < 1:
            yield self.fault(f"loop {node.variable} has step {node.step}")
        inside = self.inner(f"for {node.variable}", node.low, node.high)
        yield from inside._defined(node.variable)
        if inside.apart is not self.apart:
            inside.by_thread |= {node.variable}
        inside.in_turn = self.in_turn or node.bind == "turn"
        asking = inside.inner("what is asked for ahead")
        if node.bind == "microkernel":  # elements of its first rows or columns, by the loops inside
            asking.names |= variables(node.body)
        for element, _ in node.ahead:
            yield from asking._element(element)
        for array in node.streams:
            if array not in self.ranks:
                yield self.fault(f"loop {node.variable} streams {array}, which is no array")
        yield from inside.faults(node.body)

    def _lanes(self, node: Lanes) -> Iterator[str]:
        if node.threads > WARP and self.apart is not None:
            yield self.fault(f"the warps of a row meet where some threads do not come: {self.apart}")
        inside = self.inner(f"lanes {node.partial.array}")
        yield from inside._defined(node.partial.array)
        inside.ranks[node.partial.array] = 0
        yield from inside.faults(node.body)
        yield from inside._store(node.total)
        for condition in node.when:
            yield from self._known(condition)

    def _store(self, node: Store) -> Iterator[str]:
        for element in (node.target, *node.reads):
            yield from self._element(element)
        for value in node.indices.values():
            yield from self._known(value)
        if isinstance(node.operation, PaddedCopy):
            yield from self._known(node.operation.here)
        for read in node.body.atoms(Read):
            if not read.position < len(node.reads):
                yield self.fault(f"{node.statement} reads {read}, and has {len(node.reads)} elements to read")

    def _element(self, element: Element) -> Iterator[str]:
        rank = self.ranks.get(element.array)
        if rank is None:
            yield self.fault(f"{element} is of no array that is declared before")
        elif rank != len(element.subscripts):
            yield self.fault(f"{element} has {len(element.subscripts)} of {rank} subscripts")
        for value in element.subscripts:
            yield from self._known(value)

    def _barrier(self, node: Barrier) -> Iterator[str]:
        if self.apart is not None:
            yield self.fault(f"a barrier stands where some threads do not come: {self.apart}")
        if node.awaits is not None and node.awaits[2] not in self.ranks:
            yield self.fault(f"a barrier awaits {node.awaits[2]}, which is no array")

    def _defined(self, name: str) -> Iterator[str]:
        if name in self.names:
            yield self.fault(f"{name} is defined again")
        self.names.add(name)

    def _known(self, expression: ast.expr) -> Iterator[str]:
        for name in sorted(_names(expression) - self.names):
            yield self.fault(f"{name} in {ast.unparse(expression)} is not defined before")


def _names(expression: ast.expr) -> set[str]:
    """The names in an expression, without those of functions that it calls."""
    functions = {id(node.func) for node in ast.walk(expression) if isinstance(node, ast.Call)}
    return {n.id for n in ast.walk(expression) if isinstance(n, ast.Name) and id(n) not in functions}
