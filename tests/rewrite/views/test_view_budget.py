"""A view whose composition isl cannot prove within its operations stays, and says so."""

from __future__ import annotations

import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.rewrite import compose_views


def test_a_view_that_is_too_much_to_prove_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    nest = pf.lower(nn.exp(nn.reshape(nn.relu(nn.input("x", (4, 6))), (6, 4))))
    assert compose_views(nest).composed
    for module in ("read_through", "in_place_of"):
        monkeypatch.setattr(f"polyfuse.rewrite.views.{module}.FLOW_OPERATIONS", 1)
    views = compose_views(nest)
    assert not views.composed
    assert any("isl needs more than 1 operations to prove" in str(kept) for kept in views.kept)
