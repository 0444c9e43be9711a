"""Gradients are those of torch's autograd in float64: at kinks, ties, zeros, NaN and infinities, and second ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polyfuse as pf
from polyfuse import nn

torch = pytest.importorskip("torch")

Array = np.ndarray[Any, Any]
NAN, INF = float("nan"), float("inf")

KINKS = np.array(
    [*(sign * x for x in (0.0, 0.3, 0.5, 1.0, 2.0, 3.0, 6.0, 700.0, INF) for sign in (1, -1)), NAN, 1e-15]
)

ELSEWHERE = {"mish": INF, "hardswish": NAN}
"""Where torch has NaN for mish, whose slope goes to 1, and 1 for hardswish of NaN, which is no number here."""

FUNCTIONS: dict[str, tuple[Callable[..., nn.Value], Callable[..., Any]]] = {
    **{
        name: (getattr(nn, name), getattr(torch, name))
        for name in (
            *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp"),
            *("exp2", "expm1", "floor", "log", "log10", "log1p", "log2", "reciprocal", "round", "rsqrt"),
            *("sigmoid", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc"),
        )
    },
    **{
        name: (getattr(nn, name), getattr(torch.nn.functional, name))
        for name in ("elu", "gelu", "hardswish", "leaky_relu", "mish", "relu", "silu", "softplus")
    },
    "log_sigmoid": (nn.log_sigmoid, torch.nn.functional.logsigmoid),
    "clamp": (lambda x: nn.clamp(x, -1, 2), lambda x: torch.clamp(x, -1, 2)),
    **{
        f"power {exponent}": (lambda x, e=exponent: nn.power(x, e), lambda x, e=exponent: x**e)
        for exponent in (3, 2.5, -1.0, 0.0)
    },
}


def both(
    layer: Callable[..., nn.Value], by_torch: Callable[..., Any], *given: Array
) -> list[tuple[Array, Array]]:
    """The gradients by all arguments, ours and torch's, for random cotangents."""
    values = [nn.input(f"x{n}", x.shape, "float64") for n, x in enumerate(given)]
    tensors = [torch.tensor(x, requires_grad=True) for x in given]
    result = by_torch(*tensors)
    seed = np.random.default_rng(1).normal(size=tuple(result.shape))
    expected = torch.autograd.grad(result, tensors, torch.tensor(seed))
    found = pf.interpret(pf.vjp(pf.lower(layer(*values))), [*given, seed])
    return [(own, theirs.numpy()) for own, theirs in zip(found.values(), expected, strict=True)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_one_number(name: str) -> None:
    at = KINKS[~np.isin(np.nan_to_num(KINKS, nan=-5), np.nan_to_num(ELSEWHERE.get(name, -9), nan=-5))]
    ((own, theirs),) = both(*FUNCTIONS[name], at)
    np.testing.assert_allclose(own, theirs, rtol=1e-12, atol=1e-15)


TWO = np.array([1.0, 2, 0, -1, NAN, INF, 3, 0]), np.array([1.0, 0, 0, -2, 1, 1, -INF, 2])


@pytest.mark.parametrize("name", ["maximum", "minimum", "divide", "multiply", "fmod"])
def test_functions_of_two_numbers(name: str) -> None:
    for own, theirs in both(getattr(nn, name), getattr(torch, name), *TWO):
        np.testing.assert_allclose(own, theirs, rtol=1e-12)


TIES = np.array([[2.0, 1, 2, 0], [1, 1, 1, 1], [3, 5, 5, 3], [0, 0, 0, 0]])
ZEROS = np.array([[0.0, 2, 3, 4], [0, 0, 3, 4], [1, 2, 3, 4], [0, 0, 0, 0]])
INFINITE = np.array([[2.0, -INF, 2, 0], [1, 1, INF, 1], [-INF, -INF, -INF, -INF], [NAN, 0, 0, 0]])
norm = torch.linalg.vector_norm

REDUCTIONS: dict[str, tuple[Callable[..., nn.Value], Callable[..., Any], Array]] = {
    "max": (lambda x: nn.max(x, axis=1), lambda x: torch.amax(x, 1), TIES),
    "min": (lambda x: nn.min(x, axis=0), lambda x: torch.amin(x, 0), TIES),
    "max of all": (nn.max, torch.amax, TIES),
    "prod": (lambda x: nn.prod(x, axis=1), lambda x: torch.prod(x, 1), ZEROS),
    "cumprod": (lambda x: nn.cumprod(x, 1), lambda x: torch.cumprod(x, 1), ZEROS),
    "norm": (lambda x: nn.norm(x, axis=1), lambda x: norm(x, 2, 1), ZEROS),
    "norm of order 1": (lambda x: nn.norm(x, axis=1, order=1), lambda x: norm(x, 1, 1), ZEROS),
    "std": (lambda x: nn.std(x, axis=1, correction=1), lambda x: torch.std(x, 1), TIES),
    "logsumexp": (lambda x: nn.logsumexp(x, axis=1), lambda x: torch.logsumexp(x, 1), INFINITE),
    "softmax": (lambda x: nn.softmax(x, 1), lambda x: torch.softmax(x, 1), INFINITE),
    "max pool": (
        lambda x: nn.max_pool(nn.reshape(x, (1, 1, 4, 4)), 3, stride=1, padding=1),
        lambda x: torch.nn.functional.max_pool2d(x.reshape(1, 1, 4, 4), 3, 1, 1),
        TIES,
    ),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_ties_zeros_and_infinities_of_reductions(name: str) -> None:
    layer, by_torch, given = REDUCTIONS[name]
    ((own, theirs),) = both(layer, by_torch, given)
    np.testing.assert_allclose(own, theirs, rtol=1e-12, atol=1e-15)


SECOND: dict[str, tuple[Callable[..., nn.Value], Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "layer norm": (
        lambda x, g, b: nn.layer_norm(x, 4, g, b),
        lambda x, g, b: torch.nn.functional.layer_norm(x, (4,), g, b),
        ((3, 4), (4,), (4,)),
    ),
    "batch norm in training": (
        lambda x, g, b: nn.batch_norm_of_batch(x, g, b)[0],
        lambda x, g, b: torch.nn.functional.batch_norm(x, None, None, g, b, training=True),
        ((3, 4, 5), (4,), (4,)),
    ),
    "convolution": (
        lambda x, w: nn.conv1d(x, w, stride=2, padding=1),
        lambda x, w: torch.nn.functional.conv1d(x, w, stride=2, padding=1),
        ((2, 4, 9), (6, 4, 3)),
    ),
    "attention": (
        lambda q, k, v: nn.matmul(nn.softmax(nn.matmul(q, nn.transpose(k)) * 0.5), v),
        lambda q, k, v: torch.softmax(q @ k.mT * 0.5, -1) @ v,
        ((5, 4), (5, 4), (5, 4)),
    ),
}


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives(name: str) -> None:
    """The gradients of a random combination of the gradients."""
    layer, by_torch, shapes = SECOND[name]
    rng = np.random.default_rng(2)
    given = [rng.normal(size=shape) for shape in shapes]
    tensors = [torch.tensor(x, requires_grad=True) for x in given]
    result = by_torch(*tensors)
    seed = rng.normal(size=tuple(result.shape))
    first = torch.autograd.grad(result, tensors, torch.tensor(seed), create_graph=True)
    weights = [rng.normal(size=shape) for shape in shapes]
    combined = sum((one * torch.tensor(weight)).sum() for one, weight in zip(first, weights, strict=True))
    expected = torch.autograd.grad(combined, tensors, materialize_grads=True)
    names = [f"x{n}" for n in range(len(given))]
    values = [nn.input(one, x.shape, "float64") for one, x in zip(names, given, strict=True)]
    twice = pf.vjp(pf.vjp(pf.lower(layer(*values))), names)
    found = pf.interpret(twice, [*given, seed, *weights])
    for own, theirs in zip(found.values(), expected, strict=True):
        np.testing.assert_allclose(own, theirs.numpy(), rtol=1e-9, atol=1e-10)
