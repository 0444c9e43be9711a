"""A product in other tiles than the model's first: whether its order is the measured one.

tiles by the model: 57 µs, 59, 61, …   ->   the plan with the first, the second, the third, …
"""

from __future__ import annotations

from collections.abc import Sequence

import polyfuse as pf
from polyfuse.machine import Machine
from polyfuse.rewrite import expand
from polyfuse.runtime.cuda.driver import machine_here
from polyfuse.strategy import plan_for
from polyfuse.strategy.candidates import Choose
from polyfuse.strategy.plan import Plan


def in_other_tiles(nest: pf.Nest, place: int, preset: str | None) -> Plan:
    """The strategy's plan, with the register tiles that have this place in the model's order, 0 the first.

    For the GPU here where no preset is named. The last of them where there are fewer.
    """
    machine = machine_here() if preset is None else Machine.preset(preset)

    def choose(kernel: tuple[str, ...], what: str, seconds: Sequence[float]) -> int:
        return min(place, len(seconds) - 1) if what == "register tiles" else 0

    return plan_for(expand(nest).nest, machine, choose=Choose(choose))
