"""`pf.bounds`: bounds of nests, schedules and executables, as values, text, HTML and a plot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import polyfuse as pf
from papers.polybench import KERNELS
from polyfuse import nn
from polyfuse.errors import BadArgument, TargetUnavailable
from polyfuse.measure import duration

# ruff: noqa: F821

KiB = 2**10


def test_a_product_needs_two_over_root_s() -> None:
    nest = KERNELS["gemm"].nest
    found = pf.bounds(nest, 32 * KiB, machine="zen5")
    assert found.sizes == (("NI", 256), ("NJ", 256), ("NK", 256))
    assert found.whole.compulsory == 8 * (3 * 256**2 + 256**2 + 2)  # A, B, C and back, alpha and beta
    (formula,) = found.formulas
    assert formula.text == "2·NI·NJ·NK / √S - 2·S"
    assert formula.inequality == "|E| <= |C[i, j]|^(1/2) |A[i, k]|^(1/2) |B[k, j]|^(1/2)"
    assert formula.size == 4096
    assert formula.elements == int(2 * 256**3 / 64 * (1 - 1e-9) - 2 * 4096)
    stored_and_scalars = 8 * (256**2 + 2)
    assert found.whole.least == pytest.approx(8 * formula.elements + stored_and_scalars, abs=16)
    assert found.whole.traffic is None
    assert repr(found) == "<Bounds nest gemm: 50,397,184 FLOP, 4.44 MiB at least through 32 KiB>"


def test_a_convolution_divides_by_its_window() -> None:
    nest = pf.lower(nn.Conv2d(16, 32, 3, bias=False), batch=4, features=(16, 32, 32))
    (formula,) = pf.bounds(nest, 8 * KiB, machine="zen5").formulas
    assert formula.applies
    assert formula.text == "2·16,588,800 / √(3·3·S) - 2·S"


def test_products_in_a_row_add_up() -> None:
    kernel = KERNELS["2mm"]
    found = pf.bounds(kernel.nest.with_sizes(kernel.large), 32 * KiB, machine="zen5")
    once = found.whole.compulsory
    assert [formula.statement for formula in found.formulas] == ["S3", "S1"]
    assert found.whole.least > 8 * (sum(f.elements for f in found.formulas) - 2 * 800 * 900) > 8 * once


def test_a_stencil_in_time_is_bounded_by_its_chains() -> None:
    kernel = KERNELS["jacobi-2d"]
    found = pf.bounds(kernel.nest.with_sizes(kernel.large), 32 * KiB, machine="zen5")
    first = found.formulas[0]
    assert first.applies
    assert first.text == "0.385·842,402,000 / √S - 2·S - 1,295,404"
    assert (
        first.inequality == "|E| <= |along (1, 0, 0)|^(1/2) |along (1, -1, 0)|^(1/2) |along (1, 0, -1)|^(1/2)"
    )
    assert found.whole.least > found.whole.compulsory


def test_what_is_moved_once_is_the_bound_without_reuse() -> None:
    found = pf.bounds(KERNELS["atax"].nest, 32 * KiB, machine="zen5")
    assert found.whole.least == found.whole.compulsory == 8 * (256 * 256 + 256 + 2 * 256)
    assert str(found).endswith("what is moved once is the largest bound known")


def test_a_schedule_has_its_traffic_beside_the_bound() -> None:
    nest = pf.lower(nn.Linear(1024, 256, bias=False), batch=256)
    plain = pf.Schedule(nest)
    tiled = plain.tile("mac0", i=128, j=128, k=1).fuse("mac0", "zero0", at="j")
    far, near = (pf.bounds(s, 68 * KiB, machine="zen5") for s in (plain, tiled))
    assert near.whole.least == far.whole.least
    assert far.kernels[-1].ratio > 10
    assert far.kernels[-1].verdict == "w0: 256 MiB, once is 1 MiB"
    assert near.whole.close
    assert near.whole.traffic == 4 * (4 * 256 * 1024 + 256**2)  # x and w0 for two tiles each, out once
    assert near.kernels[0].predicted is not None
    assert "within 1.2 ×" in str(near)
    assert "within 1.2" in near._repr_html_()


def test_copies_count_as_what_they_copy() -> None:
    nest = pf.lower(nn.Linear(64, 64, bias=False), batch=64)
    s = pf.Schedule(nest).tile("mac0", i=16, j=16, k=16)
    copied = s.promote("w0", "mac0", at="k", memory="local")
    plain, found = (pf.bounds(each, 4 * KiB, machine="zen5") for each in (s, copied))
    assert found.whole.traffic == plain.whole.traffic
    assert found.kernels[-1].statements == ("load_w0", "mac0")


def test_an_executable_has_times_and_a_column_in_its_report() -> None:
    model = nn.Sequential(nn.Linear(32, 16), nn.ReLU())
    net = pf.compile(pf.lower(model, batch=8), target="cpu", machine="zen5")
    assert pf.bounds(net).whole.measured is None
    net.profile(np.ones((8, 32), np.float32), turns=1, pause=0)
    found = pf.bounds(net, "L1")
    assert str(found.memory) == "2 × L1 of 48 KiB"
    assert found.whole.measured is not None
    assert found.whole.predicted == pytest.approx(net.report().predicted_seconds)
    report = net.report(bounds=True)
    lines = str(report).splitlines()
    head = next(k for k, line in enumerate(lines) if line.startswith("least traffic     through "))
    assert lines[head + 1].split("  ")[1] == "kernel"
    assert lines[-1].endswith("  within 1.2 × of the bound")
    (*_, (name, predicted, measured, least, moved, against)) = report.kernel_rows
    assert (name, against) == ("all", "within 1.2 × of the bound")
    assert predicted == duration(report.predicted_seconds)
    assert measured.endswith("s")
    assert least == moved
    html = report._repr_html_()
    assert "against the bound</th>" in html
    assert "<code>within 1.2 × of the bound</code>" in html
    assert net.report().bounds is None
    assert net.report().kernel_rows == ()
    pytest.importorskip("matplotlib")
    axes = pf.show.roofline_plot(found).axes[0]
    markers = [line.get_marker() for line in axes.lines]
    assert markers.count("x") == 1
    assert markers.count("o") == 2


def test_equal_kernels_stand_once_in_the_report() -> None:
    layers = [layer for seed in range(3) for layer in (nn.Linear(256, 256, seed=seed), nn.ReLU())]
    net = pf.compile(pf.lower(nn.Sequential(*layers), batch=64), target="cpu", machine="zen5", fuse=False)
    rows = net.report(bounds=True).kernel_rows
    (packed,) = [row for row in rows if row[0].startswith("pack_w")]
    assert packed[0] == "pack_w0 (once) × 3"
    assert packed[-1] == "within 1.2 × of the bound"


def test_the_report_says_where_a_kernel_is_above_its_bound() -> None:
    nest = pf.lower(nn.Linear(1024, 256, bias=False), batch=256)
    found = pf.bounds(pf.Schedule(nest), 68 * KiB, machine="zen5")
    net = pf.compile(nest, target="cpu", machine="zen5")
    report = replace(net.report(), bounds=found)
    lost = "64.4 × the bound, w0: 256 MiB, once is 1 MiB"
    (row,) = [row for row in report.kernel_rows if row[0] == "mac0"]
    assert row[3:] == ("4 MiB", "258 MiB", lost)
    assert any(line.endswith(f"  {lost}") for line in str(report).splitlines())
    assert f"<code>{lost}</code>" in report._repr_html_()
    assert "measured" not in str(report)


def test_the_roofline_plot_says_what_it_needs() -> None:
    net = pf.compile(pf.lower(nn.Linear(8, 8), batch=4), target="cpu", machine="zen5")
    with pytest.raises(BadArgument, match=r"expected bounds, from pf\.bounds\(net\).*, not a Report"):
        pf.show.roofline_plot(net.report(bounds=True))  # type: ignore[arg-type]


def test_what_data_may_skip_is_not_counted() -> None:
    @pf.nest
    def scatter(idx: i64[20], w: f64[20], h: f64[5]):
        for i in range(20):
            h[idx[i]] += w[i]

    @pf.nest
    def chosen(c: f64[9], a: f64[9], b: f64[9], y: f64[9]):
        for i in range(9):
            y[i] = a[i] if c[i] > 0 else b[i]

    found = pf.bounds(scatter, 64, machine="zen5").whole
    assert (found.flops, found.least, found.formulas) == (0, 8 * 20, ())  # idx alone
    found = pf.bounds(chosen, 64, machine="zen5").whole
    assert (found.flops, found.least) == (18, 8 * (9 + 9))  # c and y


def test_what_cannot_be_asked_is_refused() -> None:
    nest = KERNELS["atax"].nest
    with pytest.raises(BadArgument, match=r"memory='L9', expected bytes or one of zen5's 'L1', 'L2', 'L3'"):
        pf.bounds(nest, "L9", machine="zen5")
    with pytest.raises(BadArgument, match="memory=0, expected a positive number"):
        pf.bounds(nest, 0)
    with pytest.raises(BadArgument, match="bounds takes a nest, a schedule or an executable, given int"):
        pf.bounds(3)  # type: ignore[arg-type]
    with pytest.raises(TargetUnavailable, match="unknown machine"):
        pf.bounds(nest, machine="abacus")
    net = pf.compile(pf.lower(nn.ReLU(), batch=2, features=(3,)), target="cpu", machine="zen5")
    with pytest.raises(BadArgument, match="its own machine"):
        pf.bounds(net, machine="zen5")


def test_a_schedule_for_another_target_has_traffic_and_no_price() -> None:
    s = pf.Schedule(pf.lower(nn.ReLU(), batch=8, features=(32,))).bind("relu0", i="block.x")
    found = pf.bounds(s, 2**20, machine="zen5")
    assert found.whole.predicted is None
    assert found.whole.traffic == found.whole.least == 2 * 4 * 256
