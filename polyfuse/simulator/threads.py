"""The interface of the lock-step machine for device operations, and the reads of a lane from a line."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from polyfuse.analysis.banks import WARP
from polyfuse.codegen.cuda.tensor_maps import MappedArray
from polyfuse.simulator.values import Value

Numbers = npt.NDArray[Any]

WIDE = 16
"""Bytes of one access to a vector."""


@dataclass(frozen=True)
class Asked:
    """A copy on its way: what arrives where, for the threads that asked for it."""

    active: Any
    target: ast.Subscript
    indices: list[Any]
    value: Value


@dataclass(frozen=True)
class Begun:
    """A product by warpgroups on its way: the threads that began it, the array and values of its results, and how these
    are found again.
    """

    active: Any
    array: str
    results: list[Numbers]
    multiplied: Callable[[], list[Numbers]]


@dataclass
class Bulk:
    """Copies of boxes: arrays that have maps, the phases that are over of each barrier, and what each group asked for.

    `on_way` says of a shared array's elements whether a box is to come there.
    """

    maps: dict[str, MappedArray]
    phases: list[int] = field(default_factory=list)
    asked: dict[int, list[Asked]] = field(default_factory=dict)
    on_way: dict[str, npt.NDArray[np.bool_]] = field(default_factory=dict)


class Threads(Protocol):
    """The part of the lock-step machine that an operation uses.

    `groups` are the copies that have not been waited for, one list for each group; the last one is still open.
    `unshown` are the shared arrays that were written and not shown to the tensor cores since, `begun` the products that
    were not waited for. `handover` are the slots of a warp that only copies, if there are any, `agent` who these
    threads are there, `everyone` all of it, in blocks of one `rank` in their clusters (agents.py).
    """

    active: Any
    groups: list[list[Asked]]
    unshown: set[str]
    begun: list[Begun]
    bulk: Bulk
    handover: Any
    agent: int
    rank: int
    everyone: Any
    team: Any

    def value(self, node: ast.expr) -> Value:
        """An expression's value."""

    def together(self, node: ast.stmt, count: int = WARP) -> None:
        """Raises BarrierError if only some of `count` threads, a warp or several, are here."""

    def meet(self, node: ast.stmt, counter: str) -> None:
        """All threads of all blocks meet. Raises BarrierError if one is not here, or for a wrong counter."""

    def unravelled(self, node: ast.Subscript, position: Any) -> list[Any]:
        """The subscripts of the elements at row-major positions of an array."""

    def itemsize(self, node: ast.Subscript) -> int:
        """Bytes of an array's element."""

    def locate(self, node: ast.Subscript, indices: list[Any]) -> tuple[Any, Any]:
        """A subscript's array, and where the active threads' elements lie in its data."""

    def zeros(self, node: ast.Subscript) -> Value:
        """A zero of an array's type."""

    def on_way(self, node: ast.Subscript, indices: list[Any], comes: bool) -> None:
        """Say of elements of a shared array whether a box is to come there."""

    def load(self, node: ast.Subscript, indices: list[Any], nbytes: int | None = None) -> Value:
        """Elements of an array."""

    def store(self, node: ast.Subscript, indices: list[Any], value: Value, nbytes: int | None = None) -> None:
        """Set elements of an array."""


Given = Mapping[str, ast.expr]
"""The arguments of a call of a device operation, by the names of its parameters."""

Meaning = Callable[[Threads, ast.stmt, Given], None]
"""The meaning of a device operation: a function of the threads that execute it, the statement, its arguments."""


def literal(given: Given, name: str) -> int:
    """The integer that is given for a parameter."""
    return int(ast.literal_eval(given[name]))


def distance(step: Any, along: int, line: int, every: int, skip: int, part: int, vector: int) -> Any:
    """The distance of a factor's element from the tile's first one."""
    return step * line + step // every * skip + along // vector * part + along % vector


def element(node: ast.stmt, array: ast.expr) -> ast.Subscript:
    """An element of an array, for messages and checks."""
    return ast.Subscript(array, ast.Constant(0), lineno=node.lineno)


def line(
    threads: Threads, factor: ast.Subscript, at: Numbers, count: int, step: int | Numbers, numbers: list[int]
) -> list[Numbers]:
    """A factor's elements of one step; the access of a vector is counted with its first element."""
    vector = numbers[-1]
    return [
        np.asarray(threads.load(factor, [at + distance(step, p, *numbers)], WIDE if vector > 1 else None))
        for p in range(count)
    ]


def spread(threads: Threads, picked: Numbers) -> Numbers:
    """Values of the active threads as one for each thread, 0 for the others."""
    if threads.active.at is None:
        return picked
    every = np.zeros(threads.team.size, picked.dtype)
    every[threads.active.at] = picked
    return every
