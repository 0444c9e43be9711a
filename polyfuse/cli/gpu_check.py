"""`polyfuse gpu-check`: every CUDA case on a GPU, or on the stand-in for one, against the oracle."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from polyfuse import cases, measure
from polyfuse.cases import CASES, TOLERANCE, Case
from polyfuse.cli.terminal import Terminal
from polyfuse.codegen.cuda_build import Cubin
from polyfuse.compiler import compile
from polyfuse.errors import BadArgument, TargetUnavailable
from polyfuse.runtime.cuda import build_kernels
from polyfuse.runtime.cuda_driver import Gpu, missing

RESULTS = Path("benchmarks/results")
SM_90 = (9, 0)
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
            f"ok      {name:<46} {self.launches:>2} launches of {len(self.kernels)}, error {self.error:6.2f}, "
            f"{registers:>3} registers, {spills} bytes spilled, {shared} shared"
        )


def run_check(
    terminal: Terminal,
    device: Place,
    out: Path | None,
    only: str | None,
    seed: int | None,
) -> bool:
    """Run the cases, print a line for each, write the results file; whether all passed.

    Raises TargetUnavailable where there is no GPU (or no compiler for one), naming what is missing.
    """
    reason = missing() if device == "gpu" else None
    if reason is not None:
        raise TargetUnavailable(f"{reason}. A dry run on the stand-in: polyfuse gpu-check --device lockstep")
    chosen = [c for c in CASES if (device == "gpu" or c.small) and (only is None or only in c.name)]
    if not chosen:
        raise BadArgument(f"no case has {only!r} in its name; there are {', '.join(c.name for c in CASES)}")
    about = gpu_facts() if device == "gpu" else {"name": "lockstep, a stand-in on the CPU"}
    capability = tuple(about.get("compute_capability", SM_90))
    seed = secrets.randbits(32) if seed is None else seed
    terminal.text(f"{len(chosen)} cases, fused and unfused, on {about['name']}; seed {seed}")
    terminal.text(f"error: in units of rounding of the largest element, {TOLERANCE} allowed;")
    terminal.text(f"of rounded factors in parts of each element's bound, of which {TOLERANCE} are all")
    results = []
    for case in chosen:
        for fused in (True, False):
            results.append(check(case, fused, device, (capability[0], capability[1]), seed))
            terminal.text(str(results[-1]))
    failed = [r for r in results if not r.passed]
    terminal.text(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    folder = out or (RESULTS if device == "gpu" else None)
    if folder is not None:
        terminal.text(f"wrote {write(folder, device, about, seed, results)}")
    return not failed


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
            raise  # no compiler for CUDA: that is no case's fault
        error, problem = None, f"{type(raised).__name__}: {raised}"
    seconds = time.perf_counter() - start
    return Result(case.name, fused, problem is None, launches, error, seconds, kernels, problem)


def _kernel(cubin: Cubin) -> Kernel:
    return Kernel(
        cubin.entry, cubin.arch, cubin.registers, cubin.spill_stores + cubin.spill_loads, cubin.shared_bytes
    )


def gpu_facts() -> dict[str, Any]:
    """Name, compute capability, multiprocessors and driver of the GPU the cases run on."""
    return {**asdict(Gpu().info), "driver": driver_version()}


def driver_version() -> str | None:
    """The display driver's version as nvidia-smi gives it; None where there is no nvidia-smi."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.splitlines()[0].strip() if done.stdout.strip() else None


def write(folder: Path, device: str, about: dict[str, Any], seed: int, results: list[Result]) -> Path:
    """The results file, named after device and date."""
    facts = measure.environment()
    slug = re.sub(r"[^a-z0-9]+", "-", about["name"].lower()).strip("-") if device == "gpu" else device
    path = folder / f"gpu-check-{slug}-{str(facts['date'])[:10]}.json"
    content = {
        **facts,
        "device": about,
        "seed": seed,
        "tolerance": TOLERANCE,
        "passed": sum(r.passed for r in results),
        "failed": sum(not r.passed for r in results),
        "cases": [asdict(r) for r in results],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path
