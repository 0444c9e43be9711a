"""Batches of a product that are better inside of tiles, by what follows it."""

from __future__ import annotations

import islpy as isl
import pytest

from polyfuse import nn
from polyfuse.ir.tree import parts
from polyfuse.machine import KiB, cpu
from polyfuse.strategy.cost.counts import Counts
from polyfuse.strategy.cost.kernel_model import kernel_of
from polyfuse.strategy.cpu.gemm.batches_along_lines import along_lines
from polyfuse.strategy.match.gemm import products_of

SMALL = cpu("small caches", 1, 32, (1 * KiB, 2 * KiB, 64 * KiB), 3.0e9)


@pytest.mark.parametrize(
    ("condition", "found"),
    [("q = i and 0 <= i < 2", {0}), ("0 <= i, q < 2", set()), ("false", set())],
    ids=["one", "several", "none"],
)
def test_a_follower_may_need_one_batch_or_several_or_none(condition: str, found: set[int]) -> None:
    """A follower of a fast product's border needs nothing of what the other border adds up: isl ended in an error."""
    sums = nn.input("x", (2, 64, 8)) @ nn.input("w", (8, 8))
    nest = nn.lower(nn.relu(nn.permute(sums, (1, 2, 0))))
    (relu,) = (s for s in nest.statements if s.write.tensor == "out")
    (mac,) = (s for s in nest.statements if s.is_reduction)
    product = next(p for p in products_of(nest, mac.name) if p.alike == (0,))
    counts = Counts(nest)
    kernel = kernel_of(counts, parts(nest.order)[0])
    rest = "and 0 <= j < 64 and 0 <= k < 8 and 0 <= m < 8"
    need = isl.Map(f"{{ {relu.name}[j, k, q] -> {mac.name}[i, j, k, m] : {condition} {rest} }}")
    assert along_lines(nest, counts, kernel, product, {relu.name: need}, SMALL) == found
