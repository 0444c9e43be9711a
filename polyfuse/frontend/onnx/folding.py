"""Compute nodes whose operands are all known, by ONNX's own reference implementation.

Only operators of ONNX's own domain are computed, one at a time, on arrays: no loop, no function of the model, nothing
random, and no result of more than FOLDED_ELEMENTS elements.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx
import onnx.helper
from onnx.reference import ReferenceEvaluator

from polyfuse.frontend.onnx.operators.registry import FOLDED_ELEMENTS

Array = np.ndarray[Any, Any]

RANDOM = frozenset(
    {"Bernoulli", "Dropout", "Multinomial"}
    | {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
"""Operators that draw random numbers."""

NOT_FOLDED = RANDOM | {"Constant", "ImageDecoder"}
"""Operators that are not computed here; a Constant is read as it stands."""


def _shape(array: Array | None) -> tuple[int, ...]:
    return () if array is None else array.shape


def _flat(array: Array | None) -> list[int]:
    return [] if array is None else [int(number) for number in array.reshape(-1)]


def _range(operands: Sequence[Array | None]) -> int:
    start, limit, delta = (float(x.reshape(-1)[0]) if x is not None else 0.0 for x in operands)
    return (
        max(0, int(np.ceil((limit - start) / delta))) if delta and np.isfinite((limit - start) / delta) else 0
    )


def _padded(operands: Sequence[Array | None]) -> int:
    most = max((abs(width) for width in _flat(operands[1])), default=0)
    return prod(size + 2 * most for size in _shape(operands[0]))


def _resized(operands: Sequence[Array | None]) -> int:
    x, _, scales, sizes = (*operands, None, None, None)[:4]
    if sizes is not None and sizes.size:
        return prod(_flat(sizes))
    factor = 1.0 if scales is None else float(np.prod(scales.astype(np.float64)))
    return int(prod(_shape(x)) * factor)


GROWN: Mapping[str, Callable[[Sequence[Array | None]], int]] = {
    "ConstantOfShape": lambda operands: prod(_flat(operands[0])),
    "Expand": lambda operands: prod(np.broadcast_shapes(_shape(operands[0]), _flat(operands[1]))),
    "OneHot": lambda operands: prod(_shape(operands[0])) * max(_flat(operands[1]), default=0),
    "Pad": _padded,
    "Range": _range,
    "Resize": _resized,
    "Tile": lambda operands: prod(_shape(operands[0])) * prod(_flat(operands[1])),
}
"""Operators whose results are as large as numbers among their operands say, and how large."""


def elements(operator: str, operands: Sequence[Array | None]) -> int:
    """Return a bound for the number of elements of a result."""
    if operator in GROWN:
        return GROWN[operator](operands)
    sizes = [x.size for x in operands if x is not None]
    if operator == "Concat":
        return sum(sizes)
    try:
        return prod(np.broadcast_shapes(*(x.shape for x in operands if x is not None)))
    except ValueError:
        return prod(max(size, 1) for size in sizes)


def folded(node: onnx.NodeProto, opset: int, operands: Sequence[Array | None]) -> tuple[Array, ...] | None:
    """Compute a node on arrays.

    Args:
        node: The node, whose attributes refer to no others.
        opset: The version of ONNX's operators.
        operands: Its operands; None for one that is left out.

    Returns:
        The results; None for a node that is not computed here, or that ONNX's implementation does not compute.
    """
    if node.domain not in ("", "ai.onnx") or node.op_type in NOT_FOLDED:
        return None
    if any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in node.attribute):
        return None
    if not operands or any(x is not None and x.dtype == object for x in operands):
        return None
    if elements(node.op_type, operands) > FOLDED_ELEMENTS:
        return None
    inputs = list(dict.fromkeys(name for name in node.input if name))
    function = onnx.helper.make_function(
        "", "folded", inputs, list(node.output), [node], [onnx.helper.make_opsetid("", opset)]
    )
    given = {name: x for name, x in zip(node.input, operands, strict=True) if name}
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = ReferenceEvaluator(function).run(None, given, attributes={})
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError):
        return None
    if not all(isinstance(array, np.ndarray | np.generic) and array.dtype.kind in "biufV" for array in found):
        return None
    return tuple(np.asarray(array) for array in found)
