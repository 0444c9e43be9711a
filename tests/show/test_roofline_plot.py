"""Rooflines: where kernels are, and under which roofs."""

from __future__ import annotations

import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.show import roofline_plot

pytest.importorskip("matplotlib")


def nest() -> pf.Nest:
    return pf.lower(nn.Linear(64, 64, bias=False), batch=64)


def test_a_nest_has_a_ring_on_the_roof() -> None:
    found = pf.bounds(nest(), "L1", machine="zen5")
    axes = roofline_plot(found).axes[0]
    roof, ring, _ = axes.lines
    assert ring.get_xdata()[0] == found.whole.intensity
    assert ring.get_ydata()[0] == pytest.approx(max(roof.get_ydata()))
    assert {text.get_text() for text in axes.texts} == {"525 GFLOP/s", "500 GB/s of L2"}


def test_a_schedule_has_a_point_at_its_own_intensity() -> None:
    found = pf.bounds(pf.Schedule(nest()), 8 * 2**10, machine="zen5")
    kernel = found.kernels[1]  # zero0, without operations, has no place
    axes = roofline_plot(found).axes[0]
    _, ring, _, point = axes.lines
    assert point.get_xdata()[0] == kernel.schedule_intensity < ring.get_xdata()[0]
    assert point.get_ydata()[0] == pytest.approx(kernel.flops / kernel.predicted / 1e9)
