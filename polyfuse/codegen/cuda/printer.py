"""Loop trees as numba.cuda source: raw pointers, blocks and threads, shared memory, barriers."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from math import prod

from polyfuse.analysis.banks import WARP
from polyfuse.codegen.cuda.cluster_axes import ALONE, cluster_of, number_of
from polyfuse.codegen.cuda.device_calls import (
    accessed_widely,
    constant_bounds,
    copied_widely,
    copies_by_threads,
    copy_padded,
    copy_vector,
    device_call,
    pad_converted,
    padded_ahead,
    planned_registers,
    runs_often,
    shared_bytes,
)
from polyfuse.codegen.cuda.device_ops import DEVICE_OPS, called_in
from polyfuse.codegen.cuda.kernel_arguments import CONST
from polyfuse.codegen.cuda.passes import rewritten
from polyfuse.codegen.cuda.rewrites.paired_threads import in_pairs
from polyfuse.codegen.cuda.rewrites.warp_sync import with_constant_bounds
from polyfuse.codegen.cuda.tensor_maps import KIND, BoxMap
from polyfuse.codegen.cuda.tma_calls import bulk_of
from polyfuse.codegen.cuda.warp_shuffles import shuffled, warps_of
from polyfuse.codegen.looptree.emit import Emitter, subscripted
from polyfuse.codegen.looptree.half_types import held_as, zero
from polyfuse.codegen.looptree.hardware_axes import LANES, axis_name
from polyfuse.codegen.looptree.index import Environment, binary, in_bits, substituted
from polyfuse.codegen.looptree.nodes import (
    ARRIVALS,
    Allocate,
    AwaitBefore,
    Axis,
    Barrier,
    ByRole,
    Element,
    For,
    Handover,
    Kernel,
    Lanes,
    NextSlot,
    Node,
    PaddedCopy,
    Store,
    below,
    grid_barriers,
    stores_in,
)
from polyfuse.codegen.looptree.operations import VectorCopy
from polyfuse.errors import InvalidSchedule
from polyfuse.ir.number_types import ITEMSIZE
from polyfuse.ir.tensor import Tensor
from polyfuse.ir.tree import BULK
from polyfuse.layouts.swizzle import WHOLE
from polyfuse.schedule.promote.tma_boxes import BulkCopy

HEADER = """\
import math

from numba import cuda, float32, float64, int32, int64
"""

FACADE = "polyfuse.intrinsics.cuda"
"""The module from which emitted source imports the device operations."""

LARGEST = {"block": 2**31 - 1, "cluster": 7, "thread": 1023}
"""The largest numbers of blocks and threads. Where registers are few, the compiler is told that they are not negative:
in an address a number that may be takes two registers. 8 x 8 results in 128 of them spill 24 bytes without.
"""


def header(source: str) -> str:
    """The imports of emitted source: the integers that it has, and the operations that it calls."""
    others = sorted(set(re.findall(r"\bu?int(?:8|16|32|64)\b", source)) - {"int32", "int64"})
    numbers = HEADER.replace("int64\n", f"{', '.join(['int64', *others])}\n")
    return numbers + "".join(f"from {FACADE} import {op.name}\n" for op in called_in(source))


AXIS_OF = {"block": "blockIdx", "thread": "threadIdx"}


@dataclass(frozen=True)
class CudaKernel:
    """A kernel's source, its argument types, and the grid and block it wants (expressions in sizes).

    `registers` is what a thread gets where it holds a tile of results; `shared_bytes` lie in a block's shared memory.
    `wide` are the positions of the arguments that are read 16 bytes at a time, `maps` further arguments. If there are
    places at which all blocks meet, `grid_barriers`, the counter of those that have come is the argument behind the
    arrays. Blocks are in a `cluster` of so many along each axis. `untiled` are the statements of microkernels whose
    sums no tile in registers holds.
    """

    name: str
    source: str
    signature: tuple[str, ...]
    grid: tuple[ast.expr, ast.expr, ast.expr]
    block: tuple[ast.expr, ast.expr, ast.expr]
    registers: int | None = None
    shared_bytes: int = 0
    wide: tuple[int, ...] = ()
    grid_barriers: int = 0
    maps: tuple[BoxMap, ...] = ()
    cluster: tuple[int, int, int] = ALONE
    untiled: tuple[str, ...] = ()


def cuda_kernel(kernel: Kernel) -> CudaKernel:
    """The numba.cuda source of one kernel: every tensor is a pointer to its elements in row-major order."""
    meetings = grid_barriers(kernel.body)
    same = frozenset[str]() if meetings or planned_registers(kernel.body) else _never_written(kernel)
    pointers = tuple(
        f"{CONST if name in same else ''}{held_as(tensor.dtype)}*" for name, tensor in kernel.arrays.items()
    )
    kernel = rewritten(kernel)
    wide, bulk = copied_widely(kernel.body), bulk_of(kernel)
    maps = () if bulk is None else bulk.box_maps(kernel)
    counter = ("int32*",) if meetings else ()
    signature = (*pointers, *counter, *("int64" for _ in kernel.sizes), *(KIND for _ in maps))
    emitter = _Cuda(kernel)
    return CudaKernel(
        kernel.name,
        emitter.source(),
        signature,
        _grid(kernel.axes),
        _block(kernel, bulk is not None and bulk.slots > 0),
        planned_registers(kernel.body),
        shared_bytes(kernel.body)
        + sum(count * ITEMSIZE[dtype] for count, dtype in warps_of(kernel.body).values())
        + (0 if bulk is None else bulk.nbytes),
        tuple(position for position, name in enumerate(kernel.arrays) if name in wide),
        meetings,
        maps,
        cluster_of(kernel.axes),
        tuple(emitter.untiled),
    )


def _never_written(kernel: Kernel) -> frozenset[str]:
    """The tensors that a kernel only reads: what it writes does not change them, so that sums may stay in registers.

    Tiles of results are in registers by themselves, and what their threads load early is planned.
    """
    return frozenset(kernel.arrays) - {store.target.array for store in stores_in(kernel.body)}


def _extents(axes: tuple[Axis, ...], unit: str) -> tuple[ast.expr, ast.expr, ast.expr]:
    found = {axis.name: axis.extent for axis in axes}
    x, y, z = (found.get(f"{unit}.{d}", ast.Constant(1)) for d in "xyz")
    return x, y, z


def _grid(axes: tuple[Axis, ...]) -> tuple[ast.expr, ast.expr, ast.expr]:
    """The blocks of a launch: so many clusters of so many blocks along each axis."""
    each = zip(_extents(axes, "block"), cluster_of(axes), strict=True)
    x, y, z = (binary(ast.Mult(), clusters, ast.Constant(blocks)) for clusters, blocks in each)
    return x, y, z


def _block(kernel: Kernel, own_warp: bool) -> tuple[ast.expr, ast.expr, ast.expr]:
    """A block's threads; those of axes in a row, and a warp behind them, where one only copies."""
    if not own_warp:
        return _extents(kernel.axes, "thread")
    return ast.Constant(threads_in(kernel) + WARP), ast.Constant(1), ast.Constant(1)


def threads_in(kernel: Kernel) -> int:
    """The threads of a block that are on the axes of a kernel with a warp that only copies: a number of whole warps."""
    extents = _extents(kernel.axes, "thread")
    known = [each.value for each in extents if isinstance(each, ast.Constant) and isinstance(each.value, int)]
    if len(known) < len(extents) or prod(known) % WARP:
        found = " × ".join(map(ast.unparse, extents))
        raise InvalidSchedule(
            f"a warp that only copies stands behind whole warps of a block, and kernel {kernel.name} has {found} "
            "threads"
        )
    return prod(known)


def flat_index(tensor: Tensor, subscripts: tuple[ast.expr, ...]) -> ast.expr:
    """The row-major position of an element: i * 512 + j."""
    return row_major(subscripts, tensor.shape) if subscripts else ast.Constant(0)


def row_major(subscripts: tuple[ast.expr, ...], shape: tuple[int | str, ...]) -> ast.expr:
    """The position of an element in an array of a shape."""
    position = subscripts[0]
    for size, index in zip(shape[1:], subscripts[1:], strict=True):
        extent: ast.expr = ast.Constant(size) if isinstance(size, int) else size_expression(size)
        position = binary(ast.Add(), binary(ast.Mult(), position, extent), index)
    return position


def shapes_of(node: Node) -> dict[str, tuple[int, ...]]:
    """The shape of each buffer that is allocated in a node."""
    if isinstance(node, Allocate):
        return {node.buffer: node.shape}
    return {name: shape for part in below(node) for name, shape in shapes_of(part).items()}


def size_expression(text: str) -> ast.expr:
    """An extent in a kernel's own words: floor((N)/2) is N // 2."""
    for node in ast.walk(tree := ast.parse(text, mode="eval")):
        if isinstance(node, ast.Call) and isinstance(node.args[0], ast.BinOp):
            node.args[0].op = ast.FloorDiv()

    class Plain(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            return self.generic_visit(node).args[0]  # type: ignore[attr-defined, no-any-return]

    return Plain().visit(tree).body  # type: ignore[no-any-return]


def _largest(axis: Axis) -> int:
    """A number of ones in bits that no value of an axis is above."""
    extent = axis.extent.value if isinstance(axis.extent, ast.Constant) else None
    return 2 ** (extent - 1).bit_length() - 1 if isinstance(extent, int) else LARGEST[axis.name.split(".")[0]]


class _Cuda(Emitter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.wide, self.bulk = accessed_widely(kernel.body), bulk_of(kernel)
        self.shapes = shapes_of(kernel.body)
        self.in_tiles = planned_registers(kernel.body) is not None
        self.loops = 0
        self.depth = 0  # loops around
        self.met = 0  # places at which the warps of a row have met
        self.untiled: dict[str, None] = {}  # statements of microkernels that are plain loops

    def parameters(self) -> tuple[str, ...]:
        counter = (ARRIVALS,) if grid_barriers(self.kernel.body) else ()
        maps = self.bulk.maps.values() if self.bulk is not None else ()
        return (*self.kernel.arrays, *counter, *self.kernel.sizes, *maps)

    def opening(self, body: list[str]) -> list[str]:
        lines, apart = [], self.bulk is not None and self.bulk.slots > 0
        cluster, pairs = cluster_of(self.kernel.axes), in_pairs(self.kernel)
        for axis in self.kernel.axes:
            unit, d = axis.name.split(".")
            known = f" & {_largest(axis)}" if self.in_tiles else ""
            if not apart or unit != "thread":
                number = pairs.get(axis.name) or number_of(axis.name, cluster)
                lines.append(f"{axis_name(axis.name)} = {number or f'cuda.{AXIS_OF[unit]}.{d}{known}'}")
        lines += self._in_a_row() if apart else []
        for name, (count, dtype) in warps_of(self.kernel.body).items():
            lines.append(f"{name} = cuda.shared.array(({count},), {dtype})")
        return (
            lines
            if self.bulk is None
            else [*lines, *self.bulk.opening(threads_in(self.kernel) // WARP * apart)]
        )

    def _in_a_row(self) -> list[str]:
        """Threads of a block that are numbered through, those of thread.x first: 4 × 32 threads, and a warp.

        thread = cuda.threadIdx.x & 255;  tx = thread % 4;  ty = thread // 4 % 32
        """
        assert self.bulk is not None
        number, before, lines = self.bulk.thread, 1, list[str]()
        every = 2 ** (threads_in(self.kernel) + WARP - 1).bit_length() - 1
        lines.append(f"{number} = cuda.threadIdx.x & {every}")
        extents = {axis.name: ast.unparse(axis.extent) for axis in self.kernel.axes}
        for name in (name for name in ("thread.x", "thread.y", "thread.z") if name in extents):
            place = f"{number} // {before}" if before > 1 else number
            lines.append(f"{axis_name(name)} = {place} % {extents[name]}")
            before *= int(extents[name])
        return lines

    def allocation(self, node: Allocate) -> str:
        if not node.shape:
            return f"{node.buffer} = {zero(node.dtype)}"
        memory = "shared" if node.memory == "shared" else "local"
        wide = ", alignment=16" if node.buffer in self.wide else ""
        if self.bulk is not None and node.buffer in self.bulk.filled:
            wide = f", alignment={WHOLE}"
        return f"{node.buffer} = cuda.{memory}.array({node.shape}, {held_as(node.dtype)}{wide})"

    def loop(self, node: For) -> list[str]:
        if self.bulk is not None and node.bind in BULK:
            return self.bulk.call(node, self.address)
        call = device_call(node, self.address, self.loops > 0)
        if call is not None:
            return call
        self.depth += 1
        lines = self._unrolled(node) if node.bind == "unroll" else self._in_order(node)
        self.depth -= 1
        return lines

    def _in_order(self, node: For) -> list[str]:
        often = runs_often(node)
        self.loops += often
        lines = super().loop(node)
        self.loops -= often
        if node.bind != "microkernel":
            return lines
        self.untiled |= dict.fromkeys(store.statement for store in stores_in(node))
        note = "# no tile in registers: the sums are elsewhere, or a factor is not in spread panels"
        return [note, *lines]

    def store(self, node: Store) -> list[str]:
        match node.operation:
            case BulkCopy() if self.bulk is not None:
                return self.bulk.call(node, self.address)
            case VectorCopy(count=1) as copy:
                return [copy_vector(node, copy, None, self.address)]
            case PaddedCopy(here, copy):
                if copy.ahead:
                    return [padded_ahead(node, here, copy, None, self.address)]
                if not copy.conversion:
                    return [copy_padded(node, here, self.place)]
                return [pad_converted(node, here, replace(copy, count=1, run=1), None, self.address)]
        return super().store(node)

    def lanes(self, node: Lanes) -> list[str]:
        again = bool(self.met or self.depth)
        self.met += node.threads > WARP
        return shuffled(node, self.lines(node.body), self.place, axis_name(LANES), again)

    def _unrolled(self, node: For) -> list[str]:
        """A loop with the constant bounds that it may have."""
        low, high = constant_bounds(node)
        bounded = None if low is None or high is None or node.step != 1 else (low, high)
        return super().loop(node if bounded is None else with_constant_bounds(node, *bounded))

    def by_role(self, node: ByRole) -> list[str]:
        """Of the warp that only copies the first thread does; all threads of the others the rest."""
        assert self.bulk is not None
        number, first = self.bulk.thread, threads_in(self.kernel)
        return [
            f"if {number} == {first}:",
            *self._indented(self.lines(node.copies)),
            f"if {number} < {first}:",
            *self._indented(self.lines(node.others)),
            *self.bulk.closing(),
        ]

    def handed(self, node: Handover | NextSlot | AwaitBefore) -> list[str]:
        assert self.bulk is not None
        match node:
            case AwaitBefore():
                return [DEVICE_OPS["await_wgmma_before"].call()]
            case Handover():
                return [self.bulk.handed(node)]
        return [f"{self.bulk.group} += 1"]

    def placed(self, element: Element) -> ast.expr:
        tensor = self.kernel.arrays.get(element.array)
        if tensor is None:
            return subscripted(element.array, tuple(map(in_bits, element.subscripts)))
        return subscripted(element.array, (in_bits(flat_index(tensor, element.subscripts)),))

    def address(self, element: Element, values: Environment) -> tuple[ast.expr, ast.expr]:
        """The array of an element, and how far behind its first one it lies where names have these values."""
        if element.array in self.kernel.arrays:
            there = self.place(element)
            assert isinstance(there, ast.Subscript), "a tensor is a pointer"
            return there.value, substituted(there.slice, values)
        position = row_major(element.subscripts, self.shapes[element.array])
        return ast.Name(element.array), in_bits(substituted(position, values))

    def barrier(self, node: Barrier) -> list[str]:
        """A thread waits for its own copies; then all threads' copies are there for all, tensor cores too."""
        arrived = [] if node.open is None else [DEVICE_OPS["await_copies"].call(still_open=node.open)]
        shown = [DEVICE_OPS["show_tensor_cores"].call()] if node.shows else []
        awaited = list[str]()
        if node.awaits is not None:
            rows, columns, results = node.awaits
            awaited = [DEVICE_OPS["await_wgmma"].call(rows=rows, columns=columns, y=results)]
        if self.bulk is not None and node.open is not None:
            arrived = [*(arrived if copies_by_threads(self.kernel.body) else ()), *self.bulk.waiting()]
        return [
            *awaited,
            *arrived,
            *shown,
            DEVICE_OPS["grid_barrier"].call(arrivals=ARRIVALS) if node.grid else "cuda.syncthreads()",
        ]
