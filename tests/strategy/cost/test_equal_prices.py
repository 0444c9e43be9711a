"""Kernels that are equal up to names are priced once, and as each would be by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.ir.tree import parts
from polyfuse.schedule import Schedule
from polyfuse.strategy.cost import equal_prices, roofline
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.equal_prices import Priced
from polyfuse.strategy.cost.kernel_model import kernel_of
from polyfuse.strategy.cost.roofline import Model, best

ZEN5 = pf.Machine.preset("zen5")


def network(layers: int) -> pf.Nest:
    x = nn.input("x", (8, 16))
    for _ in range(layers):
        x = nn.relu(nn.linear(x, np.ones((16, 16), np.float32), np.ones(16, np.float32)))
    return nn.lower(nn.softmax(x))


def fused(nest: pf.Nest) -> Schedule:
    """Each product with its first value, so that kernels have several statements."""
    schedule = Schedule(nest)
    for name in (s.name for s in nest.statements if s.name.startswith("mac")):
        first = next(s.name for s in nest.writers(nest.statement(name).write.tensor) if s.name != name)
        schedule = schedule.reorder(name, "i", "j", "k").fuse(name, first, at="j")
    return schedule


def test_an_equal_kernel_is_what_it_would_be_by_itself() -> None:
    nest = network(4)
    schedule = fused(nest)
    model, counts = Model(Counts(nest), ZEN5), Counts(nest)
    for part in parts(schedule.tree):
        alone = kernel_of(counts, part)
        assert model.kernel(part) == alone
        assert model.cost(part) == best(alone, ZEN5, counts.total_bytes)


def test_more_layers_are_no_more_kernels_to_price(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(made: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: asked.append(1) or made(*args)

    monkeypatch.setattr(equal_prices, "kernel_of", counted(kernel_of))
    monkeypatch.setattr(roofline, "best", counted(best))
    found = []
    for layers in (4, 8):
        asked.clear()
        nest = network(layers)
        model = Model(Counts(nest), ZEN5)
        for part in parts(fused(nest).tree):
            model.cost(part)
        found.append(len(asked))
    assert 0 < found[0] == found[1] < 2 * 4 * 4


@pytest.mark.parametrize("role", ["output", "temporary"])
def test_what_others_read_or_wrote_makes_another_kernel(role: str) -> None:
    """T1 and T2 are the same loops; of a temporary only T2's is read by another kernel."""
    tensors = [pf.Tensor("x", (8,), "float32", "input")]
    tensors += [pf.Tensor(name, (8,), "float32", role) for name in ("t1", "t2")]  # type: ignore[arg-type]
    tensors += [pf.Tensor("y", (8,), "float32", "output")]
    nest = pf.Nest.of(
        tensors,
        [
            pf.statement("{ T1[i] : 0 <= i < 8 }", "t1[i] = 2 * x[i]"),
            pf.statement("{ T2[i] : 0 <= i < 8 }", "t2[i] = 2 * x[i]"),
            pf.statement("{ Y[i] : 0 <= i < 8 }", "y[i] = t2[i]"),
        ],
    )
    one, other, _ = (Priced.of(Counts(nest), part) for part in parts(nest.order))
    assert one.form == other.form
    assert (one == other) is (role == "output")
