"""Training steps: each optimizer's formula by NumPy, weights changed in place, embeddings, what is refused."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn, optim
from polyfuse.optim import Optimizer, with_update

Array = Any


def sgd(momentum: float, nesterov: bool, decay: float) -> Callable[[Array, Array, float], Iterator[Array]]:
    def steps(p: Array, rate: Callable[[Array], Array], lr: float) -> Iterator[Array]:
        kept = np.zeros_like(p)
        while True:
            g = rate(p) + decay * p
            kept = momentum * kept + g
            p = p - lr * (g + momentum * kept if nesterov else kept)
            yield p

    return steps


def adam(
    betas: tuple[float, float], decay: float, apart: bool
) -> Callable[[Array, Array, float], Iterator[Array]]:
    def steps(p: Array, rate: Callable[[Array], Array], lr: float) -> Iterator[Array]:
        mean, square, t = np.zeros_like(p), np.zeros_like(p), 0
        while True:
            t += 1
            g = rate(p) + (0 if apart else decay * p)
            mean = betas[0] * mean + (1 - betas[0]) * g
            square = betas[1] * square + (1 - betas[1]) * g * g
            m, s = mean / (1 - betas[0] ** t), square / (1 - betas[1] ** t)
            p = p * (1 - lr * decay if apart else 1) - lr * m / (np.sqrt(s) + 1e-8)
            yield p

    return steps


@pytest.mark.parametrize(
    ("optimizer", "steps"),
    [
        (optim.SGD(0.3), sgd(0, False, 0)),
        (optim.SGD(0.3, weight_decay=0.1), sgd(0, False, 0.1)),
        (optim.SGD(0.3, momentum=0.9), sgd(0.9, False, 0)),
        (optim.SGD(0.3, momentum=0.9, nesterov=True, weight_decay=0.1), sgd(0.9, True, 0.1)),
        (optim.Adam(0.1), adam((0.9, 0.999), 0, apart=False)),
        (optim.Adam(0.1, betas=(0.5, 0.9), weight_decay=0.1), adam((0.5, 0.9), 0.1, apart=False)),
        (optim.AdamW(0.1), adam((0.9, 0.999), 0.01, apart=True)),
    ],
    ids=[
        "SGD",
        "SGD with decay",
        "momentum",
        "Nesterov with decay",
        "Adam",
        "Adam with decay",
        "AdamW",
    ],
)
def test_optimizers(optimizer: Optimizer, steps: Callable[..., Iterator[Array]]) -> None:
    rng = np.random.default_rng(1)
    x, y, w = rng.normal(size=(4, 3)), rng.normal(size=(4, 2)), rng.normal(size=(3, 2))
    loss = nn.mse_loss(
        nn.linear(nn.input("x", x.shape, "float64"), w), nn.input("y", y.shape, "float64"), "sum"
    )
    updated = with_update(pf.lower(loss), ("w0",), optimizer)
    held: dict[str, Array] = {t.name: np.zeros([int(n) for n in t.shape]) for t in updated.nest.inputs}
    held |= {"x": x, "y": y, "w0": w, updated.lr: np.array(optimizer.lr * 0.1)}
    expected = steps(w, lambda p: 2 * x.T @ (x @ p - y), optimizer.lr * 0.1)
    for _ in range(4):
        found = pf.interpret(updated.nest, held)
        np.testing.assert_allclose(found["out"], ((x @ held["w0"] - y) ** 2).sum(), rtol=1e-12)
        np.testing.assert_allclose(found["w0"], next(expected), rtol=1e-12)
        held |= {name: found[name] for name in ("w0", *updated.kept)}


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def test_a_model_is_trained_in_place() -> None:
    model = nn.Sequential(nn.Embedding(5, 4, dtype="float64"), nn.Linear(4, 3, dtype="float64"))
    table, w, b = (array.copy() for array in model.arrays())
    step = pf.train_step(model, nn.CrossEntropyLoss(), optim.SGD(0.5), batch=6)
    rows, classes = np.array([0, 1, 4, 1, 2, 0]), np.array([2, 0, 1, 1, 0, 2])
    for turn in range(3):
        p = softmax(table[rows] @ w + b)
        loss = -np.log(p[np.arange(6), classes]).mean()
        slope = (p - np.eye(3)[classes]) / 6
        up = np.zeros_like(table)
        np.add.at(up, rows, slope @ w.T)
        lr = step.lr = 0.5 / (1 + turn)
        table, w, b = table - lr * up, w - lr * table[rows].T @ slope, b - lr * slope.sum(0)
        np.testing.assert_allclose(step(rows, classes), loss, rtol=1e-12)
    found = step.parameters()
    assert {id(array) for array in found.values()} == {id(array) for array in model.arrays()}
    assert set(found) == set(nn.named_constants(model))
    for array, expected in zip(model.arrays(), (table, w, b), strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-12)
    with pytest.raises(pf.BadArgument, match="expected 0 <="):
        step(rows, classes + 1)


def trained() -> tuple[list[float], list[Array], pf.optim.TrainStep]:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(2, 16, 4)).astype("float32")
    y = np.tanh(x @ rng.normal(size=(4, 3)).astype("float32"))
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
    step = pf.train_step(model, nn.MSELoss(), optim.Adam(0.05), batch=16)
    return [step(x[n % 2], y[n % 2]) for n in range(30)], list(model.arrays()), step


def test_steps_are_deterministic_and_fused() -> None:
    (losses, weights, step), (again, same, _) = trained(), trained()
    assert losses == again
    assert all((a == b).all() for a, b in zip(weights, same, strict=True))
    assert losses[-1] < 0.8 * losses[0]
    assert step.state()["t"] == 30
    kernel = next(one for one in step.net.kernels if "update_w0" in one.statements)
    assert "mac0_to_w0" in kernel.statements, "the weights' gradient is used where it is computed"


def test_a_step_on_a_gpu_in_lock_step() -> None:
    model, x, y = layer(), np.ones((5, 3), np.float32), np.zeros((5, 2), np.float32)
    options = {"target": "cuda", "device": "lockstep", "machine": "h200"}
    step = pf.train_step(model, nn.MSELoss(), optim.SGD(0.25), batch=5, **options)
    p = x @ model.weight + model.bias
    expected = model.weight - 0.25 * x.T @ (2 * p / 10)
    np.testing.assert_allclose(step(x, y), (p**2).mean(), rtol=1e-5)
    np.testing.assert_allclose(model.weight, expected, rtol=1e-5)


class Mixed(nn.Module):
    """Numbers, and the rows of a table that others choose."""

    def __init__(self) -> None:
        self.table, self.last = nn.Embedding(5, 3, dtype="float64"), nn.Linear(4, 1, dtype="float64")

    def forward(self, *inputs: nn.Value) -> nn.Value:
        x, rows = inputs
        return self.last(nn.concat([x, self.table(rows)], 1))


def test_a_model_of_several_inputs() -> None:
    model, x, rows, y = Mixed(), np.array([[0.5], [2.0]]), np.array([3, 0]), np.array([[1.0], [-1.0]])
    table, w, b = (array.copy() for array in model.arrays())
    inputs = (nn.input("x", x.shape, "float64"), nn.input("rows", rows.shape, "int64"))
    step = pf.train_step(model, nn.MSELoss(), optim.SGD(0.5), inputs=inputs, target="cpu")
    both = np.concatenate([x, table[rows]], 1)
    slope = both @ w + b - y
    table[rows] -= 0.5 * (slope @ w.T)[:, 1:]
    np.testing.assert_allclose(step(x, rows, y), (slope**2).mean(), rtol=1e-12)
    for array, expected in zip(
        model.arrays(), (table, w - 0.5 * both.T @ slope, b - 0.5 * slope.sum(0)), strict=True
    ):
        np.testing.assert_allclose(array, expected, rtol=1e-12)
    with pytest.raises(pf.BadArgument, match="takes x, rows, target; given 2 arrays"):
        step(x, y)


def normed() -> tuple[nn.Sequential, nn.BatchNorm]:
    norm = nn.BatchNorm(4, dtype="float64", momentum=0.2)
    norm.gamma, norm.beta = np.array([1.0, -0.5, 2.0, 0.3]), np.array([0.1, 0.0, -0.2, 0.4])
    return nn.Sequential(nn.Linear(3, 4, dtype="float64"), norm, nn.Tanh()), norm


def test_batch_norm_takes_the_statistics_of_the_batch_and_moves_its_own() -> None:
    model, norm = normed()
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(6, 3)), rng.normal(size=(6, 4))
    step = pf.train_step(model, nn.MSELoss(), optim.SGD(0.1), batch=6, target="cpu")
    w, b, gamma, beta = (array.copy() for array in list(model.arrays())[:4])
    mean, var = np.zeros(4), np.ones(4)
    h = x @ w + b
    mean, var = 0.8 * mean + 0.2 * h.mean(0), 0.8 * var + 0.2 * h.var(0, ddof=1)
    root = np.sqrt(h.var(0) + norm.eps)
    normal = (h - h.mean(0)) / root
    out = np.tanh(normal * gamma + beta)
    up = 2 * (out - y) / out.size * (1 - out**2)
    inner = up * gamma
    slope = (inner - inner.mean(0) - normal * (inner * normal).mean(0)) / root
    np.testing.assert_allclose(step(x, y), ((out - y) ** 2).mean(), rtol=1e-12)
    found = [w - 0.1 * x.T @ slope, b - 0.1 * slope.sum(0), gamma - 0.1 * (up * normal).sum(0)]
    found += [beta - 0.1 * up.sum(0), mean, var]
    for array, expected in zip(model.arrays(), found, strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-11, atol=1e-13)
    assert {"mean0", "var0"} <= set(step.state())
    assert step.state()["mean0"] is norm.mean
    assert set(step.parameters()) == {"w0", "b0", "gamma0", "beta0"}


def test_batch_norm_for_any_batch() -> None:
    (model, _), (other, _) = normed(), normed()
    step = pf.train_step(model, nn.MSELoss(), optim.SGD(0.1), batch="N", target="cpu")
    known = pf.train_step(other, nn.MSELoss(), optim.SGD(0.1), batch=6, target="cpu")
    rng = np.random.default_rng(3)
    for _ in range(2):
        x, y = rng.normal(size=(6, 3)), rng.normal(size=(6, 4))
        np.testing.assert_allclose(step(x, y), known(x, y), rtol=1e-12)
    for own, theirs in zip(model.arrays(), other.arrays(), strict=True):
        np.testing.assert_allclose(own, theirs, rtol=1e-11, atol=1e-13)
    assert np.isfinite(step(rng.normal(size=(9, 3)), rng.normal(size=(9, 4))))
    with pytest.raises(pf.BadArgument, match="N >= 2 does not hold"):
        step(np.ones((1, 3)), np.ones((1, 4)))


def test_batch_norm_trains_as_torch() -> None:
    torch = pytest.importorskip("torch")
    model, norm = normed()
    other = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4, momentum=0.2), torch.nn.Tanh())
    other = other.double()
    weights = [model.arrays().__next__().T, *list(model.arrays())[1:4]]
    with torch.no_grad():
        for own, theirs in zip(weights, other.parameters(), strict=True):
            theirs.copy_(torch.from_numpy(own.copy()))
    rng = np.random.default_rng(3)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
    step = pf.train_step(model, nn.MSELoss(), optim.SGD(0.1, momentum=0.9), batch=6, target="cpu")
    for _ in range(5):
        x, y = rng.normal(size=(6, 3)), rng.normal(size=(6, 4))
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(other(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        optimizer.step()
        np.testing.assert_allclose(step(x, y), loss.item(), rtol=1e-10)
    np.testing.assert_allclose(norm.mean, other[1].running_mean.numpy(), rtol=1e-10)
    np.testing.assert_allclose(norm.var, other[1].running_var.numpy(), rtol=1e-10)
    np.testing.assert_allclose(
        model.arrays().__next__().T, other[0].weight.detach().numpy(), rtol=1e-9, atol=1e-12
    )


def test_dropout_drops_others_in_each_step_and_the_same_by_a_seed() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1, seed=1))
    step = pf.train_step(model, nn.MSELoss(), optim.SGD(0.0), batch=4, target="cpu", seed=3)
    x, y = np.ones((4, 4), np.float32), np.zeros((4, 1), np.float32)
    first = int(step.state()["seed"])
    losses = [step(x, y) for _ in range(3)]
    assert len(set(losses)) == 3
    assert step.state()["seed"] == first + 3
    step.state()["seed"][...] = first + 1
    assert [step(x, y), step(x, y)] == losses[1:], "the seed is state that can be restored"


X = nn.input("other", (2, 2))


def layer(dtype: str = "float32") -> nn.Linear:
    return nn.Linear(3, 2, dtype=dtype)


def twice() -> nn.Sequential:
    norm = nn.BatchNorm(2)
    return nn.Sequential(layer(), norm, norm)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda: pf.train_step(layer, nn.MSELoss(), optim.SGD(), batch=2), "is not a model"),  # type: ignore[arg-type]
        (lambda: pf.train_step(layer(), nn.MSELoss(), "sgd", batch=2), "is not an optimizer"),  # type: ignore[arg-type]
        (lambda: pf.train_step(layer(), "mse", optim.SGD(), batch=2), "is not a loss"),  # type: ignore[arg-type]
        (
            lambda: pf.train_step(layer(), nn.MSELoss(), optim.SGD(), batch=2, labels=X * 2.0),
            "expected an input",
        ),
        (
            lambda: pf.train_step(layer(), nn.MSELoss(), optim.SGD(), inputs=(X * 2.0,)),
            "expected inputs such as",
        ),
        (
            lambda: pf.train_step(layer(), nn.MSELoss(), optim.SGD(), inputs=(X,), batch=2),
            "for models of one",
        ),
        (
            lambda: pf.train_step(layer(), lambda x, y: nn.mse_loss(x * X, y), optim.SGD(), batch=2),
            "takes other too",
        ),
        (lambda: pf.train_step(layer(), nn.MSELoss("none"), optim.SGD(), batch=2), "expected one number"),
        (
            lambda: pf.train_step(nn.ReLU(), nn.MSELoss(), optim.SGD(), batch=2, features=3),
            "reads no weights of ReLU",
        ),
        (lambda: pf.train_step(layer("float16"), nn.MSELoss(), optim.SGD(), batch=2), "weights are float16"),
        (
            lambda: pf.train_step(nn.BatchNorm(3), nn.MSELoss(), optim.SGD(), batch=1, features=3),
            "has 1 element, expected 2 or more",
        ),
        (
            lambda: pf.train_step(twice(), nn.MSELoss(), optim.SGD(), batch=2),
            "used twice in a training step",
        ),
        (
            lambda: pf.train_step(layer(), lambda x, y: nn.mean(nn.greater(x, y)), optim.SGD(), batch=2),
            "no derivative connects",
        ),
        (lambda: optim.SGD(-1.0), "lr=-1.0"),
        (lambda: optim.SGD(0.1, nesterov=True), "needs a momentum"),
        (lambda: optim.Adam(betas=(0.9, 1.0)), "from 0 to below 1"),
    ],
)
def test_refusals(made: Callable[[], object], why: str) -> None:
    with pytest.raises(pf.BadArgument, match=why):
        made()
