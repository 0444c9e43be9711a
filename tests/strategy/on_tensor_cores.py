"""What tests of tensor cores share: nests, plans that take them, and what machine code of a product keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.codegen.cuda_build import Cubin, opcodes
from polyfuse.machine import Machine
from polyfuse.runtime.cuda import build_kernels
from polyfuse.strategy import in_registers
from polyfuse.strategy.plan import Plan, plan_for
from polyfuse.strategy.register_shapes import Shape


def matmul(
    rows: int, steps: int, columns: int, batch: tuple[int, ...] = (), dtype: Any = "float32"
) -> pf.Nest:
    """max(x @ y, 0)."""
    x, y = nn.input("x", (*batch, rows, steps), dtype), nn.input("y", (*batch, steps, columns), dtype)
    return nn.lower(nn.relu(nn.matmul(x, y)))


def transposed(dtype: Any = "float32") -> pf.Nest:
    """max(x.T @ y.T, 0): the steps of the right factor are neighbours, and rows of the left one."""
    x, y = nn.input("x", (44, 68), dtype), nn.input("y", (76, 44), dtype)
    return nn.lower(nn.relu(nn.matmul(nn.transpose(x), nn.transpose(y))))


def by_tensor_cores(nest: pf.Nest, math: Any = "ieee") -> pf.Executable:
    """The plan with tensor cores, whether the model finds them the faster form at these sizes or not."""
    machine = replace(Machine.preset("h200"), math=math)
    for n in (0, 1):
        plan = plan_for(nest, machine, choose=lambda _, what, __, n=n: n * (what == "form"))
        if "factors" in str(plan.schedule):
            schedule = plan.schedule
            return pf.compile(
                schedule.source, schedule=schedule, target="cuda", machine="h200", device="lockstep"
            )
    raise AssertionError(str(plan))


def in_planned_registers(net: pf.Executable, capability: tuple[int, int]) -> Cubin:
    """The machine code of a program's only kernel, of which nothing is spilled or in local memory."""
    (code,) = net.program.codes
    (cubin,) = build_kernels(net.program, capability).values()
    assert code.registers is not None
    assert cubin.registers <= code.registers
    assert (cubin.spill_stores, cubin.spill_loads) == (0, 0)
    assert not [name for name in opcodes(cubin) if name.startswith(("LDL", "STL"))]
    return cubin


def groups_of(s: Shape) -> tuple[int, int]:
    """Warpgroups of a block, down and across."""
    return s.threads_y // 32, s.threads_z


def by_warpgroups(
    nest: pf.Nest, math: Any, wanted: Callable[[Shape], bool], monkeypatch: pytest.MonkeyPatch
) -> Plan:
    """The plan for an H200 with the only shape that is wanted, whether the model finds it fast or not."""
    shapes_for = in_registers.shapes_for
    monkeypatch.setattr(in_registers, "shapes_for", lambda *given: tuple(filter(wanted, shapes_for(*given))))
    for n in (0, 1):
        machine = replace(Machine.preset("h200"), math=math)
        plan = plan_for(nest, machine, choose=lambda _, what, __, n=n: n * (what == "form"))
        if "cores of" in str(plan.schedule) or "swizzled" in str(plan.schedule):
            return plan
    raise AssertionError(str(plan))
