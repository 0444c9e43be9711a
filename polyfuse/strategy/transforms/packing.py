"""Verbs around blocks: distribute statements to separate loops, and pack a product's operands in panels."""

from __future__ import annotations

from contextlib import suppress
from math import ceil, prod

import islpy as isl

from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir.tree import Sequence
from polyfuse.schedule import Schedule
from polyfuse.schedule.binding import extent
from polyfuse.sets import pairs_where, single_expression
from polyfuse.strategy.transforms.band_verbs import inside, reordered

AHEAD_BYTES = 4096
"""Bytes of prefetch distance in a copy to panels: 4, 8 and 16 KiB took the same time at 2048 x 2048, and times within 8
% at 1024 x 1024 (a Zen 5 core, rows of 1 KiB)."""


def apart(schedule: Schedule, names: tuple[str, ...]) -> Schedule:
    """Every statement in loops of its own, by `distribute`, innermost first. Raises IllegalSchedule if it cannot."""
    for name in names:
        for loop in reversed(schedule.loops(name)):
            here = next(x for x in schedule.loops(name) if x.name == loop.name)
            if isinstance(here.body, Sequence):
                schedule = schedule.distribute(name, here.name)
    return schedule


def without_coarse_loops(schedule: Schedule, names: tuple[str, ...]) -> Schedule:
    """Statements in loops of their own without those that only number blocks of another one.

    for k: for j: for h in 2k + 1, 2k + 2: S[j, h]  ->  for j: for h: S[j, h]

    A statement has such a loop from a loop of other steps that it was fused with, such as each second row. By itself
    it would run through a row by two elements.
    """
    for name in names:
        own = [loop for loop in schedule.loops(name) if len(loop.dates) == 1]
        dates = [loop.date(name) for loop in own]
        kept = [date for date in dates if not any(_is_coarser(date, other) for other in dates)]
        texts = [single_expression(date) for date in kept]
        if len(kept) < len(dates) and None not in texts:
            with suppress(IllegalSchedule, InvalidSchedule):
                schedule = schedule.affine(**{name: f"[{', '.join(map(str, texts))}]"})
    return schedule


def _is_coarser(date: isl.PwAff, other: isl.PwAff) -> bool:
    """True if a date is the quotient of something, and known where another date is, which is not known by it."""
    pieces = date.get_pieces()
    if len(pieces) != 1 or not pieces[0][1].dim(isl.dim_type.div):
        return False
    same, other_same = pairs_where(date, "=", date), pairs_where(other, "=", other)
    return bool(other_same.is_subset(same) and not same.is_subset(other_same))


def packed(schedule: Schedule, what: str, statement: str, at: str, panel: tuple[int, int] | None) -> Schedule:
    """A copy of what one iteration of a loop reads, or a value of it, in panels or as it is; on vector lanes."""
    done = schedule.promote(what, statement, at=at, panel=panel)
    copies = added(schedule, done)
    if not copies:
        return done  # a temporary that is computed there lies in panels itself
    (copy,) = copies
    own = [loop.name for loop in done.loops(copy) if len(loop.dates) == 1]
    return done.vectorize(copy, own[-1]) if panel is None else _row_by_row(done, copy, own, panel)


def rows_asked_for(schedule: Schedule, tensor: str, copy: str) -> Schedule:
    """A copy of parts of rows into panels that asks for later rows, 4 KiB on.

    Parts of a large matrix' rows lie far apart, and no prefetcher of the processor follows these. Packing 2048 x 2048
    numbers, 1 KiB of a row at a time, took one Zen 5 core 5.4 ms without and 1.3 with, 7 and 2 % of what the product
    takes at the peak; 1024 x 1024 0.48 and 0.32, 5 and 3 %.
    """
    *_, rows, panels, lanes = schedule.loops(copy)
    if extent(schedule.nest, rows) == 1:
        return schedule  # a row of an image, of each channel: 16 x 112 x 112 numbers took 665 µs so and 749 asking
    numbers = prod(extent(schedule.nest, loop) or 1 for loop in (panels, lanes))
    row = numbers * schedule.nest.tensor(tensor).itemsize
    return schedule.prefetch(copy, tensor, rows.name, by=ceil(AHEAD_BYTES / row))


def packed_once(schedule: Schedule, tensor: str, statement: str, panel: tuple[int, int]) -> Schedule:
    """A copy of a whole tensor that calls have in common, in panels, made on vector lanes."""
    done = schedule.pack(tensor, statement, panel=panel)
    (copy,) = added(schedule, done)
    return _row_by_row(done, copy, [loop.name for loop in done.loops(copy)], panel)


def packed_by_cores(schedule: Schedule, tensor: str, statement: str, panel: tuple[int, int]) -> Schedule:
    """A copy of a whole tensor in panels, of which each core makes a part, in a kernel of its own."""
    done = packed_once(schedule, tensor, statement, panel)
    (copy,) = added(schedule, done)
    outer, *_ = done.loops(copy)
    return done.bind(copy, **{outer.name: "cores"})


def added(before: Schedule, after: Schedule) -> tuple[str, ...]:
    """The copies that a later schedule has and an earlier one has not."""
    known = {s.name for s in before.nest.statements}
    return tuple(s.name for s in after.nest.statements if s.name not in known)


def _row_by_row(schedule: Schedule, copy: str, own: list[str], panel: tuple[int, int]) -> Schedule:
    """A copy into panels, row by row of a panel."""
    along = own[panel[0]]
    schedule = schedule.split(copy, along, panel[1])
    lanes = inside(schedule, copy, along).name
    others = [loop for loop in own if loop != along]
    # the tensor is read in its own order: rows of panels, 4 KiB apart, would come one cache line at a time
    return reordered(schedule, copy, (*others, along, lanes)).vectorize(copy, lanes)
