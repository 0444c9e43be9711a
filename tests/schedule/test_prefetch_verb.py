"""prefetch: what it prints, that values stay the same at any size and on cores, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import InvalidSchedule
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.ir.form import renamed_tree
from polyfuse.ir.tree import Fetch, loops
from polyfuse.machine import Machine
from polyfuse.strategy import plan_for


def doubled(rows: int = 5, columns: int = 300) -> pf.Schedule:
    domain = f"0 <= i < {rows} and 0 <= j < {columns}"
    nest = Nest.of(
        [Tensor("x", (rows, columns), "float32", "input"), Tensor("y", (rows, columns), "float32", "output")],
        [statement(f"{{ S[i, j] : {domain} }}", "y[i, j] = x[i, j] + x[i, j]")],
    )
    return pf.Schedule(nest).vectorize("S", "j")


def test_a_row_is_asked_for_while_the_one_before_is_computed() -> None:
    schedule = doubled().prefetch("S", "x", "i").prefetch("S", "y", "i")
    assert "[fetches x of the next i]  [fetches y of the next i]" in str(schedule)
    net = pf.compile(schedule.source, target="cpu", schedule=schedule)
    loop = net.source[net.source.index("    for i in") :].splitlines()
    assert [line.strip() for line in loop[:7]] == [
        "for i in range(0, 5):",
        "for j_piece in range(0, 300, 128):",
        "fetch(x, (i + 1, j_piece), 8)",
        "fetch_to_write(y, (i + 1, j_piece), 8)",
        "for j_in in range(min(128, 300 - j_piece)):",
        "j = j_piece + j_in",
        "y[i, j] = x[i, j] + x[i, j]",
    ]
    x = np.random.default_rng(0).standard_normal((5, 300), np.float32)
    np.testing.assert_array_equal(net(x), x + x)


def test_rows_further_on_are_asked_for() -> None:
    schedule = doubled().prefetch("S", "x", "i", by=4)
    assert "[fetches x of i + 4]" in str(schedule)
    assert "prefetch('S', 'x', 'i', by=4)" in schedule.trace()
    net = pf.compile(schedule.source, target="cpu", schedule=schedule)
    assert "fetch(x, (i + 4, j_piece), 8)" in net.source
    x = np.random.default_rng(0).standard_normal((5, 300), np.float32)
    np.testing.assert_array_equal(net(x), x + x)


def test_a_tree_with_other_names_asks_as_far_on() -> None:
    schedule = doubled().prefetch("S", "x", "i", by=4)
    names = {"x": "z", "i": "n"}
    (loop,) = (x for x in loops(renamed_tree(schedule.tree, lambda name: names.get(name, name))) if x.fetches)
    (fetch,) = loop.fetches
    assert fetch == Fetch("z", "n", 4)


def test_a_loop_no_longer_than_a_piece_stays_whole() -> None:
    schedule = doubled(columns=40).prefetch("S", "x", "i")
    net = pf.compile(schedule.source, target="cpu", schedule=schedule)
    assert "fetch(x, (i + 1, 0), 3)" in net.source
    assert "piece" not in net.source
    x = np.random.default_rng(0).standard_normal((5, 40), np.float32)
    np.testing.assert_array_equal(net(x), x + x)


def test_rows_of_any_length_stay_on_vector_lanes() -> None:
    """LLVM must see that j is not negative: for an index that may be, NumPy counts from the end."""

    @pf.nest
    def halved(x: f32[M, N], y: f32[M, N]):  # noqa: F821
        for i in range(M):  # noqa: F821
            for j in range(N):  # noqa: F821
                y[i, j] = 0.5 * x[i, j]

    schedule = pf.Schedule(halved).vectorize("S0", "j").prefetch("S0", "y", "i")
    net = pf.compile(halved, target="cpu", schedule=schedule)
    assert "j = max(0, j_piece) + j_in" in net.source
    x, y = np.random.default_rng(0).standard_normal((5, 301), np.float32), np.zeros((5, 301), np.float32)
    net(x, y)
    np.testing.assert_array_equal(y, 0.5 * x)


def test_on_cores_and_with_sums_values_stay() -> None:
    nest = pf.lower(nn.Softmax(), batch=7, features=256)
    schedule = plan_for(nest, Machine.preset("zen5")).schedule.prefetch("exp0", "x", "i")
    schedule = schedule.prefetch("scale0", "out", "i")
    schedule = schedule if schedule.loops("exp0")[0].bind else schedule.bind("exp0", i="cores")
    x = np.random.default_rng(0).standard_normal((7, 256), np.float32)
    expected = pf.interpret(nest, {"x": x})["out"]
    found = pf.compile(schedule.source, target="cpu", schedule=schedule)(x)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("S", "x", "j"), "the innermost loop around S, j, is not on vector lanes inside j"),
        (("S", "z", "i"), "S does not access z"),
        (("S", "x", "k"), "no loop 'k' around S"),
    ],
)
def test_what_is_refused(args: tuple[str, str, str], why: str) -> None:
    with pytest.raises(InvalidSchedule, match=why):
        doubled().prefetch(*args)


@pytest.mark.parametrize("by", [0, -1, 1.5])
def test_what_comes_before_is_not_asked_for(by: object) -> None:
    with pytest.raises(InvalidSchedule, match="expected an integer, at least 1"):
        doubled().prefetch("S", "x", "i", by=by)


def test_refused_twice_across_memory_and_on_a_gpu() -> None:
    schedule = doubled()
    with pytest.raises(InvalidSchedule, match="prefetches x of the next i already"):
        schedule.prefetch("S", "x", "i").prefetch("S", "x", "i")
    with pytest.raises(InvalidSchedule, match="prefetches x of i \\+ 3 already"):
        schedule.prefetch("S", "x", "i", by=3).prefetch("S", "x", "i")
    across = pf.Schedule(schedule.source).interchange("S", "i", "j").vectorize("S", "i")
    with pytest.raises(InvalidSchedule, match="with unit stride along i that moves along j"):
        across.prefetch("S", "x", "j")
    on_gpu = pf.Schedule(schedule.source).bind("S", i="block.x").vectorize("S", "j")
    with pytest.raises(InvalidSchedule, match="a GPU's threads"):
        on_gpu.prefetch("S", "x", "i")


@pytest.mark.parametrize(("rows", "asks"), [(4, False), (4096, True)])
def test_the_strategy_asks_where_rows_come_from_beyond_l2(rows: int, asks: bool) -> None:
    plan = plan_for(pf.lower(nn.Softmax(), batch=rows, features=1024), Machine.preset("zen5"))
    assert ("prefetch('exp0', 'x', 'i')" in plan.schedule.trace()) == asks
    assert ("asks for the next i while one is computed" in str(plan)) == asks


def test_the_strategy_does_not_ask_for_rows_that_a_machine_foresees() -> None:
    machine = replace(Machine.preset("zen5"), foresees=True)
    plan = plan_for(pf.lower(nn.Softmax(), batch=4096, features=1024), machine)
    assert "prefetch" not in plan.schedule.trace()


@pf.nest
def product(x: f32[M, K], w: f32[K, N], y: f32[M, N]):  # noqa: F821
    for i in range(M):  # noqa: F821
        for j in range(N):  # noqa: F821
            y[i, j] = 0
            for k in range(K):  # noqa: F821
                y[i, j] += x[i, k] * w[k, j]


@pf.nest
def by_columns(x: f32[M, K], w: f32[N, K], y: f32[M, N]):  # noqa: F821
    for i in range(M):  # noqa: F821
        for j in range(N):  # noqa: F821
            y[i, j] = 0
            for k in range(K):  # noqa: F821
                y[i, j] += x[i, k] * w[j, k]


@pytest.mark.parametrize(
    ("nest", "side", "asks"), [(product, 1024, True), (product, 128, False), (by_columns, 1024, False)]
)
def test_packing_asks_for_later_rows_of_a_large_matrix(nest: Nest, side: int, asks: bool) -> None:
    """Not where all of it stays in L2, nor where panels are read across the rows."""
    sizes = {"M": side, "N": side, "K": side}
    plan = plan_for(nest.with_sizes(sizes), Machine.preset("zen5"))
    assert ("prefetch('load_w', 'w', 'load_w_0', by=" in plan.schedule.trace()) == asks


def test_packing_ahead_leaves_values_as_they_are() -> None:
    """Rows behind the last one are asked for too, and blocks end where the matrix does."""
    rng = np.random.default_rng(0)
    x, w = (
        rng.integers(-3, 4, (301, 700)).astype(np.float32),
        rng.integers(-3, 4, (700, 501)).astype(np.float32),
    )
    net = pf.compile(product, target="cpu", sizes={"M": 301, "N": 501, "K": 700}, machine="zen5")
    assert "fetch(w, (" in net.source
    y = np.zeros((301, 501), np.float32)
    net(x, w, y)
    np.testing.assert_array_equal(y, x @ w)


def test_a_loop_with_another_inside_asks_for_nothing_that_goes_through_it() -> None:
    """A row was asked for along j, and then i became the loop inside: which row is known there alone."""
    domain = "0 <= t < 3 and 0 <= i < 5 and 0 <= j < 40"
    tensors = [Tensor("x", (3, 5, 40), "float32", "input"), Tensor("y", (3, 5, 40), "float32", "output")]
    nest = Nest.of(tensors, [statement(f"{{ S[t, i, j] : {domain} }}", "y[t, i, j] = x[t, i, j] + 1")])
    s = pf.Schedule(nest).vectorize("S", "j").prefetch("S", "x", "t").interchange("S", "i", "j")
    x = np.random.default_rng(0).standard_normal((3, 5, 40), np.float32)
    np.testing.assert_array_equal(pf.compile(nest, target="cpu", schedule=s)(x), x + 1)
