"""Importers of reductions: sums, means, extremes, variances, softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from polyfuse import nn
from polyfuse.frontend.importers import Unsupported, converted
from polyfuse.frontend.torch.aten.registry import ATEN, Result, aten, floating
from polyfuse.nn.graph import Value, pointwise

Dims = int | Sequence[int] | None


def _axes(dim: Dims) -> Dims:
    """ATen's dimensions as axes: none, or an empty list, are all."""
    return None if dim is None or dim == [] or dim == () else dim


def _folded(function: Callable[..., Value]) -> Callable[..., Value]:
    def reduce(
        result: Result, x: Any, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
    ) -> Value:
        value: Value = converted(x, floating(result))
        if value.rank == 0:
            return value * 1.0
        return function(value, _axes(dim), keepdim)

    return reduce


for _name, _function in {
    "sum": nn.sum,
    "mean": nn.mean,
    "amax": nn.max,
    "amin": nn.min,
    "prod": nn.prod,
}.items():
    _importer = _folded(_function)
    for _overload in ("default", "dim_IntList", "dim", "dim_int"):
        ATEN[f"aten.{_name}.{_overload}"] = _importer
ATEN["aten.max.default"], ATEN["aten.min.default"] = ATEN["aten.amax.default"], ATEN["aten.amin.default"]
ATEN["aten.logsumexp.default"] = _folded(nn.logsumexp)


@aten("max.dim")
def max_dim(result: Result, x: Any, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """The maximum and its place."""
    value = converted(x, floating(result))
    return nn.max(value, dim, keepdim), nn.argmax(value, dim, keepdim)


@aten("min.dim")
def min_dim(result: Result, x: Any, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """The minimum and its place."""
    value = converted(x, floating(result))
    return nn.min(value, dim, keepdim), nn.argmin(value, dim, keepdim)


def _place(function: Callable[[Value, int, bool], Value]) -> Callable[..., Value]:
    def place(_: Result, x: Any, dim: int | None = None, keepdim: bool = False) -> Value:
        if dim is None:
            x = nn.reshape(x, (-1,))
        return function(x, 0 if dim is None else dim, keepdim)

    return place


ATEN["aten.argmax.default"], ATEN["aten.argmin.default"] = _place(nn.argmax), _place(nn.argmin)


def _of_truth(function: Callable[..., Value]) -> Callable[..., Value]:
    def reduce(_: Result, x: Any, dim: Dims = None, keepdim: bool = False) -> Value:
        return function(nn.not_equal(x, 0.0), _axes(dim), keepdim)

    return reduce


for _overload in ("default", "dim", "dims"):
    ATEN[f"aten.any.{_overload}"], ATEN[f"aten.all.{_overload}"] = _of_truth(nn.max), _of_truth(nn.min)


@aten("cumsum.default")
def cumsum(result: Result, x: Any, dim: int, *, dtype: Any = None) -> Value:
    """The running sums along an axis."""
    value = converted(x, floating(result))
    return nn.cumsum(value, dim) if value.rank else value


@aten("cumprod.default")
def cumprod(result: Result, x: Any, dim: int, *, dtype: Any = None) -> Value:
    """The running products along an axis."""
    value = converted(x, floating(result))
    return nn.cumprod(value, dim) if value.rank else value


def _correction(correction: Any, unbiased: Any) -> int:
    value = 1 if correction is None else correction
    if int(value) != value:
        raise Unsupported(f"correction {value}: expected a whole number")
    return int(value) if unbiased is None else int(bool(unbiased))


def _spread(x: Any, result: Result, dim: Dims, correction: int, keepdim: bool) -> Value:
    return nn.var(converted(x, floating(result)), _axes(dim), correction, keepdim)


@aten("var.correction")
def variance(
    result: Result, x: Any, dim: Dims = None, *, correction: Any = None, keepdim: bool = False
) -> Value:
    """The variance, with Bessel's correction unless another is given."""
    return _spread(x, result, dim, _correction(correction, None), keepdim)


@aten("std.correction")
def deviation(
    result: Result, x: Any, dim: Dims = None, *, correction: Any = None, keepdim: bool = False
) -> Value:
    """The root of the variance."""
    return nn.sqrt(_spread(x, result, dim, _correction(correction, None), keepdim))


@aten("var_mean.correction")
def var_mean(
    result: Result, x: Any, dim: Dims = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Value, Value]:
    """The variance and the mean."""
    value = converted(x, floating(result))
    return _spread(x, result, dim, _correction(correction, None), keepdim), nn.mean(
        value, _axes(dim), keepdim
    )


@aten("linalg_vector_norm.default")
def vector_norm(
    result: Result, x: Any, order: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> Value:
    """The norms of order 1, 2 and inf."""
    if order not in (1, 2, float("inf")):
        raise Unsupported(f"a norm of order {order}; of 1, 2 and inf it is computed")
    return nn.norm(converted(x, floating(result)), _axes(dim), order, keepdim)


@aten("_softmax.default", "softmax.int")
def softmax(result: Result, x: Any, dim: int, *_: Any) -> Value:
    """Softmax along an axis; a second argument says whether a half is to be computed in float32, as it always is."""
    return nn.softmax(converted(x, floating(result)), dim)


@aten("_log_softmax.default", "log_softmax.int")
def log_softmax(result: Result, x: Any, dim: int, *_: Any) -> Value:
    """The logarithm of softmax along an axis."""
    return nn.log_softmax(converted(x, floating(result)), dim)


@aten("_softmax_backward_data.default")
def softmax_backward(result: Result, gradient: Any, y: Any, dim: int, _: Any) -> Value:
    """`y * (gradient - Σ gradient * y)`."""
    dtype = floating(result)
    gradient, y = converted(gradient, dtype), converted(y, dtype)
    total = nn.sum(gradient * y, dim, keepdims=True)
    return pointwise("softmax_backward", "{1} * ({0} - {2})", gradient, y, total)


@aten("_log_softmax_backward_data.default")
def log_softmax_backward(result: Result, gradient: Any, y: Any, dim: int, _: Any) -> Value:
    """`gradient - exp(y) * Σ gradient`."""
    dtype = floating(result)
    gradient, y = converted(gradient, dtype), converted(y, dtype)
    total = nn.sum(gradient, dim, keepdims=True)
    return pointwise("log_softmax_backward", "{0} - exp({1}) * {2}", gradient, y, total)


@aten("mse_loss.default")
def mse_loss(result: Result, x: Any, y: Any, reduction: int = 1) -> Value:
    """The mean (1), the sum (2) or each (0) of the squares of x - y."""
    dtype = floating(result)
    squares = nn.square(converted(x, dtype) - converted(y, dtype))
    return (squares, nn.mean(squares), nn.sum(squares))[reduction]
