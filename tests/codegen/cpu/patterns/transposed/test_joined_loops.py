"""Loops of a copy that go along memory one inside the other are one, for blocks of it; what is not stays."""

from __future__ import annotations

import ast

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.codegen.cpu.patterns.transposed.joined_loops import OneLoop, Shapes, one_loop_along_memory
from polyfuse.codegen.looptree.nodes import For, Node, Store
from tests.codegen.cpu.patterns.transposed.test_copies import shown
from tests.codegen.cpu.patterns.transposed.test_reads import copy, element
from tests.strategy.cpu.test_convolutions import SMALL

SHAPES: Shapes = {"b": (64, 3, 5, 16), "w": (48, 64, 3, 5)}
WINDOWS = copy(element("b", "m", "n", "p", "c"), element("w", "16 * j + c", "m", "n", "p"))


def found(store: Store, shapes: Shapes = SHAPES, m: str = "64", n: str = "3", p: str = "5") -> OneLoop | None:
    """for m: for n: for p: for c < 16: the store."""
    node: Node = For("c", ast.Constant(0), ast.Constant(16), 1, "vector", store)
    for variable, end in (("p", p), ("n", n), ("m", m)):
        node = For(variable, ast.Constant(0), ast.parse(end, mode="eval").body, 1, None, node)
    assert isinstance(node, For)
    return one_loop_along_memory(node, shapes, lambda name: name)


def test_channels_and_both_sides_of_a_window_are_one_loop() -> None:
    one = found(WINDOWS)
    assert one is not None
    assert sorted(one.before) == ["b_2d = joined(joined(b, 1), 0)", "w_2d = joined(joined(w, 2), 1)"]
    assert shown(one.loops) == ["m < 960", "c < 16", "m, c, 16 * j + c, m"]


def test_what_a_loop_begins_behind_stays() -> None:
    one = found(copy(element("b", "m", "n", "p", "c"), element("w", "c", "8 + m", "n", "p")), m="56")
    assert one is not None
    assert shown(one.loops)[-1] == "m, c, c, 120 + m"


@pytest.mark.parametrize(
    ("store", "changed"),
    [
        (WINDOWS, {"n": "2", "p": "4"}),  # parts of windows
        (WINDOWS, {"n": "N"}),
        (WINDOWS, {"shapes": {"b": SHAPES["b"]}}),
        (copy(element("b", "m", "p", "n", "c"), element("w", "c", "m", "n", "p")), {}),
        (copy(element("b", "m", "n", "p", "c"), element("w", "c", "m", "n", "4 - p")), {"n": "1"}),
        (copy(element("b", "m", "n", "p", "c"), element("b", "m", "n", "p", "c")), {}),
    ],
)
def test_other_loops_stay(store: Store, changed: dict[str, object]) -> None:
    assert found(store, **changed) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("window", [(3, 3), (5, 3)])
def test_weights_of_windows_that_a_call_brings_are_packed_so(window: tuple[int, int]) -> None:
    pad = window[0] // 2, window[1] // 2
    y = nn.conv2d(nn.input("x", (1, 40, 8, 8)), nn.input("w", (32, 40, *window)), padding=pad)
    nest = nn.lower(nn.relu(y))
    net = pf.compile(nest, target="cpu", machine=SMALL)
    rng = np.random.default_rng(0)
    inputs = {t.name: rng.integers(-3, 4, t.shape).astype(t.dtype) for t in nest.inputs}
    np.testing.assert_array_equal(net(**inputs), pf.interpret(nest, inputs)["out"])
    assert "w_2d = joined(" in net.source
    assert "load_transposed(" in net.source
