"""Loop trees as numba CPU source: plain loops over NumPy arrays, functions where the schedule says cores."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from polyfuse.codegen.cpu.dynamic_turns import in_turns
from polyfuse.codegen.cpu.intrinsic_table import (
    DONE,
    FETCH,
    FETCH_TO_WRITE,
    FUNCTIONS,
    INTERLEAVE,
    LINE_OF,
    ON_HEAP,
    ON_STACK,
    PAST_LINE,
    STORE_PAST,
    TAKE,
)
from polyfuse.codegen.cpu.intrinsics.cache_prefetch import PIECE
from polyfuse.codegen.cpu.intrinsics.microkernels.tile_mac import LINE
from polyfuse.codegen.cpu.intrinsics.reassociated import IN_ANY_ORDER
from polyfuse.codegen.cpu.intrinsics.stack_arrays import STACK_BYTES
from polyfuse.codegen.cpu.loop_patterns import CPU_PATTERNS
from polyfuse.codegen.cpu.parallel import InRegions, is_region, read_here
from polyfuse.codegen.cpu.patterns.no_unroll import not_written_out
from polyfuse.codegen.cpu.patterns.nontemporal_stores import in_lines, streamed, streams_inside
from polyfuse.codegen.cpu.patterns.outer_loop_vectorize import rows_abreast
from polyfuse.codegen.cpu.patterns.scalar_promotion import Gathered, KeptReads
from polyfuse.codegen.cpu.patterns.transposed.joined_loops import Shapes
from polyfuse.codegen.cpu.patterns.transposed.stores import transposed_store
from polyfuse.codegen.cpu.patterns.vectors_abreast import vectors_abreast
from polyfuse.codegen.cpu.patterns.window_steps import values_of
from polyfuse.codegen.looptree.body_source import Values
from polyfuse.codegen.looptree.collapse_axes import with_joined_axes
from polyfuse.codegen.looptree.emit import subscripted
from polyfuse.codegen.looptree.gather_rows import names_of_rows, rows_named
from polyfuse.codegen.looptree.guards import decided_outside
from polyfuse.codegen.looptree.half_types import held_as, zero
from polyfuse.codegen.looptree.index import not_negative, operand, substituted
from polyfuse.codegen.looptree.joint_values import Facts, cases
from polyfuse.codegen.looptree.nodes import (
    Allocate,
    Await,
    Barrier,
    Block,
    Element,
    For,
    Guard,
    Kernel,
    Let,
    Node,
    Store,
    apart_from_buffers,
    below,
    nodes_in,
    stores_in,
    surely_runs,
    variables,
)
from polyfuse.codegen.looptree.product import most_of
from polyfuse.ir.fresh_names import fresh
from polyfuse.ir.number_types import ITEMSIZE
from polyfuse.ir.tensor import Tensor
from polyfuse.ir.tree import ON_CORES


@dataclass(frozen=True)
class CpuKernel:
    """A kernel's source and what numba must be told to compile it."""

    name: str
    source: str
    signature: str
    parallel: bool


def cpu_kernel(kernel: Kernel) -> CpuKernel:
    """The numba source of one kernel. Arrays keep their rank; a scalar tensor is an array of one element."""
    written = written_arrays(kernel.body)
    if is_region(
        kernel.body
    ):  # a part that reads an input here and what another wrote there is compiled once
        written = set(kernel.arrays)
    arguments = [array_type(tensor, name in written) for name, tensor in kernel.arrays.items()]
    arguments += ["int64"] * len(kernel.sizes)
    signature = f"void({', '.join(arguments)})"
    parallel = has_cores(kernel.body)
    return CpuKernel(kernel.name, CpuEmitter(kernel).source(), signature, parallel)


def array_type(tensor: Tensor, written: bool) -> str:
    """numba's type for a C-contiguous array; what is only read may also be a read-only array."""
    rank = max(tensor.rank, 1)
    return f"Array({held_as(tensor.dtype)}, {rank}, 'C'{'' if written else ', readonly=True'})"


def written_arrays(node: Node) -> set[str]:
    """The names of the arrays a kernel stores to."""
    return {store.target.array for store in stores_in(node)}


def has_cores(node: Node) -> bool:
    """True if a kernel runs on several cores."""
    return any(has_bound(node, bind) for bind in ON_CORES)


def has_bound(node: Node, bind: str) -> bool:
    """True if a kernel has a loop that is bound so."""
    return (isinstance(node, For) and node.bind == bind) or any(has_bound(part, bind) for part in below(node))


class CpuEmitter(InRegions):
    """Prints one kernel as functions for numba."""

    def __init__(self, kernel: Kernel) -> None:
        kernel, self.joined = with_joined_axes(kernel)
        super().__init__(replace(kernel, body=rows_named(kernel.body, {*kernel.arrays, *kernel.sizes})))
        self.known: frozenset[str] = frozenset()
        self.facts = Facts()
        self.around: tuple[For, ...] = ()  # the loops that the walk is in, outermost first
        self.totals: frozenset[str] = frozenset()  # variables that a vector loop reduces into
        self.has_tiles = has_bound(self.kernel.body, "microkernel")
        self.rows = names_of_rows(self.kernel.body)
        self.shapes: Shapes = {
            **{name: tensor.shape for name, tensor in self.kernel.arrays.items()},
            **{n.buffer: n.shape for n in nodes_in(self.kernel.body) if isinstance(n, Allocate)},
        }
        self.turns = ""  # the arguments that the operations of the pipeline around have in common
        self.stacked = 0  # bytes of buffers on the stack so far

    def loop(self, node: For) -> list[str]:
        """A loop, of whose variable the lines inside know what values it has."""
        decided = decided_outside(node)
        if decided is not None and self._is_better_inside(decided[1]):
            return self.lines(Guard(*decided))
        outside = self.known, self.facts, self.around
        outermost = not (self.around and streams_inside(self.around[-1]))
        here = node.bind not in ON_CORES or node is self.part
        whole = here and outermost and streams_inside(node)
        if not_negative(node.low, self.known):
            self.known |= {node.variable}
        self.facts = self.facts.inside(node.variable, values_of(node, self.facts.ranges))
        self.around = (*self.around, node)
        try:
            return [*self._loop(node), *([f"{DONE}()"] if whole else [])]
        finally:
            self.known, self.facts, self.around = outside

    def _is_better_inside(self, node: For) -> bool:
        """True if a loop, once it is inside a condition, has steps for rows side by side, or stores a tile across."""
        if rows_abreast(node, self.place, self.unused, lambda *_: "") is not None:
            return True
        return self.has_tiles and transposed_store(node, self.unused) is not None

    def decided(self, condition: ast.expr) -> bool | None:
        """The only value that a condition has for the values of the loops around, under the conditions around.

        if l <= 8: A; else: { if l <= 8: B; else: C }   ->   if l <= 8: A; else: C

        A tile that is cut short is printed apart from whole ones; without this its branch would have a whole tile, too.
        """
        found = cases([condition], self.facts)
        return bool(found[0][0]) if found is not None and len(found) == 1 else None

    def guarded(self, condition: ast.expr, holds: bool, node: Node) -> list[str]:
        """The lines of a node, which know the condition."""
        outside, self.facts = self.facts, self.facts.where(condition, holds)
        try:
            return super().guarded(condition, holds, node)
        finally:
            self.facts = outside

    def _loop(self, node: For) -> list[str]:
        """The lines of the first pattern that matches."""
        found = (pattern.lines(self, node) for pattern in CPU_PATTERNS)
        return next(lines for lines in found if lines is not None)

    def plain_loop(self, node: For) -> list[str]:
        """`for i in range(…):` and the lines of its body."""
        return super().loop(node)

    def inside(self, node: For) -> list[str]:
        """The lines of a loop's body; one of functions has several vectors side by side."""
        vectors = vectors_abreast(node)
        return [*([f"{INTERLEAVE}({vectors})"] if vectors > 1 else []), *super().inside(node)]

    def step_of_doacross(self, node: For) -> list[str]:
        """for i: S  ->  for i: wait for i of the value before; S; say so."""
        head, *body = super().loop(node)
        later = isinstance(node.body, Block) and any(isinstance(part, Await) for part in node.body.parts)
        wait = [] if later else self._indented(self.awaiting())
        return [head, *wait, *body, *self._indented([f"end_turn({self.turns}, {node.variable})"])]

    def in_rows(self, node: For) -> list[str]:
        """Two loops over a tile of which short rows are whole vectors, as they are behind a product."""
        outside, self.has_tiles = self.has_tiles, True
        try:
            return self.loop(node)
        finally:
            self.has_tiles = outside

    def dynamic(self, node: For) -> list[str]:
        """for i: S  ->  on each core, while there are values: take an i; S. A core's buffers are for all it takes."""
        taken, turn = (self.unused(f"{node.variable}_{what}") for what in ("taken", "turn"))
        count, value = in_turns(node, turn)
        buffers, body = apart_from_buffers(node.body)

        def lines() -> list[str]:
            inside = [f"{node.variable} = {value}", *self.lines(body), f"{turn} = {TAKE}({taken})"]
            takes = [f"while {turn} < {count}:", *self._indented(inside)]
            if buffers:
                takes = [f"if {turn} < {count}:", *self._indented([*self.lines(Block(buffers)), *takes])]
            return [f"{turn} = {TAKE}({taken})", *takes]

        return [f"{taken} = turns_of(0)", self.on_cores(self.apart(lines, node), taken)]

    def doacross(self, node: For) -> list[str]:
        """for t: for i: S  ->  on each core: take the next t; for i: wait for i of t - 1; S; say so."""
        turns, turn = (self.unused(f"{node.variable}_{what}") for what in ("turns", "turn"))
        count, value = in_turns(node, turn)

        def lines() -> list[str]:
            outside, self.turns = self.turns, f"{turns}, {turn}"
            inside = [f"{node.variable} = {value}", *self._in_turns(node.body)]
            self.turns = outside
            inside += [f"close_turns({turns}, {turn})", f"{turn} = {TAKE}({turns})"]
            return [f"{turn} = {TAKE}({turns})", f"while {turn} < {count}:", *self._indented(inside)]

        return [f"{turns} = turns_of({count})", self.on_cores(self.apart(lines, node), turns)]

    def _in_turns(self, node: Node) -> list[str]:
        """One value's body in a pipeline; what isl made no loop of waits for all of the value before."""
        if isinstance(node, Block):
            return [line for part in node.parts for line in self._in_turns(part)]
        if isinstance(node, Guard):
            inside = self._in_turns(node.body), self._in_turns(node.otherwise or Block(()))
            yes, no = (self._indented(lines) for lines in inside)
            return [f"if {ast.unparse(node.condition)}:", *yes, *(["else:", *no] if no else [])]
        turns = isinstance(node, For) and node.bind == "turn"
        waits = [] if turns or isinstance(node, Allocate | Let) else [f"await_all({self.turns})"]
        return [*waits, *self.lines(node)]

    def awaiting(self) -> list[str]:
        """The wait of the step that the walk is in; nothing if isl has made no loop of the pipeline."""
        step = next(x.variable for x in reversed(self.around) if x.bind == "turn")
        return [f"await_turn({self.turns}, {step})"] if self.turns else []

    def held_in_registers(self, node: For, held: Gathered) -> list[str]:
        """for j: s[i] += v  ->  sum = s[i]; for j: sum += v; s[i] = sum."""
        kept = [(total.variable, ast.unparse(self.place(total.element))) for total in held.sums]
        self.totals = frozenset(total.variable for total in held.sums)
        row = not_written_out(replace(node, body=Block(held.stores)), self._behind(node))
        loop = self.loop_in_pieces(row)
        self.totals = frozenset()
        lines = [f"{name} = {element}" for name, element in kept]
        return self._where_it_runs(node, [*lines, *loop, *(f"{element} = {name}" for name, element in kept)])

    def holding(self, node: For, kept: KeptReads) -> list[str]:
        """for j: y[i, j] *= y[i, k]  ->  kept = y[i, k]; for j: y[i, j] *= kept."""
        lines = [f"{name} = {ast.unparse(self.place(element))}" for name, element in kept.values]
        return self._where_it_runs(node, [*lines, *self.loop(kept.loop)])

    def _where_it_runs(self, node: For, lines: list[str]) -> list[str]:
        """Lines of which elements are read for a loop, which may not be there where it has no values."""
        if surely_runs(node):
            return lines
        return [f"if {operand(node.low)} < {operand(node.high)}:", *self._indented(lines)]

    def _behind(self, node: For) -> tuple[Node, ...]:
        """The nodes after the current loop, in one iteration of the loop around it."""
        around = self.around[-2].body if len(self.around) > 1 else self.kernel.body
        together = around.parts if isinstance(around, Block) else ()
        here = next((at for at, part in enumerate(together) if part is node), len(together))
        return together[here + 1 :]

    def loop_in_pieces(self, node: For) -> list[str]:
        """A loop in pieces of 512 bytes where it asks for memory ahead of time, or stores past the caches."""
        streams = streamed(node) if node.step == 1 else ()
        why = "# not past the caches: a condition, or another use, in the loop"
        note = [why] if len(streams) < len(node.streams) else []
        if not (node.ahead or streams) or node.step != 1:
            return [*note, *super().loop(node)]
        used = [element for element, _ in node.ahead] + list(streams)
        numbers = min(PIECE // ITEMSIZE[element.dtype] for element in used)
        pieces = self._streamed(node, streams, numbers) if streams else self._asking(node, numbers)
        return [*note, *pieces]

    def _asking(self, node: For, numbers: int) -> list[str]:
        """for j: S  ->  for j_piece: { fetch(x, (i + 1, j_piece), 8); for j of the piece: S }.

        A loop that is no longer than a piece asks for its own length, and stays as it is.
        """
        most = most_of(node)
        if most is not None and most <= numbers:
            asked = [
                self._asked(element, write, node.variable, node.low, most) for element, write in node.ahead
            ]
            return [*asked, *super().loop(node)]
        piece = f"{node.variable}_piece"
        low, high = operand(node.low), operand(node.high)
        at = ast.Name(piece)
        lines = [self._asked(element, write, node.variable, at, numbers) for element, write in node.ahead]
        count = str(numbers) if _divides(node, numbers) else f"min({numbers}, {high} - {piece})"
        # of what ends where a size does LLVM does not see that it stays above where it begins
        first = piece if isinstance(node.high, ast.Constant) else f"max({low}, {piece})"
        lines += self._piece(node, first, count)
        return [f"for {piece} in range({low}, {high}, {numbers}):", *self._indented(lines)]

    def _streamed(self, node: For, streams: tuple[Element, ...], numbers: int) -> list[str]:
        """for j: y[j] = e  ->  for j_piece: { for j of the piece: y_line[j - j_piece] = e; y[these j] = y_line }."""
        variable, piece = node.variable, f"{node.variable}_piece"
        first, count = f"{variable}_first", f"{variable}_count"
        low, high = operand(node.low), operand(node.high)
        held = {element.array: self.unused(f"{element.array}_line") for element in streams}
        at = ast.Name(piece)
        inside = [self._asked(element, write, variable, at, numbers) for element, write in node.ahead]
        inside += [f"{first} = max({low}, {piece})", f"{count} = min({piece} + {numbers}, {high}) - {first}"]
        inside += self._piece(replace(node, body=in_lines(node.body, held, variable, piece)), first, count)
        for element in streams:
            place = self._index_at(element, variable, ast.Name(first))
            line = held[element.array]
            inside.append(f"{STORE_PAST}({element.array}, {place}, {line}, {first} - {piece}, {count})")
        begin = self._index_at(streams[0], variable, node.low)
        return [
            *(f"{held[e.array]} = {LINE_OF}({e.array}, {numbers})" for e in streams),
            f"for {piece} in range({low} - {PAST_LINE}({streams[0].array}, {begin}), {high}, {numbers}):",
            *self._indented(inside),
        ]

    def _piece(self, node: For, first: str, count: str) -> list[str]:
        """The values of a loop from one on. From 0 on: of what begins with a variable LLVM does not see the sign."""
        inside = f"{node.variable}_in"
        body = [f"{node.variable} = {first} + {inside}", *self.inside(node)]
        return [f"for {inside} in range({count}):", *self._indented(body)]

    def _index_at(self, element: Element, variable: str, value: ast.expr) -> str:
        """An element's subscripts as a tuple, at one value of a loop."""
        return ast.unparse(ast.Tuple([substituted(index, {variable: value}) for index in element.subscripts]))

    def _asked(self, element: Element, write: bool, variable: str, at: ast.expr, numbers: int) -> str:
        """The line that asks for one piece of a row."""
        index = self._index_at(element, variable, at)
        lines = -(-numbers * ITEMSIZE[element.dtype] // LINE)
        return f"{FETCH_TO_WRITE if write else FETCH}({element.array}, {index}, {lines})"

    def store(self, node: Store) -> list[str]:
        """The lines of one store; a sum on vector lanes is added up in any order."""
        values = Values(node, self.place, FUNCTIONS, bool(self.around) and self.around[-1].bind == "vector")
        return values.in_any_order(IN_ANY_ORDER) if node.target.array in self.totals else values.lines()

    def allocation(self, node: Allocate) -> str:
        """The line that makes a buffer: a variable, on the stack while that has room, or on the heap."""
        if not node.shape:
            return f"{node.buffer} = {zero(node.dtype)}"
        nbytes = prod(node.shape) * ITEMSIZE[node.dtype]
        fits = self.stacked + nbytes <= STACK_BYTES
        self.stacked += nbytes if fits else 0
        return f"{node.buffer} = {ON_STACK if fits else ON_HEAP}({node.shape}, np.{held_as(node.dtype)})"

    def placed(self, element: Element) -> ast.expr:
        """An element as an expression."""
        known = self.kernel.arrays.get(element.array)
        if known is not None and known.rank == 0:
            return subscripted(element.array, (ast.Constant(0),))
        return subscripted(element.array, tuple(self._index(value) for value in element.subscripts))

    def shape_of(self, name: str) -> tuple[int | str, ...]:
        """The shape of an array or a buffer of the kernel, by its name; () for anything else."""
        return self.shapes.get(name, ())

    def unused(self, name: str) -> str:
        """A name like this one that nothing in the kernel has."""
        taken = {*self.kernel.arrays, *self.kernel.sizes, *(one.name for one in self.joined)}
        return fresh(name, {*taken, *variables(self.kernel.body)})

    def apart(self, body: Callable[[], list[str]], node: Node | None = None) -> list[str]:
        """The lines of a function: buffers and rows are its own, and it waits for what a node stores past the caches.

        Rows are, since a function's arguments are said not to overlap.
        """
        outside, self.stacked = self.stacked, 0
        inside = body()
        lines = [*self.opening(inside), *inside]
        self.stacked = outside
        waits = node is not None and streams_inside(node) and f"{DONE}()" not in lines
        return [*lines, f"{DONE}()"] if waits else lines

    def opening(self, body: list[str]) -> list[str]:
        """Arrays with two axes as one, which the body asks for."""
        lines: list[str] = []
        names = read_here("\n".join(body)) if self.joined else set[str]()
        for one in reversed(self.joined):  # one may be of another one
            if one.name in names:
                lines = [f"{one.name} = joined({one.array}, {one.axis})", *lines]
                names.add(one.array)
        return lines

    def _index(self, value: ast.expr) -> ast.expr:
        """An index; unsigned where LLVM could take it for negative.

        numba counts a negative index from the end, and the choice keeps LLVM from vectorizing where it cannot see the
        sign, as in skewed loops: A[i - 2 * t]. The nest's check has proven that no index is negative.
        """
        return value if not_negative(value, self.known) else ast.Call(ast.Name("uint64"), [value], [])

    def barrier(self, node: Barrier) -> list[str]:
        """Nothing here has one."""
        raise AssertionError("a CPU kernel has no threads of a block")


def _divides(loop: For, numbers: int) -> bool:
    """True if a loop is known to run through a multiple of so many values."""
    match loop.low, loop.high:
        case ast.Constant(value=int(low)), ast.Constant(value=int(high)):
            return (high - low) % numbers == 0
    return False
