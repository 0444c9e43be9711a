"""stream: what it prints, that values stay the same wherever lines begin and on cores, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import InvalidSchedule
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.machine import KiB, Machine
from polyfuse.strategy import plan_for
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.kernel_model import kernel_of
from polyfuse.strategy.cpu.nontemporal import large_results

ROWS, COLUMNS = 3, 300


def doubled(write: str = "y[i, j]", read: str = "x[i, j] + x[i, j]", dtype: str = "float32") -> pf.Schedule:
    """y = 2 x, or what is given; y has room for other subscripts."""
    domain = f"0 <= i < {ROWS} and 0 <= j < {COLUMNS}"
    shape = (2 * COLUMNS, 2 * COLUMNS) if write != "y[i, j]" else (ROWS, COLUMNS)
    tensors = [Tensor("x", (ROWS, COLUMNS), dtype, "input"), Tensor("y", shape, dtype, "output")]
    return pf.Schedule(Nest.of(tensors, [statement(f"{{ S[i, j] : {domain} }}", f"{write} = {read}")]))


def test_a_row_goes_past_the_caches_in_pieces_that_begin_with_lines() -> None:
    schedule = doubled().vectorize("S", "j").stream("S").prefetch("S", "x", "i")
    assert "@ vector  [fetches x of the next i]  [streams y]" in str(schedule)
    source = pf.compile(schedule.source, target="cpu", schedule=schedule).source
    assert [line.strip() for line in source[source.index("    for i in") :].splitlines()] == [
        "for i in range(0, 3):",
        "y_line = line_of(y, 128)",
        "for j_piece in range(0 - past_line(y, (i, 0)), 300, 128):",
        "fetch(x, (i + 1, j_piece), 8)",
        "j_first = max(0, j_piece)",
        "j_count = min(j_piece + 128, 300) - j_first",
        "for j_in in range(j_count):",
        "j = j_first + j_in",
        "y_line[uint64(j - j_piece)] = x[i, j] + x[i, j]",
        "store_past(y, (i, j_first), y_line, j_first - j_piece, j_count)",
        "stores_done()",
    ]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_are_the_same_wherever_lines_begin_and_nothing_else_is_written(dtype: str) -> None:
    schedule = doubled(dtype=dtype).vectorize("S", "j").stream("S").bind("S", i="cores")
    net = pf.compile(schedule.source, target="cpu", schedule=schedule)
    function, _ = net.source.split("def S(")
    assert function.rstrip().endswith("    stores_done()"), "each core waits for its own stores"
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(dtype)
    around = np.zeros(x.size + 40, dtype)
    for begin in range(18):
        around[:] = 7
        net(x, out=around[begin : begin + x.size].reshape(x.shape))
        np.testing.assert_array_equal(around[begin : begin + x.size].reshape(x.shape), x + x)
        assert (np.delete(around, range(begin, begin + x.size)) == 7).all()


def test_a_loop_may_sum_what_it_stores_past_the_caches() -> None:
    domain = "{ %s[i] : 0 <= i < 1000 }"
    nest = Nest.of(
        [
            Tensor("x", (1000,), "float32", "input"),
            Tensor("y", (1000,), "float32", "output"),
            Tensor("s", (), "float32", "output"),
        ],
        [
            statement("{ S0[] }", "s = 0"),
            statement(domain % "S1", "y[i] = x[i] + 1"),
            statement(domain % "S2", "s += x[i]"),
        ],
    )
    schedule = pf.Schedule(nest).fuse("S1", "S2", at="i").vectorize("S1", "i").stream("S1")
    x = np.ones(1000, np.float32)
    y, s = pf.compile(nest, target="cpu", schedule=schedule)(x)
    np.testing.assert_array_equal(y, x + 1)
    assert s == 1000


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        (lambda: doubled(), "the innermost loop around S, j, is not on vector lanes; vectorize it first"),
        (lambda: doubled().vectorize("S", "j").stream("S").stream("S"), "streams y already"),
        (lambda: doubled("y[j, i]").vectorize("S", "j"), "does not access y with unit stride along"),
        (lambda: doubled("y[i, 2*j]").vectorize("S", "j"), "does not access y with unit stride along"),
        (lambda: doubled().bind("S", i="block.x").vectorize("S", "j"), "a GPU's threads"),
    ],
)
def test_what_is_refused(schedule: object, why: str) -> None:
    with pytest.raises(InvalidSchedule, match=why):
        schedule().stream("S")  # type: ignore[operator]


def test_an_unknown_statement_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InvalidSchedule, match="unknown statement 'T'; expected one of S"):
        doubled().stream("T")


def test_what_the_loop_needs_again_is_refused_and_never_emitted() -> None:
    nest = Nest.of(
        [
            Tensor(name, (500,), "float32", role)
            for name, role in (("x", "input"), ("y", "output"), ("z", "output"))
        ],
        [
            statement("{ S[i] : 0 <= i < 500 }", "y[i] = x[i] + 1"),
            statement("{ T[i] : 0 <= i < 500 }", "z[i] = y[i] * 2"),
        ],
    )
    fused = pf.Schedule(nest).fuse("S", "T", at="i")
    with pytest.raises(
        InvalidSchedule, match="T in i accesses y too, which is complete only when the loop ends"
    ):
        fused.vectorize("S", "i").stream("S")
    later = pf.Schedule(nest).vectorize("S", "i").stream("S").vectorize("T", "i").fuse("S", "T", at="i")
    x = np.ones(500, np.float32)
    net = pf.compile(nest, target="cpu", schedule=later)
    assert "store_past" not in net.source
    np.testing.assert_array_equal(net(x)[1], 2 * (x + 1))


@pytest.mark.parametrize(("keeps", "past"), [(KiB, True), (256 * KiB, False)])
def test_the_strategy_stores_results_past_the_caches_that_are_larger_than_these_keep(
    keeps: int, past: bool
) -> None:
    machine = replace(Machine.preset("xeon"), keeps=keeps)
    x = nn.input("x", (60, 500))
    plan = plan_for(pf.lower(nn.relu(x * 2.0)), machine)
    assert ("stream('relu0')" in plan.schedule.trace()) == past
    assert ("out is stored past the caches: its 120000 bytes are more than the 1024" in str(plan)) == past
    read = plan_for(pf.lower([y := nn.exp(x), nn.sum(y, axis=0)]), machine)
    assert "stream" not in read.schedule.trace(), "a result that is read again stays in the caches"


def test_a_result_that_its_own_kernel_reads_is_not_past_the_caches() -> None:
    machine = replace(Machine.preset("xeon"), keeps=KiB)
    domain = "{ %s[i] : 0 <= i < 1000 }"
    tensors = [Tensor("x", (1000,), "float32", "input"), Tensor("y", (1000,), "float32", "output")]
    first = statement(domain % "S", "y[i] = x[i] + 1")
    alone = Nest.of(tensors, [first])
    again = Nest.of(tensors, [first, statement(domain % "T", "y[i] = y[i] * 2")])
    added = Nest.of(tensors, [first, statement(domain % "T", "y[i] += x[i]")])

    def large(nest: Nest) -> tuple[str, ...]:
        counts = Counts(nest)
        return large_results(kernel_of(counts, nest.order), counts, machine)

    assert large(alone) == ("S",)
    assert large(again) == ()
    assert large(added) == ()
