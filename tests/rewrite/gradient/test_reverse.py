"""Reverse and forward mode agree with central differences: layers, recurrences, loops in place; and what is refused."""

# ruff: noqa: F821, B007

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy

import polyfuse as pf
from papers.polybench import KERNELS
from polyfuse import nn
from polyfuse.ir import Nest
from polyfuse.ir.nest_text import body_text
from polyfuse.ir.tree import Sequence, loops, loops_around
from polyfuse.rewrite import reverse
from polyfuse.rewrite.gradient import activity
from polyfuse.rewrite.gradient.adjoint_bodies import pull
from tests.support.gradients import agrees, drawn


def given(name: str, *shape: int) -> nn.Value:
    return nn.input(name, shape, "float64")


def convolution(rank: int, **options: Any) -> Nest:
    groups = options.get("groups", 1)
    image = given("x", 2, 4, *(7, 6, 5)[:rank])
    weights = given("w", 4, 4 // groups, *(3, 2, 3)[:rank])
    layer = (nn.conv1d, nn.conv2d, nn.conv3d)[rank - 1]
    return nn.lower(layer(image, weights, given("b", 4), **options))


def pooled(layer: Callable[..., nn.Value], *options: Any, **named: Any) -> Callable[[], Nest]:
    return lambda: nn.lower(layer(given("x", 2, 2, 7, 6), *options, **named))


def attention() -> Nest:
    q, k, v = (given(name, 2, 5, 4) for name in "qkv")
    return nn.lower(nn.matmul(nn.softmax(nn.matmul(q, nn.transpose(k)) * 0.5), v))


def recurrent(layer: Callable[..., Any], gates: int) -> Callable[[], Nest]:
    def made() -> Nest:
        x, w, u = given("x", 4, 2, 3), given("w", gates * 2, 3), given("u", gates * 2, 2)
        return nn.lower(layer(x, w, u, given("b", gates * 2), given("bu", gates * 2)))

    return made


X, Y = given("x", 3, 4), given("y", 3, 4)

LAYERS: dict[str, Callable[[], Nest]] = {
    "linear": lambda: nn.lower(nn.relu(nn.linear(given("x", 2, 3, 4), given("w", 4, 5), given("b", 5)))),
    "residual": lambda: nn.lower(nn.tanh(X) + X * Y + nn.exp(Y)),
    "several outputs": lambda: nn.lower((nn.exp(X), nn.exp(X) * Y)),
    "softmax": lambda: nn.lower(nn.softmax(X)),
    "log_softmax": lambda: nn.lower(nn.log_softmax(X)),
    "layer_norm": lambda: nn.lower(nn.layer_norm(X, 4, given("g", 4), given("b", 4))),
    "rms_norm": lambda: nn.lower(nn.rms_norm(X, 4, given("g", 4))),
    "group_norm": lambda: nn.lower(nn.group_norm(given("x", 2, 4, 3), 2, given("g", 4), given("b", 4))),
    "prod": lambda: nn.lower(nn.prod(X, axis=1)),
    "max": lambda: nn.lower(nn.max(X, axis=1)),
    "min": lambda: nn.lower(nn.min(X, axis=0)),
    "std": lambda: nn.lower(nn.std(X, axis=1)),
    "logsumexp": lambda: nn.lower(nn.logsumexp(X, axis=1)),
    "cumprod": lambda: nn.lower(nn.cumprod(X, 1)),
    "conv1d": lambda: convolution(1, padding=1),
    "conv2d": lambda: convolution(2, stride=2, padding=1),
    "conv2d dilated, in groups": lambda: convolution(2, dilation=2, padding=2, groups=2),
    "depthwise": lambda: convolution(2, groups=4, padding=1),
    "conv3d": lambda: convolution(3, stride=(1, 2, 2)),
    "conv_transpose": lambda: nn.lower(
        nn.conv_transpose(given("x", 2, 4, 4, 3), given("w", 4, 3, 3, 3), given("b", 3), stride=2, padding=1)
    ),
    "max_pool": pooled(nn.max_pool, 3, stride=2, padding=1),
    "avg_pool": pooled(nn.avg_pool, 2),
    "adaptive_avg_pool": pooled(nn.adaptive_avg_pool, (3, 4)),
    "adaptive_max_pool": pooled(nn.adaptive_max_pool, (3, 4)),
    "attention": attention,
    "views": lambda: nn.lower(nn.flip(nn.pad(nn.transpose(nn.reshape(X, (2, 6))), [1, 1]), 0) * 2.0),
    "overlapping views": lambda: nn.lower(nn.narrow(X, 1, 1, 2) * nn.narrow(X, 1, 2, 2)),
    "concat": lambda: nn.lower(nn.concat([X, Y * 2.0], 1)),
    "unfold": lambda: nn.lower(nn.unfold(X, 1, 2)),
    "embedding": lambda: nn.lower(nn.embedding(nn.input("i", (2, 3), "int64"), given("t", 3, 4))),
    "lstm": recurrent(nn.lstm, 4),
    "gru": recurrent(nn.gru, 3),
    "rnn": recurrent(nn.rnn, 1),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str) -> None:
    assert not agrees(LAYERS[name]()).stored


SELECTED = ("cholesky", "durbin", "gramschmidt", "jacobi-1d", "lu", "seidel-2d", "trmm")
"""Triangles, scalars that are used again, reductions in loops, and stencils in place."""


@pytest.mark.parametrize("name", SELECTED)
def test_polybench(name: str) -> None:
    kernel = KERNELS[name]
    sizes = {size: 3 + extent % 5 + (2 if size == "M" else 0) for size, extent in kernel.mini.items()}
    arrays = kernel.inputs(sizes, np.random.default_rng(4))
    known = {t.name for t in kernel.nest.inputs}
    agrees(
        kernel.nest,
        {size: extent for size, extent in sizes.items() if size in kernel.nest.params},
        given={array: np.asarray(value) for array, value in arrays.items() if array in known},
        tolerance=1e-5,
    )


@pf.nest
def running_maximum(x: "f64[N]", y: "f64[N]"):
    m = -1.0
    for i in range(N):
        m = max(m, x[i])
        y[i] = m * x[i]


@pf.nest
def in_place(x: "f64[N]", a: "f64[N, N]"):
    for t in range(2):
        for i in range(0, N, 2):
            for j in range(i):
                x[i] = x[i] * a[i, j] + a[j, i] * x[j] * x[i]


@pf.nest
def last_one_wins(x: "f64[N, N]", s: "f64[N]"):
    for i in range(N):
        for j in range(N):
            s[i] = x[i, j] * x[i, j]


@pytest.mark.parametrize("nest", [running_maximum, in_place, last_one_wins], ids=lambda nest: nest.name)
def test_loops(nest: Nest) -> None:
    found = agrees(nest, {"N": 5})
    assert bool(found.stored) is (nest.name != "last_one_wins")


@pf.nest
def scaled_stride(a: "f64", x: "f64[10]", w: "f64[4]", y: "f64[4]"):
    for p in range(4):
        for r in range(4):
            y[p] += a * x[2 * p + r] * w[r]


@pf.nest
def numbered_stride(x: "f64[10]", w: "f64[4]", y: "f64[4]"):
    for p in range(4):
        for r in range(4):
            y[p] += x[2 * p + r] * w[r] * (r + 1)


@pf.nest
def strides_in_a_loop(x: "f64[10, 2]", w: "f64[4]", y: "f64[4]"):
    for t in range(2):
        for p in range(4):
            for r in range(4):
                y[p] += x[2 * p + r, t] * w[r]
        for p in range(4):
            y[p] = y[p] * y[p]


@pytest.mark.parametrize(
    "nest", [scaled_stride, numbered_stride, strides_in_a_loop], ids=lambda nest: nest.name
)
def test_strides(nest: Nest) -> None:
    found = agrees(nest).nest
    first = next(s for s in found.statements if s.write.tensor == "x_grad")
    assert not first.is_reduction, "a sum begins with a first value"


def test_values_that_are_overwritten_are_kept() -> None:
    found = reverse(in_place.with_sizes({"N": 6}))
    assert found.stored[0] == (
        "x_now is overwritten after S0 reads it: kept in temporary S0_x_now: float64[2, 5, 4]"
    )


def test_remarks_say_who_adds_up() -> None:
    product = reverse(nn.lower(nn.matmul(given("x", 3, 4), given("w", 4, 2))))
    owned = "is owned by an iteration that meets all its terms"
    assert product.remarks == (f"mac0: each element of x_grad, w_grad {owned}",)
    assert "S0: it reads or overwrites what it wrote in the same loops" in reverse(in_place).remarks[0]
    rows = reverse(nn.lower(nn.embedding(nn.input("i", (2,), "int64"), given("t", 3, 4))))
    assert rows.remarks[-1].startswith("t: each of its rows is owned by an iteration that meets all numbers")


def test_tables_of_several_sizes_by_columns_of_one_array() -> None:
    """The gradient of a table adds what its own column names, and the other columns are no rows of it."""
    x = nn.input("x", (6, 2), "int64")
    tables = given("u", 3, 4), given("v", 9, 4)
    nest = pf.vjp(nn.lower(nn.embedding(x[:, 0], tables[0]) * nn.embedding(x[:, 1], tables[1])))
    rng = np.random.default_rng(0)
    u, v, out_bar = (rng.standard_normal(shape) for shape in ((3, 4), (9, 4), (6, 4)))
    numbers = np.stack([rng.integers(0, 3, 6), rng.integers(3, 9, 6)], 1)
    arrays = {"x": numbers, "u": u, "v": v, "out_bar": out_bar}
    u_grad, v_grad = np.zeros_like(u), np.zeros_like(v)
    np.add.at(u_grad, numbers[:, 0], out_bar * v[numbers[:, 1]])
    np.add.at(v_grad, numbers[:, 1], out_bar * u[numbers[:, 0]])
    net = pf.compile(nest, target="cpu")
    names = [tensor.name for tensor in net.nest.results]
    for found in (pf.interpret(nest, arrays), dict(zip(names, net(**arrays), strict=True))):
        np.testing.assert_allclose(found["u_grad"], u_grad, atol=1e-5)
        np.testing.assert_allclose(found["v_grad"], v_grad, atol=1e-5)
    arrays["x"] = numbers[:, ::-1].copy()
    with pytest.raises(pf.BadArgument, match=r"^x\[\d, 0\] is \d, expected 0 <= x\[\d, 0\] < 3"):
        net(**arrays)


def test_a_product_has_products_as_gradients() -> None:
    nest = pf.vjp(nn.lower(nn.matmul(given("x", 3, 4), given("w", 4, 2))))
    lines = [line.strip() for line in str(nest).splitlines() if "+=" in line]
    assert lines == [
        "mac0_to_x: x_grad[i, k] += out_bar[i, j] * w[k, j]",
        "mac0_to_w: w_grad[k, j] += out_bar[i, j] * x[i, k]",
    ]


def test_each_pixel_is_owned_by_one_iteration() -> None:
    nest = pf.vjp(nn.lower(nn.conv1d(given("x", 1, 2, 8), given("w", 3, 2, 3), padding=1)), "x")
    owner = nest.statement("mac0_to_x")
    assert str(owner.write) == "x_grad[i, l, e2]"
    assert owner.dims == (
        "i",
        "l",
        "e2",
        "j",
        "m",
    )  # an image, a channel and a pixel, then filters and the window


def lines_of(nest: Nest) -> list[str]:
    return [body_text(s) for s in nest.statements]


def test_each_phase_of_a_stride_is_dense() -> None:
    nest = pf.vjp(nn.lower(nn.conv1d(given("x", 1, 2, 8), given("w", 3, 2, 3), stride=2, padding=1)), "x")
    assert lines_of(nest) == [
        "x_phase[i, j, k] = 0.0",
        "x_phase[i, l, e2] += out_bar[0, j, e2] * w[j, l, 1]",
        "x_grad[0, j, 2k] = x_phase[i, j, k]",
        "x_phase_2[i, j, k] = 0.0",
        "x_phase_2[i, l, e2] += out_bar[0, j, 1 + e2 - m] * w[j, l, 2m]",
        "x_grad[0, j, 1 + 2k] = x_phase_2[i, j, k]",
    ]
    few = pf.vjp(nn.lower(nn.conv1d(given("x", 2, 2, 8), given("w", 3, 2, 1), stride=2)), "x")
    assert lines_of(few)[0] == "x_grad[i, j, k] = 0.0"  # the window does not reach the odd pixels
    assert lines_of(few)[-1] == "x_grad[i, j, 2k] += x_phase[i, j, k]"


def test_products_of_a_loop_have_loops_of_their_own_and_share_a_sum() -> None:
    nest = pf.vjp(KERNELS["gemm"].nest)
    assert lines_of(nest) == [
        "alpha_grad = 0.0",
        "A_grad[i, j] = 0.0",
        "B_grad[i, j] = 0.0",
        "S1_part[i, j] = 0.0",
        "S1_part[i, k] += C_bar[i, j] * B[k, j]",
        "alpha_grad += S1_part[i, j] * A[i, j]",
        "A_grad[i, j] += S1_part[i, j] * alpha",
        "B_grad[k, j] += C_bar[i, j] * (alpha * A[i, k])",
        "beta_grad = 0.0",
        "C_grad[i, j] = C_bar[i, j] * beta",
        "beta_grad += C_bar[i, j] * C[i, j]",
    ]
    assert not any(isinstance(loop.body, Sequence) for loop in loops(nest.order))


def test_a_sum_of_products_has_products_as_gradients() -> None:
    lines = lines_of(pf.vjp(KERNELS["syr2k"].nest, ("alpha", "A")))
    assert [line for line in lines if "+=" in line] == [
        "S1_1_part[i, k] += C_sum[i, j] * B[j, k]",
        "alpha_grad += S1_1_part[i, j] * A[i, j]",
        "A_grad[i, j] += S1_1_part[i, j] * alpha",
        "S1_part[j, k] += C_sum[i, j] * B[i, k]",
        "A_grad[i, j] += S1_part[i, j] * alpha",
        "alpha_grad += S1_part[i, j] * A[i, j]",
    ]


def test_loops_around_an_adjoint_statement_have_names_of_their_own() -> None:
    """A loop that counts down is one of its dimension, too: the adjoint gets no second loop of it."""
    nest = reverse(KERNELS["adi"].nest, values=True).nest
    for s in nest.statements:
        names = [loop.name for loop in loops_around(nest.order, s.name)]
        assert len(set(names)) == len(names)


def test_terms_of_a_stencil_are_gathered_where_all_of_them_meet() -> None:
    nest = pf.vjp(KERNELS["jacobi-1d"].nest)
    lines = [body_text(s) for s in nest.statements if s.name.startswith("S0_to_A")]
    third = "0.33333"
    assert lines == [
        f"A_sum[e0] += B_sum[1 + e0] * {third} + B_sum[e0] * {third} + B_sum[-1 + e0] * {third}",
        f"A_sum[e0] += B_sum[1 + e0] * {third}",
        f"A_sum[i] += B_sum[i] * {third}",
        f"A_sum[e0] += B_sum[-1 + e0] * {third}",
    ]


def test_a_maximum_that_is_subtracted_to_no_effect_passes_nothing_on() -> None:
    for layer, extremes in ((nn.softmax, 0), (nn.log_softmax, 0), (nn.logsumexp, 1), (nn.max, 1)):
        nest = pf.vjp(nn.lower(layer(X, axis=1)))
        assert len([s for s in nest.statements if s.name.endswith("_ties_fold")]) == extremes
    unlike = nn.exp(X - nn.max(X, axis=1, keepdims=True))  # not divided by its sum
    assert any(s.name.endswith("_ties_fold") for s in agrees(nn.lower(unlike)).nest.statements)


def test_a_compiled_gradient_takes_inputs_then_cotangents() -> None:
    nest = nn.lower((nn.linear(X, given("w", 4, 2)), nn.exp(X)))
    x, w, first, second = (np.random.default_rng(1).normal(size=s) for s in ((3, 4), (4, 2), (3, 2), (3, 4)))
    by_w, by_x = pf.compile(pf.vjp(nest, wrt=("w", "x"), outputs=("out1", "out0")), target="cpu")(
        x, w, second, first
    )
    np.testing.assert_allclose(by_w, x.T @ first, rtol=1e-12)
    np.testing.assert_allclose(by_x, first @ w.T + second * np.exp(x), rtol=1e-12)


def test_a_compiled_gradient_of_loops() -> None:
    nest = pf.vjp(in_place).with_sizes({"N": 6})
    given = drawn(nest, {"N": 6})
    found = pf.compile(nest, target="cpu")(*(given[t.name] for t in nest.inputs))
    expected = pf.interpret(nest, given)
    for result, tensor in zip(found, nest.results, strict=True):
        np.testing.assert_allclose(result, expected[tensor.name], rtol=1e-12)


def test_an_inout_keeps_its_value() -> None:
    nest = pf.vjp(in_place, "x", values=True)
    x, a, seed = np.ones(4), np.full((4, 4), 0.5), np.ones(4)
    found = pf.interpret(nest, [x, a, seed])
    assert [t.name for t in nest.results] == ["x_now", "x_grad"]
    np.testing.assert_array_equal(x, np.ones(4))
    np.testing.assert_array_equal(found["x_now"], pf.interpret(in_place, [x, a])["x"])


def test_grad_of_a_scalar_needs_no_cotangent() -> None:
    loss = nn.lower(nn.sum(nn.square(X)))
    nest = pf.grad(loss, values=True)
    x = np.arange(12.0).reshape(3, 4)
    value, gradient = pf.interpret(nest, [x]).values()
    assert value == (x * x).sum()
    np.testing.assert_array_equal(gradient, 2 * x)
    with pytest.raises(
        pf.BadArgument, match=r"expected one output of one element, given output out: float64\[3, 4\]"
    ):
        pf.grad(nn.lower(nn.exp(X)))


def test_second_derivatives() -> None:
    loss = nn.lower(nn.sum(nn.tanh(X) * X))
    agrees(pf.grad(loss))
    agrees(pf.vjp(nn.lower(nn.softmax(X))))


def test_halves_have_gradients_in_float32() -> None:
    nest = pf.vjp(nn.lower(nn.linear(nn.input("x", (3, 4), "float16"), nn.input("w", (4, 2), "float16"))))
    assert {t.dtype for t in nest.with_role("temporary")} == {"float32"}
    rng = np.random.default_rng(2)
    x, w, seed = (rng.integers(-3, 3, shape).astype("float16") for shape in ((3, 4), (4, 2), (3, 2)))
    found = pf.interpret(nest, [x, w, seed])
    np.testing.assert_array_equal(found["x_grad"], seed @ w.T)
    assert found["x_grad"].dtype == np.float16


def test_equal_values_share_a_maximum_as_in_torch() -> None:
    def gradient(value: nn.Value, x: np.ndarray[Any, Any]) -> list[float]:
        nest = pf.vjp(nn.lower(value))
        ones = np.ones(nest.inputs[1].shape)
        return list(pf.interpret(nest, [x, ones])["x_grad"].ravel())

    ties = np.array([[2.0, 1.0, 2.0, 0.0]])
    assert gradient(nn.max(given("x", 1, 4), axis=1), ties) == [0.5, 0, 0.5, 0]  # torch.amax
    assert gradient(nn.max_pool(given("x", 1, 1, 4), 3, stride=1), ties[None]) == [1, 0, 1, 0]  # the first
    zeros = np.array([[0.0, 2, 3, 4], [0, 0, 3, 4], [1, 2, 3, 4]])
    assert gradient(nn.prod(X, axis=1), zeros) == [24, 0, 0, 0, 0, 0, 0, 0, 24, 12, 8, 6]


def test_what_the_outputs_do_not_depend_on_has_gradient_0() -> None:
    nest = nn.lower((nn.exp(X), nn.exp(Y)))
    found = reverse(nest, outputs="out0")
    assert found.zero == ("y",)
    assert not pf.interpret(found.nest, [np.ones((3, 4))] * 3)["y_grad"].any()
    with pytest.raises(pf.BadArgument, match="no derivative connects y with out0: leave it out of wrt"):
        pf.vjp(nest, outputs="out0", unreached="error")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"wrt": "z"}, "wrt has 'z', which is no tensor of graph; expected names of t"),
        ({"wrt": "i"}, r"wrt has input i: int64\[2\]: integers have no derivative"),
        ({"wrt": "out"}, "it is not an input or a constant"),
        ({"outputs": "t"}, "it is not an output; expected names of out"),
        ({"wrt": ()}, "wrt is empty: there is nothing to differentiate"),
        ({"wrt": ("t", "t")}, "wrt names a tensor twice: t, t"),
        ({"unreached": "nan"}, "unreached is 'nan', expected 'zero' or 'error'"),
    ],
)
def test_bad_arguments(options: dict[str, Any], message: str) -> None:
    nest = nn.lower(nn.embedding(nn.input("i", (2,), "int64"), given("t", 3, 4)))
    with pytest.raises(pf.BadArgument, match=message):
        pf.vjp(nest, **options)


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("floyd-warshall", r"inout path: int64\[N, N\]"),
        ("nussinov", r"input seq: int64\[N\], inout table: int64\[N, N\]"),
    ],
)
def test_integers_have_no_gradient(name: str, inputs: str) -> None:
    expected = f"has no input of floating-point numbers, and others have no derivative: {inputs}"
    with pytest.raises(pf.BadArgument, match=expected):
        pf.vjp(KERNELS[name].nest)


def test_rounding_and_comparisons_have_no_slope_and_arrays_may_be_given_twice() -> None:
    x, w = nn.input("x", (4,), "float64"), nn.input("w", (4,), "float64")
    nest = pf.lower(nn.floor(x) * w + nn.cast(nn.greater(x, w), "float64") + nn.round(x))
    values, factors = np.array([0.5, 1.5, -2.2, 3.0]), np.array([1.0, 2.0, 3.0, 4.0])
    found = pf.interpret(pf.vjp(nest), {"x": values, "w": factors, "out_bar": values})
    assert found["x_grad"].tolist() == [0, 0, 0, 0]
    np.testing.assert_allclose(found["w_grad"], np.floor(values) * values)


def test_each_body_is_asked_once_for_the_reads_that_have_a_derivative(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(8, 8), nn.Tanh())))
    nest = pf.lower(net, batch=4)
    asked: list[object] = []

    def counted(body: sympy.Basic, seed: sympy.Basic) -> object:
        asked.append(body)
        return pull(body, seed)

    monkeypatch.setattr(activity, "pull", counted)
    pf.vjp(nest, nest.inputs[0].name)
    assert len(asked) <= len(nest.statements)
