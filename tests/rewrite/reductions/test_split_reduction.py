"""Split reductions: values, names, what is refused, and that compile takes them where they pay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse import nn
from polyfuse.checks import cuda_cases as cases
from polyfuse.errors import IllegalRewrite
from polyfuse.ir import DType, Tensor, statement
from polyfuse.ir.dependences import dependences
from polyfuse.machine import Machine
from polyfuse.rewrite import accumulate, split_reduction, why_not_split_reduction
from tests.support.examples import examples

# ruff: noqa: F821

Array = np.ndarray[Any, Any]


def drawn(nest: pf.Nest) -> dict[str, Array]:
    numbers = np.random.default_rng(0)
    return {t.name: numbers.integers(-4, 5, [int(s) for s in t.shape]).astype(t.dtype) for t in nest.inputs}


def assert_same(before: pf.Nest, after: pf.Nest) -> None:
    arrays = drawn(before)
    expected, found = pf.interpret(before, arrays), pf.interpret(after, arrays)
    assert all(np.array_equal(expected[name], found[name]) for name in expected)


def assert_found_anew(nest: pf.Nest) -> None:
    """The dependences that a rewrite took over and those it found are all there are."""
    anew = dependences(nest.accesses, nest.original_dates())
    for (kind, kept), (_, fresh) in zip(nest.dependences().kinds(), anew.kinds(), strict=True):
        assert kept.is_equal(fresh), kind
    names = [{(p.kind, p.source, p.sink) for p in each.pairs} for each in (nest.dependences(), anew)]
    assert names[0] == names[1]


@pytest.mark.parametrize("name", ["mac0", "mac1", "mac2"])
@pytest.mark.parametrize("parts", [{"size": 3}, {"parts": 2}], ids=["size", "parts"])
def test_dependences_of_what_is_not_touched_are_taken_over(name: str, parts: dict[str, int]) -> None:
    """Of layers before and behind the split one, which reads what one computes and is read by the other."""
    nest = cases.dense(7, 5, 6, 4, batch=3)
    split = split_reduction(nest, name, "k", **parts)
    assert_found_anew(split.nest)
    summed = accumulate(split.nest, split.tensor)
    assert summed is not None
    assert_found_anew(summed)


def test_parts_of_a_total_with_one_place_have_one_axis() -> None:
    """Of total[0]: a part of each, in a loop over parts alone, which lanes may share."""

    @pf.nest
    def total_of(x: f32[M, N]):
        total = np.zeros((3, 1), np.float32)
        for i in range(M):
            for j in range(N):
                total[2, 0] += x[i, j]
        return total

    nest = total_of.with_sizes({"M": 6, "N": 8})
    (name,) = (s.name for s in nest.statements if s.is_reduction)
    split = split_reduction(nest, name, "j", size=4)
    assert split.nest.tensor(split.tensor).shape == (2,)
    (first,) = (s for s in split.nest.statements if s.name.startswith("init_part"))
    assert (first.dims, split.nest.statement(name).dims) == (("j_part",), ("j_part",))
    assert_same(nest, split.nest)
    assert_found_anew(split.nest)


def test_a_sum_into_one_place_of_an_array_is_shared_by_blocks_and_lanes() -> None:
    """As one into a scalar is: ten operations on each of 64M numbers took a thread for each part of them."""

    @pf.nest
    def chain(x: f32[N]):
        total = np.zeros((1,), np.float32)
        for i in range(N):
            total[0] += max(x[i] * 1.1 + 0.3, 0.0) * x[i]
        return total

    net = pf.compile(chain, sizes={"N": 1 << 26}, target="cuda", machine="h200", device="none")
    assert [launch.extents({})[1] for launch in net.program.launches] == [(1024, 1, 1), (32, 1, 1)]
    assert "shfl_xor_sync" in net.program.codes[0].source
    assert "copy_vector(4, x_lanes" in net.program.codes[0].source
    assert net.report().predicted_seconds < 100e-6


def test_what_it_says(golden: Callable[[str, str], None]) -> None:
    nest = nn.lower(nn.sum(nn.input("x", (101,))))
    by_size, by_parts = (
        split_reduction(nest, "sum0", "i", size=16),
        split_reduction(nest, "sum0", "i", parts=16),
    )
    golden("rewrite/split_reduction.txt", f"{by_size}\n\n{by_size.nest}\n\n{by_parts}\n\n{by_parts.nest}\n")


@settings(max_examples=examples(50), deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
    st.sampled_from([nn.sum, nn.max, nn.min]),
    st.booleans(),
    st.integers(1, 7),
    st.data(),
)
def test_any_reduction_split_along_any_dimension(
    shape: list[int], reduce: Callable[..., nn.Value], by_size: bool, number: int, data: st.DataObject
) -> None:
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    nest = nn.lower(reduce(nn.input("x", shape), tuple(axes)))
    name = nest.statements[-1].name
    dim = "ijk"[data.draw(st.sampled_from(axes))]
    done = (
        split_reduction(nest, name, dim, size=number)
        if by_size
        else split_reduction(nest, name, dim, parts=number)
    )
    assert_same(nest, done.nest)
    if dim in done.nest.statement(done.partial).dims:  # parts of one value have no loop over it
        again = split_reduction(done.nest, done.partial, dim, parts=2)
        assert_same(nest, again.nest)


def test_sizes_that_are_not_known_and_values_that_others_computed() -> None:
    @pf.nest
    def total(x: f64[N], y: f64[N], s: f64[1]):
        for i in range(N):
            y[i] = x[i] * x[i]
        for i in range(N):
            s[0] += y[i] * x[i]
        for i in range(N):
            y[i] = y[i] / s[0]

    done = split_reduction(total, "S1", "i", size=4)
    assert done.parts == "floor((N + 3)/4)"
    net = pf.compile(done.nest, target="cpu")
    for size in (1, 4, 9):
        x = np.arange(size, dtype=np.float64) + 1
        y, s = np.zeros(size), np.ones(1)
        net(x, y, s)
        assert np.array_equal(s, [1 + np.sum(x**3)])
        assert np.allclose(y, x * x / s)


def test_a_product_in_parts_of_its_steps() -> None:
    nest = nn.lower(nn.linear(nn.input("x", (3, 20)), np.ones((20, 4), np.float32), np.ones(4, np.float32)))
    done = split_reduction(nest, "mac0", "k", size=8)
    assert_same(nest, done.nest)
    lockstep = pf.compile(done.nest, target="cuda", device="lockstep", machine="h200")
    arrays = drawn(nest)
    assert np.array_equal(lockstep(**arrays), pf.interpret(nest, arrays)["out"])


@pf.nest
def mixed(A: f64[N, N], x: f64[N], y: f64[N], z: f64[N]):
    for i in range(N):
        y[i] = 0.0
        for j in range(N):
            y[i] += A[i, j] * x[j]
    for i in range(N):
        for j in range(N):
            z[i] += A[i, j] * j
    for i in range(N):
        for j in range(N):
            x[i] += A[i, j]


@pytest.mark.parametrize(
    ("statement", "dim", "options", "why"),
    [
        ("S2", "j", {"size": 0}, "size, parts and shares exclude each other"),
        ("S2", "j", {"size": 2, "parts": 2}, "size, parts and shares exclude each other"),
        ("S0", "i", {"size": 2}, "S0 assigns, it does not accumulate"),
        ("S3", "k", {"size": 2}, "S3 has the dimensions i, j"),
        ("S3", "i", {"size": 2}, "each value of i has its own result"),
        ("S1", "j", {"size": 2}, "S1 shares its loops with other statements"),
        ("S2", "j", {"size": 2}, "the value of S2 depends on its index"),
    ],
)
def test_what_is_refused(statement: str, dim: str, options: dict[str, int], why: str) -> None:
    refusal = why_not_split_reduction(mixed, statement, dim, **options)
    assert refusal is not None
    with pytest.raises(IllegalRewrite, match=why) as error:
        split_reduction(mixed, statement, dim, **options)
    assert error.value.refusal == refusal


# -- compile -----------------------------------------------------------------------------------------------------------


def test_a_long_sum_is_on_all_cores_and_never_leaves_the_device() -> None:
    x = nn.input("x", (4_000_000,))
    nest = nn.lower(x / nn.sum(x))
    net = pf.compile(nest, target="cpu", machine="zen5")
    assert "sum0 combines 977 partial results (s0_parts)" in net.explain()
    data = np.random.default_rng(0).integers(1, 9, 4_000_000).astype(np.float32)
    assert np.array_equal(net(data), data / data.sum())
    start, stop = net.memory_plan().spans["s0_parts"]
    assert stop - start == 977 * 4


def test_several_reductions_of_one_input_share_one_pass() -> None:
    x = nn.input("x", (1 << 20,))
    net = pf.compile(nn.lower((nn.sum(x), nn.max(x), nn.norm(x))), target="cpu", machine="zen5")
    lines = [line for line in net.explain().splitlines() if "  runs " in line and "part_" in line]
    assert len(lines) == 1
    assert all(name in lines[0] for name in ("part_sum0", "part_max0", "part_norm0"))
    data = np.random.default_rng(0).integers(-4, 5, 1 << 20).astype(np.float32)
    total, most, length = net(data)
    assert (total, most) == (data.sum(), data.max())
    assert np.isclose(length, np.linalg.norm(data.astype(np.float64)))


def test_on_a_gpu_a_long_sum_is_parts_of_rows_that_blocks_share() -> None:
    nest = nn.lower(nn.sum(nn.input("x", (1 << 20,))))
    net = pf.compile(nest, target="cuda", machine="h200", device="none")
    assert "sum0 combines 512 partial results" in net.explain()
    assert len(net.kernels) == 2


def test_a_short_or_wide_reduction_stays_in_one_pass() -> None:
    for shape, axis in (((1000,), 0), ((64, 5000), 1)):
        net = pf.compile(nn.lower(nn.sum(nn.input("x", shape), axis)), target="cpu", machine="zen5")
        assert "partial results" not in net.explain()


@pf.nest
def sum_of_roots(x: f32[N]):
    total = np.zeros((1,), np.float32)
    for i in range(N):
        t = x[i] * x[i]
        total[0] += sqrt(t)
    return total


@pytest.mark.parametrize("cores", [1, 2])
def test_a_sum_computes_its_values_where_it_adds_them(cores: int) -> None:
    """Also on one core, where two passes take as long as one: rounding grows with the length of a sum."""
    machine = replace(Machine.preset("zen5"), units=cores)
    net = pf.compile(sum_of_roots, target="cpu", machine=machine, sizes={"N": 1 << 20})
    assert " combines 256 partial results (total_parts)" in net.explain()
    assert "t" not in {tensor.name for tensor in net.nest.tensors}
    data = np.random.default_rng(0).random(1 << 20, np.float32)
    assert np.isclose(net(data)[0], data.astype(np.float64).sum(), rtol=5e-7)


def test_an_initial_value_is_no_step_of_the_loop_over_a_result_of_one_element() -> None:
    schedule = pf.compile(sum_of_roots, target="cpu", machine="zen5", sizes={"N": 1000}).schedule
    assert not {*map(id, schedule.loops("S0"))} & {*map(id, schedule.loops("S1"))}


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("op", ["max=", "min="])
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_extreme_integers_in_parts_and_on_lanes(op: str, dtype: DType, target: pf.Target) -> None:
    """No integer is infinite: parts and lanes start from the type's own limits."""
    limits = np.iinfo(dtype)
    x, y = Tensor("x", (9000,), dtype, "input"), Tensor("y", (), dtype, "inout")
    nest = pf.Nest.of([x, y], [statement("{ S[i] : 0 <= i < 9000 }", f"y {op} x[i]")])
    parts = split_reduction(nest, "S", "i", size=1000).nest
    extreme = np.max if op == "max=" else np.min
    start = limits.min if op == "max=" else limits.max
    for data in (np.arange(-9500, -500), np.arange(500, 9500), np.full(9000, start)):
        given = {"x": data.astype(dtype), "y": np.array(start, dtype)}
        assert pf.interpret(parts, given)["y"] == extreme(given["x"])
    for form in (nest, parts):
        net = pf.compile(form, target=target, **({"device": "lockstep"} if target == "cuda" else {}))
        for data in (np.arange(-9500, -500), np.arange(500, 9500)):
            y_ = np.array(start, dtype)
            net(data.astype(dtype), y_)
            assert y_ == extreme(data)
