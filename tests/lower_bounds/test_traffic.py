"""The traffic of schedules: figures by hand, and never less than the best replacement moves."""

from __future__ import annotations

import islpy as isl
import pytest

from papers.polybench import KERNELS
from polyfuse import lower, nn
from polyfuse.lower_bounds.compulsory import Moved
from polyfuse.lower_bounds.traffic import Counter
from polyfuse.schedule import Schedule
from tests.support.pebbles import touches, traffic

NO_SIZES = isl.Set("{ : }")


def product() -> Schedule:
    return Schedule(lower(nn.Linear(24, 12, bias=False), batch=10))


def counted(schedule: Schedule, memory: int) -> dict[str, Moved]:
    return dict(Counter(schedule.nest, NO_SIZES, memory).of(schedule.tree).moved)


def test_a_tile_moves_its_footprint_and_borders_are_exact() -> None:
    s = product().tile("mac0", i=4, j=4, k=8).fuse("mac0", "zero0", at="j")
    moved = counted(s, 4 * (4 * 4 + 4 * 8 + 8 * 4))
    # out stays while k runs, and zero0 makes it; x for each of 3 tiles of j, w0 for each of 3 tiles of i
    assert moved == {"out": Moved(0, 120), "x": Moved(3 * 240, 0), "w0": Moved(3 * 288, 0)}


def test_what_fits_is_moved_once() -> None:
    assert counted(product(), 4 * 1000) == {"out": Moved(0, 120), "x": Moved(240, 0), "w0": Moved(288, 0)}


def test_two_kernels_that_do_not_fit_pass_the_result_on() -> None:
    moved = counted(product(), 4 * 100)
    assert moved["out"] == Moved(120, 240)


def test_a_window_keeps_what_the_last_iteration_had() -> None:
    nest = lower(nn.Conv2d(1, 1, 3, bias=False), batch=1, features=(1, 12, 10))
    rows = counted(Schedule(nest), 4 * 50)  # three rows of x, one of out, and the window fit
    assert rows["x"] == Moved(120, 0)


@pytest.mark.parametrize("name", ["gemm", "atax", "trmm", "jacobi-2d", "cholesky"])
@pytest.mark.parametrize("elements", [12, 40])
def test_no_less_than_the_best_replacement(name: str, elements: int) -> None:
    kernel = KERNELS[name].nest
    nest = kernel.with_sizes({size: 4 if size == "T" else 7 for size in kernel.params})
    found = Counter(nest, isl.Set(f"[{', '.join(nest.params)}] -> {{ : }}"), 8 * elements).of(nest.order)
    total = sum(moved.elements for moved in found.moved.values())
    assert total >= traffic(nest, touches(nest), elements)
