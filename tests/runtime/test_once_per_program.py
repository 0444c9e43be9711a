"""What depends on constants alone runs once for all calls: which kernels these are, and whose values a call sees."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse import nn
from polyfuse.analysis.once import once, refusal
from polyfuse.analysis.validation import ValidationFailure, validate
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.ir.tree import Sequence, Tree, parts
from tests.support.examples import examples
from tests.support.execution import memory, run_lockstep, run_numba, run_plain

Array = np.ndarray[Any, Any]

SIZE = 6
ROLES = {"w": "constant", "v": "constant", "x": "input", "out": "output"}


def nest_of(*bodies: str) -> Nest:
    """Statements S0, S1, … over 0 <= i < 6; what is not in ROLES is a temporary."""
    statements = [statement(f"{{ S{n}[i] : 0 <= i < {SIZE} }}", body) for n, body in enumerate(bodies)]
    names = dict.fromkeys(name for s in statements for name in s.tensors)
    roles: Mapping[str, Any] = {name: ROLES.get(name, "temporary") for name in names}
    tensors = [Tensor(name, (SIZE,), "float64", role) for name, role in roles.items()]
    constants = {name: np.arange(SIZE) + 1.0 for name, role in roles.items() if role == "constant"}
    return Nest.of(tensors, statements, constants=constants)


def flags(nest: Nest) -> str:
    """One letter a kernel in the order as written: o for once, c for each call."""
    return "".join("o" if each else "c" for each in once(nest, pf.Schedule(nest).tree))


@pytest.mark.parametrize(
    ("bodies", "expected"),
    [
        (("t[i] = w[i] + 1", "out[i] = t[i] * x[i]"), "oc"),
        (("t[i] = w[i]", "u[i] = t[5 - i] * v[i]", "out[i] = u[i] + x[i]"), "ooc"),
        (("t[i] = w[i]", "u[i] = t[i] * x[i]", "out[i] = u[i] + t[i]"), "occ"),
        (("t[i] = w[i]", "out[i] = t[i] + x[i]", "t[i] = v[i]", "u[i] = t[i]"), "cccc"),
        (("t[i] = w[i]", "t[i] = t[i] + x[i]", "out[i] = t[i]"), "ccc"),
        (("out[i] = w[i]",), "c"),
        (("t[i] = 0.0", "t[i] += w[i]", "out[i] = t[i] + x[i]"), "ooc"),
        (("t[i] = x[i]", "u[i] = w[i]", "out[i] = t[i] + u[i]"), "coc"),
    ],
)
def test_which_kernels_run_once(bodies: tuple[str, ...], expected: str) -> None:
    assert flags(nest_of(*bodies)) == expected


BODIES = (
    "t[i] = w[i]",
    "t[i] = t[5 - i]",
    "t[i] += w[i]",
    "u[i] = t[i]",
    "u[i] = t[i] * x[i]",
    "s[i] = u[i]",
    "s[i] = v[i]",
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.sampled_from(BODIES), max_size=7), st.lists(st.booleans(), min_size=12, max_size=12))
def test_no_kernel_more_may_run_once(bodies: list[str], joined: list[bool]) -> None:
    """The largest set for which the theorem holds: what is left when kernels that it refuses go one after the other."""
    start = ("t[i] = w[i]", "u[i] = v[i]", "s[i] = w[i]")
    nest = nest_of(*start, *bodies, "out[i] = s[i] + x[i]")
    kernels: list[Tree] = []
    for part, join in zip(parts(nest.order), joined, strict=False):
        kernels = [*kernels[:-1], Sequence((kernels[-1], part))] if join and kernels else [*kernels, part]
    tree = Sequence(tuple(kernels))
    chosen = (True,) * len(kernels)
    while (refused := refusal(nest, tree, chosen)) is not None:
        chosen = tuple(
            each and refused not in part.members for part, each in zip(kernels, chosen, strict=True)
        )
    assert once(nest, tree) == chosen


@pytest.mark.parametrize("wrong", [(True, True, True), (False, False, True), (False, True, False)])
def test_validation_refuses_a_kernel_that_does_not_run_once(wrong: tuple[bool, ...]) -> None:
    s = pf.Schedule(nest_of("t[i] = w[i]", "u[i] = t[i] * x[i]", "out[i] = u[i] + t[i]"))
    validate(s.source, s.nest, s.tree, early=(True, False, False))
    with pytest.raises(ValidationFailure, match=r"validation of once failed: S[12] depends on more than"):
        validate(s.source, s.nest, s.tree, early=wrong)


def test_a_dependence_from_a_call_to_what_runs_once() -> None:
    s = pf.Schedule(nest_of("t[i] = w[i]", "out[i] = t[i] + x[i]", "t[i] = v[i]", "u[i] = t[i]"))
    with pytest.raises(ValidationFailure, match="validation of once failed: S2"):
        validate(s.source, s.nest, s.tree, early=(True, False, True, True))


CHAIN = ("t[i] = w[5 - i]", "u[i] = t[5 - i] * v[i]", "s[i] = u[i] + x[i]", "out[i] = s[5 - i] * u[i]")


@pytest.mark.parametrize("run", ["plain", "numba", "lockstep"])
def test_stand_ins_agree_with_the_oracle(run: str) -> None:
    nest = nest_of(*CHAIN)
    inputs = {**nest.constants, "x": np.arange(SIZE) - 2.0}
    tree = pf.Schedule(nest).tree
    arrays = memory(nest, nest, tree, inputs, {})
    if run == "plain":
        run_plain(nest, tree, arrays, {}, 0)
    else:
        (run_numba if run == "numba" else run_lockstep)(nest, tree, arrays, {})
    np.testing.assert_array_equal(arrays["out"], pf.interpret(nest, {"x": inputs["x"]})["out"])


def test_what_only_once_kernels_need_is_not_kept() -> None:
    net = pf.compile(nest_of(*CHAIN), target="cpu", fuse=False)
    assert [launch.once for launch in net.kernels] == [True, True, False, False]
    report = net.report()
    assert (report.launches, report.launches_once) == (2, 2)
    assert report.kept_bytes == 8 * SIZE, "u is kept, t is not"
    assert report.arena_bytes == 8 * SIZE, "s alone lies in a call's arena"
    assert "2 launches of 3 compiled kernels, 2 more once for all calls" in str(report)
    assert "made once         48 bytes from constants alone" in str(report)
    assert "runs S0, once for all calls" in net.explain()


def test_on_a_gpu_launches_run_once_too() -> None:
    nest = nest_of(*CHAIN)
    net = pf.compile(nest, target="cuda", device="lockstep", fuse=False)
    x = np.arange(SIZE) - 2.0
    assert [launch.once for launch in net.kernels] == [True, True, False, False]
    np.testing.assert_array_equal(net(x), pf.interpret(nest, {"x": x})["out"])
    net.replace_constants({"w": np.ones(SIZE)})
    np.testing.assert_array_equal(
        net(x), pf.interpret(nest.with_constants({"w": np.ones(SIZE)}), {"x": x})["out"]
    )


# -- packed weights ----------------------------------------------------------------------------------------------------


def model(seed: int = 0) -> Nest:
    """A layer whose weights the strategy packs once on any machine with caches: rows of 4 KiB."""
    return pf.lower(nn.Sequential(nn.Linear(40, 1030, seed=seed), nn.ReLU()), batch=24)


def rows() -> Array:
    return np.random.default_rng(0).standard_normal((24, 40)).astype(np.float32)


def expected(net: pf.Executable, x: Array) -> Array:
    w = {name: a.astype(np.float64) for name, a in net.constants.items()}
    return np.maximum(x @ w["w0"] + w["b0"], 0)


def agrees(net: pf.Executable) -> None:
    np.testing.assert_allclose(net(rows()), expected(net, rows()), rtol=1e-4, atol=1e-5)


def test_weights_are_packed_once_and_it_is_said() -> None:
    net = pf.compile(model(), target="cpu")
    assert [launch.once for launch in net.kernels] == [True, False]
    assert "w0 is packed once for all calls" in net.explain()
    assert net.report().kept_bytes >= 40 * 1030 * 4
    agrees(net)


def test_replaced_weights_give_new_panels() -> None:
    net = pf.compile(model(), target="cpu")
    before = net(rows())
    net.replace_constants({"w0": 2 * net.constants["w0"]})
    agrees(net)
    assert not np.array_equal(net(rows()), before)


def test_two_executables_that_share_weights_keep_their_own() -> None:
    nest = model()
    first, second = pf.compile(nest, target="cpu"), pf.compile(nest, target="cpu")
    second.replace_constants({"w0": np.zeros((40, 1030), np.float32)})
    agrees(first)
    agrees(second)


def test_calls_in_progress_see_the_old_panels_or_the_new() -> None:
    net = pf.compile(model(), target="cpu")
    x = np.ones((24, 40), np.float32)
    values = [
        {"w0": np.full((40, 1030), v, np.float32), "b0": np.full(1030, v, np.float32)} for v in (1.0, 2.0)
    ]
    net.replace_constants(values[0])
    with ThreadPoolExecutor(4) as pool:
        results = [pool.submit(net, x) for _ in range(200)]
        for n in range(40):
            net.replace_constants(values[n % 2])
        found = {float(v) for r in results for v in np.unique(r.result())}
    assert found <= {41.0, 82.0}
    assert float(net(x)[0, 0]) == 82.0


def test_a_pickled_net_packs_its_own_weights_again() -> None:
    net = pf.compile(model(), target="cpu")
    net.replace_constants({"w0": 3 * net.constants["w0"]})
    copy = pickle.loads(pickle.dumps(net))
    agrees(copy)
    assert [str(launch) for launch in copy.kernels] == [str(launch) for launch in net.kernels]


def test_a_cached_program_packs_other_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYFUSE_CACHE", str(tmp_path))
    first, second = pf.compile(model(0), target="cpu"), pf.compile(model(5), target="cpu")
    assert second.report().cache.startswith("loaded")
    assert [launch.once for launch in second.kernels] == [True, False]
    assert second.report().kept_bytes == first.report().kept_bytes > 0
    agrees(first)
    agrees(second)
    assert not np.array_equal(first(rows()), second(rows()))
