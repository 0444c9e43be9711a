"""Bulk copies in a CUDA kernel's source: the arguments and barriers that they need, and their calls.

    def mac(x, y, z, x_boxes):
        arrivals = cuda.shared.array((4,), int64)
        begin_bulk(4, arrived)
        group = 0
        cuda.syncthreads()
        …   if tx == 0 and ty == 0: copy_bulk(2, 8192, x_shared, to, x_boxes, k, i, 0, 0, 0, arrived, 4, group)
        …   await_bulk(2, arrived, 4, group)
            group += 1

The barriers are as many as there may be groups of copies on their way (tma_boxes.py). Where a warp only copies it
is the one behind those that a block has otherwise, whose threads are numbered through, and a group is a slot:

        thread = cuda.threadIdx.x & 255
        tx = thread % 4
        …
        begin_handover(4, 4, arrived)
        …   if thread == 128: for k: { await_free(4, arrived, group); copy_bulk(…); hand_over(4, arrived, group); … }
        …   if thread < 128: …; for k: { await_full(4, arrived, group); …; hand_back(4, arrived, group); … }

Where blocks of a cluster share boxes (multicast_boxes.py), a slot is free once all of them have handed it back,
and blocks meet when barriers are made and before one ends, whose shared memory others write:

        begin_handover(4, 8, arrived);  cluster_barrier()
        …   await_free(4, arrived, group);  copy_multicast(2, 4096, x_shared, to + 2048 * cx, …, 2, 3, 0)
        …   hand_back_cluster(4, 2, arrived, group)
        cluster_barrier()
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from polyfuse.codegen.cuda.cluster_axes import ALONE, cluster_of, rank_among, whom_to
from polyfuse.codegen.cuda.device_ops import DEVICE_OPS, Argument
from polyfuse.codegen.cuda.tensor_maps import BoxMap
from polyfuse.codegen.looptree.hardware_axes import AXES, axis_name
from polyfuse.codegen.looptree.index import Environment, binary, in_bits, mentions, substituted
from polyfuse.codegen.looptree.nodes import (
    Barrier,
    Element,
    For,
    Guard,
    Handover,
    Kernel,
    Node,
    Store,
    below,
    stores_in,
    variables,
)
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.number_types import ITEMSIZE
from polyfuse.layouts.swizzle import BARRIER_BYTES, MOST_AXES
from polyfuse.schedule.promote.tma_boxes import BulkCopy

Address = Callable[[Element, Environment], tuple[ast.expr, ast.expr]]
"""The array of an element, and how far behind its first one it lies where names have these values."""


@dataclass(frozen=True)
class Bulk:
    """The shared parts of a kernel's bulk copies: a map for each array and box, barriers, and the number of a group.

    As many groups may be `open` at a barrier of the block as the least of its loops allows; `count` barriers, two or
    another power of two, are more than these. With `slots` a warp only copies: these have two barriers each.
    `shares` says that blocks of a `cluster` copy for each other.
    """

    maps: Mapping[tuple[str, tuple[int, ...]], str]
    filled: frozenset[str]
    arrivals: str
    group: str
    thread: str
    open: int
    slots: int = 0
    cluster: tuple[int, int, int] = ALONE
    shares: bool = False

    @property
    def users(self) -> int:
        """The blocks that use what one block copies."""
        return prod(self.cluster) if self.shares else 1

    @property
    def count(self) -> int:
        """The number of groups that have separate barriers."""
        return self.slots or int(2 ** max(1, self.open.bit_length()))

    @property
    def barriers(self) -> int:
        """The number of barriers."""
        return 2 * self.slots or self.count

    @property
    def nbytes(self) -> int:
        """The shared memory of the barriers."""
        return self.barriers * BARRIER_BYTES

    def opening(self, warps: int) -> list[str]:
        """The first lines of a kernel whose blocks have so many warps and one that only copies."""
        arriving = warps * self.users
        made = (
            DEVICE_OPS["begin_handover"].call(slots=self.slots, warps=arriving, arrivals=self.arrivals)
            if self.slots
            else DEVICE_OPS["begin_bulk"].call(count=self.count, arrivals=self.arrivals)
        )
        return [
            f"{self.arrivals} = cuda.shared.array(({self.barriers},), int64)",
            made,
            f"{self.group} = 0",
            DEVICE_OPS["cluster_barrier"].call() if self.shares else "cuda.syncthreads()",
        ]

    def closing(self) -> list[str]:
        """The last lines of a kernel."""
        return [DEVICE_OPS["cluster_barrier"].call()] if self.shares else []

    def handed(self, node: Handover) -> str:
        """The operation of one side on a slot."""
        number = f"{self.group}{' - 1' if node.late else ''}"
        if self.shares and node.what == "hand_back":
            return DEVICE_OPS["hand_back_cluster"].call(
                slots=self.slots, blocks=self.users, arrivals=self.arrivals, number=number
            )
        return DEVICE_OPS[node.what].call(slots=self.slots, arrivals=self.arrivals, number=number)

    def waiting(self) -> list[str]:
        """The lines by which threads wait for copies."""
        wait = DEVICE_OPS["await_bulk"].call(
            still_open=self.open, arrivals=self.arrivals, count=self.count, group=self.group
        )
        return [wait, f"{self.group} += 1"]

    def box_maps(self, kernel: Kernel) -> tuple[BoxMap, ...]:
        """The tensor maps of a launch, in the order of the arguments."""
        arrays = list(kernel.arrays)
        tensors = ((kernel.arrays[name], arrays.index(name), box) for name, box in self.maps)
        return tuple(BoxMap(at, tensor.shape, box, tensor.itemsize) for tensor, at, box in tensors)

    def call(self, top: Node, address: Address) -> list[str]:
        """The lines for the loops of a box: one call, under what they say of other things than the box."""
        conditions, loops, store = _box(top)
        inside = {loop.variable for loop in loops}
        first: dict[str, ast.expr] = {name: ast.Constant(0) for name in inside}
        assert isinstance(store.operation, BulkCopy), "proven when the kernel was built"
        copy, source = store.operation, store.reads[0]
        target, to = address(store.target, first)
        subscripts = [substituted(index, first) for index in source.subscripts]
        whom = dict[str, Argument]()
        if copy.among:
            number = rank_among(copy.among)
            whom = dict(zip(("parts", "ranks", "first"), whom_to(copy.among, self.cluster), strict=True))
            to = _behind(to, number, prod(copy.part))
            subscripts[copy.cut] = _behind(subscripts[copy.cut], number, copy.part[copy.cut])
        corner = [in_bits(each) for each in _coordinates(tuple(subscripts))]
        call = DEVICE_OPS["copy_multicast" if copy.among else "copy_bulk"].call(
            axes=len(copy.box),
            nbytes=prod(copy.part) * ITEMSIZE[source.dtype],
            target=target,
            to=in_bits(to),
            boxes=self.maps[source.array, copy.part],
            **{f"c{axis}": at for axis, at in enumerate(corner)},
            arrivals=self.arrivals,
            count=self.count,
            group=self.group,
            **whom,
        )
        kept = [c for c in conditions if not any(mentions(c, name) for name in inside)]
        if not kept:
            return call.splitlines()
        test = kept[0] if len(kept) == 1 else ast.BoolOp(ast.And(), kept)
        return [f"if {ast.unparse(test)}:", *(f"    {line}" for line in call.splitlines())]


def bulk_of(kernel: Kernel) -> Bulk | None:
    """The shared parts of a kernel's bulk copies; None if it has none."""
    copies = [store for store in stores_in(kernel.body) if isinstance(store.operation, BulkCopy)]
    if not copies:
        return None
    taken = {*kernel.arrays, *kernel.sizes, *variables(kernel.body), *map(axis_name, AXES)}

    def named(wanted: str) -> str:
        taken.add(name := fresh(wanted, taken))
        return name

    maps = dict[tuple[str, tuple[int, ...]], str]()
    for store in copies:
        assert isinstance(store.operation, BulkCopy)
        key = store.reads[0].array, store.operation.part
        if key not in maps:
            maps[key] = named(f"{key[0]}_boxes")
    filled = frozenset(store.target.array for store in copies)
    names = named("arrived"), named("group"), named("thread")
    still_open, slots = min(_open(kernel.body), default=0), max(_slots(kernel.body), default=0)
    shares = any(isinstance(copy, BulkCopy) and copy.among for copy in (store.operation for store in copies))
    return Bulk(maps, filled, *names, still_open, slots, cluster_of(kernel.axes), shares)


def _open(node: Node) -> list[int]:
    if isinstance(node, Barrier):
        return [] if node.open is None else [node.open]
    return [number for part in below(node) for number in _open(part)]


def _slots(node: Node) -> list[int]:
    own = [node.slots] if isinstance(node, Handover) else []
    return own + [number for part in below(node) for number in _slots(part)]


def _box(node: Node) -> tuple[list[ast.expr], list[For], Store]:
    """The conditions, the loops and the statement of a box."""
    match node:
        case For():
            conditions, loops, store = _box(node.body)
            return conditions, [node, *loops], store
        case Guard(condition, body, None):
            conditions, loops, store = _box(body)
            match condition:
                case ast.BoolOp(op=ast.And(), values=values):
                    return [*values, *conditions], loops, store
            return [condition, *conditions], loops, store
        case Store():
            return [], [], node
    raise AssertionError("a box is loops around one statement")


def _behind(first: ast.expr, number: ast.expr, each: int) -> ast.expr:
    """The start of part `number`: first + each * number."""
    return binary(ast.Add(), first, binary(ast.Mult(), ast.Constant(each), number))


def _coordinates(subscripts: tuple[ast.expr, ...]) -> list[ast.expr]:
    """The coordinates of a box, the contiguous axis first, with zeros for missing axes."""
    return [*reversed(subscripts), *(ast.Constant(0) for _ in range(MOST_AXES - len(subscripts)))]
