"""What tests of tensor cores share: nests, plans that take them, and what machine code of a product keeps."""

# ruff: noqa: F821

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.checks import cuda_cases as cases
from polyfuse.codegen.cuda.compile.cubin import Cubin
from polyfuse.codegen.cuda.compile.disassembly import opcodes
from polyfuse.codegen.cuda.kernel_grammar import UnsupportedKernel
from polyfuse.codegen.program import Launch
from polyfuse.machine import Machine
from polyfuse.rewrite import expand
from polyfuse.runtime.cuda.runner import build_kernels
from polyfuse.simulator import lockstep
from polyfuse.simulator.races import BarrierError, RaceError
from polyfuse.strategy.candidates import Choose, Wish
from polyfuse.strategy.cuda.tiles.mma import Wgmma
from polyfuse.strategy.cuda.tiles.tile import ThreadblockTile
from polyfuse.strategy.cuda.tiles.tile_candidates import wgmma_tiles
from polyfuse.strategy.cuda.tiles.tile_copies import CpAsync, ThreadCopy, Tma
from polyfuse.strategy.match.gemm_problem import Extents
from polyfuse.strategy.pipeline import Plan, plan_for
from tests.support.emitted import in_positions

T = TypeVar("T")


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


def by_steps() -> pf.Nest:
    """A product of halves of which the steps are neighbours in both factors: x @ y.T."""
    x, y = nn.input("x", (70, 192), "float16"), nn.input("y", (137, 192), "float16")
    return nn.lower(nn.matmul(x, nn.transpose(y)))


def large() -> pf.Nest:
    """The same at a size for machine code alone."""

    @pf.nest
    def product(x: bf16[2048, 1024], y: bf16[2048, 1024], z: bf16[2048, 2048]):
        for i in range(2048):
            for j in range(2048):
                s = 0
                for k in range(1024):
                    s += x[i, k] * y[j, k]
                z[i, j] = s

    return expand(product).nest


def by_tensor_cores(nest: pf.Nest, math: Any = "ieee") -> pf.Executable:
    """The plan with tensor cores, whether the model finds them the faster form at these sizes or not."""
    machine = replace(Machine.preset("h200"), math=math)
    schedule = plan_for(nest, machine, force={"register tiles": True}).schedule
    assert "factors" in str(schedule)
    return pf.compile(schedule.source, schedule=schedule, target="cuda", machine="h200", device="lockstep")


def in_planned_registers(net: pf.Executable, capability: tuple[int, int]) -> Cubin:
    """The machine code of the only kernel with planned registers; nothing of any is spilled or in local memory."""
    cubins = build_kernels(net.program, capability)
    for cubin in cubins.values():
        assert (cubin.spill_stores, cubin.spill_loads) == (0, 0)
        assert not [name for name in opcodes(cubin) if name.startswith(("LDL", "STL"))]
    planned = {code.name: code.registers for code in net.program.codes if code.registers is not None}
    ((name, registers),) = planned.items()
    assert cubins[name].registers <= registers
    return cubins[name]


def groups_of(tile: ThreadblockTile) -> tuple[int, int]:
    """Warpgroups of a block, down and across."""
    return tile.shape.threads_y // 32, tile.shape.threads_z


def kind_of(tile: ThreadblockTile) -> str:
    """Whose products a tile's are, and for a warpgroup how its operands are copied."""
    if not isinstance(tile.mma, Wgmma):
        return type(tile.mma).__name__
    if tile.cluster is not None:
        return "clustered"
    if tile.producer_warp:
        return "produced"
    return {ThreadCopy: "rounded", CpAsync: "kept", Tma: "boxed"}[type(tile.copy)]


def warpgroups(kind: str, extents: Extents, format: Any, machine: Machine) -> list[ThreadblockTile]:
    """The tiles of warpgroups of one kind that fit a product."""
    return [t for t in wgmma_tiles(extents, format, machine, machine.gpu) if kind_of(t) == kind]


class Only(Choose):
    """Takes register tiles wherever there are any, and of these the fastest that is wanted.

    Its blocks start in groups of `group` rows, if that is given.
    """

    def __init__(self, wanted: Callable[[ThreadblockTile], bool], group: int | None = None) -> None:
        super().__init__(None, (Wish("register tiles", frozenset(), True),))
        self.wanted, self.group = wanted, group

    def with_wishes(self, wishes: Iterable[Wish]) -> Only:
        assert not tuple(wishes)
        return self

    def best(
        self,
        pass_: str,
        statements: Sequence[str],
        options: Sequence[T],
        seconds: Callable[[T], float],
        name: Callable[[T], str],
        what: str = "",
    ) -> T:
        wanted = [each for each in options if isinstance(each, ThreadblockTile) and self.wanted(each)]
        if wanted and self.group is not None:
            wanted = [replace(each, group=self.group) for each in wanted]
        return super().best(pass_, statements, wanted or options, seconds, name, what)


def by_warpgroups(
    nest: pf.Nest, math: Any, wanted: Callable[[ThreadblockTile], bool], group: int | None = None
) -> Plan:
    """The plan for an H200 with the only tile that is wanted, whether the model finds it fast or not."""
    plan = plan_for(nest, replace(Machine.preset("h200"), math=math), choose=Only(wanted, group))
    assert "cores of" in str(plan.schedule) or "swizzled" in str(plan.schedule), plan
    return plan


def schedule_with(
    nest: pf.Nest, math: Any, wanted: Callable[[ThreadblockTile], bool], group: int | None = None
) -> pf.Schedule:
    """The schedule of such a plan."""
    return by_warpgroups(nest, math, wanted, group).schedule


def assert_exact(net: pf.Executable, nest: pf.Nest) -> None:
    """Small integers, of which every sum is exact, give what the interpreter finds."""
    generator = np.random.default_rng(5)
    inputs = {t.name: generator.integers(-2, 3, t.shape).astype(t.dtype) for t in nest.inputs}
    (exact,) = pf.interpret(nest, {k: v.copy() for k, v in inputs.items()}).values()
    outputs = cases.poisoned(nest)
    net(**inputs, **({"out": outputs} if outputs else {}))
    assert np.array_equal(np.asarray(exact), outputs[0] if outputs else inputs["z"])


def bits_of_halves(net: pf.Executable, launch: Launch) -> list[Any]:
    """A kernel's arrays, bits of small integers in halves; its result is the last."""
    generator = np.random.default_rng(2)
    tensors = [net.schedule.source.tensor(name) for name in launch.tensors]
    return [generator.integers(-2, 3, t.shape).astype(t.dtype).view(np.uint16).reshape(-1) for t in tensors]


def assert_found(launch: Launch, changed: tuple[str, ...], arguments: Callable[[], list[Any]]) -> None:
    """Lock-step refuses a kernel with some things changed, by the error that is named last, or its results "differ".

    That it takes the kernel as it is, and finds the right results, is for a test of its own to tell.
    """
    *changes, error = changed
    source = in_positions(launch.source)
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert old in source, source
        source = source.replace(old, new)
    wrong, cluster = arguments(), launch.code.cluster
    if error == "differ":
        right = arguments()
        lockstep.run(launch.source, launch.name, *launch.extents({}), right, cluster=cluster)
        lockstep.run(source, launch.name, *launch.extents({}), wrong, cluster=cluster)
        result = len(launch.tensors) - 1
        assert not np.array_equal(right[result], wrong[result])
        return
    with pytest.raises((UnsupportedKernel, RaceError, BarrierError), match=error):
        lockstep.run(source, launch.name, *launch.extents({}), wrong, cluster=cluster)
