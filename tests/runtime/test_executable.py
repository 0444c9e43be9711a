"""Executables on the CPU: calls, outputs, threads, pickling, memory, kernels compiled once."""

from __future__ import annotations

import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache
from typing import Any, Literal

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.checks import cuda_cases as cases
from polyfuse.errors import BadArgument, BudgetExceeded, InvalidSchedule, TargetUnavailable
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.runtime.cuda import driver as cuda_driver
from tests.frontend.python.running import defined


@cache
def small_nest() -> pf.Nest:
    return cases.dense(6, 9, 4, batch=5)


@cache
def small() -> pf.Executable:
    return pf.compile(small_nest(), target="cpu")


def rows(seed: int = 0, batch: int = 5) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal((batch, 6)).astype(np.float32)


def by_hand(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    w = small_nest().constants
    for n in range(2):
        x = np.maximum(x @ w[f"w{n}"] + w[f"b{n}"], 0)
    return x


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_plan_that_is_too_much_to_prove_gives_way_to_the_order_as_written(
    target: Literal["cpu", "cuda"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("polyfuse.compiler.OPERATIONS", 10)
    net = pf.compile(small_nest(), target=target, device="lockstep" if target == "cuda" else None)
    assert (
        "order as written is kept, with no loop changed: validation of cover needs more than" in net.explain()
    )
    assert len(net.kernels) == len(small_nest().statements)
    np.testing.assert_allclose(net(rows()), by_hand(rows()), rtol=1e-5, atol=1e-6)


def test_a_schedule_by_hand_that_is_too_much_to_prove_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polyfuse.compiler.OPERATIONS", 10)
    with pytest.raises(BudgetExceeded, match="validation of cover"):
        pf.compile(small_nest(), target="cpu", schedule=pf.Schedule(small_nest()))


@pytest.mark.parametrize("budget", [1e-6, 0.01, 0.1])
def test_a_plan_that_needs_more_than_its_budget_is_the_order_as_written_or_refused(
    monkeypatch: pytest.MonkeyPatch, budget: float
) -> None:
    monkeypatch.setattr("polyfuse.compiler.until", lambda context, seconds: nullcontext())  # operations alone
    try:
        net = pf.compile(small_nest(), target="cpu", budget=budget)
    except BudgetExceeded as error:
        assert budget < 0.1
        assert "needs more operations of isl than it was given" in str(error)  # noqa: PT017
        return
    assert "order as written is kept" in net.explain()
    assert "needs more operations of isl than it was given" in net.explain()
    np.testing.assert_allclose(net(rows()), by_hand(rows()), rtol=1e-5, atol=1e-6)


def test_a_plan_that_takes_longer_than_its_budget_is_the_order_as_written_or_refused() -> None:
    with pytest.raises(BudgetExceeded, match=r"more (operations|time) of isl"):
        pf.compile(small_nest(), target="cpu", budget=1e-6)

    place = " + ".join(f"i % {divisor}" for divisor in (3, 5, 7, 11, 13, 17, 19))
    update = statement("{ S[i] : 0 <= i < 64 }", f"a[({place}) % 64] += 1")
    seven = Nest.of((Tensor("a", (64,), "float32", "inout"),), (update,))
    start = time.monotonic()
    try:
        said = str(pf.compile(seven, target="cpu", budget=0.2).explain())
    except BudgetExceeded as error:  # where the machine is slow, the order as written takes longer too
        said = str(error)
    assert "needs more time of isl than it was given" in said
    assert time.monotonic() - start < 60  # four seconds of a core without an end


def test_a_budget_that_is_enough_changes_nothing() -> None:
    usual, limited = (pf.compile(small_nest(), target="cpu", budget=budget) for budget in (None, 60))
    assert limited.explain().split("validated")[0] == usual.explain().split("validated")[0]


@pytest.mark.parametrize("budget", [0, -1, float("nan"), "long"])
def test_a_budget_is_a_positive_number(budget: Any) -> None:
    with pytest.raises(BadArgument, match="budget="):
        pf.compile(small_nest(), target="cpu", budget=budget)


def test_a_call_by_position_and_by_name() -> None:
    x = rows()
    np.testing.assert_allclose(small()(x), by_hand(x), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(small()(x=x), small()(x))


def test_out_is_written_and_returned() -> None:
    x, out = rows(), np.full((5, 4), np.nan, np.float32)
    result = small()(x, out=out)
    assert np.shares_memory(result, out)
    np.testing.assert_array_equal(out, small()(x))


def test_out_of_several_outputs() -> None:
    nest = cases.two_outputs()
    net = pf.compile(nest, target="cpu")
    (x,) = cases.draw(nest, np.random.default_rng(1)).values()
    outs = cases.poisoned(nest)
    first, second = net(x, out=outs)
    assert np.shares_memory(first, outs[0])
    assert np.shares_memory(second, outs[1])
    with pytest.raises(BadArgument, match="expected 2 arrays for"):
        net(x, out=outs[0])


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.zeros((5, 5), np.float32), r"out: expected shape \[5, 4\], given \[5, 5\]"),
        (np.zeros((5, 4)), "out: expected dtype float32, given float64"),
        (np.zeros((4, 5), np.float32).T, "out for out: expected a writable C-contiguous array"),
    ],
)
def test_out_that_does_not_fit(out: np.ndarray[Any, Any], message: str) -> None:
    with pytest.raises(BadArgument, match=message):
        small()(rows(), out=out)


def test_out_that_overlaps_an_input_is_refused() -> None:
    net = pf.compile(cases.pointwise(nn.ReLU(), 2, 3), target="cpu")
    x = np.ones((2, 3), np.float32)
    with pytest.raises(BadArgument, match="out for out shares memory with x"):
        net(x, out=x)


def test_a_scalar_result_has_rank_0() -> None:
    net = pf.compile(nn.lower(nn.sum(nn.input("x", (3, 4)))), target="cpu")
    result = net(np.ones((3, 4), np.float32))
    assert (result.shape, float(result)) == ((), 12.0)


def test_an_input_that_is_not_contiguous_is_copied_and_reported() -> None:
    net = pf.compile(small_nest(), target="cpu")
    x = rows()
    assert net.report().copied_inputs == ()
    np.testing.assert_array_equal(net(np.asfortranarray(x)), net(x))
    assert net.report().copied_inputs == ("x",)
    assert "inputs copied     x (not contiguous" in str(net.report())


def inout_nest() -> pf.Nest:
    step = pf.statement("[N] -> { step[i] : 0 <= i < N }", "a[i] = a[i] + b[i]")
    tensors = [pf.Tensor("b", ("N",), "float64", "input"), pf.Tensor("a", ("N",), "float64", "inout")]
    return pf.Nest.of(tensors, [step], context="[N] -> { : N >= 0 }")


def test_an_inout_changes_in_place_also_where_it_had_to_be_copied() -> None:
    net = pf.compile(inout_nest(), target="cpu")
    a, b = np.arange(6.0), np.ones(6)
    assert net(b, a) is None
    np.testing.assert_array_equal(a, np.arange(6.0) + 1)
    wide = np.zeros((6, 2))
    net(b, wide[:, 1])
    np.testing.assert_array_equal(wide, [[0, 1]] * 6)
    named = np.zeros((6, 2))
    net(b=b, a=named[:, 0])
    np.testing.assert_array_equal(named, [[1, 0]] * 6)


def test_symbolic_sizes_are_read_off_the_arrays() -> None:
    net = pf.compile(inout_nest(), target="cpu")
    for size in (0, 1, 7):
        a = np.zeros(size)
        net(np.ones(size), a)
        np.testing.assert_array_equal(a, np.ones(size))
    with pytest.raises(BadArgument, match=r"a: expected shape \[3\] \(N = 3\), given \[4\]"):
        net(np.ones(3), np.zeros(4))


SPECIAL = np.array([[np.nan, np.inf, -np.inf, -0.0, 1e30, -1e30, 1e-42]], np.float32)


@pytest.mark.parametrize(
    ("layer", "formula"),
    [
        (nn.ReLU(), lambda x: np.maximum(x, 0)),
        (nn.LeakyReLU(0.5), lambda x: np.where(x > 0, x, np.float32(0.5) * x)),
        (nn.Tanh(), np.tanh),
        (nn.Sigmoid(), lambda x: 1 / (1 + np.exp(-x))),
    ],
    ids=["relu", "leaky_relu", "tanh", "sigmoid"],
)
def test_nan_and_infinity_pass_as_in_numpy(layer: nn.Module, formula: Any) -> None:
    net = pf.compile(nn.lower(layer, batch=1, features=7), target="cpu")
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(net(SPECIAL), formula(SPECIAL), rtol=1e-6)


def test_nan_in_one_row_stays_in_that_row() -> None:
    x = rows()
    x[2, 3] = np.nan
    found = small()(x)
    assert np.isnan(by_hand(x)[2]).all()
    np.testing.assert_array_equal(np.isnan(found), np.isnan(by_hand(x)))


def test_batch_0_gives_an_empty_result() -> None:
    net = pf.compile(cases.dense(6, 9, 4, batch=0), target="cpu")
    assert net(np.empty((0, 6), np.float32)).shape == (0, 4)


@pytest.mark.parametrize("fuse", [True, False])
def test_many_threads_at_once(fuse: bool) -> None:
    net = pf.compile(cases.dense(*[96] * 4, batch=64), target="cpu", fuse=fuse)
    draws = [np.random.default_rng(n).standard_normal((64, 96)).astype(np.float32) for n in range(8)]
    expected = [net(x) for x in draws]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(net, draws * 25))
    for n, result in enumerate(found):
        np.testing.assert_array_equal(result, expected[n % 8])


def test_constants_replaced_while_threads_call_give_the_old_or_the_new() -> None:
    net = pf.compile(nn.lower(nn.Linear(3, 2, seed=1), batch=4), target="cpu")
    x = np.ones((4, 3), np.float32)
    values = [{"w0": np.full((3, 2), v, np.float32), "b0": np.full(2, v, np.float32)} for v in (1.0, 2.0)]
    net.replace_constants(values[0])
    with ThreadPoolExecutor(4) as pool:
        results = [pool.submit(net, x) for _ in range(100)]
        for n in range(50):
            net.replace_constants(values[n % 2])
        found = {float(v) for r in results for v in np.unique(r.result())}
    assert found <= {4.0, 8.0}
    assert float(net(x)[0, 0]) == 8.0


def test_replaced_constants_must_fit() -> None:
    net = pf.compile(small_nest(), target="cpu")
    with pytest.raises(BadArgument, match=r"w0: expected shape \[6, 9\], given \[9, 6\]"):
        net.replace_constants({"w0": np.zeros((9, 6), np.float32)})
    with pytest.raises(BadArgument, match="w0: expected dtype float32, given float64"):
        net.replace_constants({"w0": np.zeros((6, 9))})
    with pytest.raises(BadArgument, match="unknown constant 'w7'; the constants are w0, b0, w1, b1"):
        net.replace_constants({"w7": np.zeros((6, 9), np.float32)})


def test_replacing_constants_leaves_the_nest_alone() -> None:
    net = pf.compile(small_nest(), target="cpu")
    net.replace_constants({name: np.zeros_like(a) for name, a in net.constants.items()})
    assert not net(rows()).any()
    assert small()(rows()).any()


def test_a_pickled_net_gives_the_same_results_and_keeps_replaced_constants() -> None:
    net = pf.compile(small_nest(), target="cpu")
    net.replace_constants({"b1": np.full(4, 2.5, np.float32)})
    copy = pickle.loads(pickle.dumps(net))
    np.testing.assert_array_equal(copy(rows()), net(rows()))
    assert copy.source == net.source
    assert copy.schedule.trace() == net.schedule.trace()
    assert copy.explain() == net.explain()


def test_a_batched_ensemble_and_a_folded_norm_are_pickled_too() -> None:
    """Their accesses { stack[e0] -> w[0, e0] } have dimensions of an element with the names of the instance's."""
    x = nn.input("x", (2, 5, 6))
    members = nn.stack([nn.relu(nn.linear(x[k], nn.Linear(6, 4))) for k in range(2)])
    folded = nn.Sequential(nn.Conv2d(3, 3, 3, groups=3), nn.BatchNorm(3))
    for nest in (pf.lower(members), pf.lower(folded, batch=2, features=(3, 6, 6))):
        net = pf.compile(nest, target="cpu")
        copy = pickle.loads(pickle.dumps(net))
        given = cases.draw(nest, np.random.default_rng(3))
        np.testing.assert_array_equal(copy(**given), net(**given))
        assert copy.schedule.trace() == net.schedule.trace()


def test_a_schedule_made_by_hand() -> None:
    nest = small_nest()
    schedule = pf.Schedule(nest).tile("mac0", i=2, j=3).fuse("bias0", "relu0", at="j")
    net = pf.compile(nest, target="cpu", schedule=schedule)
    np.testing.assert_allclose(net(rows()), by_hand(rows()), rtol=1e-5, atol=1e-6)
    assert "the schedule was given by hand" in net.explain()
    with pytest.raises(InvalidSchedule, match="the schedule is of nest"):
        pf.compile(cases.dense(6, 9, batch=5), schedule=schedule)


def test_a_schedule_bound_to_what_the_target_has_not() -> None:
    nest = small_nest()
    on_gpu = pf.Schedule(nest).bind("mac0", i="block.x")
    with pytest.raises(InvalidSchedule, match=r"loop i is bound to block.x, which target cpu does not have"):
        pf.compile(nest, target="cpu", schedule=on_gpu)
    on_cores = pf.Schedule(nest).bind("mac0", i="cores")
    with pytest.raises(InvalidSchedule, match="loop i is bound to cores, which target cuda does not have"):
        pf.compile(nest, target="cuda", machine="h200", device="none", schedule=on_cores)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_layers_of_one_shape_are_compiled_once(target: str) -> None:
    nest = cases.dense(*[64] * 9, batch=128)
    machine = {"cpu": None, "cuda": "h200"}[target]
    device = None if target == "cpu" else "none"
    net = pf.compile(nest, target=target, machine=machine, device=device, fuse=False)  # type: ignore[arg-type]
    calls = [k for k in net.kernels if not k.once]  # a CPU may pack weights, once for all calls
    assert len(calls) == 8 * 3
    assert len({k.name for k in calls}) == 3
    assert [k.tensors for k in calls if k.statements == ("bias3",)] == [("y3", "b3", "z3")]


def test_fused_layers_of_one_shape_are_one_code_and_three_launches() -> None:
    net = pf.compile(cases.dense(*[384] * 4, batch=64), target="cuda", machine="h200", device="none")
    assert len(net.kernels) == 3
    assert len(net.program.codes) == 1


def test_the_arena_is_smaller_than_its_temporaries() -> None:
    nest = cases.dense(*[32] * 7, batch=16)
    net = pf.compile(nest, target="cpu", fuse=False)
    report = net.report()
    one = 16 * 32 * 4
    assert report.arena_bytes_before == one * (6 * 3 - 1)
    assert report.arena_bytes == 2 * one
    x = np.random.default_rng(5).standard_normal((16, 32)).astype(np.float32)
    np.testing.assert_allclose(net(x), pf.interpret(nest, [x])["out"], rtol=1e-5, atol=1e-6)


TURNED = """
@pf.nest
def turned(a: "f64[N, M]", b: "f64[N, M]"):
    t = np.zeros((N, M))
    for i in range(N):
        for j in range(M):
            t[i, j] = a[i, j] * 2
    for i in range(N):
        for j in range(M):
            b[i, j] = t[N - 1 - i, M - 1 - j]
"""


@pytest.mark.parametrize("options", [{"target": "cpu"}, {"machine": "h200", "device": "lockstep"}])
def test_reports_of_symbolic_sizes(options: dict[str, Any]) -> None:
    net = pf.compile(defined(TURNED), fuse=False, **options)
    report = net.report()  # of the sizes that the model counts for
    assert report.sizes == report.counted_sizes == {"N": 256, "M": 256}
    assert report.arena_bytes == net.memory_plan().size == 256 * 256 * 8
    assert "symbolic sizes    N = 256, M = 256\n" in str(report)
    some = net.report({"N": 3})
    assert some.arena_bytes == net.memory_plan({"N": 3}).size == 3 * 256 * 8
    assert "N = 256, M = 256 for work, bytes and time; N = 3, M = 256 for memory" in str(some)
    assert len(some.kernel_times) == (0 if net.program.target == "cpu" else 2)
    a, b = np.arange(6.0).reshape(2, 3), np.empty((2, 3))
    net(a, b)
    np.testing.assert_array_equal(b, 2 * a[::-1, ::-1])
    with pytest.raises(BadArgument, match=r"has no size K; its sizes are N, M"):
        net.memory_plan({"K": 1})
    with pytest.raises(BadArgument, match=r"N > 0 does not hold"):
        net.report({"N": -1})


def test_sizes_of_a_report_that_the_context_ties_together() -> None:
    tensors = (pf.Tensor("x", ("N",), "float64", "input"), pf.Tensor("y", ("M",), "float64", "output"))
    copy = pf.statement("[N, M] -> { S[i] : 0 <= i < M }", "y[i] = x[i]")
    net = pf.compile(pf.Nest.of(tensors, [copy], context="[N, M] -> { : 0 < M and N = 2M }"), target="cpu")
    known = net.report().sizes
    assert known["N"] == 2 * known["M"]
    assert net.report({"N": 20}).sizes == {"N": 20, "M": 10}


def test_cuda_without_a_gpu_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "target 'cuda' needs an NVIDIA GPU with its driver; no driver library is found on this machine"
    monkeypatch.setattr("polyfuse.compiler.available", lambda: False)
    monkeypatch.setattr("polyfuse.compiler.missing", lambda: reason)
    with pytest.raises(TargetUnavailable, match=r"needs an NVIDIA GPU with its driver.*machine='h200'"):
        pf.compile(small_nest(), target="cuda")
    with pytest.raises(TargetUnavailable, match="needs an NVIDIA GPU with its driver"):
        pf.compile(small_nest(), target="cuda", machine="h200", device="gpu")
    assert pf.compile(small_nest(), target="auto").program.target == "cpu"


def test_auto_without_the_cuda_extra_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "find_spec", lambda name: None)
    net = pf.compile(small_nest())
    assert net.program.target == "cpu"
    np.testing.assert_array_equal(net(rows()), small()(rows()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "tpu"}, "unknown target 'tpu'; expected 'auto', 'cpu' or 'cuda'"),
        ({"target": "cuda", "machine": "h300"}, "unknown machine 'h300'; expected one of a100"),
        ({"target": "cpu", "machine": "h200"}, "machine h200 is a cuda machine, but the target is cpu"),
        (
            {"target": "cpu", "device": "lockstep"},
            "device='lockstep' is for CUDA kernels, but the target is cpu: leave device= out",
        ),
        ({"target": "cuda", "machine": "h200", "device": "tpu"}, "unknown device 'tpu'; expected 'gpu'"),
    ],
)
def test_targets_that_are_not_there(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TargetUnavailable, match=message):
        pf.compile(small_nest(), **options)


def test_compiled_to_be_read_it_says_so_when_called() -> None:
    net = pf.compile(small_nest(), target="cuda", machine="h200", device="none")
    assert "cuda.blockIdx" in net.source
    with pytest.raises(TargetUnavailable, match="compiled for h200 to be read, not to be run here"):
        net(rows())


def test_ptx_by_kernel_and_none_for_a_cpu() -> None:
    pytest.importorskip("cuda.core", reason="NVIDIA's compiler is not installed")
    net = pf.compile(cases.dense(8, 8, batch=4), target="cuda", machine="h200", device="none")
    assert set(net.ptx) == {code.name for code in net.program.codes}
    assert all(f".entry {name}" in text or ".visible .entry" in text for name, text in net.ptx.items())
    with pytest.raises(TargetUnavailable, match="ptx: kernels for zen5, a CPU, have none"):
        _ = pf.compile(small_nest(), target="cpu", machine="zen5").ptx
