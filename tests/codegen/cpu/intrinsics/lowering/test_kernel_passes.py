"""Kernels are compiled by the passes that they need, to the machine code of all of numba's."""

from __future__ import annotations

import re

import pytest
from numba.core import event
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import PassManager
from numba.core.typed_passes import NativeLowering

import polyfuse as pf
from polyfuse import nn
from polyfuse.codegen.cpu.intrinsics import parallel_parts
from polyfuse.codegen.cpu.intrinsics.lowering.kernel_lowering import KernelLowering
from polyfuse.codegen.cpu.intrinsics.lowering.kernel_passes import PASSES
from polyfuse.codegen.program import Program
from polyfuse.runtime.cpu.native import assembly_text

PARTS = r"\$?\b(?:_ZN|piece|\.?const\.)[\w$.]*|\d{9,}"
"""Names with a number of this process, and addresses."""


class EveryPass(Compiler):
    """numba's compiler, but for how a function is lowered."""

    def define_pipelines(self) -> list[PassManager]:
        """Return numba's passes, `KernelLowering` among them."""
        (passes,) = super().define_pipelines()
        passes.passes = [(KernelLowering if p is NativeLowering else p, why) for p, why in passes.passes]
        return [passes]


@pytest.fixture
def step() -> Program:
    """Products in tiles, sums along rows and pointwise updates, on two cores."""
    model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
    loss = pf.lower(nn.mse_loss(model(nn.input("x", (32, 64))), nn.input("y", (32, 10))))
    nest = pf.grad(loss, tuple(loss.constants))
    return pf.compile(nest, target="cpu", machine=pf.Machine.preset("zen5")).program


def test_a_kernel_has_no_other_passes(step: Program) -> None:
    with event.install_recorder("numba:run_pass") as recorder:
        assembly_text(step.codes[0], False)
    ours = {
        each.data["name"].split()[0] for _, each in recorder.buffer if step.codes[0].name in each.data["name"]
    }
    assert ours == {each.name() for each in PASSES}


def test_all_of_numbas_passes_make_the_same_machine_code(
    step: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plain() -> list[str]:
        return [re.sub(PARTS, "", assembly_text(code, False)[0]) for code in step.codes]

    ours = plain()
    monkeypatch.setattr(parallel_parts, "KernelCompiler", EveryPass)
    assert plain() == ours
