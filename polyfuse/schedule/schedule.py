"""Schedules: the order and placement of a nest's instances, made by checked verbs.

    schedule ::= nest  tree  step*

Every verb returns a new Schedule or raises IllegalSchedule with the dependence it would break. Three layers, as in
Exo: the verb here takes arguments and records the step; a function of the same name in this package does the rewrite;
polyfuse.analysis proves it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from polyfuse.errors import IllegalSchedule, InvalidSchedule, quantity
from polyfuse.errors.proving import each_proving
from polyfuse.errors.refusals import Violation
from polyfuse.errors.viewed import shorter
from polyfuse.ir.precision import Math
from polyfuse.ir.tree import Loop, loops_around, parts
from polyfuse.layouts import Layout
from polyfuse.schedule import affine_verb as affine
from polyfuse.schedule import binding, order, synchronising, tiling
from polyfuse.schedule import fuse_verbs as fusion
from polyfuse.schedule import join_verb as joining
from polyfuse.schedule import microkernel_verb as microkernel
from polyfuse.schedule import nontemporal_verb as streaming
from polyfuse.schedule import prefetch_verb as prefetching
from polyfuse.schedule import sections_verb as sections
from polyfuse.schedule.dump import TEXTS
from polyfuse.schedule.editing import Edited
from polyfuse.schedule.promote import pack as packing
from polyfuse.schedule.promote import promotion
from polyfuse.schedule.step import VERBS, Step, beside_defaults, violation_of

Form = Literal["tree", "yaml", "c", "python"]


@each_proving("the legality of {}", *VERBS)
@each_proving("the answer to {}", "why_not", "dump")
class Schedule(Edited):
    """An order for a nest's statement instances. Immutable: every verb returns another Schedule.

    Each verb raises InvalidSchedule if a statement, a loop or an option that it names does not exist or does not fit,
    and IllegalSchedule, with a Violation, if the step would break a dependence.

    >>> import polyfuse as pf
    >>> nest = pf.lower(pf.nn.Sequential(pf.nn.Linear(8, 8), pf.nn.ReLU()), batch=4)
    >>> s = pf.Schedule(nest).fuse("bias0", "relu0", at="j")
    >>> print(s.trace())
    s = pf.Schedule(nest)
    s = s.fuse('bias0', 'relu0', at='j')
    """

    # -- cutting loops -------------------------------------------------------------------------------------------

    def tile(self, statement: str, **sizes: int) -> Schedule:
        """Tile perfectly nested loops.

        for i: for j: S  ->  for i (tiles): for j (tiles): for i_in: for j_in: S

        Args:
            statement: A statement inside the loops.
            **sizes: The number of values per tile, for consecutive loops around the statement. The tile loop keeps the
                name i, the loop inside is i_in.

        Returns:
            The new schedule.

        Raises:
            IllegalSchedule: if the loops are not permutable.
        """
        return self._do(
            "tile", (statement,), sizes, lambda: tiling.tile(self.nest, self.tree, statement, sizes)
        )

    def split(self, statement: str, loop: str, size: int) -> Schedule:
        """Split one loop into blocks (strip mining): for i: S  ->  for i (blocks of size): for i_in: S. Always legal.

        Args:
            statement: A statement inside the loop.
            loop: The loop's name.
            size: The number of values per block.

        Returns:
            The new schedule.
        """
        return self._do(
            "split",
            (statement, loop, size),
            {},
            lambda: tiling.split(self.nest, self.tree, statement, loop, size),
        )

    def collapse(self, statement: str, outer: str, inner: str, *, width: int | None = None) -> Schedule:
        """Collapse two perfectly nested loops into one, in the same order.

        for k: for l < 28: S[k, l]  ->  for k_l: S[k_l // 28, k_l % 28]

        A collapsed loop along two axes of an array has unit stride. The inner loop may be on vector lanes; then the
        collapsed loop is.

        Args:
            statement: A statement inside the loops.
            outer: The outer loop.
            inner: The only loop directly inside it.
            width: The row length of the new loop's values, if larger than the inner loop's extent; values beyond the
                extent are skipped. Width 32 makes k_l // 28 a shift, k_l >> 5.

        Returns:
            The new schedule.

        Raises:
            InvalidSchedule: if the inner loop's values are not known to lie between 0 and a constant, or exceed the
                width.
        """
        return self._do(
            "collapse",
            (statement, outer, inner),
            beside_defaults(Schedule.collapse, {"width": width}),
            lambda: tiling.collapse(self.nest, self.tree, statement, outer, inner, width),
        )

    def separate(self, statement: str, loop: str) -> Schedule:
        """Separate full tiles from partial ones: their inner loops get constant bounds and no guards.

        for i: for i_in < min(32, N - 32*i): S  ->  for i: if full: for i_in < 32: S; else: for i_in < min(…): S

        Nothing is reordered. If a barrier of a block's threads lies inside, the code is not duplicated, because all
        threads must reach one barrier. Separating k nested loops makes k + 1 copies of the innermost code.

        Args:
            statement: A statement inside the loop.
            loop: The outermost loop inside the tiles.

        Returns:
            The new schedule.

        Raises:
            InvalidSchedule: if no loop inside is partial in some tiles and full in others.
        """
        return self._do(
            "separate",
            (statement, loop),
            {},
            lambda: tiling.separate(self.nest, self.tree, statement, loop),
        )

    # -- order of iterations -------------------------------------------------------------------------------------

    def interchange(self, statement: str, first: str, second: str) -> Schedule:
        """Interchange two perfectly nested loops: for i: for j: S  ->  for j: for i: S.

        Args:
            statement: A statement inside the loops.
            first: A loop.
            second: A loop.

        Returns:
            The new schedule.
        """
        return self._do(
            "interchange",
            (statement, first, second),
            {},
            lambda: order.interchange(self.nest, self.tree, statement, first, second),
        )

    def reorder(self, statement: str, *loops: str) -> Schedule:
        """Permute perfectly nested loops: for i: for j: for k  ->  for k: for i: for j.

        Args:
            statement: A statement inside the loops.
            *loops: The loops in their new order, outermost first.

        Returns:
            The new schedule.
        """
        return self._do(
            "reorder", (statement, *loops), {}, lambda: order.reorder(self.nest, self.tree, statement, loops)
        )

    def skew(self, statement: str, loop: str, by: str, factor: int = 1, per: int = 1) -> Schedule:
        """Skew a loop by a multiple of a loop around it: S[t, i] at i  ->  at i + factor*t // per.

        Args:
            statement: A statement inside both loops.
            loop: The loop to skew.
            by: The loop around it.
            factor: The multiple.
            per: The divisor.

        Returns:
            The new schedule.
        """
        return self._do(
            "skew",
            (statement, loop),
            {"by": by, "factor": factor} | beside_defaults(Schedule.skew, {"per": per}),
            lambda: order.skew(self.nest, self.tree, statement, loop, by, factor, per),
        )

    def shift(self, statement: str, loop: str, amount: int) -> Schedule:
        """Shift one statement along a loop: S at i, T at i  ->  S at i + amount, T at i.

        Args:
            statement: The statement.
            loop: The loop.
            amount: The number of iterations; negative runs it earlier.

        Returns:
            The new schedule.
        """
        return self._do(
            "shift",
            (statement, loop, amount),
            {},
            lambda: order.shift(self.nest, self.tree, statement, loop, amount),
        )

    def reverse(self, statement: str, loop: str) -> Schedule:
        """Reverse a loop: for i = 0 … n-1: S[i]  ->  S[n-1], …, S[0].

        Args:
            statement: A statement inside the loop.
            loop: The loop.

        Returns:
            The new schedule.
        """
        return self._do(
            "reverse", (statement, loop), {}, lambda: order.reverse(self.nest, self.tree, statement, loop)
        )

    def affine(self, **dates: str) -> Schedule:
        """Give statements new dates all at once: vectors that are compared lexicographically (Kelly & Pugh 1995).

        for t: { for i: S; for i: R }  ->  for t: for i: { S[t, i - 2t]; R[t, i - 2t - 1] }
        given S="[t, 2t + i, 0]", R="[t, 2t + i + 1, 1]"

        A position with a different constant for each statement is a sequence; any other is a loop.

        Args:
            **dates: A vector by statement, as text: affine in the statement's dimensions. The statements are all those
                of one loop (dates then count from that loop inwards), or of neighbours in a sequence, which become one
                part.

        Returns:
            The new schedule.
        """
        return self._do("affine", (), dates, lambda: affine.affine(self.nest, self.tree, dates))

    # -- moving statements between loops -------------------------------------------------------------------------

    def fuse(self, first: str, second: str, at: str, shift: Mapping[str, int] | None = None) -> Schedule:
        """Fuse two loop nests down to and including a loop.

        for i: for j: S;  for i: for j: T  ->  for i: { for j: S; for j: T }      (at="i")

        If the nests do not match as they are, `second` is placed by its dependences: in the tile that computes its last
        operand, or before the first use of its result.

        Args:
            first: A statement of the nest that keeps its loops.
            second: A statement of the part that moves inside.
            at: The innermost loop that both share afterwards.
            shift: Iterations by which `second` moves, by loop.

        Returns:
            The new schedule.

        Raises:
            IllegalSchedule: if every placement breaks a dependence.
        """
        moved = fusion.shift_given(shift)
        options: dict[str, object] = {"at": at} | ({"shift": moved} if moved else {})
        step = Step("fuse", (first, second), tuple(options.items()))
        broken = fusion.kept_apart(self.nest, self.tree, first, second, at, moved)
        if broken is not None:
            raise IllegalSchedule(violation_of(step, broken))
        return self._first_legal(step, fusion.fusions(self.nest, self.tree, first, second, at, moved))

    def sections(self, *statements: str, loop: str) -> Schedule:
        """Make a loop whose values are parts that run one after the other.

        for t: A;  for t: B   ->   for l in 0, 1: { l = 0: for t: A;  l = 1: for t: B }      (loop="l")

        Statements between the parts run before or after all of them. The new loop is like any other: fuse the parts
        inside it, at="t", and bind it, l="pipeline"; then each part has a core, and its step t waits for step t of the
        part before.

        Args:
            *statements: One statement of each part.
            loop: The new loop's name.

        Returns:
            The new schedule.

        Raises:
            IllegalSchedule: if the statements between the parts can run neither before nor after them.
        """
        trees = sections.in_sections(self.nest, self.tree, statements, loop)
        return self._first_legal(Step("sections", statements, (("loop", loop),)), trees)

    def join(self, first: str, last: str | None = None, *, loop: str) -> Schedule:
        """Join kernels into one launch, in which blocks or cores synchronise with barriers.

        for i: A;  for j: B  ->  for l in 0: { for i: A;  for j: B }      (loop="l")

        Args:
            first: A statement of the first kernel.
            last: A statement of the last kernel; `first`'s by default.
            loop: The new loop's name.

        Returns:
            The new schedule.
        """
        names = (first,) if last is None else (first, last)
        made = joining.join(self.nest, self.tree, first, names[-1], loop)
        return self._do("join", names, {"loop": loop}, lambda: made)

    def distribute(self, statement: str, loop: str) -> Schedule:
        """Distribute a loop over the parts of its body (fission): for i: { S; T }  ->  for i: S; for i: T.

        Args:
            statement: A statement inside the loop.
            loop: The loop.

        Returns:
            The new schedule.
        """
        return self._do(
            "distribute", (statement, loop), {}, lambda: fusion.distribute(self.tree, statement, loop)
        )

    def move(self, statement: str, behind: str) -> Schedule:
        """Move a part directly behind another: S; T; R  ->  T; S; R.   (behind="T")

        Args:
            statement: A statement of the part to move.
            behind: A statement of the part before its new place.

        Returns:
            The new schedule.
        """
        return self._do(
            "move", (statement,), {"behind": behind}, lambda: fusion.move(self.tree, statement, behind)
        )

    # -- placement -----------------------------------------------------------------------------------------------

    def bind(self, statement: str | None = None, **places: str) -> Schedule:
        """Bind loops to parallel hardware: to "cores", a "pipeline", or a GPU's "block.x", "thread.y", ….

        for i: S  ->  parallel for i over cores: S, equally many values each, for i="cores"

        for i: S  ->  each core repeatedly takes the next i; S, for i="dynamic": iterations of unequal work, as the
        rows of a triangle (OpenMP's schedule(dynamic))

        for t: for i: S  ->  t="pipeline": t over cores, and iteration i of t waits for i of t - 1 (doacross.py)

        for l (lane): for j: s[i] += x[i, 32 * j + l]  ->  each lane reduces its own values, then the warp its lanes

        "lane" is the 32 threads of a warp, along thread.x; such a loop holds one reduction into one element. "bulk" and
        "bulk.warp" are described in tma_boxes.py, "cluster.x", blocks of one cluster, in analysis/clusters.py.

        Args:
            statement: A statement inside the loops; may be left out if each loop name is unique.
            **places: The binding by loop name: a `pf.Binding`, or its string.

        Returns:
            The new schedule.

        Raises:
            IllegalSchedule: if a loop carries a dependence that the binding does not keep.
        """
        args = () if statement is None else (statement,)
        return self._do("bind", args, places, lambda: binding.bind(self.nest, self.tree, statement, places))

    def unroll(self, statement: str, loop: str) -> Schedule:
        """Unroll a loop completely: for i in 0, 1: S[i]  ->  S[0]; S[1]. At most 64 values.

        Args:
            statement: A statement inside the loop.
            loop: The loop.

        Returns:
            The new schedule.
        """
        return self._do(
            "unroll", (statement, loop), {}, lambda: binding.unroll(self.nest, self.tree, statement, loop)
        )

    def vectorize(self, statement: str, loop: str) -> Schedule:
        """Vectorize an innermost loop: for j: S[j]  ->  S[0:n]. It may carry reductions and no other dependence.

        Args:
            statement: A statement inside the loop.
            loop: The innermost loop.

        Returns:
            The new schedule.
        """
        return self._do(
            "vectorize",
            (statement, loop),
            {},
            lambda: binding.vectorize(self.nest, self.tree, statement, loop),
        )

    def prefetch(self, statement: str, tensor: str, loop: str, by: int = 1) -> Schedule:
        """Prefetch the elements of a tensor that the innermost loop accesses `by` iterations of an outer loop later.

        for i: { …; for j (vector): e[j] = exp(x[i, j] - m) }
        ->  for i: { …; for j, 512 bytes at a time: prefetch x[i + by, j …]; for these j (vector): e[j] = … }

        Nothing is reordered. On a CPU only.

        Args:
            statement: A statement inside the loops.
            tensor: The tensor.
            loop: A loop around the innermost one, which is on vector lanes and has unit stride along the tensor; or a
                loop around a microkernel one of whose factors is in panels: the tiles of one iteration each prefetch
                a share of the next panel. If it moves along the rows of a factor, a tile prefetches the columns `by`
                tiles on.
            by: The prefetch distance in iterations of `loop`.

        Returns:
            The new schedule.

        Raises:
            InvalidSchedule: if the loops are not of this form.
        """
        return self._do(
            "prefetch",
            (statement, tensor, loop),
            beside_defaults(Schedule.prefetch, {"by": by}),
            lambda: prefetching.prefetch(self.nest, self.tree, statement, tensor, loop, by),
        )

    def stream(self, statement: str) -> Schedule:
        """Write the innermost loop's results with non-temporal stores, which bypass the caches.

        for j (vector): y[i, j] = e  ->  for j, 512 bytes at a time: { for these j: line[j] = e; y[i, j …] = line }

        An ordinary store first reads its cache line of y, and evicts another. Nothing is reordered. On a CPU only.

        Args:
            statement: The statement; its innermost loop is on vector lanes with unit stride along y, and nothing else
                in the loop accesses y.

        Returns:
            The new schedule.

        Raises:
            InvalidSchedule: if the loop is not of this form.
        """
        return self._do("stream", (statement,), {}, lambda: streaming.stream(self.nest, self.tree, statement))

    def microkernel(self, statement: str, loop: str, math: Math = "ieee") -> Schedule:
        """Compute a product in register tiles: the sums stay in registers while the contraction's loop runs.

        for k: for r: for c: y[r, c] += a[r, k] * b[k, c]   ->   one operation on a tile of r x c sums
        for k: for c: y[c] += a[k] * b[k, c]                ->   one operation on a row of c sums
        for k: for r: for c: for l: y[r, c] += a[r, 8*k + l] * b[c, 8*k + l]   ->   the same, in dot products

        Rows and columns have constant extents, and the columns lie along the last axes of y and b. Full tiles are
        separated; partial ones run the same steps with masked lanes. A row consists of whole vectors of columns; a
        short row is accumulated in several partial sums, and each of a tile of dot products, whose innermost loop has
        the steps of a vector, in as many as that has. In a GPU's threads the microkernel is one operation, in the
        order as written, if the sums are promoted to registers and the factors to swizzled panels in shared memory;
        otherwise the loops stay.

        With "tf32", "bf16" or "f16" a GPU's tensor cores multiply: factors are rounded to the format, products
        accumulated in float32, 8 or 16 steps at a time in the hardware's order. Threads are on thread.x, 4 along the
        columns, and thread.y, a multiple of 8 along the rows. polyfuse.ir.precision gives the error bounds. "f64"
        multiplies float64 numbers without rounding the factors.

        Args:
            statement: The statement that accumulates the product.
            loop: The contraction's loop.
            math: The format of the factors.

        Returns:
            The new schedule.
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
        """Promote what one iteration of a loop accesses of a tensor to a buffer in faster memory (PPCG's term).

        for i: { t[i] = …; … = t[i] }  ->  for i: { scalar t; t = …; … = t }               a temporary: contracted
        for k: … = x[i, k]             ->  for k: { copy x[tile] to shared; … = shared }    only read: copied in
        for k: … = (c * x[k]) * w[j]   ->  for k: { t = c * x[tile]; … = t * w[j] }         a value: computed once

        Args:
            tensor: A tensor's name, or a value in the statement's body as it is printed: "c * x[k]".
            statement: A statement that accesses it.
            at: The loop; each of its iterations has its own buffer.
            memory: "local" (of a core or a thread), "register" (of a thread) or "shared" (of a block).
            panel: (axis, width) stores the buffer in panels of `width` elements along a tensor's axis: t[k, j], panels
                of 32 along axis 1  ->  buffer[j // 32, k, j % 32] (Goto & van de Geijn 2008).
            layout: The layout of the rows of a shared buffer's panels: pf.SmemLayout(tile, vector, gap, every, skip)
                pads them against bank conflicts; pf.CoreMatrixLayout(tile, lanes, side, depth, …) and
                pf.SwizzledLayout() are the layouts for a warpgroup's instructions.
            stages: The number of consecutive iterations whose elements the buffer holds, so that its copies can be
                shifted: for k: { copy x[k + 1]; … = x[k] }, tile k in stage k mod 2.
            axes: The dimensions of a value's buffer, if the loops around determine the others; by default all
                dimensions of the statement on which the value depends.
            padded: True fills the box around the statement's instances with zeros, for a factor of a sum: the statement
                adds the zeros, and sums stay as they are if the other factor is finite
                (polyfuse.schedule.promote.promoted_values).
            rounded: Round the copy once to the format of microkernel(…, math=…): "tf32", "bf16" or "f16".
            spread: Deprecated: an SmemLayout as a tuple of its numbers.
            cores: Deprecated: a CoreMatrixLayout as a tuple of its numbers, or "swizzled".

        Returns:
            The new schedule.
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
        """Pack a whole tensor for one statement that reads it, in a kernel before that statement's.

        for i: for k: S reads w[i, k]  ->  for e0: for e1: w_panels[e0 // p, e1, e0 % p] = w[e0, e1]
                                           for i: for k: S reads w_panels[i // p, k, i % p]

        A tensor of halves is packed as float32. A constant is packed once for all calls.

        Args:
            tensor: The tensor.
            statement: The statement that reads it.
            panel: (axis, width), as for `promote`.
            halves: True keeps halves as they are.

        Returns:
            The new schedule.

        Raises:
            IllegalSchedule: if the tensor is not complete before the statement's kernel.
            InvalidSchedule: if it cannot be packed.
        """
        done = packing.pack(self.nest, self.tree, tensor, statement, panel, halves)
        options = beside_defaults(Schedule.pack, {"panel": panel, "halves": halves})
        return self._checked("pack", (tensor, statement), options, done.nest, done.tree)

    def synchronised(self) -> Schedule:
        """Insert the fewest barriers that keep a block's threads in order; without threads, return the same schedule.

        for k: { copy (threads); compute (threads) }  ->  for k: { copy; barrier; compute; barrier }

        `compile` does this itself. If loops over blocks lie inside sequential loops, or several lie in one kernel, the
        barriers are of all blocks: grid barriers.

        Returns:
            The new schedule.

        Raises:
            IllegalSchedule: if no barrier can keep the threads in order.
        """
        step = Step("synchronised", (), ())
        tree = synchronising.synchronised(self.nest, self.tree, step)
        return self if tree is self.tree else self.followed_by((step,), self.nest, tree)

    # -- questions -----------------------------------------------------------------------------------------------

    def why_not(self, verb: str, *args: object, **options: object) -> Violation | None:
        """Return the reason why a step is illegal, without taking it.

        schedule.why_not("fuse", "mac0", "mac1", at="j")   ->   a Violation

        Args:
            verb: The verb's name.
            *args: The verb's arguments.
            **options: The verb's options.

        Returns:
            The Violation; None if the step is legal.
        """
        if verb not in VERBS:
            raise InvalidSchedule(f"unknown verb {verb!r}; expected one of {', '.join(VERBS)}")
        try:
            getattr(self, verb)(*args, **options)
        except IllegalSchedule as refused:
            return refused.violation
        return None

    def loops(self, statement: str) -> tuple[Loop, ...]:
        """Return the loops around a statement, outermost first.

        Args:
            statement: The statement's name.

        Returns:
            The loops.

        Raises:
            InvalidNest: if there is no such statement.
        """
        self.nest.statement(statement)
        return loops_around(self.tree, statement)

    def trace(self) -> str:
        """Return Python code that makes the same schedule again from the same nest."""
        return "\n".join(["s = pf.Schedule(nest)", *(f"s = s.{step}" for step in self.steps)])

    def dump(self, form: Form = "tree") -> str:
        """Return the schedule as text.

        Args:
            form: "tree" (polyfuse's own form), "yaml" (isl's schedule tree), "c" (the loops) or "python" (the trace).

        Returns:
            The text.
        """
        if form == "python":
            return self.trace()
        if form not in TEXTS:
            raise InvalidSchedule(f"unknown form {form!r}; expected one of {', '.join(TEXTS)}, python")
        return TEXTS[form](self.nest, self.tree)

    def __repr__(self) -> str:
        last = f"; the last is {self.steps[-1]}" if self.steps else ""
        steps = shorter(f"{quantity(len(self.steps), 'step')}{last}")
        return f"<Schedule of {self.given.name}: {quantity(len(parts(self.tree)), 'kernel')}, {steps}>"

    def __str__(self) -> str:
        return self.dump("tree")
