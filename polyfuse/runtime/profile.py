"""Profiles: the measured time of each kernel beside what the cost model predicts and the roofline allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.etree.ElementTree import SubElement

import numpy as np
import numpy.typing as npt

from polyfuse.codegen.program import Launch
from polyfuse.measure import Timing, duration
from polyfuse.runtime.cpu.hardware_counters import Counts
from polyfuse.show.card import card, line, table, written
from polyfuse.strategy import KernelCost

Array = npt.NDArray[Any]

NOT_COUNTED = Counts()
"""Why a profile of a GPU has no counters: they count what the processor runs."""


@dataclass(frozen=True)
class KernelProfile:
    """One launch of a call, measured.

    Attributes:
        kernel: The kernel's name.
        statements: The statements that it runs.
        measured: Seconds per call.
        flops: Floating-point operations; None if the cost model counted for other symbolic sizes.
        bytes_moved: The cost model's bytes; None as `flops`.
        predicted: The cost model's seconds; None as `flops`.
        bound: The roofline's least seconds: all operations at peak, or each byte outside the kernel moved once; None
            as `flops`.
    """

    kernel: str
    statements: tuple[str, ...]
    measured: Timing
    flops: int | None
    bytes_moved: int | None
    predicted: float | None
    bound: float | None

    @property
    def seconds(self) -> float:
        """The median of the measured seconds."""
        return self.measured.median

    @property
    def flops_per_second(self) -> float | None:
        """The measured rate of operations."""
        return None if self.flops is None else self.flops / max(self.seconds, 1e-12)

    @property
    def bytes_per_second(self) -> float | None:
        """The model's bytes over the measured time."""
        return None if self.bytes_moved is None else self.bytes_moved / max(self.seconds, 1e-12)

    @property
    def share_of_bound(self) -> float | None:
        """The roofline's least time as a part of the measured time: 1 is the roof."""
        return None if self.bound is None else self.bound / max(self.seconds, 1e-12)


@dataclass(frozen=True, repr=False)
class Profile:
    """The kernels of a call in order, each with its measured time. Print it, or read its fields.

    Attributes:
        target: "cpu" or "cuda", and the machine that the model priced for.
        kernels: One entry per launch of a call; launches that run once for all calls are not measured.
        measured: The distribution of the sum over all kernels.
        sizes: The symbolic sizes of the arrays.
        counts: What the processor counted in a call of all kernels, or the sentence why it did not; empty on a GPU.
    """

    target: str
    kernels: tuple[KernelProfile, ...]
    measured: Timing
    sizes: Mapping[str, int] = field(default_factory=dict)
    counts: Counts = NOT_COUNTED

    @property
    def seconds(self) -> float:
        """The median of the measured seconds of a call's kernels."""
        return self.measured.median

    @property
    def predicted(self) -> float | None:
        """The cost model's seconds of a call; None if it counted for other symbolic sizes."""
        every = [kernel.predicted for kernel in self.kernels if kernel.predicted is not None]
        return sum(every) if len(every) == len(self.kernels) else None

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """The table as text: HEADER, then one row per kernel, then the sum."""
        total = ("all", duration(self.seconds), _time(self.predicted), "", "", "", "", "")
        return (*(_row(kernel, self.seconds) for kernel in self.kernels), total)

    def __str__(self) -> str:
        every = (HEADER, *self.rows)
        widths = [max(map(len, column)) for column in zip(*every, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in every
        ]
        turns = f"{self.measured.turns} turns of {self.measured.calls} calls"
        counts = [text] if (text := str(self.counts)) else []
        return "\n".join((f"profile on {self.target}, {turns}", *lines, *counts))

    def _repr_html_(self) -> str:
        """The table as a card."""
        made = card()
        line(made, "profile", f" on {self.target}: {duration(self.seconds)} a call")
        table(made, HEADER, self.rows)
        if text := str(self.counts):
            SubElement(made, "p", {"class": "dim"}).text = text
        return written(made)

    def __repr__(self) -> str:
        predicted = "" if self.predicted is None else f", {duration(self.predicted)} predicted"
        kernels = f"{len(self.kernels)} {'kernel' if len(self.kernels) == 1 else 'kernels'}"
        return f"<Profile on {self.target}: {kernels}, {duration(self.seconds)} measured{predicted}>"


HEADER = ("kernel", "measured", "predicted", "bound", "of bound", "share", "GFLOP/s", "GB/s")
"""The columns of a profile's table."""

MOST_NAMES = 4
"""Statements of a kernel that a table names."""


def _row(kernel: KernelProfile, total: float) -> tuple[str, ...]:
    return (
        shortened(kernel.statements),
        duration(kernel.seconds),
        _time(kernel.predicted),
        _time(kernel.bound),
        "—" if kernel.share_of_bound is None else f"{kernel.share_of_bound:.0%}",
        f"{kernel.seconds / max(total, 1e-12):.0%}",
        _giga(kernel.flops_per_second),
        _giga(kernel.bytes_per_second),
    )


def shortened(statements: Sequence[str]) -> str:
    """A kernel by its statements, of many the first and the last.

    >>> shortened(["zero0", "mac0", "bias0", "relu0", "scale0"])
    'zero0, mac0 … scale0'
    """
    names = list(statements)
    return ", ".join(names) if len(names) <= MOST_NAMES else f"{', '.join(names[:2])} … {names[-1]}"


def _time(seconds: float | None) -> str:
    return "—" if seconds is None else duration(seconds)


def _giga(rate: float | None) -> str:
    return "—" if rate is None else f"{rate / 1e9:.3g}"


def profile_of(
    target: str,
    launches: Sequence[Launch],
    turns: Sequence[Array],
    calls: int,
    model: Sequence[tuple[KernelCost, float] | None],
    sizes: Mapping[str, int],
    counts: Counts = NOT_COUNTED,
) -> Profile:
    """Return the profile of measured turns.

    Args:
        target: What ran it.
        launches: The launches of a call.
        turns: The seconds of each launch in each turn.
        calls: Calls of a turn.
        model: The model's cost and the roofline's seconds of each launch; None if they are of other sizes.
        sizes: Values of symbolic sizes.
        counts: What the processor counted.
    """
    kernels = []
    for position, (launch, known) in enumerate(zip(launches, model, strict=True)):
        measured = Timing.of([float(turn[position]) for turn in turns], calls)
        cost, bound = (None, None) if known is None else known
        kernels.append(
            KernelProfile(
                launch.name,
                launch.statements,
                measured,
                None if cost is None else cost.flops,
                None if cost is None else cost.compulsory + cost.again,
                None if cost is None else cost.total,
                bound,
            )
        )
    total = Timing.of([float(turn.sum()) for turn in turns], calls)
    return Profile(target, tuple(kernels), total, dict(sizes), counts)


def restored(arrays: Mapping[str, Array], changed: Sequence[str]) -> Callable[[], None]:
    """Return a function that gives the arrays that calls change the values that they have now."""
    kept = {name: np.array(arrays[name]) for name in changed}

    def restore() -> None:
        for name, values in kept.items():
            arrays[name][...] = values

    return restore
