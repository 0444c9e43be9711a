"""Factors that are computed as they are copied, and sums in memory behind a product: Strassen in 7 kernels on a GPU."""

# ruff: noqa: F821

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import sympy

import polyfuse as pf
from polyfuse import nn
from polyfuse.bilinear import KNOWN
from polyfuse.checks import cuda_cases as cases
from polyfuse.codegen.cuda.compile.disassembly import main_loop
from polyfuse.ir.tree import restrict
from polyfuse.machine import Machine
from polyfuse.rewrite import bilinear, expand
from polyfuse.rewrite.bilinear.dimension_roles import Roles, roles_of
from polyfuse.strategy.cuda.gemm.schedule import product_of
from polyfuse.strategy.match.operand_rows import in_vectors, may_run_ahead
from polyfuse.strategy.pipeline import plan_for
from polyfuse.strategy.rewrites.batch_isomorphic import in_batches
from polyfuse.strategy.rewrites.fast_matmul import Wanted, price_of, with_fast_products
from tests.support.on_tensor_cores import in_planned_registers

pytest.importorskip("numba.cuda")

H200 = Machine.preset("h200")
SMALL = replace(H200, units=1, launch_seconds=0.0)
"""One of its SMs, which small products keep busy, too."""


def matmul(rows: int, steps: int, columns: int, dtype: str = "float32") -> pf.Nest:
    """x @ w."""
    return nn.lower(nn.matmul(nn.input("x", (rows, steps), dtype), nn.input("w", (steps, columns), dtype)))


def inlined(nest: pf.Nest, algorithm: str = "strassen") -> pf.Nest:
    """A product by a bilinear algorithm, each product by itself, sums of blocks in its factors."""
    (name,) = (s.name for s in nest.statements if s.is_reduction)
    return bilinear(nest, name, KNOWN[algorithm], apart=True, inline=("left", "right")).nest


def first_product(nest: pf.Nest) -> pf.Nest:
    """Its first product, added to what a caller has: of two levels four blocks, and four in each factor."""
    wanted = frozenset(s.name for s in nest.statements if s.name.endswith(("_zero0", "_product0", "_0")))
    order = restrict(nest.order, wanted)
    assert order is not None
    every = (
        replace(s, op="+=" if s.write.tensor == "out" else s.op) for s in nest.statements if s.name in wanted
    )
    kept = tuple(every)
    used = {tensor for s in kept for tensor in s.tensors}
    tensors = (
        replace(t, role="inout" if t.name == "out" else t.role) for t in nest.tensors if t.name in used
    )
    return replace(nest, tensors=tuple(tensors), statements=kept, order=order)


def in_tiles(nest: pf.Nest) -> pf.Executable:
    """The plan with tiles of results, as large products have them."""
    plan = plan_for(nest, SMALL)
    assert "microkernel" in str(plan.schedule), str(plan)
    start = plan.schedule.source
    return pf.compile(start, schedule=plan.schedule, target="cuda", machine="h200", device="lockstep")


def exact(net: pf.Executable, rows: int, steps: int, columns: int, dtype: str = "float32") -> bool:
    random = np.random.default_rng(5)
    x, w = (random.integers(-9, 10, shape).astype(dtype) for shape in ((rows, steps), (steps, columns)))
    return np.array_equal(net(x, w), x @ w)


@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [((96, 80, 136), "float32"), ((99, 67, 131), "float64")],
    ids=["even", "odd"],
)
def test_strassen_is_seven_kernels_and_exact(sizes: tuple[int, int, int], dtype: str) -> None:
    """No sum of blocks and no product goes through memory; odd sizes have kernels for what is left."""
    nest = inlined(matmul(*sizes, dtype=dtype))
    assert (
        "are not batched: what mac0_product1 and mac0_product4 compute is added up"
        in in_batches(nest, SMALL)[1][0].text
    )
    net = in_tiles(nest)
    products = [launch for launch in net.kernels if "tile_" in launch.source]
    assert len(products) >= 7
    assert len(net.kernels) == 7 or any(size % 2 for size in sizes)
    assert net.report().arena_bytes == 0
    assert exact(net, *sizes, dtype=dtype)


def test_two_levels_add_four_blocks_in_each_factor_and_store_four() -> None:
    nest = first_product(inlined(matmul(128, 96, 160), "strassen2"))
    net = in_tiles(nest)
    (launch,) = net.kernels
    counted = [
        launch.source.count(f"copy_vector(4, {name}")
        for name in ("x_lanes", "w_lanes", "out_results", "out,")
    ]
    assert counted == [8, 8, 4, 4], "whole tiles of steps, and the last one, which is cut short"
    agrees(net, nest)


def weighted() -> pf.Nest:
    """What a factor is computed from is no sum of blocks: a number a row is the same along a row."""

    @pf.nest
    def product(s: f32[70], a: f32[70, 64], b: f32[70, 64], w: f32[64, 72], y: f32[70, 72]):
        for i in range(70):
            for j in range(72):
                t = 0
                for k in range(64):
                    t += (s[i] * a[i, k] - b[i, k]) * w[k, j]
                y[i, j] += t

    return expand(product).nest


def crossed() -> pf.Nest:
    """Rows of one term are columns of the other: no access of 16 bytes is right for both."""

    @pf.nest
    def product(a: f32[64, 64], w: f32[64, 72], y: f32[64, 72]):
        for i in range(64):
            for j in range(72):
                t = 0
                for k in range(64):
                    t += (a[i, k] + a[k, i]) * w[k, j]
                y[i, j] = t

    return expand(product).nest


def agrees(net: pf.Executable, nest: pf.Nest) -> None:
    """A kernel's results are the oracle's: of small integers, of which every sum is exact."""
    random = np.random.default_rng(6)
    inputs = {t.name: random.integers(-9, 10, t.shape).astype(t.dtype) for t in nest.inputs}
    (wanted,) = pf.interpret(nest, {name: array.copy() for name, array in inputs.items()}).values()
    outputs = cases.poisoned(nest)
    net(**inputs, **({"out": outputs} if outputs else {}))
    (changed,) = (t.name for t in nest.tensors if t.role in ("output", "inout"))
    assert np.array_equal(np.asarray(wanted), outputs[0] if outputs else inputs[changed])


def test_any_elementwise_factor() -> None:
    nest = weighted()
    net = in_tiles(nest)
    assert "copy_vector(4, a_lanes" in net.source
    assert "copy_vector(4, y, " in net.source
    assert "s_lanes" not in net.source
    agrees(net, nest)


@pytest.mark.parametrize(("make", "wide"), [(weighted, True), (crossed, False)])
def test_which_factors_come_in_rows_of_sixteen_bytes(make: Callable[[], pf.Nest], wide: bool) -> None:
    nest = make()
    found = product_of(nest, next(s.name for s in nest.statements if isinstance(s.body, sympy.Mul)))
    assert found is not None
    assert found.left.computed
    assert in_vectors(nest, found, found.left, 4) == wide
    assert not may_run_ahead(nest, found, found.left, 4)


@pytest.mark.parametrize(
    ("algorithm", "size", "share", "terms"),
    [("strassen", 8192, 0.89, 2), ("strassen2", 16384, 0.86, 4)],
    ids=["two blocks", "four blocks"],
)
def test_machine_code_is_multiply_adds_in_planned_registers(
    algorithm: str, size: int, share: float, terms: int
) -> None:
    """Whatever a factor is the sum of comes in loads of 16 bytes."""
    pytest.importorskip("cuda.core")
    nest = first_product(inlined(matmul(size, size, size), algorithm))
    net = pf.compile(nest, target="cuda", machine="h200", device="none")
    for capability in ((8, 0), (9, 0)):
        loop = main_loop(in_planned_registers(net, capability))
        assert loop.count("FFMA") == 1024
        assert loop.count("FFMA") >= share * len(loop)
        assert [name for name in loop if name.startswith("LDG")] == ["LDG.E.128"] * 4 * terms
        assert loop.count("FADD") == 16 * (terms - 1)


def chosen(size: int, machine: str, accuracy: float = 10.0) -> str:
    (said,) = with_fast_products(
        matmul(size, size, size), Machine.preset(machine), Wanted.of("auto", accuracy)
    ).remarks
    return said.text


def test_forms_have_prices() -> None:
    """Which form is cheapest is the model's: batches fill a GPU where blocks are few, tiles are best by themselves."""
    assert (
        "a fast product does not clearly pay: 61.4 µs by strassen <2, 2, 2; 7>, in one batch, padded, 49.4"
        in chosen(1024, "h200")
    )
    assert (
        "is computed by strassen <2, 2, 2; 7>: 2.44 ms by strassen <2, 2, 2; 7>, each product apart, 2.64"
        in (chosen(4096, "h200"))
    )
    assert (
        "is computed by strassen <2, 2, 2; 7>: 18.9 ms by strassen <2, 2, 2; 7>, each product apart, 21"
        in (chosen(8192, "h200"))
    )
    assert "a fast product does not clearly pay" in chosen(4096, "rtx4090")
    assert "the limit is 2" in chosen(8192, "h200", accuracy=2.0)


def test_a_price_is_that_of_the_plan() -> None:
    """Tiles whose factors are computed on the way, and what they add up behind themselves; no array between kernels."""
    nest, form = matmul(4096, 4096, 4096), {"apart": True, "inline": ("left", "right")}
    roles = roles_of(nest, nest.statement("mac0"), "", None)
    assert isinstance(roles, Roles)
    price = price_of(nest, roles, H200)
    assert price is not None
    plan = plan_for(inlined(nest), H200)
    assert len(plan.groups) == 7
    assert price.fast(KNOWN["strassen"], form) == pytest.approx(plan.seconds, rel=0.01)
