"""Plot kernels under a machine's roofline: what the bound allows, what the schedule moves, and the times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polyfuse.errors import BadArgument
from polyfuse.errors.proving import proving
from polyfuse.errors.viewed import shorter
from polyfuse.lower_bounds.bounds import Bound, Bounds
from polyfuse.machine.levels import Level
from polyfuse.show.optional import need

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0969da", "#cf222e", "#1a7f37", "#9a6700", "#8250df", "#bf3989", "#57606a", "#0a3069")
"""Of kernels, one after the other."""

GIGA = 1e9

LETTERS = 24
"""Letters of a kernel's name in the legend."""


@proving("the view roofline_plot")
def roofline_plot(bounds: Bounds) -> Figure:
    """Plot each kernel's operational intensity and rate under the machine's roofs.

    A ring on the roof is where the bound on traffic allows a kernel to be, and the dotted line is its intensity. A
    filled circle is the schedule's traffic and the predicted time, a cross the measured time. Kernels without
    floating-point operations, and those that run once for all calls, have no place in it.

    Args:
        bounds: Bounds of a nest, a schedule or an executable.

    Returns:
        A matplotlib Figure.

    Raises:
        BadArgument: if this is another value.
        TargetUnavailable: if matplotlib is not installed.
    """
    if not isinstance(bounds, Bounds):
        raise BadArgument(
            f"roofline_plot: expected bounds, from pf.bounds(net) or net.report(bounds=True).bounds, "
            f"not a {type(bounds).__name__}"
        )
    figure: Figure = need("matplotlib.figure").Figure(figsize=(7.6, 4.2), layout="constrained")
    axes = figure.subplots()
    shown = [bound for bound in bounds.kernels or (bounds.whole,) if bound.flops and not bound.once]
    machine = bounds.machine
    beyond = _beyond(bounds)
    rate, peak = machine.bandwidth(beyond, machine.units) / GIGA, machine.peak(4, machine.units) / GIGA
    ridge = peak / rate
    low, high = _range(shown, ridge)
    axes.set(xscale="log", yscale="log", xlabel="FLOP per byte", ylabel="GFLOP/s", xlim=(low, high))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(need("matplotlib.ticker").LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    axes.plot([low, ridge, high], [rate * low, peak, peak], color="#444444")
    small: dict[str, Any] = {"fontsize": 8, "textcoords": "offset points"}
    axes.annotate(f"{peak:,.0f} GFLOP/s", (high, peak), xytext=(-4, 3), ha="right", **small)
    axes.annotate(
        f"{rate:,.0f} GB/s of {beyond.name}",
        (low, rate * low),
        xytext=(12, 0),
        va="center",
        zorder=4,
        **small,
    ).set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.5})
    for place, bound in enumerate(shown):
        _mark(axes, bound, COLOURS[place % len(COLOURS)], rate, peak)
    axes.margins(y=0.15)
    axes.set_title(f"{bounds.name} on {machine.name}, through {bounds.memory}", fontsize=9)
    ends = {"marker": "o", "color": "#444444", "linestyle": ""}
    line = need("matplotlib.lines").Line2D
    keys = [
        line([], [], markerfacecolor="none", label="the bound allows", **ends),
        line([], [], label="predicted", **ends),
        line([], [], marker="x", color="#444444", linestyle="", label="measured"),
    ]
    names = [
        line([], [], color=COLOURS[place % len(COLOURS)], label=shorter(", ".join(bound.statements), LETTERS))
        for place, bound in enumerate(shown)
    ]
    figure.legend(handles=[*keys, *names], fontsize=8, loc="outside right upper")
    return figure


def _beyond(bounds: Bounds) -> Level:
    """The level behind the fast memory: the one after it, or the first that is larger than a size that was given."""
    levels = bounds.machine.levels
    names = [level.name for level in levels]
    if bounds.memory.name in names:
        return levels[names.index(bounds.memory.name) + 1]
    return next((level for level in levels if level.size > bounds.memory.size), levels[-1])


def _range(shown: list[Bound], ridge: float) -> tuple[float, float]:
    """The intensities of the axis: all kernels', and the ridge."""
    found = [ridge, *(bound.intensity for bound in shown)]
    found += [value for bound in shown if (value := bound.schedule_intensity)]
    return min(found) / 4, max(found) * 4


def _mark(axes: Any, bound: Bound, colour: str, rate: float, peak: float) -> None:
    """Draw one kernel."""
    roof = min(peak, rate * bound.intensity)
    axes.plot([bound.intensity], [roof], "o", markerfacecolor="none", color=colour, markersize=8)
    axes.axvline(bound.intensity, linestyle=":", linewidth=0.8, color=colour)
    at = bound.schedule_intensity
    if at is None:
        return
    if bound.predicted:
        axes.plot([at], [bound.flops / bound.predicted / GIGA], "o", color=colour, markersize=6)
    if bound.measured:
        axes.plot([at], [bound.flops / bound.measured / GIGA], "x", color=colour, markersize=7)
