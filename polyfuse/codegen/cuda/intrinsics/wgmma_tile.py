"""Device operations that multiply a tile by wgmma on Hopper's tensor cores, 128 threads together.

    tile_wgmma_bf16     wgmma.mma_async.sync.aligned.m64nNk16.f32.bf16.bf16, factors in shared memory
    tile_wgmma_f16      the same of f16
    tile_wgmma_tf32     …m64nNk8.f32.tf32.tf32
    begin_wgmma_…       what these do, begun and not waited for; await_wgmma waits for all that is begun,
                        await_wgmma_before for all but the last
    show_tensor_cores   fence.proxy.async: what this thread wrote to shared memory is there for such instructions

A warpgroup's instruction reads both factors from shared memory by descriptors (wgmma_descriptors.py) and
adds to the registers of its 128 threads. Rows and columns of its matrices are a tile's as core_matrix.py says, so that
thread (g, t) of warp w has register 4j + 2h + e of instruction m as its own row 2m + h, column 2j + e. A call issues
the instructions of all its steps as one group and waits for it: nothing else may touch these registers meanwhile. Needs
the extra `polyfuse[cuda]`, and a GPU of compute capability 9.0, whose code is sm_90a.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic

from polyfuse.codegen.cuda.intrinsics.tile_fma import INT, SHARED
from polyfuse.ir.number_types import ITEMSIZE
from polyfuse.ir.precision import STEPS, STORED, Math
from polyfuse.layouts.core_matrix import FORMATS
from polyfuse.layouts.wgmma_descriptors import FIELD, UNIT, Form

FLOAT, BITS, WORD = ir.FloatType(), ir.IntType(16), ir.IntType(32)

WAIT = "wgmma.wait_group.sync.aligned 0;"


@dataclass(frozen=True)
class _Matrix:
    """A factor: the descriptor of its first core matrices, and what is added for others."""

    first: Any
    line: int
    far: int
    form: Form
    itemsize: int

    def after(self, step: int, instruction: int = 0) -> int:
        """The descriptor's increment for a later step, or for a later instruction's rows."""
        depth = UNIT // self.itemsize
        return (step // depth * self.line + instruction * self.far) * self.itemsize // UNIT


def _operation(math: Math, waits: bool) -> Any:
    """The intrinsic for a format of factors, which waits for its results or does not."""
    itemsize = ITEMSIZE[STORED[math]]

    @intrinsic
    def tile_wgmma(
        typingctx: Any, rows: Any, columns: Any, steps: Any, y: Any,
        a: Any, a_at: Any, a_line: Any, a_core: Any, a_far: Any, a_form: Any,
        b: Any, b_at: Any, b_line: Any, b_core: Any, b_far: Any, b_form: Any,
    ) -> Any:  # fmt: skip
        """y[r, c] += a(k, r) * b(k, c) for all steps, sums in float32, by the 128 threads of each warpgroup.

        y is an array of the thread's own. `a_at` and `b_at` are where the warpgroup's first core matrices lie, `line`,
        `core` and `far` how many elements behind them others: along the steps, along the results, and those of the
        next instruction's rows; `form` says how these lie (Form). All but `y`, `a`, `b` and where they start
        are literals.
        """
        literals = (rows, columns, steps, a_line, a_core, a_far, a_form, b_line, b_core, b_far, b_form)
        if not all(isinstance(value, types.IntegerLiteral) for value in literals):
            return None
        numbers = [value.literal_value for value in literals]

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            def data(position: int) -> Any:
                return context.make_array(sig.args[position])(context, builder, args[position]).data

            def matrix(position: int, line: int, core: int, far: int, form: int) -> _Matrix:
                first = context.cast(builder, args[position + 1], sig.args[position + 1], types.int64)
                rest = Form.by(form).described(0, line * itemsize, core * itemsize)
                bits = _described(builder, data(position), first, rest)
                return _Matrix(bits, line, far, Form.by(form), itemsize)

            sums = [builder.gep(data(3), [INT(n)]) for n in range(numbers[0] * numbers[1])]
            left, right = matrix(4, *numbers[3:7]), matrix(10, *numbers[7:11])
            held = [builder.load(place) for place in sums]
            text = _text(math, (numbers[0], numbers[1]), numbers[2], left, right) + (WAIT if waits else "")
            operands = ",".join(
                ["=f"] * len(held) + ["l", "l"] + [str(n) for n in range(len(held))] + ["~{memory}"]
            )
            given = [left.first, right.first, *held]
            function = ir.FunctionType(
                ir.LiteralStructType([FLOAT] * len(held)), [value.type for value in given]
            )
            found = builder.asm(function, text, operands, given, side_effect=True)
            for number, place in enumerate(sums):
                builder.store(builder.extract_value(found, number), place)
            return context.get_dummy_value()

        kinds = (rows, columns, steps, y, a, types.int64, a_line, a_core, a_far, a_form,
                 b, types.int64, b_line, b_core, b_far, b_form)  # fmt: skip
        return types.void(*kinds), codegen

    return tile_wgmma


tile_wgmma_tf32, tile_wgmma_bf16, tile_wgmma_f16 = (_operation(math, True) for math in FORMATS)
begin_wgmma_tf32, begin_wgmma_bf16, begin_wgmma_f16 = (_operation(math, False) for math in FORMATS)


@intrinsic
def await_wgmma(typingctx: Any, rows: Any, columns: Any, y: Any) -> Any:
    """Wait for all instructions that were begun; y, an array of the thread's own, has their results."""
    if not all(isinstance(value, types.IntegerLiteral) for value in (rows, columns)):
        return None
    count = rows.literal_value * columns.literal_value

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.asm(ir.FunctionType(ir.VoidType(), []), WAIT, "~{memory}", [], side_effect=True)
        data = context.make_array(sig.args[2])(context, builder, args[2]).data
        places = [builder.gep(data, [INT(n)]) for n in range(count)]
        held = [builder.load(place) for place in places]
        # nothing that reads the results is moved before the wait: here they become others
        function = ir.FunctionType(ir.LiteralStructType([FLOAT] * count), [FLOAT] * count)
        operands = ",".join(["=f"] * count + [str(n) for n in range(count)])
        found = builder.asm(function, "", operands, held, side_effect=True)
        for number, place in enumerate(places):
            builder.store(builder.extract_value(found, number), place)
        return context.get_dummy_value()

    return types.void(rows, columns, y), codegen


@intrinsic
def await_wgmma_before(typingctx: Any) -> Any:
    """Wait for all instructions that were begun but those of the last call, which have read their factors then.

    The results are the last call's, which nobody may touch before `await_wgmma`.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        function = ir.FunctionType(ir.VoidType(), [])
        builder.asm(function, "wgmma.wait_group.sync.aligned 1;", "~{memory}", [], side_effect=True)
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def show_tensor_cores(typingctx: Any) -> Any:
    """Make this thread's writes to shared memory visible to instructions that read it asynchronously: a fence."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        function = ir.FunctionType(ir.VoidType(), [])
        builder.asm(function, "fence.proxy.async.shared::cta;", "~{memory}", [], side_effect=True)
        return context.get_dummy_value()

    return types.void(), codegen


def _described(builder: Any, data: Any, first: Any, rest: int) -> Any:
    """The descriptor of the core matrices that begin at an element of an array in shared memory."""
    place = builder.gep(data, [first])
    address = builder.ptrtoint(builder.addrspacecast(place, ir.PointerType(BITS, addrspace=SHARED)), WORD)
    start = builder.zext(builder.lshr(builder.and_(address, WORD(FIELD * UNIT)), WORD(4)), INT)
    return builder.or_(start, INT(rest))


def _text(math: Math, tile: tuple[int, int], steps: int, left: _Matrix, right: _Matrix) -> str:
    """All instructions of a tile, one group; operands are results, two descriptors."""
    rows, columns = tile
    results = rows * columns
    a, b = f"${results}", f"${results + 1}"
    depth = STEPS[math]
    halves = ITEMSIZE[STORED[math]] == 2
    # only halves can be turned
    major = f", {int(left.form.turned)}, {int(right.form.turned)}" if halves else ""
    lines = [
        ".reg .pred add; .reg .b64 rows, columns;",
        "setp.eq.b32 add, 0, 0;",
        "wgmma.fence.sync.aligned;",
    ]
    for step in range(0, steps, depth):
        lines.append(f"add.s64 columns, {b}, {right.after(step)};")
        for m in range(rows // 2):
            held = ", ".join(f"${place}" for place in _registers(m, columns))
            lines.append(f"add.s64 rows, {a}, {left.after(step, m)};")
            lines.append(
                f"wgmma.mma_async.sync.aligned.m64n{4 * columns}k{depth}.f32.{math}.{math} "
                f"{{{held}}}, rows, columns, add, 1, 1{major};"
            )
    lines.append("wgmma.commit_group.sync.aligned;")
    return "{ " + "\n".join(lines) + " }"


def _registers(instruction: int, columns: int) -> list[int]:
    """The places among a thread's results of the instruction's registers, in their order: 4j + 2h + e."""
    return [
        (2 * instruction + h) * columns + 2 * j + e
        for j in range(columns // 2)
        for h in (0, 1)
        for e in (0, 1)
    ]
