"""Loops of functions ask for vectors side by side, as many as their rows have."""

from __future__ import annotations

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn


def asked(columns: int) -> str:
    """The source of softmax of such rows: its loop of exponentials is the only one of functions."""
    return pf.compile(nn.lower(nn.softmax(nn.input("x", (40, columns)))), target="cpu", machine="zen4").source


@pytest.mark.parametrize(
    ("columns", "vectors"), [(20, 1), (32, 2), (48, 1), (64, 4), (96, 2), (128, 4), (200, 1), (300, 4)]
)
def test_a_row_has_as_many_as_fill_it(columns: int, vectors: int) -> None:
    source = asked(columns)
    assert source.count("interleave(") == (vectors > 1)
    assert (f"interleave({vectors})" in source) == (vectors > 1)


def test_a_row_of_any_length_has_four() -> None:
    net = pf.compile(nn.lower(nn.exp(nn.input("x", ("N",)))), target="cpu")
    assert "interleave(4)" in net.source
    for count in (0, 1, 7, 31, 32, 33, 100, 257):
        x = np.linspace(-3, 3, count, dtype=np.float32)
        np.testing.assert_allclose(net(x), np.exp(x), rtol=3e-7)


def test_a_loop_without_functions_asks_for_none() -> None:
    net = pf.compile(nn.lower(nn.relu(nn.input("x", (40, 512)) * 3.0)), target="cpu")
    assert "interleave" not in net.source
