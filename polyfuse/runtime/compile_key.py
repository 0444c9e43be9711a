"""The cache key of a compile: all its inputs as text, and their digest.

A part that is left out here would bring back another program's machine code; one too many costs a compile. So: the
whole nest but the constants' values (kernels take them as arguments), the schedule or the strategy's options, the
machine, the CPU as LLVM sees it, all of polyfuse's own source, and the versions and settings of what compiles.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib import metadata
from pathlib import Path

import llvmlite.binding as llvm
from numba import config

from polyfuse.ir.nest import Nest
from polyfuse.ir.scalar import encode
from polyfuse.machine import Machine
from polyfuse.runtime.cpu.threading_layer import use_openmp
from polyfuse.schedule import Schedule

PACKAGES = ("islpy", "llvmlite", "numba", "numpy", "sympy")
"""Whose versions decide what is compiled."""

PACKAGE = Path(__file__).parents[1]
"""The folder of polyfuse's own source."""


def key_parts(
    nest: Nest, schedule: Schedule | None, machine: Machine, options: Mapping[str, object]
) -> dict[str, str]:
    """Return the inputs that a compile depends on, by name."""
    return {
        "nest": nest_text(nest),
        "schedule": "" if schedule is None else schedule_text(schedule),
        "machine": f"{type(machine).__name__} {asdict(machine)!r}",
        "options": json.dumps(dict(options), sort_keys=True),
        "host": host_text(),
        "versions": versions_text(),
        "settings": settings_text(),
        "source": source_digest(),
    }


def digest(parts: Mapping[str, str]) -> str:
    """A key's name."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def nest_text(nest: Nest) -> str:
    """A nest as text from which every part but the constants' values could be read back."""
    statements = [
        [s.name, str(s.domain), str(s.write.map), s.op, [str(r.map) for r in s.reads], encode(s.body)]
        for s in nest.statements
    ]
    tensors = [
        [t.name, list(t.shape), t.dtype, t.role, repr(t.gather), list(map(str, t.below)), t.pairs]
        for t in nest.tensors
    ]
    return json.dumps([nest.name, str(nest.context), tensors, statements, repr(nest.order)])


def schedule_text(schedule: Schedule) -> str:
    """A schedule made by hand: its nest, its verbs, and the tree they led to."""
    return json.dumps(
        [nest_text(schedule.source), [str(step) for step in schedule.steps], repr(schedule.tree)]
    )


def host_text() -> str:
    """The CPU that machine code is made for."""
    return f"{llvm.get_process_triple()} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


def settings_text() -> str:
    """numba's settings, from the environment, its file and the program, as a compile will see them.

    Without those for CUDA, to which numba-cuda adds when it is imported (cubins.py has its variables).
    """
    use_openmp()
    names = (name for name in vars(config) if name.isupper() and not name.startswith("CUDA_"))
    plain = {name: value for name in names if _is_plain(value := getattr(config, name))}
    return json.dumps(plain, sort_keys=True)


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


@cache
def versions_text() -> str:
    """Python and the packages that compile."""
    found = {name: metadata.version(name) for name in PACKAGES}
    return json.dumps([sys.version, platform.python_implementation(), found])


@cache
def source_digest() -> str:
    """Return a digest of polyfuse's own source: some 560 files, 15 ms."""
    found = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        found.update(f"{path.relative_to(PACKAGE)}\n".encode())
        found.update(path.read_bytes())
    return found.hexdigest()
