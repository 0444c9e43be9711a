"""Attention in one pass over the keys: chosen by cost, in blocks inside rows that fit a cache, and right."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.ir import Nest
from polyfuse.ir.tree import parts, statements
from polyfuse.machine import KiB, cpu
from polyfuse.strategy import Plan, plan_for
from polyfuse.strategy.rewrites.online_softmax import in_one_pass

# ruff: noqa: F821

SMALL = cpu("small caches", 1, 32, (4 * KiB, 64 * KiB, 256 * KiB), 3.0e9)
ONE = replace(pf.Machine.preset("zen5"), units=1)


@cache
def attention(queries: int, keys: int, features: int) -> Nest:
    """softmax(q kᵀ / 4 + mask) v."""
    q, k, v = (nn.input(n, (rows, features)) for n, rows in (("q", queries), ("k", keys), ("v", keys)))
    mask = nn.input("mask", (queries, keys))
    return nn.lower(nn.softmax((q @ nn.transpose(k)) * 0.25 + mask) @ v)


@cache
def planned(machine: pf.Machine, *sizes: int) -> Plan:
    return plan_for(attention(*sizes), machine)


def test_attention_is_what_numpy_says() -> None:
    nest = attention(150, 300, 8)
    net = pf.compile(nest, target="cpu", machine=SMALL, force={"online softmax": True})
    assert not {"y0", "a0", "a1", "e0"} & net.memory_plan().spans.keys()
    rng = np.random.default_rng(0)
    inputs = {t.name: rng.standard_normal(t.shape).astype(np.float32) for t in nest.inputs}
    inputs["mask"][:, :160] = -np.inf  # the first block is masked throughout
    inputs["mask"][1, 200:] = -np.inf
    exact = {name: value.astype(np.float64) for name, value in inputs.items()}
    scores = exact["q"] @ exact["k"].T / 4 + exact["mask"]
    weights = np.exp(scores - scores.max(1, keepdims=True))
    expected = weights / weights.sum(1, keepdims=True) @ exact["v"]
    np.testing.assert_allclose(net(**inputs), expected, rtol=1e-4, atol=1e-5)


def logarithm(x: nn.Value) -> nn.Value:
    return nn.logsumexp(x, 1, keepdims=True)


@pytest.mark.parametrize(("target", "values"), [("cpu", 256), ("cuda", 64)])
@pytest.mark.parametrize(
    "value",
    [
        lambda x: nn.tanh(logarithm(x)),
        lambda x: x - logarithm(x),
        lambda x: nn.sigmoid(logarithm(x)) * x,
        lambda x: nn.tanh(logarithm(x)) @ nn.transpose(logarithm(x)),
        lambda x: nn.exp(x - nn.max(x, 1, keepdims=True)) * logarithm(x),
    ],
)
def test_only_exponentials_run_under_a_maximum(
    value: Callable[[nn.Value], nn.Value], target: pf.Target, values: int
) -> None:
    """The logarithm of a sum reads the maximum too, and may have been computed where it is read."""
    nest = nn.lower(value(nn.input("x", (3, values))))
    net = pf.compile(nest, target=target, **({"device": "lockstep"} if target == "cuda" else {}))
    x = np.random.default_rng(1).standard_normal((3, values)).astype(np.float32)
    np.testing.assert_allclose(net(x), pf.interpret(nest, {"x": x})["out"], rtol=1e-5, atol=1e-6)


@pf.nest
def divided_before_the_product(a: f64[8, 512], v: f64[512, 4], o: f64[8, 4]):
    m = np.empty(8)
    l = np.empty(8)  # noqa: E741
    p = np.empty((8, 512))
    for i in range(8):
        m[i] = -np.inf
        for j in range(512):
            m[i] = max(m[i], a[i, j])
    for i in range(8):
        l[i] = 0.0
        for j in range(512):
            l[i] += np.exp(a[i, j] - m[i])
    for i in range(8):
        for j in range(512):
            p[i, j] = np.exp(a[i, j] - m[i]) / l[i]
    for i in range(8):
        for d in range(4):
            o[i, d] = 0.0
            for j in range(512):
                o[i, d] += p[i, j] * v[j, d]


def test_an_exponential_that_is_computed_where_it_is_read() -> None:
    """p is under the maximum, and reads what is: it moves into the product before its own readers are looked for."""
    made = in_one_pass(divided_before_the_product, SMALL)
    assert made is not None
    assert made.said[0].startswith("p, written by S4, is computed where it is read")
    rng = np.random.default_rng(2)
    arrays = {"a": rng.standard_normal((8, 512)), "v": rng.standard_normal((512, 4)), "o": np.zeros((8, 4))}
    weights = np.exp(arrays["a"])
    expected = weights / weights.sum(1, keepdims=True) @ arrays["v"]
    np.testing.assert_allclose(pf.interpret(made.nest, arrays)["o"], expected, 1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_priced_in_one_pass_with_weights_in_float32(dtype: str) -> None:
    q, k, v = (nn.input(n, (rows, 8), dtype) for n, rows in (("q", 150), ("k", 300), ("v", 300)))
    nest = nn.lower(nn.softmax(q @ nn.transpose(k)) @ v)
    made = in_one_pass(nest, SMALL)
    assert made is not None
    assert made.said[0] == f"p0 stays in float32, where it was rounded to {dtype}"
    assert made.nest.tensor("y0").dtype == dtype, "scores are rounded as they were"
    said = plan_for(nest, SMALL).remarks[-1].text
    assert "in one pass" in said
    assert len(re.findall(r"\d (?:ns|µs|ms)\b", said)) == 2


@pytest.mark.parametrize(
    ("machine", "sizes"), [(ONE, (1024, 2048, 16)), (replace(ONE, units=2), (1024, 2048, 16))]
)
def test_one_kernel_holds_both_products(machine: pf.Machine, sizes: tuple[int, int, int]) -> None:
    plan = planned(machine, *sizes)
    said = next(each.text for each in plan.remarks if each.pass_ == "online softmax" and each.seconds)
    assert len(re.findall(r"\d (?:ns|µs|ms)\b", said)) == 2
    kernel = next(set(statements(p)) for p in parts(plan.schedule.tree) if "mac0" in statements(p))
    assert {"zero0", "mac0", "mul0", "add0", "rowmax0", "exp0", "rowsum0", "mac1"} <= kernel
    products = {name: [loop.bind for loop in plan.schedule.loops(name)] for name in ("mac0", "mac1")}
    assert all("microkernel" in binds for binds in products.values()), products
    rows, keys, *_ = plan.schedule.loops("mac1")
    assert (keys.name, rows.bind) == ("j_block", "cores" if machine.units > 1 else None)


def test_rows_whose_steps_stay_in_l2_are_one_part() -> None:
    large = replace(SMALL, levels=ONE.levels)
    plan = plan_for(attention(150, 300, 8), large, force={"online softmax": True})
    assert plan.schedule.loops("mac1")[0].name == "j_block"


def test_whole_rows_where_the_model_finds_them_cheaper() -> None:
    plan = planned(ONE, 256, 256, 32)
    assert "sums under a maximum do not run in one pass" in plan.remarks[-1].text
    assert not any(s.name.endswith("_correct") for s in plan.schedule.nest.statements)


@pytest.mark.parametrize(
    ("nest", "machine"),
    [
        (nn.lower(nn.softmax(nn.input("x", (8, 4096)))), "zen5"),  # every exponential is wanted
        (nn.lower(nn.logsumexp(nn.input("x", (8, 4096)), -1)), "zen5"),  # no product under the maximum
        (attention(40, 128, 16), "zen5"),  # one block
        (attention(40, 512, 16), "h200"),
    ],
)
def test_what_is_left_as_it_is(nest: Nest, machine: str) -> None:
    assert in_one_pass(nest, pf.Machine.preset(machine)) is None
