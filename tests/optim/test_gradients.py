"""Gradients under a limit of memory: what is kept, what is computed again, the same numbers, and what is refused."""

# ruff: noqa: F821

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn, optim
from polyfuse.rewrite import reverse

LAYERS, WIDTH, BATCH = 3, 64, 32
VALUE = BATCH * WIDTH * 4
"""The bytes of what a layer computes."""


def layers() -> pf.Nest:
    x = nn.input("x", (BATCH, WIDTH))
    for layer in range(LAYERS):
        x = nn.tanh(nn.relu(nn.matmul(x, nn.input(f"w{layer}", (WIDTH, WIDTH)))))
    return nn.lower(nn.mean(x * x))


def arguments() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {t.name: rng.normal(size=t.shape).astype("float32") / 8 for t in layers().inputs}


def test_without_a_limit_that_binds_everything_is_kept() -> None:
    found = reverse(layers(), seeded=True)
    kept = optim.kept_values(found, 10**9, "zen5")
    assert kept.bytes == 2 * LAYERS * VALUE
    assert str(kept.nest) == str(found.nest)
    assert not any(remark.taken for remark in kept.remarks)


@pytest.mark.parametrize("values", [4, 1, 0])
def test_a_limit_is_met_by_computing_again_with_the_same_numbers(values: int) -> None:
    found, given = reverse(layers(), seeded=True), arguments()
    kept = optim.kept_values(found, values * VALUE + 10, "zen5")
    assert kept.bytes <= values * VALUE
    again = [remark for remark in kept.remarks if remark.taken]
    assert len(again) >= 2 * LAYERS - values
    assert all(remark.seconds is not None and "to compute it again" in remark.text for remark in kept.remarks)
    if values == 4:  # a function of each element is computed again, and no product
        assert all(remark.seconds[0] < 5e-6 for remark in again if remark.seconds is not None)
    plain, other = pf.interpret(found.nest, given), pf.interpret(kept.nest, given)
    for name, gradient in plain.items():
        np.testing.assert_array_equal(other[name], gradient)
    assert str(pf.grad(layers(), memory=values * VALUE + 10, machine="zen5")) == str(kept.nest)


@pf.nest
def logistic(x: f64[8], r: f64[8]):
    for _t in range(4):
        for i in range(8):
            x[i] = r[i] * x[i] * (1.0 - x[i])


def test_a_limit_that_no_choice_meets_says_the_least_that_does() -> None:
    least = 4 * 8 * 8
    with pytest.raises(
        pf.BadArgument,
        match=f"memory=100, but .* at least {least} bytes .*: memory={least} does. With checkpoints: ",
    ):
        pf.vjp(logistic, values=True, memory=100)
    assert pf.vjp(logistic, values=True, memory=least).tensors
    assert pf.vjp(logistic, memory=0).tensors, "x is there, and nobody asks for its last value"
    with pytest.raises(pf.BadArgument, match="expected a number of bytes"):
        pf.vjp(logistic, memory=-1)
    with pytest.raises(pf.BadArgument, match="vjp: memory: expected an integer, given '1 MiB'"):
        pf.vjp(logistic, memory="1 MiB")
    with pytest.raises(pf.BadArgument, match="over N: how large values are is not known"):
        pf.grad(nn.lower(nn.mean(nn.tanh(nn.tanh(nn.input("x", ("N",)))))), memory=100)


def test_a_step_under_a_limit_trains_as_one_without() -> None:
    x, y = nn.input("x", (16, 4)), nn.input("y", (16, 1))
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1, seed=1))
    loss = nn.lower(nn.mse_loss(model(x), y))
    names, rng = tuple(loss.constants), np.random.default_rng(1)
    usual, limited = (
        optim.with_update(loss, names, optim.SGD(0.1), limit=limit) for limit in (None, (0, "zen5"))
    )
    assert not usual.remarks
    assert any(remark.taken for remark in limited.remarks)
    given = {t.name: rng.normal(size=t.shape).astype(t.dtype) for t in usual.nest.inputs}
    plain, other = (pf.interpret(each.nest, given) for each in (usual, limited))
    for name, value in plain.items():
        np.testing.assert_array_equal(other[name], value)


STEPS = 40


@pf.nest
def diffuse(u: f64[32], k: f64[32]):
    for _t in range(1, 41):
        for i in range(1, 31):
            u[i] = u[i] + k[i] * (u[i - 1] * u[i + 1] - u[i] * u[i])
    for i in range(32):
        u[i] = u[i] * u[i]


@pf.nest
def inner(u: f64[6], w: f64[6, 6]):
    for _t in range(7):
        for i in range(6):
            s = 0.0
            for j in range(6):
                s += w[i, j] * u[j]
            u[i] = u[i] * 0.5 + s * u[i] * 0.1
        for i in range(6):
            u[i] = 1.0 / (1.0 + np.exp(-u[i]))


@pytest.mark.parametrize("checkpoints", [1, 3, 100, "auto"])
@pytest.mark.parametrize("nest", [diffuse, inner])
def test_segments_have_the_same_gradients(nest: pf.NestFunction, checkpoints: int | str) -> None:
    plain, cut = pf.vjp(nest), pf.vjp(nest, checkpoints=checkpoints)
    rng = np.random.default_rng(3)
    given = {t.name: rng.uniform(0.1, 0.4, size=t.shape) for t in plain.inputs}
    expected, found = (pf.interpret(one, given) for one in (plain, cut))
    for name, gradient in expected.items():  # sums over the iterations are sums over segments first
        np.testing.assert_allclose(found[name], gradient, rtol=1e-14)


def test_the_number_of_segments_is_the_one_with_the_fewest_bytes() -> None:
    found = reverse(diffuse, checkpoints="auto")
    sizes = {t.name: t.shape[0] for t in found.nest.tensors if t.name.endswith(("_point", "_u_now"))}
    assert found.cut is not None
    assert set(sizes.values()) <= {found.cut.count, -(-STEPS // found.cut.count), 32}
    remark = optim.kept_values(found, 10**9, "zen5").remarks[0]
    assert f"runs again in {found.cut.count} segments" in remark.text
    assert remark.seconds is not None


def test_a_limit_that_a_time_loop_meets_in_segments_alone_takes_checkpoints() -> None:
    whole = optim.kept_values(reverse(diffuse), 10**9, "zen5").bytes
    assert whole > 3 * STEPS * 30 * 8
    limited = pf.vjp(diffuse, memory=whole // 2)
    assert any(t.name.endswith("_point") for t in limited.tensors)
    net = pf.compile(limited)
    assert net.memory_plan().size <= whole // 2 + 32 * 8, "segments use the same memory"
    rng = np.random.default_rng(4)
    given = [rng.uniform(0.1, 0.4, size=t.shape) for t in limited.inputs]
    for one, other in zip(net(*given), pf.compile(pf.vjp(diffuse))(*given), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pf.nest
def forgets(u: f64[6], w: f64[6], out: f64[6]):
    for i in range(6):
        w[i] = w[i] * w[i]
    for _t in range(5):
        for i in range(6):
            u[i] = u[i] * u[i] * w[i]
    for i in range(6):
        out[i] = u[i]
        w[i] = u[i] * 2.0


def test_loops_that_cannot_run_again_are_refused() -> None:
    with pytest.raises(pf.IllegalRewrite, match=r"no loop .* keeps values"):
        pf.grad(layers(), checkpoints=2)
    with pytest.raises(pf.BadArgument, match="checkpoints=0, expected the number of segments"):
        pf.vjp(diffuse, checkpoints=0)
    with pytest.raises(pf.BadArgument, match=r"checkpoints: expected an integer"):
        pf.vjp(diffuse, checkpoints="many")
    with pytest.raises(pf.IllegalRewrite, match="S1 reads w_now, which is overwritten after the loop"):
        pf.vjp(forgets, checkpoints=2)
