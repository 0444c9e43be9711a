from __future__ import annotations

import polyfuse as pf
from polyfuse.machine import Machine
from polyfuse.strategy.cost.price import cost
from polyfuse.strategy.next_steps import next_steps, taken
from tests.show.subjects import dense, wavefronts

ZEN5 = Machine.preset("zen5")


def test_they_are_legal_and_in_the_order_of_their_prices() -> None:
    s = pf.Schedule(dense())
    found = next_steps(s, ZEN5)
    assert 0 < len(found) <= 12
    assert [one.seconds for one in found] == sorted(one.seconds for one in found)
    for one in found:
        assert cost(taken(s, one.step), ZEN5).seconds == one.seconds


def test_a_step_that_breaks_a_dependence_is_not_among_them() -> None:
    s = pf.Schedule(wavefronts().nest)
    steps = [str(one.step) for one in next_steps(s, ZEN5, most=100)]
    assert "interchange('S', 't', 'i')" not in steps
    assert "vectorize('S', 'i')" in steps


def test_only_so_many_are_tried() -> None:
    s = pf.Schedule(dense())
    assert len(next_steps(s, ZEN5, most=100, tried=3)) <= 3
