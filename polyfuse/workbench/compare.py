"""`pf.compare`: schedules of one nest, or executables, timed in turns on the same arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from polyfuse.compiler import compile
from polyfuse.errors import BadArgument
from polyfuse.errors.proving import proving
from polyfuse.errors.viewed import shorter
from polyfuse.ir.nest import Nest
from polyfuse.measure import Timing, duration, in_turns, in_turns_prepared
from polyfuse.runtime.executable import Executable
from polyfuse.schedule import Schedule
from polyfuse.show.card import card, line, table, written
from polyfuse.show.optional import need

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Compared:
    """One candidate.

    Attributes:
        name: Its name.
        kernels: Launches per call.
        predicted: The cost model's seconds per call.
        measured: Seconds per call.
        difference: The greatest difference of its results from the first candidate's, as a part of the greatest value.
    """

    name: str
    kernels: int
    predicted: float
    measured: Timing
    difference: float

    @property
    def seconds(self) -> float:
        """The median of the measured seconds."""
        return self.measured.median


@dataclass(frozen=True, repr=False)
class Comparison:
    """Candidates beside each other: print it, read `rows`, or plot it."""

    rows: tuple[Compared, ...]

    @property
    def fastest(self) -> Compared:
        """The candidate with the least measured time."""
        return min(self.rows, key=lambda row: row.seconds)

    def __getitem__(self, name: str) -> Compared:
        found = next((row for row in self.rows if row.name == name), None)
        if found is None:
            raise BadArgument(f"unknown candidate {name!r}; there are {', '.join(r.name for r in self.rows)}")
        return found

    @property
    def table(self) -> tuple[tuple[str, ...], ...]:
        """The table as text: a header, then one row for each candidate."""
        first = self.rows[0]
        header = ("", "measured", "quartiles", "predicted", f"time / {first.name}", "kernels", "difference")
        rows = (
            (
                row.name,
                duration(row.seconds),
                f"{duration(row.measured.low)} – {duration(row.measured.high)}",
                duration(row.predicted),
                f"{row.seconds / first.seconds:.3g}",
                str(row.kernels),
                f"{row.difference:.1e}" if row.difference else "none",
            )
            for row in self.rows
        )
        return (header, *rows)

    def __repr__(self) -> str:
        times = ", ".join(f"{row.name} {duration(row.seconds)}" for row in self.rows)
        return f"<Comparison: {shorter(times)}>"

    def _repr_html_(self) -> str:
        """The table as a card."""
        made = card()
        header, *rows = self.table
        line(made, self.fastest.name, " is the fastest")
        table(made, header, rows)
        return written(made)

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self.table, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in self.table
        )

    @proving("the plot of a comparison")
    def plot(self) -> Figure:
        """Draw a bar per candidate, from the lower to the upper quartile of its times, with the prediction as a mark.

        Returns:
            A matplotlib Figure.

        Raises:
            TargetUnavailable: if matplotlib is not installed.
        """
        height = 0.6 + 0.4 * len(self.rows)
        figure: Figure = need("matplotlib.figure").Figure(figsize=(6.4, height), layout="constrained")
        axes = figure.subplots()
        places = range(len(self.rows))
        middle = [row.seconds * 1e6 for row in self.rows]
        low, high = ([getattr(row.measured, side) * 1e6 for row in self.rows] for side in ("low", "high"))
        error = [np.subtract(middle, low), np.subtract(high, middle)]
        axes.barh(places, middle, xerr=error, color="#6fa8dc", ecolor="#444444", label="measured")
        axes.plot([row.predicted * 1e6 for row in self.rows], places, "k|", markersize=14, label="predicted")
        axes.set_yticks(places, [row.name for row in self.rows])
        axes.invert_yaxis()
        axes.set(xlabel="µs per call")
        figure.legend(loc="outside upper right", ncols=2)
        return figure


@proving("compare")
def compare(
    candidates: Mapping[str, Schedule | Executable | Nest],
    inputs: Sequence[Any] | Mapping[str, Any],
    *,
    turns: int = 15,
    pause: float = 0.05,
    **options: Any,
) -> Comparison:
    """Time schedules, or executables, of one program in turns on the same arrays, and compare their results.

    Args:
        candidates: By name, a schedule, a nest (the strategy then chooses its schedule) or an executable.
        inputs: The arrays of a call, in order or by name. Arrays that a call changes get their values again.
        turns: Timed turns of each candidate.
        pause: Seconds to wait before each.
        **options: Options of `pf.compile` for the schedules and nests, such as `target` and `machine`.

    Returns:
        Measured and predicted seconds, and the greatest difference of results, by candidate.

    Raises:
        BadArgument: if there is no candidate, or one is of another type; as for a call, if the arrays do not fit.
    """
    if not candidates:
        raise BadArgument(
            "compare: no candidates, expected schedules by name, such as {'auto': nest, 'mine': s}"
        )
    nets = {name: _compiled(name, one, options) for name, one in candidates.items()}
    given = dict(inputs) if isinstance(inputs, Mapping) else _named(next(iter(nets.values())), inputs)
    arrays = {name: np.array(value) for name, value in given.items()}
    found = {name: _results(net, given, arrays) for name, net in nets.items()}
    calls = {name: partial(net, **arrays) for name, net in nets.items()}
    if any(net.nest.with_role("inout") for net in nets.values()):

        def restore() -> None:
            for name, value in given.items():
                arrays[name][...] = value

        every = in_turns_prepared(calls, restore, turns=(min(3, turns), turns), pause=pause)
        timings = {name: Timing.of(list(values), 1) for name, values in every.items()}
    else:
        timings = in_turns(calls, turns=turns, pause=pause)
    usual = next(iter(found.values()))
    return Comparison(
        tuple(
            Compared(
                name,
                sum(not launch.once for launch in net.kernels),
                net.report().predicted_seconds,
                timings[name],
                _difference(usual, found[name]),
            )
            for name, net in nets.items()
        )
    )


def _compiled(name: str, one: object, options: Mapping[str, Any]) -> Executable:
    if isinstance(one, Executable):
        return one
    if isinstance(one, Schedule):
        return compile(one.given, schedule=one, **options)
    if isinstance(one, Nest):
        return compile(one, **options)
    raise BadArgument(
        f"compare: candidate {name!r} is of type {type(one).__name__}; expected a schedule, a nest or an executable"
    )


def _named(net: Executable, inputs: Sequence[Any]) -> dict[str, Any]:
    names = [tensor.name for tensor in net.nest.inputs]
    if len(inputs) != len(names):
        raise BadArgument(f"compare: given {len(inputs)} arrays; expected {', '.join(names) or 'none'}")
    return dict(zip(names, inputs, strict=True))


def _results(net: Executable, given: Mapping[str, Any], arrays: Mapping[str, Array]) -> list[Array]:
    """What a call leaves: its results, and arrays that it changed."""
    for name, value in given.items():
        arrays[name][...] = value
    result = net(**arrays)
    several = result if isinstance(result, tuple) else () if result is None else (result,)
    return [np.array(one) for one in (*several, *(arrays[t.name] for t in net.nest.with_role("inout")))]


def _difference(usual: Sequence[Array], other: Sequence[Array]) -> float:
    found = [0.0]
    for a, b in zip(usual, other, strict=True):
        if a.size:
            scale = max(float(np.abs(a.astype(float)).max()), 1e-300)
            found.append(float(np.abs(a.astype(float) - b.astype(float)).max()) / scale)
    return max(found)
