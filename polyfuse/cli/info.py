"""`polyfuse info`: versions, targets, machine, cache."""

from __future__ import annotations

from polyfuse import measure
from polyfuse.machine import PRESETS, Machine
from polyfuse.runtime.cuda.driver import missing
from polyfuse.runtime.store.files import cache_directory
from polyfuse.workbench.terminal import Terminal


def show_info(terminal: Terminal) -> None:
    """Print what this installation and this machine have."""
    about = measure.environment()
    versions = ", ".join(f"{name} {version}" for name, version in measure.versions().items())
    reason = missing()
    lines = (
        ("versions", versions),
        ("python", f"{about['python']}, {about['system']}"),
        ("commit", str(about["commit"] or "not run from a checkout")),
        ("cpu", f"{about['cpu']}, {about['cpus']} usable"),
        ("target cpu", "available"),
        ("target cuda", "available" if reason is None else reason),
        ("machine", str(Machine.detect())),
        ("presets", ", ".join(sorted(PRESETS))),
        ("cache", str(cache_directory() or "off")),
    )
    for name, value in lines:
        terminal.text(f"{name:<12} {value}")
