"""Operations that stores of a loop tree may be: tiles of products, copies of neighbours, and how their operands lie.

    operation ::= TileProduct(rows, columns, steps, operand, operand)     y[r, c] += a[k, r] * b[k, c], in registers
                | VectorCopy(count, step)                                 to[step * l] = from[l]
                | Neighbours(count, reads)                                a store whose elements lie side by side
                | BulkCopy(box)                                           a box, by a tensor map
    operand   ::= Lines | Matrices | CoreLines                            where its elements lie in shared memory

A target's proofs find them (polyfuse.codegen.cuda.proofs); its printer prints each as one device operation.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyfuse.ir.precision import Math
from polyfuse.layouts.wgmma_descriptors import Form
from polyfuse.schedule.promote.tma_boxes import BulkCopy


@dataclass(frozen=True)
class Lines:
    """The offsets of a factor's elements from its first one: steps are lines, with a gap after every few of them."""

    position: int
    line: int
    every: int
    skip: int
    part: int
    vector: int


@dataclass(frozen=True)
class Matrices:
    """A factor that ldmatrix reads: elements from one row of a matrix to the next, one own row (or column), one step.

    `transposed`: the steps are a matrix's rows, and lanes are neighbours.
    """

    position: int
    transposed: bool
    row: int
    own: int
    step: int


Fragment = Lines | Matrices


@dataclass(frozen=True)
class CoreLines:
    """The strides of a factor's core matrices in elements: along steps, along results, far ones."""

    position: int
    line: int
    core: int
    far: int
    form: Form


@dataclass(frozen=True)
class TileProduct:
    """A product whose tile of results is in registers and whose factors are in spread panels, or in core matrices.

    `copied` elements of these are what each thread of a warpgroup brings there. Where all that is copied there in an
    iteration is for a later one, `ahead`, the product may begin before the copies; it then waits at the next barrier.
    """

    rows: int
    columns: int
    steps: int
    left: Fragment | CoreLines
    right: Fragment | CoreLines
    math: Math = "ieee"
    copied: int = 0
    ahead: bool = False
    waits: bool = True

    @property
    def by_warpgroup(self) -> bool:
        """True if 128 threads share instructions, which read the factors where they lie."""
        return isinstance(self.left, CoreLines)

    @property
    def in_lines(self) -> bool:
        """True if a thread's results are those that an instruction gives it, no neighbours."""
        return isinstance(self.left, CoreLines) and self.left.form.swizzled


@dataclass(frozen=True)
class Neighbours:
    """A statement in a loop of so many values: the reads that are neighbours in memory, and whether its results are.

    `reads` are positions among the statement's reads.
    """

    count: int
    reads: tuple[int, ...]
    written: bool


@dataclass(frozen=True)
class VectorCopy:
    """A copy of so many neighbours at once to places `step` elements apart, or runs of them; or of one element.

    With a `conversion` (converting_copies.py) they are of another type there, or in shorter runs. One that is
    `ahead` goes on while the thread does other things, until it waits for it (async_copy_groups.py).
    """

    count: int
    step: int
    ahead: bool = False
    run: int = 1
    conversion: str = ""


Operation = TileProduct | VectorCopy | Neighbours | BulkCopy
"""A device operation that isl has proven for a statement and the loops around it."""
