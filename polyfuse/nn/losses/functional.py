"""Losses as functions on values, under torch's names: each is reduced to a mean, to a sum, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np

from polyfuse.errors import BadArgument
from polyfuse.nn.elementwise import log_sigmoid
from polyfuse.nn.functional import log_softmax, mean, sum
from polyfuse.nn.graph import INTEGERS, Input, Value, as_value, check_value, pointwise
from polyfuse.nn.losses.operations import OwnClass
from polyfuse.nn.nest_writer import Array
from polyfuse.nn.shape.embedding import embedding
from polyfuse.nn.sizes import number

Reduction = Literal["mean", "sum", "none"]


def cross_entropy(
    x: Value, target: Value, weight: Array | None = None, reduction: Reduction = "mean"
) -> Value:
    """`nll_loss(log_softmax(x), target)`, or the mean of `-sum(target * log_softmax(x))` for probabilities.

    Tensors: those of `log_softmax` and of `nll_loss`.

    Args:
        x: Scores (N, C, …), or (C,) for a single input.
        target: Class numbers (N, …), an input of integers; or probabilities of the shape of x.
        weight: A factor for each class (C,), for class numbers alone.
        reduction: "mean" divides by the weights of the rows' classes (by N for probabilities), "sum", or "none".

    Returns:
        One number, or with "none" the losses (N, …).

    Raises:
        BadArgument: if shapes do not fit, or `target` is computed from integers.
    """
    check_value("cross_entropy", x)
    check_value("cross_entropy", target)
    axis = _classes_axis("cross_entropy", x)
    logarithms = log_softmax(x, axis)
    if target.dtype in INTEGERS:
        return nll_loss(logarithms, target, weight, reduction)
    _check_reduction("cross_entropy", reduction)
    if weight is not None:
        raise BadArgument("cross_entropy: weight= is for class numbers; multiply the probabilities by it")
    _check_shapes("cross_entropy", x, target)
    return _reduced(sum(-(logarithms * target), axis), reduction)


def nll_loss(x: Value, target: Value, weight: Array | None = None, reduction: Reduction = "mean") -> Value:
    """The negative log-likelihood of each row's own class. Statements own_init, own; tensors classes, l.

    A call raises BadArgument for numbers that are not classes; negative numbers are not.

    Args:
        x: Log-probabilities (N, C, …), or (C,) for a single input.
        target: Class numbers (N, …): an input of integers.
        weight: A factor for each class (C,); 1 by default.
        reduction: "mean" divides by the sum of the weights of the rows' classes, "sum", or "none".

    Returns:
        One number, or with "none" the losses (N, …).

    Raises:
        BadArgument: if shapes do not fit, or `target` is not an input of integers.
    """
    check_value("nll_loss", x)
    check_value("nll_loss", target)
    _check_reduction("nll_loss", reduction)
    axis = _classes_axis("nll_loss", x)
    if target.dtype not in INTEGERS or not isinstance(target.source, Input):
        raise BadArgument(
            f"nll_loss: {target!r} does not hold class numbers; expected an input such as "
            "nn.input('target', (64,), 'int64'), so that a call can check them"
        )
    count = number("nll_loss: the number of classes", x.shape[axis])
    given = np.ones(count) if weight is None else np.asarray(weight)
    table = as_value(given.astype(x.dtype), x.dtype)
    operation = OwnClass(axis)
    operands = x, target, table
    losses = Value(operation, operands, operation.shape([one.shape for one in operands]), x.dtype)
    if reduction == "mean" and weight is not None:
        return sum(losses) / sum(embedding(target, table))
    return _reduced(losses, reduction)


def mse_loss(x: Value, target: Value, reduction: Reduction = "mean") -> Value:
    """The squared error, `(x - target) ** 2`. Statement mse, tensor a; then a sum or a mean.

    Args:
        x: The value.
        target: What it should be, of the same shape.
        reduction: "mean", "sum" or "none".

    Returns:
        One number, or with "none" a value of the shape of x.

    Raises:
        BadArgument: if the shapes differ.
    """
    return _elementwise("mse_loss", x, target, reduction, lambda: pointwise("mse", _SQUARE, x, target))


def l1_loss(x: Value, target: Value, reduction: Reduction = "mean") -> Value:
    """The absolute error, `abs(x - target)`; its slope at 0 is 0. Statement l1, tensor a; then a sum or a mean.

    Args:
        x: The value.
        target: What it should be, of the same shape.
        reduction: "mean", "sum" or "none".

    Returns:
        One number, or with "none" a value of the shape of x.

    Raises:
        BadArgument: if the shapes differ.
    """
    return _elementwise("l1_loss", x, target, reduction, lambda: pointwise("l1", "abs({0} - {1})", x, target))


def smooth_l1_loss(x: Value, target: Value, beta: float = 1.0, reduction: Reduction = "mean") -> Value:
    """`d * d / (2 beta)` where the absolute error d is below beta, else `d - beta / 2`. Statement smooth_l1, tensor a.

    Girshick, Fast R-CNN (2015), section 3.

    Args:
        x: The value.
        target: What it should be, of the same shape.
        beta: Where the parabola ends; 0 is `l1_loss`.
        reduction: "mean", "sum" or "none".

    Returns:
        One number, or with "none" a value of the shape of x.

    Raises:
        BadArgument: if the shapes differ, or beta is negative.
    """
    if not beta >= 0:
        raise BadArgument(f"smooth_l1_loss: beta={beta!r}, expected a number of at least 0")
    if beta == 0:
        return l1_loss(x, target, reduction)
    d, end = "abs({0} - {1})", repr(float(beta))
    parabola = f"({{0}} - {{1}}) * ({{0}} - {{1}}) * {0.5 / float(beta)!r}"
    text = f"where({d} >= {end}, {d} - {0.5 * float(beta)!r}, {parabola})"
    return _elementwise(
        "smooth_l1_loss", x, target, reduction, lambda: pointwise("smooth_l1", text, x, target)
    )


def binary_cross_entropy_with_logits(x: Value, target: Value, reduction: Reduction = "mean") -> Value:
    """`(1 - target) * x - log_sigmoid(x)`, without overflow. Statements of `log_sigmoid`, bce; tensors a.

    Args:
        x: Scores, before the sigmoid.
        target: Probabilities, of the same shape.
        reduction: "mean", "sum" or "none".

    Returns:
        One number, or with "none" a value of the shape of x.

    Raises:
        BadArgument: if the shapes differ.
    """

    def losses() -> Value:
        return pointwise("bce", "(1.0 - {1}) * {0} - {2}", x, target, log_sigmoid(x))

    return _elementwise("binary_cross_entropy_with_logits", x, target, reduction, losses)


_SQUARE = "({0} - {1}) * ({0} - {1})"


def _elementwise(
    name: str, x: Value, target: Value, reduction: Reduction, losses: Callable[[], Value]
) -> Value:
    """The reduced losses, after what is given has been checked."""
    check_value(name, x)
    check_value(name, target)
    _check_reduction(name, reduction)
    _check_shapes(name, x, target)
    return _reduced(losses(), reduction)


def _check_shapes(name: str, x: Value, target: Value) -> None:
    if x.shape != target.shape:
        raise BadArgument(f"{name}: the target {target.shape} must have the shape of x, {x.shape}")


def _check_reduction(name: str, reduction: str) -> None:
    if reduction not in get_args(Reduction):
        raise BadArgument(f"{name}: reduction is {reduction!r}, expected 'mean', 'sum' or 'none'")


def _reduced(losses: Value, reduction: Reduction) -> Value:
    if reduction == "none" or losses.rank == 0:
        return losses
    return sum(losses) if reduction == "sum" else mean(losses)


def _classes_axis(name: str, x: Value) -> int:
    if x.rank == 0:
        raise BadArgument(f"{name}: {x!r} has no axis of classes; expected (N, C, …), or (C,)")
    return min(x.rank - 1, 1)
