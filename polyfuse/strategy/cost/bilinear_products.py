"""The common part of a bilinear algorithm's price on a CPU and on a GPU."""

from __future__ import annotations

from typing import Any

from polyfuse.analysis.once import constant_tensors
from polyfuse.ir import Nest
from polyfuse.rewrite.bilinear.dimension_roles import Roles

REST = 0.25
"""The fraction of the peak that the rest of a peeled product reaches: thin products read more than they compute."""


def is_constant(nest: Nest, roles: Roles, value: Any) -> bool:
    """True if a factor is of constants alone: its sums are computed once for all calls."""
    positions = {leaf.position for leaf in value.free_symbols if hasattr(leaf, "position")}
    fixed = constant_tensors(nest, nest.order)
    return all(roles.statement.reads[p].tensor in fixed for p in positions)
