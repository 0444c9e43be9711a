"""A tile of results times two factors by a GPU's tensor cores, 32 lanes together: what emitted source calls.

    tile_mma_tf32   factors of 11 digits, 8 steps an instruction: mma.sync.aligned.m16n8k8     (cvt.rna.tf32.f32)
    tile_mma_bf16   factors of 8 digits, 16 steps an instruction: mma.sync.aligned.m16n8k16    (cvt.rn.bf16x2.f32)
    tile_mma_f16    factors of 11 digits up to 65504, likewise                                 (cvt.rn.f16x2.f32)

A warp's instruction multiplies 16 rows by 8 columns. Which 16 and which 8 is ours to say. With g = lane / 4 and
t = lane % 4 (PTX ISA, "Matrix Fragments for mma.m16n8k8", "… for mma.m16n8k16"):

    C  c0 c1 c2 c3     rows g, g + 8, columns 2t, 2t + 1                 lane's own rows 2m, 2m + 1, columns n, n + half
    A  a0 a1 a2 a3     rows g, g + 8, steps t, t + 4                     lane's own rows 2m, 2m + 1
    B  b0 b1           column g, steps t, t + 4                          column n of half a thread's, those of t = g / 2

So a thread has neighbouring rows and columns as it has without tensor cores, whatever follows the product runs on them,
and what a lane reads of a step is neighbours: 16 bytes at a time. With 16 steps an instruction a lane has four of them,
2t, 2t + 1, 2t + 8, 2t + 9 of both factors; they are lines t, t + 4, t + 8, t + 12 here, which a sum may add up in any
order. Factors are rounded when they have been read: shared memory holds them as they are, so that they can be copied
while the warp multiplies. Needs the extra `polyfuse[cuda]`, and a GPU from sm_80 on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic

from polyfuse.codegen.device_operations import INT, Factor, Tile
from polyfuse.ir.precision import PRECISIONS, Math

LINES = 4
"""Lanes of a row, which have a line of steps each."""

WORD, FLOAT = ir.IntType(32), ir.FloatType()

SHAPE = {
    "tf32": "m16n8k8.row.col.f32.tf32.tf32.f32",
    "bf16": "m16n8k16.row.col.f32.bf16.bf16.f32",
    "f16": "m16n8k16.row.col.f32.f16.f16.f32",
}


def _operation(math: Math) -> Any:
    """The intrinsic for a format of factors."""

    @intrinsic
    def tile_mma(
        typingctx: Any, rows: Any, columns: Any, most: Any, y: Any,
        a: Any, a_at: Any, a_line: Any, a_every: Any, a_skip: Any, a_part: Any, a_vector: Any,
        b: Any, b_at: Any, b_line: Any, b_every: Any, b_skip: Any, b_part: Any, b_vector: Any,
        count: Any, lane_x: Any, lane_y: Any,
    ) -> Any:  # fmt: skip
        """y[r, c] += a(k, r) * b(k, c) for the steps k < count, rounded factors, sums in float32.

        As for `tile_fma`, but `b_at` is where the first column of the thread with lane_x 0 lies.
        """
        literals = (rows, columns, most, a_line, a_every, a_skip, a_part, a_vector,
                    b_line, b_every, b_skip, b_part, b_vector)  # fmt: skip
        if not all(isinstance(value, types.IntegerLiteral) for value in literals):
            return None
        numbers = [value.literal_value for value in literals]

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            def start(position: int, first: Any) -> Any:
                data = context.make_array(sig.args[position])(context, builder, args[position]).data
                return builder.gep(data, [first])

            def index(position: int) -> Any:
                return context.cast(builder, args[position], sig.args[position], types.int64)

            t, g = index(19), index(20)
            half = builder.mul(g, INT(numbers[12]))  # the tiles of half a thread's columns are side by side
            left = Factor(builder, FLOAT, start(4, index(5)), *numbers[3:8])
            right = Factor(builder, FLOAT, start(11, builder.add(index(12), half)), *numbers[8:13])
            tile = _Tile(builder, start(3, INT(0)), left, right, numbers[0], numbers[1], math, t)
            steps = index(18)
            whole = numbers[2] if numbers[2] % tile.depth == 0 else 0
            with builder.if_else(builder.icmp_signed("==", steps, INT(whole))) as (full, cut):
                with full:
                    tile.whole(whole)
                with cut:
                    tile.some(steps)
            return context.get_dummy_value()

        kinds = (rows, columns, most, y, a, types.int64, a_line, a_every, a_skip, a_part, a_vector,
                 b, types.int64, b_line, b_every, b_skip, b_part, b_vector,
                 types.int64, types.int64, types.int64)  # fmt: skip
        return types.void(*kinds), codegen

    return tile_mma


tile_mma_tf32, tile_mma_bf16, tile_mma_f16 = map(_operation, PRECISIONS)


@dataclass(frozen=True)
class _Tile(Tile):
    """The results of one lane, and the code by which its warp multiplies into them."""

    math: Math
    t: Any

    @property
    def depth(self) -> int:
        """The steps of one instruction."""
        return PRECISIONS[self.math].steps

    def whole(self, steps: int) -> None:
        """All steps, from this lane's line on."""
        left, right = (side.from_line(self.t) for side in (self.left, self.right))
        super(_Tile, replace(self, left=left, right=right)).whole(steps)

    def _stepped(self, held: list[Any], step: int) -> list[Any]:
        lines = range(step, step + self.depth, LINES)
        rows = [self.left.at(line, self.rows) for line in lines]
        columns = [self.right.at(line, self.columns // 2) for line in lines]
        return self._multiplied(held, rows, columns)

    def _last(self, held: list[Any], step: Any, count: Any) -> list[Any]:
        """Zeros after the last step."""
        builder = self.builder
        lines = [builder.add(step, builder.add(self.t, INT(line))) for line in range(0, self.depth, LINES)]
        rows = [self._if_below(count, line, self.left, self.rows) for line in lines]
        columns = [self._if_below(count, line, self.right, self.columns // 2) for line in lines]
        return self._multiplied(held, rows, columns)

    def _if_below(self, count: Any, line: Any, side: Factor, width: int) -> list[Any]:
        """A line's elements, or zeros for one that there is not; the last one is read then, as by the lanes before."""
        there = self.builder.icmp_signed("<", line, count)
        last = self.builder.sub(count, INT(1))
        found = side.at(self.builder.select(there, line, last), width)
        return [self.builder.select(there, value, FLOAT(0.0)) for value in found]

    def _multiplied(self, held: list[Any], a: list[list[Any]], b: list[list[Any]]) -> list[Any]:
        """The results after one instruction for each 16 x 8 of them; `a` and `b` have a lane's lines."""
        new, half = list(held), self.columns // 2
        columns = [self._words([line[n] for line in b]) for n in range(half)]
        for m in range(0, self.rows, 2):
            upper, lower = (self._words([line[r] for line in a]) for r in (m, m + 1))
            rows = [word for pair in zip(upper, lower, strict=True) for word in pair]
            for n in range(half):
                places = [r * self.columns + c for r in (m, m + 1) for c in (n, n + half)]
                sums = self._instruction([*rows, *columns[n]], [new[p] for p in places])
                for position, value in zip(places, sums, strict=True):
                    new[position] = value
        return new

    def _words(self, values: list[Any]) -> list[Any]:
        """One element's rounded values for a lane's steps, in registers: one of 32 bits each, or two of 16."""
        if self.math == "tf32":
            return [self._assembly("cvt.rna.tf32.f32 $0, $1;", "=r,f", WORD, [value]) for value in values]
        text = f"cvt.rn.{self.math}x2.f32 $0, $1, $2;"  # the first operand goes to the upper half
        pairs = zip(values[::2], values[1::2], strict=True)
        return [self._assembly(text, "=r,f,f", WORD, [high, low]) for low, high in pairs]

    def _instruction(self, factors: list[Any], sums: list[Any]) -> list[Any]:
        """C + A * B of one 16 x 8 tile, this lane's part."""
        text = f"mma.sync.aligned.{SHAPE[self.math]} {{$0,$1,$2,$3}}, {{$4,$5,$6,$7}}, {{$8,$9}}, {{$10,$11,$12,$13}};"
        operands = ",".join(["=f"] * 4 + ["r"] * 6 + ["f"] * 4)
        found = self._assembly(text, operands, ir.LiteralStructType([FLOAT] * 4), [*factors, *sums])
        return [self.builder.extract_value(found, part) for part in range(4)]

    def _assembly(self, text: str, operands: str, result: Any, values: list[Any]) -> Any:
        """PTX that touches no memory."""
        function = ir.FunctionType(result, [value.type for value in values])
        return self.builder.asm(function, text, operands, values, side_effect=False)
