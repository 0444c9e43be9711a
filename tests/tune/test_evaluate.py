"""One trial: what is sent is small, the schedule is made again and checked; in this process and in others."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from math import inf
from multiprocessing import get_context

import numpy as np
import pytest

import polyfuse as pf
from papers.pipelines import PIPELINES
from papers.polybench import KERNELS
from polyfuse.checks import cuda_cases as cases
from polyfuse.compiler import built
from polyfuse.schedule.step import Step
from polyfuse.strategy.pipeline import plan_for
from polyfuse.tune.evaluate import Bench, Task, Variant, forget, measured

MACHINE = pf.Machine.preset("zen5")


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    forget()


def nest() -> pf.Nest:
    return cases.dense(8, 12, 4, batch=5)


def task(other: Variant, model: Variant | None = None, best: float = 0.0) -> Task:
    own = model or Variant.of(plan_for(nest(), MACHINE).schedule, "model")
    return Task(other, own, MACHINE, built, seed=3, best=best)


def test_the_models_choice_is_1() -> None:
    own = Variant.of(plan_for(nest(), MACHINE).schedule, "model")
    found = measured(task(own, own))
    assert (found.ratio, found.refused) == (1.0, "")
    assert 0 < found.seconds < inf


def test_another_schedule_has_a_time() -> None:
    found = measured(task(Variant.of(pf.Schedule(nest()).tile("mac0", i=2, j=4), "tiled"), best=inf))
    assert found.refused == ""
    assert 0 < found.ratio < inf


def test_a_schedule_that_is_not_legal_is_refused() -> None:
    steps = (Step("fuse", ("relu0", "mac1"), (("at", "j"),)), Step("split", ("mac0", "q", 4), ()))
    found = measured(task(Variant("illegal", nest(), steps)))
    assert found.seconds == inf
    assert found.refused


def test_wrong_results_are_refused() -> None:
    right, wrong = (cases.pointwise(layer) for layer in (pf.nn.ReLU(), pf.nn.LeakyReLU(0.5)))
    model, other = (Variant.of(pf.Schedule(n), n.statements[0].name) for n in (right, wrong))
    found = measured(task(other, model))
    assert found.seconds == inf
    assert "from the model's choice by" in found.refused


def test_what_is_sent_is_small_whatever_the_weights() -> None:
    large = cases.dense(1024, 1024, 1024, batch=64)
    schedule = plan_for(large, MACHINE).schedule
    one = Variant.of(schedule, "model")
    sent = pickle.dumps(Task(one, one, MACHINE, built, seed=0, best=0.0))
    assert len(sent) < 64 * 1024 < large.constants["w0"].nbytes
    assert pickle.loads(sent).variant.steps == schedule.steps


NESTS = {
    "inout": KERNELS["gemm"].nest.with_sizes(KERNELS["gemm"].mini),
    "scalars": PIPELINES["unsharp"].nest.with_sizes(PIPELINES["unsharp"].mini),
}


@pytest.mark.parametrize("name", NESTS)
def test_a_bench_gives_the_oracles_results_every_time(name: str) -> None:
    bench = Bench(Variant.of(pf.Schedule(NESTS[name]), name), MACHINE, built, seed=1)
    first, second = bench.results(bench.model), bench.results(bench.model)
    expected = pf.interpret(NESTS[name], bench.given)
    for tensor in NESTS[name].outputs:
        np.testing.assert_array_equal(first[tensor.name], second[tensor.name])
        np.testing.assert_allclose(first[tensor.name], expected[tensor.name], rtol=1e-4, atol=1e-5)


@contextmanager
def pool() -> Iterator[Executor]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        yield executor


@contextmanager
def dask() -> Iterator[Executor]:
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster) as client,
        client.get_executor() as executor,
    ):
        yield executor


@pytest.mark.parametrize("others", [pool, dask], ids=["processes", "dask"])
def test_other_processes_measure(others: type[pool]) -> None:
    rows = np.random.default_rng(0).standard_normal((8, 32)).astype(np.float32)
    dense = cases.dense(32, 48, batch=8)
    with others() as executor:
        tune = pf.Trials(count=3, executor=executor, at_once=2)
        net = pf.compile(dense, target="cpu", machine=MACHINE, tune=tune)
    assert net.tuning is not None
    assert [trial.refused for trial in net.tuning.trials] == [""] * 3
    assert all(0 < trial.seconds < inf for trial in net.tuning.trials)
    expected = pf.compile(dense, target="cpu", machine=MACHINE)(rows)
    np.testing.assert_allclose(net(rows), expected, rtol=1e-4, atol=1e-4)
