"""Importers of ONNX operators, one family a file: each makes values of polyfuse.nn from the operands' values."""

from polyfuse.frontend.onnx.operators import (
    images,
    normalization,
    pointwise,
    products,
    quantized,
    recurrent,
    reductions,
    views,
)
from polyfuse.frontend.onnx.operators.registry import ONNX, Node, Unknown

__all__ = [
    "ONNX",
    "Node",
    "Unknown",
    "images",
    "normalization",
    "pointwise",
    "products",
    "quantized",
    "recurrent",
    "reductions",
    "views",
]
