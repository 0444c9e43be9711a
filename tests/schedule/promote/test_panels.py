"""promote with panels: where elements lie, for copies and for temporaries, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import InvalidSchedule
from polyfuse.ir import Nest, Tensor, statement


def test_promote_in_panels(golden: Callable[[str, str], None]) -> None:
    nest = nn.lower(nn.Linear(50, 70, seed=1), batch=9)
    s = pf.Schedule(nest).tile("mac0", i=4, j=32, k=16).reorder("mac0", "k", "i", "j", "k_in", "i_in", "j_in")
    s = s.promote("w0", "mac0", at="k", panel=(1, 32)).promote("x", "mac0", at="i", panel=(0, 4))
    net = pf.compile(nest, target="cpu", schedule=s)
    x = np.random.default_rng(0).integers(-3, 4, (9, 50)).astype("float32")
    np.testing.assert_allclose(net(x), pf.interpret(nest, [x])["out"], rtol=1e-5, atol=1e-5)
    golden("schedule/panels.txt", f"{s}\n\n{net.source}")


def test_a_temporary_in_panels() -> None:
    nest = nn.lower(nn.Sequential(nn.Linear(5, 12, seed=1), nn.ReLU()), batch=6)
    s = pf.Schedule(nest).fuse("bias0", "relu0", at="i").promote("z0", "bias0", at="i", panel=(1, 4))
    x = np.random.default_rng(0).standard_normal((6, 5)).astype("float32")
    net = pf.compile(nest, target="cpu", schedule=s)
    assert "z = on_stack((12,), np.float32)" in net.source, "panels of 4 of one row are the row"
    np.testing.assert_allclose(net(x), pf.interpret(nest, [x])["out"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("panel", [(2, 4), (-1, 4), (0, 1)])
def test_panels_that_are_none(panel: tuple[int, int]) -> None:
    nest = nn.lower(nn.Linear(5, 12, seed=1), batch=6)
    with pytest.raises(InvalidSchedule, match="w0 has axes 0 to 1"):
        pf.Schedule(nest).promote("w0", "mac0", at="i", panel=panel)


@pytest.mark.parametrize(
    ("low", "high", "read", "shape", "apart"),
    [
        (1, 64, "j", "2, 16, 32", False),
        (40, 64, "j", "16, 32", False),
        (1, 65, "j", "3, 16, 32", False),
        (0, 64, "j + 1", "2, 16, 32", False),
        (1, 64, "64 - j", "2, 16, 32", True),
    ],
)
def test_panels_begin_where_tiles_of_their_readers_do(
    low: int, high: int, read: str, shape: str, apart: bool
) -> None:
    """Elements 1 to 64 in three panels where tiles begin at 0, and in two where they begin at 1."""
    tensors = [
        Tensor("x", (8, 16), "float32", "input"),
        Tensor("w", (16, 65), "float32", "input"),
        Tensor("y", (8, high), "float32", "inout"),
    ]
    domain = f"{{ mac[i, j, k] : 0 <= i < 8 and {low} <= j < {high} and 0 <= k < 16 }}"
    nest = Nest.of(tensors, [statement(domain, f"y[i, j] += x[i, k] * w[k, {read}]")])
    s = pf.Schedule(nest).tile("mac", i=4, j=32, k=16).reorder("mac", "k", "i", "j", "k_in", "i_in", "j_in")
    net = pf.compile(nest, target="cpu", schedule=s.promote("w", "mac", at="k", panel=(1, 32)))
    assert f"w_local = on_stack(({shape}), np.float32)" in net.source
    products = [line for line in net.source.splitlines() if "] += x[" in line and "mac:" not in line]
    assert [" % 32" in line for line in products] == [apart] * len(products) != []
    rng = np.random.default_rng(0)
    x, w, y = (rng.integers(-3, 4, t.shape).astype("float32") for t in tensors)
    expected = pf.interpret(nest, {"x": x, "w": w, "y": y.copy()})["y"]
    net(x=x, w=w, y=y)
    np.testing.assert_array_equal(y, expected)
