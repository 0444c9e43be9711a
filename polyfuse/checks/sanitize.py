"""`polyfuse gpu-check --sanitize`: run the cases under each tool of NVIDIA's compute-sanitizer.

    memcheck   accesses out of bounds or misaligned, on the device
    racecheck  threads of a block that meet in shared memory without a barrier between them

Each tool runs `polyfuse gpu-check` in a process of its own, with the same seed, and watches those that it starts.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path

from polyfuse import measure
from polyfuse.checks.gpu_check import RESULTS, Run
from polyfuse.errors import BadArgument, TargetUnavailable
from polyfuse.runtime.cuda.driver import missing
from polyfuse.workbench.terminal import Terminal

TOOLS = ("memcheck", "racecheck")

FOUND = 86
"""The exit code that stands for an error which the sanitizer found; a failed case is 1."""

SOMETHING = re.compile(r"SUMMARY: [1-9]")
"""The pattern of a summary that reports errors."""

PLACES = ("/usr/local/cuda/bin", "/opt/cuda/bin")
"""The folders that CUDA's installers use, tried after the PATH."""


@dataclass(frozen=True)
class Finding:
    """The result of one tool: its summary line, the exit code, and the path of its log."""

    tool: str
    exit_code: int
    summary: str
    log: str

    @property
    def clean(self) -> bool:
        """True if every case passed and the tool found nothing in any process."""
        return self.exit_code == 0 and SOMETHING.search(self.summary) is None

    def __str__(self) -> str:
        said = f"FAILED, gpu-check exited with {self.exit_code}"
        if self.exit_code in (0, FOUND):
            said = "ok" if self.clean else "FAILED, the sanitizer found errors"
        return f"{self.tool:<10} {said}: {self.summary} ({self.log})"


def run_sanitized(
    terminal: Terminal,
    device: str,
    out: Path | None,
    only: str | None,
    seed: int | None,
    run: Run | None = None,
) -> bool:
    """Run the cases under every tool; whether all were clean. Logs and a results file go into `out`.

    Raises BadArgument for an emulator, TargetUnavailable if there is no GPU or no compute-sanitizer.
    """
    if device != "gpu":
        raise BadArgument(
            f"--sanitize watches kernels on a GPU, not on {device}, which checks bounds, races and barriers itself"
        )
    if (reason := missing()) is not None:
        raise TargetUnavailable(reason)
    program = sanitizer()
    folder = out or RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    seed = secrets.randbits(32) if seed is None else seed
    findings = []
    for tool in TOOLS:
        log = folder / f"gpu-{tool}.log"
        terminal.heading(f"{tool}, seed {seed}")
        done = subprocess.run(command(program, tool, log, folder / tool, only, seed, run or Run()))
        findings.append(Finding(tool, done.returncode, summary(log), str(log)))
    for finding in findings:
        terminal.text(str(finding))
    facts = measure.environment()
    path = folder / f"gpu-sanitize-{str(facts['date'])[:10]}.json"
    content = {**facts, "seed": seed, "only": only, "tools": [asdict(finding) for finding in findings]}
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    terminal.text(f"wrote {path}")
    return all(finding.clean for finding in findings)


def sanitizer() -> str:
    """The path of compute-sanitizer. Raises TargetUnavailable if there is none."""
    found = shutil.which("compute-sanitizer")
    found = found or next(
        (p for place in PLACES if (p := shutil.which("compute-sanitizer", path=place))), None
    )
    if found is None:
        raise TargetUnavailable(
            f"--sanitize needs compute-sanitizer, which is neither on the PATH nor in {', '.join(PLACES)}: it is "
            "part of the CUDA toolkit (NVIDIA's package cuda-sanitizer-13-0 contains only it)"
        )
    return found


def command(
    program: str, tool: str, log: Path, out: Path, only: str | None, seed: int, run: Run
) -> Sequence[str]:
    """The sanitizer around `gpu-check`."""
    watched = [sys.executable, "-m", "polyfuse", "gpu-check", "--seed", str(seed), "--out", str(out)]
    chosen = ["--only", only] if only is not None else []
    timed = ["--minutes", str(run.seconds / 60)] if run.seconds < inf else []
    return [
        program,
        *(
            "--tool",
            tool,
            "--target-processes",
            "all",
            "--error-exitcode",
            str(FOUND),
            "--log-file",
            str(log),
        ),
        *watched,
        *("--jobs", str(run.processes)),
        *chosen,
        *timed,
        *(["--resume"] if run.resume else []),
    ]


def summary(log: Path) -> str:
    """The tool's last word; of several processes one that it found something in."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    said: list[str] = re.findall(r"[A-Z]+ SUMMARY: .*", text)
    found = [line for line in said if SOMETHING.search(line)]
    return (found or said)[-1].strip() if said else "no summary was written"
