"""A product on one core and the sizes of its blocks: the values that blocking chooses from and prices."""

from __future__ import annotations

from dataclasses import dataclass, field

from polyfuse.machine import CpuMachine, Level

FURTHER = 1024
"""Bytes from what a tile reads of a row to what it asks for meanwhile: 8 x 10000 sums over 30000 steps, weights in
memory, in tiles of 8 x 32 and blocks of 8 steps took 81 ms without, 86, 68, 53, 40, 39, 45 and 57 with 128, 256, 512,
1024, 1536, 2048 and 4096, in tiles of 8 x 16 59, and 47, 43, 37, 34, -, 34 and 36; 16 x 1024 over 1024, weights in L3,
in 8 x 32 300 µs without, 240, 205 and 235 with 256, 512 and 1024 (one core of a Zen 5)."""


@dataclass(frozen=True)
class Operand:
    """One factor: bytes from one row of its panels to the next, and whether a panel's row is contiguous.

    One that is `fixed` depends on constants alone: packed once for all calls, it costs memory and no time. One that is
    packed `by_cores` is in panels before the product begins, each core having copied its part of it. One that loops
    around the product come to in several `turns` is packed before all of them.

    A row of a's panel is one of the product's rows, over steps; a row of b's panel is one step, over columns. What is
    `computed` of tensors, alpha * A[i, k], has to be packed. One that is not `packable` stays where it is: windows that
    overlap would be copied again and again. Two that lie alike are equal, whatever their tensors are called.
    """

    tensor: str = field(compare=False)
    stride: int
    contiguous: bool
    fixed: bool = False
    computed: bool = False
    packable: bool = True
    by_cores: int = 0
    turns: int = 1

    @property
    def ahead(self) -> bool:
        """True if a packed operand is completely in panels before the product begins."""
        return self.fixed or self.by_cores > 0 or self.turns > 1


@dataclass(frozen=True)
class Results:
    """The memory that a tile's sums go to: bytes from one row to the next, and how many `tensors` lie like them.

    Beside the sums, if a call returns them, these are what the statements behind them read and write in their place:
    two for m = 0.9 * m + g and w -= rate * m behind a gradient g that nothing else reads.
    """

    stride: int
    tensors: int


@dataclass(frozen=True)
class Extents:
    """The values of a product's loops: y[rows, columns] += a[rows, steps] * b[steps, columns], `batches` times.

    Each of the `steps` goes through the elements of a `window`; neighbouring rows read the same numbers `overlap`
    times: 9 and 3 for a window of 3 x 3. Of the batches so many at a time are `alike`: they have the same b. Where
    batches are rows of an image, neighbouring ones read the same numbers `between` times.
    """

    rows: int
    columns: int
    steps: int
    batches: int = 1
    window: int = 1
    overlap: int = 1
    alike: int = 1
    between: int = 1

    def of_left(self, rows: int, steps: int) -> int:
        """The numbers that so many rows read of a in so many steps."""
        return rows * steps * self.window // self.overlap

    def of_right(self, steps: int, columns: int) -> int:
        """The numbers of b for so many steps and columns."""
        return steps * self.window * columns


@dataclass(frozen=True)
class Blocking:
    """The sizes of a product's loops (strategy.blocking), and which operands are packed; `seconds` by the model.

    With `lanes` tiles are of dot products: each sum is a vector of so many partial sums, and both operands are read
    along the steps, where they lie. With `inside` batches that have the same b go through a block of it one after the
    other; else each goes through all of b, which is found packed.
    """

    rows: int
    columns: int
    steps: int
    width: int
    pack_left: bool
    pack_right: bool
    seconds: float = 0.0
    lanes: int = 0
    inside: bool = False

    def further_on(self, itemsize: int) -> int:
        """The tiles after which what a tile asks for is needed, where it asks for columns of rows as they lie."""
        return max(1, FURTHER // (self.columns * itemsize))

    @property
    def name(self) -> str:
        """What tells it from other blocks of a product, as a wish calls it (polyfuse.strategy.candidates)."""
        packed = (side for side, packs in (("left", self.pack_left), ("right", self.pack_right)) if packs)
        size = f"tiles of {self.rows} x {self.columns}, blocks of {self.steps} steps x {self.width} columns"
        dots = (f"dot products of {self.lanes} lanes",) if self.lanes else ()
        inside = ("batches inside",) if self.inside else ()
        return ", ".join((size, *dots, *(f"{side} packed" for side in packed), *inside))


@dataclass(frozen=True)
class Task:
    """A product on one core of a machine.

    `across`: the sums' neighbours in memory are no columns. Then all steps are in one block, the sums in a buffer where
    columns are neighbours, and they are turned when they leave it. `held` are the bytes that go by before the same
    numbers are read again: those of a call, or of a step of a loop around all of the product. Rows of both operands may
    lie `along` the steps: a[rows, steps] and b[columns, steps], as torch has its weights.
    """

    extents: Extents
    left: Operand
    right: Operand
    itemsize: int
    machine: CpuMachine
    across: bool = False
    held: int = 0
    along: bool = False
    results: Results | None = None

    @property
    def l1(self) -> Level:
        """The first cache."""
        return self.machine.levels[0]

    @property
    def l2(self) -> Level:
        """The second cache."""
        return self.machine.levels[1]

    def vectors(self, b: Blocking) -> int:
        """The vector registers that a row of a tile takes."""
        return max(1, b.columns * self.itemsize // self.machine.vector_bytes)

    def asks(self, b: Blocking) -> bool:
        """True if a block of b is one panel, whose tiles ask for the next one: what is found packed, behind L2."""
        one = b.width == b.columns < self.extents.columns and self.held > self.l2.size
        return one and b.pack_right and self.right.ahead and self.extents.window == 1

    def asks_rows(self, b: Blocking) -> bool:
        """True if tiles ask for the next panel of a: what is found packed, behind L2, with all steps in one block."""
        behind = self.left.fixed and self.held > self.l2.size and b.rows < self.extents.rows
        whole = b.steps >= self.extents.steps and self.extents.window == 1
        return b.pack_left and behind and whole and not (self.asks(b) or b.lanes)

    def together(self, b: Blocking) -> int:
        """The batches that go through a block of b before the next one comes: all that b is packed for, if inside."""
        packed_here = b.pack_right and not self.right.ahead
        return self.extents.alike if b.inside or b.lanes or packed_here else 1

    def tile(self, b: Blocking) -> int:
        """The bytes of a and of sums that a tile goes through."""
        return (self.extents.of_left(b.rows, b.steps) + b.rows * b.columns) * self.itemsize

    def block(self, b: Blocking) -> int:
        """The bytes of a block of b."""
        return self.extents.of_right(b.steps, b.width) * self.itemsize

    def in_time(self, b: Blocking) -> bool:
        """True if what tiles ask for stays in L2 until it is needed: half of that is for the rest."""
        return self.asks(b) and 2 * self.block(b) + self.tile(b) <= self.l2.size // 2

    def rate(self, size: float) -> float:
        """Bytes per second, read and written, from the level that holds `size` bytes."""
        return self.machine.bandwidth(self.machine.level(size), 1.0)

    def reading(self, size: float) -> float:
        """The same where they are only read."""
        return self.machine.reading(self.machine.level(size), 1.0)

    def coming(self, size: float) -> float:
        """Bytes per second that come in from the level that holds `size` bytes, where other cores read the same b."""
        level, cores = self.machine.level(size), max(1, self.right.by_cores)
        return self.machine.reading(level, cores) / cores
