"""float16 and bfloat16: storage that values are read from exactly, and rounded to once where they are stored."""

from typing import Any

import numpy as np
import pytest
from numba import njit

import polyfuse as pf
from polyfuse import nn
from polyfuse.codegen.cpu.intrinsics import half_conversions as half_operations
from polyfuse.codegen.looptree.half_types import converted
from polyfuse.errors import BadArgument, IllegalRewrite, InvalidNest, InvalidSchedule
from polyfuse.ir import Nest, Tensor, statement
from polyfuse.ir.number_types import relative_step

Array = np.ndarray[Any, Any]
HALVES = ("float16", "bfloat16")
TARGETS = ({"target": "cpu"}, {"target": "cuda", "machine": "h200", "device": "lockstep"})

TIES = (1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8, 1 + 3 * 2**-8)
LARGE = (65504, 65519.99, 65520, 3.38e38, 3.39e38, 3.4e38, np.inf)
SMALL = (2**-24, 2**-25, 1.5 * 2**-25, 2**-14 - 2**-25, 2**-133, 2**-134, 1.5 * 2**-134, 1e-40, 0.0)
EDGES = np.array([sign * x for x in (*TIES, *LARGE, *SMALL, np.nan) for sign in (1, -1)], np.float32)
"""Ties to even in both formats, the largest numbers and what is rounded to infinity, denormals, NaN."""


def same(expected: Array, found: Array) -> bool:
    """Equal bit for bit, but that a NaN is a NaN."""
    assert expected.dtype == found.dtype
    bits = expected.view(np.uint16) == found.view(np.uint16)
    return bool((bits | (np.isnan(expected) & np.isnan(found))).all())


def chain(dtype: str, size: int) -> Nest:
    """Three operations, each rounded: what fusion keeps in registers as well."""
    x, y = nn.input("x", (size,), dtype=dtype), nn.input("y", (size,), dtype=dtype)
    return pf.lower((x + y) * y - x)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t["target"])
def test_every_number_is_read_exactly_and_rounded_to_nearest_even(half: str, target: Any) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    x = nn.input("x", bits.shape, dtype=half)
    wide = pf.compile(pf.lower(nn.cast(x, "float32")), **target)(bits.view(half))
    expected = bits.view(half).astype(np.float32)
    np.testing.assert_array_equal(wide, expected)
    with np.errstate(all="ignore"):
        between = (expected[:-1] * 0.5 + expected[1:] * 0.5).astype(np.float32)
        values = np.concatenate([EDGES, between, np.nextafter(between, np.float32(0))])
    values[np.isnan(values)] = np.nan
    narrow = pf.compile(pf.lower(nn.cast(nn.input("x", values.shape), half)), **target)(values)
    with np.errstate(all="ignore"):
        assert same(values.astype(half), narrow)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t["target"])
def test_a_fused_chain_rounds_like_one_that_goes_through_memory(half: str, target: Any) -> None:
    with np.errstate(all="ignore"):
        every = np.concatenate([EDGES, np.random.default_rng(0).standard_normal(1000).astype(np.float32)])
        x, y = every.astype(half), np.roll(every, 1).astype(half)
    nest = chain(half, x.size)
    expected = pf.interpret(nest, (x, y))["out"]
    with np.errstate(
        all="ignore"
    ):  # NumPy and ml_dtypes compute each operation of halves in float32, and round
        assert same((x + y) * y - x, expected)
    for fuse in (True, False):
        net = pf.compile(nest, fuse=fuse, **target)
        assert same(expected, net(x, y))
        assert len(net.schedule.nest.statements) == 3


def close(expected: Array, found: Array, units: float) -> None:
    """Within some units of rounding of the largest element: sums are in another order, in float32."""
    assert expected.dtype == found.dtype
    far = np.abs(expected.astype(np.float64) - found.astype(np.float64)).max()
    assert far <= units * relative_step(expected.dtype.name) * np.abs(expected.astype(np.float64)).max()


LAYERS = {
    "softmax": lambda x: nn.softmax(x),
    "sum": lambda x: nn.sum(x, axis=1),
    "max": lambda x: nn.max(x, axis=0),
    "rms": lambda x: nn.rms_norm(x, (40,)),
    "product": lambda x: x @ nn.relu(x[:, :40] * 0.1)[:40],
}


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("layer", LAYERS)
def test_layers_sum_up_in_float32(half: str, layer: str) -> None:
    x = np.random.default_rng(1).standard_normal((48, 40)).astype(half)
    nest = pf.lower(LAYERS[layer](nn.input("x", x.shape, dtype=half)))
    expected = pf.interpret(nest, (x,))["out"]
    assert expected.dtype == half
    wide = pf.lower(LAYERS[layer](nn.input("x", x.shape)))
    close(expected, pf.interpret(wide, (x.astype(np.float32),))["out"].astype(half), 2)
    for target in TARGETS[: 2 if half == "bfloat16" else 1]:
        close(expected, pf.compile(nest, **target)(x), 1)


@pytest.mark.parametrize("half", HALVES)
def test_a_network_has_microkernels_on_float32_copies(half: str) -> None:
    model = nn.Sequential(nn.Linear(96, 64, dtype=half), nn.ReLU(), nn.Linear(64, 32, dtype=half))
    nest = pf.lower(model, batch=64)
    x = np.random.default_rng(2).standard_normal((64, 96)).astype(half)
    expected = pf.interpret(nest, (x,))["out"]
    net = pf.compile(nest, target="cpu")
    close(expected, net(x), 1)
    assert "tile_mac(" in net.source
    assert f"from_{half}(" in net.source
    # weights become float32 once, not in each call
    assert "w0 through w0_wide" in str(net.explain())


def test_loops_round_where_they_assign() -> None:
    @pf.nest
    def scaled(a: "f16", x: "f16[N, K]", w: "bf16[K]", y: "f16[N]"):  # noqa: F821
        for i in range(N):  # noqa: F821
            s = 0.0
            for k in range(K):  # noqa: F821
                s += x[i, k] * w[k]
            y[i] = a * s

    assert {t.name: t.dtype for t in scaled.tensors if t.role == "temporary"}["s"] == "float32"
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((20, 30)).astype("float16"), rng.standard_normal(30).astype("bfloat16")
    expected = np.zeros(20, "float16")
    expected[:] = np.float32(np.float16(0.1)) * (x.astype(np.float32) @ w.astype(np.float32))
    for target in TARGETS:
        y = np.zeros(20, "float16")
        pf.compile(scaled, **target)(0.1, x, w, y)
        close(expected, y, 1)


def test_what_halves_cannot_do_is_named() -> None:
    tensors = (Tensor("x", (8,), "float16", "input"), Tensor("y", (), "float16", "output"))
    nest = [statement("{ zero[] }", "y = 0.0"), statement("{ add[i] : 0 <= i < 8 }", "y += x[i]")]
    with pytest.raises(InvalidNest, match=r"add: \+= into y would round to float16 at every step"):
        Nest.of(tensors, nest)
    x, y = nn.input("x", (4, 4), dtype="float16"), nn.input("y", (4, 4), dtype="bfloat16")
    with pytest.raises(
        BadArgument, match=r"float16 and bfloat16 cannot be mixed.*nn.cast\(value, 'float16'\)"
    ):
        x + y
    assert (nn.cast(x, "float32") + nn.cast(y, "float32")).dtype == "float32"
    product = pf.lower(x @ x)
    with pytest.raises(InvalidSchedule, match="multiplies float32 or float64 numbers, and x is float16"):
        pf.Schedule(product).interchange("mac0", "k", "j").interchange("mac0", "k", "i").microkernel(
            "mac0", "k"
        )
    with pytest.raises(IllegalRewrite, match="y0 is float32"):
        pf.rewrite.widen(product, "y0")
    with pytest.raises(IllegalRewrite, match="no product reads"):
        pf.rewrite.widen(pf.lower(x + x), "x")
    with pytest.raises(IllegalRewrite, match="rounds to float16"):
        pf.rewrite.inline(chain("float16", 8), "add0")
    with pytest.raises(BadArgument, match="expected dtype bfloat16, given float32"):
        pf.compile(chain("bfloat16", 8), target="cpu")(np.zeros(8, np.float32), np.zeros(8, np.float32))


def test_python_numbers_become_float32_first() -> None:
    tensors = (Tensor("a", (), "float16", "input"), Tensor("y", (2,), "float16", "output"))
    nest = Nest.of(tensors, [statement("{ copy[i] : 0 <= i < 2 }", "y[i] = a")])
    twice = 1 + 2**-11 + 2**-30  # float32 makes a tie of it
    assert np.float16(twice) != np.float16(np.float32(twice))
    for run in (pf.compile(nest, target="cpu"), lambda a: pf.interpret(nest, (a,))["y"]):
        assert run(twice).tolist() == [1.0, 1.0]


def test_a_processor_without_conversions_has_integer_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_operations, "_has_conversions", lambda context: False)
    bits = np.arange(1 << 16, dtype=np.uint16)
    values = np.append(bits.view(np.float16).astype(np.float32), EDGES)
    between = np.sort(values[np.isfinite(values)])
    values = np.concatenate([values, between[1:] * np.float32(0.5) + between[:-1] * np.float32(0.5)])

    @njit(error_model="numpy")
    def run(given: Array, there: Array, back: Array) -> None:
        for i in range(given.size):
            there[i] = half_operations.to_float16(given[i])
        for i in range(back.size):
            back[i] = half_operations.from_float16(np.uint16(i))

    there, back = np.empty(values.size, np.uint16), np.empty(1 << 16, np.float32)
    run(values, there, back)
    with np.errstate(all="ignore"):
        assert same(values.astype(np.float16), there.view(np.float16))
    np.testing.assert_array_equal(back, bits.view(np.float16).astype(np.float32))


@pytest.mark.parametrize("half", HALVES)
def test_the_operations_in_numpy_are_those_of_the_formats(half: str) -> None:
    bits = converted(f"to_{half}", EDGES)
    with np.errstate(all="ignore"):
        assert same(EDGES.astype(half), bits.view(half))
        np.testing.assert_array_equal(converted(f"from_{half}", bits), EDGES.astype(half).astype(np.float32))


def test_a_half_that_is_widened_beside_its_product_lies_in_panels_itself() -> None:
    @pf.nest
    def product(a: "f32[33, 33]", b: "f16[7, 33]", y: "f32[33, 7]"):  # type: ignore[no-untyped-def]  # noqa: F821
        for i in range(7):
            for j in range(33):
                for k in range(33):
                    y[j, i] += a[k, j] * b[i, k]

    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape) for shape in ((33, 33), (7, 33)))
    y = np.ones((33, 7), np.float32)
    net = pf.compile(product, target="cpu", machine="zen5")
    net(a.astype(np.float32), b.astype(np.float16), y)
    np.testing.assert_array_equal(y, a.T @ b.T + 1)
    assert "[b_wide in local, panels of 8 along axis 0]" in str(net.schedule)
    assert {s.name for s in net.schedule.nest.statements} == {"wide_b", "S0"}, "no copy of the copy"
