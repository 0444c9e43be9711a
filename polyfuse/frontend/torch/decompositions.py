"""Decompositions: torch's own for all operators that have no importer; those that have one stay whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import core_aten_decompositions

from polyfuse.frontend.torch.aten import ATEN

Table = dict[Any, Callable[..., Any]]


def decompositions() -> Table:
    """Return torch's table for core ATen without the operators that polyfuse imports whole.

    mish, softplus, logsumexp and attention would fall apart into comparisons and choices; the gradients that ATen has
    as operators of their own become arithmetic.

    Returns:
        Decompositions by operator.
    """
    table = {op: rule for op, rule in core_aten_decompositions().items() if str(op) not in ATEN}
    return {**table, torch.ops.aten.as_strided.default: _as_strided}


def _as_strided(x: Any, size: Any, stride: Any, offset: int | None = None) -> Any:
    """The tensor itself, where the strides that change are those of axes of size 1.

    torch gives a pooled image (N, C, 1, 1) the strides of channels last in this way.
    """
    steps = [(old, new) for count, old, new in zip(x.shape, x.stride(), stride, strict=False) if count != 1]
    numbers = all(isinstance(one, int) for one in (*x.shape, *x.stride(), *size, *stride))
    if not numbers or list(x.shape) != list(size) or any(old != new for old, new in steps):
        return NotImplemented
    return torch.ops.aten.alias.default(x) if offset in (None, x.storage_offset()) else NotImplemented


def export_decompositions() -> Table:
    """Return the table for an exported program, where composite operators (linear, conv2d) are whole too.

    Returns:
        Decompositions by operator.
    """
    table = torch.export.default_decompositions()
    for op in list(table):
        if str(op) in ATEN:
            del table[op]
    return dict(table)
