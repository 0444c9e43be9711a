"""`polyfuse gpu-check`: check every CUDA case against the oracle, on a GPU or in the emulator.

    cases, fused and unfused  --(some processes)-->  a line each  -->  gpu-check-GPU-DATE.json, written anew with each

Most of a case's time is its compilation, so that many processes pay on one GPU.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from polyfuse import measure
from polyfuse.checks.cuda_case import Kernel, Place, Result, check
from polyfuse.checks.cuda_cases import CASES, TOLERANCE
from polyfuse.checks.gpu_facts import gpu_facts
from polyfuse.checks.side_by_side import side_by_side
from polyfuse.errors import BadArgument, TargetUnavailable, quantity
from polyfuse.runtime.cuda.driver import missing
from polyfuse.workbench.terminal import Terminal

RESULTS = Path("benchmarks/results")
SM_90 = (9, 0)
STAND_IN = {"name": "lockstep, a CPU emulator"}

Piece = tuple[int, bool]
"""A case by its place in CASES, and whether it is fused: what another process can be told."""


@dataclass(frozen=True)
class Run:
    """The limits of a run: `processes` at a time, no case started after `seconds`.

    `resume` keeps what the file of today has, of this commit and GPU, and runs what it has not as passed.
    """

    processes: int = 1
    seconds: float = float("inf")
    resume: bool = False


def run_check(
    terminal: Terminal,
    device: Place,
    out: Path | None,
    only: str | None,
    seed: int | None,
    run: Run | None = None,
) -> bool:
    """Run the cases, print a line for each, write the results file; whether all passed, and none is left.

    Raises TargetUnavailable if there is no GPU (or no compiler for one), naming what is missing.
    """
    run = run or Run()
    reason = missing() if device == "gpu" else None
    if reason is not None:
        raise TargetUnavailable(
            f"{reason}. For a dry run in the emulator: polyfuse gpu-check --device lockstep"
        )
    chosen = _chosen(device, only)
    about: dict[str, Any] = gpu_facts() if device == "gpu" else STAND_IN
    seed = secrets.randbits(32) if seed is None else seed
    terminal.text(f"{quantity(len(chosen), 'case')}, fused and unfused, on {about['name']}; seed {seed}")
    terminal.text(f"error: in units of rounding of the largest element, {TOLERANCE} allowed;")
    terminal.text(f"of rounded factors in parts of each element's bound, of which {TOLERANCE} are all")
    folder = out or (RESULTS if device == "gpu" else None)
    file = Results(folder, device, about, seed) if folder is not None else None
    pieces = [(n, fused) for n in chosen for fused in (True, False)]
    found = dict(file.passed(pieces)) if file is not None and run.resume else {}
    if found:
        terminal.text(f"{len(found)} passed before")
    capability: tuple[int, int] = about.get("compute_capability", SM_90)
    work = partial(_checked, device=device, capability=capability, seed=seed)
    to_run = [piece for piece in pieces if piece not in found]
    for piece, result in side_by_side(work, to_run, run.processes, run.seconds):
        found[piece] = _died(piece, result) if isinstance(result, BrokenProcessPool) else result
        terminal.text(str(found[piece]))
        if file is not None:
            file.write(found, [piece for piece in pieces if piece not in found])
    return _summed_up(terminal, list(found.values()), len(pieces) - len(found), file)


def _chosen(device: Place, only: str | None) -> list[int]:
    """The cases to run, by their places in CASES: an emulator runs small ones."""
    chosen = [
        n for n, c in enumerate(CASES) if (device == "gpu" or c.small) and (only is None or only in c.name)
    ]
    if not chosen:
        raise BadArgument(
            f"no case's name contains {only!r}; the cases are {', '.join(c.name for c in CASES)}"
        )
    return chosen


def _summed_up(terminal: Terminal, results: Sequence[Result], left: int, file: Results | None) -> bool:
    failed = sum(not result.passed for result in results)
    terminal.text(f"{len(results) - failed} passed, {failed} failed")
    if left:
        terminal.text(f"{left} not run because the time was up; continue with --resume")
    if file is not None:
        terminal.text(f"wrote {file.path}")
    return not failed and not left


def _checked(piece: Piece, device: Place, capability: tuple[int, int], seed: int) -> Result:
    position, fused = piece
    return check(CASES[position], fused, device, capability, seed)


def _died(piece: Piece, why: BrokenProcessPool) -> Result:
    position, fused = piece
    problem = f"a process died, with this case or another in it: {why}"
    return Result(CASES[position].name, fused, False, 0, None, 0.0, (), problem)


class Results:
    """The results file, named after device and date, and what it says of the run."""

    def __init__(self, folder: Path, device: Place, about: Mapping[str, Any], seed: int) -> None:
        facts = measure.environment()
        slug = re.sub(r"[^a-z0-9]+", "-", about["name"].lower()).strip("-") if device == "gpu" else device
        self.path = folder / f"gpu-check-{slug}-{str(facts['date'])[:10]}.json"
        self._about = {**facts, "device": dict(about), "seed": seed, "tolerance": TOLERANCE}

    def write(self, found: Mapping[Piece, Result], left: Sequence[Piece]) -> None:
        """All results so far, in the order of the cases, and which are left."""
        results = [found[piece] for piece in sorted(found, key=_in_order)]
        content = {
            **self._about,
            "passed": sum(r.passed for r in results),
            "failed": sum(not r.passed for r in results),
            "left": [CASES[n].name + ("" if fused else " (unfused)") for n, fused in left],
            "cases": [asdict(r) for r in results],
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        new.replace(self.path)  # a run that is interrupted here has lost nothing

    def passed(self, pieces: Sequence[Piece]) -> Iterator[tuple[Piece, Result]]:
        """Return the pieces that passed according to the file, if it is of this commit and device."""
        there = json.loads(self.path.read_text(encoding="utf-8")) if self.path.is_file() else {}
        now = json.loads(json.dumps(self._about))
        if any(there.get(key) != now[key] for key in ("commit", "device", "tolerance")):
            return
        written = {(one["case"], one["fused"]): one for one in there["cases"] if one["passed"]}
        for n, fused in pieces:
            if (one := written.get((CASES[n].name, fused))) is not None:
                kernels = tuple(Kernel(**kernel) for kernel in one["kernels"])
                yield (n, fused), Result(**{**one, "kernels": kernels})


def _in_order(piece: Piece) -> tuple[int, bool]:
    position, fused = piece
    return position, not fused
