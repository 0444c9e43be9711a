"""Importers of reductions: sums, extremes, norms, places, softmax, running sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf

import numpy as np

from polyfuse import nn
from polyfuse.frontend.onnx.operators.registry import (
    ONNX,
    Node,
    Operand,
    axes_within,
    floating,
    onnx_op,
    value_of,
)
from polyfuse.ir.number_types import NUMBER_TYPES
from polyfuse.nn.graph import Value, pointwise
from polyfuse.nn.sizes import number

Reduction = Callable[[Value, tuple[int, ...], bool], Value]

REDUCTIONS: dict[str, Reduction] = {
    "ReduceL1": lambda x, axes, keep: nn.norm(x, axes, 1, keep),
    "ReduceL2": lambda x, axes, keep: nn.norm(x, axes, 2, keep),
    "ReduceLogSum": lambda x, axes, keep: nn.log(nn.sum(x, axes, keep)),
    "ReduceLogSumExp": nn.logsumexp,
    "ReduceMax": nn.max,
    "ReduceMean": nn.mean,
    "ReduceMin": nn.min,
    "ReduceProd": nn.prod,
    "ReduceSum": nn.sum,
    "ReduceSumSquare": lambda x, axes, keep: nn.sum(nn.square(x), axes, keep),
}


EMPTY: Mapping[str, float] = {
    "ReduceL1": 0.0,
    "ReduceL2": 0.0,
    "ReduceLogSumExp": -inf,
    "ReduceMax": -inf,
    "ReduceMin": inf,
}
"""What reductions give of no elements, where `polyfuse.nn` refuses them; integers have their limits for infinities."""


def _of_nothing(operator: str, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
    sizes = [1 if d in axes else size for d, size in enumerate(x.shape) if keepdims or d not in axes]
    number, known = EMPTY[operator], NUMBER_TYPES[x.dtype]
    if known.kind != "float" and number:
        number = known.largest if number > 0 else known.least
    return nn.expand(nn.constant(np.array(number, x.dtype)), sizes)


def _importer(reduce: Reduction) -> Callable[..., Value]:
    def reduced(
        node: Node,
        x: Operand,
        given: Operand = None,
        axes: Sequence[int] | None = None,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Value:
        value = value_of(x)
        named = tuple(axes or ()) if given is None else node.integers(given, "axes")
        if not named and noop_with_empty_axes:
            return value
        along = axes_within(named, value.rank) if named else tuple(range(value.rank))
        if node.operator in EMPTY and any(value.shape[axis] == 0 for axis in along):
            return _of_nothing(node.operator, value, along, bool(keepdims))
        return reduce(value, along, bool(keepdims)) if along else reduce(nn.reshape(value, (1,)), (0,), False)

    return reduced


ONNX.update({name: _importer(reduce) for name, reduce in REDUCTIONS.items()})


def _place(function: Callable[[Value, int, bool], Value]) -> Callable[..., Value]:
    def place(_: Node, x: Operand, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Value:
        value = value_of(x)
        if not select_last_index:
            return function(value, axis, bool(keepdims))
        (along,) = axes_within((axis,), value.rank)
        return (
            number("ArgMax", value.shape[along]) - 1 - function(nn.flip(value, along), along, bool(keepdims))
        )

    return place


ONNX["ArgMax"], ONNX["ArgMin"] = _place(nn.argmax), _place(nn.argmin)


@onnx_op("Softmax")
def softmax(_: Node, x: Operand, axis: int = -1) -> Value:
    """Along an axis."""
    return nn.softmax(value_of(x), axis)


@onnx_op("LogSoftmax")
def log_softmax(_: Node, x: Operand, axis: int = -1) -> Value:
    """The logarithm of softmax along an axis."""
    return nn.log_softmax(value_of(x), axis)


@onnx_op("Hardmax")
def hardmax(_: Node, x: Operand, axis: int = -1) -> Value:
    """1 at the first of the largest values along an axis, else 0."""
    value = floating(x)
    (along,) = axes_within((axis,), value.rank)
    shape = [1] * value.rank
    shape[along] = number("Hardmax", value.shape[along])
    places = nn.constant(np.arange(shape[along]).reshape(shape))
    return nn.cast(nn.equal(nn.argmax(value, along, keepdims=True), places), value.dtype)


@onnx_op("LpNormalization")
def lp_normalization(_: Node, x: Operand, axis: int = -1, p: int = 2) -> Value:
    """Divided by the norm along an axis; 0 where the norm is 0."""
    value = floating(x)
    return pointwise("unit", "where({1} == 0.0, 0.0, {0} / {1})", value, nn.norm(value, axis, p, True))


def _scanned(function: Callable[[Value, int], Value], neutral: float) -> Callable[..., Value]:
    def scan(node: Node, x: Operand, axis: Operand, exclusive: int = 0, reverse: int = 0) -> Value:
        value = value_of(x)
        (along,) = axes_within(node.integers(axis, "axis"), value.rank)
        value = nn.flip(value, along) if reverse else value
        if exclusive and value.shape[along]:
            widths = [(int(d == along), 0) for d in range(value.rank)]
            value = nn.pad(nn.narrow(value, along, 0, value.shape[along] - 1), widths, neutral)
        found = function(value, along)
        return nn.flip(found, along) if reverse else found

    return scan


ONNX["CumSum"], ONNX["CumProd"] = _scanned(nn.cumsum, 0.0), _scanned(nn.cumprod, 1.0)
