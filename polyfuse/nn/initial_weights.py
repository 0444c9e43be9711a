"""Draw the initial weights of layers."""

from __future__ import annotations

import numpy as np

from polyfuse.errors import BadArgument
from polyfuse.ir.whole import is_whole


def generator(layer: str, seed: object, sizes: tuple[int, ...]) -> np.random.Generator:
    """One for a layer's sizes and seed, or the one that layers share as their seed; BadArgument for no such seed.

    >>> generator("Linear", 0, (4, 2)).random() == generator("Linear", 0, (4, 2)).random()
    True
    """
    if isinstance(seed, np.random.Generator):
        return seed
    if not is_whole(seed) or seed < 0:
        raise BadArgument(f"{layer}: seed={seed!r}, expected a non-negative integer, or a numpy Generator")
    return np.random.default_rng((int(seed), *sizes))
