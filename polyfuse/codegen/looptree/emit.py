"""The common part of both targets' printers of loop trees."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from dataclasses import replace

from polyfuse.codegen.looptree.body_source import Values
from polyfuse.codegen.looptree.gather_rows import with_places
from polyfuse.codegen.looptree.nodes import (
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
    Store,
)

INDENT = "    "


class Emitter(ABC):
    """Prints one kernel as the source of one Python function."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def source(self) -> str:
        """The function, with its statements as docstring."""
        lines = [f"def {self.kernel.name}({', '.join(self.parameters())}):"]
        lines += self._indented(['"""' + "\n    ".join(("", *self.kernel.text, "")) + '"""'])
        inside = self.lines(self.kernel.body)
        body = [*self.opening(inside), *inside]
        return "\n".join(lines + self._indented(body or ["pass"])) + "\n"

    def parameters(self) -> tuple[str, ...]:
        """The names of the function's parameters."""
        return (*self.kernel.arrays, *self.kernel.sizes)

    def opening(self, body: list[str]) -> list[str]:
        """Lines before a body, which has been printed."""
        return []

    def lines(self, node: Node) -> list[str]:
        """The source lines of a node."""
        match node:
            case Block(parts):
                return [line for part in parts for line in self.lines(part)]
            case For():
                return self.loop(node)
            case Guard():
                return self.choice(node)
            case Allocate():
                return [self.allocation(node)]
            case Store():
                return self.store(node)
            case Let(variable, value):
                return [f"{variable} = {ast.unparse(with_places(value, self.place))}"]
            case Lanes():
                return self.lanes(node)
            case Barrier():
                return self.barrier(node)
            case Await():
                return self.awaiting()
            case ByRole():
                return self.by_role(node)
            case Handover() | NextSlot() | AwaitBefore():
                return self.handed(node)

    def choice(self, node: Guard) -> list[str]:
        """`if condition:` and the lines of both branches, or the lines of the only one that runs here."""
        condition, holds = node.condition, self.decided(node.condition)
        if holds is not None:
            only = node.body if holds else node.otherwise
            return [] if only is None else self.lines(only)
        lines = [f"if {ast.unparse(condition)}:"]
        lines += self._indented(self.guarded(condition, True, node.body) or ["pass"])
        other = [] if node.otherwise is None else self.guarded(condition, False, node.otherwise)
        return [*lines, "else:", *self._indented(other)] if other else lines

    def decided(self, condition: ast.expr) -> bool | None:
        """The only value that a condition has at this place; None if it may have both, or that is not known."""
        return None

    def guarded(self, condition: ast.expr, holds: bool, node: Node) -> list[str]:
        """The lines of a node that runs where a condition holds, or where it does not."""
        return self.lines(node)

    def awaiting(self) -> list[str]:
        """The wait of a step in a pipeline, which only a CPU has."""
        raise AssertionError("a pipeline's step waits, and this target has none")

    def lanes(self, node: Lanes) -> list[str]:
        """A reduction over a warp's lanes, which only a GPU has."""
        raise AssertionError(f"{node.total.statement} runs on a warp's lanes, and this target has none")

    def by_role(self, node: ByRole) -> list[str]:
        """The code of a warp that only copies, and that of the others; only a GPU has these."""
        raise AssertionError("a warp only copies, and this target has none")

    def handed(self, node: Handover | NextSlot | AwaitBefore) -> list[str]:
        """A wait for a slot or for sums, or the end of a slot, which only a GPU has."""
        raise AssertionError("a warp that only copies hands over, and this target has none")

    def loop(self, node: For) -> list[str]:
        """A loop in order.

        An unrolled one stays a loop too: LLVM unrolls a constant trip count in full, at the speed of the statements
        written out (68 and 67 GFLOP/s for 4 x 4 of a product) and in a quarter of numba's compile time.
        """
        step = f", {node.step}" if node.step != 1 else ""
        note = "  # unrolled" if node.bind == "unroll" else ""
        head = f"for {node.variable} in range({ast.unparse(node.low)}, {ast.unparse(node.high)}{step}):{note}"
        return [head, *self._indented(self.inside(node) or ["pass"])]

    def inside(self, node: For) -> list[str]:
        """The lines of a loop's body."""
        return self.lines(node.body)

    def store(self, node: Store) -> list[str]:
        """The lines of one store."""
        return Values(node, self.place).lines()

    @abstractmethod
    def allocation(self, node: Allocate) -> str:
        """The line that makes a buffer."""

    def place(self, element: Element) -> ast.expr:
        """An element as an expression."""
        chosen = tuple(with_places(value, self.place) for value in element.subscripts)
        return self.placed(replace(element, subscripts=chosen))

    @abstractmethod
    def placed(self, element: Element) -> ast.expr:
        """An element as an expression, whose subscripts are in the target's form."""

    @abstractmethod
    def barrier(self, node: Barrier) -> list[str]:
        """The lines at which threads meet."""

    @staticmethod
    def _indented(lines: list[str]) -> list[str]:
        return [INDENT + line for line in lines]


def subscripted(name: str, subscripts: tuple[ast.expr, ...]) -> ast.expr:
    """`name[a, b]`, `name[a]`, or `name` if there are no subscripts."""
    if not subscripts:
        return ast.Name(name)
    index = subscripts[0] if len(subscripts) == 1 else ast.Tuple(list(subscripts))
    return ast.Subscript(ast.Name(name), index)
