"""Kernels that are equal but for names are shaped and printed once: nothing else may come of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.codegen import generate as printing
from polyfuse.codegen.lowering.build import Targets
from polyfuse.ir.form import form_of
from polyfuse.ir.tree import Tree, parts
from polyfuse.schedule.repeated import Done, Renaming
from polyfuse.strategy import plan_for
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.passes import shape_each
from polyfuse.strategy.passes.equal_kernels import Repeats, Shapes


def network(*widths: int) -> nn.Sequential:
    pairs = pairwise(widths)
    return nn.Sequential(
        *(layer for n, (k, m) in enumerate(pairs) for layer in (nn.Linear(k, m, seed=n), nn.ReLU()))
    )


@pytest.mark.parametrize(
    ("machine", "batch", "width", "kernels"),
    [("zen5", 64, 512, 4), ("zen5", 1000, 300, 4), ("h200", 2048, 2048, 4), ("h200", 64, 1024, 8)],
    ids=["weights packed once", "activations packed", "on a GPU", "on a GPU in parts"],
)
def test_layers_get_the_same_schedule_as_one_by_one(
    machine: str, batch: int, width: int, kernels: int
) -> None:
    nest = pf.lower(network(*[width] * 5), batch=batch)
    once = plan_for(nest, pf.Machine.preset(machine))
    each = plan_for(nest, pf.Machine.preset(machine), force={"equal kernels": False})
    shaped = [each for group in once.groups for each in group.parts or (group,)]
    assert sum(any("mac" in name for name in each.statements) for each in shaped) == kernels
    assert once.schedule.dump() == each.schedule.dump()
    assert once.schedule.trace() == each.schedule.trace()
    assert str(once.schedule.nest) == str(each.schedule.nest)
    assert [group.statements for group in once.groups] == [group.statements for group in each.groups]
    assert once.notes == each.notes
    renewed, found = once.schedule.nest.dependences(), each.schedule.nest.dependences()
    assert all(a.is_equal(b) for (_, a), (_, b) in zip(renewed.kinds(), found.kinds(), strict=True))


def test_the_trace_of_repeated_steps_is_legal_step_by_step() -> None:
    plan = plan_for(pf.lower(network(512, 512, 512, 512), batch=64), pf.Machine.preset("zen5"))
    space = {"pf": pf, "nest": plan.schedule.source}
    exec(plan.schedule.trace(), space)
    again = space["s"]
    assert isinstance(again, pf.Schedule)
    assert again.dump() == plan.schedule.dump()


def test_a_nest_is_made_anew_once_for_all_that_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    rewritten = pf.Nest.rewritten

    def counted(nest: pf.Nest, *args: Any) -> pf.Nest:
        made.append(nest.name)
        return rewritten(nest, *args)

    monkeypatch.setattr(pf.Nest, "rewritten", counted)
    found = []
    for layers in (4, 8):
        made.clear()
        plan_for(pf.lower(network(*[512] * (layers + 1)), batch=64), pf.Machine.preset("zen5"))
        found.append(len(made))
    assert 0 < found[1] <= found[0]


def test_a_kernel_gets_its_shape_without_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only kernels of constants that it depends on are there, too: here the scale in a layer's weights."""
    seen: list[int] = []
    real = shape_each._shaped

    def noted(task: shape_each.Task) -> Any:
        seen.append(len(parts(task.schedule.tree)))
        return real(task)

    monkeypatch.setattr(shape_each, "_shaped", noted)
    plan = plan_for(pf.lower(network(64, 96, 128, 160, 192, 224), batch=64), pf.Machine.preset("zen5"))
    assert len(parts(plan.schedule.tree)) > 4
    assert max(seen) <= 2


def test_weights_whose_names_end_in_numbers_are_shaped_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch calls a graph's inputs arg7_1: this number is not one that pack_arg7_1 got because the name was taken."""
    shaped: list[str] = []
    real = shape_each._shaped

    def noted(task: shape_each.Task) -> Any:
        shaped.append(task.kernel.names[0])
        return real(task)

    monkeypatch.setattr(shape_each, "_shaped", noted)
    found = []
    for names in (("w0", "w1", "w2"), ("arg0_1", "arg1_1", "arg2_1")):
        x = nn.input("x", (64, 512))
        for name in names:
            x = nn.relu(nn.matmul(x, nn.input(name, (512, 512))))
        shaped.clear()
        plan_for(pf.lower(x), pf.Machine.preset("zen5"))
        found.append(tuple(shaped))
    assert found[0] == found[1]


@pytest.mark.parametrize("others", [("sums",), ("pack_w0",), ("pack_w0", "pack_w1")])
def test_a_name_has_a_number_only_where_it_is_taken(others: tuple[str, ...]) -> None:
    """A backward pass packs the weights of the forward pass again: pack_w0_2 and pack_w1_2."""
    domain = "[i, j, k] : 0 <= i, j, k < 4"
    products = [pf.statement(f"{{ mac{n}{domain} }}", f"y{n}[i, j] += x[i, k] * w{n}[k, j]") for n in (0, 1)]
    more = [pf.statement(f"{{ {name}[i] : 0 <= i < 4 }}", f"z_{name}[i] = x[i, i]") for name in others]
    roles = {"x": "input", "w0": "input", "w1": "input", "y0": "inout", "y1": "inout"}
    tensors = [pf.Tensor(name, (4, 4), "float32", role) for name, role in roles.items()]  # type: ignore[arg-type]
    written = [pf.Tensor(f"z_{name}", (4,), "float32", "output") for name in others]
    nest = pf.Nest.of([*tensors, *written], [*products, *more])
    before = pf.Schedule(nest)
    first, second = parts(before.tree)[:2]
    after = before.pack("w0", "mac0", panel=(1, 4))
    found = Done(before, after, first, form_of(nest, first)).again(nest, second, form_of(nest, second))
    assert (found is None) == (others == ("pack_w0",))
    if found is not None:
        assert found[0].added == {name.replace("w0", "w1") for name in after.nest.names - nest.names}


def test_layers_of_other_sizes_are_made_anew() -> None:
    nest = pf.lower(network(64, 64, 64, 96), batch=16)
    first, second, third = (form_of(nest, part) for part in _layers(nest))
    assert first == second != third
    assert first.names != second.names


def test_what_is_computed_otherwise_is_another_form() -> None:
    layers = (nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh())
    nest = pf.lower(nn.Sequential(*layers), batch=4)
    *_, relu = (part for part in parts(nest.order) if part.names == ("relu0",))
    (tanh,) = (part for part in parts(nest.order) if part.names[0].startswith("tanh"))
    assert form_of(nest, relu) != form_of(nest, tanh)


def test_a_buffer_of_more_stages_is_another_form() -> None:
    start = pf.Schedule(pf.lower(nn.Linear(24, 8), batch=4)).split("mac0", "k", 8)
    one, two = (start.promote("x", "mac0", at="k", stages=n) for n in (1, 2))
    assert form_of(one.nest, one.tree) != form_of(two.nest, two.tree)


def test_equal_kernels_are_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, built = [], printing.built_in_parts

    def counted(nest: pf.Nest, part: Tree, targets: Targets) -> object:
        made.append(part.names)
        return built(nest, part, targets)

    monkeypatch.setattr(printing, "built_in_parts", counted)
    nest = pf.lower(network(16, 16, 16, 16), batch=4)
    tree = pf.Schedule(nest).tree
    found = printing.kernels(nest, tree)
    assert len(made) == 4
    assert len(found) == len(parts(tree))
    assert [kernel.statements for kernel in found] == [part.names for part in parts(tree)]
    macs = [kernel for kernel in found if kernel.name == "mac"]
    assert [{t.name for t in kernel.arrays.values()} for kernel in macs] == [
        {"y0", "x", "w0"},
        {"y1", "a0", "w1"},
        {"y2", "a1", "w2"},
    ]


def test_a_kernel_of_constants_alone_is_shaped_for_itself() -> None:
    x, weights = nn.input("x", (8, 8)), nn.constant(np.ones((8, 8), np.float32))
    nest = pf.lower([nn.exp(nn.relu(value)) for value in (x, weights, x)])
    schedule = pf.Schedule(nest)
    repeats = Repeats.of(schedule, Counts(nest), Shapes())
    made = []
    for part in (part for part in parts(schedule.tree) if part.names[0].startswith("exp")):
        repeats.shaped(schedule, part, lambda before, part=part: (made.append(part.names) or before, []))
    assert made == [("exp0",), ("exp1",)], "exp2 is exp0 again; exp1 runs once for all calls"


def test_new_names_go_into_the_names_made_of_them() -> None:
    step = pf.Schedule(pf.lower(network(4, 4), batch=2)).pack("w0", "mac0", panel=(1, 4)).steps[0]
    assert str(Renaming({"w0": "w1", "mac0": "mac1"}).step(step)) == "pack('w1', 'mac1', panel=(1, 4))"


def _layers(nest: pf.Nest) -> list[Tree]:
    return [part for part in parts(nest.order) if part.names[0].startswith("mac")]
