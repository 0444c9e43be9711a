"""Loop trees: a scheduled kernel as loops, guards, buffers and stores; what both targets print.

    kernel ::= name  arrays  sizes  axes  node
    node   ::= Block(node*)
             | For(variable, low, high, bind, node)       low <= variable < high, in steps of `step`
             | Guard(condition, node)
             | Allocate(buffer, shape, dtype, memory)
             | Store(target, op, value)                    target op value
             | Barrier
             | Note(text)

Index and value expressions are Python's own syntax trees (ast.expr) over loop variables, sizes and array names.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

import sympy

from polyfuse.ir.tensor import Tensor


@dataclass(frozen=True)
class Element:
    """One element of an array or a buffer: its name in the kernel and its subscripts; none for a scalar variable."""

    array: str
    subscripts: tuple[ast.expr, ...]
    dtype: str


@dataclass(frozen=True)
class Block:
    """Parts in order."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class For:
    """A loop in order, or one whose values run at once ("cores", "vector")."""

    variable: str
    low: ast.expr
    high: ast.expr
    step: int
    bind: str | None
    body: Node


@dataclass(frozen=True)
class Guard:
    """The body where a condition on loop variables holds."""

    condition: ast.expr
    body: Node


@dataclass(frozen=True)
class Allocate:
    """A buffer; with shape () a scalar variable."""

    buffer: str
    shape: tuple[int, ...]
    dtype: str
    memory: str


@dataclass(frozen=True)
class Store:
    """One statement's assignment. `reads` and `indices` say what the body's leaves stand for here."""

    statement: str
    target: Element
    op: str
    body: sympy.Basic
    reads: tuple[Element, ...]
    indices: Mapping[str, ast.expr] = field(default_factory=dict)


@dataclass(frozen=True)
class Barrier:
    """All threads of the block meet."""


Node = Block | For | Guard | Allocate | Store | Barrier


@dataclass(frozen=True)
class Axis:
    """A hardware axis ("block.x", "thread.y") and how many values of it the kernel needs; an expression in sizes."""

    name: str
    extent: ast.expr


@dataclass(frozen=True)
class Kernel:
    """One launch: the loop tree, its arrays (name in the kernel -> tensor) and sizes, in the order of its arguments."""

    name: str
    statements: tuple[str, ...]
    text: tuple[str, ...]
    arrays: Mapping[str, Tensor]
    sizes: tuple[str, ...]
    axes: tuple[Axis, ...]
    body: Node


def block(parts: tuple[Node, ...]) -> Node:
    """Parts in order, without needless levels."""
    flat = tuple(p for part in parts for p in (part.parts if isinstance(part, Block) else (part,)))
    return flat[0] if len(flat) == 1 else Block(flat)
