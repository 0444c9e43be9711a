from __future__ import annotations

import json
from typing import Any

import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.machine import Machine
from polyfuse.show.explorer import Instruction, KernelShown, explored
from polyfuse.show.explorer.data import MOST_INSTRUCTIONS
from polyfuse.show.explorer.source_lines import source_lines
from polyfuse.show.explorer.trees import Again, Rows, repeated
from polyfuse.show.explorer.windows import POINTS, window
from polyfuse.show.labels import rows
from polyfuse.strategy import plan_for
from polyfuse.strategy.cost.price import cost
from polyfuse.strategy.plan import Decision
from tests.show.explorer.explored_nets import two_layers
from tests.show.subjects import fused, wavefronts


def trees(data: dict[str, Any]) -> list[list[int]]:
    """The rows of the tree after each step."""
    found: list[list[int]] = []
    tree: list[int] = []
    for step in data["steps"]:
        at, removed, put = step["splice"]
        tree = [*tree[:at], *put, *tree[at + removed :]]
        found.append(tree)
    return found


def test_the_data_is_json_and_names_only_what_there_is() -> None:
    data = two_layers().data
    assert json.loads(two_layers().json()) == json.loads(json.dumps(data))
    count = len(data["statements"])
    assert all(s["window"] is None or s["window"] < len(data["windows"]) for s in data["statements"])
    assert all(
        d["source"] < count > d["sink"] and d["pairs"] < len(data["pairs"]) for d in data["dependences"]
    )
    assert [s["name"] for s in data["statements"]][:4] == ["zero0", "mac0", "bias0", "relu0"]
    assert data["statements"][1]["accesses"][1] == {
        "kind": "read",
        "text": "x[i, k]",
        "relation": "{ mac0[i, j, k] -> x[i, k] }",
    }


def test_the_trees_are_those_that_the_steps_made() -> None:
    schedule = wavefronts()
    data = explored(schedule, Machine.preset("zen5"), most_next=0)
    shown = [[tuple(data["rows"][at][:4]) for at in tree] for tree in trees(data)]
    made = [now for _, now in repeated(schedule)]
    assert [step["text"] for step in data["steps"]] == ["as written", *(f"s.{s}" for s in schedule.steps)]
    for lines, now in zip(shown, made, strict=True):
        assert lines == [(r.depth, r.kind, r.text, r.detail) for r in rows(now.nest, now.tree)]
    assert made[-1].tree == schedule.tree


def test_loops_have_trip_counts() -> None:
    data = two_layers().data
    last = [data["rows"][at] for at in trees(data)[-1]]
    assert last[0][5:] == ["i", 4]
    assert next(row[6] for row in last if row[2] == "for i_in") == 8


def test_pairs_are_dependences_inside_the_windows() -> None:
    nest, data = wavefronts().nest, explored(wavefronts(), Machine.preset("zen5"), most_next=0)
    flow = next(d for d in data["dependences"] if d["kind"] == "flow")
    box = data["windows"][0]["box"]
    relation = next(p.map for p in nest.dependences().pairs if p.kind == "flow")
    flat = data["pairs"][flow["pairs"]]
    ends = [tuple(flat[k : k + 4]) for k in range(0, len(flat), 4)]
    assert ends
    for t, i, u, j in ends:
        assert all(low <= v <= high for v, (low, high) in zip((t, i, u, j), box * 2, strict=True))
        assert (u - t, abs(j - i)) == (1, 1)
    assert "S[t, i]" in str(relation)


def test_each_point_of_a_window_has_its_tile() -> None:
    data = explored(wavefronts(), Machine.preset("zen5"), most_next=0)
    seen = data["windows"][data["statements"][0]["window"]]
    tiles = data["tiles"][data["steps"][-1]["tiles"]["0"]]
    (t0, t1), (i0, i1) = seen["box"]
    points = seen["points"] or [[t, i] for t in range(t0, t1 + 1) for i in range(i0, i1 + 1)]
    assert tiles["loops"] == ["t", "i"]
    for (t, i), of in zip(points, tiles["of"], strict=True):
        assert tiles["tiles"][of] == [t // 2, (t + i) // 4]


def test_a_window_is_small_and_lies_across_a_border_of_tiles() -> None:
    isl = pytest.importorskip("islpy")
    found = window(isl.Set("{ S[i, j, k] : 0 <= i, j, k < 512 }"), [64, None, None])
    assert len(found.points) <= POINTS
    assert found.filled
    assert found.box[0][0] < 64 <= found.box[0][1]
    assert found.whole == ((0, 511),) * 3


def test_a_thin_domain_has_a_window_with_points() -> None:
    isl = pytest.importorskip("islpy")
    found = window(isl.Set("{ S[i, j] : 0 <= i < 900 and j = 899 - i }"), [None, None])
    assert found.points
    assert not found.filled


def test_lines_of_source_name_their_statements() -> None:
    kernel = two_layers().data["kernels"][0]
    names = [s["name"] for s in two_layers().data["statements"]]
    of = {text.strip(): ([names[s] for s in found], loop) for text, found, loop in kernel["source"]}
    assert of["for i in range(0, 4):"][1] == "i"
    assert of["for j in range(0, 4):"] == (["mac0"], "j")
    assert of["b=w, b_at=(0, 32 * j), b_step=0,"][0] == ["mac0"]
    assert of["a=a, a_at=(0, 0), a_row=0, a_step=1,"][0] == ["mac1"]
    assert of["y = on_stack((8, 128), np.float32)"][0] == []


def test_machine_code_has_the_lines_of_the_source() -> None:
    kernel = two_layers().data["kernels"][0]
    names = [s["name"] for s in two_layers().data["statements"]]
    listing = two_layers().data["assembly"][kernel["assembly"]]
    lines = {line for _, line in listing if line is not None}
    assert listing[0] == [f"{kernel['name']}:", None]
    assert {names[s] for line in lines for s in kernel["source"][line - 1][1]} == {*names}


def test_equal_machine_code_is_written_once_and_much_of_it_not_at_all() -> None:
    nest = wavefronts().nest
    few, many = (Instruction("ret", 1),), tuple(Instruction("nop") for _ in range(MOST_INSTRUCTIONS))
    source = "def f(x):\n    pass\n"
    shown = [KernelShown("f", ("S",), source, assembly=code) for code in (few, many, few, ())]
    data = explored(pf.Schedule(nest), Machine.preset("zen5"), shown, most_next=0)
    assert [kernel["assembly"] for kernel in data["kernels"]] == [0, None, 0, None]
    assert data["assembly"] == [[["ret", 1]]]


def test_a_line_runs_the_statement_with_most_of_its_arrays() -> None:
    source = '''def f(x, y):
    """
    zero: y[i] = 0.0
    mac: y[i] += x[i, k]
    """
    for i in range(0, 4):
        y[i] = 0.0
        for k in range(0, 4):
            y[i] += x[i, k]
'''
    lines = source_lines(source, ("zero0", "mac0"))
    assert [line.statements for line in lines[5:]] == [("zero0", "mac0"), ("zero0",), ("mac0",), ("mac0",)]


def test_a_refused_fusion_has_two_instances_inside_their_windows() -> None:
    (refused,) = two_layers().data["refused"]
    assert refused["sentence"].startswith("fuse('relu0', 'mac1', at='j') is refused")
    for end in (refused["source"], refused["sink"]):
        box = end["window"]["box"]
        assert all(low <= value <= high for value, (low, high) in zip(end["point"], box, strict=True))


def test_a_fusion_that_is_dearer_at_another_loop_says_what_its_two_instances_forbid_first() -> None:
    nest = fused().nest
    violation = pf.Schedule(nest).why_not("bind", "mac0", k="cores")
    dearer = Decision(
        "zero0", "mac0", False, "i", 0, 0, 1e-6, 2e-6, violation, "zero0 and mac0 may be fused at i"
    )
    (refused,) = explored(fused(), pf.Machine.preset("zen5"), decisions=[dearer], most_next=0)["refused"]
    assert refused["sentence"] == f"{violation} zero0 and mac0 may be fused at i"


def test_kernels_have_bound_prediction_and_measurement() -> None:
    for kernel in two_layers().data["kernels"]:
        assert 0 < kernel["bound"] <= kernel["predicted"]
        assert kernel["measured"] > 0


def test_next_steps_are_priced_as_cost_does() -> None:
    machine = Machine.preset("zen5")
    s = pf.Schedule(wavefronts().nest)
    data = explored(s, machine)
    assert data["next"]
    assert [one["seconds"] for one in data["next"]] == sorted(one["seconds"] for one in data["next"])
    first = data["next"][0]
    made = eval(first["python"].removeprefix("s = "), {"s": s})
    assert cost(made, machine).seconds == first["seconds"]


def test_functions_of_parts_and_rows_run_what_their_calls_run() -> None:
    source = '''@VectorRow
def f_row(x, y):
    y[:] = x * 2


@Part
def f_part(x, y, first, stop):
    for i_core in range(first, stop):
        short_row(f_row, places=(address(x, (i_core, 0)), address(y, (i_core, 0))))


def f(x, y, s):
    """
    twice: y[i, j] = x[i, j] * 2
    total: s[i] += y[i, j]
    """
    s = on_stack((4,), np.float32)
    on_cores(f_part, 2, (x, y))
    for i in range(0, 4):
        total_sum = s[i]
        for j in range(0, 4):
            total_sum = total_sum + y[i, j]
        s[i] = total_sum
'''
    lines = source_lines(source, ("S0", "S1"))
    assert [line.statements for line in lines[1:3]] == [("S0",)] * 2
    assert [(line.statements, line.loop) for line in lines[6:9]] == [
        (("S0",), None),
        (("S0",), "i"),
        (("S0",), None),
    ]
    assert [line.statements for line in lines[16:]] == [(), ("S0",), *[("S1",)] * 5]


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        ((nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10)), {}),
        ((nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm(8), nn.ReLU()), {"features": (4, 10, 10)}),
        ((nn.LSTM(8, 16),), {"features": (4, 8)}),
        ((nn.Linear(32, 32), nn.Softmax()), {}),
    ],
)
@pytest.mark.parametrize("machine", ["zen5", "h200"])
def test_a_step_on_the_parts_that_it_names_makes_the_tree_that_it_makes_of_all(
    layers: tuple[nn.Module, ...], shape: dict[str, Any], machine: str
) -> None:
    schedule = plan_for(pf.lower(nn.Sequential(*layers), batch=32, **shape), Machine.preset(machine)).schedule
    local, whole = Rows(), Rows()
    now: pf.Schedule = Again(schedule.given)
    for step, part in repeated(schedule):
        if step is not None:
            now = getattr(now, step.verb)(*step.args, **dict(step.options))
        assert local.of(part.nest, part.tree) == whole.of(now.nest, now.tree), step
        assert part.steps == now.steps
    assert local.table == whole.table
