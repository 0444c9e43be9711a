"""Functions of one number that users define: their values and gradients against SymPy's, and what is refused."""

import numpy as np
import pytest
import sympy
from numpy.testing import assert_allclose
from sympy.codegen.cfunctions import expm1, log1p

import polyfuse as pf
from polyfuse import nn
from polyfuse.errors import BadArgument

u = sympy.Symbol("u", real=True)

EXPRESSIONS: dict[str, sympy.Expr] = {
    "softplus": sympy.log(1 + sympy.exp(u)),
    "swish": u / (1 + sympy.exp(-u)),
    "cubic": u**3 - 2 * u**2 / 3 + sympy.pi,
    "quotient": sympy.sqrt(u**2 + 1) / (u + 4) ** 2 - 1 / (u + 5),
    "bell": sympy.exp(-(u**2) / 2) / sympy.sqrt(2 * sympy.pi),
    "powers": 2**u + (u**2 + 1) ** sympy.Rational(-1, 2),
    "clipped": sympy.Min(sympy.Max(u, -1), 1.5),
    "pieces": sympy.Piecewise((u, (u > 0) & (u < 1)), (2 * u, (u > 2) | (u < -1)), (u**2, True)),
    "otherwise": sympy.Piecewise((u, sympy.Not(sympy.Eq(u, 3))), (0, True)),
    "signed": sympy.sign(u) * sympy.Abs(u) ** 3,
    "near 0": log1p(sympy.exp(u)) + expm1(u),
}

POINTS = np.array([-3.3, -0.7, 0.4, 1.2, 2.6])


def _by_sympy(expr: sympy.Expr) -> np.ndarray:
    return np.array([float(sympy.N(expr.subs(u, sympy.Float(point, 30)), 25)) for point in POINTS])


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_sympy_expression_is_computed_and_differentiated_as_sympy_does(name: str) -> None:
    expr = EXPRESSIONS[name]
    function = pf.scalar(name.replace(" ", "_"), expr)
    nest = pf.lower(function(nn.input("x", (5,), "float64")))
    assert_allclose(pf.interpret(nest, [POINTS])["out"], _by_sympy(expr), rtol=1e-14)
    gradient = pf.interpret(pf.vjp(nest, "x"), [POINTS, np.ones(5)])["x_grad"]
    assert_allclose(gradient, _by_sympy(sympy.diff(expr, u)), rtol=1e-13, atol=1e-15)


def test_steps_have_no_derivative() -> None:
    function = pf.scalar("steps", u * sympy.floor(u) + sympy.ceiling(u))
    nest = pf.vjp(pf.lower(function(nn.input("x", (5,), "float64"))), "x")
    assert_allclose(pf.interpret(nest, [POINTS, np.ones(5)])["x_grad"], np.floor(POINTS))


def test_text_keeps_the_order_in_which_it_is_written() -> None:
    function = pf.scalar("scaled", "(1.0 + v) * v - where(v > 2, v, 0.5)")
    assert str(function) == "scaled(x) = (1.0 + x) * x - where(x > 2, x, 0.5)"


def test_layers_call_functions_by_their_names() -> None:
    softplus = pf.scalar("softplus", "log1p(exp(x))")
    nest = pf.lower(nn.Sequential(nn.Linear(4, 3), softplus, lambda x: x * 2.0, nn.tanh), batch=2)
    assert [s.name for s in nest.statements][3:] == ["softplus0", "mul0", "tanh0"]
    assert repr(nn.Sequential(softplus, nn.tanh)) == "Sequential(softplus, tanh)"


def test_statements_take_a_function_as_text() -> None:
    softplus = pf.scalar("softplus", "log1p(exp(x))")
    tensors = [pf.Tensor("x", (4,), "float64", "input"), pf.Tensor("y", (4,), "float64", "output")]
    text = f"y[i] = 2.0 * {softplus('-x[i] + 1.0')}"
    assert text == "y[i] = 2.0 * (log1p(exp(-x[i] + 1.0)))"
    nest = pf.Nest.of(tensors, [pf.statement("{ S[i] : 0 <= i < 4 }", text)])
    x = np.array([-1.0, 0.0, 1.0, 2.0])
    assert_allclose(pf.compile(nest)(x), 2 * np.logaddexp(0, 1 - x), rtol=1e-14)


@pytest.mark.parametrize(
    ("expr", "why"),
    [
        ("a * b", "one variable, such as .*; its variables: a, b"),
        (u + sympy.Symbol("v"), "its variables: u, v"),
        ("1.0", "its variables: none"),
        (sympy.pi * 2, "its variables: none"),
        ("x +", "cannot read 'x \\+': invalid syntax"),
        ("x[0]", "'x\\[0\\]' has subscripts"),
        ("gamma(x)", "cannot read 'gamma\\(x\\)'; allowed are"),
        (sympy.gamma(u), "scalar f: gamma\\(u\\) is not among .*log1p"),
        (sympy.I * u, "scalar f: I is not among"),
        (sympy.Piecewise((u, u > 0)), "has no value elsewhere"),
        (lambda x: x, "expected text or a SymPy expression"),
    ],
)
def test_what_is_no_function_of_one_number_is_refused(expr: object, why: str) -> None:
    with pytest.raises(BadArgument, match=why):
        pf.scalar("f", expr)  # type: ignore[arg-type]  # what a user may pass


def test_names_and_operands_are_checked() -> None:
    with pytest.raises(BadArgument, match="scalar function name 'a b' is not a free identifier"):
        pf.scalar("a b", "x")
    f = pf.scalar("f", "x * x")
    with pytest.raises(BadArgument, match="f: float is neither a value of polyfuse\\.nn nor text"):
        f(2.0)  # type: ignore[call-overload]  # what a user may pass
    with pytest.raises(BadArgument, match="f: 'x\\[' is no operand"):
        f("x[")
