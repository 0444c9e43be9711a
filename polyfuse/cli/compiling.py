"""`polyfuse compile` and `polyfuse explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from polyfuse.cli.load import load_schedule
from polyfuse.compiler import compile
from polyfuse.errors import quantity
from polyfuse.ir import Nest
from polyfuse.runtime.executable import Executable
from polyfuse.strategy.explanation import Explanation
from polyfuse.tune import Trials
from polyfuse.workbench.terminal import Terminal, folder_to_write, writing


def compiled(
    terminal: Terminal,
    nest: Nest,
    target: str,
    machine: str | None,
    device: str | None = None,
    fuse: bool = True,
    schedule: Path | None = None,
    tune: Trials | None = None,
) -> Executable:
    """Compile a nest, with the schedule in a file if one is given."""
    options: dict[str, Any] = {"target": str(target), "machine": machine, "fuse": fuse}
    if device is not None:
        options["device"] = str(device)
    if schedule is not None:
        options["schedule"] = load_schedule(schedule, nest)
    if tune is not None:
        options["tune"] = tune
    if tune is not None and terminal.err.is_terminal:
        return compile(nest, **options)  # a search has a bar of its own
    with terminal.working(f"{'tuning' if tune is not None else 'compiling'} {nest.name}"):
        return compile(nest, **options)


def show_kernels(terminal: Terminal, net: Executable) -> None:
    """The launches, the source, the report."""
    terminal.heading(quantity(len(net.kernels), "kernel"))
    for launch in net.kernels:
        terminal.text(str(launch))
    terminal.heading("source")
    terminal.code(net.source)
    terminal.heading("report")
    terminal.text(str(net.report()))


def emit_files(net: Executable, folder: Path) -> list[Path]:
    """Write the source, the nest, the schedule (tree and trace), the explanation and the report as files."""
    texts = {
        f"kernels_{net.program.target}.py": net.source,
        "nest.txt": str(net.nest),
        "schedule.txt": str(net.schedule),
        "schedule.py": f"{net.schedule.trace()}\n",
        "explanation.txt": net.explain(),
        "report.txt": str(net.report()),
    }
    written = []
    folder_to_write(folder)
    with writing(folder):
        for name, text in texts.items():
            path = folder / name
            path.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
            written.append(path)
    return written


def explanation_text(told: Explanation, form: str) -> str:
    """Return an explanation as "text", "summary", "json" or "html"."""
    if form == "summary":
        return told.summary()
    return told.to_json() if form == "json" else told.to_html() if form == "html" else str(told)
