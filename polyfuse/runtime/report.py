"""What `net.report()` says: kernels, work, memory, prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from polyfuse.runtime.cuda.kernel_times import KernelTime
from polyfuse.strategy.tuning_trials import Tuning


@dataclass(frozen=True)
class Report:
    """Figures of a compiled net. Predictions are the cost model's; only `tuning` is measured.

    Symbolic sizes have the values `sizes` in what is said of memory and of a GPU's launches, and `counted_sizes` in
    work, bytes moved and time.
    `kernel_times` has one entry a launch on a GPU: issue slots, bytes, occupancy. `grid_barriers` counts how often all
    blocks of a launch wait for each other, in all launches together.
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

    @property
    def grid_barriers(self) -> int:
        """How often all blocks of a kernel wait for each other, in all launches of a call."""
        return sum(each.cost.meetings for each in self.kernel_times)

    def __str__(self) -> str:
        copied = ", ".join(self.copied_inputs) or "none"
        spent = ", ".join(
            f"{stage} {1e3 * seconds:.1f} ms" for stage, seconds in self.compile_seconds.items()
        )
        once = f", {self.launches_once} more once for all calls" if self.launches_once else ""
        once += f", {self.grid_barriers} grid barriers" if self.grid_barriers else ""
        return "\n".join(
            (
                f"target            {self.target}",
                f"kernels           {self.launches} launches of {self.compiled_kernels} compiled{once}",
                *self._sizes(),
                f"work              {self.flops:,} FLOP, {self.bytes_moved:,} bytes moved (model)",
                f"predicted time    {1e6 * self.predicted_seconds:.2f} µs (model)",
                *(f"  {each}" for each in self.kernel_times),
                f"temporaries       {self.arena_bytes:,} bytes in one arena, "
                f"{self.arena_bytes_before:,} with one allocation each",
                f"made once         {self.kept_bytes:,} bytes from constants alone, beside them for all calls",
                f"inputs copied     {copied} (not contiguous, or given twice and written, in calls so far)",
                f"compile time      {spent}",
                f"cache             {self.cache}",
                *([f"tuning            {self.tuning}"] if self.tuning is not None else []),
            )
        )

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
