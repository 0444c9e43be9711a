"""Searches for one nest fuse a pair of kernels once, and find what a search by itself finds."""

# ruff: noqa: F821
# mypy: disable-error-code="name-defined"
from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.analysis.legality import first_broken
from polyfuse.ir import Nest, Violation
from polyfuse.ir.tree import Tree, parts
from polyfuse.schedule import Schedule
from polyfuse.strategy.candidates import cheapest
from polyfuse.strategy.cost.roofline import Models
from polyfuse.strategy.fusion import alignments as alignments_module
from polyfuse.strategy.fusion import group_search
from polyfuse.strategy.fusion.alignments import Alignments, Searches
from polyfuse.strategy.fusion.group_search import Search, aligned, search
from polyfuse.strategy.fusion.price_nest import price


def network(layers: int = 2) -> Nest:
    """Layers and a softmax, with sums, first values and pointwise statements."""
    x = nn.input("x", (8, 16))
    for k in range(layers):
        x = nn.relu(nn.linear(x, np.full((16, 16), k, np.float32), np.ones(16, np.float32)))
    return nn.lower(nn.softmax(x))


def fused(alignments: Alignments, schedule: Schedule, *asked: str) -> Schedule | Violation | None:
    """Two kernels of a schedule fused, as a search does it."""
    state = Search(schedule, frozenset(), cheapest, alignments)
    found = state.aligned(*asked)
    if not isinstance(found.result, Tree):
        return found.result
    state.take(found, *asked[:2])
    return state.schedule


def test_a_second_search_fuses_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    nest, machine = network(), pf.Machine.preset("zen5")
    model, alignments = Models().of(nest, machine), Alignments(nest)
    alone = search(Schedule(nest), model, fuse=True)
    first = search(Schedule(nest), model, fuse=True, alignments=alignments)
    monkeypatch.setattr(Schedule, "fuse", lambda *_, **__: pytest.fail("asked again"))
    again = search(Schedule(nest), model, fuse=True, alignments=alignments)
    assert alone[1] == first[1] == again[1]
    assert alone[0].trace() == first[0].trace() == again[0].trace()
    assert str(alone[0]) == str(first[0]) == str(again[0])


def test_two_kernels_are_fused_without_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    made = group_search.aligned

    def watched(schedule: Schedule, *asked_for: Any) -> Any:
        asked.append(len(parts(schedule.tree)))
        return made(schedule, *asked_for)

    nest = network(4)
    monkeypatch.setattr(group_search, "aligned", watched)
    search(
        Schedule(nest), Models().of(nest, pf.Machine.preset("zen5")), fuse=True, alignments=Alignments(nest)
    )
    assert max(asked) <= 4, "with one that keeps the first in front, and one that keeps the second behind"
    assert asked.count(2) > len(asked) / 2, "the others have kernels between them that have to stay"


def test_of_many_kernels_that_hold_two_apart_one_stands_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A; B0 … B3; C, where each B reads A's values and C reads theirs: refused for the first, as in the whole tree."""
    x = nn.input("x", (8, 16))
    a = nn.relu(x)
    b = [nn.tanh(a * k) for k in range(2, 6)]
    nest = nn.lower(nn.relu(sum(b[1:], a + b[0])))
    alignments, written, seen = Alignments(nest), Schedule(nest), []

    def watched(schedule: Schedule, *asked_for: Any) -> Any:
        seen.append(len(parts(schedule.tree)))
        return aligned(schedule, *asked_for)

    monkeypatch.setattr(group_search, "aligned", watched)
    names = [s.name for s in nest.statements]
    for asked in [(one, other, "i") for at, one in enumerate(names) for other in names[at + 1 :]]:
        alone, together = aligned(written, *asked), fused(alignments, written, *asked)
        assert type(together) is type(alone)
        if isinstance(together, Schedule):
            assert str(together) == str(alone)
        else:
            assert together == alone
    assert max(seen) <= 4 < len(parts(written.tree))


def test_equal_layers_are_fused_once_and_as_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: Counter[int] = Counter()
    made = group_search.aligned

    def counted(*asked: Any) -> Any:
        tried[layers] += 1
        return made(*asked)

    for layers in (4, 8):
        nest = network(layers)
        model = Models().of(nest, pf.Machine.preset("zen5"))
        alone = search(Schedule(nest), model, fuse=True)
        with monkeypatch.context() as patched:
            patched.setattr(group_search, "aligned", counted)
            together = search(Schedule(nest), model, fuse=True, alignments=Alignments(nest))
        assert together[1] == alone[1], "the decisions, with two instances for each that is refused"
        assert together[0].trace() == alone[0].trace()
        assert str(together[0]) == str(alone[0])
        assert first_broken(together[0].tree, nest.dependences().pairs) is None
    assert tried[8] - tried[4] <= 4, "a kernel of all layers before, with the next one"


def test_a_refusal_is_that_of_all_statements_in_the_same_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    @pf.nest
    def turned(x: f64[8, 8], y: f64[8, 8], a: f64[8, 8], b: f64[8, 8], c: f64[8, 8]):  # type: ignore[no-untyped-def]
        for i in range(8):
            for j in range(8):
                y[i, j] = x[i, j] + 1
                a[i, j] = x[i, j] * 2
        for i in range(8):
            for j in range(8):
                b[i, j] = y[7 - i, 7 - j] + a[7 - i, 7 - j]
                c[i, j] = b[i, j] + 1

    asked: list[str] = []
    made = group_search.aligned

    def watched(schedule: Schedule, first: str, *others: str) -> Any:
        asked.append(first)
        return made(schedule, first, *others)

    alignments, schedule = Alignments(turned), Schedule(turned)
    alone = [group_search.aligned(schedule, first, "S2", "j") for first in ("S0", "S1")]
    monkeypatch.setattr(group_search, "aligned", watched)
    found = [fused(alignments, schedule, first, "S2", "j") for first in ("S0", "S1")]
    assert all(isinstance(one, Violation) for one in found)
    assert found == alone
    assert asked == ["S0"], "S1 is in the same loops"
    fused(alignments, schedule, "S0", "S2", "i")
    assert asked == ["S0", "S0"], "not at another loop"


def test_a_price_and_the_plan_of_one_nest_share_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    nest, machine = network(), pf.Machine.preset("zen5")
    searches = Searches()
    alone, first = price(nest, machine, Searches()), price(nest, machine, searches)
    model = searches.models.of(nest, machine)
    monkeypatch.setattr(Schedule, "fuse", lambda *_, **__: pytest.fail("asked again"))
    assert price(nest, machine, searches) == first == alone
    found, _ = search(Schedule(nest), model, fuse=True, alignments=searches.alignments(nest))
    assert sum(model.cost(part).total for part in parts(found.tree)) == first


def test_a_price_says_nothing_of_tiles_to_a_model_that_asks_for_them() -> None:
    nest, machine = network(), pf.Machine.preset("h200")
    models = Models()
    without = models.of(nest, machine)
    tiled = models.of(nest, machine, lambda nest, kernel, cost: cost)
    assert tiled is not without
    assert tiled.tiled is not None
    assert models.of(nest, machine) is without


def test_where_two_kernels_are_fused_depends_on_what_runs_between_them() -> None:
    """B; A; C  ->  B; { A; C }      A; B; C  ->  B; { A; C } as well, since C reads what B writes."""
    nest = pf.Nest.of(
        [
            pf.Tensor("x", (8,), "float32", "input"),
            *(pf.Tensor(name, (8,), "float32", "temporary") for name in ("a", "b")),
            pf.Tensor("y", (8,), "float32", "output"),
        ],
        [
            pf.statement("{ A[i] : 0 <= i < 8 }", "a[i] = 2 * x[i]"),
            pf.statement("{ B[i] : 0 <= i < 8 }", "b[i] = 3 * x[i]"),
            pf.statement("{ C[i] : 0 <= i < 8 }", "y[i] = a[i] + b[7 - i]"),
        ],
    )
    alignments, written = Alignments(nest), Schedule(nest)
    for schedule in (written.move("A", behind="B"), written):
        done = fused(alignments, schedule, "A", "C", "i")
        assert isinstance(done, Schedule)
        assert first_broken(done.tree, nest.dependences().pairs) is None
        assert [part.names for part in parts(done.tree)] == [("B",), ("A", "C")]


def test_a_nest_has_one_model_on_a_machine_and_its_counts_on_all() -> None:
    nest, searches = network(), Searches()
    one, other = (searches.models.of(nest, pf.Machine.preset(name)) for name in ("zen5", "h200"))
    assert searches.models.of(nest, pf.Machine.preset("zen5")) is one is not other
    assert one.counts is other.counts
    assert searches.alignments(nest) is searches.alignments(nest) is not searches.alignments(network())


def test_two_kernels_have_one_form_at_all_depths(monkeypatch: pytest.MonkeyPatch) -> None:
    nest, seen = network(1), Counter[tuple[str, ...]]()
    form_of = alignments_module.form_of

    def counted(of: Nest, part: Any) -> Any:
        seen[part.names] += 1
        return form_of(of, part)

    monkeypatch.setattr(alignments_module, "form_of", counted)
    known, written = Alignments(nest), Schedule(nest)
    for at in ("i", "j"):
        fused(known, written, "mac0", "bias0", at)
    assert set(seen.values()) == {1}
