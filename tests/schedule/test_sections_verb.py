"""Parts in one loop, each at one value: recurrent layers behind each other on cores, proven and run."""

# ruff: noqa: F821  (sizes are names in annotations)

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.analysis.doacross import waiting_in
from polyfuse.errors import IllegalSchedule, InvalidSchedule
from polyfuse.ir import Nest
from polyfuse.ir.tree import loops, statements
from tests.support.execution import memory, run_plain

KINDS = {
    "lstm": (nn.lstm, 4),
    "gru": (nn.gru, 3),
    "rnn": (nn.rnn, 1),
}
TIMES, ROWS, HIDDEN = 4, 2, 3


def stacked(kind: str, layers: int) -> tuple[Nest, dict[str, tuple[int, ...]]]:
    """A nest of recurrent layers, and its inputs' shapes."""
    function, gates = KINDS[kind]
    shapes = {"x": (TIMES, ROWS, HIDDEN)}
    y = nn.input("x", shapes["x"], "float64")
    for layer in range(layers):
        names = f"w_{layer}", f"u_{layer}"
        shapes |= dict.fromkeys(names, (gates * HIDDEN, HIDDEN))
        y = function(y, *(nn.input(name, shapes[name], "float64") for name in names))[0]
    return nn.lower(y), shapes


def in_sections(nest: Nest, layers: int) -> pf.Schedule:
    """All layers in one loop over time, inside a loop over layers."""
    s = pf.Schedule(nest)
    for layer in range(1, layers):
        s = s.fuse(f"hidden{layer - 1}", f"narrow{layer - 1}", at="i")
        s = s.fuse(f"step{layer}", f"mac{layer}", at="i").fuse(f"step{layer}", f"first{layer}", at="i")
    s = s.sections(*(f"step{layer}" for layer in range(layers)), loop="layer")
    for layer in range(1, layers):
        s = s.fuse("step0", f"step{layer}", at="i")
    return s


def same_as_oracle(nest: Nest, shapes: dict[str, tuple[int, ...]], s: pf.Schedule) -> None:
    draw = np.random.default_rng(1)
    inputs = {name: draw.uniform(-1, 1, shape) for name, shape in shapes.items()}
    arrays = memory(nest, s.nest, s.tree, inputs, {})
    run_plain(s.nest, s.tree, arrays, {}, 0)
    np.testing.assert_allclose(arrays["out"], pf.interpret(nest, inputs)["out"], atol=1e-12)


@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_layers_in_a_pipeline_compute_what_the_oracle_does(kind: str, layers: int) -> None:
    nest, shapes = stacked(kind, layers)
    s = in_sections(nest, layers)
    assert [loop.name for loop in s.loops(f"step{layers - 1}")][:2] == ["layer", "i"]
    same_as_oracle(nest, shapes, s.bind("step0", layer="pipeline"))


@pytest.mark.parametrize("kind", KINDS)
def test_only_what_reads_the_layer_below_waits(kind: str) -> None:
    nest, shapes = stacked(kind, 3)
    s = in_sections(nest, 3)
    for layer in (1, 2):
        s = s.move(f"mac{layer}", behind=f"step{layer}")
    s = s.bind("step0", layer="pipeline")
    (part,) = (x for x in loops(s.tree) if x.bind == "pipeline")
    assert waiting_in(s.nest, s.tree) == {"mac1", "mac2"}
    order = [name for name in statements(part) if name.startswith(("first2", "mac2", "step2"))]
    assert order == ["first2", "step2", "mac2"]
    same_as_oracle(nest, shapes, s)


def test_machine_code_waits_behind_what_needs_nothing_of_the_layer_below() -> None:
    nest, shapes = stacked("rnn", 2)
    s = in_sections(nest, 2)
    draw = np.random.default_rng(3)
    inputs = {tensor.name: draw.uniform(-1, 1, shapes[tensor.name]) for tensor in nest.inputs}
    expected = pf.interpret(nest, inputs)["out"]
    for schedule, before in ((s, 0), (s.move("mac1", behind="step1"), 1)):
        run = pf.compile(nest, target="cpu", schedule=schedule.bind("step0", layer="pipeline"))
        own = run.source[run.source.index("if layer == 1:") :]
        assert own[: own.index("await_turn(")].count(" += ") == before
        np.testing.assert_allclose(run(*inputs.values()), expected, atol=1e-12)


@pytest.mark.parametrize(("kind", "layers"), [("lstm", 2), ("gru", 3)])
def test_layers_of_one_wave_run_at_once(kind: str, layers: int) -> None:
    nest, shapes = stacked(kind, layers)
    waves = in_sections(nest, layers).skew("step0", "i", by="layer").interchange("step0", "layer", "i")
    same_as_oracle(nest, shapes, waves.bind("step0", layer="cores"))


@pf.nest
def sums(x: "f64[9]", y: "f64[9]", z: "f64[9]"):
    for t in range(1, 9):
        y[t] = y[t - 1] + x[t]
    for t in range(1, 9):
        z[t] = z[t - 1] * y[t]


def test_machine_code_runs_parts_behind_each_other() -> None:
    s = pf.Schedule(sums).sections("S0", "S1", loop="part").fuse("S0", "S1", at="t")
    run = pf.compile(sums, target="cpu", schedule=s.bind("S0", part="pipeline"))
    x = np.random.default_rng(2).uniform(0.5, 1.5, 9)
    found, expected = ([x, np.zeros(9), np.ones(9)] for _ in range(2))
    run(*found)
    sums.python(*expected)
    np.testing.assert_array_equal(found, expected)
    lines = [line.strip() for line in run.source.splitlines()]
    assert "while part_turn < 2:" in lines
    assert lines.count("await_turn(part_turns, part_turn, t)") == 2  # each part waits in its own loop
    assert lines[lines.index("if part == 1:") + 2] == "await_turn(part_turns, part_turn, t)"


def test_what_is_not_legal_has_two_instances() -> None:
    s = in_sections(stacked("lstm", 2)[0], 2)
    at_once = s.why_not("bind", "step0", layer="cores")
    assert at_once is not None
    assert (at_once.source.statement, at_once.sink.statement) == ("narrow0", "mac1")
    early = s.skew("step0", "i", by="layer", factor=-1)  # layer 1 one step before layer 0
    refused = early.why_not("bind", "step0", layer="pipeline")
    assert refused is not None
    assert str(refused).startswith(
        "bind('step0', layer='pipeline') is refused: it would break the flow dependence narrow0["
    )
    assert "does not wait for the first" in str(refused)
    with pytest.raises(IllegalSchedule, match=r"narrow0\[.*\] -> mac1"):
        early.interchange("step0", "layer", "i")


def test_what_lies_between_the_parts_may_forbid_it() -> None:
    nest, _ = stacked("rnn", 2)
    with pytest.raises(IllegalSchedule, match="would run after the part with"):
        pf.Schedule(nest).sections("step0", "step1", loop="layer")


@pytest.mark.parametrize(
    ("names", "loop", "why"),
    [
        (("step0",), "layer", "name one statement of each part"),
        (("step0", "step0"), "layer", "name one statement of each part"),
        (("step0", "hidden0", "step1"), "layer", "step0 and hidden0 share a part; distribute"),
        (("step0", "step1"), "i", "has the name 'i'"),
        (("step0", "other"), "layer", "unknown statement 'other'"),
    ],
)
def test_parts_that_are_none(names: tuple[str, ...], loop: str, why: str) -> None:
    nest, _ = stacked("lstm", 2)
    with pytest.raises(InvalidSchedule, match=why):
        pf.Schedule(nest).sections(*names, loop=loop)
