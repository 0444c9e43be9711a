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
    return {op: rule for op, rule in core_aten_decompositions().items() if str(op) not in ATEN}


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
