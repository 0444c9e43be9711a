"""Schedules: the order and placement of a nest's instances, made by checked verbs.

    schedule ::= nest  tree  step*

Every verb returns a new Schedule or raises IllegalSchedule with the dependence it would break. Three layers, as in
Exo: the verb here takes arguments and records the step; a function of the same name in this package does the rewrite;
polyfuse.analysis proves it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir.precision import Math
from polyfuse.ir.tree import Loop, loops_around
from polyfuse.layouts import Layout
from polyfuse.proving import each_proving
from polyfuse.refusals import Violation
from polyfuse.schedule import affine_verb as affine
from polyfuse.schedule import binding, order, synchronising, tiling
from polyfuse.schedule import fuse_verbs as fusion
from polyfuse.schedule import join_verb as joining
from polyfuse.schedule import microkernel_verb as microkernel
from polyfuse.schedule import nontemporal_verb as streaming
from polyfuse.schedule import prefetch_verb as prefetching
from polyfuse.schedule import sections_verb as sections
from polyfuse.schedule.dump import TEXTS
from polyfuse.schedule.promote import pack as packing
from polyfuse.schedule.promote import promotion
from polyfuse.schedule.proven import Proven
from polyfuse.schedule.step import VERBS, Step, beside_defaults

Form = Literal["tree", "yaml", "c", "python"]


@each_proving("the legality of {}", *VERBS)
@each_proving("the answer to {}", "why_not", "dump")
class Schedule(Proven):
    """An order for a nest's statement instances. Immutable: every verb returns another Schedule.

    >>> import polyfuse as pf
    >>> nest = pf.lower(pf.nn.Sequential(pf.nn.Linear(8, 8), pf.nn.ReLU()), batch=4)
    >>> s = pf.Schedule(nest).fuse("bias0", "relu0", at="j")
    >>> print(s.trace())
    s = pf.Schedule(nest)
    s = s.fuse('bias0', 'relu0', at='j')
    """

    # -- cutting loops -------------------------------------------------------------------------------------------

    def tile(self, statement: str, **sizes: int) -> Schedule:
        """Cut perfectly nested loops into tiles.

        for i: for j: S  ->  for i (tiles): for j (tiles): for i_in: for j_in: S

        `sizes` gives, for consecutive loops around the statement, the number of values per tile. The tile loop keeps
        the name, the loop inside is called `i_in`. Raises IllegalSchedule if the loops are not permutable.
        """
        return self._do(
            "tile", (statement,), sizes, lambda: tiling.tile(self.nest, self.tree, statement, sizes)
        )

    def split(self, statement: str, loop: str, size: int) -> Schedule:
        """Cut one loop into blocks: for i: S  ->  for i (blocks of size): for i_in: S. Always legal."""
        return self._do(
            "split",
            (statement, loop, size),
            {},
            lambda: tiling.split(self.nest, self.tree, statement, loop, size),
        )

    def collapse(self, statement: str, outer: str, inner: str, *, width: int | None = None) -> Schedule:
        """Make one loop of two, the inner one all there is in the outer one: longer rows, in the order as it was.

        for k: for l < 28: S[k, l]  ->  for k_l: S[k_l // 28, k_l % 28]

        A loop along two axes of an array walks along its memory. The inner loop may be on vector lanes, which then
        run the values of both. With a `width` rows count so many values, those that the inner loop does not have left
        out: 32 for k_l >> 5. Raises InvalidSchedule where the inner loop's values are not known to lie between 0 and
        a number, or are more than the width.
        """
        return self._do(
            "collapse",
            (statement, outer, inner),
            beside_defaults(Schedule.collapse, {"width": width}),
            lambda: tiling.collapse(self.nest, self.tree, statement, outer, inner, width),
        )

    def separate(self, statement: str, loop: str) -> Schedule:
        """Give full tiles code of their own, in which the loops inside have constant bounds and need no guards.

        for i: for i_in < min(32, N - 32*i): S  ->  for i: if full: for i_in < 32: S; else: for i_in < min(…): S

        `loop` is the outermost loop inside the tiles. Nothing is reordered. Raises InvalidSchedule where no loop inside
        is cut short in some tiles and not in others. Where a barrier of a block's threads lies inside, the code stays
        one: all threads must meet at one place. k loops apart, one inside the other, make k + 1 copies of what is
        innermost.
        """
        return self._do(
            "separate",
            (statement, loop),
            {},
            lambda: tiling.separate(self.nest, self.tree, statement, loop),
        )

    # -- order of iterations -------------------------------------------------------------------------------------

    def interchange(self, statement: str, first: str, second: str) -> Schedule:
        """Swap two perfectly nested loops: for i: for j: S  ->  for j: for i: S."""
        return self._do(
            "interchange",
            (statement, first, second),
            {},
            lambda: order.interchange(self.nest, self.tree, statement, first, second),
        )

    def reorder(self, statement: str, *loops: str) -> Schedule:
        """Give perfectly nested loops a new order, outermost first: for i: for j: for k  ->  for k: for i: for j."""
        return self._do(
            "reorder", (statement, *loops), {}, lambda: order.reorder(self.nest, self.tree, statement, loops)
        )

    def skew(self, statement: str, loop: str, by: str, factor: int = 1, per: int = 1) -> Schedule:
        """Run a loop's values later by a multiple of a loop around it: S[t, i] at i  ->  at i + factor*t // per."""
        return self._do(
            "skew",
            (statement, loop),
            {"by": by, "factor": factor} | beside_defaults(Schedule.skew, {"per": per}),
            lambda: order.skew(self.nest, self.tree, statement, loop, by, factor, per),
        )

    def shift(self, statement: str, loop: str, amount: int) -> Schedule:
        """Run one statement `amount` iterations later than before: S at i, T at i  ->  S at i + amount, T at i."""
        return self._do(
            "shift",
            (statement, loop, amount),
            {},
            lambda: order.shift(self.nest, self.tree, statement, loop, amount),
        )

    def reverse(self, statement: str, loop: str) -> Schedule:
        """Run a loop backwards: for i = 0 … n-1: S[i]  ->  S[n-1], …, S[0]."""
        return self._do(
            "reverse", (statement, loop), {}, lambda: order.reverse(self.nest, self.tree, statement, loop)
        )

    def affine(self, **dates: str) -> Schedule:
        """Give statements new dates, all at once: vectors compared lexicographically (Kelly & Pugh 1995).

        for t: { for i: S; for i: R }  ->  for t: for i: { S[t, i - 2t]; R[t, i - 2t - 1] }
        given S="[t, 2t + i, 0]", R="[t, 2t + i + 1, 1]"

        A position at which all have constants, and different ones, is a sequence; any other is a loop. The statements
        are all those of one loop (counted from there inwards), or of neighbours in a sequence: these become one part.
        """
        return self._do("affine", (), dates, lambda: affine.affine(self.nest, self.tree, dates))

    # -- moving statements between loops -------------------------------------------------------------------------

    def fuse(self, first: str, second: str, at: str, shift: Mapping[str, int] | None = None) -> Schedule:
        """Run the part with `second` inside the loops of `first`, down to and including loop `at`.

        for i: for j: S;  for i: for j: T  ->  for i: { for j: S; for j: T }      (at="i")

        Where the two loop nests do not match as they stand, `second` is placed by its dependences: in the tile that
        computes its last operand (or before the first use of its result). `shift` moves it by constants, by loop.
        """
        moved = fusion.shift_given(shift)
        options: dict[str, object] = {"at": at} | ({"shift": moved} if moved else {})
        trees = fusion.fusions(self.nest, self.tree, first, second, at, moved)
        return self._first_legal(Step("fuse", (first, second), tuple(options.items())), trees)

    def sections(self, *statements: str, loop: str) -> Schedule:
        """Make a loop of parts that run one after the other, each at one value of it; `statements` has one of each.

        for t: A;  for t: B   ->   for l in 0, 1: { l = 0: for t: A;  l = 1: for t: B }      (loop="l")

        What lies between the parts runs before or behind all of them. The new loop has all that a loop may have: fuse
        the parts inside it, at="t", and bind it, l="pipeline": each part is on a core of its own, and its step t waits
        for step t of the part before it. Raises IllegalSchedule where what lies between the parts forbids it.
        """
        trees = sections.in_sections(self.nest, self.tree, statements, loop)
        return self._first_legal(Step("sections", statements, (("loop", loop),)), trees)

    def join(self, first: str, last: str | None = None, *, loop: str) -> Schedule:
        """Run kernels in one launch, whose blocks or cores wait for each other: those from `first`'s to `last`'s.

        for i: A;  for j: B  ->  for l in 0: { for i: A;  for j: B }      (loop="l")
        """
        names = (first,) if last is None else (first, last)
        made = joining.join(self.nest, self.tree, first, names[-1], loop)
        return self._do("join", names, {"loop": loop}, lambda: made)

    def distribute(self, statement: str, loop: str) -> Schedule:
        """Give each part of a loop's body a loop of its own: for i: { S; T }  ->  for i: S; for i: T."""
        return self._do(
            "distribute", (statement, loop), {}, lambda: fusion.distribute(self.tree, statement, loop)
        )

    def move(self, statement: str, behind: str) -> Schedule:
        """Run the part with `statement` right behind the part with `behind`: S; T; R  ->  T; S; R.   (behind="T")"""
        return self._do(
            "move", (statement,), {"behind": behind}, lambda: fusion.move(self.tree, statement, behind)
        )

    # -- placement -----------------------------------------------------------------------------------------------

    def bind(self, statement: str | None = None, **places: str) -> Schedule:
        """Run a loop's values at once: on "cores", in a "pipeline", or on a GPU's "block.x", "thread.y", ….

        for i: S  ->  parallel for i over cores: S, equally many values each, for i="cores"

        for i: S  ->  each core, while there are any: take an i; S, for i="dynamic": values of unequal work, as the rows
        of a triangle (OpenMP's schedule(dynamic))

        for t: for i: S  ->  t="pipeline": t over cores, and i of each t after i of the one before: rows of tiles, each
        tile behind that of the row before (doacross.py)

        for l (lane): for j: s[i] += x[i, 32 * j + l]  ->  each lane adds up its own values, the warp adds up its lanes

        Without a statement each loop name must be the only one of its name. "lane": the 32 threads of a warp, along
        thread.x; such a loop holds one reduction on one element. "bulk", "bulk.warp": tma_boxes.py. "cluster.x":
        blocks of one cluster, analysis/clusters.py.
        """
        args = () if statement is None else (statement,)
        return self._do("bind", args, places, lambda: binding.bind(self.nest, self.tree, statement, places))

    def unroll(self, statement: str, loop: str) -> Schedule:
        """Write a loop's iterations out: for i in 0, 1: S[i]  ->  S[0]; S[1]. At most 64 values."""
        return self._do(
            "unroll", (statement, loop), {}, lambda: binding.unroll(self.nest, self.tree, statement, loop)
        )

    def vectorize(self, statement: str, loop: str) -> Schedule:
        """Run an innermost loop on vector lanes: for j: S[j]  ->  S[0:n]. It may carry reductions, nothing else."""
        return self._do(
            "vectorize",
            (statement, loop),
            {},
            lambda: binding.vectorize(self.nest, self.tree, statement, loop),
        )

    def prefetch(self, statement: str, tensor: str, loop: str, by: int = 1) -> Schedule:
        """Ask for what the innermost loop touches of a tensor `by` values of an outer loop later, while it runs.

        for i: { …; for j (vector): e[j] = exp(x[i, j] - m) }
        ->  for i: { …; for j, 512 bytes at a time: ask for x[i + by, j …]; for these j (vector): e[j] = … }

        Nothing is reordered. `loop` is one around the innermost loop, which has to be on vector lanes and to walk along
        the tensor's memory; or around a microkernel whose second factor is in panels: the tiles of one value ask for
        the next one's panel, a share each. On a CPU only. Raises InvalidSchedule where this is not so.
        """
        return self._do(
            "prefetch",
            (statement, tensor, loop),
            beside_defaults(Schedule.prefetch, {"by": by}),
            lambda: prefetching.prefetch(self.nest, self.tree, statement, tensor, loop, by),
        )

    def stream(self, statement: str) -> Schedule:
        """Store what the innermost loop writes past the caches: nobody is to read it soon, and nothing is displaced.

        for j (vector): y[i, j] = e  ->  for j, 512 bytes at a time: { for these j: line[j] = e; y[i, j …] = line }

        A store otherwise reads its line of y first. Nothing is reordered. The loop has to be on vector lanes and to
        walk along y's memory, and nothing else in it may touch y; on a CPU only. Raises InvalidSchedule where this is
        not so.
        """
        return self._do("stream", (statement,), {}, lambda: streaming.stream(self.nest, self.tree, statement))

    def microkernel(self, statement: str, loop: str, math: Math = "ieee") -> Schedule:
        """Keep a product's sums in registers while the contraction's loop runs.

        for k: for r: for c: y[r, c] += a[r, k] * b[k, c]   ->   one operation on a tile of r x c sums
        for k: for c: y[c] += a[k] * b[k, c]                ->   one operation on a row of c sums

        `loop` is the contraction's; rows and columns have constant extents, and the columns lie along the last axes
        of y and b. Full tiles are apart; those cut short run the same steps with lanes masked. A row has whole vectors
        of columns; its sums are added up in several parts where they are few. In a GPU's threads it is one operation,
        in the order as written, if the sums are promoted to registers and the factors to shared memory, in spread
        panels; else the loops stay loops.

        With a `math` of "tf32", "bf16" or "f16" a GPU's tensor cores multiply: factors are rounded to that format, the
        products summed up in float32, 8 or 16 steps at a time in an order of the hardware's. Threads are on
        thread.x, 4 of them along the columns, and thread.y, a multiple of 8 along the rows. How far results may lie
        off is said in polyfuse.ir.precision. "f64" multiplies float64 numbers, and rounds nothing.
        """
        return self._do(
            "microkernel",
            (statement, loop),
            beside_defaults(Schedule.microkernel, {"math": math}),
            lambda: microkernel.microkernel(self.nest, self.tree, statement, loop, math),
        )

    def promote(
        self,
        tensor: str,
        statement: str,
        at: str,
        memory: str = "local",
        panel: tuple[int, int] | None = None,
        layout: Layout | None = None,
        stages: int = 1,
        axes: tuple[str, ...] | None = None,
        padded: bool = False,
        rounded: Math = "ieee",
        *,
        spread: tuple[int, int, int, int, int] | None = None,
        cores: tuple[int, int, int, int, int, int, int, int] | Literal["swizzled"] | None = None,
    ) -> Schedule:
        """Keep what one iteration of a loop touches of a tensor in a memory of its own.

        for i: { t[i] = …; … = t[i] }  ->  for i: { scalar t; t = …; … = t }               a temporary: contracted
        for k: … = x[i, k]             ->  for k: { copy x[tile] to shared; … = shared }    only read: copied in
        for k: … = (c * x[k]) * w[j]   ->  for k: { t = c * x[tile]; … = t * w[j] }         a value: computed once

        `tensor` is a tensor's name, or a value in the statement's body as it is printed: "c * x[k]".
        `memory` is "local" (of a core or a thread), "register" (of a thread) or "shared" (of a block). A `panel` of
        (axis, width) lays the buffer out in panels of `width` elements along one of the tensor's axes, which are then
        neighbours: t[k, j], panels of 32 along axis 1  ->  buffer[j // 32, k, j % 32] (Goto & van de Geijn 2008).
        A `layout` says how the rows of a shared buffer's panels lie: pf.SmemLayout(tile, vector, gap, every, skip)
        spreads them for a GPU's banks, pf.CoreMatrixLayout(tile, lanes, side, depth, …) and pf.SwizzledLayout() lay
        them out for a warpgroup's instructions. A buffer of several `stages` holds what so many iterations in a row
        need, so that its copies can be shifted: for k: { copy x[k + 1]; … = x[k] }, tile k in stage k mod 2.
        A value's buffer has the dimensions of the statement for `axes` that it depends on, or those named, if the loops
        around tell the others. One that is a factor of a sum may be `padded`: where the statement lacks instances, in
        the box around them, its buffer has zeros, which the statement adds: sums stay as they are where the other
        factor is finite (polyfuse.schedule.promote.promoted_values).
        A copy may be `rounded`, once, to what microkernel(…, math=…) says of its factors: "tf32", "bf16" or "f16".
        `spread` and `cores` are deprecated: a layout as a tuple of its numbers, or "swizzled".
        """
        layout = promotion.layout_of(layout, spread, cores)
        further: dict[str, object] = {"panel": panel, "layout": layout, "stages": stages, "axes": axes}
        further |= {"padded": padded, "rounded": rounded}
        options = {"at": at, "memory": memory} | beside_defaults(Schedule.promote, further)
        done = promotion.promote(
            self.nest, self.tree, tensor, statement, at, memory, panel, layout, stages, axes, padded, rounded
        )
        return self._checked("promote", (tensor, statement), options, done.nest, done.tree)

    def pack(self, tensor: str, statement: str, panel: tuple[int, int], halves: bool = False) -> Schedule:
        """Lay a whole tensor out for one statement that reads it, in a kernel of its own before that statement's.

        for i: for k: S reads w[i, k]  ->  for e0: for e1: w_panels[e0 // p, e1, e0 % p] = w[e0, e1]
                                           for i: for k: S reads w_panels[i // p, k, i % p]

        A `panel` of (axis, width) is what `promote` says. Of halves the copy has float32 numbers, or `halves`; of a
        constant it is made once. Raises IllegalSchedule where w is not finished, InvalidSchedule where it cannot be.
        """
        done = packing.pack(self.nest, self.tree, tensor, statement, panel, halves)
        options = beside_defaults(Schedule.pack, {"panel": panel, "halves": halves})
        return self._checked("pack", (tensor, statement), options, done.nest, done.tree)

    def synchronised(self) -> Schedule:
        """Put the fewest barriers that keep a block's threads in order; the same schedule where none has threads.

        for k: { copy (threads); compute (threads) }  ->  for k: { copy; barrier; compute; barrier }

        Compiling does this by itself. A schedule whose threads no barrier can keep in order is refused. Where loops
        over blocks lie in loops in order, or several in a kernel, these are barriers of all blocks, grid barriers.
        """
        step = Step("synchronised", (), ())
        tree = synchronising.synchronised(self.nest, self.tree, step)
        return self if tree is self.tree else self.followed_by((step,), self.nest, tree)

    # -- questions -----------------------------------------------------------------------------------------------

    def why_not(self, verb: str, *args: object, **options: object) -> Violation | None:
        """What forbids a step, without taking it; None if it is legal.

        schedule.why_not("fuse", "mac0", "mac1", at="j")   ->   a Violation
        """
        if verb not in VERBS:
            raise InvalidSchedule(f"no verb {verb!r}; there are {', '.join(VERBS)}")
        try:
            getattr(self, verb)(*args, **options)
        except IllegalSchedule as refused:
            return refused.violation
        return None

    def loops(self, statement: str) -> tuple[Loop, ...]:
        """The loops around a statement, outermost first; InvalidNest if there is no such statement."""
        self.nest.statement(statement)
        return loops_around(self.tree, statement)

    def trace(self) -> str:
        """Python that makes the same schedule again from the same nest."""
        return "\n".join(["s = pf.Schedule(nest)", *(f"s = s.{step}" for step in self.steps)])

    def dump(self, form: Form = "tree") -> str:
        """The schedule as text: "tree" (ours), "yaml" (isl's schedule tree), "c" (the loops), "python" (the trace)."""
        if form == "python":
            return self.trace()
        if form not in TEXTS:
            raise InvalidSchedule(f"no form {form!r}; there are {', '.join(TEXTS)}, python")
        return TEXTS[form](self.nest, self.tree)

    def __str__(self) -> str:
        return self.dump("tree")
