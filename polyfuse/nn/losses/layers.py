"""Losses as layers, under torch's names: each is called with a value and its target."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from polyfuse.errors import BadArgument
from polyfuse.ir import DType
from polyfuse.nn.graph import Value
from polyfuse.nn.losses import functional as losses
from polyfuse.nn.losses.functional import Reduction
from polyfuse.nn.nest_writer import Array
from polyfuse.nn.sizes import Shape


@dataclass(frozen=True, eq=False)
class Loss:
    """A function from a value and its target to a loss. `reduction` is "mean", "sum" or "none"."""

    @abstractmethod
    def forward(self, x: Value, target: Value) -> Value:
        """Return the loss.

        Args:
            x: What a model returns.
            target: What it should be.

        Returns:
            The loss.
        """

    def __call__(self, x: Value, target: Value) -> Value:
        """`forward`, for values only; BadArgument for arrays, which a compiled nest takes."""
        for given in (x, target):
            if not isinstance(given, Value):
                raise BadArgument(
                    f"{type(self).__name__} was called with {type(given).__name__}, expected values such as "
                    "nn.input('x', (64, 10)); to train on arrays: polyfuse.train_step(model, loss, optimizer, batch=…)"
                )
        return self.forward(x, target)

    def target_like(self, x: Value) -> tuple[Shape, DType]:
        """The shape and the element type of the target that belongs to a value."""
        return x.shape, x.dtype


@dataclass(frozen=True, eq=False)
class NLLLoss(Loss):
    """The negative log-likelihood of class numbers; see `nll_loss`.

    Attributes:
        weight: A factor for each class; None for equal ones.
        reduction: Of the losses of all elements: "mean", "sum" or "none".
    """

    weight: Array | None = None
    reduction: Reduction = "mean"

    def forward(self, x: Value, target: Value) -> Value:
        """`nll_loss`."""
        return losses.nll_loss(x, target, self.weight, self.reduction)

    def target_like(self, x: Value) -> tuple[Shape, DType]:
        """Class numbers, int64, for all axes but that of the classes."""
        return (*x.shape[: min(x.rank - 1, 1)], *x.shape[2:]), "int64"


@dataclass(frozen=True, eq=False)
class CrossEntropyLoss(NLLLoss):
    """The cross-entropy of scores with class numbers, or with probabilities; see `cross_entropy`.

    Attributes:
        weight: A factor for each class; None for equal ones.
        reduction: Of the losses of all elements: "mean", "sum" or "none".
    """

    def forward(self, x: Value, target: Value) -> Value:
        """`cross_entropy`."""
        return losses.cross_entropy(x, target, self.weight, self.reduction)


@dataclass(frozen=True, eq=False)
class MSELoss(Loss):
    """The squared error; see `mse_loss`.

    Attributes:
        reduction: Of the losses of all elements: "mean", "sum" or "none".
    """

    reduction: Reduction = "mean"

    def forward(self, x: Value, target: Value) -> Value:
        """`mse_loss`."""
        return losses.mse_loss(x, target, self.reduction)


@dataclass(frozen=True, eq=False)
class L1Loss(Loss):
    """The absolute error; see `l1_loss`.

    Attributes:
        reduction: Of the losses of all elements: "mean", "sum" or "none".
    """

    reduction: Reduction = "mean"

    def forward(self, x: Value, target: Value) -> Value:
        """`l1_loss`."""
        return losses.l1_loss(x, target, self.reduction)


@dataclass(frozen=True, eq=False)
class SmoothL1Loss(Loss):
    """A parabola below beta, the absolute error beyond; see `smooth_l1_loss`.

    Attributes:
        beta: The error at which the parabola ends.
        reduction: Of the losses of all elements: "mean", "sum" or "none".
    """

    beta: float = 1.0
    reduction: Reduction = "mean"

    def forward(self, x: Value, target: Value) -> Value:
        """`smooth_l1_loss`."""
        return losses.smooth_l1_loss(x, target, self.beta, self.reduction)


@dataclass(frozen=True, eq=False)
class BCEWithLogitsLoss(Loss):
    """The cross-entropy of sigmoids of scores; see `binary_cross_entropy_with_logits`.

    Attributes:
        reduction: Of the losses of all elements: "mean", "sum" or "none".
    """

    reduction: Reduction = "mean"

    def forward(self, x: Value, target: Value) -> Value:
        """`binary_cross_entropy_with_logits`."""
        return losses.binary_cross_entropy_with_logits(x, target, self.reduction)
