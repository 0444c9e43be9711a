"""Values show themselves: short texts, and cards in a notebook."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.runtime.compile_key import key_parts
from polyfuse.show.folded_tree import trip_label
from polyfuse.strategy import plan_for
from polyfuse.strategy.tuning_trials import Trial, Tuning
from tests.show.subjects import dense, fused, jacobi, wavefronts

# ruff: noqa: F821


def layers(count: int) -> pf.Nest:
    """Equal layers."""
    each = [layer for _ in range(count) for layer in (nn.Linear(16, 16), nn.ReLU())]
    return pf.lower(nn.Sequential(*each), batch=4)


def text(value: object) -> str:
    """The text of a card without its style."""
    root = ElementTree.fromstring(value._repr_html_())  # type: ignore[attr-defined]
    style = root.find("style")
    assert style is not None
    assert "prefers-color-scheme: dark" in (style.text or "")
    root.remove(style)
    return " ".join("".join(root.itertext()).split())


def test_reprs_are_short_and_name_what_they_show() -> None:
    nest = dense()
    plan = plan_for(nest, pf.Machine.preset("zen5"))
    refused = pf.Schedule(jacobi()).why_not("tile", "S", t=3, i=4)
    tuning = Tuning(
        (Trial({}, {}, 1e-6, "a", 2e-6, 1.0), Trial({}, {}, 2e-6, "b", refused="no")), 1.0, "done"
    )
    assert repr(nest) == (
        "<Nest sequential: 4 statements, 2 constants\n  x: float32[4, 8]\n  -> out: float32[4, 6]>"
    )
    assert repr(nest.dependences()) == (
        "<Dependences: 4 flow, 1 output, 1 reduction; relations between 4 statements>"
    )
    assert repr(fused()) == (
        "<Schedule of sequential: 1 kernel, 5 steps; the last is bind('mac0', i='cores')>"
    )
    assert repr(plan).startswith("<Plan of sequential: 1 kernel, ")
    assert repr(refused) == "<Violation: tile('S', t=3, i=4) breaks the flow dependence S[0, 4] -> S[1, 3]>"
    assert repr(plan.decisions[0].remark).startswith("<Remark: group of ")
    assert repr(plan.machine) == f"<CpuMachine {plan.machine}>"
    assert repr(tuning) == "<Tuning: 2 trials in 1 s; the best takes 2 µs, 1.00 of the model's choice>"


def test_a_nest_with_many_tensors_has_a_short_repr() -> None:
    names = [f"a_long_name_{number}" for number in range(40)]
    value = nn.input(names[0], (3,))
    for name in names[1:]:
        value = value + nn.input(name, (3,))
    assert len(repr(nn.lower(value)).splitlines()) == 3
    assert max(map(len, repr(nn.lower(value)).splitlines())) < 120


def test_cards_have_style_and_escaped_text() -> None:
    plan = plan_for(layers(2), pf.Machine.preset("zen5"))
    refused = pf.Schedule(jacobi()).why_not("tile", "S", t=3, i=4)
    tuning = Tuning((Trial({"width": (1, 4)}, {}, 1e-6, "a", 2e-6, 1.0),), 1.0, "done")
    assert "A[t, -1 + i]" in text(jacobi())
    assert "S[t, i] -> S[t' = 1 + t, i' = -1 + i]" in text(jacobi().dependences())
    assert "the verbs that made it" in text(wavefronts())
    assert "relu0" in text(plan)
    packed = [layer for seed in range(3) for layer in (nn.Linear(256, 256, seed=seed), nn.ReLU())]
    of_packed = text(plan_for(pf.lower(nn.Sequential(*packed), batch=64), pf.Machine.preset("zen5")))
    assert "pack_w0 × 3" in of_packed.partition("the schedule")[0]
    assert "S[0, 4] -> S[1, 3]" in text(refused)
    assert plan.decisions[0].sentence in text(plan.decisions[0].remark)
    assert "48 KiB" in text(pf.Machine.preset("zen5"))
    assert "width 2 of 4" in text(tuning)


def test_bars_of_a_search_are_as_long_as_their_times() -> None:
    trials = tuple(Trial({}, {}, 1e-6, name, ratio * 2e-6, ratio) for name, ratio in (("a", 1.0), ("b", 2.0)))
    made = Tuning(trials, 1.0, "done")._repr_html_()
    assert re.findall(r"width: (\d+)%", made) == ["50", "100"]


def test_the_best_trial_of_a_search_has_the_least_time_on_its_card() -> None:
    """Seconds were measured at different moments; what is shown is each trial's part of the model's choice's time."""
    trials = (
        Trial({}, {}, 1e-6, "a", 2e-6, 1.0),
        Trial({}, {}, 1e-6, "b", 1e-6, 0.75),
        Trial({}, {}, 1e-6, "c", 1.25e-6, 0.5),
    )
    rows = re.findall(
        r"<tr( class=\"yes\")?><td>\d</td><td>[^<]*</td><td>([^<]*)</td>",
        Tuning(trials, 1.0, "")._repr_html_(),
    )
    assert [(bool(best), time) for best, time in rows] == [(False, "2 µs"), (False, "1.5 µs"), (True, "1 µs")]


def test_a_loop_of_a_tree_has_its_trips() -> None:
    s = pf.Schedule(dense()).split("mac0", "j", 2).bind("mac0", i="cores")
    assert [trip_label(s.nest, loop) for loop in s.loops("mac0")] == [
        "i: 4 @ cores",
        "j: 3 × 2",
        "j_in: 2",
        "k: 8",
    ]
    assert trip_label(jacobi(), pf.Schedule(jacobi()).loops("S")[0]) == "t"


def test_the_card_of_an_executable_has_kernels_and_measured_times_and_equal_kernels_once() -> None:
    net = pf.compile(layers(3), target="cpu", fuse=False)
    assert repr(net).startswith("<Executable sequential on cpu (")
    assert "measured" not in repr(net)
    before = text(net)
    assert "bias × 3: bias0" in before
    assert "× 3: bias1" not in before
    assert "i: 4" in before
    net.profile(np.ones((4, 16), np.float32), turns=1, pause=0)
    assert "measured" in repr(net)
    assert "bound: as a part of the prediction" in before
    assert "bound: as a part of the prediction" not in text(net)
    assert "FLOP" in text(net.report())
    assert repr(net.report()).startswith("<Report: cpu (")


def test_equal_layers_of_one_kernel_are_shown_once() -> None:
    plan = plan_for(layers(6), pf.Machine.preset("h200"))
    assert len(plan.groups) == 1
    shown = text(plan.schedule).partition("the verbs")[0]
    assert "× 5" in shown
    assert "mac4[" not in shown
    assert " mac4 " not in shown


def test_layers_that_hand_a_sum_over_are_shown_once() -> None:
    """In one GPU kernel the part of a layer ends with the zero of the next layer's sum."""
    layers = [layer for seed in range(6) for layer in (nn.Linear(64, 64, seed=seed), nn.ReLU())]
    nest = pf.lower(nn.Sequential(*layers), batch=1)
    shown = text(pf.compile(nest, target="cuda", machine="h200", device="none"))
    assert "× 5" in shown
    assert "mac4 y4[" not in shown


def test_sweeps_there_and_back_are_shown_both() -> None:
    @pf.nest
    def sweeps(a: f64[9], b: f64[9]):
        for _t in range(3):
            for i in range(1, 8):
                b[i] = a[i - 1] + a[i + 1]
            for i in range(1, 8):
                a[i] = b[i - 1] + b[i + 1]

    s = pf.Schedule(sweeps)
    for schedule in (s, s.fuse("S0", "S1", at="i", shift={"i": 1})):
        shown = text(schedule).partition("the verbs")[0]
        assert "S0 b[i] = a[-1 + i] + a[1 + i]" in shown
        assert "S1 a[i] = b[-1 + i] + b[1 + i]" in shown
        assert "× 2" not in shown


@pytest.mark.parametrize("change", [{"flops64": 1.0}, {"launch_seconds": 1.0}])
def test_the_key_of_a_compile_has_every_field_of_the_machine(change: dict[str, float]) -> None:
    machine = pf.Machine.preset("zen5")
    other = replace(machine, **change)
    assert key_parts(dense(), None, machine, {})["machine"] != key_parts(dense(), None, other, {})["machine"]


def test_the_card_of_a_nest_has_equal_layers_once() -> None:
    layers = nn.Sequential(*[each for k in range(12) for each in (nn.Linear(16, 16, seed=k), nn.ReLU())])
    nest = pf.lower(layers, batch=4)
    shown = text(nest)
    assert "w0 × 12constantfloat32[16, 16]" in shown
    assert "bias0 × 12z0[i, j] = y0[i, j] + b0[j]" in shown
    assert "mac0y0[i, j] += x[i, k] * w0[k, j]" in shown
    assert "mac1 × 11y1[i, j] += a0[i, k] * w1[k, j]" in shown
    assert "mac7" not in shown
    assert "mac7" in pf.show.html(nest)
