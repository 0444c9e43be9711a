"""Large results: in the memory of earlier ones that nobody holds, never in that of one that somebody does."""

from __future__ import annotations

import gc

import numpy as np

import polyfuse.ir.tensor  # noqa: F401  # bfloat16
from polyfuse.runtime.memory.results import LARGE, Recycled, is_large

SHAPE, FLOAT = (LARGE // 4,), np.dtype("float32")


def place(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_memory_comes_back_when_nothing_looks_at_it_any_more() -> None:
    make = Recycled(SHAPE, FLOAT)
    first = make()
    assert type(first) is np.ndarray
    assert (first.shape, first.dtype, first.flags.writeable) == (SHAPE, FLOAT, True)
    where, view = place(first), first[10:20].reshape(2, 5)
    view[:] = 3
    del first
    second = make()
    assert place(second) != where, "a view still looks at the first"
    second[:] = 4
    assert (view == 3).all()
    del view
    gc.collect()
    third = make()
    assert place(third) == where
    assert place(third) != place(second)


def test_one_memory_is_kept() -> None:
    make = Recycled(SHAPE, FLOAT)
    places = [place(array) for array in [make() for _ in range(3)]]
    assert len(set(places)) == 3
    assert len(make._spare) == 1


def test_large_results_begin_with_a_line_of_cache() -> None:
    make = Recycled(SHAPE, FLOAT)
    assert [place(array) % 64 for array in [make() for _ in range(3)]] == [0, 0, 0]


def test_small_results_are_as_numpy_makes_them() -> None:
    assert is_large(SHAPE, FLOAT)
    assert not is_large((1000, 1000), FLOAT)


def test_a_large_result_keeps_a_type_that_numpys_interface_lacks() -> None:
    assert Recycled((LARGE // 2,), np.dtype("bfloat16"))().dtype == "bfloat16"
