"""Fragments of factors from shared memory by ldmatrix: four matrices of 8 rows of 16 bytes for all lanes of a warp.

Lane 8 * q + row says where row `row` of matrix q begins; lane 4 * g + t gets the t-th word of row g of each matrix, or
with .trans the elements (2t, g) and (2t + 1, g) (PTX ISA, "ldmatrix"). Which matrices make one instruction's words:

    rows      q = 0: own row 2m, first steps    1: own row 2m + 1    2: 2m, last steps    3: 2m + 1, last steps
    columns   q = 0: column n, first steps      1: n, last steps     2: n + 1             3: n + 1, last steps

A word is two of 16 steps, or one of 8 of tf32: eight numbers are 16 bytes, or four.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from polyfuse.analysis.vector_access import ACCESS_BYTES
from polyfuse.codegen.cuda.intrinsics.tile_fma import INT, SHARED
from polyfuse.ir.number_types import ITEMSIZE
from polyfuse.ir.precision import STORED, Math

WORD = ir.IntType(32)


def matrices_from(
    builder: Any,
    first: Any,
    numbers: tuple[int, int, int],
    transposed: bool,
    left: bool,
    math: Math,
    lane: Any,
) -> LoadedMatrices:
    """A factor in shared memory from the warp's first element on; `numbers` are the elements from one matrix row to
    the next, from one own row or column to the next, and from one step to the next. `lane` is 4 * g + t.
    """
    low, high = (builder.and_(builder.lshr(lane, INT(n)), INT(1)) for n in (3, 4))
    second, late = (low, high) if left else (high, low)
    neighbours = ACCESS_BYTES // ITEMSIZE[STORED[math]]
    own = builder.and_(lane, INT(7))
    after = builder.mul(late, INT(neighbours))
    step = builder.add(own, after) if transposed else after
    row = INT(0) if transposed else builder.mul(own, INT(numbers[0]))
    place = builder.gep(first, [builder.add(row, builder.mul(second, INT(numbers[1])))])
    shared = builder.addrspacecast(place, ir.PointerType(place.type.pointee, addrspace=SHARED))
    return LoadedMatrices(
        builder, builder.ptrtoint(shared, WORD), step, transposed, left, *numbers[1:], math, lane
    )


@dataclass(frozen=True)
class LoadedMatrices:
    """A factor of which this lane names the row at `address`, in bytes of shared memory, and `first` steps further.

    From one own row or column to the next there are `own` elements, from one step to the next `step`.
    """

    builder: Any
    address: Any
    first: Any
    transposed: bool
    left: bool
    own: int
    step: int
    math: Math
    lane: Any

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return ITEMSIZE[STORED[self.math]]

    @property
    def neighbours(self) -> int:
        """Elements of a matrix's row."""
        return ACCESS_BYTES // self.itemsize

    def words(self, width: int, step: Any, count: Any) -> list[list[Any]]:
        """The words of each instruction's rows, or of its columns, from a step on.

        There are zeros from step `count` on, unless it is None: all are there then, and `step` is a number.
        """
        found = []
        for own in range(0, width, 2):
            matrices = 4 if self.left or own + 1 < width else 2
            words = self._loaded(step, own, matrices, count)
            if count is not None:
                words = [self._below(word, step, self._late(q), count) for q, word in enumerate(words)]
            found += [words] if self.left else [words[n : n + 2] for n in range(0, matrices, 2)]
        return found

    def _late(self, q: int) -> int:
        """True if the matrix has an instruction's last steps."""
        return q // 2 if self.left else q % 2

    def _loaded(self, step: Any, own: int, matrices: int, count: Any) -> list[Any]:
        """The words of some matrices; `own` is the first of two rows or columns."""
        builder, mine, offset = self.builder, self.first, own * self.own
        if count is None:
            offset += step * self.step
        else:
            mine = builder.add(mine, step)
        if count is not None and self.transposed:  # no row lies beyond the last step
            last = builder.sub(count, INT(1))
            mine = builder.select(builder.icmp_signed("<", mine, count), mine, last)
        away = builder.mul(mine, INT(self.step * self.itemsize))
        address = builder.add(self.address, builder.trunc(away, WORD))
        return self._instruction(address, offset * self.itemsize, matrices)

    def _instruction(self, address: Any, offset: int, matrices: int) -> list[Any]:
        trans = ".trans" if self.transposed else ""
        outs = ",".join(f"${n}" for n in range(matrices))
        text = f"ldmatrix.sync.aligned.m8n8.x{matrices}{trans}.shared.b16 {{{outs}}}, [${matrices}+{offset}];"
        operands = ",".join([*["=r"] * matrices, "r", "~{memory}"])
        function = ir.FunctionType(ir.LiteralStructType([WORD] * matrices), [WORD])
        found = self.builder.asm(function, text, operands, [address], side_effect=True)
        return [self.builder.extract_value(found, n) for n in range(matrices)]

    def _below(self, word: Any, step: Any, late: int, count: Any) -> Any:
        """A word without its numbers of steps from `count` on."""
        builder, each = self.builder, 4 // self.itemsize
        mine = builder.mul(builder.and_(self.lane, INT(3)), INT(each))
        left = builder.sub(count, builder.add(builder.add(step, INT(late * self.neighbours)), mine))
        mask = builder.select(builder.icmp_signed(">=", left, INT(each)), WORD(0xFFFFFFFF), WORD(0))
        if each == 2:
            mask = builder.select(builder.icmp_signed("==", left, INT(1)), WORD(0xFFFF), mask)
        return builder.and_(word, mask)
