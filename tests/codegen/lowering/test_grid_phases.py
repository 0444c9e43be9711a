"""Launches in parts: each part made once and renamed, they read as if made in one piece."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.checks import cuda_cases as cases
from polyfuse.codegen.cpu.printer import cpu_kernel
from polyfuse.codegen.cuda.printer import cuda_kernel
from polyfuse.codegen.generate import TARGETS
from polyfuse.codegen.lowering import grid_phases as meeting_parts
from polyfuse.codegen.lowering.build import built
from polyfuse.codegen.lowering.grid_phases import built_in_parts
from polyfuse.ir.tree import parts
from polyfuse.machine import Machine
from polyfuse.strategy import plan_for


def layers() -> pf.Schedule:
    """Blocks of their own number for each layer, the last three equal but for names."""
    return cases.layers_in_one_launch(cases.dense(9, 21, 30, 30, 30, 30, batch=4)).synchronised()


def planned() -> pf.Schedule:
    """Tiles in shared memory and registers, edges that are cut."""
    nest = cases.dense(384, 384, 384, 384, 328, batch=70)
    return plan_for(nest, Machine.preset("h200")).schedule.synchronised()


@pytest.mark.parametrize("made", [layers, planned])
def test_in_parts_and_in_one_piece_are_the_same_text(made: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(made)
    schedule = made()
    nest, part = schedule.nest, max(parts(schedule.tree), key=lambda part: len(part.members))
    once: list[object] = []
    monkeypatch.setattr(meeting_parts, "built", lambda *given: once.append(given) or built(*given))
    found = cuda_kernel(built_in_parts(nest, part, TARGETS))
    assert found.source == cuda_kernel(built(nest, part, TARGETS)).source
    assert len(once) < len(meeting_parts.meeting(part))


def region() -> pf.Schedule:
    """Register tiles with buffers of each core's own, edges that are cut, three layers equal but for names."""
    nest = cases.dense(96, 96, 96, 96, 70, batch=33)
    machine = replace(Machine.preset("zen5"), units=2)
    return plan_for(nest, machine, force={"parallel region": True}).schedule.synchronised()


def test_a_region_in_parts_and_in_one_piece_is_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = region()
    nest, part = schedule.nest, max(parts(schedule.tree), key=lambda part: len(part.members))
    once: list[object] = []
    monkeypatch.setattr(meeting_parts, "built", lambda *given: once.append(given) or built(*given))
    found = cpu_kernel(built_in_parts(nest, part, TARGETS))
    assert found.source == cpu_kernel(built(nest, part, TARGETS)).source
    assert "team_of" in found.source
    assert 1 <= len(once) < len(meeting_parts.meeting(part))


def test_partial_results_are_called_as_no_array_of_another_part() -> None:
    rows = pf.statement("{ rows[a, i] : 0 <= a < 4 and 0 <= i < 32 }", "s[a] += x[a, i]")
    first = pf.statement("{ first[a] : 0 <= a < 4 }", "s[a] = 0")
    last = pf.statement("{ last[b] : 0 <= b < 4 }", "y[b] = s[3 - b] * partial[b]")
    shapes = {"x": (4, 32), "s": (4,), "partial": (4,), "y": (4,)}
    roles = {"x": "input", "s": "temporary", "partial": "input", "y": "output"}
    tensors = [pf.Tensor(name, shapes[name], "float32", roles[name]) for name in shapes]  # type: ignore[arg-type]
    nest = pf.Nest.of(tensors, [first, rows, last])
    s = (
        pf.Schedule(nest)
        .fuse("first", "rows", at="a")
        .bind("rows", a="block.x", i="lane")
        .bind("last", b="block.x")
    )
    s = s.join("first", "last", loop="l")
    net = pf.compile(nest, target="cuda", machine="h200", device="lockstep", schedule=s)
    x, partial = np.ones((4, 32), np.float32), np.float32([2, 3, 5, 7])
    np.testing.assert_array_equal(net(x, partial), 32 * partial)


def test_a_variable_of_one_part_that_is_called_as_an_array_of_another_gets_another_name() -> None:
    first = pf.statement("{ first[a, i] : 0 <= a < 4 and 0 <= i < 3 }", "t[a, i] = x[a, i]")
    second = pf.statement("{ second[b, j] : 0 <= b < 4 and 0 <= j < 3 }", "y[b, j] = t[3 - b, j] * i[j]")
    shapes = {"x": (4, 3), "t": (4, 3), "i": (3,), "y": (4, 3)}
    roles = {"x": "input", "t": "temporary", "i": "input", "y": "output"}
    tensors = [pf.Tensor(name, shapes[name], "float32", roles[name]) for name in shapes]  # type: ignore[arg-type]
    nest = pf.Nest.of(tensors, [first, second])
    s = (
        pf.Schedule(nest)
        .bind("first", a="block.x")
        .bind("second", b="block.x")
        .join("first", "second", loop="l")
    )
    net = pf.compile(nest, target="cuda", machine="h200", device="lockstep", schedule=s)
    assert "for i_2 in range(0, 3):" in net.source
    x, i = np.arange(12, dtype=np.float32).reshape(4, 3), np.float32([2, 3, 5])
    np.testing.assert_array_equal(net(x, i), x[::-1] * i)


def test_a_tensor_may_be_called_like_a_statement_of_another_part() -> None:
    first = pf.statement("{ first[i] : 0 <= i < 32 }", "mean[i] = 2 * x[i]")
    mean = pf.statement("{ mean[i] : 0 <= i < 32 }", "y[i] = mean[31 - i] + z[i]")
    roles = {"x": "input", "z": "input", "mean": "temporary", "y": "output"}
    tensors = [pf.Tensor(name, (32,), "float32", roles[name]) for name in roles]  # type: ignore[arg-type]
    nest = pf.Nest.of(tensors, [first, mean])
    schedule = pf.Schedule(nest).bind("first", i="cores").bind("mean", i="cores")
    schedule = schedule.join("first", "mean", loop="region").synchronised()
    found = cpu_kernel(built_in_parts(nest, schedule.tree, TARGETS))
    assert found.source == cpu_kernel(built(nest, schedule.tree, TARGETS)).source
