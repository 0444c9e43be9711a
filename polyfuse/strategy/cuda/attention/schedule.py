"""Schedule attention as one kernel on a GPU, in public verbs, without scores in memory.

    for b, i (blocks): { m, l = …; o_sum = 0                                                   o_sum in registers
      for j (blocks of keys): {
        copy keys;  for d (of 16): s += q * k                                  a tile of scores in registers
        m = max over lanes of s;  correct l and o_sum;  e = exp(s - m)         e in shared memory
        l += sum over lanes of e;  copy values;  for j (of 16): o_sum += e * v }
      o = o_sum / l }

Every thread has the same rows of scores, exponentials and results; a row's lanes have its keys and its columns. All
statements get their dates at once, by `affine`; loops are then bound by what they count (attention.py).
"""

from __future__ import annotations

from polyfuse.schedule import Schedule
from polyfuse.sets import dim_names
from polyfuse.strategy.cuda.attention.tiles import STEPS, PassShape
from polyfuse.strategy.cuda.transforms.staging import staged_tile
from polyfuse.strategy.match.attention import BLOCK, COLUMN, KEY, ROW, STEP, OneKernel

BLOCKS = ("block.x", "block.y", "block.z")
THREADS = ("thread.z", "thread.y", "thread.x")


def dated(schedule: Schedule, one: OneKernel, shape: PassShape) -> Schedule:
    """The statements of one kernel in its order; what else the schedule holds stays as it is.

    Raises IllegalSchedule if dependences forbid that, InvalidSchedule where other statements stand between them.
    """
    return schedule.affine(**{name: _Pass(schedule, one, shape).dates(name) for name in one.names})


def shaped(schedule: Schedule, one: OneKernel, shape: PassShape) -> Schedule:
    """A kernel in its order in a shape: on blocks and threads, with its memory. Raises what `dated` does."""
    return _Pass(schedule, one, shape).made()


class _Pass:
    """One kernel on its way."""

    def __init__(self, schedule: Schedule, one: OneKernel, shape: PassShape) -> None:
        self.schedule, self.one, self.shape = schedule, one, shape
        self.outside = len(one.batches) + 1
        self.lanes = {
            name
            for name in one.inside
            if schedule.nest.statement(name).is_reduction
            and name not in (one.scores.statement, one.results.statement)
        }

    def made(self) -> Schedule:
        """Places, then memory."""
        one = self.one
        grid = [loop.name for loop in self.schedule.loops(one.scores.statement)[: self.outside]]
        while len(grid) > len(BLOCKS):
            self.schedule = self.schedule.collapse(one.names[0], *grid[:2])
            grid = [loop.name for loop in self.schedule.loops(one.scores.statement)[: len(grid) - 1]]
        places = dict(zip(grid, reversed(BLOCKS[: len(grid)]), strict=True))
        self.schedule = self.schedule.bind(one.scores.statement, **places)
        rows, keys = grid[-1], self.schedule.loops(one.scores.statement)[len(grid)].name
        for name in one.names:
            self._bind(name, len(grid))
        self._promote(rows, keys)
        self._stage(rows, keys)
        for product in (one.scores, one.results):
            loops = [loop.name for loop in self.schedule.loops(product.statement)]
            self.schedule = self.schedule.microkernel(product.statement, loops[-3], self.shape.math)
        return self.schedule

    # -- dates

    def dates(self, name: str) -> str:
        """[batches, block of rows, phase, block of keys, phase, threads z, y, x, and what a thread has]."""
        one, parts = self.one, list[str]()
        by_role = dict(zip(one.dims[name], dim_names(self.schedule.nest.domains[name]), strict=True))
        parts += [by_role[batch] for batch in one.batches]
        parts.append(f"floor({by_role[ROW]} / {self.shape.rows})")
        if name in one.inside:
            block = by_role.get(BLOCK) or f"floor({by_role[KEY]} / {self.shape.keys})"
            parts += [str(len(one.before)), block, str(one.inside.index(name))]
        elif name in one.before:
            parts.append(str(one.before.index(name)))
        else:
            parts.append(str(len(one.before) + 1 + one.behind.index(name)))
        return f"[{', '.join((*parts, *self._own(name, by_role)))}]"

    def _own(self, name: str, by_role: dict[str, str]) -> list[str]:
        """A statement's dates in a block: threads and what each of them has; steps of products outside and inside."""
        a, row = self.shape.scores.shape, by_role[ROW]
        all_y = a.threads_y * a.rows
        z = f"floor(({row} mod {self.shape.rows}) / {all_y})"
        y, r = f"floor(({row} mod {all_y}) / {a.rows})", f"{row} mod {a.rows}"
        results = COLUMN in by_role
        along = by_role.get(COLUMN) or by_role.get(KEY)
        if along is None:
            return [z, y, r]
        count = (self.shape.results.shape if results else a).columns
        within = along if results else f"({along} mod {self.shape.keys})"
        x, c = f"floor({within} / {count})", f"{along} mod {count}"
        if name in self.lanes:
            return [z, y, r, x, c]
        if name == self.one.scores.statement:
            step = by_role[STEP]
            return [f"floor({step} / {STEPS})", z, y, x, f"{step} mod {STEPS}", r, c]
        if name == self.one.results.statement:
            step = by_role[KEY]
            chunk = f"floor(({step} mod {self.shape.keys}) / {STEPS})"
            return [chunk, z, y, x, f"{step} mod {STEPS}", r, c]
        return [z, y, x, r, c]

    # -- places

    def _bind(self, name: str, grid: int) -> None:
        """A statement's loops in a block on threads; what a thread has is written out."""
        own = [loop.name for loop in self.schedule.loops(name)[grid + (name in self.one.inside) :]]
        if name in (self.one.scores.statement, self.one.results.statement):
            places, rest = dict(zip(own[1:4], THREADS, strict=True)), []
        elif name in self.lanes:
            z, y, r, x, c = own
            places, rest = {z: THREADS[0], y: THREADS[1], x: "lane"}, [r, c]
        else:
            places, rest = dict(zip(own, THREADS, strict=False)), own[3:]
        self.schedule = self.schedule.bind(name, **places)
        for loop in rest:
            self.schedule = self.schedule.unroll(name, loop)

    # -- memory

    def _promote(self, rows: str, keys: str) -> None:
        """Temporaries of the kernel: tiles in registers, exponentials and numbers of rows in shared memory."""
        one, nest = self.one, self.schedule.nest
        for tensor, roles in one.axes.items():
            if nest.tensor(tensor).role != "temporary":
                continue
            users = [name for name in one.names if tensor in nest.statement(name).tensors]
            own = {role for role in roles if role in (ROW, KEY, COLUMN)}
            at = keys if set(users) <= set(one.inside) and KEY in own else rows
            if tensor == one.exponentials:
                panels = self.shape.exponentials()
                self.schedule = self.schedule.promote(
                    tensor,
                    users[0],
                    at=keys,
                    memory="shared",
                    panel=(roles.index(panels.along), panels.width),
                    layout=panels.layout,
                )
            else:
                memory = "shared" if own == {ROW} else "register"
                self.schedule = self.schedule.promote(tensor, users[0], at=at, memory=memory)

    def _stage(self, rows: str, keys: str) -> None:
        """Queries once a block of rows, keys and values once a block of keys, copied by all threads."""
        one, s = self.one, self.shape
        steps = one.extent(one.scores, one.scores.steps[0])
        a, b, p, q = s.queries(steps), s.values(), one.scores, one.results
        self.schedule = staged_tile(self.schedule, p, a, p.left, p.rows, rows, a.left)
        self.schedule = staged_tile(self.schedule, p, a, p.right, p.columns, keys, a.right)
        self.schedule = staged_tile(self.schedule, q, b, q.right, q.columns, keys, b.right)
