"""Vector rows as values: what is read of a function, when two are one type, and where their source may be."""

from __future__ import annotations

import ast

import numba
import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn
from polyfuse.codegen.cpu.intrinsics.vector_row import VectorRow
from polyfuse.codegen.looptree.alpha_equal import canonical
from tests.support.emitted import executed

SUM = """
@VectorRow
def row(a, b, out):
    z = a + b
    out[:] = z
"""


def row(text: str) -> VectorRow:
    found: VectorRow = executed(text, {"VectorRow": VectorRow})["row"]
    return found


def test_a_row_is_read_and_not_called() -> None:
    assert row(SUM).parameters == ("a", "b", "out")
    assert list(map(ast.unparse, row(SUM).statements)) == ["z = a + b", "out[:] = z"]


def test_rows_of_one_text_are_one_type_and_others_are_not() -> None:
    first, second, other = map(numba.typeof, (row(SUM), row(SUM), row(SUM.replace("+", "-"))))
    assert first == second
    assert hash(first) == hash(second)
    assert first != other


def test_rows_that_differ_in_names_alone_are_equal_source() -> None:
    renamed = SUM.replace("out", "a_2").replace("z", "y")
    assert canonical(SUM) == canonical(renamed)
    assert canonical(SUM) != canonical(SUM.replace("a + b", "b + a"))


def test_emitted_source_need_not_lie_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYFUSE_CACHE", "off")
    nest = pf.lower(nn.Sequential(nn.Linear(32, 32, seed=0), nn.ReLU()), batch=8)
    net = pf.compile(nest, target="cpu", machine="zen5")
    assert "@VectorRow" in net.source
    x = np.random.default_rng(0).standard_normal((8, 32)).astype(np.float32)
    np.testing.assert_allclose(net(x), pf.interpret(nest, [x])["out"], rtol=1e-5, atol=1e-5)


def test_rows_of_kernels_with_one_name_are_named_as_these() -> None:
    """Two layers that differ in width: the second kernel and its row get a number, and each name stands for one."""
    layers = (nn.Linear(512, 512, seed=0), nn.ReLU(), nn.Linear(512, 1024, seed=1), nn.ReLU())
    net = pf.compile(pf.lower(nn.Sequential(*layers), batch=64), target="cpu", machine="zen5")
    named = [node.name for node in ast.parse(net.source).body if isinstance(node, ast.FunctionDef)]
    assert len(named) == len(set(named))
    assert {name for name in named if name.endswith("_row")} == {
        "zero_mac_bias_relu_row",
        "zero_mac_bias_relu_2_row",
    }
