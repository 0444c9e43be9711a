"""The search over many statements: what it asks of isl grows with them, not with their square."""

from __future__ import annotations

import pytest

import polyfuse as pf
from polyfuse.ir.dependences import dependences
from polyfuse.strategy import plan_for
from polyfuse.strategy.cost import counts
from polyfuse.strategy.fusion import group_search as fusion


def product(name: str, size: int) -> pf.Nest:
    nest = pf.einsum("ik,kj->ij", dict.fromkeys("ijk", size), dtype="float32")
    return pf.rewrite.bilinear(nest, "mac", pf.bilinear.named(name)).nest


@pytest.mark.parametrize(("name", "size"), [("strassen", 64), ("laderman", 72)])
def test_each_access_and_each_statement_is_asked_about_a_few_times(
    name: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 statements and 69. Comparing every access of a kernel with every other took 73 boxes an access for 69."""
    asked = dict.fromkeys(("bounding_box", "aligned"), 0)

    def counted(module: object, function: str) -> None:
        original = getattr(module, function)

        def call(*args: object) -> object:
            asked[function] += 1
            return original(*args)

        monkeypatch.setattr(module, function, call)

    counted(counts, "bounding_box")
    counted(fusion, "aligned")
    nest = product(name, size)
    accesses = sum(len(s.accesses) for s in nest.statements)
    assert len(plan_for(nest, pf.Machine.preset("zen5")).groups) == 4
    assert 0 < asked["bounding_box"] <= accesses, "of those to a tensor alike only the first asks"
    assert 0 < asked["aligned"] <= 3 * len(nest.statements)


def test_dependences_that_tiles_leave_alone_are_the_same_as_found_anew() -> None:
    """Winograd's shared sums run in tiles; everything else keeps the dependences it had."""
    layers = [layer for _ in range(2) for layer in (pf.nn.Linear(512, 512), pf.nn.ReLU())]
    nest = pf.lower(pf.nn.Sequential(*layers), batch=512)
    for name in ("mac0", "mac1"):
        nest = pf.rewrite.bilinear(nest, name, pf.bilinear.winograd).nest
    plan = plan_for(nest, pf.Machine.preset("zen5"))
    found = plan.schedule.source
    anew = dependences(found.accesses, found.original_dates())
    for (kind, kept), (_, fresh) in zip(found.dependences().kinds(), anew.kinds(), strict=True):
        assert kept.is_equal(fresh), kind
    names = [{(p.kind, p.source, p.sink) for p in d.pairs} for d in (found.dependences(), anew)]
    assert names[0] == names[1]
    assert any("run together in tiles" in reason for reason in plan.notes)
