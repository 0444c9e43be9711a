"""The microkernel of one row: a vector times a matrix, its sums in registers; and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyfuse as pf
from polyfuse.errors import InvalidSchedule
from polyfuse.ir import Nest, Tensor, statement
from tests.support.emitted import in_one_line
from tests.support.examples import examples

LANES = {"float32": 16, "float64": 8}


def rows_of(rows: int, columns: int, steps: int, dtype: str, left: str = "A[i, k]") -> Nest:
    """y += A B, where the sums begin as the caller has them."""
    shape = (rows, steps) if left == "A[i, k]" else (steps, rows)
    box = f"0 <= i < {rows} and 0 <= j < {columns} and 0 <= k < {steps}"
    return Nest.of(
        [
            Tensor("A", shape, dtype, "input"),
            Tensor("B", (steps, columns), dtype, "input"),
            Tensor("y", (rows, columns), dtype, "inout"),
        ],
        [statement(f"{{ mac[i, j, k] : {box} }}", f"y[i, j] += {left} * B[k, j]")],
    )


def in_pieces(nest: Nest, width: int) -> pf.Schedule:
    s = pf.Schedule(nest).split("mac", "j", width).reorder("mac", "i", "j", "k", "j_in")
    return s.microkernel("mac", "k")


def integers(nest: Nest) -> dict[str, Any]:
    """Small ones, whose sums of products are exact in either precision and in any order."""
    rng = np.random.default_rng(3)
    return {t.name: rng.integers(-4, 5, t.shape).astype(t.dtype) for t in nest.inputs}


def check(nest: Nest, schedule: pf.Schedule) -> str:
    net, inputs = pf.compile(nest, target="cpu", schedule=schedule), integers(nest)
    expected = pf.interpret(nest, {name: value.copy() for name, value in inputs.items()})["y"]
    net(**inputs)
    np.testing.assert_array_equal(inputs["y"], expected)
    return net.source


@settings(max_examples=examples(10))
@given(
    st.integers(1, 3),
    st.integers(1, 6),
    st.integers(2, 40),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from(["A[i, k]", "A[k, i]"]),
)
def test_any_number_of_steps_and_pieces(
    rows: int, pieces: int, steps: int, vectors: int, dtype: str, left: str
) -> None:
    width = vectors * LANES[dtype]
    nest = rows_of(rows, pieces * width, steps, dtype, left)
    schedule = in_pieces(nest, width) if pieces > 1 else None
    if schedule is None:
        schedule = pf.Schedule(nest).interchange("mac", "j", "k").microkernel("mac", "k")
    assert f"row_mac(TileSpec(rows=1, columns={width})" in in_one_line(check(nest, schedule))


@pytest.mark.parametrize("width", [4, 8])
def test_pieces_of_less_than_a_vector(width: int) -> None:
    nest = rows_of(2, 3 * width, 5, "float32")
    assert f"row_mac(TileSpec(rows=1, columns={width})" in in_one_line(check(nest, in_pieces(nest, width)))


def test_a_last_piece_that_is_cut_short_has_masked_lanes() -> None:
    nest = rows_of(1, 40, 5, "float32")
    source = in_one_line(check(nest, in_pieces(nest, 16)))
    assert "row_mac(TileSpec(rows=1, columns=16)" in source
    assert "row_mac_windows(TileSpec(rows=1, columns=16)" in source
    assert "for j_in in range" not in source


def test_a_row_of_no_whole_vector_has_masked_lanes() -> None:
    nest = rows_of(2, 5, 7, "float32")
    schedule = pf.Schedule(nest).interchange("mac", "j", "k").microkernel("mac", "k")
    assert "row_mac_windows(TileSpec(rows=1, columns=5)" in in_one_line(check(nest, schedule))


def test_what_it_needs_is_said() -> None:
    nest = rows_of(2, 48, 5, "float32")
    with pytest.raises(InvalidSchedule, match="whole vectors, not 513"):
        pf.Schedule(rows_of(2, 513, 5, "float32")).interchange("mac", "j", "k").microkernel("mac", "k")
    with pytest.raises(InvalidSchedule, match="those that the sum does not depend on"):
        pf.Schedule(nest).microkernel("mac", "j")
    with pytest.raises(InvalidSchedule, match=r"y\[rows, columns\]"):
        pf.Schedule(nest).reorder("mac", "j", "k", "i").microkernel("mac", "k")
