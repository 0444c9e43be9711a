"""Optimizers as the statements of one step, under torch's names and with its formulas.

In a text {p} is a weight's element, {next} what it becomes, {g} its gradient's, and each of `slots` an element that
the optimizer keeps for it, 0 at first. Numbers of a step are computed once, in float64, from the learning rate {lr}
and the number of the step {t}, which begins at 1.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from polyfuse.errors import BadArgument


@dataclass(frozen=True)
class Optimizer:
    """How a step changes weights.

    Attributes:
        lr: The learning rate; a training step can change it between calls.
    """

    lr: float

    slots: ClassVar[tuple[str, ...]] = ()
    """What an optimizer may keep for each element of a weight; `kept` are those that this one does."""

    def __post_init__(self) -> None:
        self._check(lr=self.lr)

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of what is kept for each element of a weight."""
        return self.slots

    @property
    @abstractmethod
    def numbers(self) -> Mapping[str, str]:
        """The numbers of a step as texts in {lr} and {t}, by name."""

    @property
    @abstractmethod
    def updates(self) -> Mapping[str, str]:
        """The statements for one weight, in their order, by name."""

    def _check(self, **amounts: float) -> None:
        for name, value in amounts.items():
            if not value >= 0:
                raise BadArgument(f"{type(self).__name__}: {name}={value!r}, expected a number of at least 0")


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent: `m = momentum * m + g; p = p - lr * m`, with g + weight_decay * p for g.

    With `nesterov` p moves by g + momentum * m (Sutskever et al., On the importance of initialization and momentum in
    deep learning, 2013). Without momentum nothing is kept. BadArgument is raised for a negative number, and for
    `nesterov` without momentum.

    Attributes:
        lr: The learning rate; a training step can change it between calls.
        momentum: The factor of the last step.
        nesterov: True for Nesterov's form of momentum.
        weight_decay: The factor of the weight that is added to its gradient.
    """

    lr: float = 1e-3
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    slots: ClassVar[tuple[str, ...]] = ("momentum",)

    def __post_init__(self) -> None:
        self._check(lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay)
        if self.nesterov and not self.momentum:
            raise BadArgument("SGD: nesterov=True needs a momentum, such as momentum=0.9")

    @property
    def kept(self) -> tuple[str, ...]:
        """The momentum, if there is one."""
        return self.slots if self.momentum else ()

    @property
    def numbers(self) -> Mapping[str, str]:
        """The rate."""
        return {"rate": "{lr}"}

    @property
    def updates(self) -> Mapping[str, str]:
        """The momentum, then the weight."""
        slope = _with_decay(self.weight_decay)
        if not self.momentum:
            return {"update": f"{{next}} = {{p}} - {{rate}} * {slope}"}
        factor = repr(float(self.momentum))
        step = f"({slope} + {factor} * {{momentum}})" if self.nesterov else "{momentum}"
        return {
            "momentum": f"{{momentum}} = {factor} * {{momentum}} + {slope}",
            "update": f"{{next}} = {{p}} - {{rate}} * {step}",
        }


@dataclass(frozen=True)
class Adam(Optimizer):
    """Running means of the gradient and of its square, corrected for their start at 0 (Kingma and Ba, Adam, 2015).

    `m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g²; p = p - lr / (1 - b1 ** t) * m / (sqrt(v / (1 - b2 ** t)) + eps)`,
    with g + weight_decay * p for g. BadArgument is raised for a negative number, and for a beta outside of [0, 1).

    Attributes:
        lr: The learning rate; a training step can change it between calls.
        betas: The factors of the running means of the gradient and of its square.
        eps: What is added to the root, so that nothing is divided by 0.
        weight_decay: The factor of the weight that is added to its gradient.
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0

    slots: ClassVar[tuple[str, ...]] = ("mean", "square")

    def __post_init__(self) -> None:
        self._check(lr=self.lr, eps=self.eps, weight_decay=self.weight_decay)
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise BadArgument(
                f"{type(self).__name__}: betas={self.betas!r}, expected two numbers from 0 to below 1"
            )

    @property
    def numbers(self) -> Mapping[str, str]:
        """The rate with the first mean's correction, and the second one's root."""
        first, second = (repr(float(beta)) for beta in self.betas)
        return {"rate": f"{{lr}} / (1.0 - {first} ** {{t}})", "root": f"sqrt(1.0 - {second} ** {{t}})"}

    @property
    def updates(self) -> Mapping[str, str]:
        """Both means, then the weight."""
        return self._updates(_with_decay(self.weight_decay), "{p}")

    def _updates(self, slope: str, p: str) -> Mapping[str, str]:
        (first, rest), (second, other) = ((repr(float(b)), repr(1 - float(b))) for b in self.betas)
        return {
            "mean": f"{{mean}} = {first} * {{mean}} + {rest} * {slope}",
            "square": f"{{square}} = {second} * {{square}} + {other} * {slope} * {slope}",
            "update": f"{{next}} = {p} - {{rate}} * ({{mean}} / (sqrt({{square}}) / {{root}} + {float(self.eps)!r}))",
        }


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with the weights' decay apart from the gradient: p is first multiplied by 1 - lr * weight_decay.

    Loshchilov and Hutter, Decoupled Weight Decay Regularization (2019).

    Attributes:
        lr: The learning rate; a training step can change it between calls.
        betas: The factors of the running means of the gradient and of its square.
        eps: What is added to the root, so that nothing is divided by 0.
        weight_decay: The factor of the learning rate that a weight loses in each step.
    """

    weight_decay: float = 1e-2

    @property
    def numbers(self) -> Mapping[str, str]:
        """Those of Adam, and the decay's factor."""
        return {**super().numbers, "decay": f"1.0 - {{lr}} * {float(self.weight_decay)!r}"}

    @property
    def updates(self) -> Mapping[str, str]:
        """Both means, then the weight."""
        return self._updates("{g}", "{p} * {decay}")


def _with_decay(weight_decay: float) -> str:
    return f"({{g}} + {float(weight_decay)!r} * {{p}})" if weight_decay else "{g}"
