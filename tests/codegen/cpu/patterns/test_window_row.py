"""Rows of sums over windows, in registers: every border, distance and length; what is not touched; random loops."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse.codegen.cpu.intrinsics.microkernels.row_mac_window import row_mac_windows
from polyfuse.codegen.cpu.intrinsics.microkernels.tile_spec import TileSpec
from polyfuse.errors import InvalidSchedule
from polyfuse.ir import Nest, Tensor, statement
from tests.codegen.cpu.intrinsics.test_row_operation import guarded
from tests.support.examples import examples

BORDERS = {
    "one": lambda n: ((1, 0, 0), (n, n, n - 1)),
    "none": lambda n: ((0, 0, 0), (n, n, n)),
    "absent": lambda n: ((0, 0, 1), (n, 0, n)),
}


def row_of(columns: int, apart: int) -> Any:
    """y[q] += w[r, s] * x[r, apart * q + s] for r < 2 and s < 3, for the columns that each s has."""

    @numba.njit
    def row(y: Any, w: Any, x: Any, lows: Any, highs: Any) -> None:
        row_mac_windows(
            TileSpec(rows=1, columns=columns), y, (0,), w, (0, 0), 0, ((1, 0), (0, 1)),
            x, (0, 0), apart, ((1, 0), (0, 1)), counts=(2,), lows=lows, highs=highs,
        )  # fmt: skip

    return row


@pytest.mark.parametrize("columns", [1, 5, 8, 16, 27])
@pytest.mark.parametrize("apart", [1, 2, 3])
def test_every_border_adds_its_columns_and_touches_no_others(columns: int, apart: int) -> None:
    """The numbers that are read end where a page ends: a load past them would end the process."""
    row, length = row_of(columns, apart), apart * (columns - 1) + 3
    x = guarded()[-2 * length :].reshape(2, length)
    rng = np.random.default_rng(columns)
    x[:] = rng.integers(-4, 5, x.shape)
    w = rng.integers(1, 5, (2, 3)).astype(np.float64)
    for border in BORDERS.values():
        lows, highs = border(columns)
        y = np.full(columns + 8, 7.0)
        expected = y.copy()
        for s, (low, high) in enumerate(zip(lows, highs, strict=True)):
            for q in range(low, high):
                expected[q] += w[:, s] @ x[:, apart * q + s]
        row(y, w, x, lows, highs)
        np.testing.assert_array_equal(y, expected)


def test_all_columns_of_a_row_are_stored_without_a_mask() -> None:
    """A masked store of 14 numbers delays loads of the two behind them, which the next row begins with."""

    @numba.njit
    def row(y: Any, w: Any, x: Any) -> None:
        row_mac_windows(
            TileSpec(rows=1, columns=14), y, (0,), w, (0, 0), 0, ((1, 0), (0, 1)),
            x, (0, 0), 1, ((1, 0), (0, 1)), counts=(2,), lows=(1, 0, 0), highs=(14, 14, 13),
        )  # fmt: skip

    x, y = np.ones((2, 16)), np.zeros(14)
    row(y, np.ones((2, 3)), x)
    np.testing.assert_array_equal(y, [4.0, *[6.0] * 12, 4.0])
    (code,) = row.inspect_llvm().values()
    assert "masked.store" not in code


def test_an_absent_step_makes_no_nan() -> None:
    """What a border lacks is not multiplied: an infinite weight there, or pixels that are no numbers."""
    row, y = row_of(4, 1), np.zeros(4)
    w, x = np.array([[np.inf, 1.0, 1.0]] * 2), np.full((2, 6), np.nan)
    x[:, 1:5] = 1.0
    row(y, w, x, (4, 0, 0), (4, 4, 3))
    np.testing.assert_array_equal(y, [4.0, 4.0, 4.0, 2.0])


def window(image: int, size: int, apart: int, padding: int, dtype: str, left: str) -> Nest:
    """y[c, q] += left * x[c, r, apart * q + s - padding] over a window of 2 x size, where the image has it."""
    out = (image + 2 * padding - size) // apart + 1
    place = f"{apart} * q + s - {padding}"
    box = f"0 <= c < 3 and 0 <= q < {out} and 0 <= r < 2 and 0 <= s < {size} and 0 <= {place} < {image}"
    return Nest.of(
        [
            Tensor("w", (3, 2, size), dtype, "input"),
            Tensor("v", (3, 2, size, out), dtype, "input"),
            Tensor("x", (3, 2, image), dtype, "input"),
            Tensor("y", (3, out), dtype, "inout"),
        ],
        [statement(f"{{ mac[c, q, r, s] : {box} }}", f"y[c, q] += {left} * x[c, r, {place}]")],
    )


def in_rows(nest: Nest, width: int | None) -> pf.Schedule:
    """The sums along q in registers, or pieces of so many of them."""
    s = pf.Schedule(nest)
    if width is None:
        return s.reorder("mac", "c", "r", "s", "q").microkernel("mac", "r")
    return s.split("mac", "q", width).reorder("mac", "c", "q", "r", "s", "q_in").microkernel("mac", "r")


def integers(nest: Nest) -> dict[str, Any]:
    """Small ones, whose sums of products are exact in either precision and in any order."""
    rng = np.random.default_rng(3)
    return {t.name: rng.integers(-4, 5, t.shape).astype(t.dtype) for t in nest.inputs}


@settings(max_examples=examples(10), deadline=None)
@given(
    st.integers(8, 70),
    st.integers(2, 5),
    st.integers(1, 3),
    st.integers(0, 2),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from(["w[c, r, s]", "v[c, r, s, q]"]),
    st.sampled_from([None, 8, 16, 20]),
)
def test_any_window(
    image: int, size: int, apart: int, padding: int, dtype: str, left: str, width: int | None
) -> None:
    nest = window(image, size, apart, min(padding, size - 1), dtype, left)
    schedule = in_rows(nest, width)
    net, inputs = pf.compile(nest, target="cpu", schedule=schedule), integers(nest)
    expected = pf.interpret(nest, {name: value.copy() for name, value in inputs.items()})["y"]
    net(**inputs)
    np.testing.assert_array_equal(inputs["y"], expected)
    assert "row_mac" in net.source


def test_what_it_needs_is_said() -> None:
    with pytest.raises(InvalidSchedule, match=r"at most 512 sums of one row in whole vectors, not 600"):
        in_rows(window(602, 3, 1, 0, "float32", "w[c, r, s]"), None)
    with pytest.raises(InvalidSchedule, match=r"y\[rows, columns\]"):
        in_rows(window(50, 3, 5, 0, "float32", "w[c, r, s]"), None)


@pytest.mark.parametrize(
    ("domain", "text"),
    [
        ("{ mac[s, q] : 0 <= s < 3 and 0 <= q < 6 }", "y[0, q] += x[0, s] * y[0, q + s]"),
        ("{ mac[k, i, j] : 0 <= i, j, k < 8 }", "y[i, j] += x[i, k] * y[k, j]"),
    ],
)
def test_sums_that_are_read_in_their_own_tile_are_refused(domain: str, text: str) -> None:
    tensors = [Tensor("x", (8, 8), "float32", "input"), Tensor("y", (8, 8), "float32", "inout")]
    nest = Nest.of(tensors, [statement(domain, text)])
    with pytest.raises(InvalidSchedule, match="reads sums that its own tile has changed"):
        pf.Schedule(nest).microkernel("mac", domain[6])
