"""Ticks of logarithmic axes as plain numbers: 0.5, 1, 2, not powers of ten."""

from __future__ import annotations

from typing import Any

from polyfuse.show.optional import need

NARROW, WIDE = 8.0, 400.0
"""The ratios of an axis's ends below which evenly spaced numbers are ticks, and above which only powers of ten are."""


def plain_log_ticks(axis: Any) -> None:
    """Give an axis of matplotlib, which is logarithmic and has its data, plain numbers as ticks."""
    ticker = need("matplotlib.ticker")
    low, high = axis.get_view_interval()
    if high < NARROW * low:
        axis.set_major_locator(ticker.MaxNLocator(5))
    else:
        axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if high < WIDE * low else (1,)))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(ticker.NullLocator())
