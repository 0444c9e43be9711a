"""Interpolation as one operator: nearest, linear and cubic.

    torch.nn.functional.interpolate(x, scale_factor=2)   ->   polyfuse::interpolate(x, None, [2.0, 2.0], "nearest", …)

AOTAutograd would write it out as row numbers, which no nest has, and reads of these rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import interpolate

from polyfuse.torch.whole.operators import kept_whole

MODES = ("nearest", "linear", "bilinear", "trilinear", "bicubic")
"""Those with an importer; the others of torch stay as they are."""


def _called(
    x: torch.Tensor, size: Any, factors: Any, mode: str, align_corners: bool | None, recompute: bool | None
) -> tuple[torch.Tensor, ...]:
    found: torch.Tensor = interpolate(x, size, factors, mode, align_corners, recompute)
    return (found,)


OPERATOR = kept_whole(
    "interpolate",
    "Tensor input",
    "SymInt[]? size, float[]? scale_factor, str mode, bool? align_corners, bool? recompute_scale_factor",
    1,
    _called,
    _called,
)


def _chosen(
    x: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> tuple[torch.library.CustomOpDef, tuple[Any, ...]] | None:
    """The operator and its arguments; None for another mode, and for antialiasing."""
    rank = x.meta["example_value"].ndim - 2
    if mode not in MODES or antialias:
        return None
    sizes = size if size is None or isinstance(size, list | tuple) else [size] * rank
    factors = scale_factor if isinstance(scale_factor, list | tuple) else [scale_factor] * rank
    given = None if scale_factor is None else list(map(float, factors))
    return OPERATOR, (x, sizes, given, mode, align_corners, recompute_scale_factor)


CHOSEN = {interpolate: _chosen}
"""What to call in the place of torch's function."""
