"""No error of islpy's leaves polyfuse: whichever question isl fails at, a PolyfuseError says what was being proven."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import unwrap
from typing import Any

import islpy as isl
import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn, rewrite
from polyfuse.errors import BudgetExceeded, IslFailure, PolyfuseError
from polyfuse.errors.budget import LATE, at_most, until
from polyfuse.errors.proving import proving, told
from tests.frontend.python.running import defined

QUESTIONS = (
    (isl.Set, "is_empty"),
    (isl.Set, "intersect"),
    (isl.Set, "is_subset"),
    (isl.Set, "dim_max"),
    (isl.Set, "dim_max_val"),
    (isl.Set, "coalesce"),
    (isl.Map, "is_single_valued"),
    (isl.Map, "intersect_domain"),
    (isl.Map, "apply_range"),
    (isl.Map, "is_subset"),
    (isl.UnionMap, "intersect_domain"),
    (isl.UnionMap, "subtract"),
    (isl.UnionMap, "is_empty"),
    (isl.PwAff, "eq_set"),
    (isl.PwAff, "sub"),
    (isl.PwAff, "max_val"),
)


@contextmanager
def failing(at: int) -> Iterator[list[int]]:
    """isl fails at the question with this number, and only there; the list has how many were asked."""
    asked = [0]

    def broken(question: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*args: Any) -> Any:
            asked[0] += 1
            if asked[0] == at:
                raise isl.Error("call to isl_something failed: in /project/isl/isl_something.c:379")
            return question(*args)

        return ask

    before = [(cls, name, getattr(cls, name)) for cls, name in QUESTIONS]
    for cls, name, question in before:
        setattr(cls, name, broken(question))
    try:
        yield asked
    finally:
        for cls, name, question in before:
            setattr(cls, name, question)


def loops() -> pf.Nest:
    return defined(
        """
@pf.nest
def f(a: "f64[N, 9]", b: "f64[N]"):
    for i in range(N):
        s = 0.0
        for j in range(9):
            s += a[i, j]
        b[i] = s
"""
    )


def layers() -> pf.Nest:
    x = nn.input("x", (4, 6))
    return nn.lower(
        nn.relu(nn.linear(nn.concat([x, x], 1), np.ones((12, 5), np.float32), np.ones(5, np.float32)))
    )


USES: dict[str, Callable[[], object]] = {
    "a function": loops,
    "layers": layers,
    "compile loops": lambda: pf.compile(loops(), target="cpu"),
    "compile layers": lambda: pf.compile(layers(), target="cuda", machine="h200", device="none"),
    "sizes": lambda: pf.compile(loops(), sizes={"N": 5}, machine="h200", device="none"),
    "dependences": lambda: layers().dependences(),
    "interpret": lambda: pf.interpret(loops(), {"a": np.ones((3, 9)), "b": np.ones(3)}),
    "a schedule": lambda: str(pf.Schedule(layers()).tile("mac0", i=2, j=2).fuse("bias0", "relu0", at="j")),
    "why not": lambda: pf.Schedule(layers()).why_not("fuse", "mac0", "relu0", at="j"),
    "views": lambda: rewrite.compose_views(layers()),
    "expansion": lambda: rewrite.expand(loops()),
}  # fmt: skip


@pytest.mark.parametrize("use", USES)
def test_an_error_of_isl_is_told_as_one_of_polyfuse(use: str) -> None:
    with failing(0) as asked:
        USES[use]()
    draw = random.Random(0)
    told = [told_at(at, USES[use]) for at in {1, asked[0], *(draw.randint(1, asked[0]) for _ in range(8))}]
    failures = [text for text in told if text is not None]
    assert failures
    for text in failures:
        assert text.startswith("isl failed in ")
        assert "call to isl_something failed" in text


def told_at(at: int, use: Callable[[], object]) -> str | None:
    """What is told of a failure at a question; None where polyfuse does without the answer, or refuses for it."""
    try:
        with failing(at):
            use()
    except IslFailure as error:
        return str(error)
    except PolyfuseError:
        return None
    return None


def test_the_error_says_what_was_being_proven() -> None:
    def ask() -> None:
        raise isl.Error("call to isl_set_is_empty failed")

    schedule = pf.Schedule(layers())
    with (
        failing(1),
        pytest.raises(IslFailure, match=r"isl failed in the legality of split\('mac0', 'i', 2\): call to"),
    ):
        schedule.split("mac0", "i", 2)
    with (
        pytest.raises(
            IslFailure, match=r"isl failed in validation of order \(in compile\): call to isl_set_is"
        ),
        proving("compile"),
        proving("validation of order"),
    ):
        ask()
    # what an inner step handles goes no further
    with proving("compile"), pytest.raises(isl.Error), proving("pricing"):
        ask()


def test_a_limit_on_operations_is_a_budget() -> None:
    nest = layers()
    limited = at_most(nest.context.get_ctx(), 1)
    with (
        pytest.raises(BudgetExceeded, match=r"the dependences of a nest.* needs more operations"),
        limited,
    ):
        nest.dependences()


def test_an_error_that_passed_no_step_is_told_too() -> None:
    """Where isl's time is over, it gives None for a number: a TypeError of Python's, which no step was told."""
    context = isl.DEFAULT_CONTEXT

    def asked_too_late() -> None:
        with until(context, 60):
            context.abort()
            raise TypeError("int() argument must be a string")

    with pytest.raises(isl.Error, match=LATE) as found:
        asked_too_late()
    assert not context.aborted()
    assert str(told(found.value)) == "what is asked of this nest needs more time of isl than it was given"


def test_every_public_rewrite_and_verb_is_a_step() -> None:
    functions = [getattr(rewrite, name) for name in rewrite.__all__ if name[0].islower()]
    assert all(unwrap(function) is not function for function in functions)
    assert all(
        unwrap(getattr(pf.Schedule, verb)) is not getattr(pf.Schedule, verb) for verb in pf.schedule.VERBS
    )
