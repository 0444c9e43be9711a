"""Sums over rows that LLVM would write out in full stay loops, where that is faster, and add up the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.codegen.generate import program

SHORT = [(12, "12"), (16, "opaque(16)"), (20, "20"), (48, "opaque(48)"), (96, "opaque(96)"), (128, "128")]
LONG = [(784, "opaque(784)"), (1024, "1024")]


@pytest.mark.parametrize(("columns", "end"), [*SHORT, *LONG])
def test_a_sum_stays_a_loop_where_it_would_be_a_chain_or_go_in_another_order(columns: int, end: str) -> None:
    nest = nn.lower(nn.sum(nn.input("x", (3, columns)), 1))
    net = pf.compile(nest, target="cpu")
    assert f"in range(0, {end}):" in net.source
    x = np.random.default_rng(0).integers(-9, 9, (3, columns)).astype(np.float32)
    np.testing.assert_array_equal(net(x), x.sum(1))


@pytest.mark.parametrize(("columns", "end"), [(32, "opaque(32)"), (56, "opaque(56)"), (64, "64")])
def test_the_more_arithmetic_the_fewer_numbers_are_written_out(columns: int, end: str) -> None:
    x, z = nn.input("x", (3, columns)), nn.input("z", (3, columns))
    net = pf.compile(nn.lower(nn.sum(x * z, 1)), target="cpu", machine="zen5")
    assert f"in range(0, {end}):" in net.source


def test_functions_are_too_long_to_be_written_out() -> None:
    net = pf.compile(nn.lower(nn.sum(nn.exp(nn.input("x", (3, 32))), 1)), target="cpu", machine="zen5")
    assert "opaque" not in net.source


def test_a_row_that_is_stored_after_its_sums_is_not_held_in_registers_until_then() -> None:
    net = pf.compile(pf.lower(nn.LayerNorm(1024), batch=5, features=1024), target="cpu")
    assert net.source.count("in range(0, 64 * opaque(16)):") == 2
    assert net.source.count("in range(0, 1024):") == 1
    x = np.random.default_rng(0).standard_normal((5, 1024), np.float32)
    norm = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(net(x), norm, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("columns", "end"), [(100, "100"), (128, "64 * opaque(2)"), (333, "opaque(333)")])
def test_a_shorter_row_that_is_stored_after_its_sum_is_no_chain(columns: int, end: str) -> None:
    nest = nn.lower(nn.rms_norm(nn.input("x", (3, columns)), columns))
    net = pf.compile(nest, target="cpu", machine="zen5")
    assert f"in range(0, {end}):" in net.source
    x = np.random.default_rng(0).standard_normal((3, columns)).astype(np.float32)
    np.testing.assert_allclose(net(x), x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5), rtol=1e-5)


@pytest.mark.parametrize(("columns", "end"), [(256, "256"), (333, "opaque(333)")])
def test_a_row_that_is_read_again_for_another_sum_is_no_chain_where_it_has_a_part_of_a_pass(
    columns: int, end: str
) -> None:
    net = pf.compile(nn.lower(nn.var(nn.input("x", (3, columns)), 1)), target="cpu", machine="zen5")
    assert net.source.count(f"in range(0, {end}):") >= 1
    x = np.random.default_rng(0).standard_normal((3, columns)).astype(np.float32)
    np.testing.assert_allclose(net(x), x.var(1), rtol=1e-5)


def test_what_stores_a_row_itself_is_written_out_as_ever() -> None:
    """The exponentials of a softmax, beside their sum."""
    net = pf.compile(pf.lower(nn.Softmax(), batch=5, features=1024), target="cpu", machine="zen5")
    assert net.source.count("in range(0, 64 * opaque(16)):") == 1, "the maximum"


def tiled_rows(columns: int, rows: int = 64) -> str:
    """The source of rows in tiles of 6, the last of 4, each row on vector lanes."""
    x, y = (
        pf.Tensor(name, (rows, columns), "float32", role) for name, role in (("x", "input"), ("y", "output"))
    )
    step = pf.statement(f"{{ S[i, j] : 0 <= i < {rows} and 0 <= j < {columns} }}", "y[i, j] = 2 * x[i, j]")
    s = pf.Schedule(pf.Nest.of([x, y], [step])).split("S", "i", 6).vectorize("S", "j")
    (code,) = program(s.nest, s.tree, "cpu").codes
    return code.source


def test_a_few_tiles_of_long_rows_are_not_written_out_row_by_row() -> None:
    assert "for i in range(0, opaque(11)):" in tiled_rows(256)


@pytest.mark.parametrize(("columns", "rows"), [(64, 64), (256, 12), (256, 640)])
def test_short_rows_two_tiles_and_what_llvm_leaves_are_as_they_were(columns: int, rows: int) -> None:
    assert "opaque" not in tiled_rows(columns, rows)
