"""Device operations that multiply a tile by mma.sync on tensor cores, 32 lanes together.

    tile_mma_tf32   factors of 11 digits, 8 steps an instruction: mma.sync.aligned.m16n8k8
    tile_mma_bf16   factors of 8 digits, 16 steps an instruction: mma.sync.aligned.m16n8k16
    tile_mma_f16    factors of 11 digits up to 65504, likewise
    tile_mma_f64    float64 numbers as they are, 4 steps: mma.sync.aligned.m8n8k4, which has no rows g + 8

A warp's instruction multiplies 16 rows by 8 columns. Which 16 and which 8 is ours to say. With g = lane / 4 and
t = lane % 4 (PTX ISA, "Matrix Fragments for mma.m16n8k8", "… mma.m16n8k16", "… mma.m8n8k4"):

    C  c0 c1 c2 c3     rows g, g + 8, columns 2t, 2t + 1                 lane's own rows 2m, 2m + 1, two columns
    A  a0 a1 a2 a3     rows g, g + 8, steps t, t + 4                     lane's own rows 2m, 2m + 1
    B  b0 b1           column g, steps t, t + 4                          column of the thread with t = g / 2

So a thread has neighbouring rows and columns as it has without tensor cores, and whatever follows the product runs on
them in registers. Its two columns are n and n + half, or where a factor is transposed on its way neighbours, 2n and
2n + 1. Of 16 steps an instruction a lane has four, 2t, 2t + 1, 2t + 8, 2t + 9: two words of two numbers, where tf32 has
two words of steps t and t + 4, and f64 one number of step t. Factors are rounded in shared memory already (`promote(…,
rounded=…)`), and come from there by ldmatrix (ldmatrix.py), or those of tf32 and f64 in lines as
`tile_fma.Factor` reads them. Needs the extra `polyfuse[cuda]`, and a GPU from sm_80 on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic

from polyfuse.codegen.cuda.intrinsics.ldmatrix import WORD, matrices_from
from polyfuse.codegen.cuda.intrinsics.tile_fma import INT, Factor, Tile
from polyfuse.codegen.cuda.mma_calls import LINES, TRANSPOSED
from polyfuse.ir.precision import ROWS_OF_ONE, STEPS, Math

ROWS = 4
"""Lines of steps, one for each of the lanes along a warp's columns."""

KIND = {"tf32": ir.FloatType(), "bf16": ir.FloatType(), "f16": ir.FloatType(), "f64": ir.DoubleType()}
"""Of sums, and of the elements of lines."""

SHAPE = {
    "tf32": "m16n8k8.row.col.f32.tf32.tf32.f32",
    "bf16": "m16n8k16.row.col.f32.bf16.bf16.f32",
    "f16": "m16n8k16.row.col.f32.f16.f16.f32",
    "f64": "m8n8k4.row.col.f64.f64.f64.f64",
}


def _operation(math: Math) -> Any:
    """The intrinsic for a format of factors."""

    @intrinsic
    def tile_mma(
        typingctx: Any, rows: Any, columns: Any, most: Any, y: Any,
        a: Any, a_at: Any, a_how: Any, a_1: Any, a_2: Any, a_3: Any, a_4: Any, a_5: Any,
        b: Any, b_at: Any, b_how: Any, b_1: Any, b_2: Any, b_3: Any, b_4: Any, b_5: Any,
        count: Any, lane_x: Any, lane_y: Any,
    ) -> Any:  # fmt: skip
        """y[r, c] += a(k, r) * b(k, c) for the steps k < count, factors rounded before.

        Sums are float32 numbers, of f64 factors float64 ones.
        A factor is an array, where the lane's elements of it begin, how they are read, and five numbers: in lines
        line, every, skip, part, vector as for `tile_fma`, its first element that of the warp's first lane along
        columns; as matrices the elements from one of their rows to the next, one own row or column, one step.
        """
        literals = (rows, columns, most, a_how, a_1, a_2, a_3, a_4, a_5, b_how, b_1, b_2, b_3, b_4, b_5)
        if not all(isinstance(value, types.IntegerLiteral) for value in literals):
            return None
        numbers = [value.literal_value for value in literals]

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            def start(position: int, first: Any) -> Any:
                data = context.make_array(sig.args[position])(context, builder, args[position]).data
                return builder.gep(data, [first])

            def index(position: int) -> Any:
                return context.cast(builder, args[position], sig.args[position], types.int64)

            t, g = index(21), index(22)

            def side(position: int, how: int, of: list[int], left: bool) -> Any:
                at = index(position + 1)
                if how != LINES:
                    lane = builder.add(builder.mul(g, INT(4)), t)
                    place = start(position, at)
                    return matrices_from(
                        builder, place, (of[0], of[1], of[2]), how == TRANSPOSED, left, math, lane
                    )
                if not left:  # the tiles of half a thread's columns are side by side
                    at = builder.add(at, builder.mul(g, INT(of[4])))
                factor = Factor(builder, KIND[math], start(position, at), *of)
                return _Lines(builder, factor, left, t, math)

            left = side(4, numbers[3], numbers[4:9], True)
            right = side(12, numbers[9], numbers[10:15], False)
            paired = numbers[9] == TRANSPOSED
            tile = _Tile(builder, start(3, INT(0)), left, right, numbers[0], numbers[1], math, paired)
            steps = index(20)
            whole = numbers[2] if numbers[2] % tile.depth == 0 else 0
            with builder.if_else(builder.icmp_signed("==", steps, INT(whole))) as (full, cut):
                with full:
                    tile.whole(whole)
                with cut:
                    tile.some(steps)
            return context.get_dummy_value()

        one = (types.int64, *literals[3:9]), (types.int64, *literals[9:15])
        kinds = (rows, columns, most, y, a, *one[0], b, *one[1], types.int64, types.int64, types.int64)
        return types.void(*kinds), codegen

    return tile_mma


tile_mma_tf32, tile_mma_bf16, tile_mma_f16, tile_mma_f64 = map(_operation, STEPS)


@dataclass(frozen=True)
class _Lines:
    """A factor of tf32 or f64 numbers of which a lane reads its own line of steps, neighbours in one access."""

    builder: Any
    factor: Factor
    left: bool
    t: Any
    math: Math

    def words(self, width: int, step: Any, count: Any) -> list[list[Any]]:
        """The words of each instruction's rows, or of its columns, from a step on; zeros from `count` on."""
        lines = [self._line(width, step, line, count) for line in range(0, STEPS[self.math], ROWS)]
        if self.left:
            each = ROWS_OF_ONE[self.math]
            return [[line[m + r] for line in lines for r in range(each)] for m in range(0, width, each)]
        return [[line[n] for line in lines] for n in range(width)]

    def _line(self, width: int, step: Any, line: int, count: Any) -> list[Any]:
        builder = self.builder
        if count is None:
            return [self._word(value) for value in self.factor.from_line(self.t).at(step + line, width)]
        own = builder.add(step, builder.add(self.t, INT(line)))
        there = builder.icmp_signed("<", own, count)
        found = self.factor.at(builder.select(there, own, builder.sub(count, INT(1))), width)
        return [self._word(builder.select(there, value, self.factor.kind(0.0))) for value in found]

    def _word(self, value: Any) -> Any:
        """An instruction's operand: float64 numbers are taken as they are."""
        return value if self.math == "f64" else self.builder.bitcast(value, WORD)


@dataclass(frozen=True)
class _Tile(Tile):
    """The results of one lane, and the code by which its warp multiplies into them.

    `paired`: an instruction's two columns of a lane are neighbours.
    """

    left: Any
    right: Any
    math: Math
    paired: bool

    @property
    def depth(self) -> int:
        """The steps of one instruction."""
        return STEPS[self.math]

    def _stepped(self, held: list[Any], step: int) -> list[Any]:
        return self._last(held, step, None)

    def _last(self, held: list[Any], step: Any, count: Any) -> list[Any]:
        """Zeros after the last step."""
        a = self.left.words(self.rows, step, count)
        return self._multiplied(held, a, self.right.words(self.columns // 2, step, count))

    def _multiplied(self, held: list[Any], a: list[list[Any]], b: list[list[Any]]) -> list[Any]:
        """The results after one instruction for each 16 x 8 of them, or 8 x 8."""
        new, half, each = list(held), self.columns // 2, ROWS_OF_ONE[self.math]
        for n, columns in enumerate(b):  # whose words ptxas moves side by side, once for all rows
            for m, rows in enumerate(a):
                two = (2 * n, 2 * n + 1) if self.paired else (n, n + half)
                places = [r * self.columns + c for r in range(each * m, each * (m + 1)) for c in two]
                sums = self._instruction([*rows, *columns], [new[p] for p in places])
                for position, value in zip(places, sums, strict=True):
                    new[position] = value
        return new

    def _instruction(self, factors: list[Any], sums: list[Any]) -> list[Any]:
        """C + A * B of one tile, this lane's part."""
        kind, values, count = KIND[self.math], [*factors, *sums], len(sums)
        of, word = ("d", "d") if self.math == "f64" else ("f", "r")
        operands = ",".join([f"={of}"] * count + [word] * len(factors) + [of] * count)
        right = len(factors) // (ROWS_OF_ONE[self.math] + 1)  # a column has as many words as each row
        names = _in_braces(count, len(factors) - right, right, count)
        function = ir.FunctionType(ir.LiteralStructType([kind] * count), [value.type for value in values])
        text = f"mma.sync.aligned.{SHAPE[self.math]} {names};"
        found = self.builder.asm(function, text, operands, values, side_effect=False)
        return [self.builder.extract_value(found, part) for part in range(count)]


def _in_braces(*counts: int) -> str:
    """Operands by number, those of one matrix in braces: "{$0,$1}, {$2}" for 2 and 1."""
    starts = [sum(counts[:n]) for n in range(len(counts))]
    groups = (
        ",".join(f"${n}" for n in range(start, start + count))
        for start, count in zip(starts, counts, strict=True)
    )
    return ", ".join(f"{{{group}}}" for group in groups)
