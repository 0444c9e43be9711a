"""Products in equal shares by the strategy: where a last wave is nearly empty, in register tiles, values and code."""

from __future__ import annotations

import ast
from dataclasses import replace

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.checks import cuda_cases as cases
from polyfuse.machine import Machine
from polyfuse.rewrite import accumulate
from polyfuse.rewrite.reductions.split_reduction import split_reduction
from polyfuse.rewrite.shares import Shares
from polyfuse.runtime.cuda.runner import build_kernels
from polyfuse.strategy.claims import Claims
from polyfuse.strategy.cuda.gemm.schedule import product_of
from polyfuse.strategy.cuda.gemm.stream_k import InShares, cheapest_in_shares
from polyfuse.strategy.cuda.tiles.tile_candidates import tiles_for
from polyfuse.strategy.driver import Start
from polyfuse.strategy.match.gemm_problem import Extents
from polyfuse.strategy.pipeline import kernel_plan
from polyfuse.strategy.rewrites.private_accumulator import summed_apart
from polyfuse.strategy.rewrites.split_k import extents_of, in_parts

H200 = Machine.preset("h200")


def test_shares_pay_where_the_last_wave_is_nearly_empty() -> None:
    assert H200.gpu is not None
    expected = {(1280, 4096): True, (2560, 2560): True, (2048, 2048): False, (4096, 4096): False}
    for (rows, steps), pays in expected.items():
        extents = Extents(rows, rows, steps, 1, whole_steps=steps)
        shapes = tiles_for(extents, 4, H200, H200.gpu)
        found = cheapest_in_shares(shapes, extents, H200, H200.gpu)
        assert found is not None
        assert (found.seconds < 0.9 * shapes[0].seconds) is pays
        chunks = found.tile.blocks(extents) * -(-steps // found.tile.shape.steps)
        assert found.tile.tiles == -(-chunks // found.count)


def test_few_products_of_a_nest_are_shared_out_and_what_is_refused_is_not() -> None:
    made = in_parts(cases.dense(4096, 768, 4096, 768, 4096, 768, batch=768), H200)
    assert made is not None
    assert len(made.shared) == 2
    assert set(made.shared) < set(made.products)
    assert "in shares of 35" in made.remarks[0].text
    assert "in one piece" in made.remarks[0].text
    rounded = in_parts(cases.dense(4096, 768, batch=768), replace(H200, math="tf32"))
    assert rounded is None or not rounded.shared  # tensor cores multiply the same steps for every result


def dealt_out(nest: pf.Nest, count: int) -> tuple[pf.Schedule, str]:
    """The strategy's schedule with a nest's product in so many shares, of tiles of 32 × 32 in two stages; and these."""
    (product,) = (found for s in nest.statements if (found := product_of(nest, s.name)) is not None)
    assert H200.gpu is not None
    tiles = tiles_for(extents_of(nest, product, H200), 4, H200, H200.gpu)
    tile = next(t for t in tiles if (t.shape.block_rows, t.shape.block_columns, t.stages) == (32, 32, 2))
    dims = nest.statement(product.statement).dims
    shares = Shares(count, tile.shape.steps, {dims[product.rows]: 32, dims[product.columns]: 32})
    made = split_reduction(nest, product.statement, dims[product.steps[0]], shares=shares)
    assert made.dealt is not None
    changed = accumulate(made.nest, made.tensor) or made.nest
    summed = summed_apart(changed)
    changed = changed if summed is None else summed.nest
    claims = Claims(changed, shared={made.partial: InShares(tile, made.dealt)})
    return kernel_plan(Start(changed, H200, claims=claims)).schedule, str(made)


def matmul(*shape: int) -> pf.Nest:
    """A batch of products of two inputs."""
    count, rows, steps, columns = shape
    inputs = (("x", (count, rows, steps)), ("y", (count, steps, columns)))
    return pf.lower(pf.nn.matmul(*(pf.nn.input(*given) for given in inputs)))


@pytest.mark.parametrize(
    ("nest", "count", "shares"),
    [
        (cases.dense(76, 92, batch=70), 4, "9 tiles of 5 chunks in shares of 12"),
        (cases.dense(160, 64, batch=32), 5, "2 tiles of 10 chunks in shares of 4"),
        (matmul(2, 32, 64, 64), 3, "4 tiles of 4 chunks in shares of 6"),
    ],
    ids=["cut tiles and steps", "many shares of a tile", "a batch"],
)
def test_in_lock_step_it_is_what_the_oracle_says(nest: pf.Nest, count: int, shares: str) -> None:
    """Also of tiles that are cut, and more shares than the strategy would make."""
    schedule, said = dealt_out(nest, count)
    net = pf.compile(schedule.source, schedule=schedule, target="cuda", machine="h200", device="lockstep")
    assert shares in said
    parts, total = net.program.codes
    assert "tile_fma(" in parts.source
    assert "copy_ahead(" in parts.source
    assert "no tile in registers" not in parts.source
    assert "_part in range(" in total.source
    assert ast.unparse(net.program.launches[0].grid[0]) == str(count)
    inputs, outputs = cases.draw(nest, np.random.default_rng(2)), cases.poisoned(nest)
    net(**inputs, out=outputs)
    assert cases.error(nest, inputs, {"out": outputs[0]}) <= cases.TOLERANCE


def test_a_share_is_tiles_in_planned_registers() -> None:
    pytest.importorskip("cuda.core")
    net = pf.compile(cases.dense(4096, 768, batch=768), target="cuda", machine="h200", device="none")
    parts, _ = net.program.codes
    assert "18 tiles of 256 chunks in shares of 35" in net.explain()
    assert parts.registers is not None
    for capability in ((8, 0), (9, 0)):
        cubins = build_kernels(net.program, capability)
        assert cubins[parts.name].registers <= parts.registers
        assert all((c.spill_stores, c.spill_loads) == (0, 0) for c in cubins.values())
