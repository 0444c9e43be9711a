"""Scratch arrays of the caller: private to iterations, with what they end as kept for the caller."""

# ruff: noqa: F821, UP037

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from papers.polybench import KERNELS
from polyfuse.analysis.bands import facts
from polyfuse.errors import IllegalRewrite
from polyfuse.rewrite import scratch, why_not_scratch
from polyfuse.rewrite.storage.privatize_scratch import is_inside_a_loop, is_reused, tried
from polyfuse.strategy import plan_for
from polyfuse.strategy.rewrites import privatize_scratch
from polyfuse.strategy.rewrites.privatize_scratch import scratch_apart
from tests.frontend.python.running import assert_close, by_python, by_source, called


@pf.nest
def rows(x: "f64[M, N]", row: "f64[N]", y: "f64[M, N]"):
    for i in range(M):
        for j in range(N):
            row[j] = 2.0 * x[i, j]
        for j in range(N):
            y[i, j] = row[N - 1 - j] + row[j]


@pf.nest
def one_after_the_other(x: "f64[N]", row: "f64[N]", y: "f64[N]", z: "f64[N]"):
    for j in range(N):
        row[j] = 2.0 * x[j]
    for j in range(N):
        y[j] = row[N - 1 - j]
    for j in range(N):
        row[j] = 3.0 * x[j]
    for j in range(N):
        z[j] = row[N - 1 - j]


@pf.nest
def triangle(x: "f64[N]", row: "f64[N]", y: "f64[N, N]"):
    for i in range(N):
        for j in range(i, N):
            row[j] = x[i] * x[j]
        for j in range(i, N):
            y[i, j] = row[j] + 1.0


@pf.nest
def backward(x: "f64[M, N]", total: "f64[1]", y: "f64[M]"):
    for i in range(M - 1, -1, -1):
        total[0] = 0.0
        for j in range(N):
            total[0] += x[i, j]
        y[i] = total[0] / 3.0


@pf.nest
def every_other(x: "f64[N, N]", row: "f64[N]", y: "f64[N, N]"):
    for i in range(N):
        for j in range(N):
            if (i + j) % 2 == 0:
                row[j] = x[i, j]
                y[i, j] = row[j] * row[j]


@pf.nest
def returned(x: "f64[M, N]", y: "f64[M]"):
    for i in range(M):
        s = 0.0
        for j in range(N):
            s += x[i, j]
        y[i] = s * 2.0
    return s


GOOD = {
    "rows": rows,
    "triangle": triangle,
    "backward": backward,
    "every_other": every_other,
    "returned": returned,
}
SIZES = ({"M": 5, "N": 7}, {"M": 1, "N": 1}, {"M": 3, "N": 2})


def arrays_of(nest: pf.Nest, sizes: dict[str, int]) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        t.name: rng.random(
            [sizes.get(str(size), 1) if not isinstance(size, int) else size for size in t.shape]
        )
        for t in nest.inputs
    }


@pytest.mark.parametrize("name", sorted(GOOD))
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_caller_finds_what_the_loops_would_leave(name: str, sizes: dict[str, int]) -> None:
    nest = GOOD[name]
    (array,) = (t.name for t in nest.outputs if t.name in ("row", "total", "s"))
    done = scratch(nest, array)
    arrays = arrays_of(nest, sizes)
    expected = by_python(nest, arrays)
    assert_close(pf.interpret(done.nest, arrays), expected, 0.0)
    assert_close(by_source(done.nest, arrays, sizes), expected, 0.0)


def test_iterations_need_not_wait_for_each_other_then() -> None:
    done = scratch(rows, "row")
    assert str(done) == "row is private to an iteration of i, as row_own, and keep_row keeps what it ends as"
    assert [f.parallel for f in facts(rows, rows.order) if f.depth == 0] == [False]
    assert [f.parallel for f in facts(done.nest, done.nest.order) if f.depth == 0] == [True]
    assert str(done.nest.statement("keep_row").domain) == (
        "[M, N] -> { keep_row[i = -1 + M, e0] : M > 0 and 0 <= e0 < N }"
    )
    assert done.nest.tensor("row_own").shape == ("M", "N")


def test_each_element_is_kept_in_the_last_iteration_that_writes_it() -> None:
    domain = scratch(triangle, "row").nest.statement("keep_row").domain
    assert domain.is_equal(type(domain)("[N] -> { keep_row[i, j] : i = j and 0 <= j < N }"))
    backwards = scratch(backward, "total").nest.statement("keep_total").domain
    assert backwards.is_equal(
        type(backwards)("[M, N] -> { keep_total[i, e] : i = 0 and e = 0 and M > 0 and N > 0 }")
    ), "a loop's values run up where i runs down: -i"


@pf.nest
def carried(x: "f64[M, N]", row: "f64[N]", y: "f64[M, N]"):
    for i in range(M):
        for j in range(N):
            y[i, j] = row[j]
        for j in range(N):
            row[j] = x[i, j]


@pf.nest
def across(x: "f64[M, N]", row: "f64[N]", y: "f64[M, N]"):
    for j in range(N):
        row[j] = 0.0
    for i in range(M):
        for j in range(N):
            row[j] = 0.5 * row[j] + x[i, j]
            y[i, j] = row[j]


@pf.nest
def once(x: "f64[N]", row: "f64[N]", y: "f64[N]"):
    for j in range(N):
        row[j] = x[j]
    for j in range(N):
        y[j] = row[j]


@pytest.mark.parametrize(
    ("nest", "array", "why"),
    [
        (carried, "row", "S0 reads the caller's values of row (S0[0, 0])"),
        (across, "row", "no loop is around all its uses"),
        (once, "row", "no loop overwrites row repeatedly"),
        (rows, "x", "no loop overwrites x repeatedly"),
    ],
)
def test_what_cannot_be_private_is_refused_in_words(nest: pf.Nest, array: str, why: str) -> None:
    refusal = why_not_scratch(nest, array)
    assert refusal is not None
    assert str(refusal).startswith(f"scratch('{array}') is refused: ")
    assert why in str(refusal)
    with pytest.raises(IllegalRewrite, match="is refused"):
        scratch(nest, array)


def test_a_product_row_by_row_is_one_in_tiles_on_all_cores() -> None:
    kernel = KERNELS["doitgen"]
    plan = plan_for(kernel.nest.with_sizes(kernel.large), pf.Machine.preset("zen5"))
    assert "total is private to an iteration of r, q" in str(plan)
    assert "microkernel('S1'" in plan.schedule.trace()
    assert plan.schedule.loops("S1")[0].bind is not None
    arrays = kernel.inputs(kernel.mini, np.random.default_rng(3))
    net = pf.compile(scratch(kernel.nest, "total").nest, target="cpu", sizes=kernel.mini)
    assert_close(called(net, arrays), by_python(kernel.nest, arrays))


def test_arrays_of_loops_in_time_stay() -> None:
    """adi's v could have a place for each step, which would be read and written once each."""
    for name in ("adi", "durbin", "jacobi-2d", "lu"):
        assert scratch_apart(KERNELS[name].nest) is None


def test_an_element_that_its_own_update_reads_first_is_the_callers() -> None:
    @pf.nest
    def halved(x: "f64[M, N]", row: "f64[N]", y: "f64[M, N]"):
        for j in range(N):
            row[j] = 0.5 * row[j]
        for i in range(M):
            for j in range(N):
                row[j] = 2.0 * x[i, j]
            for j in range(N):
                y[i, j] = row[j] + x[i, j]

    assert "reads the caller's values of row" in str(why_not_scratch(halved, "row"))


def test_an_array_with_no_loop_around_all_of_its_uses_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_reused(one_after_the_other, "row")
    assert not is_inside_a_loop(one_after_the_other, "row")
    assert why_not_scratch(one_after_the_other, "row") is not None
    assert is_inside_a_loop(rows, "row")
    asked: list[str] = []

    def noted(nest: pf.Nest, tensor: str) -> object:
        asked.append(tensor)
        return tried(nest, tensor)

    monkeypatch.setattr(privatize_scratch, "tried", noted)
    assert scratch_apart(one_after_the_other) is None
    assert asked == []
    assert scratch_apart(rows) is not None
    assert asked == ["row"]
