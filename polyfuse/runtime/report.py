"""The text and figures of `net.report()`: kernels, work, memory, prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from polyfuse.errors import quantity
from polyfuse.errors.viewed import equal_but_for_numbers, shorter
from polyfuse.lower_bounds.bounds import Bounds
from polyfuse.measure import duration
from polyfuse.runtime.cuda.kernel_times import KernelTime
from polyfuse.show.card import card, line, table, written
from polyfuse.strategy.tuning_trials import Tuning

WIDTH = 18
"""Letters of the names in a report's lines."""


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
        """The lines of the text as a table."""
        made = card()
        line(made, "report", f" of a net on {self.target}")
        table(made, ("", ""), [(text[:WIDTH].strip(), text[WIDTH:]) for text in str(self).splitlines()])
        return written(made)

    def __str__(self) -> str:
        copied = ", ".join(self.copied_inputs) or "none"
        spent = ", ".join(
            f"{stage} {1e3 * seconds:.1f} ms" for stage, seconds in self.compile_seconds.items()
        )
        once = f", {self.launches_once} more once for all calls" if self.launches_once else ""
        once += f", {quantity(self.grid_barriers, 'grid barrier')}" if self.grid_barriers else ""
        return "\n".join(
            (
                f"target            {self.target}",
                f"kernels           {quantity(self.launches, 'launch', 'launches')} of "
                f"{quantity(self.compiled_kernels, 'compiled kernel')}{once}",
                *self._sizes(),
                f"work              {self.flops:,} FLOP, {self.bytes_moved:,} bytes moved (model)",
                f"predicted time    {duration(self.predicted_seconds)} (model)",
                *(f"  {each}" for each in self.kernel_times),
                f"temporaries       {self.arena_bytes:,} bytes in one arena, "
                f"{self.arena_bytes_before:,} with one allocation each",
                f"made once         {self.kept_bytes:,} bytes from constants alone, kept for all calls",
                f"inputs copied     {copied} (not contiguous, or given twice and written, in calls so far)",
                f"compile time      {spent}",
                f"cache             {self.cache}",
                *([f"tuning            {self.tuning}"] if self.tuning is not None else []),
                *self._bounds(),
            )
        )

    def _bounds(self) -> tuple[str, ...]:
        """A line for each kernel, equal ones once, and one for all: the least traffic, and the schedule's."""
        if self.bounds is None:
            return ()
        named = (
            *((", ".join(each.statements), each) for each in self.bounds.kernels),
            ("all", self.bounds.whole),
        )
        lines = [f"  {shorter(name, 40)}: {bound.summary}" for name, bound in named]
        once = (
            f"{line}{f'  × {times}' if times > 1 else ''}" for line, times in equal_but_for_numbers(lines)
        )
        return (f"least traffic     through {self.bounds.memory}", *once)

    def _sizes(self) -> tuple[str, ...]:
        """A line that says for which symbolic sizes the figures are; none where all sizes are numbers."""
        if not self.sizes:
            return ()
        given, counted = (_values(sizes) for sizes in (self.sizes, self.counted_sizes))
        text = (
            given
            if given == counted
            else f"{counted} for work, bytes and time; {given} for memory and launches"
        )
        return (f"symbolic sizes    {text}",)


def _values(sizes: Mapping[str, int]) -> str:
    """N = 256, M = 7"""
    return ", ".join(f"{name} = {value}" for name, value in sizes.items())
