"""The text and figures of `net.report()`: kernels, work, memory, prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from polyfuse.errors import quantity
from polyfuse.errors.viewed import without_numbers
from polyfuse.lower_bounds.bounds import Bound, Bounds
from polyfuse.machine.levels import bytes_text
from polyfuse.measure import duration
from polyfuse.runtime.cuda.kernel_times import KernelTime
from polyfuse.show.card import card, line, table, written
from polyfuse.strategy.tuning_trials import Tuning

WIDTH = 18
"""Letters of the names in a report's lines."""

KERNELS = ("kernel", "predicted", "measured", "at least", "moved", "against the bound")
"""The columns of the kernels' table in a report with bounds. Bytes are those through the largest cache."""


@dataclass(frozen=True)
class Report:
    """Figures of a compiled net. Predictions are the cost model's; only `tuning` is measured.

    Attributes:
        target: "cpu" or "cuda", and where kernels run.
        launches: Kernel launches per call.
        launches_once: Launches that run once, for kernels that depend on constants alone.
        compiled_kernels: Distinct kernels compiled.
        flops: Floating-point operations per call.
        bytes_moved: Bytes moved per call.
        predicted_seconds: Seconds per call.
        arena_bytes_before: Bytes of temporaries if each had its own memory.
        arena_bytes: Bytes of the arena in which they share memory.
        kept_bytes: Bytes that kernels which run once leave for calls.
        copied_inputs: Inputs that had to be copied to be contiguous.
        compile_seconds: Seconds by stage.
        cache: Whether the cache was used.
        tuning: The search's trials; None without a search.
        kernel_times: One entry per launch on a GPU: issue slots, bytes, occupancy.
        sizes: The symbolic sizes of the figures on memory and a GPU's launches.
        counted_sizes: The symbolic sizes of work, bytes moved and time.
        bounds: The least traffic of each kernel; None if it was not asked for.
    """

    target: str
    launches: int
    launches_once: int
    compiled_kernels: int
    flops: int
    bytes_moved: int
    predicted_seconds: float
    arena_bytes_before: int
    arena_bytes: int
    kept_bytes: int
    copied_inputs: tuple[str, ...]
    compile_seconds: Mapping[str, float]
    cache: str
    tuning: Tuning | None = None
    kernel_times: tuple[KernelTime, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    counted_sizes: Mapping[str, int] = field(default_factory=dict)
    bounds: Bounds | None = None

    @property
    def grid_barriers(self) -> int:
        """The number of grid barriers in all launches of a call."""
        return sum(each.cost.meetings for each in self.kernel_times)

    def __repr__(self) -> str:
        launches = quantity(self.launches, "launch", "launches")
        return (
            f"<Report: {self.target}, {launches}, {self.flops:,} FLOP, {self.bytes_moved:,} bytes moved, "
            f"{duration(self.predicted_seconds)} predicted>"
        )

    def _repr_html_(self) -> str:
        """The lines as a table, then the kernels and their bounds as another."""
        made = card()
        line(made, "report", f" of a net on {self.target}")
        table(made, ("", ""), self._lines())
        if self.bounds is not None:
            line(made, "kernels", f" beside the least traffic through {self.bounds.memory}")
            header, *rows = _filled((KERNELS, *self.kernel_rows))
            table(made, header, rows)
        return written(made)

    def __str__(self) -> str:
        lines = [f"{name:<{WIDTH}}{text}" if name else f"  {text}" for name, text in self._lines()]
        if self.bounds is None:
            return "\n".join(lines)
        rows = _filled((KERNELS, *self.kernel_rows))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        aligned = (
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
        )
        least = f"{'least traffic':<{WIDTH}}through {self.bounds.memory}"
        return "\n".join((*lines, least, *(f"  {row}".rstrip() for row in aligned)))

    def _lines(self) -> tuple[tuple[str, str], ...]:
        """Names and texts of the report's lines; a line without a name continues the one above."""
        copied = ", ".join(self.copied_inputs) or "none"
        spent = ", ".join(
            f"{stage} {1e3 * seconds:.1f} ms" for stage, seconds in self.compile_seconds.items()
        )
        once = f", {self.launches_once} more once for all calls" if self.launches_once else ""
        once += f", {quantity(self.grid_barriers, 'grid barrier')}" if self.grid_barriers else ""
        launches = quantity(self.launches, "launch", "launches")
        return (
            ("target", self.target),
            ("kernels", f"{launches} of {quantity(self.compiled_kernels, 'compiled kernel')}{once}"),
            *self._sizes(),
            ("work", f"{self.flops:,} FLOP, {self.bytes_moved:,} bytes moved (model)"),
            ("predicted time", f"{duration(self.predicted_seconds)} (model)"),
            *(("", str(each)) for each in self.kernel_times),
            (
                "temporaries",
                f"{self.arena_bytes:,} bytes in one arena, {self.arena_bytes_before:,} with one allocation each",
            ),
            ("made once", f"{self.kept_bytes:,} bytes from constants alone, kept for all calls"),
            ("inputs copied", f"{copied} (not contiguous, or given twice and written, in calls so far)"),
            ("compile time", spent),
            ("cache", self.cache),
            *([("tuning", str(self.tuning))] if self.tuning is not None else []),
        )

    @property
    def kernel_rows(self) -> tuple[tuple[str, ...], ...]:
        """The rows below KERNELS: one for each kernel, equal ones once, and one for all; none without bounds.

        Equal kernels show the mean of their measured times.
        """
        if self.bounds is None:
            return ()
        alike: dict[str, list[tuple[str, Bound]]] = {}
        for name, bound in self.bounds.named:
            form = (name, bound.predicted, bound.least, bound.traffic, bound.against)
            alike.setdefault(without_numbers(f"{form}"), []).append((name, bound))
        return tuple(map(_kernel_row, alike.values()))

    def _sizes(self) -> tuple[tuple[str, str], ...]:
        """A line that says for which symbolic sizes the figures are; none where all sizes are numbers."""
        if not self.sizes:
            return ()
        given, counted = (_values(sizes) for sizes in (self.sizes, self.counted_sizes))
        text = (
            given
            if given == counted
            else f"{counted} for work, bytes and time; {given} for memory and launches"
        )
        return (("symbolic sizes", text),)


def _values(sizes: Mapping[str, int]) -> str:
    """N = 256, M = 7"""
    return ", ".join(f"{name} = {value}" for name, value in sizes.items())


def _filled(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return a table without the columns that have a header alone."""
    kept = [column for column in zip(*rows, strict=True) if any(column[1:])]
    return list(zip(*kept, strict=True))


def _kernel_row(equal: Sequence[tuple[str, Bound]]) -> tuple[str, ...]:
    """One row of KERNELS for kernels that differ in the numbers of names alone."""
    (name, bound), times = equal[0], len(equal)
    measured = [each.measured for _, each in equal if each.measured is not None]
    return (
        f"{name} × {times}" if times > 1 else name,
        "" if bound.predicted is None else duration(bound.predicted),
        duration(sum(measured) / len(measured)) if measured else "",
        bytes_text(bound.least),
        "" if bound.traffic is None else bytes_text(bound.traffic),
        bound.against,
    )
