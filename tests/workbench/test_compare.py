"""Comparisons: candidates of one nest, timed in turns on the same arrays, their results beside each other."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import BadArgument

# ruff: noqa: F821


def test_a_schedule_a_nest_and_an_executable_are_compared() -> None:
    nest = pf.lower(nn.Linear(16, 24), batch=8)
    s = pf.Schedule(nest).interchange("mac0", "j", "k")
    net = pf.compile(nest, target="cpu", machine="zen5", fuse=False)
    x = np.random.default_rng(0).random((8, 16)).astype("float32")
    options = {"target": "cpu", "machine": "zen5"}
    found = pf.compare({"mine": s, "auto": nest, "apart": net}, [x], turns=2, pause=0, **options)
    assert [row.name for row in found.rows] == ["mine", "auto", "apart"]
    assert found["mine"].kernels == 3
    assert found["mine"].predicted == pf.cost(s, "zen5").seconds
    assert found["mine"].difference == 0
    assert max(row.difference for row in found.rows) < 1e-6
    assert found.fastest.seconds == min(row.seconds for row in found.rows)
    assert str(found).splitlines()[1].startswith("mine ")
    assert repr(found).startswith("<Comparison: mine ")
    assert found._repr_html_().count("<tr>") == 1 + len(found.rows)
    axes = found.plot().axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["mine", "auto", "apart"]


@pf.nest
def grown(a: f64[N]):
    for i in range(1, N):
        a[i] = a[i] + a[i - 1]


def test_arrays_that_change_have_their_values_again() -> None:
    a = np.arange(5.0)
    found = pf.compare({"one": grown, "other": pf.Schedule(grown)}, {"a": a}, turns=2, pause=0, target="cpu")
    np.testing.assert_array_equal(a, np.arange(5.0))
    assert [row.difference for row in found.rows] == [0, 0]


def test_what_is_no_candidate_is_refused() -> None:
    with pytest.raises(BadArgument, match="no candidates"):
        pf.compare({}, [])
    with pytest.raises(BadArgument, match="candidate 'a' is of type int; expected a schedule"):
        pf.compare({"a": 3}, [])  # type: ignore[dict-item]
    with pytest.raises(BadArgument, match="given 2 arrays; expected a"):
        pf.compare({"a": grown}, [np.zeros(3), np.zeros(3)], target="cpu")
