"""compile(fast_matmul=…): by name, by cost, within a limit of accuracy; and what is said about it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.ir.precision import Math
from polyfuse.strategy.rewrites.fast_matmul import Wanted, with_fast_products

ONE = replace(pf.Machine.preset("zen5"), units=1)


def square(size: int | None, dtype: str = "float32") -> pf.Nest:
    return pf.einsum("ik,kj->ij", dict.fromkeys("ijk", size) if size else None, dtype=dtype)


def said(nest: pf.Nest, machine: pf.Machine = ONE, accuracy: float = 10.0) -> str:
    (reason,) = with_fast_products(nest, machine, Wanted.of("auto", accuracy)).remarks
    return reason.text


@pytest.mark.parametrize("wanted", ["strassen", "winograd", pf.bilinear.classical(2, 1, 2)])
def test_what_is_asked_for_is_taken(wanted: str | pf.bilinear.Algorithm) -> None:
    nest = square(20, "float64")
    net = pf.compile(nest, target="cpu", fast_matmul=wanted)
    x = pf.bilinear.named(wanted) if isinstance(wanted, str) else wanted
    assert f"- mac (20 x 20 x 20) is computed by {x}, " in net.explain()
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-9, 9, (20, 20)).astype(float) for _ in range(2))
    assert np.array_equal(net(a, b), a @ b)
    assert "mac_product" not in pf.compile(nest, target="cpu").explain()


def test_auto_takes_a_fast_product_where_it_clearly_pays() -> None:
    assert "is computed as it stands, a fast product does not clearly pay: " in said(square(256))
    assert "is computed by strassen <2, 2, 2; 7>: " in said(square(8192))
    assert "its error bound is 3 times the classical one's" in said(square(8192))
    fast = with_fast_products(square(8192), ONE, Wanted.of("auto", 10.0)).nest
    assert len(fast.statements) >= 20
    assert with_fast_products(square(256), ONE, Wanted.of("auto", 10.0)).nest is not fast


def test_the_limit_of_accuracy() -> None:
    refused = "the error bound of every fast product is at least 3 times the classical one's, the limit is 2."
    assert refused in said(square(8192), accuracy=2.0)
    assert "is computed by strassen" in said(square(8192), accuracy=3.1)
    assert "is computed by strassen" in said(square(8192, "int32"), accuracy=1.0), "integers are exact"


def test_auto_leaves_what_it_cannot_price() -> None:
    unknown = "is computed as it stands: fast products are priced for known sizes on a CPU."
    assert unknown in said(square(None))
    tiles = "is computed as it stands: fast products are priced for known sizes in register tiles."
    assert tiles in said(square(None), pf.Machine.preset("h200"))
    sums = pf.lower(nn.Sequential(nn.ReLU()), batch=4, features=(4,))
    assert said(sums) == "no statement is a sum of products that a bilinear algorithm could compute"


def test_weights_cost_no_sums() -> None:
    layer = pf.lower(nn.Sequential(nn.Linear(4096, 4096)), batch=4096)
    (reason,) = with_fast_products(layer, ONE, Wanted.of("auto", 10.0)).remarks
    assert reason.text.startswith("mac0 (4096 x 4096 x 4096) is computed by strassen")


def test_a_symbolic_nest_by_name() -> None:
    net = pf.compile(square(None, "float64"), target="cpu", fast_matmul="strassen")
    rng = np.random.default_rng(0)
    for m, k, n in ((4, 6, 8), (5, 7, 9)):
        a, b = rng.integers(-9, 9, (m, k)).astype(float), rng.integers(-9, 9, (k, n)).astype(float)
        assert np.array_equal(net(a, b), a @ b)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_are_no_register_tiles(dtype: str) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (40, 50)).astype(dtype), rng.integers(-9, 9, (50, 60)).astype(dtype)
    for wanted in (None, "strassen"):
        assert np.array_equal(pf.compile(square(None, dtype), target="cpu", fast_matmul=wanted)(a, b), a @ b)


def test_bad_requests() -> None:
    nest = square(8)
    with pytest.raises(
        pf.InvalidAlgorithm, match=r"unknown algorithm 'strasen'; expected one of strassen, winograd"
    ):
        pf.compile(nest, fast_matmul="strasen")
    with pytest.raises(pf.InvalidSchedule, match=r"rewrite the nest first, with pf\.rewrite\.bilinear"):
        pf.compile(nest, fast_matmul="strassen", schedule=pf.Schedule(nest))
    x = pf.bilinear.strassen
    ones = pf.bilinear.algorithm(
        "ones", (2, 2, 2), *(np.abs(np.array(t)) for t in (x.left, x.right, x.result)), modulus=2
    )
    net = pf.compile(nest, target="cpu", fast_matmul=ones)
    assert (
        "is computed as it stands: bilinear('mac', ones) is refused: ones multiplies modulo 2 only"
        in net.explain()
    )


def test_the_choice_is_part_of_what_the_cache_knows() -> None:
    keys = [Wanted.of(w, 10.0).key for w in (None, "auto", "strassen", "winograd")]
    assert keys[0] == {}
    assert len({str(key) for key in keys}) == 4


def test_values_that_are_not_finite_are_said_to_spread_and_ieee_keeps_them() -> None:
    nest, one = square(8192), ONE
    taken = said(nest)
    assert taken.split(") ")[1].startswith("is computed by")
    assert "NaN and infinity in a factor spread to rows and columns" in taken
    kept = with_fast_products(nest, one, Wanted.of("auto", 10.0, ieee=True))
    assert kept.nest is nest
    assert (
        "math='ieee' promises NaN and infinity where the classical product has them" in kept.remarks[0].text
    )
    (named,) = with_fast_products(nest, one, Wanted.of("strassen", 10.0, ieee=True)).remarks
    assert "as asked for" in named.text
    assert "NaN and infinity in a factor spread" in named.text


@pytest.mark.parametrize("math", [None, "ieee"])
def test_the_promise_is_one_of_compile(math: Math | None) -> None:
    nest = nn.lower(nn.input("x", (8, 8)) @ nn.input("w", (8, 8)))
    net = pf.compile(nest, target="cpu", fast_matmul="auto", math=math)
    assert ("math='ieee' promises" in net.explain()) is (math == "ieee")


def test_an_infinity_reaches_rows_that_are_finite_in_the_classical_product() -> None:
    nest = nn.lower(nn.input("x", (4, 4)) @ nn.input("w", (4, 4)))
    x, w = np.ones((4, 4), np.float32), np.ones((4, 4), np.float32)
    x[0, 0] = np.inf
    fast = pf.rewrite.bilinear(nest, "mac0", pf.bilinear.strassen).nest
    finite = np.isfinite(pf.interpret(nest, [x, w])["out"]).all(1)
    np.testing.assert_array_equal(finite, [False, True, True, True])
    assert not np.isfinite(pf.interpret(fast, [x, w])["out"])[2].all()
