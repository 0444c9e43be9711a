"""The kernels of a search in order: what stays in place, and what is where after two became one."""

from __future__ import annotations

import pytest

import polyfuse as pf
from polyfuse.ir.tree import parts, sequence
from polyfuse.strategy.fusion.kernel_line import KernelLine


@pytest.mark.parametrize(("place", "order"), [(1, "A BD C"), (3, "A C BD")])
def test_one_kernel_takes_the_place_of_either_of_two(place: int, order: str) -> None:
    names = "ABCD"
    nest = pf.Nest.of(
        [
            pf.Tensor("x", (8,), "float32", "input"),
            *(pf.Tensor(f"y{name}", (8,), "float32", "output") for name in names),
        ],
        [pf.statement(f"{{ {name}[i] : 0 <= i < 8 }}", f"y{name}[i] = x[i]") for name in names],
    )
    line, written = KernelLine(nest, nest.order), parts(nest.order)
    assert [line.kernel(name) for name in names] == list(written)
    assert [loop.name for loop in line.loops("B")] == ["i"]
    together = pf.Schedule(nest).fuse("B", "D", at="i").tree
    both = next(part for part in parts(together) if len(part.names) == 2)
    line.put(both, place)
    assert line.kernel("B") is line.kernel("D") is both
    assert line.loops("B") == line.loops("D") == (both,)
    assert " ".join("".join(part.names) for part in parts(line.tree)) == order
    assert line.tree == sequence(parts(line.tree))
