"""Copies of what the loops around them write, too: in which steps they stand, and where there is no place for them."""

from __future__ import annotations

import islpy as isl
import numpy as np
import pytest

import polyfuse as pf
from polyfuse.errors import InvalidSchedule
from polyfuse.ir import Access, Statement
from polyfuse.ir.scalar import read
from polyfuse.ir.tree import loops_around, statements
from polyfuse.schedule.promote.copy_order import ordered_with_copies
from tests.frontend.python.running import defined

STEPS = """
@pf.nest
def steps(w: "f64[6, 6]", z: "f64[4, 6]", h: "f64[5, 6]"):
    for t in range(4):
        for i in range(6):
            for k in range(6):
                z[t, i] += w[i, k] * h[t, k]
        for i in range(6):
            h[t + 1, i] = z[t, i]
"""

IN_PLACE = """
@pf.nest
def in_place(w: "f64[6, 6]", z: "f64[4, 6]", h: "f64[6]"):
    for t in range(4):
        for i in range(6):
            for k in range(6):
                z[t, i] += w[i, k] * h[k]
            h[i] = z[t, i]
"""


def test_a_copy_of_the_last_steps_values_stands_in_its_step() -> None:
    nest = defined(STEPS)
    made = pf.Schedule(nest).promote("h", "S0", at="i", memory="local")
    copy = next(name for name in statements(made.nest.order) if name.startswith("load"))
    assert loops_around(made.nest.order, copy)[0] is loops_around(made.nest.order, "S0")[0]
    rng = np.random.default_rng(0)
    w, z, h = rng.standard_normal((6, 6)), np.zeros((4, 6)), np.zeros((5, 6))
    h[0] = rng.standard_normal(6)
    expected = h.copy()
    for t in range(4):
        expected[t + 1] = w @ expected[t]
    pf.compile(nest, schedule=made)(w, z, h)
    np.testing.assert_allclose(h, expected, rtol=1e-12)


def copied(per_row: bool) -> Statement:
    """load[t, e]: kept[t, e] = h[e], or load[t, i, e]: kept[t, i, e] = h[e]."""
    dims, limits = ("t, i, e", "0 <= i < 6 and ") if per_row else ("t, e", "")
    domain = isl.Set(f"{{ load[{dims}] : 0 <= t < 4 and {limits}0 <= e < 6 }}")
    kept, source = (isl.Map(f"{{ load[{dims}] -> {to} }}") for to in (f"kept[{dims}]", "h[e]"))
    return Statement("load", domain, Access("kept", kept), "=", (Access("h", source),), read(0))


def test_values_that_change_between_a_copy_and_its_reader_have_no_copy() -> None:
    nest = defined(IN_PLACE)
    around = loops_around(nest.order, "S0")
    with pytest.raises(InvalidSchedule, match="h is written after load would have copied it"):
        ordered_with_copies(nest, (copied(per_row=False),), frozenset(("S0",)), around[:1])
    order = ordered_with_copies(nest, (copied(per_row=True),), frozenset(("S0",)), around[:2])
    assert [loop.name for loop in loops_around(order, "load")[:2]] == ["t", "i"]  # a row's copy, in its row
