"""An ensemble trained: its members' steps as one nest, each with weights, input and target of its own.

The weights change in each step, so they are not stacked when compiling: a batch of products reads the members' arrays
where they are, or copies them in each call, which is what the cost model decides. Gradients are batched as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

import polyfuse as pf
from papers.claims import Claim
from papers.places import Place
from papers.pytorch_18157_ensemble.networks import Array, Ensemble
from polyfuse import nn
from polyfuse.errors import quantity

Row = dict[str, Any]

RATE, STEPS = 0.1, 5


class Members(nn.Module):
    """The members one by one, each on its slice of the input; the weights are arrays of their own."""

    def __init__(self, ensemble: Ensemble) -> None:
        arrays, self.ensemble = ensemble.arrays(), ensemble
        every = [(k, n) for k in range(ensemble.members) for n in range(ensemble.layers)]
        self.weights = [arrays[f"w{n}"][k].copy() for k, n in every]
        self.biases = [arrays[f"b{n}"][k, 0].copy() for k, n in every]

    def forward(self, x: nn.Value) -> nn.Value:
        results, layers = [], zip(self.weights, self.biases, strict=True)
        for k in range(self.ensemble.members):
            h = x[k]
            for weight, bias in islice(layers, self.ensemble.layers):
                h = nn.relu(nn.linear(h, weight, bias))
            results.append(h)
        return nn.stack(results)


def counted(ensemble: Ensemble, where: Place) -> Row:
    """Products of a step before and after batching, and the losses of some steps beside NumPy's in float64."""
    x = ensemble.arrays()["x"]
    model, target = Members(ensemble), 0.5 * x
    given = (nn.input("x", x.shape), nn.input("target", x.shape))
    loss = pf.lower(nn.mse_loss(model(given[0]), given[1]))
    step = pf.optim.with_update(loss, tuple(loss.constants), pf.optim.SGD(RATE)).nest
    composed = pf.rewrite.compose_views(step).nest
    batched = pf.rewrite.batch(composed).nest
    before, after = products(composed), products(batched)
    net = pf.train_step(model, nn.MSELoss(), pf.optim.SGD(RATE), inputs=given[:1], **compiled_for_one(where))
    ours = [net(x, target) for _ in range(STEPS)]
    np.testing.assert_allclose(ours, losses(ensemble, x, target), rtol=1e-5)
    return {
        **ensemble.sizes,
        "products_before": before,
        "products_after": after,
        "kernels": net.net.report().launches,
        "steps": STEPS,
        "loss_first": ours[0],
        "loss_last": ours[-1],
    }


def compiled_for_one(where: Place) -> dict[str, Any]:
    """Options for one core of a CPU."""
    options = dict(where.options)
    if where.target == "cpu":
        options["machine"] = replace(pf.Machine.detect(), units=1)
    return options


def products(nest: pf.Nest) -> int:
    """The products of a nest: forward, for gradients of values, and for gradients of weights."""
    return sum(s.name.startswith("mac") for s in nest.statements)


def losses(ensemble: Ensemble, x: Array, target: Array) -> list[float]:
    """The losses of the same steps by NumPy in float64, with the members' weights stacked by hand."""
    arrays = {name: value.astype(np.float64) for name, value in ensemble.arrays().items()}
    depth, found = range(ensemble.layers), []
    for _ in range(STEPS):
        values = [x.astype(np.float64)]
        for n in depth:
            values.append(np.maximum(values[-1] @ arrays[f"w{n}"] + arrays[f"b{n}"], 0))
        error = values[-1] - target
        found.append(float((error * error).mean()))
        slope = 2 * error / error.size
        for n in reversed(depth):
            slope = slope * (values[n + 1] > 0)
            by_weight, by_bias = values[n].swapaxes(1, 2) @ slope, slope.sum(1, keepdims=True)
            slope = slope @ arrays[f"w{n}"].swapaxes(1, 2)
            arrays[f"w{n}"] -= RATE * by_weight
            arrays[f"b{n}"] -= RATE * by_bias
    return found


def claims(rows: Sequence[Row]) -> list[Claim]:
    """The source's claims, in training."""
    text = "; ".join(f"{r['members']} members: {r['products_before']} → {r['products_after']}" for r in rows)
    one = all(row["products_after"] == 3 * row["layers"] - 1 for row in rows)
    learnt = all(row["loss_last"] < row["loss_first"] for row in rows)
    return [
        Claim(
            "A training step is batched too: a product a layer forward, two backward (ours).",
            "–",
            f"products of a step of {quantity(rows[0]['layers'], 'layer')}, {text}",
            "holds" if one else "holds in part",
        ),
        Claim(
            "The ensemble is trained, each member on data of its own (ours).",
            "–",
            f"{STEPS} steps have the losses of NumPy in float64 to 1e-5",
            "holds" if learnt else "does not hold",
        ),
    ]


def line(row: Row) -> str:
    """A row for a person."""
    return (
        f"training {row['members']} members: {row['products_before']} products → {row['products_after']}, "
        f"{quantity(row['kernels'], 'kernel')} a step, loss {row['loss_first']:.4f} → {row['loss_last']:.4f}"
    )
