"""Balance parallel loops with unequal iterations: how cores share them, and the work of the busiest core.

    { S[i, j, k] : i <= j }, columns j on two cores     halves of j ("cores")              25 and 75 % of the work
                                                        ten blocks, as cores are free      51 and 49 %
                                                        ("dynamic")

A loop's profile is how full a box around all instances is at equally spaced values of the loop: (0.0, 0.5, 1.0) for a
triangle, (1.0,) where all values are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heapreplace
from itertools import pairwise
from math import ceil

from polyfuse.ir.tree import Loop
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.roofline import evenly

PIECES = (1, 2, 3, 4, 6)
"""Pieces for each core of a loop of unequal values: fewer leave cores waiting, more have shorter rows and columns."""

POINTS = 8
"""Values at which a piece's work is looked up."""

UNEVEN = 1.1
"""The busiest core's work over what it does of values handed out, up to which values stay in order: the neighbours of a
value use the same lines and panels. A convolution of 64 channels of 56 x 56 pixels, whose first row and last have fewer
steps, takes 0.78 ms with its rows in order on two cores of a Xeon, and 0.93 handed out."""


@dataclass(frozen=True)
class Share:
    """A dimension that cores share in pieces of `size` values: equally many each ("cores"), or as they are free.

    `part` is what the busiest core does of all the work, `halved` what it would do of equally many values.
    """

    dim: int
    size: int
    pieces: int
    place: str = "cores"
    part: float = 1.0
    halved: float = 1.0

    def sentence(self, loop: str, units: int) -> str:
        """A sentence on the choice for a loop of unequal iterations, with its numbers."""
        how = "equally many for each core" if self.place == "cores" else "each for whichever core is free"
        return (
            f"{loop} in {self.pieces} pieces of {self.size}, {how}: the busiest of {units} does {self.part:.0%} of the "
            f"work ({self.halved:.0%} of equally many {loop})"
        )


def pieces(extent: int, units: int) -> Iterator[int]:
    """The sizes that a piece may have."""
    yield from dict.fromkeys(ceil(extent / (units * each)) for each in PIECES if extent >= units * each)


def place_of(pieces: int, units: int) -> str:
    """The binding of a loop over so many pieces of unequal work: static if there are as many pieces as cores."""
    return "cores" if pieces <= units else "dynamic"


def place_one_by_one(profile: tuple[float, ...], extent: int, units: int) -> str:
    """The binding of a loop whose iterations are not grouped: dynamic if that balances the work enough."""
    equal, free = (busiest(profile, extent, 1, units, place) for place in ("cores", "dynamic"))
    return "cores" if equal <= UNEVEN * free else "dynamic"


@lru_cache(maxsize=256)
def busiest(profile: tuple[float, ...], extent: int, size: int, units: int, place: str) -> float:
    """The work of the busiest core, in values of a full box.

    >>> [round(busiest((0.0, 1.0), 1000, *how)) for how in ((500, 2, "cores"), (100, 2, "dynamic"))]
    [375, 255]
    """
    works = [_work(profile, extent, first, min(extent, first + size)) for first in range(0, extent, size)]
    if place == "cores":
        ends = [round(core * len(works) / units) for core in range(units + 1)]
        return round(max(sum(works[first:after]) for first, after in pairwise(ends)), 9)
    cores = [0.0] * units
    heapify(cores)
    for work in reversed(works) if works[-1] > works[0] else works:
        heapreplace(cores, cores[0] + work)
    return round(max(cores), 9)


def cores_at_work(counts: Counts, loop: Loop, units: int) -> float:
    """The number of cores that a parallel loop keeps busy: all of its work over that of the busiest core."""
    extent = counts.extent(loop)
    profiles = {name: counts.profile(name, date) for name, date in loop.dates}
    name = max(profiles, key=lambda name: counts.work(name).operations.effort())
    if len(profiles[name]) == 1:
        return evenly(extent, units)
    place = loop.bind or "cores"
    all_of_it = busiest(profiles[name], extent, 1, 1, "cores")
    return all_of_it / max(busiest(profiles[name], extent, 1, units, place), all_of_it / units)


def _work(profile: tuple[float, ...], extent: int, first: int, after: int) -> float:
    """The work of some values: the profile between the values at which it is known, along straight lines."""
    count = min(POINTS, after - first)
    at = (first + (point + 0.5) * (after - first) / count - 0.5 for point in range(count))
    return (after - first) * sum(_weight(profile, value / max(1, extent - 1)) for value in at) / count


def _weight(profile: tuple[float, ...], at: float) -> float:
    if len(profile) == 1:
        return profile[0]
    place = min(max(at, 0.0), 1.0) * (len(profile) - 1)
    before = min(int(place), len(profile) - 2)
    return profile[before] + (place - before) * (profile[before + 1] - profile[before])
