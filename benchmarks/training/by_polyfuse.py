"""Steps by polyfuse: `pf.train_step`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import polyfuse as pf
from benchmarks.training.networks import Array, Network
from benchmarks.training.steps import MOMENTUM, Step
from polyfuse import nn

LOSSES = {
    "mse": nn.MSELoss(),
    "cross_entropy": nn.CrossEntropyLoss(),
    "bce": nn.BCEWithLogitsLoss(),
}


class Functions:
    """polyfuse's operations."""

    linear = staticmethod(nn.linear)
    relu, relu6, gelu = staticmethod(nn.relu), staticmethod(nn.relu6), staticmethod(nn.gelu)
    sigmoid, exp, sin, cos = map(staticmethod, (nn.sigmoid, nn.exp, nn.sin, nn.cos))
    cumsum, reshape, matmul = map(staticmethod, (nn.cumsum, nn.reshape, nn.matmul))
    concat, stack, transpose = map(staticmethod, (nn.concat, nn.stack, nn.transpose))
    mean, sum = staticmethod(nn.mean), staticmethod(nn.sum)

    @staticmethod
    def conv(x: Any, weight: Any, bias: Any, stride: int, padding: int, groups: int = 1) -> Any:
        return nn.conv2d(x, weight, bias, stride=stride, padding=padding, groups=groups)

    @staticmethod
    def max_pool(x: Any, window: int, stride: int, padding: int) -> Any:
        return nn.max_pool(x, window, stride=stride, padding=padding)

    @staticmethod
    def batch_norm(x: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any:
        norm = nn.BatchNorm(len(gamma))
        norm.gamma, norm.beta, norm.mean, norm.var = gamma, beta, mean, var
        return norm(x)

    @staticmethod
    def layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
        return nn.layer_norm(x, gamma.shape, gamma, beta)

    @staticmethod
    def rows(table: Any, index: Any) -> Any:
        return nn.embedding(index, table)

    @staticmethod
    def letters(index: Any, count: int) -> Any:
        return nn.embedding(index, np.eye(count, dtype=np.float32))

    @staticmethod
    def lstm(x: Any, w: Any, u: Any, b: Any, bu: Any) -> Any:
        return nn.lstm(x, w, u, b, bu)[0]

    @staticmethod
    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = nn.matmul(q, nn.transpose(k, 2, 3)) * float(q.shape[3] ** -0.5)
        return nn.matmul(nn.softmax(scores, -1), v)


class Written(nn.Module):
    """A network as a model; its weights are copies."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.weights = {name: array.copy() for name, array in network.weights.items()}

    def arrays(self) -> Iterator[Array]:
        yield from self.weights.values()

    def forward(self, *inputs: nn.Value) -> nn.Value:
        return self.network.forward(Functions, self.weights, *inputs)


class PolyfuseStep(Step):
    """The executable of `pf.train_step`."""

    def __init__(self, network: Network, lr: float, **options: Any) -> None:
        self.model = Written(network)
        inputs = [nn.input(f"x{n}", x.shape, str(x.dtype)) for n, x in enumerate(network.inputs)]
        self.batch = (*network.inputs, network.target)
        self.step = pf.train_step(
            self.model, LOSSES[network.loss], pf.optim.SGD(lr, MOMENTUM), inputs=inputs, **options
        )

    def __call__(self) -> float:
        return self.step(*self.batch)

    def parameters(self) -> dict[str, Array]:
        return self.model.weights


def forward_nest(network: Network) -> pf.Nest:
    """The network without training, for the time of its compile."""
    inputs = [nn.input(f"x{n}", x.shape, str(x.dtype)) for n, x in enumerate(network.inputs)]
    return pf.lower(Written(network)(*inputs))
