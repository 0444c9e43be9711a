"""Steps by torch: eager, and compiled by inductor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.training.networks import Array, Network
from benchmarks.training.steps import MOMENTUM, Step

LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "mse": F.mse_loss,
    "cross_entropy": F.cross_entropy,
    "bce": F.binary_cross_entropy_with_logits,
}


class Functions:
    """torch's operations. Weights of `linear` are (outside, inside), as in torch.nn.Linear."""

    linear = staticmethod(F.linear)
    relu, relu6, gelu = staticmethod(F.relu), staticmethod(F.relu6), staticmethod(F.gelu)
    sigmoid, exp, sin, cos = map(staticmethod, (torch.sigmoid, torch.exp, torch.sin, torch.cos))
    cumsum, reshape, matmul = map(staticmethod, (torch.cumsum, torch.reshape, torch.matmul))
    concat, stack, transpose = map(staticmethod, (torch.cat, torch.stack, torch.transpose))
    mean, sum, max_pool = map(staticmethod, (torch.mean, torch.sum, F.max_pool2d))
    attention = staticmethod(F.scaled_dot_product_attention)

    @staticmethod
    def conv(x: Any, weight: Any, bias: Any, stride: int, padding: int, groups: int = 1) -> Any:
        return F.conv2d(x, weight, bias, stride, padding, groups=groups)

    @staticmethod
    def batch_norm(x: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any:
        return F.batch_norm(x, mean, var, gamma, beta, training=True, momentum=0.1)

    @staticmethod
    def layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
        return F.layer_norm(x, gamma.shape, gamma, beta)

    @staticmethod
    def rows(table: Any, index: Any) -> Any:
        return F.embedding(index, table)

    @staticmethod
    def letters(index: Any, count: int) -> Any:
        return F.one_hot(index, count).float()

    @staticmethod
    def lstm(x: Any, w: Any, u: Any, b: Any, bu: Any) -> Any:
        start = x.new_zeros(1, x.shape[1], u.shape[1])
        return torch._VF.lstm(x, (start, start), [w, u, b, bu], True, 1, 0.0, True, False, False)[0]


class TorchStep(Step):
    """Loss, backward, update."""

    def __init__(self, network: Network, lr: float, compiled: bool) -> None:
        self.names = [name for name in network.weights if name not in network.statistics]
        self.weights = {name: self._own(name, array) for name, array in network.weights.items()}
        for name in self.names:
            self.weights[name].requires_grad_()
        self.batch = [torch.from_numpy(x) for x in (*network.inputs, network.target)]
        parameters = [self.weights[name] for name in self.names]
        optimizer = torch.optim.SGD(parameters, lr=lr, momentum=MOMENTUM)
        value = LOSSES[network.loss]

        def loss(*batch: Any) -> Any:
            return value(network.forward(Functions, self.weights, *batch[:-1]), batch[-1])

        def update() -> None:
            optimizer.step()

        self.loss = torch.compile(loss, dynamic=False) if compiled else loss
        self.update = torch.compile(update) if compiled else update
        self.optimizer = optimizer

    def __call__(self) -> float:
        loss = self.loss(*self.batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.update()
        return float(loss.detach())

    def parameters(self) -> dict[str, Array]:
        own = {name: array.detach().numpy() for name, array in self.weights.items()}
        return {name: array.T if name.endswith(".weight") else array for name, array in own.items()}

    @staticmethod
    def _own(name: str, array: Array) -> Any:
        return torch.from_numpy(np.array(array.T if name.endswith(".weight") else array, order="C"))
