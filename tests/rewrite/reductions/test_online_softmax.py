"""Factoring out of sums, and sums under a maximum block by block: the same values, one kernel, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse.errors import IllegalRewrite
from polyfuse.rewrite import factor, online, why_not_factor
from tests.frontend.python.running import by_source
from tests.support.examples import examples

# ruff: noqa: F821


@pf.nest
def attention(q: f64[N, D], k: f64[M, D], v: f64[M, D], bias: f64[N, M], o: f64[N, D]):
    s = np.empty((N, M))
    m = np.empty(N)
    e = np.empty((N, M))
    l = np.empty(N)  # noqa: E741
    for i in range(N):
        for j in range(M):
            s[i, j] = bias[i, j]
            for d in range(D):
                s[i, j] += q[i, d] * k[j, d]
    for i in range(N):
        m[i] = -np.inf
        for j in range(M):
            m[i] = max(m[i], s[i, j])
    for i in range(N):
        l[i] = 0.0
        for j in range(M):
            e[i, j] = np.exp(s[i, j] - m[i])
            l[i] += e[i, j]
    for i in range(N):
        for d in range(D):
            o[i, d] = 0.0
    for i in range(N):
        for d in range(D):
            for j in range(M):
                o[i, d] += e[i, j] / l[i] * v[j, d]


@pf.nest
def log_sum_exp(a: f64[N, M], out: f64[N]):
    m = np.empty(N)
    l = np.empty(N)  # noqa: E741
    for i in range(N):
        m[i] = -np.inf
        for j in range(M):
            m[i] = max(m[i], a[i, j])
    for i in range(N):
        l[i] = 0.0
        for j in range(M):
            l[i] += np.exp(a[i, j] - m[i])
    for i in range(N):
        out[i] = np.log(l[i]) + m[i]


def inputs(n: int, m: int, d: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    some = {"q": (n, d), "k": (m, d), "v": (m, d), "bias": (n, m)}
    arrays: dict[str, Any] = {name: 3.0 * rng.standard_normal(shape) for name, shape in some.items()}
    masked = rng.random((n, m)) < 0.4
    masked[:, rng.integers(m)] = False
    arrays["bias"][masked] = -np.inf
    return {**arrays, "o": np.zeros((n, d))}


def expected(arrays: dict[str, Any]) -> Any:
    scores = arrays["q"] @ arrays["k"].T + arrays["bias"]
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True) @ arrays["v"]


def test_a_common_factor_leaves_the_sum() -> None:
    done = factor(attention, "S8")
    assert str(done) == "1.0 / l[i] leaves the sum of S8; S8_scale applies it once an element"
    text = str(done.nest)
    assert "S8: o_sum[i, d] += e[i, j] * v[j, d]" in text
    assert "S8_scale: o[e0, e1] = o_sum[e0, e1] / l[e0]" in text
    arrays = inputs(4, 5, 3, 0)
    np.testing.assert_allclose(pf.interpret(done.nest, arrays)["o"], expected(arrays), 1e-12)


def test_sums_are_corrected_where_the_maximum_grows() -> None:
    done = online(log_sum_exp, "S1", 4)
    assert str(done) == ("S1 and S3 run in blocks of 4; S3_correct correct the sums where the maximum grew")
    assert "S3_correct: l[e0] = l[e0] * exp(m_old[e0] - m[e0])" in str(done.nest)
    a = np.random.default_rng(1).standard_normal((3, 11))
    a[0, :8] = -np.inf
    arrays = {"a": a, "out": np.zeros(3)}
    np.testing.assert_allclose(pf.interpret(done.nest, arrays)["out"], np.log(np.exp(a).sum(1)), 1e-12)


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(1, 5), st.integers(1, 13), st.integers(1, 3), st.integers(1, 15), st.integers(0, 9))
def test_attention_block_by_block(n: int, m: int, d: int, block: int, seed: int) -> None:
    done = online(factor(attention, "S8").nest, "S3", block)
    arrays = inputs(n, m, d, seed)
    np.testing.assert_allclose(pf.interpret(done.nest, arrays)["o"], expected(arrays), 1e-10, 1e-12)
    np.testing.assert_allclose(
        by_source(done.nest, arrays, {"N": n, "M": m, "D": d})["o"], expected(arrays), 1e-10, 1e-12
    )


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_the_strategies_take_it(target: str) -> None:
    nest = online(factor(attention, "S8").nest, "S3", 4).nest.with_sizes({"N": 6, "M": 10, "D": 3})
    arrays = inputs(6, 10, 3, 2)
    device = {"device": "lockstep"} if target == "cuda" else {}
    net = pf.compile(nest, target=target, **device)
    net(**arrays)
    np.testing.assert_allclose(arrays["o"], expected(arrays), 1e-10)


def one_kernel(nest: pf.Nest, rows: int, block: int) -> pf.Schedule:
    """Rows in tiles; in each tile, for each block: scores, maximum, corrections, exponentials, sums."""

    def tile(row: str, at: int, *rest: str) -> str:
        return f"[{', '.join([f'floor({row} / {rows})', str(at), *rest])}]"

    def inside(row: str, number: str, at: int, *rest: str) -> str:
        return tile(row, 3, number, str(at), *rest)

    of_j = f"floor(j / {block})"
    return pf.Schedule(nest).affine(
        S2=tile("i", 0, "i"),
        S4=tile("i", 1, "i"),
        S7=tile("i", 2, "i", "d"),
        S0=inside("i", of_j, 0, "i", "j"),
        S1=inside("i", of_j, 1, "i", "j", "d"),
        S3_old=inside("e0", "j_block", 2, "e0"),
        S3=inside("i", of_j, 3, "i", "j"),
        S6_correct=inside("e0", "j_block", 4, "e0"),
        S8_correct=inside("e0", "j_block", 5, "e0", "e1"),
        S5=inside("i", of_j, 6, "i", "j"),
        S6=inside("i", of_j, 7, "i", "j"),
        S8=inside("i", of_j, 8, "i", "j", "d"),
        S8_scale=tile("e0", 4, "e0", "e1"),
    )


def test_attention_is_one_kernel_whose_scores_never_leave_a_block() -> None:
    nest = online(factor(attention, "S8").nest, "S3", 4).nest.with_sizes({"N": 9, "M": 11, "D": 3})
    schedule = one_kernel(nest, 4, 4).promote("s", "S1", at="j").promote("e", "S5", at="j")
    net = pf.compile(nest, schedule=schedule)
    assert len(net.kernels) == 1
    arrays = inputs(9, 11, 3, 3)
    net(**arrays)
    np.testing.assert_allclose(arrays["o"], expected(arrays), 1e-10)


def test_without_the_rewrite_the_maximum_has_to_come_first() -> None:
    nest = attention.with_sizes({"N": 8, "M": 8, "D": 3})
    with pytest.raises(pf.IllegalSchedule, match="S3"):
        pf.Schedule(nest).affine(
            S0="[floor(j / 4), 0, i, j]",
            S1="[floor(j / 4), 1, i, j, d]",
            S2="[floor(i / 8), 2, i]",
            S3="[floor(j / 4), 3, i, j]",
            S4="[floor(i / 8), 4, i]",
            S5="[floor(j / 4), 5, i, j]",
            S6="[floor(j / 4), 6, i, j]",
            S7="[floor(i / 8), 7, i, d]",
            S8="[floor(j / 4), 8, i, d, j]",
        )


@pf.nest
def normalised(a: f64[N, M], e: f64[N, M], l: f64[N]):  # noqa: E741
    m = np.empty(N)
    t = np.empty((N, M))
    for i in range(N):
        m[i] = -np.inf
        for j in range(M):
            m[i] = max(m[i], a[i, j])
    for i in range(N):
        l[i] = 0.0
        for j in range(M):
            t[i, j] = np.exp(a[i, j] - m[i])
            l[i] += t[i, j]
    for i in range(N):
        for j in range(M):
            e[i, j] = t[i, j] / l[i]


@pf.nest
def seen(a: f64[N, M], m: f64[N], l: f64[N]):  # noqa: E741
    for i in range(N):
        m[i] = -np.inf
        for j in range(M):
            m[i] = max(m[i], a[i, j])
    for i in range(N):
        l[i] = 0.0
        for j in range(M):
            l[i] += np.exp(a[i, j] - m[i])


@pf.nest
def twice(a: f64[N, M], l: f64[N], r: f64[N]):  # noqa: E741
    m = np.empty(N)
    for i in range(N):
        m[i] = -np.inf
        for j in range(M):
            m[i] = max(m[i], a[i, j])
    for i in range(N):
        l[i] = 0.0
        for j in range(M):
            l[i] += np.exp(a[i, j] - m[i])
    for i in range(N):
        r[i] = 0.0
        for j in range(M):
            r[i] += np.exp(a[i, j] - m[i]) / l[i]


@pytest.mark.parametrize(
    ("nest", "maximum", "block", "why"),
    [
        (log_sum_exp, "S3", 4, "not a maximum of one value"),
        (log_sum_exp, "S1", 0, "a block has 0 values"),
        (normalised, "S1", 4, "S5 needs t under the final maximum"),
        (seen, "S1", 4, "not a maximum of one value into a temporary"),
        (twice, "S1", 4, r"S3 would run after S5, which has to come later \(S3\[0, 4\], S5\[0, 0\]\)"),
    ],
)
def test_what_cannot_run_block_by_block(nest: pf.Nest, maximum: str, block: int, why: str) -> None:
    with pytest.raises(IllegalRewrite, match=why):
        online(nest, maximum, block)


def test_a_factor_that_leaves_lets_both_sums_run_block_by_block() -> None:
    done = online(factor(twice, "S5").nest, "S1", 3)
    assert done.sums == ("S3", "S5")
    a = np.random.default_rng(4).standard_normal((2, 7))
    found = pf.interpret(done.nest, {"a": a, "l": np.zeros(2), "r": np.zeros(2)})
    np.testing.assert_allclose(found["r"], np.ones(2), 1e-12)


@pf.nest
def sums(a: f64[N, M], b: f64[N], y: f64[N], z: f64[N]):
    for i in range(N):
        y[i] = 1.0
        z[i] = 0.0
    for i in range(N):
        for j in range(M):
            y[i] += a[i, j] * b[i]
            z[i] += a[i, j] * a[i, j]


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("S0", "S0 is not a sum"),
        ("S2", "y is not set to 0"),
        ("S3", "all factors of S3 vary"),
    ],
)
def test_what_stays_in_the_sum(statement: str, why: str) -> None:
    assert why in str(why_not_factor(sums, statement))
    with pytest.raises(IllegalRewrite, match=why):
        factor(sums, statement)


def test_a_reader_of_the_maximum_that_the_sums_overwrite_is_refused() -> None:
    @pf.nest
    def reused(a: f64[N, M], out: f64[N], total: f64[N]):
        m = np.empty(N)
        for i in range(N):
            total[i] = 0.0
        for i in range(N):
            m[i] = -np.inf
            for j in range(M):
                m[i] = max(m[i], a[i, j])
        for i in range(N):
            out[i] = m[i] + total[i]
        for i in range(N):
            for j in range(M):
                total[i] += np.exp(a[i, j] - m[i])

    with pytest.raises(IllegalRewrite, match="S3 would run after S4, which has to come later"):
        online(reused, "S2", 4)


def test_a_sum_that_is_set_to_zero_afterwards_keeps_its_factor() -> None:
    @pf.nest
    def cleared(a: f64[N, M], s: f64[N], y: f64[N]):
        for i in range(N):
            for j in range(M):
                y[i] += s[i] * a[i, j]
        for i in range(N):
            y[i] = 0.0

    assert "not set to 0" in str(why_not_factor(cleared, "S0"))
