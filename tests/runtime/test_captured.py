"""Calls on the same arrays again: replays alone, whole calls where something is not as it was, what a call gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from tests.runtime.cuda.test_known_calls import Bench, Tensor, draw, right


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    pytest.importorskip("cuda.core.utils")
    pytest.importorskip("numba.cuda")
    model = nn.Sequential(nn.Linear(12, 20, seed=1), nn.ReLU(), nn.Linear(20, 7, seed=2))
    return Bench(pf.lower(model, batch=9), monkeypatch)


def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What of each array is asked for, from now on."""
    found: list[str] = []
    for name in ("stride", "__dlpack_device__"):
        whole = getattr(Tensor, name)
        monkeypatch.setattr(Tensor, name, lambda self, n=name, whole=whole: found.append(n) or whole(self))
    return found


@pytest.mark.parametrize("given", [True, False], ids=["out", "new"])
@pytest.mark.parametrize("named", [True, False], ids=["by name", "in order"])
def test_it_is_a_replay_that_asks_for_addresses_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, given: bool, named: bool
) -> None:
    x = bench.put(draw(0))
    out = bench.put(np.empty((9, 7), np.float32)) if given else None
    call = bench.net.capture(x=x, out=out) if named else bench.net.capture(x, out=out)
    right(bench, call.result, draw(0))
    questions = asked(monkeypatch)
    for seed in range(1, 5):
        x.numpy()[...] = draw(seed)
        call.result.numpy()[...] = np.nan
        assert call() is call.result
        right(bench, call.result, draw(seed))
    assert out is None or call.result is out
    assert not questions
    assert (bench.full, bench.gpu.captures, bench.gpu.replays, bench.gpu.waits) == (1, 1, 4, 0)


def test_on_another_stream_it_is_a_whole_call_there(bench: Bench) -> None:
    x = bench.put(draw(0))
    call = bench.net.capture(x)
    for stream in (43, 43, 41):
        bench.stream.cuda_stream = stream
        call.result.numpy()[...] = np.nan
        assert call() is call.result
        right(bench, call.result, draw(0))
    assert bench.gpu.streams == [41, 43, 43, 41]
    assert bench.full == 2


def test_an_array_that_lies_elsewhere_is_found_there(bench: Bench) -> None:
    x = bench.put(draw(0))
    call = bench.net.capture(x)
    x.memory = bench.put(draw(3)).memory  # as `x.data = other` does
    for _ in range(2):
        call()
        right(bench, call.result, draw(3))
    x.shape = (12, 9)
    x.memory = bench.put(draw(4)).memory
    with pytest.raises(pf.BadArgument, match="expected shape"):
        call()


def test_new_constants_are_seen(bench: Bench) -> None:
    x = bench.put(draw(0))
    call = bench.net.capture(x)
    for value in (2, 3):
        call()
        bench.net.replace_constants({"w0": np.full((12, 20), value, np.float32)})
        for _ in range(2):
            call()
            right(bench, call.result, draw(0))


def test_what_is_changed_in_place_is_changed_once_by_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.core.utils")
    step = pf.statement("{ step[i, j] : 0 <= i < 9 and 0 <= j < 12 }", "t[i, j] = t[i, j] + 1.0")
    nest = pf.Nest.of([pf.Tensor("t", (9, 12), "float32", "inout")], [step])
    bench = Bench(nest, monkeypatch)
    given = bench.put(np.zeros((9, 12), np.float32))
    call = bench.net.capture(given)
    for count in range(2, 6):
        assert call() is None
        assert (given.numpy() == count).all()
    assert bench.full == 1


def test_on_a_cpu_it_is_a_call_into_the_same_results() -> None:
    net = pf.compile(pf.lower(nn.Linear(12, 7, seed=1), batch=9))
    x = draw(0)
    call = net.capture(x)
    for seed in range(3):
        x[...] = draw(seed)
        call.result[...] = np.nan
        assert call() is call.result
        np.testing.assert_array_equal(call.result, net(x))
    with pytest.raises(pf.BadArgument, match="expected shape"):
        net.capture(x[:3])


def test_several_results_are_the_same_tuple() -> None:
    x = nn.input("x", (5, 6))
    net = pf.compile(pf.lower((nn.relu(x), nn.tanh(x))))
    values = draw(0, rows=5)[:, :6].copy()
    call = net.capture(values)
    first: Any = call.result
    values *= -1
    again = call()
    assert all(one is other for one, other in zip(again, first, strict=True))
    np.testing.assert_array_equal(again[0], np.maximum(values, 0))


def test_arrays_of_a_stand_in_are_called_as_ever() -> None:
    net = pf.compile(
        pf.lower(nn.ReLU(), batch=3, features=4), target="cuda", machine="h200", device="lockstep"
    )
    x = draw(0, rows=3)[:, :4].copy()
    call = net.capture(x)
    x *= -1
    np.testing.assert_array_equal(call(), np.maximum(x, 0))
