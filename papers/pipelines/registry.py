"""The pipelines by name, with sizes to test and to measure them at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from papers.pipelines import closed, stages
from polyfuse.frontend import PythonNest
from polyfuse.ir.sizes import extent

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Pipeline:
    """A pipeline: its nest, small sizes, those at which a result has 2048 × 2048 pixels, and its NumPy form."""

    nest: PythonNest
    mini: Sizes
    large: Sizes
    closed: closed.Form

    def inputs(self, sizes: Sizes, rng: np.random.Generator) -> dict[str, object]:
        """Fresh arguments by name: random images, results full of zeros."""
        given: dict[str, object] = {"weight": np.float32(3.0), "threshold": np.float32(0.05)}
        made: dict[str, object] = {}
        for tensor in self.nest.inputs:
            shape = tuple(extent(size, sizes) for size in tensor.shape)
            image = rng.random(shape, np.float32) if tensor.role == "input" else np.zeros(shape, np.float32)
            made[tensor.name] = image if tensor.rank else given[tensor.name]
        return made


PIPELINES: Mapping[str, Pipeline] = {
    "harris": Pipeline(stages.harris, {"M": 19, "N": 41}, {"M": 2052, "N": 2052}, closed.harris),
    "unsharp": Pipeline(
        stages.unsharp, {"C": 3, "M": 14, "N": 37}, {"C": 3, "M": 2052, "N": 2052}, closed.unsharp
    ),
    "blurs": Pipeline(stages.blurs, {"M": 21, "N": 39}, {"M": 2056, "N": 2056}, closed.blurs),
    "pyramid": Pipeline(stages.pyramid, {"M": 9, "N": 20}, {"M": 1025, "N": 1025}, closed.pyramid),
}
