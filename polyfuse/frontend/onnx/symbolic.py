"""Compute with symbolic sizes: the chains of Shape, Gather, Mul and Concat that exporters write.

    known ::= array of numbers | array of sizes    objects to NumPy: integers, and affine sizes such as N // 2

The second kind is what Shape gives of a value with a symbolic size. Reshape, Expand, Slice and ConstantOfShape take it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper

from polyfuse.frontend.onnx.operators.registry import Array, is_symbolic, numbered
from polyfuse.nn.sizes import Size


def computed(node: onnx.NodeProto, operands: Sequence[Array | None]) -> tuple[Array, ...] | None:
    """Compute a node on sizes.

    Args:
        node: The node.
        operands: Arrays, of which at least one has symbolic sizes; None for one that is left out.

    Returns:
        The result; None where it is none that sizes have, such as the product of two symbolic ones.
    """
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type in ARITHMETIC:
        first, second = operands
        if first is None or second is None or {first.dtype.kind, second.dtype.kind} - set("iO"):
            return None
        return _elementwise(ARITHMETIC[node.op_type], first, second)
    if node.op_type not in ARRANGED:
        return None
    found = ARRANGED[node.op_type](attributes, *operands)
    return None if found is None else (numbered(np.asarray(found)),)


def _elementwise(
    operation: Callable[[Any, Any], Size | None], x: Array, y: Array
) -> tuple[Array, ...] | None:
    shape = np.broadcast_shapes(x.shape, y.shape)
    found = np.empty(shape, object)
    pairs = zip(np.broadcast_to(x, shape).flat, np.broadcast_to(y, shape).flat, strict=True)
    for place, (a, b) in zip(np.ndindex(shape), pairs, strict=True):
        size = operation(*(int(one) if isinstance(one, np.integer) else one for one in (a, b)))
        if size is None:
            return None
        found[place] = size
    return (numbered(found),)


def _times(x: Size, y: Size) -> Size | None:
    if isinstance(y, int):
        return x * y
    return y * x if isinstance(x, int) else None


def _over(x: Size, y: Size) -> Size | None:
    """The quotient, which ONNX cuts off towards 0: of sizes, none is negative."""
    return x // y if isinstance(y, int) and y > 0 else None


ARITHMETIC: Mapping[str, Callable[[Any, Any], Size | None]] = {
    "Add": lambda x, y: x + y,
    "Sub": lambda x, y: x - y,
    "Mul": _times,
    "Div": _over,
}
"""Operators on pairs of sizes; None for what is not affine."""


def _cast(attributes: Mapping[str, Any], x: Array) -> Array | None:
    return x if attributes["to"] in (onnx.TensorProto.INT64, onnx.TensorProto.INT32) else None


def _slice(
    _: Mapping[str, Any],
    x: Array,
    starts: Array,
    ends: Array,
    axes: Array | None = None,
    steps: Array | None = None,
) -> Array | None:
    if any(map(is_symbolic, (starts, ends))) or x.ndim != 1:
        return None
    step = 1 if steps is None else int(steps[0])
    return x[slice(int(starts[0]), max(int(ends[0]), -len(x) - 1), step)] if step > 0 else None


def _squeezed(_: Mapping[str, Any], x: Array, axes: Array | None = None) -> Array:
    return x.squeeze() if axes is None else x.squeeze(tuple(int(axis) for axis in axes))


ARRANGED: Mapping[str, Callable[..., Any]] = {
    "Cast": _cast,
    "Concat": lambda attributes, *parts: np.concatenate(parts, attributes["axis"]),
    "Gather": lambda attributes, x, at: None if is_symbolic(at) else x.take(at, attributes.get("axis", 0)),
    "Identity": lambda attributes, x: x,
    "Reshape": lambda attributes, x, shape: (
        None if is_symbolic(shape) else x.reshape([int(size) for size in shape])
    ),
    "Slice": _slice,
    "Squeeze": _squeezed,
    "Unsqueeze": lambda attributes, x, axes: np.expand_dims(x, tuple(int(axis) for axis in axes)),
}
"""Operators that put sizes elsewhere."""
