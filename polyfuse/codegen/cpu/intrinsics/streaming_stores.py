"""Nontemporal stores for numba source: a loop's results bypass the caches, whole lines at a time.

    y_line = line_of(y, 128)                                   512 bytes on the stack, the first begins a line
    for j in range(0 - past_line(y, (i, 0)), 1000, 128):       pieces begin where lines of y do
        first = max(0, j); count = min(j + 128, 1000) - first
        for j_in in range(count): y_line[first - j + j_in] = …
        store_past(y, (i, first), y_line, first - j, count)
    stores_done()

An ordinary store reads its line before it changes it, and displaces another line from the caches. A whole line that
is stored past them is written and that is all: scaling 16M floats took 9.4 ms with ordinary stores and 4.8 past the
caches, by a line of 512 bytes or from registers alike (one core of a Xeon). LLVM would not vectorize a loop of such
stores unless it knew that they begin lines; the line on the stack, which stays in L1, keeps the loop as it is.

Such stores are not ordered with others: another thread may see them late. `stores_done` waits for them.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac import LINE, Operand
from polyfuse.codegen.cpu.intrinsics.stack_arrays import array_on_stack

INT64 = ir.IntType(64)
PAST_THE_CACHES = "nontemporal"


@intrinsic(prefer_literal=True)
def line_of(typingctx: Any, array: Any, count: Any) -> Any:
    """A row of `count` elements like an array's, on the stack; uninitialised. `count` is a literal.

    It is no `on_stack`, since numba takes the constants of tuples out of a parallel loop's body.
    """
    if not isinstance(count, types.IntegerLiteral):
        return None
    kind = types.Array(array.dtype, 1, "C")

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        return array_on_stack(context, builder, kind, (count.literal_value,))

    return kind(array, count), code


@intrinsic
def past_line(typingctx: Any, array: Any, index: Any) -> Any:
    """The number of elements between the beginning of a line and an element in it."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        place = Operand(context, builder, array, args[0]).at(index, args[1])
        return builder.udiv(builder.and_(place, INT64(LINE - 1)), INT64(_itemsize(array)))

    return types.int64(array, index), code


@intrinsic
def store_past(typingctx: Any, array: Any, index: Any, line: Any, first: Any, count: Any) -> Any:
    """Store `count` numbers, from one of a line on, in an array from an element on: its whole lines past the caches.

    What begins or ends within a line of the array is stored as always, and all where no element begins one.
    """

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        size = INT64(_itemsize(array))
        start, number = (
            context.cast(builder, value, given, types.int64)
            for value, given in zip(args[3:], (first, count), strict=True)
        )
        target = Operand(context, builder, array, args[0]).at(index, args[1])
        source = builder.add(Operand(context, builder, line, args[2]).data, builder.mul(start, size))
        copy = _Copy(builder, target, source, builder.mul(number, size))
        before = builder.and_(builder.neg(target), INT64(LINE - 1))
        odd = builder.icmp_unsigned("!=", builder.urem(before, size), INT64(0))
        none = builder.or_(odd, builder.icmp_unsigned(">", before, copy.nbytes))
        head = builder.select(none, copy.nbytes, before)
        lines = builder.and_(builder.sub(copy.nbytes, head), INT64(-LINE))
        element, whole = ir.IntType(8 * _itemsize(array)), ir.VectorType(ir.IntType(32), LINE // 4)
        copy.run(INT64(0), head, element, past=False)
        copy.run(head, builder.add(head, lines), whole, past=True)
        copy.run(builder.add(head, lines), copy.nbytes, element, past=False)
        return context.get_dummy_value()

    return types.void(array, index, line, first, count), code


@intrinsic
def stores_done(typingctx: Any) -> Any:
    """Wait until what was stored past the caches is there for all threads."""

    def code(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        if str(builder.module.triple).startswith(("x86_64", "i686")):
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse.sfence"), [])
        else:
            builder.fence("release")
        return context.get_dummy_value()

    return types.void(), code


class _Copy:
    """Bytes from one address to another, in pieces of one type."""

    def __init__(self, builder: ir.IRBuilder, target: Any, source: Any, nbytes: Any) -> None:
        self.builder, self.target, self.source, self.nbytes = builder, target, source, nbytes

    def run(self, low: Any, high: Any, kind: ir.Type, past: bool) -> None:
        """Copy the bytes from `low` to `high`, which hold a whole number of pieces."""
        builder, size = self.builder, LINE if past else kind.width // 8
        with cgutils.for_range_slice(builder, low, high, INT64(size), INT64) as (offset, _):
            to, of = (
                builder.inttoptr(builder.add(base, offset), kind.as_pointer())
                for base in (self.target, self.source)
            )
            value = builder.load(of, align=1 if past else size)
            stored = builder.store(value, to, align=size)
            if past:
                flag = builder.module.add_metadata([ir.IntType(32)(1)])
                stored.set_metadata(PAST_THE_CACHES, flag)


def _itemsize(array: Any) -> int:
    return int(array.dtype.bitwidth) // 8
