"""Code for named sizes beside code for all sizes: each call runs the one that fits its arrays."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import BadArgument, InvalidSchedule
from polyfuse.runtime.executable import Executable

TARGETS: Mapping[str, Mapping[str, Any]] = {
    "cpu": {"target": "cpu"},
    "cuda": {"target": "cuda", "machine": "h200", "device": "lockstep"},
}
MODEL = nn.Linear(4, 3)
NEST = pf.lower(MODEL, batch="N")
PAIRS = pf.lower(nn.sum(nn.input("x", ("N", "T")), 1))


def rows(n: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)


def expected(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    assert MODEL.bias is not None
    return x @ MODEL.weight + MODEL.bias


def called(net: Executable, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the sizes whose machine code runs, in order."""
    ran: list[str] = []
    for name, one in (*((str(dict(s)), one) for s, one in net.variants), ("any", net)):
        direct = one._direct
        assert direct is not None

        def noted(inputs: Any, out: Any, name: str = name, direct: Any = direct) -> Any:
            found = direct(inputs, out)
            ran.extend([name] if found is not NotImplemented else [])
            return found

        monkeypatch.setattr(one, "_direct", noted)
    return ran


@pytest.mark.parametrize("target", TARGETS)
def test_every_size_has_its_results(target: str) -> None:
    net = pf.compile(NEST, sizes=[1, 8, "N"], **TARGETS[target])
    assert [dict(sizes) for sizes, _ in net.variants] == [{"N": 1}, {"N": 8}]
    for n in (1, 8, 3, 0, 8, 1):
        np.testing.assert_allclose(net(rows(n)), expected(rows(n)), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(net(x=rows(n)[::-1]), expected(rows(n)[::-1]), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(net.capture(rows(n))(), expected(rows(n)), rtol=1e-5, atol=1e-6)


def test_a_call_runs_the_code_of_its_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    net = pf.compile(NEST, target="cpu", sizes=[1, 8, "N"])
    net(rows(3))  # the general code's entry is made by a call
    ran = called(net, monkeypatch)
    for n in (8, 1, 3):
        net(rows(n))
    assert ran == ["{'N': 8}", "{'N': 1}", "any"]
    assert net.report({"N": 8}).sizes == {}
    assert net.report({"N": 5}).sizes == {"N": 5}
    assert net.memory_plan({"N": 8}) == net.variants[1][1].memory_plan()
    assert "for N = 8:" in net.explain()


def test_other_weights_and_pickles_are_for_all_sizes() -> None:
    net = pf.compile(NEST, target="cpu", sizes=[1, "N"])
    net.replace_constants({"w0": np.ones((4, 3), np.float32), "b0": np.zeros(3, np.float32)})
    for one in (net, pickle.loads(pickle.dumps(net))):
        for n in (1, 2):
            np.testing.assert_allclose(one(rows(n)), rows(n) @ np.ones((4, 3)), rtol=1e-5, atol=1e-5)
    assert len(pickle.loads(pickle.dumps(net)).variants) == 1


def test_sizes_are_named_where_there_are_several() -> None:
    net = pf.compile(PAIRS, target="cpu", sizes=[{"N": 2, "T": 3}, {"T": 4}, "N"])
    for n, t in ((2, 3), (5, 4), (2, 5)):
        x = np.arange(n * t, dtype=np.float32).reshape(n, t)
        np.testing.assert_array_equal(net(x), x.sum(1))
    assert net.report({"N": 7, "T": 4}).sizes == {"N": 7}


@pytest.mark.parametrize(
    ("nest", "sizes", "why"),
    [
        (NEST, [1, 8], r"has to end in a symbolic size, for which the general code is, as in \[1, 8, .N.\]"),
        (NEST, [], "has to end in a symbolic size"),
        (NEST, [1, "M"], "the sizes of linear are N"),
        (NEST, [-1, "N"], "N >= 0 does not hold"),
        (NEST, [{"M": 1}, "N"], "has no size M"),
        (NEST, [1.5, "N"], "expected numbers or values by name, not 1.5"),
        (NEST, [{}, "N"], "expected numbers or values by name"),
        (PAIRS, [1, "N"], "1 of which size. graph has N, T; write {'N': 1}"),
        (pf.lower(MODEL, batch=2), [1, "N"], "the sizes of linear are none"),
        (NEST, "N", "sizes='N', expected numbers by name"),
    ],
)
def test_a_list_that_names_no_sizes_is_refused(nest: pf.Nest, sizes: Any, why: str) -> None:
    with pytest.raises(BadArgument, match=why):
        pf.compile(nest, target="cpu", sizes=sizes)


def test_a_schedule_by_hand_is_of_one_nest() -> None:
    with pytest.raises(InvalidSchedule, match="a list of sizes makes several"):
        pf.compile(NEST, target="cpu", sizes=[1, "N"], schedule=pf.Schedule(NEST))
