"""The code that PolyMage generated for its paper: its shape as numbers, and built here if a checkout is named.

POLYMAGE=FOLDER names a checkout of github.com/bondhugula/polymage-benchmarks; nothing of it is kept here.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

FLAGS = ("-O3", "-march=native", "-ffast-math", "-fPIC", "-shared")
"""As the source has them, for gcc: without threads, as both sides run on one core, and with the arithmetic of icc."""


@dataclass(frozen=True)
class Shape:
    """The shape of a pipeline's schedule: how many loop nests, tiles and arrays it has.

    Attributes:
        nests: Loop nests, each of which passes over the image.
        tile: Pixels of a tile: rows and columns of one channel or, with three numbers, of all.
        arrays: The images of one tile that stages leave for others; the other stages are computed where they are read.
        again: How often a value of the array with the widest border is computed per pixel.
    """

    nests: int
    tile: tuple[int, ...]
    arrays: int
    again: float


@dataclass(frozen=True)
class Generated:
    """A generated function: where it is in the repository, and its shape."""

    folder: str
    name: str
    shape: Shape

    def built(self, form: str, folder: Path) -> Callable[..., Any]:
        """The function of a form ("", or "_naive" for the unfused one) as machine code of this computer."""
        application = self.folder
        source = Path(os.environ["POLYMAGE"]) / "apps" / application / f"{application}_polymage{form}.cpp"
        text = source.read_text(encoding="utf-8").replace("#pragma ivdep", "#pragma GCC ivdep")
        with TemporaryDirectory() as made:
            adapted = Path(made) / "pipeline.cpp"
            adapted.write_text(text, encoding="utf-8")
            library = folder / f"{application}{form}.so"
            subprocess.run(["g++", *FLAGS, "-o", str(library), str(adapted)], check=True, capture_output=True)
        function: Callable[..., Any] = getattr(ctypes.CDLL(str(library)), self.name)
        return function


GENERATED: Mapping[str, Generated] = {
    "harris": Generated("harris", "pipeline_harris", Shape(1, (32, 256), 2, 34 * 258 / (32 * 256))),
    "unsharp": Generated("unsharp_mask", "pipeline_mask", Shape(1, (8, 512), 3, 518 / 512)),
}
"""Read off apps/*/*_polymage.cpp at commit d20264e: loops over tiles, and the extents of the arrays inside them."""


def available() -> bool:
    """Whether the environment names a checkout."""
    return "POLYMAGE" in os.environ


def _at(array: np.ndarray[Any, Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def harris(function: Callable[..., Any], given: Mapping[str, Any], result: np.ndarray[Any, Any]) -> None:
    """Call the source's Harris corners; `result` has the image's size, with a border of two pixels."""
    rows, columns = given["image"].shape
    function(columns - 2, rows - 2, _at(given["image"]), _at(result))


def unsharp(function: Callable[..., Any], given: Mapping[str, Any], result: np.ndarray[Any, Any]) -> None:
    """Call the source's unsharp mask; `result` is without the border."""
    _, rows, columns = given["image"].shape
    numbers = (ctypes.c_float(float(given["threshold"])), ctypes.c_float(float(given["weight"])))
    function(columns - 4, rows - 4, *numbers, _at(given["image"]), _at(result))
