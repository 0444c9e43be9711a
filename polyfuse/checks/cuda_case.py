"""Compile one CUDA case, call it twice on a GPU or in an emulator, and compare it with the oracle."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import numpy as np

from polyfuse.checks import cuda_cases as cases
from polyfuse.checks.cuda_cases import TOLERANCE, Case
from polyfuse.codegen.cuda.compile.cubin import Cubin
from polyfuse.compiler import compile
from polyfuse.errors import TargetUnavailable, quantity
from polyfuse.runtime.cuda.runner import build_kernels

CALLS = 2
"""Calls of each executable, each with its own inputs: the second replays what the first captured."""


Place = Literal["gpu", "lockstep"]


@dataclass(frozen=True)
class Kernel:
    """One kernel's machine code, as its compiler reports it."""

    name: str
    arch: str
    registers: int
    spill_bytes: int
    shared_bytes: int


@dataclass(frozen=True)
class Result:
    """One case under one strategy. `error` is in units of rounding; `problem` says what went wrong, if anything."""

    case: str
    fused: bool
    passed: bool
    launches: int
    error: float | None
    seconds: float
    kernels: tuple[Kernel, ...]
    problem: str | None = None

    def __str__(self) -> str:
        name = f"{self.case}{'' if self.fused else ' (unfused)'}"
        if self.problem is not None:
            return f"FAILED  {name:<46} {self.problem}"
        registers = max((k.registers for k in self.kernels), default=0)
        spills = sum(k.spill_bytes for k in self.kernels)
        shared = max((k.shared_bytes for k in self.kernels), default=0)
        return (
            f"ok      {name:<46} {quantity(self.launches, 'launch', 'launches'):>11} of "
            f"{len(self.kernels)}, error {self.error:6.2f}, "
            f"{registers:>3} registers, {spills} bytes spilled, {shared} shared"
        )


def check(case: Case, fused: bool, device: Place, capability: tuple[int, int], seed: int) -> Result:
    """Compile a case, call it with fresh inputs into poisoned outputs, compare with the oracle."""
    start = time.perf_counter()
    launches = 0
    kernels: tuple[Kernel, ...] = ()
    try:
        nest = case.nest()
        net = compile(
            nest,
            target="cuda",
            machine=None if device == "gpu" else "h200",
            device=device,
            fuse=fused,
            math=case.math,
            schedule=case.by_hand(nest),
        )
        launches = len(net.kernels)
        kernels = tuple(map(_kernel, build_kernels(net.program, capability).values()))
        generator = np.random.default_rng((seed, len(case.name)))
        error = 0.0
        for _ in range(CALLS):
            inputs, outputs = cases.draw(nest, generator), cases.poisoned(nest)
            net(**inputs, out=outputs)
            names = [tensor.name for tensor in nest.with_role("output")]
            found = dict(zip(names, outputs, strict=True))
            error = max(error, cases.error(nest, inputs, found, case.math))
        problem = None if error <= TOLERANCE else f"error {error:.3g} of {TOLERANCE} allowed"
    except Exception as raised:  # whatever a case raises is its result; the others still run
        if device != "gpu" and isinstance(raised, TargetUnavailable):
            raise  # no compiler for CUDA: that is not a case's fault
        error, problem = None, f"{type(raised).__name__}: {raised}"
    seconds = time.perf_counter() - start
    return Result(case.name, fused, problem is None, launches, error, seconds, kernels, problem)


def _kernel(cubin: Cubin) -> Kernel:
    return Kernel(
        cubin.entry, cubin.arch, cubin.registers, cubin.spill_stores + cubin.spill_loads, cubin.shared_bytes
    )
