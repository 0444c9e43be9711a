"""The memory plan: nothing alive at the same time overlaps, and the arena is no larger than it has to be."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse import nn
from polyfuse.analysis.liveness import live_ranges
from polyfuse.checks import cuda_cases as cases
from polyfuse.runtime.memory.memory_plan import ALIGNMENT, MemoryPlan, nbytes, plan_memory


def planned(nest: pf.Nest) -> MemoryPlan:
    schedule = pf.Schedule(nest)
    return plan_memory(nest, schedule.nest, schedule.tree, {})


def overlapping(plan: MemoryPlan) -> list[tuple[str, str]]:
    """Pairs of tensors that share bytes."""
    return [
        (first, second)
        for (first, (a, b)), (second, (c, d)) in combinations(plan.spans.items(), 2)
        if max(a, c) < min(b, d)
    ]


def test_a_chain_of_equal_temporaries_needs_two() -> None:
    nest = cases.dense(*[16] * 6, batch=8)
    plan = planned(nest)
    assert plan.size == 2 * 8 * 16 * 4
    assert plan.unplanned == (5 * 3 - 1) * 8 * 16 * 4
    assert len(plan.spans) == 5 * 3 - 1


def test_a_value_used_late_keeps_its_bytes() -> None:
    x = nn.input("x", (4, 16))
    early = nn.relu(x)
    late = nn.exp(nn.tanh(nn.sigmoid(early))) + early
    plan = planned(nn.lower(late))
    shared = {name for pair in overlapping(plan) for name in pair}
    assert "a0" not in shared
    assert plan.size == 3 * 4 * 16 * 4


def test_offsets_are_aligned() -> None:
    x = nn.input("x", (3, 7))
    plan = planned(nn.lower(nn.relu(nn.tanh(x)) * nn.sigmoid(x)))
    assert all(start % ALIGNMENT == 0 for start, _ in plan.spans.values())


def test_without_temporaries_there_is_no_arena() -> None:
    assert planned(cases.pointwise(nn.ReLU())) == MemoryPlan({}, 0, 0)


def test_sizes_of_tensors_in_symbols() -> None:
    tensor = pf.Tensor("t", ("N", "2*N + 1"), "float64", "temporary")
    assert nbytes(tensor, {"N": 3}) == 3 * 7 * 8


@st.composite
def graphs(draw: st.DrawFn) -> pf.Nest:
    """A graph of pointwise operations and products over values of different widths."""
    values = [nn.input("x", (3, draw(st.integers(1, 9))))]
    for _ in range(draw(st.integers(1, 7))):
        operand = draw(st.sampled_from(values))
        if draw(st.booleans()):
            values.append(nn.tanh(operand))
        else:
            weight = np.ones((operand.shape[1], draw(st.integers(1, 9))), np.float32)
            values.append(nn.linear(operand, weight))
    return nn.lower(values[-1])


@given(graphs())
def test_tensors_alive_together_never_share_bytes(nest: pf.Nest) -> None:
    schedule = pf.Schedule(nest)
    plan = plan_memory(nest, schedule.nest, schedule.tree, {})
    lives = {life.tensor: life for life in live_ranges(nest, schedule.tree)}
    assert set(plan.spans) == {t.name for t in nest.with_role("temporary")}
    for first, second in overlapping(plan):
        assert not lives[first].overlaps(lives[second])
    for name, (start, stop) in plan.spans.items():
        assert stop - start == nbytes(nest.tensor(name), {})
        assert stop <= plan.size <= plan.unplanned + ALIGNMENT * len(plan.spans)
