"""Loops whose values the cores take as they are free: proven, printed, run."""

# ruff: noqa: F821  (sizes are names in annotations)

import numpy as np
import pytest

import polyfuse as pf
from polyfuse.errors import InvalidSchedule
from tests.support.execution import memory, run_plain


@pf.nest
def triangle(x: "f64[11, 7]", y: "f64[11, 11]", z: "f64[11, 11]"):
    for i in range(11):
        for j in range(i + 1):
            y[i, j] = x[i, 0] * x[j, 0]
            for k in range(1, 7):
                y[i, j] += x[i, k] * x[j, k]
            z[i, j] = y[i, j] * y[i, j]


X = np.random.default_rng(1).uniform(-1, 1, (11, 7))
GIVEN = {"x": X, "y": np.zeros((11, 11)), "z": np.zeros((11, 11))}


def in_blocks(size: int) -> pf.Schedule:
    """Blocks of rows, each for whoever is free."""
    return pf.Schedule(triangle).split("S0", "i", size).bind("S0", i="dynamic")


@pytest.mark.parametrize("size", [1, 4])
def test_every_row_of_a_triangle_is_taken_once(size: int) -> None:
    s = in_blocks(size)
    expected = pf.interpret(triangle, GIVEN)
    arrays = memory(triangle, s.nest, s.tree, GIVEN, {})
    source = run_plain(s.nest, s.tree, arrays, {}, 0)
    np.testing.assert_allclose(arrays["z"], expected["z"], atol=1e-14)
    if size == 4:
        y, z = np.zeros((2, 11, 11))
        pf.compile(triangle, target="cpu", schedule=s)(X, y, z)
        np.testing.assert_allclose(z, expected["z"], atol=1e-14)
        assert "i = max(0 + (3 - 1 - i_turn), 0)" in source  # the last rows have most work


def test_the_first_values_are_taken_first_where_they_have_most_work() -> None:
    s = pf.Schedule(triangle).reverse("S0", "i").bind("S0", i="dynamic")
    arrays = memory(triangle, s.nest, s.tree, GIVEN, {})
    assert "i = max(-10 + i_turn, -10)" in run_plain(s.nest, s.tree, arrays, {}, 0)
    np.testing.assert_allclose(arrays["z"], pf.interpret(triangle, GIVEN)["z"], atol=1e-14)


def test_cores_are_shared_out_once_on_a_path() -> None:
    with pytest.raises(InvalidSchedule, match="i is bound to dynamic; its values run on the cores already"):
        in_blocks(4).bind("S0", i_in="cores")
    with pytest.raises(InvalidSchedule, match="loop i is bound to dynamic, which target cuda does not have"):
        pf.compile(triangle, target="cuda", machine="h200", device="lockstep", schedule=in_blocks(4))


@pf.nest
def of_two_lengths(a: "f64[N]", b: "f64[M]"):  # type: ignore[no-untyped-def]
    for i in range(N):
        a[i] += 1
    for i in range(1, M):
        b[i] += 1


@pytest.mark.parametrize("sizes", [(5, 12), (12, 5), (1, 1)])
def test_a_number_of_values_that_is_a_choice_between_two(sizes: tuple[int, int]) -> None:
    s = pf.Schedule(of_two_lengths).fuse("S0", "S1", at="i").split("S0", "i", 2).bind("S0", i="dynamic")
    net = pf.compile(of_two_lengths, target="cpu", schedule=s)
    bound = next(line for line in net.source.splitlines() if "while i_turn < " in line)
    assert bound.endswith("):")
    assert " if " in bound
    found, expected = ([np.zeros(size) for size in sizes] for _ in range(2))
    net(*found)
    of_two_lengths.python(*expected)
    np.testing.assert_array_equal(np.concatenate(found), np.concatenate(expected))
