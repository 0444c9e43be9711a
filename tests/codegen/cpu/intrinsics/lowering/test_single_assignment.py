"""Variables are assigned once, as by numba's own pass, and blocks without a variable are not looked at for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from numba.core import ssa
from numba.core.compiler import run_frontend

from polyfuse.codegen.cpu.intrinsics.lowering.single_assignment import with_single_assignments


def sums(x: Any, n: int) -> float:
    """Two loops with the same names, one inside another, and a variable that is assigned on some ways alone."""
    total = 0.0
    for i in range(n):
        for j in range(i):
            total += x[i, j]
    for i in range(n):
        if x[i, i] > total:
            least = x[i, i]
            total = least
        elif i > 3:
            total = total - 1.0
            break
    for j in range(n):
        while total > 2.0:
            total /= 2.0
            if total == x[j, j]:
                continue
            i = j + 1
            total -= x[i, j]
    return total


def straight(x: Any, n: int) -> float:
    """One block in which a variable is assigned three times."""
    total = x[0]
    total = total + x[n]
    total = total * total
    return total


def printed(blocks: dict[int, Any]) -> list[str]:
    return [f"{label}: {statement}" for label, block in blocks.items() for statement in block.body]


@pytest.mark.parametrize("function", [sums, straight])
def test_the_blocks_are_those_of_numba(function: Callable[..., float]) -> None:
    ours = with_single_assignments(run_frontend(function).blocks)
    assert printed(ours) == printed(ssa.reconstruct_ssa(run_frontend(function)).blocks)


def test_a_block_is_looked_at_for_the_variables_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty loops one after the other, each with a variable of its own that is assigned twice."""
    lines = ["def loops(x):"]
    for n in range(50):
        lines += [
            f"    v{n} = 0.0",
            f"    for i{n} in range(3):",
            f"        v{n} = v{n} + x[i{n}]",
            f"    x[0] = v{n}",
        ]
    space: dict[str, Any] = {}
    exec("\n".join(lines), space)
    seen, rewritten = [0], ssa._run_block_rewrite

    def counted(blocks: dict[int, Any], states: Any, handler: Any) -> Any:
        seen[0] += len(blocks)
        return rewritten(blocks, states, handler)

    monkeypatch.setattr(ssa, "_run_block_rewrite", counted)
    blocks = run_frontend(space["loops"]).blocks
    with_single_assignments(blocks)
    assert seen[0] < 20 * len(blocks)
    seen[0] = 0
    ssa.reconstruct_ssa(run_frontend(space["loops"]))
    assert seen[0] > 50 * len(blocks)
