"""The verb `microkernel`: keep a product's sums in registers while the contraction runs.

    for k: for r: for c: y[r, c] += a[r, k] * b[k, c]   ->   one operation on a tile of sums
    for k: for c: y[c] += a[k] * b[k, c]                ->   one operation on a row of sums
    for c: for s: for q: for f: y[q, f] += x[c, 2*q + s] * w[c, s, f]   ->   the same, over two loops of steps
    for r: for s: for q: y[q] += w[r, s] * x[r, 2*q + s]   ->   one operation on a row of sums, over a window
    for k: for r: for c: for l < 8: y[r, c] += a[r, 8*k + l] * b[c, 8*k + l]   ->   one operation on a tile of sums,
    each of which is a vector of partial sums meanwhile
    with math="tf32": for k: for r: for c: y[r, c] += tf32(a[r, k]) * tf32(b[k, c])   ->   a GPU's tensor cores
    with math="f64": the same of float64 numbers, which nothing rounds

It changes no order (every sum is added up over k as before, but for that of partial sums, which a reduction may have in
any order), so nothing can be illegal but a factor that is one of the sums in registers; what it needs besides is the
shape, and a refusal says what the shape lacks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import islpy as isl
import sympy

from polyfuse.analysis.storage import buffers_of
from polyfuse.errors import InvalidSchedule
from polyfuse.ir.access import Access
from polyfuse.ir.bindings import Binding
from polyfuse.ir.nest import Nest
from polyfuse.ir.number_types import computed_in, is_real
from polyfuse.ir.precision import MATHS, ROWS_OF_ONE, STEPS, STORED, Math
from polyfuse.ir.scalar import Read
from polyfuse.ir.statement import Statement
from polyfuse.ir.tree import Leaf, Loop, Tree, loops, loops_around, replace_node, statements
from polyfuse.schedule.binding import extent
from polyfuse.schedule.chains import chain_from, loop_named
from polyfuse.sets import OUT, SET, points

MOST_WRITTEN_OUT = 16
"""Values of the innermost loop of steps, at most, whose rows may differ: the elements of a window along one axis."""

NEAR_COLUMNS = 4
"""Numbers from one column of a row to the next one, at most, in a factor that a row of sums reads in whole vectors."""

MOST_SUMS = 512
"""Sums of a tile at most, in whole vectors: 8 x 64 floats are all 32 registers of a CPU with 64-byte vectors."""


OTHER_REGISTERS = 48
"""Registers of a GPU's thread for addresses, counters and what is being copied, beside results and factors."""


CONVERTED_REGISTERS = 16
"""Registers of copies that convert what they bring, eight numbers and their places at a time."""

MOST_REGISTERS = 255
"""Registers that a GPU's thread can name."""

LARGE_TILE = 64
"""Float32 results of a GPU's thread, 8 × 8. Tiles of 16 × 8 took 207 to 255 registers (CUDA 13, sm_90)."""

WARPGROUP_OTHERS = 40
"""Registers of a thread beside its results and copies, where factors go from shared memory to the tensor cores."""

DEALT_OTHERS = 32
"""More of them where a thread's results are no neighbours: each has an address and a guard of its own."""

DOUBLE_OTHERS = 76
"""Registers beside results and factors where tensor cores multiply float64 numbers: 4 × 4 results took up to 118 in
all, 4 × 8 and 8 × 4 up to 130, 8 × 8 up to 197, with one, two and four stages (CUDA 13, sm_80 and sm_90)."""

BEGUN_IN = 2
"""Copies ahead of a GPU's tiles are begun in the first half of its multiply-adds: the other half is time for what was
asked for last."""

AHEAD_REGISTERS = 32
"""More of them where tiles of float64 numbers are copied ahead: 4 × 4 took 100 to 128 (CUDA 13, sm_80 and sm_90)."""


@dataclass(frozen=True)
class Roles:
    """The roles of a product's loops, and which of its two reads has rows that are broadcast.

    A product of one row has no loop of rows. Its steps may be those of a window, and its left factor a row as well.
    `lanes` is the innermost loop where that goes through steps too: both factors are read along it in vectors.
    """

    steps: tuple[Loop, ...]
    rows: Loop | None
    columns: Loop
    left: int
    right: int
    lanes: Loop | None = None


def microkernel(nest: Nest, tree: Tree, statement: str, loop: str, math: Math = "ieee") -> Tree:
    """for k: for r: for c: y += a * b  ->  a tile of r x c sums in registers, all steps of k.

    There may be several loops of steps: channels and the elements of a window.
    """
    found = loop_named(tree, statement, loop)
    check_math("microkernel: math", math, ("ieee", *STEPS))
    roles = roles_of(nest, tree, statement, found, math)
    if math != "ieee":
        _check_fragments(nest, statement, roles, math)
    _check_reads(nest, tree, statement, found)
    return replace_node(tree, found, replace(found, bind=Binding.MICROKERNEL, apart=True, math=math))


def _check_reads(nest: Nest, tree: Tree, statement: str, top: Loop) -> None:
    """Raises InvalidSchedule if a factor is a sum that the same tile has changed: memory has it before that only.

    for s: for q: y[q] += w[s] * y[q + s]   ->   refused, since y[q + s] has grown in step s - 1
    """
    around = loops_around(tree, statement)
    outside = around[: next(at for at, loop in enumerate(around) if loop is top)]
    for pair in nest.dependences().between(statement, statement):
        if pair.kind != "flow":
            continue
        inside = pair.map
        for loop in outside:
            inside = inside.intersect(loop.date(statement).eq_map(loop.date(statement)))
        if not inside.is_empty():
            raise InvalidSchedule(
                f"microkernel: {statement} reads sums that its own tile has changed, at loop {top.name}: keep these "
                "loops, or read a copy"
            )


def check_kept(verb: str, nest: Nest, tree: Tree, nest_before: Nest, tree_before: Tree) -> None:
    """Raises InvalidSchedule if a verb has made loops of a product in registers that are no product's any more.

    microkernel over k around r, c  ->  interchange(k, c): refused, since code for a tile has its steps outside
    """
    kernels = ((top, name) for top in loops(tree) if top.bind == "microkernel" for name in statements(top))
    for top, statement in kernels:
        before = _loops_of(nest_before, tree_before, statement)
        if before is None or before == _loops_of(nest, tree, statement):
            continue
        free = replace(top, bind=None)
        try:
            roles_of(nest, replace_node(tree, top, free), statement, free, top.math)
            _check_reads(nest, tree, statement, top)
        except InvalidSchedule as error:
            raise InvalidSchedule(
                f"{verb}: loop {top.name} around {statement} belongs to a microkernel, which this would destroy; "
                f"call {verb} before microkernel. {error}"
            ) from None


def _loops_of(nest: Nest, tree: Tree, statement: str) -> tuple[object, ...] | None:
    """Return a product's microkernel: its accesses, its loops and their contents; None if it has none yet.

    Of the loops around, one of which a product has a single step is nothing to it: kernels are joined by such a loop.
    """
    around = loops_around(tree, statement) if statement in tree.members else ()
    top = next((at for at, loop in enumerate(around) if loop.bind == "microkernel"), None)
    if top is None:
        return None
    inside = around[top:]
    moving = (
        loop.date(statement) for loop in around if loop.bind is not None or not loop.date(statement).is_cst()
    )
    return id(nest.statement(statement)), inside[0].members, *(loop.bind for loop in inside), *map(id, moving)


def check_math(what: str, math: str, formats: tuple[str, ...] = MATHS) -> None:
    """Raises InvalidSchedule for a format of factors that there is not."""
    if math not in formats:
        raise InvalidSchedule(f"{what}={math!r}, expected one of {', '.join(formats)}")


def _check_fragments(nest: Nest, statement: str, roles: Roles, math: Math) -> None:
    """Raises InvalidSchedule unless a tile of results is some of the tensor cores' 16 x 8, a 32nd of each.

    Of float64 results they are 8 x 8.
    """

    def refuse(why: str) -> InvalidSchedule:
        return InvalidSchedule(
            f"microkernel: math={math!r} {why}, at loop {roles.steps[0].name} around {statement}"
        )

    s = nest.statement(statement)
    dtypes = {nest.tensor(access.tensor).dtype for access in s.accesses}
    sums = "float64" if math == "f64" else "float32"
    if nest.tensor(s.write.tensor).dtype != sums or not dtypes <= {sums, STORED[math]}:
        takes = "multiplies float64 numbers" if math == "f64" else "rounds factors of float32 sums"
        raise refuse(f"{takes}, and these are {', '.join(sorted(dtypes))}: leave it out")
    if roles.rows is None or len(roles.steps) != 1:
        raise refuse("needs perfectly nested loops (steps, rows, columns), one of each")
    rows, columns = (extent(nest, loop) for loop in (roles.rows, roles.columns))
    if not rows or not columns or rows % ROWS_OF_ONE[math] or columns % 2:
        even = "columns" if ROWS_OF_ONE[math] == 1 else "rows and of columns"
        raise refuse(f"needs an even number of {even} in each thread, not {rows} x {columns}")


def roles_of(nest: Nest, tree: Tree, statement: str, top: Loop, math: Math = "ieee") -> Roles:
    """Return the roles of a product's loops. Raises InvalidSchedule with the reason if they do not fit.

    Factors may be halves if `math` is their format, and the right one's columns neighbours or not. Tensor cores may
    have rows and columns that are not neighbours: code generation proves which ones they are.
    """

    def refuse(why: str) -> InvalidSchedule:
        return InvalidSchedule(f"microkernel: {why}, at loop {top.name} around {statement}")

    chain = chain_from(top)
    s = nest.statement(statement)
    if len(chain) < 2 or not isinstance(chain[-1].body, Leaf):
        raise refuse(
            "needs perfectly nested loops (steps, rows, columns), or for one row (steps, columns), around one statement"
        )
    if any(x.bind for x in chain):
        raise refuse("one of the loops is bound already")
    product = (
        isinstance(s.body, sympy.Mul)
        and len(s.body.args) == 2
        and all(isinstance(f, Read) for f in s.body.args)
    )
    if s.op != "+=" or not product or len(s.reads) != 2:
        raise refuse("needs a sum of products of two reads")
    for tensor in (nest.tensor(access.tensor) for access in s.reads):
        if tensor.gather is not None:
            raise refuse(
                f"needs factors whose rows lie one after the other, and those of {tensor.name} lie where "
                f"{tensor.gather.index} says: promote it first"
            )
        if tensor.is_half and tensor.dtype != STORED.get(math):
            raise refuse(
                f"multiplies float32 or float64 numbers, and {tensor.name} is {tensor.dtype}: promote it first, or "
                "pf.rewrite.widen the nest"
            )
        target = nest.tensor(s.write.tensor)
        if computed_in(tensor.dtype) != target.dtype:
            raise refuse(
                f"needs factors of the sum's type, and {tensor.name} is {tensor.dtype}, {target.name} {target.dtype}"
            )
    if not is_real(nest.tensor(s.write.tensor).dtype):
        raise refuse(
            f"needs floating-point numbers, and {s.write.tensor} is {nest.tensor(s.write.tensor).dtype}"
        )
    moves = _Moves(nest, tree, statement, evenly=math == "ieee")
    steps = tuple(x for x in chain if not any(moves.of(s.write, x)))
    if len(chain) == 4 and len(steps) == 2 and steps == (chain[0], chain[3]):
        if math != "ieee":
            raise refuse(f"math={math!r} multiplies tiles whose innermost loop is of rows or columns")
        return _dots(nest, moves, s, chain, refuse)
    rest = chain[len(steps) :]
    if not steps or steps != chain[: len(steps)] or not 1 <= len(rest) <= 2:
        raise refuse(
            "the loops outside those of rows and columns must be those that the sum does not depend on"
        )
    pairs: tuple[tuple[Loop | None, Loop], ...] = ((None, rest[0]),)
    if len(rest) == 2:
        pairs = (rest[0], rest[1]), (rest[1], rest[0])
    for rows, columns in pairs:
        for left, right in ((0, 1), (1, 0)):
            roles = Roles(steps, rows, columns, left, right)
            if _fits(moves, s, roles, anyhow=math != "ieee"):
                _checked_extents(nest, roles, s.write.tensor, refuse)
                return roles
    raise refuse(
        "needs y[rows, columns] += a[rows, steps] * b[steps, columns] with columns along last axes, or panels'"
    )


def _dots(
    nest: Nest,
    moves: _Moves,
    s: Statement,
    chain: tuple[Loop, ...],
    refuse: Callable[[str], InvalidSchedule],
) -> Roles:
    """The roles of the loops of dot products: steps, rows, columns, and lanes of a vector of steps."""
    top, *both, lanes = chain
    count, itemsize = extent(nest, lanes), nest.tensor(s.write.tensor).itemsize
    if count is None or count * itemsize not in (16, 32, 64):
        raise refuse(f"needs an innermost loop of a vector's steps, 16, 32 or 64 bytes of them, not {count}")
    for rows, columns in (tuple(both), tuple(reversed(both))):
        for left, right in ((0, 1), (1, 0)):
            a, b = s.reads[left], s.reads[right]
            if (
                _one_row(moves.of(s.write, rows), False)
                and moves.along_lanes(s.write, columns)
                and all(_along_last(moves.of(each, lanes)) for each in (a, b))
                and all(moves.of(each, lanes)[-1] == 1 for each in (a, b))
                and all(_along_last(moves.of(each, top)) for each in (a, b))
                and all(moves.of(each, top)[-1] == count for each in (a, b))
                and _one_row(moves.of(a, rows), False)
                and _one_row(moves.of(b, columns), False)
                and not any((*moves.of(a, columns), *moves.of(b, rows)))
            ):
                _checked_dots(nest, rows, columns, count, refuse)
                return Roles((top,), rows, columns, left, right, lanes)
    raise refuse(
        "needs y[rows, columns] += a[rows, steps] * b[columns, steps] with steps along last axes, of which the outer "
        "loop goes on by as many as the inner one has"
    )


def _checked_dots(
    nest: Nest, rows: Loop, columns: Loop, lanes: int, refuse: Callable[[str], InvalidSchedule]
) -> None:
    high, wide = extent(nest, rows), extent(nest, columns)
    if high is None or wide is None or min(high, wide) < 2 or high * wide * lanes > MOST_SUMS:
        raise refuse(
            f"needs a tile of at least 2 rows and 2 columns and at most {MOST_SUMS} partial sums, not {high} x {wide} "
            f"x {lanes}"
        )
    if wide > lanes or wide & (wide - 1):
        raise refuse(f"needs a power of two of columns that a vector of {lanes} holds, not {wide}")


def _fits(moves: _Moves, s: Statement, roles: Roles, anyhow: bool) -> bool:
    """True if loops fit their roles; `anyhow`: the right factor's columns need not be contiguous.

    Neither rows nor columns of results run backwards then: lanes hold them in the order of the loops.
    """
    a, b = s.reads[roles.left], s.reads[roles.right]
    if roles.rows is None:
        return (
            moves.along_lanes(s.write, roles.columns)
            and _beside(moves, b, roles.columns)
            and (_beside(moves, a, roles.columns) or not any(moves.of(a, roles.columns)))
        )
    return (
        _one_row(moves.of(s.write, roles.rows), anyhow)
        and any(moves.of(a, roles.rows))
        and not any(moves.of(b, roles.rows))
        and _by_steps(moves, (a, b), roles.steps)
        and (
            moves.along_lanes(s.write, roles.columns)
            or (anyhow and _along_last(moves.of(s.write, roles.columns), forwards=True))
        )
        and (moves.along_lanes(b, roles.columns) or (anyhow and any(moves.of(b, roles.columns))))
        and not any(moves.of(a, roles.columns))
    )


def _by_steps(moves: _Moves, factors: tuple[Access, Access], steps: tuple[Loop, ...]) -> bool:
    """True if each loop of steps moves both factors, or has one step; not all of them have one."""
    several = [step for step in steps if not moves.once(step)]
    return bool(several) and all(any(moves.of(factor, step)) for factor in factors for step in several)


def _beside(moves: _Moves, factor: Access, columns: Loop) -> bool:
    """True if the next column's number is adjacent to this one's, or a constant stride away."""
    moved = moves.of(factor, columns)
    return _along_last(moved) and 1 <= moved[-1] <= NEAR_COLUMNS


def _along_last(moved: tuple[int, ...], forwards: bool = False) -> bool:
    """True if an access moves along its last axis only."""
    return bool(moved) and moved[-1] != 0 and (moved[-1] > 0 or not forwards) and not any(moved[:-1])


def _one_row(moved: tuple[int, ...], anyhow: bool) -> bool:
    """True if the next row of results is adjacent; or, `anyhow`, if rows follow each other along one axis."""
    if anyhow:
        return sum(by != 0 for by in moved) == 1 and max(moved) > 0
    return sum(map(abs, moved)) == 1


def _checked_extents(nest: Nest, roles: Roles, tensor: str, refuse: Callable[[str], InvalidSchedule]) -> None:
    columns, itemsize = extent(nest, roles.columns), nest.tensor(tensor).itemsize
    if roles.rows is None:
        if columns is None or padded(columns, itemsize) > MOST_SUMS:
            raise refuse(f"needs at most {MOST_SUMS} sums of one row in whole vectors, not {columns}")
        return
    rows = extent(nest, roles.rows)
    if rows is None or columns is None or rows * padded(columns, itemsize) > MOST_SUMS or rows < 2:
        raise refuse(
            f"needs a tile of at least 2 rows and at most {MOST_SUMS} sums in whole vectors, not {rows} x {columns}"
        )


def padded(columns: int, itemsize: int) -> int:
    """The columns of as many whole vectors as hold these: vectors of 64 bytes, or one of 32 or 16."""
    if columns * itemsize <= 16:
        return 16 // itemsize
    if columns * itemsize <= 32:
        return 32 // itemsize
    return -(-columns * itemsize // 64) * 64 // itemsize


def registers_for(
    rows: int, columns: int, itemsize: int, math: Math = "ieee", ahead: bool = False, converting: bool = False
) -> int:
    """The registers that a GPU's thread is given for a tile of results: these, a row, a column, and others.

    What copies are `converting` is in registers while no row or column is. Of float32 results more than LARGE_TILE take
    what a thread can have: they leave room for one block on an SM in any case. For tensor cores 16 steps of the rows
    and of half the columns are four lines each, which are read ahead, and the copies' places are not given up for that
    while a thread can have more.
    """
    if math == "f64":
        return min(MOST_REGISTERS, 2 * (rows * columns + rows + columns // 2) + DOUBLE_OTHERS)
    if math != "ieee":
        return min(MOST_REGISTERS, rows * columns + 4 * (rows + columns // 2) + 64)
    if rows * columns > LARGE_TILE and itemsize == 4:
        return MOST_REGISTERS
    wide = AHEAD_REGISTERS if ahead and itemsize > 4 else 0
    beside = max(itemsize // 4 * (rows + columns), CONVERTED_REGISTERS if converting else 0)
    return itemsize // 4 * rows * columns + beside + OTHER_REGISTERS + wide


def warpgroup_registers(rows: int, columns: int, copied: int) -> int:
    """The registers of a thread whose results a warpgroup's instructions add up, and which copies so many elements.

    Factors are never in registers for the product, only on their way to shared memory.
    """
    return rows * columns + copied + WARPGROUP_OTHERS


class _Moves:
    """The strides of a statement's accesses along the loops around it; `evenly` if they are constant."""

    def __init__(self, nest: Nest, tree: Tree, statement: str, evenly: bool = True) -> None:
        self.tree, self.statement, self.evenly = tree, statement, evenly
        self.domain = nest.domains[statement]
        self.around = loops_around(tree, statement)
        self.known: dict[int, isl.Map] = {}

    def of(self, access: Access, loop: Loop) -> tuple[int, ...]:
        """Return the elements along each axis by which an access moves per iteration of the loop.

        Raises InvalidSchedule if that is not always the same, and has to be; else it is the farthest.
        """
        following = self._following(loop)
        moved = following.apply_domain(access.map).apply_range(access.map).deltas()
        moved = moved.project_out(isl.dim_type.param, 0, moved.dim(isl.dim_type.param)).coalesce()
        if moved.is_empty():
            return (0,) * int(access.map.dim(OUT))
        if not moved.is_singleton():
            if not self.evenly:
                return tuple(int(moved.dim_max_val(d).to_python()) for d in range(moved.dim(SET)))
            raise InvalidSchedule(f"microkernel: {access} does not move evenly along {loop.name}")
        (found,) = points(moved)
        return found

    def once(self, loop: Loop) -> bool:
        """True if the loop has one iteration at most: the one element of a wide window that lies within an image."""
        return bool(self._following(loop).is_empty())

    def _following(self, loop: Loop) -> isl.Map:
        """Pairs of instances of which the second is where the loop goes on by one and no other does; found once."""
        if id(loop) not in self.known:
            following = isl.Map.from_domain_and_range(self.domain, self.domain)
            for other in self.around:
                date = other.date(self.statement)
                later = date.add_constant_val(isl.Val(1)) if other is loop else date
                following = following.intersect(later.eq_map(date))
            self.known[id(loop)] = following
        return self.known[id(loop)]

    def along_lanes(self, access: Access, loop: Loop) -> bool:
        """True if the loop has unit stride: along the last axis, or along that of the access's panels."""
        held = (buffer for _, buffer in buffers_of(self.tree) if buffer.tensor == access.tensor)
        panel = next((buffer.panel for buffer in held), None)
        lanes = access.map.dim(OUT) - 1 if panel is None else panel.axis
        return self.of(access, loop) == tuple(int(axis == lanes) for axis in range(access.map.dim(OUT)))
