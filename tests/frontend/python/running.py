"""Nests in other ways than the oracle's: as the Python function they were read from, and as emitted source."""

from __future__ import annotations

import linecache
import math
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import numpy as np

import polyfuse as pf
from polyfuse.codegen.generate import program
from polyfuse.ir.sizes import extent
from tests.support.plain import FUNCTIONS

INTEGERS = dict.fromkeys(("int32", "int64", "uint64"), int)
KERNEL_NAMES = {
    "math": math,
    "np": np,
    "float32": np.float32,
    "float64": np.float64,
    **INTEGERS,
    **FUNCTIONS,
}
_numbers = count()


def copies(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: np.array(value) if isinstance(value, np.ndarray) else value for name, value in arrays.items()
    }


def by_python(nest: Any, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """What the original function leaves in the arrays it writes, and returns."""
    mine = copies(arrays)
    return left(nest, mine, nest.python(**mine))


def left(nest: pf.Nest, arrays: Mapping[str, Any], given: Any) -> dict[str, Any]:
    """Arrays that were written in place and what a call gave, by name."""
    results = given if isinstance(given, tuple) else () if given is None else (given,)
    named = {t.name: value for t, value in zip(nest.results, results, strict=True)}
    return {t.name: arrays[t.name] for t in nest.with_role("inout")} | named


def by_source(nest: pf.Nest, arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
    """What the emitted CPU source leaves in the original order, run by Python itself (numba takes seconds a kernel)."""
    printed = program(nest, pf.Schedule(nest).tree, "cpu")
    memory = {name: np.atleast_1d(np.asarray(value)) for name, value in copies(arrays).items()}
    for tensor in nest.with_role("temporary", "output"):
        shape = tuple(extent(size, sizes) for size in tensor.shape) or (1,)
        memory[tensor.name] = np.full(shape, -77, tensor.dtype)
    functions: dict[str, Callable[..., None]] = {}
    for code in printed.codes:
        space = dict(KERNEL_NAMES)
        exec(code.source, space)
        functions[code.name] = space[code.name]
    with np.errstate(all="ignore"):
        for launch in printed.launches:
            given = [memory[name] for name in launch.tensors]
            functions[launch.name](*given, *(int(sizes[name]) for name in printed.sizes), *launch.bounds)
    return {tensor.name: memory[tensor.name] for tensor in nest.outputs}


def called(executable: pf.Executable, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """What a compiled nest leaves in the arrays it writes."""
    mine = copies(arrays)
    return left(executable.nest, mine, executable(**mine))


def assert_close(found: Mapping[str, Any], expected: Mapping[str, Any], relative: float = 1e-10) -> None:
    """Equal up to a fraction of the largest element of each array."""
    for name, array in expected.items():
        scale = max(1.0, float(np.abs(array).max(initial=0)))
        worst = float(np.abs(np.asarray(found[name], np.float64) - array).max(initial=0))
        assert worst <= relative * scale, f"{name} differs by {worst}"


def defined(text: str, **outside: Any) -> Any:
    """The nest of a function given as text, with a source that can be read."""
    file = f"<function {next(_numbers)}>"
    lines = text.strip("\n").splitlines(keepends=True)
    linecache.cache[file] = (len(text), None, lines, file)
    space = {"pf": pf, "math": math, "np": np, **outside}
    exec(compile("".join(lines), file, "exec"), space)
    return next(value for value in space.values() if isinstance(value, pf.Nest))
