"""Specs of tiles as values: of what type numba takes them, and that only numbers that it knows make one."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from numba.core.errors import TypingError

from polyfuse.intrinsics import TileSpec, tile_zero


def zeroed(y: Any, rows: int) -> None:
    tile_zero(TileSpec(rows=rows, columns=16), y=y, y_at=(1, 0), y_row=0)


def test_a_spec_of_numbers_that_are_not_known_is_refused() -> None:
    with pytest.raises(TypingError, match="TileSpec"):
        numba.njit(zeroed)(np.ones((8, 16), np.float32), 4)


@pytest.mark.parametrize("spec", [TileSpec(3, 16), TileSpec(3, 16, cases="0:3"), TileSpec(3, 16, 1, 5)])
def test_arguments_that_are_left_out_and_names_in_any_order(spec: TileSpec) -> None:
    space: dict[str, Any] = {"TileSpec": TileSpec, "tile_zero": tile_zero}
    exec(f"def zeroed(y):\n    tile_zero({spec}, y_row=0, y_at=(1, 0), y=y)", space)
    assert eval(str(spec), space) == spec
    y = np.ones((8, 16), np.float32)
    numba.njit(space["zeroed"])(y)
    np.testing.assert_array_equal(y[:, 0], [1, 0, 0, 0, 1, 1, 1, 1])
