"""The kernels of a schedule in order, while a search puts some of them together.

    A; B; C; D    --B and C become BC, in C's place-->    A; BC; D

Each is found by a statement. A change takes as long as the kernels that it changes, where a tree of all kernels would
be made anew, with a table of all statements: a search over 2,000 statements makes some thousand changes.
"""

from __future__ import annotations

from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Loop, Tree, loops_around, parts, sequence


class KernelLine:
    """Kernels in order, over a nest. `places` has the place of each statement's kernel; places can be empty."""

    def __init__(self, nest: Nest, tree: Tree) -> None:
        self.nest = nest
        self._run: list[Tree | None] = list(parts(tree))
        self.places = {name: place for place, part in enumerate(parts(tree)) for name in part.names}
        self._loops: dict[str, tuple[Loop, ...]] = {}

    def kernel(self, statement: str) -> Tree:
        """The kernel that holds a statement."""
        return self.at(self.places[statement])

    def at(self, place: int) -> Tree:
        """The kernel at a place that is not empty."""
        found = self._run[place]
        assert found is not None, "no statement is said to be in an empty place"
        return found

    def loops(self, statement: str) -> tuple[Loop, ...]:
        """The loops around a statement, outermost first."""
        if statement not in self._loops:
            self._loops[statement] = loops_around(self.kernel(statement), statement)
        return self._loops[statement]

    def put(self, kernel: Tree, place: int) -> None:
        """Put a kernel in the place of those that held its statements, at one of these places."""
        for name in kernel.names:
            self._run[self.places[name]] = None
            self.places[name] = place
            self._loops.pop(name, None)
        self._run[place] = kernel

    @property
    def tree(self) -> Tree:
        """All kernels as one tree."""
        return sequence(tuple(part for part in self._run if part is not None))
