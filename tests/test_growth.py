"""What a compile does grows with the program: questions are counted for ensembles of four times the members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import polyfuse as pf
from papers.pytorch_18157_ensemble.networks import Ensemble
from polyfuse import nn
from polyfuse.analysis import once as once_module
from polyfuse.ir import Nest
from polyfuse.ir import dependences as dependences_module
from polyfuse.rewrite import compose_views
from polyfuse.rewrite.views import flow as view_flow
from polyfuse.runtime.cpu.entry import _Entry
from polyfuse.strategy.rewrites import fold_scales as folding

FEW, MANY = 4, 16


@cache
def members(count: int) -> Nest:
    """Of two layers each, one by one."""
    return Ensemble(count, 2, 8, 4).nest()


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> Counter[str]:
    """How often a function is called from here on."""
    calls: Counter[str] = Counter()
    real: Callable[..., Any] = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        calls[name] += 1
        return real(*arguments, **options)

    monkeypatch.setattr(owner, name, call)
    return calls


def grows(ask: Callable[[int], int]) -> float:
    """How many times as much is asked for four times the members."""
    return ask(MANY) / ask(FEW)


def test_what_is_constant_is_found_once_a_nest(monkeypatch: pytest.MonkeyPatch) -> None:
    found = counted(monkeypatch, folding, "constant_tensors")
    folding.with_scales_folded(members(FEW))
    assert found["constant_tensors"] == 1
    folding.with_scales_folded(members(MANY))
    assert found["constant_tensors"] == 2


def test_what_runs_once_is_found_without_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = counted(monkeypatch, once_module, "refusal")
    looked_up = counted(monkeypatch, Nest, "statement")

    def ask(count: int) -> int:
        looked_up.clear()
        nest = members(count)
        assert not any(once_module.once(nest, nest.order))
        return looked_up["statement"]

    assert grows(ask) <= MANY / FEW
    assert not rounds


def test_slices_of_a_stack_are_not_compared_with_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(count: int) -> int:
        accesses = members(count).accesses
        met = dependences_module.meeting(accesses.writes, accesses.writes.reverse())
        return sum(1 for _ in met)

    assert grows(ask) <= MANY / FEW


def test_a_composed_view_is_proven_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    proven = counted(monkeypatch, view_flow, "_origin")

    def ask(count: int) -> int:
        proven.clear()
        inputs = (nn.input(f"x{k}", (4, 6)) for k in range(count))
        nest = nn.lower(tuple(nn.relu(nn.transpose(nn.exp(x))) for x in inputs))
        assert len(compose_views(nest).composed) == count
        return proven["_origin"]

    assert grows(ask) <= MANY / FEW


def test_an_entry_has_no_branch_for_each_pair_of_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    branches = counted(monkeypatch, _Entry, "_need")

    def ask(count: int) -> int:
        branches.clear()
        net = pf.compile(members(count), target="cpu")
        assert len(net.constants) == 4 * count
        assert branches["_need"], "it was compiled, not loaded"
        return branches["_need"]

    assert grows(ask) == 1
