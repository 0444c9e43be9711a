"""Schedule a kernel that reads a matrix once, a few rows at a time, in public verbs.

    for i (a share of the rows a core): {
      for j (vector): y_parts[i, j] = 0
      for i_in (of 4): {
        for r: t[r] = 0
        for j (vector): for r (unrolled): t[r] += A[r, j] * x[j]
        for j (vector): for r (unrolled): y_parts[i, j] += A[r, j] * t[r] } }

What is added to y_parts stays in L1 meanwhile, or L2, and so do the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyfuse.errors import InvalidSchedule
from polyfuse.schedule import Schedule
from polyfuse.strategy.cost.counts import dims_of
from polyfuse.strategy.transforms.band_verbs import inside, reordered, where_legal


@dataclass(frozen=True)
class Rows:
    """A statement that runs row by row: its dimension that counts rows, and the one along a row if it has one."""

    name: str
    row: str
    column: str | None = None


@dataclass(frozen=True)
class RowPass:
    """The statements that run row by row in order, `height` rows at a time, and the cores' shares of the rows.

    With a `share` each core has so many rows. `parted` then has the number of the core as its first dimension, and
    `first` sets its first values there. Without one a single core has all rows.
    """

    rows: tuple[Rows, ...]
    height: int
    share: int | None = None
    parted: str | None = None
    first: str | None = None

    @property
    def names(self) -> frozenset[str]:
        """All its statements."""
        return frozenset((*(rows.name for rows in self.rows), *((self.first,) if self.first else ())))


def row_by_row(schedule: Schedule, one: RowPass) -> Schedule:
    """The pass in shape. Raises IllegalSchedule if dependences forbid it, InvalidSchedule where loops differ."""
    home = one.rows[0].name
    tiles: dict[str, str] = {}
    for rows in one.rows:
        schedule, tiles[rows.name] = _cut(schedule, one, rows)
    outer = [schedule.loops(home)[0].name] if one.share is not None else []
    if one.first is not None:
        schedule = schedule.vectorize(one.first, schedule.loops(one.first)[-1].name)
        schedule = schedule.fuse(home, one.first, at=outer[0], shift={outer[0]: 0})
    for rows in one.rows[1:]:
        for at in (*outer, tiles[home]):
            schedule = schedule.fuse(home, rows.name, at=at, shift={at: 0})
    return schedule.bind(home, **{outer[0]: "cores"}) if outer else schedule


def _cut(schedule: Schedule, one: RowPass, rows: Rows) -> tuple[Schedule, str]:
    """A statement in tiles of rows, and the name of the loop over these.

    for i: for j: S  ->  for i (shares): for i_in (of 4): for j (vector): for i_in_in (unrolled): S       i_in
    """
    name, row = rows.name, _loop_over(schedule, rows.name, rows.row)
    if rows.column is not None:
        schedule = reordered(schedule, name, (row, _loop_over(schedule, name, rows.column)))
    if one.share is not None and name != one.parted:
        schedule = schedule.split(name, row, one.share)
        row = inside(schedule, name, row).name
    schedule = schedule.split(name, row, one.height)
    few = inside(schedule, name, row).name
    if rows.column is None:
        return where_legal(schedule, "vectorize", name, few), row
    column = _loop_over(schedule, name, rows.column)
    schedule = schedule.interchange(name, few, column).unroll(name, few)
    return schedule.vectorize(name, column), row


def _loop_over(schedule: Schedule, name: str, dim: str) -> str:
    """The outermost loop that counts a dimension of a statement. Raises InvalidSchedule if there is none."""
    wanted = {schedule.nest.statement(name).dims.index(dim)}
    found = next((loop.name for loop in schedule.loops(name) if dims_of(loop.date(name)) == wanted), None)
    if found is None:
        raise InvalidSchedule(f"no loop around {name} counts {dim} alone")
    return found
