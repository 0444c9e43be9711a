"""Where another emitter of CUDA code would be put in: few modules know numba-cuda and CUDA's own packages."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import polyfuse

ROOT = Path(polyfuse.__file__).parent

ALLOWED = (
    "polyfuse.codegen.cuda.intrinsics",
    "polyfuse.codegen.cuda.compile",
    "polyfuse.runtime.cuda",
    "polyfuse.simulator.numba_simulator",
)


def imported(tree: ast.Module) -> Iterator[str]:
    """What a module imports, wherever it does: "numba.cuda.types", "numba.cuda"."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names):
                yield from (each.name for each in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from (f"{module}.{each.name}" for each in names)


def is_cuda(name: str) -> bool:
    return f"{name}.".startswith(("numba.cuda.", "cuda."))


def importers() -> Iterator[str]:
    for path in ROOT.rglob("*.py"):
        if any(map(is_cuda, imported(ast.parse(path.read_text(encoding="utf-8"))))):
            yield ".".join(("polyfuse", *path.relative_to(ROOT).with_suffix("").parts))


def test_few_modules_know_numba_cuda() -> None:
    found = sorted(importers())
    assert found, "the search finds what there is"
    assert not [name for name in found if not f"{name}.".startswith(tuple(f"{each}." for each in ALLOWED))]


def test_each_of_them_is_needed() -> None:
    found = [f"{name}." for name in importers()]
    assert all(any(name.startswith(f"{each}.") for name in found) for each in ALLOWED)


def test_imports_are_found_wherever_they_stand() -> None:
    source = "from numba import cuda, types\ndef f():\n    from cuda.core import Device\n    import numba.cuda.core"
    assert [*map(is_cuda, imported(ast.parse(source)))] == [True, False, True, True]
