"""A loop whose number of values isl cannot find within its operations is treated as one that depends on sizes."""

from __future__ import annotations

import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import InvalidSchedule


def test_a_loop_of_unknown_length_is_not_unrolled(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = pf.Schedule(pf.lower(nn.relu(nn.input("x", (4, 6)))))
    name = schedule.nest.statements[0].name
    loop = schedule.loops(name)[-1].name
    schedule.unroll(name, loop)
    monkeypatch.setattr("polyfuse.schedule.binding.EXTENT_OPERATIONS", 1)
    with pytest.raises(InvalidSchedule, match="no constant number of values"):
        schedule.unroll(name, loop)
