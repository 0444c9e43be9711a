"""What cannot be searched for is refused with a sentence."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import polyfuse as pf
from papers.polybench import KERNELS
from polyfuse.checks import cuda_cases as cases

MACHINE = pf.Machine.preset("zen5")


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"count": 0}, r"Trials\(count=0\): expected an integer, at least 1"),
        ({"count": 2.5}, r"Trials\(count=2.5\): expected an integer, at least 1"),
        ({"at_once": -1}, r"Trials\(at_once=-1\): expected an integer, at least 1"),
        ({"seconds": 0}, r"Trials\(seconds=0\): expected more than 0, or None for no limit"),
        ({"seconds": float("nan")}, r"Trials\(seconds=nan\): expected more than 0"),
    ],
)
def test_numbers_that_ask_for_nothing(asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(pf.InvalidTuning, match=sentence):
        pf.Trials(**asked)


@pytest.mark.parametrize(
    ("nest", "options", "sentence"),
    [
        (
            cases.dense(4, 4, batch=2),
            {"machine": "h200"},
            "tune= measures schedules on the CPU, but the target is cuda",
        ),
        (cases.dense(4, 4, batch=2), {"target": "cuda", "device": "none"}, "pass target='cpu'"),
        (
            cases.dense(4, 4, batch=2),
            {"schedule": None},
            "tune= searches for a schedule, but schedule= gives one",
        ),
        (KERNELS["gemm"].nest, {"target": "cpu"}, "all sizes must be known: give sizes= for NI"),
    ],
)
def test_what_cannot_be_tuned(nest: pf.Nest, options: dict[str, Any], sentence: str) -> None:
    if "schedule" in options:
        options = {"schedule": pf.Schedule(nest), "target": "cpu"}
    with pytest.raises(pf.InvalidTuning, match=sentence):
        pf.compile(nest, tune=pf.Trials(count=2), **options)


def test_a_missing_optuna_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] == "optuna"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(pf.TargetUnavailable, match=r"tuning needs optuna.*pip install 'polyfuse\[tune\]'"):
        pf.compile(cases.dense(4, 4, batch=2), target="cpu", machine=MACHINE, tune=pf.Trials(count=2))
