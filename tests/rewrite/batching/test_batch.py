"""Batching: one product a layer for all members, whatever they share, and what stays by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import IllegalRewrite
from polyfuse.rewrite import Batched, batch, compose_views, why_not_batch
from tests.support.examples import examples

# ruff: noqa: F821

Array = np.ndarray[Any, Any]


def member(
    x: nn.Value, number: int, layers: int = 4, width: int = 6, odd: int | None = None, more: int = 0
) -> nn.Value:
    """Linear + ReLU layers with weights of their own; tanh in layer `odd`, and `more` layers behind."""
    for layer in range(layers + more):
        x = nn.linear(x, nn.Linear(width, width, seed=100 * number + layer))
        x = nn.tanh(x) if layer == odd else nn.relu(x)
    return x


def drawn(nest: pf.Nest) -> dict[str, Array]:
    numbers = np.random.default_rng(0)
    return {t.name: numbers.standard_normal([int(s) for s in t.shape]).astype(t.dtype) for t in nest.inputs}


def done(*values: nn.Value) -> Batched:
    """The nest in batches, which computes what it did, bit by bit."""
    nest = compose_views(nn.lower(values)).nest
    result = batch(nest)
    arrays = drawn(nest)
    expected, found = pf.interpret(nest, arrays), pf.interpret(result.nest, arrays)
    assert all(np.array_equal(expected[name], found[name]) for name in expected)
    return result


def products(nest: pf.Nest) -> int:
    return sum(s.name.startswith("mac") for s in nest.statements)


x = nn.input("x", (3, 6))


@pytest.mark.parametrize("members", [2, 3, 10])
def test_one_product_a_layer(members: int) -> None:
    values = [member(x, k) for k in range(members)]
    assert products(nn.lower(values)) == 4 * members
    result = done(*values)
    assert products(result.nest) == 4
    assert result.stacks["w0s"] == tuple(f"w{4 * k}" for k in range(members))


def test_first_values_of_sums_that_differ_stay_apart() -> None:
    """In slices of one tensor the sums of y and of y * y would be kept in memory; those of both products may."""
    h = nn.layer_norm(x, 6, np.ones(6, np.float32), np.zeros(6, np.float32))
    result = done(*(nn.relu(nn.linear(h, nn.Linear(6, 6, seed=k))) for k in range(2)))
    assert products(result.nest) == 1
    assert [each.members for each in result.batches][:2] == [("zero0", "zero1"), ("mac0", "mac1")]
    assert result.nest.statement("devsum0").write.tensor != result.nest.statement("varsum0").write.tensor


def test_other_inputs_for_each_are_stacked_and_slices_of_one_are_not() -> None:
    result = done(*(member(nn.input(f"x{k}", (3, 6)), k) for k in range(3)))
    assert products(result.nest) == 4
    assert result.stacks["x0s"] == ("x0", "x1", "x2")
    every = nn.input("x", (3, 3, 6))
    result = done(nn.stack([member(every[k], k) for k in range(3)]))
    assert [s.name for s in result.nest.statements if not s.name.startswith("stack_")] == [
        f"{kind}{layer}" for layer in range(4) for kind in ("zero", "mac", "bias", "relu")
    ]
    assert str(result.nest.statement("mac0").reads[0]) == "x[m, i, k]"
    assert str(result.nest.statement("relu3").write) == "out[m, i, j]"


def test_members_that_differ_in_one_layer_batch_the_rest() -> None:
    result = done(*(member(x, k, odd=1 if k == 2 else None) for k in range(5)))
    assert products(result.nest) == 4
    sizes = {batch.statement: len(batch.members) for batch in result.batches}
    assert (sizes["mac0"], sizes["mac1"], sizes["relu1"], sizes["mac2"]) == (5, 5, 4, 5)


def test_a_member_with_one_layer_more() -> None:
    result = done(*(member(x, k, more=1 if k == 1 else 0) for k in range(4)))
    assert products(result.nest) == 5


def test_members_that_meet_again() -> None:
    total = member(x, 0) + member(x, 1) + member(x, 2)
    result = done(nn.log_softmax(total))
    assert products(result.nest) == 4


def test_shared_weights_are_not_stacked() -> None:
    layer = nn.Linear(6, 6, seed=1)
    result = done(*(nn.relu(nn.linear(nn.input(f"x{k}", (3, 6)), layer)) for k in range(3)))
    assert products(result.nest) == 1
    assert list(result.stacks) == ["x0s"]


def test_nothing_to_batch() -> None:
    nest = nn.lower(member(x, 0))
    result = batch(nest)
    assert result.nest is nest
    assert str(result) == "no two statements compute the same on different tensors"


def test_only_what_is_asked_for() -> None:
    nest = nn.lower([member(x, k, layers=1) for k in range(3)])
    result = batch(nest, ("mac0", "mac2"))
    assert [b.members for b in result.batches] == [("mac0", "mac2")]
    arrays = drawn(nest)
    expected, found = pf.interpret(nest, arrays), pf.interpret(result.nest, arrays)
    assert all(np.array_equal(expected[name], found[name]) for name in expected)


def test_slices_at_uneven_distances_are_no_batch() -> None:
    every = nn.input("x", (4, 3, 6))
    layer = nn.Linear(6, 6, seed=1)
    nest = compose_views(nn.lower([nn.relu(nn.linear(every[k], layer)) for k in (0, 1, 3)])).nest
    with pytest.raises(IllegalRewrite, match="evenly"):
        batch(nest, ("mac0", "mac1", "mac2"))


def test_what_it_says(golden: Callable[[str, str], None]) -> None:
    result = done(nn.stack([member(x, k, layers=2, odd=0 if k == 1 else None) for k in range(3)]))
    golden("rewrite/batched.txt", f"{result}\n\n{result.nest}\n")


@settings(max_examples=examples(15), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([None, 0, 1]), st.integers(0, 1), st.booleans()), min_size=2, max_size=4
    )
)
def test_any_ensemble_keeps_its_values(kinds: list[tuple[int | None, int, bool]]) -> None:
    values = []
    for k, (odd, more, own) in enumerate(kinds):
        start = nn.input(f"x{k}", (3, 6)) if own else x
        values.append(member(start, k, layers=2, odd=odd, more=more))
    done(*values)


def test_on_both_targets() -> None:
    nest = compose_views(nn.lower(nn.stack([member(x, k, layers=2) for k in range(3)]))).nest
    after, arrays = batch(nest).nest, drawn(nest)
    expected = pf.interpret(nest, arrays)["out"]
    net = pf.compile(after, target="cpu")
    assert np.allclose(net(**arrays), expected, atol=1e-5)
    assert np.allclose(net(**arrays), expected, atol=1e-5)
    assert all("once for all calls" in line for line in net.explain().splitlines() if "  runs stack_" in line)
    lockstep = pf.compile(after, target="cuda", device="lockstep", machine="h200")
    assert np.allclose(lockstep(**arrays), expected, atol=1e-5)


def test_other_weights_after_compiling() -> None:
    nest = nn.lower([member(x, k, layers=1) for k in range(2)])
    net = pf.compile(batch(nest).nest, target="cpu")
    arrays = drawn(nest)
    net(**arrays)
    weight = np.ones((6, 6), np.float32)
    net.replace_constants({"w1": weight})
    expected = pf.interpret(nest.with_constants({"w1": weight}), arrays)
    assert np.allclose(net(**arrays)[1], expected["out1"], atol=1e-5)


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ("mac0", "relu3", "mac0 and relu3 compute different values"),
        ("mac0", "mac1", "mac1 needs what mac0 leaves, through others"),
        ("mac1", "bias1", "bias1 needs what mac1 leaves (flow) (mac1[0, 0, 0], bias1[0, 0])"),
        ("relu1", "relu3", "out0 and out1 are visible to the caller"),
        ("mac0", "mac4", "mac0 and mac4 run over different domains"),
        ("bias0", "bias4", "bias0 and bias4 run over different domains"),
    ],
)
def test_what_is_refused(first: str, second: str, why: str) -> None:
    other = nn.relu(nn.linear(nn.input("v", (3, 6)), nn.Linear(6, 5, seed=9)))
    nest = nn.lower([member(x, 0, 2), member(x, 1, 2), other, nn.relu(nn.input("u", (3, 6)))])
    refusal = why_not_batch(nest, first, second)
    assert refusal is not None
    assert why in str(refusal)
    assert why_not_batch(nest, "mac0", "mac2") is None
    with pytest.raises(IllegalRewrite, match=f"{first} with {second}"):
        batch(nest, (first, second))


def test_statements_in_common_loops_stay_where_they_are() -> None:
    @pf.nest
    def two(x: f32[N], y: f32[N], z: f32[N]):
        for i in range(N):
            y[i] = x[i] * 2.0
            z[i] = x[i] * 2.0

    assert "S0 shares its loops" in str(why_not_batch(two, "S0", "S1"))
    assert batch(two).nest is two
