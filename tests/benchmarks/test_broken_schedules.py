"""A small share of the broken schedules: none that computes other values passes validation."""

from __future__ import annotations

from random import Random

import pytest

from benchmarks.broken_schedules import MUTATIONS, Subject, judged, mutated, table, tiles_in_shared_memory
from polyfuse.ir.tree import loops, replace_node
from tests.support.examples import examples


@pytest.fixture(scope="module")
def subject() -> Subject:
    s = tiles_in_shared_memory(3, 2)
    return Subject("three stages", s.source, s.nest, s.tree, "cuda")


@pytest.mark.hypothesis
@pytest.mark.parametrize("mutation", sorted(set(MUTATIONS) - {"with other slots"}))
def test_validation_misses_none(subject: Subject, mutation: str) -> None:
    for seed in range(examples(2)):
        tree = MUTATIONS[mutation](subject.tree, Random(seed))
        if tree is not None:
            assert judged(subject, tree, seed).kind in ("caught", "harmless")


def test_what_validation_is_there_to_find_is_found(subject: Subject) -> None:
    (loop,) = (loop for loop in loops(subject.tree) if loop.barrier)
    assert judged(subject, subject.tree, 0).kind == "harmless"
    verdict = judged(subject, replace_node(subject.tree, loop, loop.body), 0)
    assert verdict.kind == "caught"


def test_a_miss_is_told_by_what_runs(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.broken_schedules.validate", lambda *_: None)
    tree = MUTATIONS["without a barrier"](subject.tree, Random(0))
    assert tree is not None
    verdict = judged(subject, tree, 0)
    assert verdict.kind == "missed"
    assert "Race" in verdict.why


def test_one_seed_is_one_mutation(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.broken_schedules.subjects", lambda: (subject,))
    (one, _, first), (two, _, second) = (mutated(5, "other order") for _ in "ab")
    assert (one, str(first)) == (two, str(second))
    assert table({}).endswith("| all | 0 | 0 | 0 |")
