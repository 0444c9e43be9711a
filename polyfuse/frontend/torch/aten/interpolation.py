"""Importers of interpolation: views for the nearest elements, else products with constant matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from polyfuse import nn
from polyfuse.frontend.importers import Unsupported, converted
from polyfuse.frontend.torch.aten.registry import ATEN, Result, floating, whole
from polyfuse.nn.graph import Value
from polyfuse.nn.sizes import numbers


def _check_factors(result: Result, x: Any, scales: Sequence[Any]) -> None:
    """Unsupported where a factor is not that of the sizes."""
    given = [one for scale in scales if scale is not None for one in np.atleast_1d(scale)]
    for factor, old, new in zip(given, x.shape[2:], result.shape[2:], strict=False):
        if old * factor != new:
            raise Unsupported(
                f"interpolates by {factor} from {old} to {new}, which is another factor: pass the size"
            )


def _by_kernel(mode: Literal["linear", "cubic"]) -> Callable[..., Value]:
    def interpolate(
        result: Result, x: Any, size: Sequence[int] | None, align_corners: bool, *scales: Any
    ) -> Value:
        value: Value = converted(x, floating(result))
        if not align_corners:
            _check_factors(result, value, scales)
        found = nn.interpolate(value, numbers("interpolate", result.shape[2:]), mode, align_corners)
        return found * 1.0 if found is x else found

    return interpolate


def _nearest(result: Result, x: Any, size: Sequence[int] | None, *scales: Any) -> Value:
    _check_factors(result, x, scales)
    return nn.interpolate(x, numbers("interpolate", result.shape[2:]), "nearest")


@whole("interpolate")
def interpolate(
    result: Result,
    x: Any,
    size: Sequence[Any] | None,
    factors: Sequence[float] | None,
    mode: Literal["nearest", "linear", "bilinear", "trilinear", "bicubic"],
    align_corners: bool | None,
    recompute: bool | None,
) -> Value:
    """torch.nn.functional.interpolate, as torch.compile hands it over."""
    scales = [] if factors is None or recompute else [factors]
    if mode == "nearest":
        return _nearest(result, x, size, *scales)
    return _by_kernel("cubic" if mode == "bicubic" else "linear")(
        result, x, size, bool(align_corners), *scales
    )


for _overload in ("default", "vec"):
    for _name in ("linear1d", "bilinear2d", "trilinear3d"):
        ATEN[f"aten.upsample_{_name}.{_overload}"] = _by_kernel("linear")
    ATEN[f"aten.upsample_bicubic2d.{_overload}"] = _by_kernel("cubic")
    for _rank in (1, 2, 3):
        ATEN[f"aten.upsample_nearest{_rank}d.{_overload}"] = _nearest
