"""Comparisons and relations that isl is asked about once, whatever their tuples are called."""

from __future__ import annotations

import islpy as isl
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.sets import Alike, comparing_once, named, pairs_where

DATES = (
    "[N] -> { S[i, j] -> [(i)] : 0 <= i, j < N }",
    "[N] -> { T[k] -> [(k + 1)] : 0 <= k < N }",
    "[N] -> { S[i, j] -> [(i)] : i <= j; S[i, j] -> [(2j)] : i > j }",
    "{ U[] -> [(0)] }",
)


@pytest.mark.parametrize("first", DATES)
@pytest.mark.parametrize("second", DATES)
def test_a_comparison_that_is_known_is_the_relation_of_isl(first: str, second: str) -> None:
    one, other = isl.PwAff(first), isl.PwAff(second)
    expected = {"<": one.lt_map(other), "=": one.eq_map(other), ">": one.gt_map(other)}
    with comparing_once():
        for _ in range(2):
            for how, relation in expected.items():
                found = pairs_where(one, how, other)  # type: ignore[arg-type]  # one of three texts
                assert found.is_equal(relation)
                assert str(found) == str(relation)


def test_functions_of_other_statements_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, compared = [], isl.PwAff.gt_map

    def counted(one: isl.PwAff, other: isl.PwAff) -> isl.Map:
        asked.append((one, other))
        return compared(one, other)

    monkeypatch.setattr(isl.PwAff, "gt_map", counted)
    dates = [isl.PwAff(f"{{ {name}[i] -> [(i)] : 0 <= i < 4 }}") for name in "STU"]
    with comparing_once():
        found = [str(pairs_where(one, ">", other)) for one in dates for other in dates]
        assert len(asked) == 1
    assert len(set(found)) == 9
    assert [str(pairs_where(one, ">", other)) for one in dates for other in dates] == found
    assert len(asked) == 10, "nothing is known outside"


def test_a_compile_knows_nothing_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """isl's operations for a plan would depend on earlier ones."""
    asked, compared = [], isl.PwAff.eq_map

    def counted(one: isl.PwAff, other: isl.PwAff) -> isl.Map:
        asked.append((one, other))
        return compared(one, other)

    monkeypatch.setenv("POLYFUSE_CACHE", "off")
    monkeypatch.setattr(isl.PwAff, "eq_map", counted)
    counts = []
    for _ in range(2):
        nest = pf.lower(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)), batch=4)
        asked.clear()
        pf.compile(nest, target="cpu", machine="zen5")
        counts.append(len(asked))
    assert counts[0] == counts[1] > 0


def test_relations_that_differ_in_names_of_dimensions_are_two() -> None:
    """Messages print these names: `{ S[i] -> T[i' = i] }`."""
    alike = Alike()
    texts = ("{ S[i] -> T[j] : j = i }", "{ R[i] -> Q[j] : j = i }", "{ R[k] -> Q[j] : j = k }")
    first, same, other = (alike.nameless(isl.Map(text)) for text in texts)
    assert first is same is not other
    assert str(named(first, "S", "T")) == str(isl.Map(texts[0]))
