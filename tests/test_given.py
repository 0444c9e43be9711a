"""What is given to the public functions in place of what they take: refused by name, with what would do."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn, show

# ruff: noqa: F821, UP037


@pf.nest
def axpy(a: "f64", n: "i64", x: "f64[N]", y: "f64[N]"):
    for i in range(N):
        if i < n:
            y[i] += a * x[i]


LAYER = pf.lower(nn.Sequential(nn.Linear(8, 4), nn.ReLU()), batch=2)


@pytest.mark.parametrize("given", [nn.Linear(3, 4), nn.input("x", (3,)), lambda x: x, None, 3])
@pytest.mark.parametrize(
    ("taker", "take"),
    [
        ("compile", pf.compile),
        ("Schedule", pf.Schedule),
        ("interpret", lambda nest: pf.interpret(nest, [])),
        ("latex", show.latex),
        ("html", show.html),
        ("domain_plot", lambda nest: show.domain_plot(nest, "S")),
        ("dependence_plot", show.dependence_plot),
        ("dependence_graph", show.dependence_graph),
    ],
)
def test_what_is_no_nest_is_refused_with_what_makes_one(taker: str, take: Any, given: Any) -> None:
    kind = type(given).__name__
    with pytest.raises(
        pf.BadArgument, match=rf"{taker} takes a nest.*, given {kind}: pf.lower\(model, batch=…\)"
    ):
        take(given)


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ({"schedule": "x"}, "schedule='x', expected a pf.Schedule"),
        ({"sizes": 5}, "sizes=5, expected numbers by name, .* or a list such as"),
        ({"sizes": [5]}, r"sizes=\[5\] has to end in a symbolic size"),
        ({"sizes": {"N": 5.0}}, "the size N is 5.0, expected an integer"),
        ({"sizes": {"N": "5"}}, "the size N is '5', expected an integer"),
        ({"machine": 3}, "machine=3, expected a pf.Machine, or the name of a preset"),
        ({"tune": 3}, r"tune=3, expected pf.Trials\(…\)"),
        ({"fast_matmul": 3}, "fast_matmul=3, expected an algorithm, the name of one"),
        ({"fast_matmul": "auto", "accuracy": "x"}, "accuracy='x', expected a number"),
    ],
)
def test_options_of_another_type_are_refused(option: dict[str, Any], why: str) -> None:
    with pytest.raises(pf.BadArgument, match=why):
        pf.compile(axpy, target="cpu", **option)


@pytest.mark.parametrize(
    ("verb", "args", "options", "why"),
    [
        ("fuse", ("mac0", "bias0"), {"at": "j", "shift": 3}, "shift gives an integer for each loop"),
        ("fuse", ("mac0", "bias0"), {"at": "j", "shift": {"i": 0.5}}, r"not \{'i': 0.5\}"),
        ("pack", ("w0", "mac0"), {"panel": 8}, r"panel=8, expected \(axis, width\), as in panel=\(1, 32\)"),
        ("pack", ("w0", "mac0"), {"panel": (1,)}, r"panel=\(1,\), expected"),
        ("join", ("mac0", "relu0"), {"loop": 3}, "named by an identifier such as 'layer', not 3"),
        ("sections", ("mac0", "relu0"), {"loop": ""}, "named by an identifier such as 'layer', not ''"),
        ("skew", ("mac0", "i"), {"by": "i"}, "i is not outside i"),
    ],
)
def test_arguments_of_verbs_of_another_type(verb: str, args: Any, options: Any, why: str) -> None:
    with pytest.raises(pf.InvalidSchedule, match=why):
        getattr(pf.Schedule(LAYER), verb)(*args, **options)


def test_the_loops_around_no_statement() -> None:
    with pytest.raises(
        pf.InvalidNest, match="unknown statement 'mac7'; expected one of zero0, mac0, bias0, relu0"
    ):
        pf.Schedule(LAYER).loops("mac7")


@pytest.mark.parametrize("domain", ["S[i] : 0 <= i < 3", "", 3])
def test_what_isl_does_not_read(domain: Any) -> None:
    with pytest.raises(pf.InvalidNest, match=r"not an isl set|neither an isl set"):
        pf.statement(domain, "a[i] = 1")
    with pytest.raises(pf.InvalidNest, match=r"not an isl set|neither an isl set"):
        pf.Nest.of(LAYER.tensors, LAYER.statements, context=domain)


@pytest.mark.parametrize(
    ("a", "n", "why"),
    [
        ("2", 1, r"a: expected a number \(input a: float64\[\]\), given str"),
        (2j, 1, "a: expected a number .*, given complex"),
        (np.complex64(2), 1, "a: expected a number .*, given complex64"),
        (2.0, float("nan"), "n: expected an integer .*, given nan"),
        (2.0, float("-inf"), "n: expected an integer .*, given -inf"),
        (2.0, 2**2000, "does not fit int64"),
    ],
)
def test_scalars_that_are_no_numbers_of_their_type(a: Any, n: Any, why: str) -> None:
    with pytest.raises(pf.BadArgument, match=why):
        pf.compile(axpy, target="cpu", schedule=pf.Schedule(axpy))(a, n, np.ones(3), np.ones(3))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_of_a_nest_keeps_its_function(copied: Any) -> None:
    y = np.zeros(3)
    copied(axpy).python(2.0, 2, np.ones(3), y)
    assert y.tolist() == [2, 2, 0]
