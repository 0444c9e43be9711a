"""`polyfuse gpu-bench [PART …]`: the figures of a GPU, measured by benchmarks/gpu of the checkout."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path

from polyfuse.checks.cuda_case import Place
from polyfuse.checks.gpu_check import RESULTS
from polyfuse.checks.gpu_facts import gpu_facts
from polyfuse.cli.checkout import ROOT, module, present
from polyfuse.cli.early_checks import gpu_parts
from polyfuse.errors import BadArgument, TargetUnavailable
from polyfuse.runtime.cuda.driver import missing
from polyfuse.runtime.store.cache import store_here
from polyfuse.workbench.terminal import Terminal


def run_bench(
    terminal: Terminal,
    names: Sequence[str],
    device: Place,
    out: Path | None,
    minutes: float,
    turns: int,
    seed: int | None,
    resume: bool,
    jobs: int = 1,
    only: Sequence[str] = (),
    without: Sequence[str] = (),
) -> bool:
    """Measure parts, all without names; a table last. Whether everything was right and nothing is left to measure.

    With several `jobs` ours are compiled by so many processes first, into the cache. `only` and `without` are parts of
    names: of what is measured, and of peers that are not.

    Raises BadArgument for a part that there is not, TargetUnavailable if there is no GPU or no torch beside it.
    """
    present(ROOT / "benchmarks", "benchmarks")
    of = module("benchmarks.gpu.parts")
    parts, chosen = of.PARTS, of.Chosen(tuple(only), tuple(without))
    gpu_parts(list(names))
    if jobs > 1 and store_here() is None:
        raise BadArgument(f"--jobs {jobs} compiles into the cache first, but POLYFUSE_CACHE disables it")
    facts = None
    if device == "gpu":
        _available()
        facts = gpu_facts()
    seed = secrets.randbits(32) if seed is None else seed
    folder = out or (RESULTS if device == "gpu" else Path(tempfile.mkdtemp(prefix="polyfuse-gpu-bench-")))
    terminal.text(f"{facts['name'] if facts else 'a dry run in the emulator, without times'}; seed {seed}")
    done = module("benchmarks.gpu.run").run(
        names or list(parts), facts, folder, minutes, turns, seed, resume, terminal.text, jobs, chosen
    )
    table = module("benchmarks.gpu.table")
    terminal.table(table.COLUMNS, [row for _, rows, _ in done for row in table.lines(rows)])
    for part, rows, left in done:
        for line in table.summary(part, rows):
            terminal.text(line)
        if left:
            terminal.text(f"  {len(left)} left: polyfuse gpu-bench {part.name} continues with {left[0]}")
    terminal.text(f"results are in {folder}")
    return not any(left or any("missing" in row for row in rows) for _, rows, left in done)


def _available() -> None:
    reason = missing()
    if reason is not None:
        raise TargetUnavailable(
            f"{reason}. For a dry run in the emulator: polyfuse gpu-bench --device lockstep"
        )
    try:
        module("torch")
    except ImportError as absent:
        raise TargetUnavailable(f"gpu-bench needs torch for comparison and timing: {absent}") from absent
