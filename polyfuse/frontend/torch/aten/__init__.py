"""Importers of ATen operators: each makes a value of polyfuse.nn from the operands' values."""

from polyfuse.frontend.torch.aten import (
    chosen,
    images,
    interpolation,
    pointwise,
    products,
    recurrent,
    reductions,
    views,
)
from polyfuse.frontend.torch.aten.registry import ATEN, OF_KNOWN, VIEWS

__all__ = [
    "ATEN",
    "OF_KNOWN",
    "VIEWS",
    "chosen",
    "images",
    "interpolation",
    "pointwise",
    "products",
    "recurrent",
    "reductions",
    "views",
]
