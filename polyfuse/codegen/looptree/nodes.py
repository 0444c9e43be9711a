"""Loop trees: a scheduled kernel as loops, guards, buffers and stores; what both targets print.

    kernel ::= name  arrays  sizes  axes  node
    node   ::= Block(node*)
             | For(variable, low, high, bind, node)       low <= variable < high, in steps of `step`; asks for `ahead`,
                                                          stores `streams` past the caches
             | Guard(condition, node, otherwise)           the node where the condition holds, else the other
             | Allocate(buffer, shape, dtype, memory)
             | Store(target, op, value)                    target op value
             | Let(variable, value)                        variable = value, an index
             | Lanes(partial, body, total)                     body by a warp's lanes, each into its partial; then total
             | Barrier
             | Await
             | ByRole(node, node)                          the first by a warp that only copies, the other by the rest
             | Handover | NextSlot | AwaitBefore             what the two do, one iteration after the other

Index and value expressions are Python's own syntax trees (ast.expr) over loop variables, sizes and array names.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import sympy

from polyfuse.codegen.looptree.operations import Neighbours, TileProduct, VectorCopy
from polyfuse.ir.number_types import DType
from polyfuse.ir.tensor import Tensor
from polyfuse.schedule.promote.tma_boxes import BulkCopy


@dataclass(frozen=True)
class Element:
    """One element of an array or a buffer: its name in the kernel and its subscripts; none for a scalar variable.

    A subscript may hold elements of an array of integers: `w[int64(x[i, ]), j]` (gather_rows.py).
    """

    array: str
    subscripts: tuple[ast.expr, ...]
    dtype: DType

    def __str__(self) -> str:
        return f"{self.array}[{', '.join(map(ast.unparse, self.subscripts))}]"


@dataclass(frozen=True)
class Block:
    """Parts in order."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class For:
    """A loop in order, or one whose values run at once ("cores", "dynamic", "vector", "pipeline").

    In a "pipeline" values wait for each other at the loops inside that are bound to "turn", as a step begins or at
    its Await. Of a "dynamic" loop the
    last values are taken first if it runs `backwards`.

    `ahead` are elements that a vector loop or a microkernel asks for as it runs, each with whether it will be written,
    `streams` arrays that a vector loop stores past the caches.
    """

    variable: str
    low: ast.expr
    high: ast.expr
    step: int
    bind: str | None
    body: Node
    ahead: tuple[tuple[Element, bool], ...] = ()
    streams: tuple[str, ...] = ()
    backwards: bool = False


@dataclass(frozen=True)
class Guard:
    """The body where a condition on loop variables holds, and what runs elsewhere, if anything."""

    condition: ast.expr
    body: Node
    otherwise: Node | None = None


@dataclass(frozen=True)
class Allocate:
    """A buffer; with shape () a scalar variable."""

    buffer: str
    shape: tuple[int, ...]
    dtype: DType
    memory: str


@dataclass(frozen=True)
class PaddedCopy:
    """A copy where a condition holds, and zeros elsewhere (polyfuse.codegen.cuda.rewrites.zero_filled_copies).

    One that is `ahead` goes on while the thread does other things (async_copy_groups.py).
    """

    here: ast.expr
    copy: VectorCopy

    @property
    def ahead(self) -> bool:
        """True if the thread does other things meanwhile."""
        return self.copy.ahead


@dataclass(frozen=True)
class Store:
    """One statement's assignment. `reads` and `indices` say what the body's leaves stand for here.

    `operation` is what the loops around it are on a GPU where isl has proven it (register_tiles.py).
    """

    statement: str
    target: Element
    op: str
    body: sympy.Basic
    reads: tuple[Element, ...]
    indices: Mapping[str, ast.expr] = field(default_factory=dict)
    operation: TileProduct | VectorCopy | Neighbours | PaddedCopy | BulkCopy | None = None


@dataclass(frozen=True)
class Let:
    """A name for an index that several instances share."""

    variable: str
    value: ast.expr


@dataclass(frozen=True)
class Barrier:
    """All threads of the block meet, each once its copies have arrived but those of the last `open` groups.

    At one of the `grid` all threads of all blocks do.

    Where one `shows` what it wrote to shared memory, tensor cores that read there by themselves see it behind. One that
    `awaits` a tile of results, rows by columns in an array of its own, has them from the tensor cores first.
    """

    open: int | None = None
    shows: bool = False
    awaits: tuple[int, int, str] | None = None
    grid: bool = False


ARRIVALS = "arrivals"
"""The parameter of a kernel whose blocks wait for each other: where they count those that have come to a barrier."""


@dataclass(frozen=True)
class Await:
    """Here a "turn" waits for the pipeline's value before; what stands before it in the turn waits for nothing."""


@dataclass(frozen=True)
class Lanes:
    """A reduction over `threads` of a row: in `body` each one's values go to `partial`, a scalar variable of its own.

    Then warps combine their partial results, a block its warps' where there are several, and thread 0 runs `total`,
    which reads `partial`. That is done `when` conditions hold. Of rows that are part of a warp `met` says that all
    lanes of the warp come together (warp_sync.py).
    """

    partial: Element
    body: Node
    total: Store
    threads: int
    when: tuple[ast.expr, ...] = ()
    met: bool = False


@dataclass(frozen=True)
class ByRole:
    """A block with one more warp, which only copies: what its first thread runs, and what those of the others do."""

    copies: Node
    others: Node


Meeting = Literal["await_free", "hand_over", "await_full", "hand_back"]
"""The operations on a slot at an iteration's start and end: of the producer warp, and of the consumers."""


@dataclass(frozen=True)
class Handover:
    """Here one side waits for its slot of so many, or gives it to the other side: the one before where it is `late`."""

    slots: int
    what: Meeting
    late: bool = False


@dataclass(frozen=True)
class NextSlot:
    """Here one side goes on to its next slot."""


@dataclass(frozen=True)
class AwaitBefore:
    """Here a warpgroup waits for all products that it has begun but the last one."""


Node = (
    Block | For | Guard | Allocate | Store | Let | Lanes | Barrier | Await
    | ByRole | Handover | NextSlot | AwaitBefore
)  # fmt: skip


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


def below(node: Node) -> tuple[Node, ...]:
    """The nodes directly inside a node."""
    match node:
        case Block(parts):
            return parts
        case For() | Lanes():
            return (node.body,)
        case Guard(_, body, otherwise):
            return (body,) if otherwise is None else (body, otherwise)
        case ByRole(copies, others):
            return copies, others
    return ()


def with_below(node: Node, change: Callable[[Node], Node]) -> Node:
    """The node with others directly inside, one for each: for i: { a; b }  ->  for i: change({ a; b })."""
    match node:
        case Block(parts):
            return Block(tuple(map(change, parts)))
        case For() | Lanes():
            return replace(node, body=change(node.body))
        case Guard(_, body, otherwise):
            other = None if otherwise is None else change(otherwise)
            return replace(node, body=change(body), otherwise=other)
        case ByRole(copies, others):
            return ByRole(change(copies), change(others))
    return node


def grid_barriers(node: Node) -> int:
    """The places at which all blocks meet."""
    return sum(map(grid_barriers, below(node)), int(isinstance(node, Barrier) and node.grid))


def nodes_in(node: Node) -> Iterator[Node]:
    """A node and all inside, in the order as written."""
    yield node
    for part in below(node):
        yield from nodes_in(part)


def stores_in(node: Node) -> Iterator[Store]:
    """The stores inside a node, or the node itself, in the order as written."""
    return (each for each in nodes_in(node) if isinstance(each, Store))


def touched(node: Node, array: str) -> tuple[tuple[Element, ...], tuple[Element, ...]]:
    """The elements of an array that the stores inside a node read, and those that they write."""
    stores = list(stores_in(node))
    reads = tuple(read for store in stores for read in store.reads if read.array == array)
    return reads, tuple(store.target for store in stores if store.target.array == array)


def variables(node: Node) -> set[str]:
    """The names of the loops' variables, of indices, of partial results and of the buffers inside a node."""
    own = set[str]()
    match node:
        case For(variable) | Let(variable):
            own = {variable}
        case Allocate(buffer):
            own = {buffer}
        case Lanes(partial):
            own = {partial.array}
    return own.union(*map(variables, below(node)))


def surely_runs(loop: For) -> bool:
    """True if a loop is known to run at least once."""
    match loop.low, loop.high:
        case ast.Constant(value=int(low)), ast.Constant(value=int(high)):
            return low < high
    return False


def block(parts: tuple[Node, ...]) -> Node:
    """Parts in order, without needless levels: { { a }; if c: x; if not c: y }  ->  { a; if c: x; else: y }."""
    flat: list[Node] = []
    for part in (p for outer in parts for p in (outer.parts if isinstance(outer, Block) else (outer,))):
        joined = _either(flat[-1], part) if flat else None
        flat[-1:] = [*flat[-1:], part] if joined is None else [joined]
    return flat[0] if len(flat) == 1 else Block(tuple(flat))


def apart_from_buffers(node: Node) -> tuple[tuple[Node, ...], Node]:
    """(the buffers that a body begins with, the rest of it)."""
    parts = node.parts if isinstance(node, Block) else (node,)
    count = next((p for p, part in enumerate(parts) if not isinstance(part, Allocate)), len(parts))
    return parts[:count], block(parts[count:])


def _either(first: Node, second: Node) -> Node | None:
    """Two guards, of which the second holds where the first does not, as one."""
    match first, second:
        case Guard(c, body, None), Guard(ast.UnaryOp(ast.Not(), d), other, None) if ast.dump(c) == ast.dump(
            d
        ):
            return Guard(c, body, other)
    return None
