"""Counts and prices: the bytes of a call, a window's instances at borders, a kernel's reads from a near cache."""

from __future__ import annotations

from dataclasses import replace

import islpy as isl
import numpy as np
import pytest

import polyfuse as pf
from polyfuse.machine import CpuMachine
from polyfuse.strategy.cost.counts import Counts, independent

ZEN5 = replace(CpuMachine.preset("zen5"), units=1)


def test_constants_that_a_call_does_not_read_are_not_among_its_bytes() -> None:
    tensors = [
        pf.Tensor("w", (16,), "float32", "constant"),
        pf.Tensor("s", (16,), "float32", "constant"),
        pf.Tensor("f", (16,), "float32", "temporary"),
        pf.Tensor("x", (16,), "float32", "input"),
        pf.Tensor("y", (16,), "float32", "output"),
    ]
    fold = pf.statement("{ fold[i] : 0 <= i < 16 }", "f[i] = w[i] * s[i]")
    for text, counted in (("y[i] = f[i] * x[i]", 3), ("y[i] = f[i] * x[i] + s[i]", 4)):
        steps = [fold, pf.statement("{ last[i] : 0 <= i < 16 }", text)]
        nest = pf.Nest.of(tensors, steps, constants={n: np.ones(16, np.float32) for n in "ws"})
        assert Counts(nest).total_bytes == counted * 16 * 4


def test_borders_of_rows_and_of_columns_are_left_out_both() -> None:
    """Padded windows of 3 x 3 on 4 x 4 pixels: of 12 taps along rows ten are there, and of 12 along columns."""
    window = "0 <= k < 4 and 0 <= n < 3 and 0 <= k + n - 1 < 4 and 0 <= l < 4 and 0 <= p < 3 and 0 <= l + p - 1 < 4"
    domain = isl.Set(f"{{ S[k, l, n, p] : {window} }}")
    assert independent(domain) == (frozenset({0, 2}), frozenset({1, 3}))
    tensors = [pf.Tensor("x", (4, 4), "float32", "input"), pf.Tensor("y", (4, 4), "float32", "inout")]
    step = pf.statement(f"{{ S[k, l, n, p] : {window} }}", "y[k, l] += x[k + n - 1, l + p - 1]")
    assert Counts(pf.Nest.of(tensors, [step])).filled("S") == pytest.approx((10 / 12) ** 2)


@pytest.mark.parametrize(
    "text",
    ["{ [i, j] : 0 <= i < 4 and (j = 0 or j = i) }", "{ [i, j] : 0 <= i, j < 8 and (i + j) mod 2 = 0 }"],
)
def test_dimensions_of_unions_and_moduli_are_one_group(text: str) -> None:
    assert independent(isl.Set(text)) == (frozenset({0, 1}),)


def test_a_kernel_reads_what_the_one_before_left_from_a_near_cache() -> None:
    """Beside 16 MB of others, which a third kernel goes through."""
    shapes = {"x": 4096, "a": 4096, "y": 4096, "u": 1 << 21, "z": 1 << 21}
    roles = {"x": "input", "a": "temporary", "y": "output", "u": "input", "z": "output"}
    steps = (("A", "a[i] = 2 * x[i]"), ("B", "y[i] = a[i] + 1"), ("C", "z[i] = 2 * u[i]"))
    nest = pf.Nest.of(
        [pf.Tensor(n, (size,), "float32", roles[n]) for n, size in shapes.items()],  # type: ignore[arg-type]
        [pf.statement(f"{{ {n}[i] : 0 <= i < {shapes[text[0]]} }}", text) for n, text in steps],
    )
    compiled = pf.compile(nest, target="cpu", machine=ZEN5, fuse=False).compiled
    assert compiled.plan is not None
    before = [group.cost.memory for group in compiled.plan.groups]
    first, second, third = (cost.memory for cost in compiled.costs)
    assert (first, third) == (before[0], before[2])
    assert 0 < second < before[1]
