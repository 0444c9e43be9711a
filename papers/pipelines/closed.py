"""What the pipelines compute, said by NumPy with slices in the type of the image: a check, and a peer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Form = Callable[[Mapping[str, Any]], dict[str, Array]]
"""From a pipeline's arguments to the arrays that it leaves."""

BLUR = (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)


def _window(image: Array, rows: int, columns: int, up: int, left: int) -> Array:
    """The part of an image that a stencil of rows × columns sees at one of its points."""
    height, width = image.shape[-2] - rows + 1, image.shape[-1] - columns + 1
    return image[..., up : up + height, left : left + width]


def _blurred(image: Array) -> Array:
    along = sum(w * _window(image, 5, 1, k, 0) for k, w in enumerate(BLUR))
    blurred: Array = sum(w * _window(along, 1, 5, 0, k) for k, w in enumerate(BLUR))
    return blurred


def harris(a: Mapping[str, Any]) -> dict[str, Array]:
    image = a["image"]
    smooth, slope = (1, 2, 1), (-1, 0, 1)
    nine = [(up, left) for up in range(3) for left in range(3)]
    Ix = sum(smooth[up] * slope[left] * _window(image, 3, 3, up, left) for up, left in nine) / 12
    Iy = sum(slope[up] * smooth[left] * _window(image, 3, 3, up, left) for up, left in nine) / 12
    Sxx, Sxy, Syy = (
        sum(_window(product, 3, 3, up, left) for up, left in nine) for product in (Ix * Ix, Ix * Iy, Iy * Iy)
    )
    return {"corners": Sxx * Syy - Sxy**2 - 0.04 * (Sxx + Syy) ** 2}


def unsharp(a: Mapping[str, Any]) -> dict[str, Array]:
    image = a["image"]
    middle, blurred = image[..., 2:-2, 2:-2], _blurred(image)
    sharpened = (1 + a["weight"]) * middle - a["weight"] * blurred
    return {"sharp": np.where(np.abs(middle - blurred) < a["threshold"], middle, sharpened)}


def blurs(a: Mapping[str, Any]) -> dict[str, Array]:
    return {"blurred": _blurred(_blurred(a["image"]))}


def pyramid(a: Mapping[str, Any]) -> dict[str, Array]:
    image = a["image"]
    coarse = _blurred(image)[::2, ::2]
    between = [(coarse[:-1] + coarse[1:]) / 2, coarse[:-1]]
    rows = np.stack(between[::-1], 1).reshape(-1, coarse.shape[1])
    both = [rows[:, :-1], (rows[:, :-1] + rows[:, 1:]) / 2]
    fine = np.stack(both, 2).reshape(len(rows), -1)
    height, width = a["detail"].shape
    return {"coarse": coarse, "detail": image[2 : 2 + height, 2 : 2 + width] - fine}
