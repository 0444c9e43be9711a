"""Every plan as JSON, and the differences of two such files: the proof that a change of the strategy keeps the plans.

python -m benchmarks.plans [--only workloads,networks,polybench,pipelines,cuda] [--out FILE] [--jobs N]
python -m benchmarks.plans --compare BEFORE AFTER    one line a difference, totals, exit status 1 if there are any

Of each case (benchmarks.compiled_cases) the file has

    kernels     in order: name, statements, tensors, on a GPU grid and block
    trace       the schedule's verbs
    predicted   the model's seconds, kernel by kernel
    explain     the decisions as text
    source      SHA-256 of the emitted source without its import lines

Plans are made for presets, and no machine code is made: the file is the same on every computer with the same versions
of isl and SymPy.
"""

from __future__ import annotations

import ast
import hashlib
from typing import Any

import polyfuse as pf
from benchmarks import snapshots
from benchmarks.compiled_cases import CPU, CUDA, cases
from polyfuse.runtime.artifact import Compiled

GROUPS = ("workloads", "networks", "polybench", "pipelines", "cuda")

DIGITS = 12
"""Significant digits of predicted seconds: sums in another order, and another C library's logarithms, are no change."""


def main() -> None:
    versions = {
        name: version for name, version in pf.measure.versions().items() if name in ("islpy", "sympy")
    }
    about = {"machines": f"{CPU} with 1 and 2 cores, {CUDA}", **versions}
    snapshots.main(
        "benchmarks.plans", "Record all plans as JSON, or compare two records.", GROUPS, cases, plan, about
    )


def plan(name: str) -> snapshots.Record:
    """The plan of a case as text and numbers."""
    compiled = cases(name.split("/")[0])[name].compiled()
    return {
        "kernels": kernels(compiled),
        "trace": compiled.schedule.trace().splitlines(),
        "predicted": [float(f"{cost.total:.{DIGITS}g}") for cost in compiled.costs],
        "explain": explained(compiled),
        "source": hashlib.sha256(without_imports(compiled.program.source).encode()).hexdigest(),
    }


def kernels(compiled: Compiled) -> list[dict[str, Any]]:
    """The launches in order."""
    found = []
    for launch in compiled.program.launches:
        kernel = {"name": launch.name, "runs": ", ".join(launch.statements), "on": ", ".join(launch.tensors)}
        if compiled.machine.kind == "cuda":
            kernel["grid"], kernel["block"] = (
                " × ".join(map(ast.unparse, extents)) for extents in (launch.grid, launch.block)
            )
        found.append({**kernel, "once": True} if launch.once else kernel)
    return found


def explained(compiled: Compiled) -> list[str]:
    """The lines of `explain()` without the milliseconds that validation took."""
    checks = ", ".join(check.name for check in compiled.validation.checks)
    return compiled.explanation.replace(str(compiled.validation), f"validated: {checks}").splitlines()


def without_imports(source: str) -> str:
    r"""Source text without the import statements at its top, and without the empty lines around these.

    >>> without_imports("import math\n\nfrom numba import (\n    int64,\n)\n\n\ndef f():\n    pass\n")
    'def f():\n    pass\n'
    """
    lines = source.splitlines(keepends=True)
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            assert node.end_lineno is not None, "read from text"
            lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    return "".join(lines).lstrip("\n")


if __name__ == "__main__":
    main()
