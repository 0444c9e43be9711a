"""Pointwise kernels on a GPU whose accesses go across each other: squares through shared memory."""

# ruff: noqa: F821

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse import nn
from polyfuse.checks import cuda_cases as cases
from polyfuse.codegen.cuda.compile.disassembly import opcodes
from polyfuse.interpret import interpret
from polyfuse.runtime.cuda.runner import build_kernels
from polyfuse.strategy.pipeline import plan_for
from tests.support.banks import assert_no_waits, waits_of_launch
from tests.support.examples import examples

H200 = pf.Machine.preset("h200")


def turned(*shape: int, dtype: str = "float32") -> pf.Nest:
    return pf.lower(nn.transpose(nn.input("x", shape, dtype)))


def added(rows: int, columns: int) -> pf.Nest:
    """A row's neighbours of x, a column's of y."""
    x, y = nn.input("x", (rows, columns)), nn.input("y", (columns, rows))
    return pf.lower(nn.relu(x * 2.0 + nn.transpose(y)))


def both(rows: int, columns: int) -> pf.Nest:
    """Two tensors across the results."""
    x, y = nn.input("x", (rows, columns)), nn.input("y", (rows, columns))
    return pf.lower(nn.transpose(x) * nn.tanh(nn.transpose(y)))


def with_itself(n: int) -> pf.Nest:
    x = nn.input("x", (n, n))
    return pf.lower(x + nn.transpose(x))


def channels_last(*shape: int) -> pf.Nest:
    return pf.lower(nn.permute(nn.input("x", shape), (0, 2, 3, 1)))


@pf.nest
def of_any_size(x: "f32[M, N]", y: "f32[N, M]"):
    for i in range(N):
        for j in range(M):
            y[i, j] = x[j, i] * 3.0


@pf.nest
def of_integers(x: "i64[40, 70]"):
    out = np.empty((70, 40), np.int64)
    for i in range(70):
        for j in range(40):
            out[i, j] = x[j, i] - 1
    return out


ACROSS: dict[str, Callable[[], pf.Nest]] = {
    "whole squares": lambda: turned(64, 96),
    "squares that are cut": lambda: turned(50, 130),
    "less than a square": lambda: turned(17, 33),
    "batches": lambda: turned(3, 2, 40, 36),
    "float64": lambda: turned(40, 70, dtype="float64"),
    "bfloat16": lambda: turned(40, 70, dtype="bfloat16"),
    "integers": lambda: of_integers,
    "one of two across": lambda: added(45, 70),
    "both across": lambda: both(45, 70),
    "channels last": lambda: channels_last(2, 40, 3, 18),
}


@pytest.mark.parametrize("name", ACROSS)
def test_in_lock_step_it_is_what_the_oracle_says(name: str) -> None:
    nest = ACROSS[name]()
    net = pf.compile(nest, target="cuda", machine="h200", device="lockstep")
    assert len(net.kernels) == 1
    assert "squares of 32 × 32" in net.explain()
    inputs = cases.draw(nest, np.random.default_rng(1))
    expected = interpret(nest, {k: v.copy() for k, v in inputs.items()})["out"]
    np.testing.assert_array_equal(net(**inputs), expected)


@pytest.mark.parametrize("name", ["whole squares", "float64", "bfloat16", "both across", "channels last"])
def test_no_warp_waits_for_a_bank(name: str) -> None:
    nest = ACROSS[name]()
    net = pf.compile(nest, target="cuda", machine="h200", device="none")
    (launch,) = net.program.launches
    assert_no_waits(nest, launch)


def test_in_rows_as_long_as_a_square_is_wide_lanes_wait_for_banks() -> None:
    """What one element more is for."""
    nest, name = turned(64, 64), "permute0"
    schedule = plan_for(nest, H200).schedule
    assert "32 side by side 1 apart" in schedule.dump()
    plain = pf.Schedule(nest).split(name, "i", 32).split(name, "j", 32)
    plain = plain.reorder(name, "i", "j", "i_in", "j_in").bind(name, i="block.y", j="block.x")
    plain = plain.bind(name, i_in="thread.y", j_in="thread.x").promote("x", name, at="j", memory="shared")
    plain = plain.bind("load_x", load_x_0="thread.y", load_x_1="thread.x")
    net = pf.compile(nest, target="cuda", machine="h200", device="none", schedule=plain)
    (launch,) = net.program.launches
    assert waits_of_launch(nest, launch) > 0


def test_symbolic_sizes() -> None:
    net = pf.compile(of_any_size, target="cuda", machine="h200", device="lockstep")
    assert "squares of 32 × 32" in net.explain()
    x, y = np.arange(70 * 41, dtype=np.float32).reshape(70, 41), np.zeros((41, 70), np.float32)
    net(x=x, y=y)
    np.testing.assert_array_equal(y, 3 * x.T)


def test_it_is_priced_by_its_bytes() -> None:
    """What a block copies is no tensor in memory: 134 MB, once."""
    (group,) = plan_for(turned(4096, 4096), H200).groups
    assert (group.cost.compulsory, group.cost.again, group.cost.tiles) == (8 * 4096**2, 0, 128**2)
    (small,) = plan_for(turned(1024, 1024), H200).groups
    (rows,) = plan_for(pf.lower(nn.relu(nn.input("x", (1024, 1024)))), H200).groups
    assert small.cost.memory == rows.cost.memory


@settings(max_examples=examples(30))
@given(st.permutations(range(4)), st.lists(st.sampled_from([1, 2, 3, 16, 19, 33]), min_size=4, max_size=4))
def test_any_order_of_axes(order: list[int], shape: list[int]) -> None:
    nest = pf.lower(nn.permute(nn.input("x", tuple(shape)), tuple(order)))
    net = pf.compile(nest, target="cuda", machine="h200", device="lockstep")
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(net(x), x.transpose(order))


NOT_ACROSS: dict[str, Callable[[], pf.Nest]] = {
    "rows alone": lambda: pf.lower(nn.relu(nn.input("x", (64, 64)))),
    "few rows": lambda: turned(15, 64),
    "few columns": lambda: turned(64, 15),
    "sums": lambda: pf.lower(nn.sum(nn.transpose(nn.input("x", (64, 64))), 0)),
}


@pytest.mark.parametrize("name", NOT_ACROSS)
def test_others_are_as_they_were(name: str) -> None:
    nest = NOT_ACROSS[name]()
    net = pf.compile(nest, target="cuda", machine="h200", device="none")
    assert "squares" not in net.explain()


def test_a_matrix_and_itself_across_is_no_square_and_the_plan_says_so() -> None:
    net = pf.compile(with_itself(64), target="cuda", machine="h200", device="lockstep")
    assert "not in squares through shared memory: a block reads more of x than a square" in net.explain()
    x = np.arange(4096, dtype=np.float32).reshape(64, 64)
    np.testing.assert_array_equal(net(x), x + x.T)


def test_all_loads_of_a_thread_are_under_way_before_the_first_arrives() -> None:
    pytest.importorskip("cuda.core")
    net = pf.compile(turned(1024, 2048), target="cuda", machine="h200", device="none")
    (cubin,) = build_kernels(net.program, (9, 0)).values()
    every = [op.split(".")[0] for op in opcodes(cubin)]
    memory = [op for op in every if op in ("LDG", "STS", "BAR", "LDS", "STG", "LDL", "STL")]
    assert memory == [*["LDG"] * 4, *["STS"] * 4, "BAR", *["LDS"] * 4, *["STG"] * 4]
    assert cubin.registers <= 32, "eight blocks of 256 threads on an SM"
    assert (cubin.spill_stores, cubin.spill_loads) == (0, 0)
