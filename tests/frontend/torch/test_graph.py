"""The importer on graphs written by hand: it reads names, shapes and types, and needs no torch."""

import operator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.testing import assert_allclose

import polyfuse as pf
from polyfuse import nn
from polyfuse.frontend.torch.aten import ATEN
from polyfuse.frontend.torch.graph import import_nodes, missing_of, refusal_of


@dataclass(frozen=True)
class Meta:
    shape: tuple[int, ...]
    dtype: str = "torch.float32"


@dataclass
class Call:
    """A node as torch.fx has it."""

    name: str
    target: Any
    args: tuple[Any, ...]
    meta: dict[str, Any]
    kwargs: dict[str, Any] = field(default_factory=dict)
    op: str = "call_function"


def call(name: str, target: Any, *args: Any, shape: tuple[int, ...] = (), dtype: str = "float32") -> Call:
    return Call(name, target, args, {"val": Meta(shape, f"torch.{dtype}")})


def placeholder(name: str, shape: tuple[int, ...], dtype: str = "float32") -> Call:
    return Call(name, name, (), {"val": Meta(shape, f"torch.{dtype}")}, op="placeholder")


def output(*nodes: Call) -> Call:
    return Call("output", "output", (nodes,), {}, op="output")


def test_a_graph_becomes_a_nest() -> None:
    x, w, b = placeholder("x", (3, 4)), placeholder("w", (5, 4)), placeholder("b", (5,))
    t = call("t", "aten.t.default", w, shape=(4, 5))
    h = call("h", "aten.addmm.default", b, x, t, shape=(3, 5))
    r = call("r", "aten.relu.default", h, shape=(3, 5))
    s = call("s", "aten.sum.dim_IntList", r, [-1], shape=(3,))
    given = {one.name: nn.input(one.name, one.meta["val"].shape) for one in (x, w, b)}
    found = import_nodes([x, w, b, t, h, r, s, output(s, r)], given)
    assert not found.refused
    draw = np.random.default_rng(0)
    arrays = {name: draw.standard_normal(value.shape).astype("float32") for name, value in given.items()}
    want = np.maximum(arrays["x"] @ arrays["w"].T + arrays["b"], 0)
    total, rows = pf.interpret(pf.lower(found.outputs), arrays).values()
    assert_allclose(rows, want, rtol=1e-5, atol=1e-6)
    assert_allclose(total, want.sum(-1), rtol=1e-5, atol=1e-6)


def test_every_node_that_cannot_be_expressed_is_reported() -> None:
    x = placeholder("x", (3, 4))
    a = call("a", "aten.bessel_j0.default", x, shape=(3, 4))
    b = call("b", "aten.relu.default", a, shape=(3, 4))
    c = call("c", "aten.linalg_vector_norm.default", b, 3, shape=())
    found = import_nodes([x, a, b, c, output(c)], {"x": nn.input("x", (3, 4))})
    assert [(one.node, one.operator) for one in found.refused] == [
        ("a", "aten.bessel_j0.default"),
        ("c", "aten.linalg_vector_norm.default"),
    ]
    assert "there is no importer" in str(found.refused[0])
    assert "of 1, 2 and inf it is computed" in str(found.refused[1])


def test_truth_values_are_numbers() -> None:
    x = placeholder("x", (4,))
    small = call("small", "aten.lt.Scalar", x, 0.5, shape=(4,), dtype="bool")
    big = call("big", "aten.logical_not.default", small, shape=(4,), dtype="bool")
    chosen = call("chosen", "aten.where.self", big, x, 0.0, shape=(4,))
    found = import_nodes([x, small, big, chosen, output(chosen)], {"x": nn.input("x", (4,))})
    given = np.array([0.1, 0.5, np.nan, 2], "float32")
    (result,) = pf.interpret(pf.lower(found.outputs), {"x": given}).values()
    assert_allclose(result, [0, 0.5, np.nan, 2])


def test_integers_are_row_numbers_and_are_compared_among_themselves() -> None:
    ids = placeholder("ids", (3,), "int64")
    assert "row numbers alone" in str(
        refusal_of(call("a", "aten.add.Tensor", ids, 1, shape=(3,), dtype="int64"))
    )
    assert refusal_of(call("b", "aten.lt.Scalar", ids, 1, shape=(3,), dtype="bool")) is None
    assert "compares integers with other numbers" in str(
        refusal_of(call("b", "aten.lt.Scalar", ids, 1.5, shape=(3,), dtype="bool"))
    )
    table = placeholder("table", (7, 2))
    assert refusal_of(call("rows", "aten.embedding.default", table, ids, shape=(3, 2))) is None


def test_a_result_that_is_not_computed_is_named() -> None:
    x = placeholder("x", (1, 2, 4, 4))
    pool = call("pool", "aten.adaptive_max_pool2d.default", x, [2, 2])
    pool.meta["val"] = [Meta((1, 2, 2, 2)), Meta((1, 2, 2, 2), "torch.int64")]
    assert refusal_of(pool) is None
    assert list(missing_of(pool)) == [1]
    first = call("first", operator.getitem, pool, 0, shape=(1, 2, 2, 2))
    second = call("second", operator.getitem, pool, 1, shape=(1, 2, 2, 2), dtype="int64")
    found = import_nodes([x, pool, first, second, output(first)], {"x": nn.input("x", (1, 2, 4, 4))})
    assert [one.node for one in found.refused] == ["second"]


def test_a_shape_that_torch_does_not_expect_is_refused() -> None:
    x = placeholder("x", (1, 2, 5, 5))
    pool = call("pool", "aten.avg_pool2d.default", x, [2, 2], [2, 2], 0, False, shape=(1, 2, 3, 3))
    assert "pools to (1, 2, 2, 2), and torch to (1, 2, 3, 3)" in str(refusal_of(pool))


def test_names_are_those_of_aten_and_of_operators_kept_whole() -> None:
    assert len(ATEN) > 180
    assert all(name.startswith(("aten.", "polyfuse.")) and name.count(".") == 2 for name in ATEN)
