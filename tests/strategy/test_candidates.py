"""Whatever a strategy's questions are answered, the plan computes what the oracle does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import numpy as np
import pytest

from papers.pipelines import PIPELINES
from polyfuse.analysis.validation import validate
from polyfuse.interpret import interpret
from polyfuse.ir import Nest
from polyfuse.machine import KiB, cpu
from polyfuse.strategy import plan_for
from polyfuse.strategy.candidates import Answer, Choose, Picked, question
from tests.support.execution import memory, run_plain
from tests.support.loop_programs import PROGRAMS, gemm, jacobi_2d, trmm
from tests.support.models import CPU, mlp

SMALL = cpu("small caches", 2, 32, (1 * KiB, 4 * KiB, 16 * KiB), 3.0e9)
"""Caches so small that loops of some dozens are tiled and packed."""


def random_answers(seed: int) -> Answer:
    rng = Random(seed)
    return lambda kernel, what, seconds: rng.randrange(len(seconds))


class Heard:
    """The questions asked, with how many options each has; answered as another does."""

    def __init__(self, answers: Answer = lambda *_: 0) -> None:
        self.answers = answers
        self.questions: dict[str, int] = {}
        self.given: dict[str, int] = {}

    def __call__(self, kernel: tuple[str, ...], what: str, seconds: Sequence[float]) -> int:
        asked = question(kernel, what)
        assert asked not in self.questions, "a question is asked once"
        self.questions[asked] = len(seconds)
        self.given[asked] = self.answers(kernel, what, seconds)
        return self.given[asked]


def product() -> Nest:
    return gemm(20)


def network() -> Nest:
    return mlp(2, 24, 6)


def pipeline() -> Nest:
    return PIPELINES["unsharp"].nest.with_sizes(PIPELINES["unsharp"].mini)


MAKERS = (*PROGRAMS, product, network, pipeline)
EVERY = pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)


@EVERY
def test_any_answers_make_a_plan_that_computes_the_same(make: Callable[[], Nest]) -> None:
    nest = make()
    rng = np.random.default_rng(1)
    roles = nest.with_role("input", "inout", "constant")
    inputs = {t.name: rng.uniform(1, 2, tuple(map(int, t.shape))).astype(t.dtype) for t in roles}
    oracle = interpret(
        nest.with_constants({t.name: inputs[t.name] for t in nest.with_role("constant")}), inputs
    )
    for seed in range(4):
        schedule = plan_for(nest, SMALL, choose=Choose(random_answers(seed))).schedule
        validate(schedule.source, schedule.nest, schedule.tree)
        arrays = memory(schedule.source, schedule.nest, schedule.tree, inputs, {})
        run_plain(schedule.nest, schedule.tree, arrays, {}, seed)
        for tensor in nest.outputs:
            np.testing.assert_allclose(arrays[tensor.name], oracle[tensor.name], rtol=1e-4)


@EVERY
def test_answers_that_are_picked_again_make_the_same_plan(make: Callable[[], Nest]) -> None:
    heard = Heard(random_answers(5))
    first = plan_for(make(), SMALL, choose=Choose(heard))
    again = plan_for(make(), SMALL, choose=Choose(Picked(heard.given)))
    assert again.schedule.trace() == first.schedule.trace()
    assert str(again) == str(first)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: gemm(64), "form of"),
        (lambda: gemm(64), "blocks of"),
        (lambda: mlp(2, 64, 1), "tiles of"),
        (lambda: trmm(60, 60), "shape of"),
        (lambda: jacobi_2d(100, 20), "shape of"),
        (lambda: PIPELINES["harris"].nest.with_sizes(PIPELINES["harris"].large), "overlapping tiles of"),
    ],
)
def test_what_is_asked(make: Callable[[], Nest], what: str) -> None:
    heard = Heard()
    plan_for(make(), CPU, choose=Choose(heard))
    assert max(count for asked, count in heard.questions.items() if asked.startswith(what)) > 1


def test_the_first_option_is_what_a_compile_takes() -> None:
    assert (
        plan_for(gemm(64), CPU, choose=Choose(Picked({}))).schedule.trace()
        == plan_for(gemm(64), CPU).schedule.trace()
    )
