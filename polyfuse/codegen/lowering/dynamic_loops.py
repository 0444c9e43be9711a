"""Lower dynamic parallel loops: a free core takes the next iteration, for iterations of unequal work.

    for i (dynamic): S
    ->  taken = turns_of(0)
        on every core: turn = next_turn(taken)
                       while turn < n: { i = first + turn; S; turn = next_turn(taken) }

    core 0    4 . . . . 1 . 0        columns are moments, numbers values of i: blocks of a triangle's rows, the last
    core 1    3 . . . 2 . . .        ones, which have most work, first

Values are taken from the end that has more work, so that what is left in the end is small: longest processing time
first (Graham, "Bounds on Multiprocessing Timing Anomalies", 1969, theorem 2). Which core takes which differs from call
to call. No dependence lies between two values, so that results do not.
"""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl

from polyfuse.ir.nest import Nest
from polyfuse.ir.tree import Loop
from polyfuse.sets import bounding_box, bounding_count, constant


def heavier_last(nest: Nest, copies: Mapping[str, isl.Set], loop: Loop) -> bool:
    """True if a loop's last value has more instances than its first; no, where sizes are symbolic.

    `copies`: of full tiles, which count where nothing else is in the loop: else they are some of the instances there.
    """
    if nest.params:
        return False
    domains = {**nest.domains, **copies}
    own = [(domains[name], date) for name, date in loop.dates if name in nest.domains]
    every = own or [(domains[name], date) for name, date in loop.dates]
    boxes = [bounding_box(domain.apply(date.as_map())) for domain, date in every]
    ranges = [box[0] for box in boxes if box is not None]
    ends = min(low for low, _ in ranges), max(high for _, high in ranges)
    first, last = (sum(_instances(domain, date, end) for domain, date in every) for end in ends)
    return last > first


def _instances(domain: isl.Set, date: isl.PwAff, value: int) -> int:
    """The number of instances of a statement at one value of a loop, counted in a box around them."""
    return bounding_count(domain.intersect(date.eq_set(constant(domain, value))), {})
